//! Races, arranged by a gate in front of the HTTP transport: a chosen request of a chosen holder waits until a chosen
//! other has been answered. Each on all three clouds.

use std::sync::Arc;

use fencehold_contract::{AcquireLeaseRequest, LeaseStore as _, StoreError};
use fencehold_core::lease::LeaseOutcome;
use fencehold_core::{Owner, Refusal};
use fencehold_store_object::{Cas as _, Cloud, over_after_ms};
use fencehold_test_store::block_on;

use crate::TTL_MS;
use crate::fixture::{Fixture, TestHolder};
use crate::servers::CLOUDS;

/// R01: A's release was sent while its lease was its own, and arrives when B has the key.
#[test]
fn a_release_that_arrives_after_a_takeover_leaves_the_newer_holder_untouched() {
    for server in CLOUDS {
        let fixture = Fixture::on(server);
        let (a, b) = (Arc::new(fixture.holder("A")), fixture.holder("B"));
        let held = a.take("k");
        b.look("k");
        let gate = a.gate.hold_write();
        let releasing = a.start({
            let held = held.clone();
            move |a| a.release(&held)
        });
        gate.arrived();
        fixture.run_out();
        let newer = b.take("k");
        gate.go();
        match releasing.join().unwrap() {
            Err(Refusal::Lost {
                token,
                outcome: Some(LeaseOutcome::Expired),
                current_token: current,
                ..
            }) => {
                assert_eq!((token, current), (held.token, newer.token), "{server:?}");
            }
            other => panic!("{server:?}: {other:?}"),
        }
        b.renew(&newer).expect("untouched");
    }
}

/// R02: A and B have both seen the same dead lease; both take it.
#[test]
fn a_dead_lease_that_two_have_seen_goes_to_one_and_the_loser_sees_the_winner() {
    for server in CLOUDS {
        let fixture = Fixture::on(server);
        let (dead, a, b) = (fixture.holder("dead"), Arc::new(fixture.holder("A")), fixture.holder("B"));
        dead.take("k");
        a.look("k");
        b.look("k");
        fixture.run_out();
        let gate = a.gate.hold_write();
        let taking = a.start(|a| a.acquire(a.ask("k")));
        gate.arrived();
        let winner = b.take("k");
        gate.go();
        match taking.join().unwrap() {
            Err(StoreError::Refused { refusal: Refusal::Held { owner, token, .. }, .. }) => {
                assert_eq!((owner.as_str(), token), ("B", winner.token), "{server:?}");
            }
            other => panic!("{server:?}: {other:?}"),
        }
        assert_eq!(a.look("k").unwrap().endings.len(), 1, "the dead lease ended once");
    }
}

/// Two advances at once: the one that comes second takes nothing back of what the first has closed.
#[test]
fn an_advance_that_another_outran_opens_nothing_earlier() {
    const LONG_MS: u64 = 20 * TTL_MS;
    for server in CLOUDS {
        let fixture = Fixture::on(server);
        let (a, b) = (Arc::new(fixture.holder("A")), fixture.holder("B"));
        a.take("k");
        let advance = |holder: &TestHolder, lift| {
            block_on(holder.store.advance(&holder.call, Owner::new("ops").unwrap(), lift)).unwrap()
        };
        let gate = a.gate.hold_write();
        // Its lift is larger, so that it writes once more when it was outrun.
        let late = a.start(move |a| advance(a, 1_000));
        gate.arrived();
        b.acquire(AcquireLeaseRequest { ttl_ms: LONG_MS, ..b.ask("long") }).unwrap();
        let first = advance(&b, 1);
        assert_eq!(first.closed_for_ms, over_after_ms(LONG_MS), "{server:?}");
        gate.go();
        let second = late.join().unwrap();
        assert_eq!(second.closed_for_ms, first.closed_for_ms, "{server:?}");
        assert_eq!(second.namespaces, first.namespaces, "{server:?}");
        // What a new key meets is in the bucket, not in the answer.
        let fresh = fixture.holder("C");
        match fresh.acquire(fresh.ask("new")) {
            Err(StoreError::Unavailable { .. }) => {}
            other => panic!("{server:?}: {other:?}"),
        }
        fixture.clock.advance(over_after_ms(TTL_MS));
        assert!(fresh.acquire(fresh.ask("new")).is_err(), "{server:?}: opened too early");
        fixture.clock.advance(over_after_ms(LONG_MS));
        fresh.take("new");
    }
}

