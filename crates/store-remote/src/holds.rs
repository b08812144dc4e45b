//! Hearing from the server that another caller acted on what is held through this handle.

use std::sync::Arc;
use std::time::Duration;

use fencehold_contract::http::HoldChange;
use fencehold_contract::problem::ErrorKind;
use fencehold_core::Namespace;
use fencehold_net::FeedEnd;

use super::Inner;
use super::budget::Fault;
use super::wire::Lines;

/// Nothing came for so long, although the server sends a comment now and then: the connection is dead.
const SILENT_MAX: Duration = Duration::from_secs(60);

impl Inner {
    /// Something was granted here: listens from now on, if a listener wants to know.
    pub(super) fn follow_holds(self: &Arc<Self>, namespace: &Namespace) {
        let inner = Arc::clone(self);
        self.feeds
            .follow(namespace, async move |namespace: &Namespace| inner.listen(namespace).await);
    }

    async fn listen(&self, namespace: &Namespace) -> FeedEnd {
        match self.wire.stream(fencehold_contract::http::HOLD_CHANGES_PATH, namespace).await {
            Ok(lines) => {
                // What happened before it was listened for.
                self.feeds.changes.tell_missed();
                self.hear(lines, namespace).await
            }
            Err(Fault::Problem(problem))
                if problem.kind == ErrorKind::Stopping || problem.kind.status() == 429 =>
            {
                FeedEnd::Broken
            }
            Err(Fault::Problem(_) | Fault::Stranger(_) | Fault::Distrusted(_)) => FeedEnd::Refused,
            Err(Fault::Unreached(why) | Fault::Unclear(why)) => {
                tracing::debug!(why, "the server does not say what others do to held leases; asking again");
                FeedEnd::Broken
            }
        }
    }

    /// Hears until the stream ends. It works once there was a second sign of life.
    async fn hear(&self, mut lines: Lines, namespace: &Namespace) -> FeedEnd {
        let changes = &self.feeds.changes;
        let mut signs: u64 = 0;
        while let Ok(Some(line)) = tokio::time::timeout(SILENT_MAX, lines.next()).await {
            if line.starts_with(':') {
                signs += 1;
            }
            if !changes.has_listeners() {
                break;
            }
            let Some(data) = line.strip_prefix("data: ") else { continue };
            match serde_json::from_str::<HoldChange>(data) {
                Ok(HoldChange { key: Some(key) }) => changes.tell(std::iter::once((namespace, &key))),
                Ok(HoldChange { key: None }) | Err(_) => changes.tell_missed(),
            }
        }
        if signs > 1 { FeedEnd::BrokenLater } else { FeedEnd::Broken }
    }
}
