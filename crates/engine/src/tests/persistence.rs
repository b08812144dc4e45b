//! P6: what the engine hands over to be kept is all that another engine needs to go on, and says how durable it must be.

use std::collections::BTreeMap;

use fencehold_contract::operation::{StoreRequest, StoreResponse};
use fencehold_contract::{HoldRef, ListEventsRequest, ListLeasesRequest, RevokeLeasesRequest, RevokeTarget};
use fencehold_core::limits::COLLECT_AFTER_FREE_MS;
use fencehold_core::{Event, Namespace, Owner, Reason, Timestamp, Token};
use proptest::prelude::*;

use super::super::jobs::StoredJobs;
use super::super::persistence::{Change, Changes, StoredEvents, StoredLease, StoredNamespace, StoredState};
use super::super::state::{Engine, ResponseBody};
use super::{TTL_MS, TestEngine, key, request};

/// What a disk would hold.
#[derive(Default)]
struct RecordedDisk {
    leases: BTreeMap<u32, Change>,
    floors: BTreeMap<Namespace, Token>,
    events: Vec<Event>,
    closed_until_ms: u64,
    longest_ttl_ms: u64,
    namespaces: BTreeMap<Namespace, StoredNamespace>,
}

impl RecordedDisk {
    fn keep(&mut self, changes: Changes) {
        for change in changes.rows {
            match change {
                Change::Put { slot, .. } => drop(self.leases.insert(slot, change)),
                Change::Term { slot, token, deadline_ms } => match self.leases.get_mut(&slot) {
                    Some(Change::Put { record, deadline_ms: kept_ms, .. }) => {
                        assert_eq!(record.counter, token, "a term of the hold that is kept");
                        *kept_ms = deadline_ms;
                    }
                    other => panic!("a term without its lease: {other:?}"),
                },
                Change::Drop { slot } => drop(self.leases.remove(&slot)),
                Change::Floor { namespace, floor } => drop(self.floors.insert(namespace, floor)),
                Change::ClosedUntil { until_ms } => self.closed_until_ms = until_ms,
                Change::LongestTtl { ttl_ms } => self.longest_ttl_ms = ttl_ms,
                Change::Namespace(kept) => drop(self.namespaces.insert(kept.namespace.clone(), kept)),
                Change::Limits { .. } | Change::KeepFinished { .. } | Change::Seen { .. } => {}
            }
        }
        self.events.extend(changes.events.iter().map(|event| (**event).clone()));
    }

    fn load(&self) -> Engine {
        let lease = |change: &Change| match change.clone() {
            Change::Put { slot, namespace, key, record, deadline_ms } => {
                StoredLease { slot, namespace, key, record, deadline_ms }
            }
            other => panic!("not a lease: {other:?}"),
        };
        Engine::from_kept(
            Timestamp::default(),
            StoredState {
                leases: self.leases.values().map(lease).collect(),
                floors: self
                    .floors
                    .iter()
                    .map(|(namespace, floor)| (namespace.clone(), *floor))
                    .collect(),
                events: Some(StoredEvents { recent: self.events.clone(), ..StoredEvents::default() }),
                last_seq: self.events.last().map_or(0, |event| event.seq),
                namespaces: self.namespaces.values().cloned().collect(),
                limits: Vec::new(),
                closed_until_ms: self.closed_until_ms,
                longest_ttl_ms: self.longest_ttl_ms,
                set_aside: 0,
                jobs: Some(StoredJobs::default()),
            },
        )
    }
}

#[derive(Clone, Debug)]
enum Step {
    Take(usize),
    Renew(usize),
    Release(usize),
    Revoke(usize),
    Pass(u64),
    Advance,
    /// The process ends, and another goes on.
    Restart,
}

fn any_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (0..6_usize).prop_map(Step::Take),
        3 => (0..8_usize).prop_map(Step::Renew),
        4 => (0..8_usize).prop_map(Step::Release),
        1 => (0..6_usize).prop_map(Step::Revoke),
        3 => (0..TTL_MS).prop_map(Step::Pass),
        1 => Just(Step::Pass(COLLECT_AFTER_FREE_MS)),
        1 => Just(Step::Advance),
        2 => Just(Step::Restart),
    ]
}

fn play(steps: &[Step]) {
    let mut rig = TestEngine::new();
    let mut disk = RecordedDisk::default();
    let mut holds: Vec<HoldRef> = Vec::new();
    for (nth, step) in steps.iter().enumerate() {
        match step {
            Step::Take(name) => {
                let request = request(&format!("k/{name}"), nth as u64);
                let hold_id = request.hold_id;
                let (changes, answers) = rig.ask(StoreRequest::Acquire(request));
                disk.keep(changes);
                if let ResponseBody::Said(Ok(StoreResponse::Acquired(acquired))) = &answers[0].result {
                    let (key, token) = (acquired.key.clone(), acquired.grant.token);
                    holds.push(HoldRef { key, hold_id, token });
                }
            }
            Step::Renew(back) => renew_or_release(&mut rig, &mut disk, &holds, *back, StoreRequest::Renew),
            Step::Release(back) => {
                renew_or_release(&mut rig, &mut disk, &holds, *back, StoreRequest::Release);
            }
            Step::Revoke(name) => disk.keep(rig.ask(revoke(&format!("k/{name}"))).0),
            Step::Pass(ms) => {
                rig.pass(*ms);
                while rig.sweep(2) {
                    disk.keep(rig.engine.take_batch(true).0);
                }
                disk.keep(rig.engine.take_batch(true).0);
            }
            Step::Advance => {
                disk.keep(
                    rig.ask(StoreRequest::Advance { by: Owner::new("P").unwrap(), increment: 1_000 })
                        .0,
                );
            }
            Step::Restart => rig.engine = disk.load(),
        }
        let mut other = TestEngine { engine: disk.load(), now: rig.now, ..TestEngine::new() };
        assert_eq!(seen(&mut rig), seen(&mut other), "after {step:?}");
    }
}

