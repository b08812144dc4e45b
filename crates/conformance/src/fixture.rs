//! What the cases stand on: the calls of the contract, blocking and short, by owners with names.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, mpsc};

use fencehold_contract::metrics::Counter;
use fencehold_contract::{
    AcquireLeaseRequest, AcquiredLease, AdvancedStore, BlockedWrite, CallContext, Capabilities, EndingView,
    EventPage, HoldChange, HoldRef, HolderView, KeyContention, LeasePage, LeaseStats, LeaseStatsRequest,
    LeaseStore, LeaseView, ListContentionRequest, ListEventsRequest, ListLeasesRequest, Quota, QuotaRequest,
    QuotaView, ReleasedLease, RevokeLeasesRequest, RevokeTarget, RevokedLease, StoreError, StoreStatus,
    Subscription,
};
use fencehold_core::lease::{LeaseOutcome, LeaseRenewal};
use fencehold_core::limits::{EVENTS_KEPT, STATS_MS_MAX, STATS_STEP_MS_MIN, WAIT_MS_MAX};
use fencehold_core::{
    BlockedAction, Event, EventData, HoldId, Key, Namespace, Owner, Reason, Refusal, Task, Token,
};
use fencehold_test_store::{TestCapability, TestStore, drive, pause};

use super::concurrent::{ANSWER_WITHIN, PendingCall};

/// How often a state that must come is looked for, with a pause between two looks.
const LOOKS_MAX: usize = 60_000;

/// An arena, seen from one namespace.
pub(super) struct Fixture {
    pub(super) test_store: Arc<dyn TestStore>,
    pub(super) call: CallContext,
}

/// What a handle hears of what others do to the holds of its callers.
pub(super) struct HeardChanges {
    changes: mpsc::Receiver<Option<(Namespace, Key)>>,
    _subscription: Subscription,
}

impl HeardChanges {
    /// Takes away what was heard so far.
    pub(super) fn forget(&self) {
        while self.changes.try_recv().is_ok() {}
    }

    /// Waits until something is heard of this key, or that changes may have been missed.
    pub(super) fn of(&self, namespace: &Namespace, key_name: &str) {
        loop {
            let change = self.changes.recv_timeout(ANSWER_WITHIN);
            let change = change.unwrap_or_else(|_| panic!("the holder of {key_name} heard nothing"));
            let Some((space, key)) = change else { return };
            if space == *namespace && key.as_str() == key_name {
                return;
            }
        }
    }
}

/// A lease that was granted, as its holder knows it.
#[derive(Clone, Debug)]
pub(super) struct HeldLease {
    pub(super) request: AcquireLeaseRequest,
    pub(super) key: Key,
    pub(super) token: Token,
    pub(super) remaining_ms: u64,
    pub(super) resumed: bool,
}

impl HeldLease {
    pub(super) fn as_ref(&self) -> HoldRef {
        HoldRef { key: self.key.clone(), hold_id: self.request.hold_id, token: self.token }
    }
}

/// With a timeout for slow machines: no case waits for it to end.
fn call_in(namespace: Namespace) -> CallContext {
    CallContext::new(namespace).with_timeout_ms(60_000)
}

impl Fixture {
    pub(super) fn new(test_store: Arc<dyn TestStore>) -> Self {
        Fixture { test_store, call: call_in(Namespace::default()) }
    }

    /// The same arena, seen from another namespace.
    pub(super) fn in_namespace(&self, name: &str) -> Self {
        let namespace = Namespace::new(name).expect("a namespace");
        Fixture { test_store: self.test_store.clone(), call: call_in(namespace) }
    }

    pub(super) fn capabilities(&self) -> Capabilities {
        self.test_store.store().capabilities()
    }

    pub(super) fn has(&self, capability: TestCapability) -> bool {
        self.test_store.test_capabilities().contains(&capability)
    }

    pub(super) fn ttl_ms(&self) -> u64 {
        self.test_store.ttl_ms()
    }

    pub(super) fn pass(&self, ms: u64) {
        self.test_store.pass(ms);
    }

    /// Lets time pass, where it can be moved.
    pub(super) fn pass_if_it_can(&self, ms: u64) {
        if self.has(TestCapability::MovesTime) {
            self.pass(ms);
        }
    }

