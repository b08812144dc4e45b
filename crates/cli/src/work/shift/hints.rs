//! Hearing at once that another caller acted on a claim, where the store can say so. It is a hint: the renewal that follows tells what
//! was done.

use std::sync::Arc;

use fencehold_contract::{HoldChange, LeaseStore, Subscription};
use fencehold_core::{Key, Namespace};
use tokio::sync::mpsc;

use super::Shift;
use crate::process::boot_ms;

/// How soon claims are renewed where the store may have missed a change: many a job has ended before that.
const MISSED_MS: u64 = 1_000;

/// What a store says of the claims in a namespace.
pub(super) struct Hints {
    heard: mpsc::UnboundedReceiver<Hint>,
    _subscription: Option<Subscription>,
    /// One came while claims were renewed: that may have been decided before it.
    while_renewing: bool,
    /// One came for no claim that is known, while jobs were claimed.
    while_claiming: bool,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Hint {
    /// Another caller acted on the job that events know by this key.
    Of(Key),
    /// The store may have missed some.
    Missed,
}

impl Hints {
    pub(super) fn of(store: &dyn LeaseStore, namespace: &Namespace) -> Self {
        let (tell, heard) = mpsc::unbounded_channel();
        let ours = namespace.clone();
        let subscription = store.on_hold_change(Arc::new(move |change| {
            let hint = match change {
                HoldChange::Of(namespace, _) if *namespace != ours => return,
                HoldChange::Of(_, key) => Hint::Of(key.clone()),
                HoldChange::Missed => Hint::Missed,
            };
            let _ = tell.send(hint);
        }));
        Hints { heard, _subscription: subscription, while_renewing: false, while_claiming: false }
    }

    /// The next one; `None` where the store says nothing.
    pub(super) async fn next(&mut self) -> Option<Hint> {
        self.heard.recv().await
    }
}

impl Shift {
    /// Has the claims renewed that a hint is about.
    pub(super) fn hurry(&mut self, hint: &Hint) {
        let now_ms = boot_ms();
        let (mut known, all) = (false, *hint == Hint::Missed);
        let at_ms = if all { now_ms.saturating_add(MISSED_MS) } else { now_ms };
        for running in self.running.values_mut() {
            if all || matches!(hint, Hint::Of(key) if is_of(key, &running.attempt.job)) {
                running.renew_at_ms = running.renew_at_ms.min(at_ms);
                known = true;
            }
        }
        self.hints.while_renewing |= known && self.renewing;
        self.hints.while_claiming |= !known && self.claiming.is_some();
    }

    /// Jobs were claimed: what was heard meanwhile may be about them.
    pub(super) fn hurry_after_claim(&mut self) {
        if std::mem::take(&mut self.hints.while_claiming) {
            self.hurry(&Hint::Missed);
        }
    }

    /// Claims were renewed: once more, if that may have been decided before what was heard meanwhile.
    pub(super) fn hurry_after_renewal(&mut self) {
        if std::mem::take(&mut self.hints.while_renewing) {
            let now_ms = boot_ms();
            self.running.values_mut().for_each(|running| running.renew_at_ms = now_ms);
        }
    }
}

/// Whether events know a job by this key.
fn is_of(key: &Key, job: &impl ToString) -> bool {
    key.as_str().strip_prefix("job/").is_some_and(|id| id == job.to_string())
}
