//! How many connections there are, and may be.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// All of them.
#[derive(Clone, Debug)]
pub(crate) struct Connections(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    count: AtomicUsize,
    max: usize,
}

/// One of them, as long as it lasts.
#[derive(Debug)]
pub(crate) struct Admitted(Arc<Inner>);

impl Connections {
    pub(crate) fn new(max: usize) -> Self {
        Connections(Arc::new(Inner { count: AtomicUsize::new(0), max }))
    }

    /// Lets one more in. `None`: there are as many as there may be.
    pub(crate) fn admit(&self) -> Option<Admitted> {
        let one_more = |count: usize| (count < self.0.max).then_some(count + 1);
        let counted = self.0.count.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more);
        counted.ok().map(|_| Admitted(Arc::clone(&self.0)))
    }

    pub(crate) fn count(&self) -> usize {
        self.0.count.load(Ordering::Relaxed)
    }
}

impl Drop for Admitted {
    fn drop(&mut self) {
        self.0.count.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_goes_makes_room() {
        let connections = Connections::new(2);
        let (one, _two) = (connections.admit().unwrap(), connections.admit().unwrap());
        assert!(connections.admit().is_none());
        assert_eq!(connections.count(), 2, "who was not let in is not counted");
        drop(one);
        assert!(connections.admit().is_some());
    }
}