    /// Restarts the store, where that can be done.
    pub(super) fn restart_if_it_can(&self) {
        if self.has(TestCapability::Restarts) {
            self.test_store.restart();
        }
    }

    pub(super) fn run_out(&self, key_name: &str) {
        self.test_store.run_out(&self.call, &key(key_name));
    }

    /// Whether a time is what it should be: exactly, where time stands still; else not more, and not much less.
    pub(super) fn assert_ms(&self, what: &str, actual_ms: u64, expected_ms: u64) {
        if self.has(TestCapability::StandsStill) {
            assert_eq!(actual_ms, expected_ms, "{what}");
        } else {
            let least_ms = expected_ms.saturating_sub(self.ttl_ms() / 3);
            assert!((least_ms..=expected_ms).contains(&actual_ms), "{what}: {actual_ms}, not {expected_ms}");
        }
    }

    /// The handle of an owner: `A` has one, everybody else the other.
    pub(super) fn handle(&self, owner: &Owner) -> Arc<dyn LeaseStore> {
        if owner.as_str() == "A" { self.test_store.store() } else { self.test_store.other() }
    }

    /// Listens, from now on, for what others do to what `A` holds.
    pub(super) fn hear_of_holds(&self) -> HeardChanges {
        let (sender, changes) = mpsc::channel();
        let subscription = self.test_store.store().on_hold_change(Arc::new(move |change| {
            let change = match change {
                HoldChange::Of(namespace, key) => Some((namespace.clone(), key.clone())),
                HoldChange::Missed => None,
            };
            let _ = sender.send(change);
        }));
        HeardChanges { changes, _subscription: subscription.expect("a store that tells holders") }
    }

    pub(super) fn drive<T: Send>(&self, future: impl Future<Output = T> + Send) -> T {
        drive(&*self.test_store, future)
    }

    /// Sends a request and goes before it looks at the answer, which is there once `after` has been answered.
    pub(super) fn send_and_go<T: Send, U: Send>(
        &self,
        request: impl Future<Output = T> + Send,
        after: impl Future<Output = U> + Send,
    ) {
        self.drive(async {
            let mut request = Box::pin(request);
            std::future::poll_fn(|context| {
                let _ = request.as_mut().poll(context);
                std::task::Poll::Ready(())
            })
            .await;
            after.await;
            drop(request);
        });
    }

    /// The terms of an ordinary try: a fresh hold id, the arena's ttl, no waiting.
    pub(super) fn ask(&self, key_name: &str, owner_name: &str) -> AcquireLeaseRequest {
        AcquireLeaseRequest::new(key(key_name), fresh_hold(), owner(owner_name), self.ttl_ms())
    }

    /// The terms of one who waits for longer than any case lasts.
    pub(super) fn ask_to_wait(&self, key_name: &str, owner_name: &str) -> AcquireLeaseRequest {
        AcquireLeaseRequest {
            wait_ms: (self.ttl_ms() * 20).min(WAIT_MS_MAX),
            ..self.ask(key_name, owner_name)
        }
    }

    pub(super) fn acquire(&self, request: AcquireLeaseRequest) -> Result<AcquiredLease, StoreError> {
        if request.wait_ms > 0 {
            // On a thread of its own, so that one who waits for ever fails the case instead of stopping it.
            return self.start_raw(request).answer();
        }
        self.drive(self.handle(&request.owner).acquire(&self.call, request))
    }

    /// The lease, or the rules' refusal. Anything else fails the case.
    pub(super) fn try_with(&self, request: AcquireLeaseRequest) -> Result<HeldLease, Refusal> {
        held(request.clone(), self.acquire(request))
    }

    pub(super) fn try_take(&self, key_name: &str, owner_name: &str) -> Result<HeldLease, Refusal> {
        self.try_with(self.ask(key_name, owner_name))
    }

    pub(super) fn take_with(&self, request: AcquireLeaseRequest) -> HeldLease {
        self.try_with(request).expect("a key that can be had")
    }

    pub(super) fn take(&self, key_name: &str, owner_name: &str) -> HeldLease {
        self.take_with(self.ask(key_name, owner_name))
    }

