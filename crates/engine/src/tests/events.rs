//! Events that were kept can be read when a request needs them: it shows neither in what is listed, nor in what is kept in the end.

use std::collections::BTreeMap;

use fencehold_contract::ListEventsRequest;
use fencehold_core::limits::EVENTS_KEPT;
use fencehold_core::{Event, EventData, Namespace, Token};

use super::key;
use crate::events::Events;
use crate::persistence::{OldEvents, StoredEvents};

/// More than a namespace's share, once the loud one has filled the history.
const QUIET: usize = 200;

fn named(name: &str) -> Namespace {
    Namespace::new(name).unwrap()
}

fn collected(seq: u64) -> EventData {
    EventData::KeyCollected { token: Token::new(seq) }
}

/// As many events as are kept and `more`: those of the quiet namespace are the oldest.
fn kept(more: usize) -> StoredEvents {
    let event = |nth: usize| {
        let seq = nth as u64 + 1;
        Event::new(seq, seq, named(if nth < QUIET { "quiet" } else { "loud" }), key("k"), collected(seq))
    };
    StoredEvents { recent: (0..EVENTS_KEPT + more).map(event).collect(), ..StoredEvents::default() }
}

/// What is kept of old events once all batches are written.
#[derive(Debug, Default, PartialEq, Eq)]
struct Written {
    new: Vec<u64>,
    kept: Vec<u64>,
    forgotten: Vec<u64>,
    lost_until: BTreeMap<Option<Namespace>, u64>,
}

/// One batch, with as many new events of a namespace.
fn batch(events: &mut Events, written: &mut Written, namespace: &str, count: usize) -> OldEvents {
    for _ in 0..count {
        let seq = events.last_seq() + 1;
        events.add(seq, named(namespace), key("k"), collected(seq));
    }
    let (new, old) = events.take_new();
    written.new.extend(new.iter().map(|event| event.seq));
    written.kept.extend(old.kept.iter().map(|event| event.seq));
    written.forgotten.extend(&old.forgotten);
    written.lost_until.extend(old.lost_until.iter().cloned());
    old
}

fn listed(events: &Events, namespace: &str) -> Vec<u64> {
    let all = ListEventsRequest { limit: usize::MAX, ..ListEventsRequest::default() };
    let page = events.page(&named(namespace), &all).unwrap();
    page.events.iter().map(|event| event.seq).collect()
}

#[test]
fn events_that_are_read_later_are_those_that_would_have_been_read_at_once() {
    let more = 100;
    let last_seq = (EVENTS_KEPT + more) as u64;
    let mut at_once = Events::from_kept(kept(more), last_seq);
    let mut later = Events::unread(last_seq);
    let (mut by_one, mut by_other) = (Written::default(), Written::default());
    for (namespace, count) in [("loud", 3), ("quiet", 2), ("new", 1), ("loud", 0)] {
        batch(&mut at_once, &mut by_one, namespace, count);
        let old = batch(&mut later, &mut by_other, namespace, count);
        assert_eq!(old, OldEvents { unread: true, ..OldEvents::default() }, "nothing may be removed");
    }
    assert_eq!(later.kept_until(), last_seq);
    // In the middle of a batch.
    for events in [&mut at_once, &mut later] {
        events.add(0, named("loud"), key("k"), collected(0));
    }
    later.loaded(kept(more));
    for (namespace, count) in [("new", 1), ("loud", 300), ("quiet", 1)] {
        batch(&mut at_once, &mut by_one, namespace, count);
        let old = batch(&mut later, &mut by_other, namespace, count);
        assert!(!old.unread);
    }
    for namespace in ["quiet", "loud", "new", "other"] {
        assert_eq!(listed(&later, namespace), listed(&at_once, namespace), "{namespace}");
    }
    assert_eq!(listed(&later, "quiet").len(), QUIET + 3, "fewer than its share");
    assert_eq!(by_other, by_one);
    assert!(by_one.kept.len() >= QUIET && !by_one.lost_until.is_empty(), "{by_one:?}");
}

/// A batch without events leaves nothing where old events are kept.
#[test]
fn what_becomes_of_old_events_is_handed_over_with_new_ones() {
    let more = 100;
    let mut events = Events::from_kept(kept(more), (EVENTS_KEPT + more) as u64);
    let mut written = Written::default();
    assert_eq!(batch(&mut events, &mut written, "loud", 0), OldEvents::default());
    let old = batch(&mut events, &mut written, "loud", 1);
    assert!(old.kept.len() > more, "{} are no longer among the newest", old.kept.len());
}
