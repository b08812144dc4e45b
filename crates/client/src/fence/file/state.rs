//! What a fenced file remembers: the mark of every key, and the latest appends.

use std::collections::{HashSet, VecDeque};

use fencehold_core::{Key, Namespace};

use super::frame::{AppendId, JournalEntry};
use crate::fence::key_token::KeyToken;
use crate::fence::mark::{Mark, Marks};

#[derive(Clone, Debug)]
pub(super) struct FenceState {
    marks: Marks,
    made: HashSet<AppendId>,
    /// The same, oldest first.
    order: VecDeque<AppendId>,
    remember: usize,
}

impl FenceState {
    /// Nothing, with room for this many appends.
    pub(super) fn new(remember: usize) -> Self {
        FenceState { marks: Marks::default(), made: HashSet::new(), order: VecDeque::new(), remember }
    }

    /// Whether a pass is let through, and what has to be remembered of it. A stale one gets the mark that it missed.
    pub(super) fn admit(&self, pass: &KeyToken) -> Result<Option<JournalEntry>, Mark> {
        let raised = self.marks.admit(pass).map_err(Mark::clone)?;
        Ok(raised.map(|mark| raised_to(&pass.namespace, &pass.key, &mark)))
    }

    pub(super) fn is_made(&self, made: AppendId) -> bool {
        self.made.contains(&made)
    }

    pub(super) fn mark(&self, namespace: &Namespace, key: &Key) -> Option<&Mark> {
        self.marks.get(namespace, key)
    }

    /// The one way in which anything changes, while a step is decided and when a journal is read.
    pub(super) fn apply(&mut self, entry: JournalEntry) {
        match entry {
            JournalEntry::Raised { namespace, key, token, by } => {
                self.marks.raise(namespace, key, Mark { token, raised_by: by });
            }
            JournalEntry::Forgotten { namespace, key } => self.marks.forget(namespace, key),
            JournalEntry::Made(made) => {
                if self.made.insert(made) {
                    self.order.push_back(made);
                }
                while self.order.len() > self.remember {
                    if let Some(oldest) = self.order.pop_front() {
                        self.made.remove(&oldest);
                    }
                }
            }
        }
    }

    /// Everything, as the fewest entries that lead to it.
    pub(super) fn entries(&self) -> Vec<JournalEntry> {
        let raised = self.marks.iter().map(|(namespace, key, mark)| raised_to(namespace, key, mark));
        raised.chain(self.order.iter().copied().map(JournalEntry::Made)).collect()
    }
}

fn raised_to(namespace: &Namespace, key: &Key, mark: &Mark) -> JournalEntry {
    let Mark { token, raised_by: by } = mark.clone();
    JournalEntry::Raised { namespace: namespace.clone(), key: key.clone(), token, by }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made(n: u32) -> AppendId {
        AppendId::new(&Namespace::default(), &Key::new("k").unwrap(), &n.to_string())
    }

    #[test]
    fn the_oldest_appends_are_forgotten_first() {
        let mut state = FenceState::new(2);
        for n in [1, 2, 2, 3] {
            state.apply(JournalEntry::Made(made(n)));
        }
        assert_eq!([1, 2, 3].map(|n| state.is_made(made(n))), [false, true, true]);
        let mut again = FenceState::new(2);
        state.entries().into_iter().for_each(|entry| again.apply(entry));
        again.apply(JournalEntry::Made(made(4)));
        assert_eq!([2, 3, 4].map(|n| again.is_made(made(n))), [false, true, true], "the order is kept too");
    }
}
