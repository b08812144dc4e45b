//! What is remembered of the newest, and of no more than there is room for.

use std::collections::VecDeque;
use std::hash::Hash;

use hashbrown::HashMap;

/// The newest `MAX` entries, by key.
#[derive(Debug)]
pub(crate) struct Recent<K, V, const MAX: usize> {
    entries: HashMap<K, V>,
    /// The oldest first.
    order: VecDeque<K>,
}

impl<K, V, const MAX: usize> Default for Recent<K, V, MAX> {
    fn default() -> Self {
        Recent { entries: HashMap::new(), order: VecDeque::new() }
    }
}

impl<K: Copy + Eq + Hash, V, const MAX: usize> Recent<K, V, MAX> {
    /// Remembers an entry, in place of an earlier one with the same key.
    pub(crate) fn insert(&mut self, key: K, value: V) {
        if self.entries.insert(key, value).is_some() {
            return;
        }
        self.order.push_back(key);
        if self.order.len() > MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.entries.remove(&oldest);
        }
    }

    pub(crate) fn get(&self, key: &K) -> Option<&V> {
        self.entries.get(key)
    }

    pub(crate) fn forget(&mut self, key: &K) {
        self.entries.remove(key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAX: usize = 1 << 16;

    /// A namespace, and what recognises a hold id in it.
    type Holder = (u32, [u8; 16]);

    fn holder(nth: usize) -> Holder {
        let mut hash = [0; 16];
        hash[..8].copy_from_slice(&nth.to_le_bytes());
        (1, hash)
    }

    #[test]
    fn the_newest_are_remembered_and_no_more_than_there_is_room_for() {
        let mut past = Recent::<Holder, (), MAX>::default();
        for nth in 0..MAX + 2 {
            past.insert(holder(nth), ());
            past.insert(holder(nth), ());
        }
        let has = |past: &Recent<Holder, (), MAX>, holder: Holder| past.get(&holder).is_some();
        assert!(!has(&past, holder(0)) && !has(&past, holder(1)));
        assert!(has(&past, holder(2)) && has(&past, holder(MAX + 1)));
        assert_eq!((past.entries.len(), past.order.len()), (MAX, MAX));
        assert!(!has(&past, (2, holder(2).1)), "another namespace's");
        past.forget(&holder(2));
        assert!(!has(&past, holder(2)));
    }
}
