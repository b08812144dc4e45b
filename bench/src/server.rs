//! A server in a process of its own, until it is dropped.

use std::future::Future;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use fencehold_load::Failed;

/// How long it may take until it responds.
const STARTS_WITHIN: Duration = Duration::from_secs(20);

/// A private server.
#[derive(Debug)]
pub(crate) struct Server(Child);

impl Server {
    /// Starts a peer, which `package` of Debian has, and waits until `ready` succeeds.
    pub(crate) async fn start<F: Future<Output = Result<(), Failed>>>(
        command: &mut Command,
        package: &str,
        ready: impl Fn() -> F,
    ) -> Result<Server, Failed> {
        let name = command.get_program().to_string_lossy().into_owned();
        let child = command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|error| format!("{name} cannot be started ({error}); install Debian's {package}"))?;
        let server = Server(child);
        let started = Instant::now();
        while let Err(error) = ready().await {
            if started.elapsed() > STARTS_WITHIN {
                return Err(format!("{name} did not respond within {STARTS_WITHIN:?}: {error}").into());
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Ok(server)
    }

    pub(crate) fn of(child: Child) -> Server {
        Server(child)
    }

    pub(crate) fn pid(&self) -> u32 {
        self.0.id()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
