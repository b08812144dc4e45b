//! `fencehold serve`: the store behind HTTP.

use std::net::SocketAddr;
use std::sync::Arc;

use fencehold_server::Server;
use fencehold_server::access::Access;
use fencehold_store::clock::SystemClock;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};

use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::verb::{DONE, Outcome};

const EXAMPLES: &str = "\
Examples:
  fencehold serve
  fencehold --store file:/var/lib/fencehold serve --listen 127.0.0.1:7117
  curl http://127.0.0.1:7117/v1/openapi.json
";

/// Serve the store over HTTP, to clients of every language
#[derive(Debug, clap::Args)]
#[command(before_help = EXAMPLES)]
pub(crate) struct Args {
    /// The address to listen at
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:7117", env = "FENCEHOLD_LISTEN")]
    listen: SocketAddr,
}

impl Args {
    pub(crate) async fn run(self, context: &Context) -> Outcome {
        if !self.listen.ip().is_loopback() {
            let what = format!(
                "{} is not an address of this machine alone, and callers are not told apart",
                self.listen
            );
            return Err(Failure::new(Exit::Usage, what).with_next("Listen at 127.0.0.1 or [::1]."));
        }
        let store = context.open()?;
        let failed = |error: std::io::Error| {
            Failure::new(Exit::Failed, format!("cannot listen at {}: {error}", self.listen))
        };
        store
            .closing(async |store| {
                let listener = TcpListener::bind(self.listen).await.map_err(failed)?;
                let address = listener.local_addr().map_err(failed)?;
                let stop = told_to_stop()?;
                let server = Server::new(Arc::clone(&store.leases), Arc::new(SystemClock), Access::default());
                crate::output::note(&format!("serving {} at http://{address}", store.name));
                server.serve(listener, stop).await.map_err(failed)
            })
            .await?;
        Ok(DONE)
    }
}

/// Ends when the process is told to stop.
fn told_to_stop() -> Result<impl Future<Output = ()>, Failure> {
    let heed = |kind| {
        signal(kind).map_err(|error| Failure::new(Exit::Failed, format!("signals cannot be heeded: {error}")))
    };
    let (mut terminate, mut interrupt) = (heed(SignalKind::terminate())?, heed(SignalKind::interrupt())?);
    Ok(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    })
}