    /// Takes a key, runs it out, and gives the lease that is over.
    pub(super) fn take_and_run_out(&self, key_name: &str, owner_name: &str) -> HeldLease {
        let held = self.take(key_name, owner_name);
        self.run_out(key_name);
        held
    }

    /// Takes a key and gives it back, many times, with store time passing in between where it can.
    pub(super) fn churn(&self, key_name: &str, times: usize) {
        for _ in 0..times {
            let held = self.take(key_name, "churn");
            self.pass_if_it_can(1);
            self.release(&held).expect("a lease that can be given back");
        }
    }

    /// Stands in line, and returns when the store shows it there.
    pub(super) fn stand_in_line(
        &self,
        request: AcquireLeaseRequest,
    ) -> PendingCall<Result<HeldLease, Refusal>> {
        let keys: Vec<Key> = request.any_of.clone();
        let waiters = |key: &Key| self.view(key.as_str()).map_or(0, |view| view.waiter_count);
        let before: Vec<u64> = keys.iter().map(waiters).collect();
        let pending = self.start(request);
        for (key, before) in keys.iter().zip(before) {
            until("standing in line", || waiters(key) > before);
        }
        pending
    }

    /// Sends a request on a thread of its own, and does not wait for anything.
    pub(super) fn start(&self, request: AcquireLeaseRequest) -> PendingCall<Result<HeldLease, Refusal>> {
        let (store, call) = (self.handle(&request.owner), self.call.clone());
        PendingCall::start(self.test_store.clone(), async move {
            let answer = store.acquire(&call, request.clone()).await;
            held(request, answer)
        })
    }

    /// The same, with whatever error the store gives.
    pub(super) fn start_raw(
        &self,
        request: AcquireLeaseRequest,
    ) -> PendingCall<Result<AcquiredLease, StoreError>> {
        let (store, call) = (self.handle(&request.owner), self.call.clone());
        PendingCall::start(self.test_store.clone(), async move { store.acquire(&call, request).await })
    }

    pub(super) fn renew(&self, held: &HeldLease) -> Result<LeaseRenewal, Refusal> {
        let mut answers = self.renew_many(&[held]);
        assert_eq!(answers.len(), 1, "one answer for one hold");
        answers.remove(0)
    }

    pub(super) fn renew_many(&self, holds: &[&HeldLease]) -> Vec<Result<LeaseRenewal, Refusal>> {
        let refs = holds.iter().map(|held| held.as_ref()).collect();
        self.renew_refs(refs).expect("renewals that are answered")
    }

    pub(super) fn renew_refs(
        &self,
        refs: Vec<HoldRef>,
    ) -> Result<Vec<Result<LeaseRenewal, Refusal>>, StoreError> {
        self.drive(self.test_store.store().renew(&self.call, refs))
            .map(|renewed| renewed.results)
    }

    pub(super) fn release(&self, held: &HeldLease) -> Result<Token, Refusal> {
        let mut answers = self.release_refs(vec![held.as_ref()]).expect("a release that is answered");
        assert_eq!(answers.len(), 1, "one answer for one hold");
        answers.remove(0).map(|released| released.token)
    }

    pub(super) fn release_refs(
        &self,
        refs: Vec<HoldRef>,
    ) -> Result<Vec<Result<ReleasedLease, Refusal>>, StoreError> {
        self.drive(self.test_store.store().release(&self.call, refs))
    }

    pub(super) fn revoke(&self, which: RevokeTarget) -> Result<Vec<RevokedLease>, StoreError> {
        let reason = Reason::new("it was stuck").expect("a reason");
        let request = RevokeLeasesRequest { target: which, by: owner("P"), reason };
        self.drive(self.test_store.other().revoke(&self.call, request))
    }

    /// Ends the hold on one key by force; it must be held.
    pub(super) fn revoke_key(&self, key_name: &str) -> RevokedLease {
        let revoked = self.revoke(RevokeTarget::Key { key: key(key_name), only_token: None });
        let mut revoked = revoked.expect("a hold that can be revoked");
        assert_eq!(revoked.len(), 1, "one key, one hold");
        revoked.remove(0)
    }

