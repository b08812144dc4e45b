//! A watcher's mailbox: what it was not told yet, and no more of that than is fair.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use fencehold_contract::problem::Problem;
use tokio::sync::Notify;

use crate::locked;

/// How much may wait for one watcher.
const BYTES_MAX: usize = 8 << 20;

/// How much of it becomes one message, unless one reading found more: the message is a copy of each watcher's own, where
/// what waits is shared by all.
const MESSAGE_BYTES: usize = 256 << 10;

/// What one reading found for one prefix.
#[derive(Debug)]
pub(crate) struct EventBatch {
    /// Each with its number, as JSON.
    pub(super) events: Vec<(u64, Arc<str>)>,
    /// The cursor to go on from.
    pub(super) next: u64,
    pub(super) bytes: usize,
}

impl EventBatch {
    pub(super) fn empty(next: u64) -> Self {
        // What says only that something happened takes room, too.
        EventBatch { events: Vec::new(), next, bytes: 1 }
    }
}

/// What a watcher finds.
#[derive(Debug)]
pub(crate) enum Delivery {
    /// What happened, oldest first.
    Batches(Vec<Arc<EventBatch>>),
    /// Why nothing more comes.
    End(Arc<Problem>),
}

impl Delivery {
    /// The events after this cursor as the items of a JSON array, and the cursor to go on from.
    pub(crate) fn items(batches: &[Arc<EventBatch>], after: u64) -> (String, u64) {
        let mut items = String::with_capacity(batches.iter().map(|batch| batch.bytes).sum());
        for (seq, event) in batches.iter().flat_map(|batch| &batch.events) {
            if *seq > after {
                if !items.is_empty() {
                    items.push(',');
                }
                items.push_str(event);
            }
        }
        (items, batches.last().map_or(after, |batch| batch.next.max(after)))
    }
}

/// More waited for a watcher than is fair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TooSlow;

#[derive(Debug, Default)]
pub(super) struct Mailbox {
    inside: Mutex<MailboxState>,
    rung: Notify,
}

#[derive(Debug, Default)]
struct MailboxState {
    batches: VecDeque<Arc<EventBatch>>,
    bytes: usize,
    full: bool,
    end: Option<Arc<Problem>>,
}

impl Mailbox {
    pub(super) fn put(&self, batch: &Arc<EventBatch>) {
        let mut inside = locked(&self.inside);
        if inside.full {
            return;
        }
        inside.bytes += batch.bytes;
        inside.batches.push_back(Arc::clone(batch));
        if inside.bytes > BYTES_MAX {
            inside.full = true;
            inside.batches.clear();
        }
        drop(inside);
        self.rung.notify_one();
    }

    pub(super) fn end(&self, problem: &Arc<Problem>) {
        locked(&self.inside).end = Some(Arc::clone(problem));
        self.rung.notify_one();
    }

    pub(super) fn is_empty(&self) -> bool {
        let inside = locked(&self.inside);
        inside.batches.is_empty() && !inside.full && inside.end.is_none()
    }

    /// Waits until there is something, and takes as much as one message should have. Cancel safe.
    pub(super) async fn take(&self) -> Result<Delivery, TooSlow> {
        loop {
            if let Some(found) = self.find() {
                return found;
            }
            self.rung.notified().await;
        }
    }

    fn find(&self) -> Option<Result<Delivery, TooSlow>> {
        let mut inside = locked(&self.inside);
        if inside.full {
            return Some(Err(TooSlow));
        }
        let mut taken = Vec::new();
        let mut bytes = 0;
        while bytes < MESSAGE_BYTES
            && let Some(batch) = inside.batches.pop_front()
        {
            bytes += batch.bytes;
            taken.push(batch);
        }
        inside.bytes -= bytes;
        if !taken.is_empty() {
            return Some(Ok(Delivery::Batches(taken)));
        }
        inside.end.take().map(|problem| Ok(Delivery::End(problem)))
    }
}

#[cfg(test)]
mod tests {
    use fencehold_contract::problem::ErrorKind;

    use super::*;

    fn batch(seqs: std::ops::RangeInclusive<u64>, bytes: usize) -> Arc<EventBatch> {
        let next = *seqs.end();
        Arc::new(EventBatch { events: seqs.map(|seq| (seq, seq.to_string().into())).collect(), next, bytes })
    }

    #[tokio::test]
    async fn all_that_waits_is_taken_at_once_and_what_is_known_already_is_left_out() {
        let mailbox = Mailbox::default();
        mailbox.put(&batch(1..=3, 3));
        mailbox.put(&batch(4..=5, 2));
        mailbox.end(&Arc::new(Problem::new(ErrorKind::Unavailable, "gone")));
        let Ok(Delivery::Batches(batches)) = mailbox.take().await else {
            panic!("what happened comes first")
        };
        assert_eq!(Delivery::items(&batches, 2), ("3,4,5".to_owned(), 5));
        assert_eq!(Delivery::items(&batches, 9), (String::new(), 9));
        assert!(matches!(mailbox.take().await, Ok(Delivery::End(_))));
    }

    #[tokio::test]
    async fn what_waits_is_taken_a_message_at_a_time_and_then_is_room_again() {
        let mailbox = Mailbox::default();
        for nth in 0..8 {
            mailbox.put(&batch(nth..=nth, MESSAGE_BYTES / 2));
        }
        for _ in 0..4 {
            let Ok(Delivery::Batches(batches)) = mailbox.take().await else { panic!("there is more") };
            assert_eq!(batches.len(), 2);
        }
        assert!(mailbox.is_empty());
        mailbox.put(&batch(9..=9, BYTES_MAX));
        assert!(matches!(mailbox.take().await, Ok(Delivery::Batches(_))), "what was taken still counts");
    }

    #[tokio::test]
    async fn a_mailbox_that_nobody_empties_is_given_up_and_keeps_nothing() {
        let mailbox = Mailbox::default();
        let large = batch(1..=1, BYTES_MAX / 2);
        for _ in 0..3 {
            mailbox.put(&large);
        }
        assert_eq!(mailbox.take().await.err(), Some(TooSlow));
        mailbox.put(&large);
        assert_eq!(Arc::strong_count(&large), 1);
    }
}
