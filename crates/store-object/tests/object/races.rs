//! Races, arranged by a gate in front of the HTTP transport: a chosen request of a chosen holder waits until a chosen
//! other has been answered. Each on all three clouds.

use fencehold_contract::{AcquireLeaseRequest, LeaseStore as _};
use fencehold_core::Refusal;
use fencehold_core::lease::LeaseOutcome;
use fencehold_store_object::{Cas as _, Cloud, over_after_ms};
use fencehold_test_servers::calls::{held_by, owner, unavailable};
use fencehold_test_store::block_on;

use crate::TTL_MS;
use crate::fixture::{Fixture, TestHolder, lost};
use crate::servers::CLOUDS;

/// R01: A's release was sent while its lease was its own, and arrives when B has the key.
#[test]
fn a_release_that_arrives_after_a_takeover_leaves_the_newer_holder_untouched() {
    for server in CLOUDS {
        let fixture = Fixture::on(server);
        let (a, b) = (fixture.holder("A"), fixture.holder("B"));
        let held = a.take("k");
        b.look("k");
        let (released, newer) = a.held_up(|a| a.release(&held), || fixture.taken_over(&b));
        let named = matches!(&released, Err(Refusal::Lost { token, .. }) if *token == held.token);
        assert!(named, "{server:?}: {released:?}");
        assert_eq!(lost(released), (Some(LeaseOutcome::Expired), newer.token), "{server:?}");
        b.renew(&newer).expect("untouched");
    }
}

/// R02: A and B have both seen the same dead lease; both take it.
#[test]
fn a_dead_lease_that_two_have_seen_goes_to_one_and_the_loser_sees_the_winner() {
    for server in CLOUDS {
        let fixture = Fixture::on(server);
        let (dead, a, b) = (fixture.holder("dead"), fixture.holder("A"), fixture.holder("B"));
        dead.take("k");
        a.look("k");
        b.look("k");
        fixture.run_out();
        let (taken, winner) = a.held_up(|a| a.acquire(a.ask("k")), || b.take("k"));
        assert_eq!(held_by(taken), ("B".to_owned(), winner.token), "{server:?}");
        assert_eq!(a.look("k").unwrap().endings.len(), 1, "the dead lease ended once");
    }
}

/// Two advances at once: the one that comes second takes nothing back of what the first has closed.
#[test]
fn an_advance_that_another_outran_opens_nothing_earlier() {
    const LONG_MS: u64 = 20 * TTL_MS;
    for server in CLOUDS {
        let fixture = Fixture::on(server);
        let (a, b) = (fixture.holder("A"), fixture.holder("B"));
        a.take("k");
        let advance = |holder: &TestHolder, lift| {
            block_on(holder.store.advance(&holder.call, owner("ops"), lift)).unwrap()
        };
        // Its lift is larger, so that it writes once more when it was outrun.
        let (second, first) = a.held_up(
            |a| advance(a, 1_000),
            || {
                b.acquire(AcquireLeaseRequest { ttl_ms: LONG_MS, ..b.ask("long") }).unwrap();
                advance(&b, 1)
            },
        );
        assert_eq!(first.closed_for_ms, over_after_ms(LONG_MS), "{server:?}");
        assert_eq!(second.closed_for_ms, first.closed_for_ms, "{server:?}");
        assert_eq!(second.namespaces, first.namespaces, "{server:?}");
        // What a new key meets is in the bucket, not in the answer.
        let fresh = fixture.holder("C");
        unavailable(fresh.acquire(fresh.ask("new")));
        fixture.clock.advance_ms(over_after_ms(TTL_MS));
        assert!(fresh.acquire(fresh.ask("new")).is_err(), "{server:?}: opened too early");
        fixture.clock.advance_ms(over_after_ms(LONG_MS));
        fresh.take("new");
    }
}

/// R03, R05: a contender has made up its mind to take a lease that it takes for dead; the holder renews; the contender
/// acts. Nothing was swept: on object storage a takeover is what a sweep is elsewhere.
#[test]
fn a_takeover_that_a_renewal_outran_takes_nothing() {
    for server in CLOUDS {
        let fixture = Fixture::on(server);
        let (a, b) = (fixture.holder("A"), fixture.holder("B"));
        let held = a.take("k");
        b.look("k");
        // Renewed by a process that A's own handle knows nothing of, so that it has the time.
        let elsewhere = fixture.holder("A");
        fixture.run_out();
        let (taken, renewed) = b.held_up(|b| b.acquire(b.ask("k")), || elsewhere.renew(&held));
        renewed.expect("no one has taken it");
        assert_eq!(held_by(taken), ("A".to_owned(), held.token), "{server:?}");
        elsewhere.renew(&held).expect("it lives on");
    }
}

