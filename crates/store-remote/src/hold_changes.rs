//! Hearing from the server that another caller acted on what is held through this handle.

use std::sync::Arc;
use std::time::Duration;

use fencehold_contract::http::HoldChange;
use fencehold_contract::problem::ErrorKind;
use fencehold_core::Namespace;
use fencehold_net::FeedEnd;

use super::RemoteInner;
use super::budget::RequestError;
use super::http_client::ResponseLines;

/// Nothing came for so long, although the server sends a comment now and then: the connection is dead.
const SILENT_MAX: Duration = Duration::from_secs(60);

impl RemoteInner {
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
            Err(fault) => {
                tracing::debug!(?fault, "the server does not say what others do to held leases");
                end_of(&fault)
            }
        }
    }

    /// Hears until the stream ends. It works once there was a second sign of life.
    async fn hear(&self, mut lines: ResponseLines, namespace: &Namespace) -> FeedEnd {
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

/// What an attempt to listen came to: what may pass is tried again.
fn end_of(fault: &RequestError) -> FeedEnd {
    match fault {
        RequestError::Problem(problem) => match problem.kind {
            ErrorKind::Stopping | ErrorKind::Unavailable => FeedEnd::Broken,
            kind if kind.status() == 429 => FeedEnd::Broken,
            _ => FeedEnd::Refused,
        },
        RequestError::Stranger(_) | RequestError::Unread(_) => FeedEnd::Refused,
        // A certificate that is not accepted may be a mistake that is being put right.
        RequestError::Unreached(_) | RequestError::Unclear(_) | RequestError::Distrusted(_) => {
            FeedEnd::Broken
        }
    }
}

#[cfg(test)]
mod tests {
    use fencehold_contract::problem::Problem;

    use super::*;

    #[test]
    fn what_may_pass_is_listened_for_again() {
        let problem = |kind| RequestError::Problem(Box::new(Problem::new(kind, "no")));
        for kind in [ErrorKind::Stopping, ErrorKind::Unavailable, ErrorKind::RateLimited] {
            assert_eq!(end_of(&problem(kind)), FeedEnd::Broken, "{kind:?}");
        }
        assert_eq!(end_of(&problem(ErrorKind::Forbidden)), FeedEnd::Refused);
        assert_eq!(end_of(&RequestError::Distrusted("no".to_owned())), FeedEnd::Broken);
        assert_eq!(end_of(&RequestError::Stranger("no".to_owned())), FeedEnd::Refused);
    }
}