/// R03, R05: a contender has made up its mind to take a lease that it takes for dead; the holder renews; the contender
/// acts. Nothing was swept: on object storage a takeover is what a sweep is elsewhere.
#[test]
fn a_takeover_that_a_renewal_outran_takes_nothing() {
    for server in CLOUDS {
        let fixture = Fixture::on(server);
        let (a, b) = (fixture.holder("A"), Arc::new(fixture.holder("B")));
        let held = a.take("k");
        b.look("k");
        // Renewed by a process that A's own handle knows nothing of, so that it has the time.
        let elsewhere = fixture.holder("A");
        fixture.run_out();
        let gate = b.gate.hold_write();
        let taking = b.start(|b| b.acquire(b.ask("k")));
        gate.arrived();
        elsewhere.renew(&held).expect("no one has taken it");
        gate.go();
        match taking.join().unwrap() {
            Err(StoreError::Refused { refusal: Refusal::Held { owner, token, .. }, .. }) => {
                assert_eq!((owner.as_str(), token), ("A", held.token), "{server:?}");
            }
            other => panic!("{server:?}: {other:?}"),
        }
        elsewhere.renew(&held).expect("it lives on");
    }
}

/// R04, R11: the renewal has looked, P revokes, the renewal arrives.
#[test]
fn a_renewal_that_arrives_after_a_revocation_is_refused() {
    for server in CLOUDS {
        let fixture = Fixture::on(server);
        let (a, p) = (Arc::new(fixture.holder("A")), fixture.holder("P"));
        let held = a.take("k");
        let gate = a.gate.hold_write();
        let renewing = a.start({
            let held = held.clone();
            move |a| a.renew(&held)
        });
        gate.arrived();
        let consumed = p.revoke("k").unwrap()[0].revoked.consumed_token;
        gate.go();
        match renewing.join().unwrap() {
            Err(Refusal::Lost { outcome: Some(LeaseOutcome::Revoked), current_token: current, .. }) => {
                assert_eq!(current, consumed);
            }
            other => panic!("{server:?}: {other:?}"),
        }
        assert!(p.look("k").unwrap().holder.is_none());
    }
}

/// R08: A's renewal is on its way for so long that B has the key when it arrives.
#[test]
fn a_renewal_that_arrives_after_a_takeover_steals_nothing_back() {
    for server in CLOUDS {
        let fixture = Fixture::on(server);
        let (a, b) = (Arc::new(fixture.holder("A")), fixture.holder("B"));
        let held = a.take("k");
        b.look("k");
        let gate = a.gate.hold_write();
        let renewing = a.start({
            let held = held.clone();
            move |a| a.renew(&held)
        });
        gate.arrived();
        fixture.run_out();
        let newer = b.take("k");
        gate.go();
        match renewing.join().unwrap() {
            Err(Refusal::Lost { outcome: Some(LeaseOutcome::Expired), current_token: current, .. }) => {
                assert_eq!(current, newer.token);
            }
            other => panic!("{server:?}: {other:?}"),
        }
        b.renew(&newer).expect("untouched");
    }
}

/// R09: one owner, two holds of the same key; the release of the first arrives when it has the second.
#[test]
fn the_first_hold_of_an_owner_does_nothing_to_its_second() {
    for server in CLOUDS {
        let fixture = Fixture::on(server);
        let (w, again) = (Arc::new(fixture.holder("W")), fixture.holder("W"));
        let first = w.take("k");
        again.look("k");
        let gate = w.gate.hold_write();
        let releasing = w.start({
            let first = first.clone();
            move |w| w.release(&first)
        });
        gate.arrived();
        fixture.run_out();
        let second = again.take("k");
        gate.go();
        assert!(matches!(releasing.join().unwrap(), Err(Refusal::Lost { .. })), "{server:?}");
        again.renew(&second).expect("its second hold is its own");
    }
}

/// R10: a worker that restarts under its old name, in a new process, adopts nothing.
#[test]
fn a_reused_name_waits_like_anybody_else() {
    for server in CLOUDS {
        let fixture = Fixture::on(server);
        let dead = fixture.holder("worker-1").take("k");
        let reborn = fixture.holder("worker-1");
        assert_eq!(reborn.held_by("k"), ("worker-1".to_owned(), dead.token));
        fixture.clock.advance(over_after_ms(TTL_MS) - 1);
        assert_eq!(
            reborn.held_by("k"),
            ("worker-1".to_owned(), dead.token),
            "{server:?}: a moment too early"
        );
        fixture.clock.advance(1);
        assert!(reborn.take("k").token > dead.token);
    }
}

/// R12: the holder's own heartbeat was sent before its release, and arrives after it.
#[test]
fn a_heartbeat_that_arrives_after_the_release_revives_nothing() {
    for server in CLOUDS {
        let fixture = Fixture::on(server);
        let (a, b) = (Arc::new(fixture.holder("A")), fixture.holder("B"));
        let held = a.take("k");
        let gate = a.gate.hold_write();
        let renewing = a.start({
            let held = held.clone();
            move |a| a.renew(&held)
        });
        gate.arrived();
        assert_eq!(a.release(&held), Ok(held.token));
        gate.go();
        assert!(matches!(
            renewing.join().unwrap(),
            Err(Refusal::Lost { outcome: Some(LeaseOutcome::Released), .. })
        ));
        assert!(b.take("k").token > held.token, "{server:?}: free at once");
    }
}

