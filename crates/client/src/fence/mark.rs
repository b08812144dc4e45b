//! The highest token of every key, and the one rule of a fence.

use std::collections::HashMap;

use fencehold_core::{Key, Namespace, Owner, Token};

use super::key_token::KeyToken;

/// How high the fence stands for one key.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Mark {
    /// The highest token that was shown.
    pub token: Token,
    /// Who showed it first, where that was said.
    pub raised_by: Option<Owner>,
}

/// The marks of all keys.
#[derive(Clone, Debug, Default)]
pub(super) struct Marks(HashMap<(Namespace, Key), Mark>);

impl Marks {
    /// The rule: a token below the mark is refused, and the mark says why. One above it gets through, and gives the mark to raise it
    /// to.
    pub(super) fn admit(&self, pass: &KeyToken) -> Result<Option<Mark>, &Mark> {
        match self.0.get(&(pass.namespace.clone(), pass.key.clone())) {
            Some(mark) if pass.token < mark.token => Err(mark),
            Some(mark) if pass.token == mark.token => Ok(None),
            _ => Ok(Some(Mark { token: pass.token, raised_by: pass.owner.clone() })),
        }
    }

    /// Raises a mark. It never sinks.
    pub(super) fn raise(&mut self, namespace: Namespace, key: Key, to: Mark) {
        let none = Mark { token: Token::NONE, raised_by: None };
        let mark = self.0.entry((namespace, key)).or_insert(none);
        if to.token > mark.token {
            *mark = to;
        }
    }

    pub(super) fn get(&self, namespace: &Namespace, key: &Key) -> Option<&Mark> {
        self.0.get(&(namespace.clone(), key.clone()))
    }

    /// Forgets a key, as if no token had ever been shown for it.
    pub(super) fn forget(&mut self, namespace: Namespace, key: Key) {
        self.0.remove(&(namespace, key));
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&Namespace, &Key, &Mark)> {
        self.0.iter().map(|((namespace, key), mark)| (namespace, key, mark))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pass(token: u64) -> KeyToken {
        KeyToken::new(Key::new("k").unwrap(), Token::new(token))
    }

    fn mark(token: u64) -> Mark {
        Mark { token: Token::new(token), raised_by: None }
    }

    #[test]
    fn a_mark_is_raised_and_never_sinks() {
        let mut marks = Marks::default();
        assert_eq!(marks.admit(&pass(3)), Ok(Some(mark(3))));
        marks.raise(Namespace::default(), Key::new("k").unwrap(), mark(3));
        marks.raise(Namespace::default(), Key::new("k").unwrap(), mark(2));
        assert_eq!(marks.admit(&pass(2)), Err(&mark(3)));
        assert_eq!(marks.admit(&pass(3)), Ok(None));
        assert_eq!(marks.admit(&pass(4)), Ok(Some(mark(4))));
    }

    #[test]
    fn every_key_of_every_namespace_has_a_mark_of_its_own() {
        let mut marks = Marks::default();
        marks.raise(Namespace::default(), Key::new("k").unwrap(), mark(9));
        let elsewhere = pass(1).in_namespace(Namespace::new("team-a").unwrap());
        assert_eq!(marks.admit(&elsewhere), Ok(Some(mark(1))));
        assert_eq!(marks.admit(&KeyToken::new(Key::new("other").unwrap(), Token::new(1))), Ok(Some(mark(1))));
    }
}
