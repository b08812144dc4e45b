//! What a fenced file remembers: the mark of every key, and the latest appends.

use std::collections::{HashSet, VecDeque};

use fencehold_core::{Key, Namespace};

use super::frame::{Entry, Made};
use crate::fence::mark::{Admitted, Mark, Marks};
use crate::fence::pass::KeyToken;

#[derive(Clone, Debug)]
pub(super) struct State {
    marks: Marks,
    made: HashSet<Made>,
    /// The same, oldest first.
    order: VecDeque<Made>,
    remember: usize,
}

impl State {
    /// Nothing, with room for this many appends.
    pub(super) fn new(remember: usize) -> Self {
        State { marks: Marks::default(), made: HashSet::new(), order: VecDeque::new(), remember }
    }

    /// Whether a pass is let through, and what has to be remembered of it. A stale one gets the mark that it missed.
    pub(super) fn admit(&self, pass: &KeyToken) -> Result<Option<Entry>, Mark> {
        match self.marks.admit(pass) {
            Err(mark) => Err(mark.clone()),
            Ok(Admitted::AsBefore) => Ok(None),
            Ok(Admitted::Higher) => Ok(Some(Entry::Raised {
                namespace: pass.namespace.clone(),
                key: pass.key.clone(),
                token: pass.token,
                by: pass.owner.clone(),
            })),
        }
    }

    pub(super) fn is_made(&self, made: Made) -> bool {
        self.made.contains(&made)
    }

    pub(super) fn mark(&self, namespace: &Namespace, key: &Key) -> Option<&Mark> {
        self.marks.get(namespace, key)
    }

    /// The one way in which anything changes, while a step is decided and when a journal is read.
    pub(super) fn apply(&mut self, entry: Entry) {
        match entry {
            Entry::Raised { namespace, key, token, by } => {
                self.marks.raise(namespace, key, Mark { token, raised_by: by });
            }
            Entry::Forgotten { namespace, key } => self.marks.forget(namespace, key),
            Entry::Made(made) => {
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
    pub(super) fn entries(&self) -> Vec<Entry> {
        let raised = self.marks.iter().map(|(namespace, key, mark)| Entry::Raised {
            namespace: namespace.clone(),
            key: key.clone(),
            token: mark.token,
            by: mark.raised_by.clone(),
        });
        raised.chain(self.order.iter().copied().map(Entry::Made)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made(n: u32) -> Made {
        Made::new(&Namespace::default(), &Key::new("k").unwrap(), &n.to_string())
    }

    #[test]
    fn the_oldest_appends_are_forgotten_first() {
        let mut state = State::new(2);
        for n in [1, 2, 2, 3] {
            state.apply(Entry::Made(made(n)));
        }
        assert_eq!([1, 2, 3].map(|n| state.is_made(made(n))), [false, true, true]);
        let mut again = State::new(2);
        state.entries().into_iter().for_each(|entry| again.apply(entry));
        again.apply(Entry::Made(made(4)));
        assert_eq!([2, 3, 4].map(|n| again.is_made(made(n))), [false, true, true], "the order is kept too");
    }
}
