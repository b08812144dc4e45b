//! Bodies that are likely to be asked for soon: those of the jobs that came last, and those next in line. Nothing here is
//! ever out of date: a body never changes.

use std::collections::VecDeque;
use std::sync::Arc;

use fencehold_engine::{JobBody, JobChange};

/// How many bytes of bodies are remembered.
const BYTES_MAX: usize = 4 << 20;
/// How many bodies are read with the one that was asked for, and up to how many bytes.
pub(super) const AHEAD: u64 = 64;
pub(super) const AHEAD_BYTES: usize = 256 << 10;
/// What a body takes beside its payload, roughly.
const OVERHEAD: usize = 400;

#[derive(Debug, Default)]
pub(crate) struct BodyCache {
    /// Of the jobs that came last, in the order of their arrival.
    newest: VecDeque<(u64, Arc<JobBody>)>,
    bytes: usize,
    /// Of jobs that are next in line, likewise.
    ahead: Vec<(u64, Arc<JobBody>)>,
    last_missed: u64,
}

impl BodyCache {
    /// Remembers what a batch has brought.
    pub(crate) fn learn(&mut self, changes: &[JobChange]) {
        for change in changes {
            if let JobChange::Body { arrival, body, .. } = change
                && self.newest.back().is_none_or(|(last, _)| last < arrival)
            {
                self.bytes += size_of(body);
                self.newest.push_back((*arrival, Arc::clone(body)));
            }
        }
        while self.bytes > BYTES_MAX
            && let Some((_, body)) = self.newest.pop_front()
        {
            self.bytes -= size_of(&body);
        }
    }

    pub(super) fn get(&self, arrival: u64) -> Option<Arc<JobBody>> {
        let newest = self.newest.binary_search_by_key(&arrival, |(at, _)| *at);
        let ahead = || self.ahead.binary_search_by_key(&arrival, |(at, _)| *at);
        match newest {
            Ok(at) => Some(Arc::clone(&self.newest[at].1)),
            Err(_) => ahead().ok().map(|at| Arc::clone(&self.ahead[at].1)),
        }
    }

    /// A body had to be read. Whether it is worth reading those that follow with it: jobs are mostly claimed in the order
    /// in which they came.
    pub(super) fn missed(&mut self, arrival: u64) -> bool {
        let follows = (self.last_missed + 1..=self.last_missed + 2 * AHEAD).contains(&arrival);
        self.last_missed = arrival;
        follows
    }

    /// Remembers what was read ahead, instead of what was read ahead before.
    pub(super) fn look_ahead(&mut self, bodies: Vec<(u64, Arc<JobBody>)>) {
        self.ahead = bodies;
    }
}

fn size_of(body: &JobBody) -> usize {
    let labels: usize = body.labels.iter().map(|(name, value)| name.len() + value.len()).sum();
    body.payload.len() + labels + OVERHEAD
}

#[cfg(test)]
mod tests {
    use fencehold_core::Namespace;
    use fencehold_core::job::{JobId, JobKind, QueueName};

    use super::*;

    fn body(payload: usize) -> Arc<JobBody> {
        Arc::new(JobBody {
            namespace: Namespace::default(),
            queue: QueueName::new("q").unwrap(),
            kind: JobKind::new("k").unwrap(),
            payload: "x".repeat(payload).into(),
            labels: Vec::new(),
            trace: None,
            unique: None,
            yield_within_ms: None,
            enqueued_wall_ms: 0,
            undo_of: None,
        })
    }

    fn brings(arrival: u64, payload: usize) -> [JobChange; 1] {
        [JobChange::Body { arrival, id: JobId::from_random(arrival, [0; 10]), body: body(payload) }]
    }

    #[test]
    fn the_newest_are_remembered_and_no_more_than_there_is_room_for() {
        let mut bodies = BodyCache::default();
        let size = BYTES_MAX / 4;
        for arrival in 1..=10 {
            bodies.learn(&brings(arrival, size));
        }
        assert_eq!((1..=10).filter(|at| bodies.get(*at).is_some()).collect::<Vec<_>>(), [8, 9, 10]);
    }

    #[test]
    fn reading_ahead_is_for_those_who_go_on_in_order() {
        let mut bodies = BodyCache::default();
        bodies.missed(1_000);
        assert!(bodies.missed(1_001) && bodies.missed(1_001 + AHEAD));
        assert!(!bodies.missed(5) && !bodies.missed(4));
    }
}