    /// Reports that a write under this hold was refused elsewhere. Whether that was recorded.
    pub(super) fn report_blocked_write(&self, held: &HeldLease) -> bool {
        let report = BlockedWrite { key: held.key.clone(), token: held.token, action: BlockedAction::Write };
        self.drive(self.test_store.store().report_blocked_write(&self.call, report))
            .expect("a report that is answered")
            .recorded
    }

    /// How leases of this namespace ended in the last day; the same in steps, and as a replay of the events says that the counts stand for.
    pub(super) fn stats(&self) -> LeaseStats {
        let request = LeaseStatsRequest { since_ms: STATS_MS_MAX, step_ms: Some(STATS_STEP_MS_MIN) };
        let stats = self
            .drive(self.test_store.store().stats(&self.call, request))
            .expect("endings that can be counted");
        let counts = stats.steps.iter().flat_map(|step| step.ended_counts.values());
        assert_eq!(counts.sum::<u64>(), stats.total(), "{stats:?}");
        assert!(stats.steps.is_sorted_by_key(|step| step.begins_at_ms), "{stats:?}");
        if let Some(seq) = stats.event_seq {
            let events = self.events().into_iter().filter(|event| event.seq <= seq);
            let ended = events.filter(|event| matches!(event.data, EventData::LeaseEnded { .. }));
            assert_eq!(ended.count() as u64, stats.total(), "{stats:?}");
        }
        stats
    }

    /// What the handle of `B` and the others remembers of contention.
    pub(super) fn contention(&self, request: ListContentionRequest) -> Vec<KeyContention> {
        self.drive(self.test_store.other().list_contention(&self.call, request))
            .expect("contention that can be listed")
            .keys
    }

    /// What each handle counts of granted, released, expired and stale leases.
    pub(super) fn counted(&self) -> Vec<[u64; 4]> {
        let handles = [self.test_store.store(), self.test_store.other()];
        let counted = handles.iter().filter_map(|store| {
            self.drive(store.refresh_metrics(&self.call)).expect("counts that can be read");
            let facts = &store.metrics()?.facts;
            let ended = |outcome| facts.leases_ended(outcome).map_or(0, Counter::get);
            Some([
                facts.granted.get(),
                ended(LeaseOutcome::Released),
                ended(LeaseOutcome::Expired),
                facts.stale_writes_blocked.get(),
            ])
        });
        counted.collect()
    }

    pub(super) fn view(&self, key_name: &str) -> Option<LeaseView> {
        self.drive(self.test_store.store().get(&self.call, key(key_name)))
            .expect("a key that can be read")
    }

    pub(super) fn holder(&self, key_name: &str) -> Option<HolderView> {
        self.view(key_name).and_then(|view| view.holder)
    }

    /// The owner that holds a key now.
    pub(super) fn holder_name(&self, key_name: &str) -> Option<String> {
        self.holder(key_name).map(|holder| holder.owner.to_string())
    }

    /// How many stand in line for a key.
    pub(super) fn waiters(&self, key_name: &str) -> u64 {
        self.view(key_name).map_or(0, |view| view.waiter_count)
    }

    /// How the hold under this token ended, once that is on record.
    pub(super) fn ending_of(&self, held: &HeldLease) -> Option<EndingView> {
        let view = self.view(held.key.as_str())?;
        view.endings.into_iter().find(|ending| ending.token == held.token)
    }

    pub(super) fn list(&self, request: ListLeasesRequest) -> Result<LeasePage, StoreError> {
        self.drive(self.test_store.store().list(&self.call, request))
    }

    pub(super) fn events_page(&self, request: ListEventsRequest) -> Result<EventPage, StoreError> {
        self.drive(self.test_store.store().list_events(&self.call, request))
    }

    pub(super) fn start_events(
        &self,
        request: ListEventsRequest,
    ) -> PendingCall<Result<EventPage, StoreError>> {
        let (store, call) = (self.test_store.store(), self.call.clone());
        PendingCall::start(self.test_store.clone(), async move { store.list_events(&call, request).await })
    }

