//! Things found by how a text begins: however many there are, a text looks up only the lengths that there are.

use std::collections::{BTreeMap, BTreeSet};

use hashbrown::HashMap;

/// Things, each under a prefix.
#[derive(Clone, Debug)]
pub struct Prefixes<T> {
    under: HashMap<Box<str>, BTreeSet<T>>,
    /// How many prefixes there are of each length, in bytes.
    lengths: BTreeMap<usize, usize>,
}

impl<T> Default for Prefixes<T> {
    fn default() -> Self {
        Prefixes { under: HashMap::new(), lengths: BTreeMap::new() }
    }
}

impl<T: Ord> Prefixes<T> {
    /// Puts one under a prefix; under the empty one it is found by every text.
    pub fn insert(&mut self, prefix: &str, one: T) {
        if let Some(there) = self.under.get_mut(prefix) {
            there.insert(one);
            return;
        }
        self.under.insert(prefix.into(), BTreeSet::from([one]));
        *self.lengths.entry(prefix.len()).or_insert(0) += 1;
    }

    /// Takes one away from under a prefix.
    pub fn remove(&mut self, prefix: &str, one: &T) {
        let Some(there) = self.under.get_mut(prefix) else { return };
        there.remove(one);
        if !there.is_empty() {
            return;
        }
        self.under.remove(prefix);
        if let Some(count) = self.lengths.get_mut(&prefix.len()) {
            *count -= 1;
            if *count == 0 {
                self.lengths.remove(&prefix.len());
            }
        }
    }

    /// All whose prefix this text begins with.
    pub fn of<'a>(&'a self, text: &'a str) -> impl Iterator<Item = &'a T> {
        self.lengths
            .range(..=text.len())
            .filter_map(|(length, _)| self.under.get(text.get(..*length)?))
            .flatten()
    }

    /// Whether there is nothing.
    pub fn is_empty(&self) -> bool {
        self.under.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(prefixes: &Prefixes<u32>, text: &str) -> Vec<u32> {
        prefixes.of(text).copied().collect()
    }

    #[test]
    fn a_text_finds_all_that_it_begins_with_and_nothing_else() {
        let mut prefixes = Prefixes::default();
        for (nth, prefix) in ["", "gpu/", "gpu/", "gpu/1", "gpu/10", "cpu/", "gpu/ü"].iter().enumerate() {
            prefixes.insert(prefix, u32::try_from(nth).unwrap());
        }
        assert_eq!(found(&prefixes, "gpu/10/x"), [0, 1, 2, 3, 4]);
        assert_eq!(found(&prefixes, "gpu/"), [0, 1, 2]);
        assert_eq!(found(&prefixes, "gp"), [0]);
        // A length may fall into the middle of a character.
        assert_eq!(found(&prefixes, "gpu/é"), [0, 1, 2]);
        assert_eq!(found(&prefixes, "gpu/ü"), [0, 1, 2, 6]);
    }

    #[test]
    fn what_is_taken_away_is_not_found_and_leaves_nothing_behind() {
        let mut prefixes = Prefixes::default();
        prefixes.insert("a/", 1);
        prefixes.insert("a/", 2);
        prefixes.insert("b/", 3);
        prefixes.remove("a/", &1);
        prefixes.remove("a/", &1);
        prefixes.remove("c/", &3);
        assert_eq!((found(&prefixes, "a/x"), found(&prefixes, "b/x")), (vec![2], vec![3]));
        prefixes.remove("a/", &2);
        prefixes.remove("b/", &3);
        assert!(prefixes.is_empty() && prefixes.lengths.is_empty());
    }
}
