//! A lease or a job as a `CancellationToken`: for what already stops by one.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use crate::guard::Lease;
use crate::job::Job;

impl Lease {
    /// A token that is cancelled when the lease is over: lost, or released.
    ///
    /// ```
    /// use fencehold::Fencehold;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), fencehold::Error> {
    /// let fh = Fencehold::connect("memory:").await?;
    /// let lease = fh.lease("reports/daily").acquire().await?;
    /// let token = lease.cancellation_token();
    /// let report = tokio::spawn(async move { token.run_until_cancelled(std::future::pending::<()>()).await });
    /// lease.release().await?;
    /// assert_eq!(report.await.expect("it does not panic"), None);
    /// # Ok(())
    /// # }
    /// ```
    pub fn cancellation_token(&self) -> CancellationToken {
        let token = CancellationToken::new();
        let cancelled = token.clone();
        let holding = Arc::clone(&self.holding);
        self.handle.connection.spawn(async move {
            holding.lost().await;
            cancelled.cancel();
        });
        token
    }
}

impl Job {
    /// A token that is cancelled when the handler should stop, for whatever [reason](Job::stop_requested): the job was cancelled, it is asked to
    /// yield, its worker drains, or its claim is over.
    pub fn cancellation_token(&self) -> CancellationToken {
        let token = CancellationToken::new();
        let cancelled = token.clone();
        let stop_requested = self.stop_requested();
        self.attempt.reporter.spawn(async move {
            stop_requested.await;
            cancelled.cancel();
        });
        token
    }
}