    /// All events of this namespace that are kept.
    pub(super) fn events(&self) -> Vec<Event> {
        let mut request = ListEventsRequest { limit: 1_000, ..ListEventsRequest::default() };
        let mut events = Vec::new();
        for _ in 0..EVENTS_KEPT {
            let page = self.events_page(request.clone()).expect("events that can be read");
            if page.events.is_empty() {
                return events;
            }
            events.extend(page.events);
            request.cursor = Some(page.next_cursor);
        }
        panic!("events without an end");
    }

    /// What is on record about a key, oldest first.
    pub(super) fn facts(&self, key_name: &str) -> Vec<EventData> {
        let of_key = |event: &Event| event.key.as_str() == key_name;
        self.events().into_iter().filter(of_key).map(|event| event.data).collect()
    }

    /// Sets limits of this namespace.
    pub(super) fn set_limits(&self, limits: Quota) -> QuotaView {
        self.look_at_limits(Some(limits), false)
    }

    /// Looks at the limits, and sets them, of this namespace or of every one. Until they count everywhere, time passes.
    pub(super) fn look_at_limits(&self, set: Option<Quota>, every_namespace: bool) -> QuotaView {
        let request = QuotaRequest {
            quota: set,
            all_namespaces: every_namespace,
            by: Some(owner("P")).filter(|_| set.is_some()),
        };
        let view = self.drive(self.test_store.other().quota(&self.call, request)).expect("limits");
        match self.test_store.limits_count_after_ms() {
            ms if ms > 0 && set.is_some() => self.pass(ms),
            _ => {}
        }
        view
    }

    pub(super) fn open_now(&self) -> Result<(), StoreError> {
        self.drive(self.test_store.store().reopen(&self.call, owner("P")))
    }

    pub(super) fn advance(&self, lift: u64) -> Result<AdvancedStore, StoreError> {
        self.drive(self.test_store.store().advance(&self.call, owner("P"), lift))
    }

    pub(super) fn closed_for_ms(&self) -> u64 {
        let closed_for_ms = self.drive(self.test_store.store().closed_for_ms(&self.call));
        closed_for_ms.expect("a store that answers")
    }

    pub(super) fn status(&self) -> StoreStatus {
        self.drive(self.test_store.store().status(&self.call)).expect("a status")
    }

    pub(super) fn close(&self) {
        self.drive(async { self.test_store.store().close().await });
    }
}

/// Looks until something is so.
pub(super) fn until(what: &str, so: impl Fn() -> bool) {
    for _ in 0..LOOKS_MAX {
        if so() {
            return;
        }
        pause();
    }
    panic!("it never came to this: {what}");
}

fn held(
    request: AcquireLeaseRequest,
    answer: Result<AcquiredLease, StoreError>,
) -> Result<HeldLease, Refusal> {
    match answer {
        Ok(AcquiredLease { key, grant, .. }) => {
            let (token, remaining_ms, resumed) = (grant.token, grant.remaining_ms, grant.resumed);
            Ok(HeldLease { request, key, token, remaining_ms, resumed })
        }
        Err(error) => Err(refusal(error)),
    }
}

/// The rules' refusal; any other error fails the case.
pub(super) fn refusal(error: StoreError) -> Refusal {
    match error {
        StoreError::Refused { refusal, .. } => refusal,
        error => panic!("the rules' answer was expected, not: {error}"),
    }
}

/// Whether a refusal says that a hold is over, how, and, if someone ended it, by whom and why.
#[track_caller]
pub(super) fn assert_lost<T: std::fmt::Debug>(
    answer: Result<T, Refusal>,
    held: &HeldLease,
    ended: LeaseOutcome,
) {
    match answer {
        Err(Refusal::Lost { token, outcome: how, by, reason, current_token: current }) => {
            assert_eq!((token, how), (held.token, Some(ended)));
            let told = (by.as_ref().map(Owner::as_str), reason.as_ref().map(Reason::as_str));
            match ended {
                LeaseOutcome::Revoked => assert_eq!(told, (Some("P"), Some("it was stuck"))),
                LeaseOutcome::Advanced | LeaseOutcome::Yielded => {
                    assert!(matches!(told, (Some(_), None)), "{told:?}");
                }
                _ => assert_eq!(told, (None, None), "no one ended it"),
            }
            assert!(current >= token, "the current token is not below a token that was given");
        }
        other => panic!("a hold that was {ended} got {other:?}"),
    }
}

