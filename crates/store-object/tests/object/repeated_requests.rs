//! The same request again, and requests without a caller: lost answers, callers that have gone, writes that arrive
//! late. Arranged by the gate in front of the HTTP transport, each on all three clouds.

use fencehold_contract::{AcquireLeaseRequest, AcquiredLease, HoldRef, LeaseStore as _, StoreError};
use fencehold_core::Refusal;
use fencehold_core::lease::LeaseOutcome;
use fencehold_store_object::ResponseFate;
use fencehold_test_servers::calls::UnreadCall;
use fencehold_test_store::{block_on, pause};

use crate::TTL_MS;
use crate::fixture::{Fixture, TestHolder};
use crate::servers::{CLOUDS, on_every_cloud};

/// An acquisition that is under way, by a caller that can go before it looks at the answer.
fn unread_acquire(
    holder: &TestHolder,
    request: AcquireLeaseRequest,
) -> UnreadCall<'_, Result<AcquiredLease, StoreError>> {
    UnreadCall::send(holder.store.acquire(&holder.call, request))
}

impl TestHolder {
    /// Returns when nothing is under way any more. Closing waits for that, but on a busy machine not for long enough.
    fn settle(&self) {
        for _ in 0..5 {
            block_on(self.store.close());
        }
    }
}

/// R13: granted, the answer is lost, the process is gone; another sends the same request: the same lease, and no more
/// time than the hold id can have left. After its end: never again.
#[test]
fn a_hold_id_that_comes_back_in_another_process_gets_its_lease_and_no_more_time() {
    for server in CLOUDS {
        let fixture = Fixture::on(server);
        let (a, again) = (fixture.holder("A"), fixture.holder("A"));
        let request = a.ask("k");
        let first = a.acquire(request.clone()).unwrap();
        fixture.clock.advance_ms(TTL_MS / 3);
        let repeat = AcquireLeaseRequest { hold_id_age_ms: TTL_MS / 3, ..request.clone() };
        let second = again.acquire(repeat.clone()).unwrap();
        assert_eq!((second.grant.token, second.grant.resumed), (first.grant.token, true));
        assert_eq!(second.grant.remaining_ms, TTL_MS - TTL_MS / 3, "{server:?}");
        let b = fixture.holder("B");
        b.look("k");
        fixture.run_out();
        let newer = b.take("k");
        match again.acquire(AcquireLeaseRequest { hold_id_age_ms: 2 * TTL_MS, ..repeat }) {
            Err(StoreError::Refused {
                refusal: Refusal::HoldIdUsed { outcome: Some(LeaseOutcome::Expired), .. },
                ..
            }) => {}
            other => panic!("{server:?}: {other:?}"),
        }
        b.renew(&newer).expect("untouched");
    }
}

/// R14: A gives up while its write is on its way; the grant is carried out all the same, and given back at once.
#[test]
fn a_grant_whose_asker_has_gone_is_given_back() {
    for server in CLOUDS {
        let fixture = Fixture::on(server);
        let (a, b) = (fixture.holder("A"), fixture.holder("B"));
        let grant = a.gate.hold_write();
        let call = unread_acquire(&a, a.ask("k"));
        grant.arrived();
        drop(call);
        grant.go();
        a.settle();
        let view = b.look("k").expect("it was carried out");
        assert!(view.holder.is_none(), "{server:?}: no one is left to hold it");
        assert_eq!(view.endings[0].owner.as_str(), "A", "{server:?}");
        assert_eq!(view.endings[0].outcome, LeaseOutcome::Abandoned, "{server:?}: and visible as such");
    }
}

/// R14: A's timeout ends while its write is on its way, and A goes before the answer. It will not ask again, so it is
/// found out what became of the write, and given back.
#[test]
fn a_grant_that_comes_after_its_askers_patience_and_finds_nobody_is_given_back() {
    on_every_cloud(|server| {
        let fixture = Fixture::on(server);
        let (mut a, b) = (fixture.holder("A"), fixture.holder("B"));
        a.call = a.call.clone().with_timeout_ms(2_000);
        let grant = a.gate.hold_write();
        let call = unread_acquire(&a, a.ask("k"));
        grant.arrived();
        call.until_answered();
        drop(call);
        grant.go();
        a.settle();
        let view = b.look("k").expect("it was carried out");
        assert!(view.holder.is_none(), "{server:?}: no one is left to hold it");
        assert_eq!(view.endings[0].outcome, LeaseOutcome::Abandoned, "{server:?}");
    });
}

/// R13, R14: the first sending is given back so late that the same request, sent again through another process, got
/// of the grant meanwhile: it is left to that.
#[test]
fn a_grant_that_the_same_request_took_up_elsewhere_is_not_given_back() {
    for server in CLOUDS {
        let fixture = Fixture::on(server);
        let (a, again) = (fixture.holder("A"), fixture.holder("A"));
        let (grant, giving_back) = (a.gate.hold_write(), a.gate.hold_write());
        let request = a.ask("k");
        let call = unread_acquire(&a, request.clone());
        grant.arrived();
        drop(call);
        grant.go();
        giving_back.arrived();
        let told = again
            .acquire(AcquireLeaseRequest { hold_id_age_ms: 1, ..request.clone() })
            .unwrap();
        assert!(told.grant.resumed, "{server:?}: it is the first sending's");
        giving_back.go();
        a.settle();
        let own = HoldRef { key: told.key, hold_id: request.hold_id, token: told.grant.token };
        again.renew(&own).unwrap_or_else(|refusal| panic!("{server:?}: {refusal}"));
    }
}

