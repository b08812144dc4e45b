//! How many connections there are, and may be.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// All of them.
#[derive(Clone, Debug)]
pub(crate) struct ConnectionLimit(Arc<ConnectionCounts>);

#[derive(Debug)]
struct ConnectionCounts {
    count: AtomicUsize,
    max: usize,
}

/// One of them, as long as it lasts.
#[derive(Debug)]
pub(crate) struct ConnectionPermit(Arc<ConnectionCounts>);

impl ConnectionLimit {
    pub(crate) fn new(max: usize) -> Self {
        ConnectionLimit(Arc::new(ConnectionCounts { count: AtomicUsize::new(0), max }))
    }

    /// Lets one more in. `None`: there are as many as there may be.
    pub(crate) fn admit(&self) -> Option<ConnectionPermit> {
        let one_more = |count: usize| (count < self.0.max).then_some(count + 1);
        let counted = self.0.count.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more);
        counted.ok().map(|_| ConnectionPermit(Arc::clone(&self.0)))
    }

    pub(crate) fn count(&self) -> usize {
        self.0.count.load(Ordering::Relaxed)
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        self.0.count.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_goes_makes_room() {
        let connections = ConnectionLimit::new(2);
        let (one, _two) = (connections.admit().unwrap(), connections.admit().unwrap());
        assert!(connections.admit().is_none());
        assert_eq!(connections.count(), 2, "who was not let in is not counted");
        drop(one);
        assert!(connections.admit().is_some());
    }
}