/// Whether a refusal says that a hold ran out, and that another one has the key.
#[track_caller]
pub(super) fn assert_superseded<T: std::fmt::Debug>(
    answer: Result<T, Refusal>,
    held: &HeldLease,
    newer: &HeldLease,
) {
    match answer {
        Err(Refusal::Lost { token, outcome: Some(LeaseOutcome::Expired), current_token, .. }) => {
            assert_eq!((token, current_token), (held.token, newer.token), "superseded, and by whom");
        }
        other => panic!("{other:?}"),
    }
}

/// Whether a refusal names this holder.
#[track_caller]
pub(super) fn assert_held_by(answer: Result<HeldLease, Refusal>, holder: &HeldLease) {
    match answer {
        Err(Refusal::Held { owner, token, .. }) => {
            assert_eq!((&owner, token), (&holder.request.owner, holder.token));
        }
        Ok(held) => panic!("granted under token {} although {} holds it", held.token, holder.request.owner),
        Err(other) => panic!("refused, but not for the holder: {other}"),
    }
}

/// Whether a hold id is turned away because its lease is over.
#[track_caller]
pub(super) fn assert_ended(answer: Result<HeldLease, Refusal>, held: &HeldLease, ended: LeaseOutcome) {
    match answer {
        Err(refusal) => {
            assert_eq!(refusal, Refusal::HoldIdUsed { token: Some(held.token), outcome: Some(ended) });
        }
        Ok(again) => panic!("an ended hold id was granted again, under token {}", again.token),
    }
}

/// A hold id that no other request of this process has.
pub(super) fn fresh_hold() -> HoldId {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    let number = NEXT.fetch_add(1, Ordering::Relaxed).to_be_bytes();
    let mut bits = [0x5a; 16];
    bits[8..].copy_from_slice(&number);
    HoldId::from_random(bits)
}

/// Hold ids that nothing may show.
pub(super) const SECRETS: [[u8; 16]; 2] = [[0xa7; 16], [0xb9; 16]];

/// Whether neither of the [`SECRETS`] nor its hash is in anything that was shown, in digits or as a list.
pub(super) fn assert_no_secret_in(shown: &[String]) {
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().concat();
    let list = |bytes: &[u8]| bytes.iter().map(u8::to_string).collect::<Vec<_>>().join(", ");
    for secret in SECRETS {
        let hash = *HoldId::from_random(secret).hash().as_bytes();
        for form in [hex(&secret[..4]), list(&secret[..2]), hex(&hash[..4]), list(&hash[..4])] {
            for text in shown {
                assert!(!text.to_lowercase().contains(&form), "{form} is in {text}");
            }
        }
    }
}

pub(super) fn key(name: &str) -> Key {
    Key::new(name).expect("a key")
}

pub(super) fn keys(names: &[&str]) -> Vec<Key> {
    names.iter().map(|name| key(name)).collect()
}

pub(super) fn owner(name: &str) -> Owner {
    Owner::new(name).expect("an owner")
}

/// Tasks that `run-42`, `100%` or `a_b` cover, and others whose names are like theirs.
pub(super) const TASKS: [&str; 14] = [
    "run-42",
    "run-42/a",
    "run-42/a/b",
    "run-4",
    "run-4/2",
    "run-420",
    "run-420/a",
    "x/run-42",
    "100%",
    "100%/a",
    "1000/a",
    "a_b",
    "a_b/c",
    "axb/c",
];
/// Which of them each covers.
pub(super) const COVERED: [(&str, &[&str]); 5] = [
    ("run-42/", &["run-42/a", "run-42/a/b"]),
    ("run-42", &["run-42", "run-42/a", "run-42/a/b"]),
    ("100%", &["100%", "100%/a"]),
    ("a_b", &["a_b", "a_b/c"]),
    ("run", &[]),
];

/// The key that is held for a task: it does not begin like its task.
pub(super) fn key_for(task: &str) -> String {
    format!("for {task}")
}

pub(super) fn task(name: &str) -> Task {
    Task::new(name).expect("a task")
}