/// R04, R11: the renewal has looked, P revokes, the renewal arrives.
#[test]
fn a_renewal_that_arrives_after_a_revocation_is_refused() {
    for server in CLOUDS {
        let fixture = Fixture::on(server);
        let (a, p) = (fixture.holder("A"), fixture.holder("P"));
        let held = a.take("k");
        let (renewed, revoked) = a.held_up(|a| a.renew(&held), || p.revoke("k").unwrap());
        let consumed = revoked[0].revoked.consumed_token;
        assert_eq!(lost(renewed), (Some(LeaseOutcome::Revoked), consumed), "{server:?}");
        assert!(p.look("k").unwrap().holder.is_none());
    }
}

/// R08: A's renewal is on its way for so long that B has the key when it arrives.
#[test]
fn a_renewal_that_arrives_after_a_takeover_steals_nothing_back() {
    for server in CLOUDS {
        let fixture = Fixture::on(server);
        let (a, b) = (fixture.holder("A"), fixture.holder("B"));
        let held = a.take("k");
        b.look("k");
        let (renewed, newer) = a.held_up(|a| a.renew(&held), || fixture.taken_over(&b));
        assert_eq!(lost(renewed), (Some(LeaseOutcome::Expired), newer.token), "{server:?}");
        b.renew(&newer).expect("untouched");
    }
}

/// R09: one owner, two holds of the same key; the release of the first arrives when it has the second.
#[test]
fn the_first_hold_of_an_owner_does_nothing_to_its_second() {
    for server in CLOUDS {
        let fixture = Fixture::on(server);
        let (w, again) = (fixture.holder("W"), fixture.holder("W"));
        let first = w.take("k");
        again.look("k");
        let (released, second) = w.held_up(|w| w.release(&first), || fixture.taken_over(&again));
        lost(released);
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
        fixture.clock.advance_ms(over_after_ms(TTL_MS) - 1);
        let holder = reborn.held_by("k");
        assert_eq!(holder, ("worker-1".to_owned(), dead.token), "{server:?}: a moment too early");
        fixture.clock.advance_ms(1);
        assert!(reborn.take("k").token > dead.token);
    }
}

/// R12: the holder's own heartbeat was sent before its release, and arrives after it.
#[test]
fn a_heartbeat_that_arrives_after_the_release_revives_nothing() {
    for server in CLOUDS {
        let fixture = Fixture::on(server);
        let (a, b) = (fixture.holder("A"), fixture.holder("B"));
        let held = a.take("k");
        let (renewed, released) = a.held_up(|a| a.renew(&held), || a.release(&held));
        assert_eq!(released, Ok(held.token));
        assert_eq!(lost(renewed).0, Some(LeaseOutcome::Released), "{server:?}");
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
        let advanced = block_on(fresh.store.advance(&fresh.call, owner("P"), 1_000)).unwrap();
        assert_eq!((advanced.key_count, advanced.ended_count), (1, 1), "{server:?}");
        for key in ["k", "made-since"] {
            let why = unavailable(fresh.acquire(fresh.ask(key)));
            assert!(why.contains("store advance"), "{server:?}: {why}");
        }
        fixture.clock.advance_ms(advanced.closed_for_ms);
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
        fixture.clock.advance_ms(over_after_ms(TTL_MS / 10));
        assert!(b.acquire(brief()).is_err(), "{server:?}: by its own ttl it would be over");
        fixture.clock.advance_ms(over_after_ms(TTL_MS) - over_after_ms(TTL_MS / 10) - 1);
        assert!(b.acquire(brief()).is_err(), "{server:?}: a moment too early");
        fixture.clock.advance_ms(1);
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
        let limit = std::time::Duration::from_secs(10);
        let read = || {
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
        fixture.clock.advance_ms(over_after_ms(TTL_MS) - 1);
        assert_eq!(b.held_by("k"), ("A".to_owned(), held.token));
        fixture.clock.advance_ms(1);
        // First seen only now, whatever b saw before the renewals.
        let holder = b.held_by("k");
        assert_eq!(holder, ("A".to_owned(), held.token), "{server:?}: a renewal was taken for a dead holder");
    }
}
