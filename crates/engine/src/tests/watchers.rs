//! Those who watch: told of what concerns them, once, and of nothing else.

use fencehold_contract::ListEventsRequest;
use fencehold_contract::operation::{StoreRequest, StoreResponse};

use super::{TestEngine, Ticket, request};

fn watch(rig: &mut TestEngine, prefix: Option<&str>, after: u64) -> Ticket {
    let prefix = prefix.map(str::to_owned);
    rig.send(StoreRequest::Events(ListEventsRequest {
        cursor: Some(after),
        prefix,
        limit: 10,
        wait_ms: 1_000,
        ..ListEventsRequest::default()
    }))
}

/// Who received which events, and where they are to go on.
fn told(rig: &mut TestEngine) -> Vec<(Ticket, Vec<u64>, u64)> {
    let (_, answers) = rig.engine.take_batch(true);
    let events = answers.into_iter().filter_map(|answered| match answered.result.said() {
        Ok(StoreResponse::Events(page)) => {
            Some((answered.ticket, page.events.iter().map(|event| event.seq).collect(), page.next_cursor))
        }
        _ => None,
    });
    events.collect()
}

#[test]
fn a_watcher_is_told_of_its_prefix_in_the_order_in_which_watchers_came() {
    let mut rig = TestEngine::new();
    let others = watch(&mut rig, Some("b/"), 0);
    let everything = watch(&mut rig, None, 0);
    let own = watch(&mut rig, Some("a/"), 0);
    assert!(told(&mut rig).is_empty());
    rig.send(StoreRequest::Acquire(request("a/1", 1)));
    rig.send(StoreRequest::Acquire(request("a/2", 2)));
    assert_eq!(told(&mut rig), [(everything, vec![1, 2], 2), (own, vec![1, 2], 2)]);
    rig.send(StoreRequest::Acquire(request("c", 3)));
    rig.send(StoreRequest::Acquire(request("b/1", 4)));
    assert_eq!(
        told(&mut rig),
        [(others, vec![4], 4)],
        "what concerns others is passed over, and they were sent once"
    );
}

#[test]
fn a_watcher_that_came_after_what_concerns_it_goes_on_waiting() {
    let mut rig = TestEngine::new();
    rig.send(StoreRequest::Acquire(request("a/1", 1)));
    // In the same batch, and it knows the first event already.
    let watcher = watch(&mut rig, Some("a/"), 1);
    assert!(told(&mut rig).is_empty());
    rig.send(StoreRequest::Acquire(request("a/2", 2)));
    assert_eq!(told(&mut rig), [(watcher, vec![2], 2)]);
}

#[test]
fn whoever_watched_in_vain_goes_on_after_what_did_not_concern_it() {
    let mut rig = TestEngine::new();
    let watcher = watch(&mut rig, Some("b/"), 0);
    rig.send(StoreRequest::Acquire(request("a/1", 1)));
    assert!(told(&mut rig).is_empty());
    // Its time is up in the moment in which something happens: it will find that when it asks again.
    rig.pass(1_000);
    rig.send(StoreRequest::Acquire(request("b/1", 2)));
    rig.sweep(100);
    assert_eq!(told(&mut rig), [(watcher, vec![], 1)]);
    assert_eq!(
        rig.engine.next_due_ms(),
        Some(rig.now.store_ms + super::TTL_MS - 1_000),
        "no watcher is left"
    );
}