/// R14: the first sending is given back so late that its lease has run out, and B has the key.
#[test]
fn a_grant_that_is_given_back_late_leaves_the_next_holder_alone() {
    for server in CLOUDS {
        let fixture = Fixture::on(server);
        let (a, b) = (fixture.holder("A"), fixture.holder("B"));
        let (grant, giving_back) = (a.gate.hold_write(), a.gate.hold_write());
        let call = unread_acquire(&a, a.ask("k"));
        grant.arrived();
        drop(call);
        grant.go();
        giving_back.arrived();
        b.look("k");
        fixture.run_out();
        let next = b.take("k");
        giving_back.go();
        a.settle();
        b.renew(&next).unwrap_or_else(|refusal| panic!("{server:?}: {refusal}"));
        let endings = b.look("k").unwrap().endings;
        let outcomes: Vec<_> = endings.iter().map(|ending| ending.outcome).collect();
        assert_eq!(outcomes, [LeaseOutcome::Expired], "{server:?}");
    }
}

/// R13: a hold id that comes back takes its lease up with one write; from then on it costs none.
#[test]
fn only_the_first_repeat_writes() {
    for server in CLOUDS {
        let fixture = Fixture::on(server);
        let (a, again) = (fixture.holder("A"), fixture.holder("A"));
        let request = a.ask("k");
        a.acquire(request.clone()).unwrap();
        let repeat = AcquireLeaseRequest { hold_id_age_ms: 1, ..request };
        let writes = |holder: &TestHolder| {
            holder.acquire(repeat.clone()).unwrap();
            holder.gate.take().iter().any(|request| request.writes)
        };
        assert!(writes(&again), "{server:?}");
        assert!(!writes(&again), "{server:?}");
        a.gate.take();
        assert!(!writes(&a), "{server:?}");
    }
}

/// R13, R14: a hold id is sent again, and the second sender goes. The first was answered, and is at work.
#[test]
fn a_repeat_whose_asker_has_gone_leaves_the_lease_alone() {
    for server in CLOUDS {
        let fixture = Fixture::on(server);
        let (a, again) = (fixture.holder("A"), fixture.holder("A"));
        let request = a.ask("k");
        let token = a.acquire(request.clone()).unwrap().grant.token;
        drop(unread_acquire(&again, AcquireLeaseRequest { hold_id_age_ms: 1, ..request }));
        again.settle();
        let view = a.look("k").unwrap();
        assert!(view.holder.is_some() && view.token == token, "{server:?}: {view:?}");
    }
}

/// R27: the write arrives, its answer does not; the retry meets its own first write, and knows it.
#[test]
fn a_retry_that_meets_its_own_first_write_knows_it() {
    for server in CLOUDS {
        let fixture = Fixture::on(server);
        let (a, b) = (fixture.holder("A"), fixture.holder("B"));
        a.gate.lose_write(0, ResponseFate::Reset);
        let request = a.ask("k");
        let acquired = a.acquire(request).unwrap_or_else(|error| panic!("{server:?}: {error}"));
        assert!(a.gate.is_done());
        let grant = &acquired.grant;
        assert_eq!((grant.token.get(), grant.resumed), (1, false), "one grant, and it was ours");
        assert_eq!(b.held_by("k"), ("A".to_owned(), acquired.grant.token));
    }
}

/// R27: a write was given up on, and is still on its way while its object is what it was: it is not taken for lost.
/// It is sent again on the same condition; the first one arrives before the second, which is refused; and its sender
/// knows the first for its own.
#[test]
fn a_write_that_may_still_arrive_is_never_taken_for_lost() {
    on_every_cloud(|server| {
        let fixture = Fixture::on(server);
        let (a, b) = (fixture.holder("A"), fixture.holder("B"));
        // With a ttl of 12 s a request is given up on after 2 s.
        let request = AcquireLeaseRequest { ttl_ms: 12_000, ..a.ask("k") };
        let acquired = std::thread::scope(|scope| {
            let (first, second) = (a.gate.hold_write(), a.gate.hold_write());
            let taking = scope.spawn(|| a.acquire(request));
            first.arrived();
            second.arrived();
            first.go();
            while b.look("k").is_none() {
                pause();
            }
            second.go();
            taking.join().unwrap()
        });
        let acquired = acquired.unwrap_or_else(|error| panic!("{server:?}: {error}"));
        assert_eq!((acquired.grant.token.get(), acquired.grant.resumed), (1, false), "{server:?}");
        assert_eq!(b.held_by("k"), ("A".to_owned(), acquired.grant.token));
    });
}

/// R27: the other way round: the second sending is carried out, and the first arrives after it.
#[test]
fn a_write_that_arrives_after_its_own_retry_harms_nothing() {
    on_every_cloud(|server| {
        let fixture = Fixture::on(server);
        let (a, b) = (fixture.holder("A"), fixture.holder("B"));
        let first = a.gate.hold_write();
        let own = a.take_with(AcquireLeaseRequest { ttl_ms: 12_000, ..a.ask("k") });
        first.arrived();
        first.go();
        a.renew(&own).expect("its own");
        assert_eq!(b.held_by("k"), ("A".to_owned(), own.token));
    });
}