fn renew_or_release(
    rig: &mut TestEngine,
    disk: &mut RecordedDisk,
    holds: &[HoldRef],
    back: usize,
    ask: fn(Vec<HoldRef>) -> StoreRequest,
) {
    if let Some(hold) = holds.iter().rev().nth(back) {
        disk.keep(rig.ask(ask(vec![hold.clone()])).0);
    }
}

fn revoke(name: &str) -> StoreRequest {
    let which = RevokeTarget::Key { key: key(name), only_token: None };
    let request = RevokeLeasesRequest {
        target: which,
        by: Owner::new("P").unwrap(),
        reason: Reason::new("because").unwrap(),
    };
    StoreRequest::Revoke { request, from: 0 }
}

/// Everything that can be seen without changing anything, and what the next grant of a new key would be.
fn seen(rig: &mut TestEngine) -> String {
    let list = ListLeasesRequest { include_free: true, limit: 100, ..ListLeasesRequest::default() };
    let leases = rig.answer(StoreRequest::List(list));
    let events =
        rig.answer(StoreRequest::Events(ListEventsRequest { limit: 1_000, ..ListEventsRequest::default() }));
    let status = rig.answer(StoreRequest::Status);
    let floor = rig.engine.table.space(&Namespace::default());
    let floor = rig.engine.table.floor(floor);
    format!("{leases:?} {events:?} {status:?} {floor} {}", rig.engine.closed_until_ms)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn an_engine_goes_on_from_what_was_kept(steps in prop::collection::vec(any_step(), 1..50)) {
        play(&steps);
    }
}

#[test]
fn only_what_promises_something_asks_to_survive_a_power_cut() {
    let mut rig = TestEngine::new();
    let (changes, _) = rig.ask(StoreRequest::Acquire(request("k", 1)));
    assert!(changes.durable, "a grant");
    let hold = HoldRef { key: key("k"), hold_id: request("k", 1).hold_id, token: Token::new(1) };

    let (changes, _) = rig.ask(StoreRequest::Renew(vec![hold.clone()]));
    assert!(!changes.durable && !changes.is_empty(), "a renewal is kept, and waits for no disk");
    let (changes, _) = rig.ask(StoreRequest::Get(key("k")));
    assert!(changes.is_empty(), "a look changes nothing");
    let (changes, _) = rig.ask(StoreRequest::Acquire(request("k", 2)));
    assert!(changes.is_empty(), "nor does a refusal");

    let (changes, _) = rig.ask(StoreRequest::Release(vec![hold]));
    assert!(changes.durable, "a release");
    rig.take(request("k", 3));
    let (changes, _) = rig.ask(revoke("k"));
    assert!(changes.durable, "a revocation");
    rig.take(request("k", 4));
    rig.pass(TTL_MS);
    rig.sweep(10);
    let (changes, _) = rig.engine.take_batch(true);
    assert!(!changes.durable && !changes.is_empty(), "an expiry promises nothing");
    let (changes, _) = rig.ask(StoreRequest::Advance { by: Owner::new("P").unwrap(), increment: 1 });
    assert!(changes.durable, "an advance");
}

#[test]
fn a_batch_that_renews_and_grants_is_durable() {
    let mut rig = TestEngine::new();
    let held = rig.take(request("k", 1));
    rig.send(StoreRequest::Renew(vec![held]));
    rig.send(StoreRequest::Acquire(request("l", 2)));
    assert!(rig.engine.take_batch(true).0.durable);
}

/// The line is not kept, so no waiter asks the holder to yield.
#[test]
fn a_notice_does_not_outlive_the_line() {
    let mut rig = TestEngine::new();
    let mut disk = RecordedDisk::default();
    disk.keep(rig.ask(StoreRequest::Acquire(request("k", 1))).0);
    let mut contender = request("k", 2);
    (contender.priority, contender.preempt_within_ms, contender.wait_ms) = (5, Some(1_000), 60_000);
    disk.keep(rig.ask(StoreRequest::Acquire(contender)).0);
    assert!(rig.view("k").unwrap().holder.unwrap().yield_request.is_some());
    rig.engine = disk.load();
    assert_eq!(rig.view("k").unwrap().holder.unwrap().yield_request, None);
}

/// Over a reboot, the wall clock says how much time has passed since it was last noted: a step that was seen before does not count.
#[test]
fn a_step_of_the_wall_clock_is_noted_with_the_next_change() {
    let mut rig = TestEngine::new();
    let mut noted = |by_ms: i64, nth: u64| {
        rig.pass(10);
        rig.now.wall_ms = rig.now.wall_ms.saturating_add_signed(by_ms);
        let (changes, _) = rig.ask(StoreRequest::Acquire(request(&format!("k/{nth}"), nth)));
        let seen = changes.rows.contains(&Change::Seen { now: rig.now });
        (by_ms, seen)
    };
    let day_ms = 24 * 3_600_000;
    let steps = [(0, false), (day_ms, true), (0, false), (-day_ms, true), (0, false), (5, false)];
    for (nth, step) in steps.into_iter().enumerate() {
        assert_eq!(noted(step.0, nth as u64), step, "step {nth}");
    }
}
