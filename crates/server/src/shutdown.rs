//! The end of a server, known to all who stand in line.

use fencehold_contract::problem::{ErrorKind, Problem};
use tokio::sync::watch;

/// After how long another server, or this one's successor, may be there.
const RETRY_AFTER_MS: u64 = 500;

#[derive(Debug)]
pub(crate) struct Shutdown(watch::Sender<bool>);

impl Default for Shutdown {
    fn default() -> Self {
        Shutdown(watch::Sender::new(false))
    }
}

impl Shutdown {
    pub(crate) fn stop(&self) {
        self.0.send_replace(true);
    }

    pub(crate) fn is_stopping(&self) -> bool {
        *self.0.borrow()
    }

    /// Says so to requests for something new once the server is stopping.
    pub(crate) fn check(&self) -> Result<(), Problem> {
        if self.is_stopping() { Err(problem()) } else { Ok(()) }
    }

    /// Does something that may take long, unless the server stops: then nothing was done, and the line has been left.
    pub(crate) async fn unless<T>(&self, waiting: impl Future<Output = T>) -> Result<T, Problem> {
        self.check()?;
        let mut shutdown = self.0.subscribe();
        tokio::select! {
            biased;
            answer = waiting => Ok(answer),
            _ = shutdown.wait_for(|shutdown| *shutdown) => Err(problem()),
        }
    }
}

pub(crate) fn problem() -> Problem {
    let mut problem = Problem::new(ErrorKind::Stopping, "the server is stopping; ask again");
    problem.message = Some("the server is stopping".to_owned());
    problem.retry_after_ms = Some(RETRY_AFTER_MS);
    problem
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn once_it_stops_nothing_new_is_begun() {
        let shutdown = Shutdown::default();
        assert_eq!(shutdown.unless(async { "done" }).await, Ok("done"));
        shutdown.stop();
        assert_eq!(shutdown.check(), Err(problem()));
        assert_eq!(shutdown.unless(async { "done" }).await, Err(problem()));
    }
}