/// R24: the bucket is put back to an earlier state. A newer token raises the alarm; after `store advance`
/// no token comes twice, on keys that are known as on those that are not.
#[test]
fn after_a_restored_bucket_was_advanced_no_token_comes_twice() {
    for server in CLOUDS {
        let fixture = Fixture::on(server);
        let a = fixture.holder("A");
        let cloud = Cloud::open(&fixture.place).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let limit = std::time::Duration::from_secs(10);
        let name = "leases/default/k.json";
        let early = a.take("k");
        let backup = runtime.block_on(cloud.read(name, limit)).unwrap().expect("an object");
        a.release(&early).unwrap();
        let lost = a.take("k");
        let unknown = a.take("made-since");
        // Put back, byte for byte; what was made since is gone.
        let now = runtime.block_on(cloud.read(name, limit)).unwrap().unwrap().version;
        runtime.block_on(cloud.write(name, Some(&now), backup.body, limit)).unwrap();
        runtime.block_on(cloud.remove("leases/default/made-since.json", limit)).unwrap();
        let fresh = fixture.holder("B");
        match fresh.renew(&lost) {
            Err(Refusal::StoreRewound { token: shown, .. }) => assert_eq!(shown, lost.token),
            other => panic!("{server:?}: {other:?}"),
        }
        let by = Owner::new("P").unwrap();
        let advanced = block_on(fresh.store.advance(&fresh.call, by, 1_000)).unwrap();
        assert_eq!((advanced.key_count, advanced.ended_count), (1, 1), "{server:?}");
        for key in ["k", "made-since"] {
            match fresh.acquire(fresh.ask(key)) {
                Err(StoreError::Unavailable { message: why }) => {
                    assert!(why.contains("store advance"), "{why}");
                }
                other => panic!("{server:?}: {other:?}"),
            }
        }
        fixture.clock.advance(advanced.closed_for_ms);
        assert!(fresh.take("k").token > lost.token, "{server:?}");
        assert!(fresh.take("made-since").token > unknown.token, "{server:?}");
    }
}

/// R32: a contender with a short ttl of its own waits for the one that is on record.
#[test]
fn the_recorded_ttl_counts() {
    for server in CLOUDS {
        let fixture = Fixture::on(server);
        let (a, b) = (fixture.holder("A"), fixture.holder("B"));
        let held = a.take("k");
        let brief = || AcquireLeaseRequest { ttl_ms: TTL_MS / 10, ..b.ask("k") };
        assert!(b.acquire(brief()).is_err());
        fixture.clock.advance(over_after_ms(TTL_MS / 10));
        assert!(b.acquire(brief()).is_err(), "{server:?}: by its own ttl it would be over");
        fixture.clock.advance(over_after_ms(TTL_MS) - over_after_ms(TTL_MS / 10) - 1);
        assert!(b.acquire(brief()).is_err(), "{server:?}: a moment too early");
        fixture.clock.advance(1);
        assert!(b.acquire(brief()).unwrap().grant.token > held.token);
    }
}

/// R35: a renewal changes nothing that the rules know of, and is seen as a change all the same: its bytes differ, so
/// that even a version made of them does.
#[test]
fn a_renewal_that_changes_nothing_is_seen_as_a_change() {
    for server in CLOUDS {
        let fixture = Fixture::on(server);
        let (a, b) = (fixture.holder("A"), fixture.holder("B"));
        let cloud = Cloud::open(&fixture.place).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let read = || {
            let limit = std::time::Duration::from_secs(10);
            runtime
                .block_on(cloud.read("leases/default/k.json", limit))
                .unwrap()
                .expect("an object")
        };
        let held = a.take("k");
        b.look("k");
        for _ in 0..3 {
            // Time stands still: nothing but the nonce and the sequence number can differ.
            let before = read();
            a.renew(&held).unwrap();
            let after = read();
            assert_ne!((&before.body, &before.version.0), (&after.body, &after.version.0), "{server:?}");
            assert_ne!(before.version, after.version, "{server:?}");
        }
        fixture.clock.advance(over_after_ms(TTL_MS) - 1);
        assert_eq!(b.held_by("k"), ("A".to_owned(), held.token));
        fixture.clock.advance(1);
        // First seen only now, whatever b saw before the renewals.
        assert_eq!(
            b.held_by("k"),
            ("A".to_owned(), held.token),
            "{server:?}: a renewal was taken for a dead holder"
        );
    }
}
