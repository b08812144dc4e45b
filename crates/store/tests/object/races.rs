//! Races, arranged by a gate in front of the HTTP transport: a chosen request of a chosen holder waits until a chosen
//! other has been answered. Each on all three clouds.

use std::sync::Arc;

use fencehold_core::lease::How;
use fencehold_core::{Owner, Refusal};
use fencehold_store::object::{Cas as _, Cloud, Fate, over_after_ms};
use fencehold_store::{AcquireRequest, HoldRef, LeaseStore as _, StoreError};

use crate::TTL_MS;
use crate::servers::Server;
use crate::stage::Stage;

const CLOUDS: [Server; 3] = [Server::Moto, Server::Gcs, Server::Azurite];

/// R01: A's release was sent while its lease was its own, and arrives when B has the key.
#[test]
fn a_release_that_arrives_after_a_takeover_leaves_the_newer_holder_untouched() {
    for server in CLOUDS {
        let stage = Stage::on(server);
        let (a, b) = (Arc::new(stage.holder("A")), stage.holder("B"));
        let held = a.take("k");
        b.look("k");
        let gate = a.gate.hold_write();
        let releasing = a.start({
            let held = held.clone();
            move |a| a.release(&held)
        });
        gate.arrived();
        stage.run_out();
        let newer = b.take("k");
        gate.go();
        match releasing.join().unwrap() {
            Err(Refusal::Lost { token, how: Some(How::Expired), current, .. }) => {
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
        let stage = Stage::on(server);
        let (dead, a, b) = (stage.holder("dead"), Arc::new(stage.holder("A")), stage.holder("B"));
        dead.take("k");
        a.look("k");
        b.look("k");
        stage.run_out();
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

/// R03, R05: a contender has made up its mind to take a lease that it takes for dead; the holder renews; the contender
/// acts. Nothing was swept: on object storage a takeover is what a sweep is elsewhere.
#[test]
fn a_takeover_that_a_renewal_outran_takes_nothing() {
    for server in CLOUDS {
        let stage = Stage::on(server);
        let (a, b) = (stage.holder("A"), Arc::new(stage.holder("B")));
        let held = a.take("k");
        b.look("k");
        // Renewed by a process that A's own handle knows nothing of, so that it has the time.
        let elsewhere = stage.holder("A");
        stage.run_out();
        let gate = b.gate.hold_write();
        let taking = b.start(|b| b.acquire(b.ask("k")));
        gate.arrived();
        elsewhere.renew(&held).expect("nobody has taken it");
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
        let stage = Stage::on(server);
        let (a, p) = (Arc::new(stage.holder("A")), stage.holder("P"));
        let held = a.take("k");
        let gate = a.gate.hold_write();
        let renewing = a.start({
            let held = held.clone();
            move |a| a.renew(&held)
        });
        gate.arrived();
        let consumed = p.revoke("k").unwrap()[0].revoked.consumed;
        gate.go();
        match renewing.join().unwrap() {
            Err(Refusal::Lost { how: Some(How::Revoked), current, .. }) => assert_eq!(current, consumed),
            other => panic!("{server:?}: {other:?}"),
        }
        assert!(p.look("k").unwrap().holder.is_none());
    }
}

/// R08: A's renewal is on its way for so long that B has the key when it arrives.
#[test]
fn a_renewal_that_arrives_after_a_takeover_steals_nothing_back() {
    for server in CLOUDS {
        let stage = Stage::on(server);
        let (a, b) = (Arc::new(stage.holder("A")), stage.holder("B"));
        let held = a.take("k");
        b.look("k");
        let gate = a.gate.hold_write();
        let renewing = a.start({
            let held = held.clone();
            move |a| a.renew(&held)
        });
        gate.arrived();
        stage.run_out();
        let newer = b.take("k");
        gate.go();
        match renewing.join().unwrap() {
            Err(Refusal::Lost { how: Some(How::Expired), current, .. }) => assert_eq!(current, newer.token),
            other => panic!("{server:?}: {other:?}"),
        }
        b.renew(&newer).expect("untouched");
    }
}

/// R09: one owner, two holds of the same key; the release of the first arrives when it has the second.
#[test]
fn the_first_hold_of_an_owner_does_nothing_to_its_second() {
    for server in CLOUDS {
        let stage = Stage::on(server);
        let (w, again) = (Arc::new(stage.holder("W")), stage.holder("W"));
        let first = w.take("k");
        again.look("k");
        let gate = w.gate.hold_write();
        let releasing = w.start({
            let first = first.clone();
            move |w| w.release(&first)
        });
        gate.arrived();
        stage.run_out();
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
        let stage = Stage::on(server);
        let dead = stage.holder("worker-1").take("k");
        let reborn = stage.holder("worker-1");
        assert_eq!(reborn.held_by("k"), ("worker-1".to_owned(), dead.token));
        stage.clock.pass(over_after_ms(TTL_MS) - 1);
        assert_eq!(
            reborn.held_by("k"),
            ("worker-1".to_owned(), dead.token),
            "{server:?}: a moment too early"
        );
        stage.clock.pass(1);
        assert!(reborn.take("k").token > dead.token);
    }
}

/// R12: the holder's own heartbeat was sent before its release, and arrives after it.
#[test]
fn a_heartbeat_that_arrives_after_the_release_revives_nothing() {
    for server in CLOUDS {
        let stage = Stage::on(server);
        let (a, b) = (Arc::new(stage.holder("A")), stage.holder("B"));
        let held = a.take("k");
        let gate = a.gate.hold_write();
        let renewing = a.start({
            let held = held.clone();
            move |a| a.renew(&held)
        });
        gate.arrived();
        assert_eq!(a.release(&held), Ok(held.token));
        gate.go();
        assert!(matches!(renewing.join().unwrap(), Err(Refusal::Lost { how: Some(How::Released), .. })));
        assert!(b.take("k").token > held.token, "{server:?}: free at once");
    }
}

/// R13: granted, the answer is lost, the process is gone; another sends the same request: the same lease, and no more
/// time than the hold id can have left. After its end: never again.
#[test]
fn a_hold_id_that_comes_back_in_another_process_gets_its_lease_and_no_more_time() {
    for server in CLOUDS {
        let stage = Stage::on(server);
        let (a, again) = (stage.holder("A"), stage.holder("A"));
        let request = a.ask("k");
        let first = a.acquire(request.clone()).unwrap();
        stage.clock.pass(TTL_MS / 3);
        let repeat = AcquireRequest { hold_age_ms: TTL_MS / 3, ..request.clone() };
        let second = again.acquire(repeat.clone()).unwrap();
        assert_eq!((second.grant.token, second.grant.resumed), (first.grant.token, true));
        assert_eq!(second.grant.remaining_ms, TTL_MS - TTL_MS / 3, "{server:?}");
        let b = stage.holder("B");
        b.look("k");
        stage.run_out();
        let newer = b.take("k");
        match again.acquire(AcquireRequest { hold_age_ms: 2 * TTL_MS, ..repeat }) {
            Err(StoreError::Refused { refusal: Refusal::Ended { how: Some(How::Expired), .. }, .. }) => {}
            other => panic!("{server:?}: {other:?}"),
        }
        b.renew(&newer).expect("untouched");
    }
}

/// R14: A gives up while its write is on its way; the grant is carried out all the same, and given back at once.
#[test]
fn a_grant_whose_asker_has_gone_is_given_back() {
    for server in CLOUDS {
        let stage = Stage::on(server);
        let (a, b) = (stage.holder("A"), stage.holder("B"));
        let gate = a.gate.hold_write();
        let request = a.ask("k");
        let (store, call) = (a.store.clone(), a.call.clone());
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let asking = std::thread::spawn(move || {
            runtime.block_on(async {
                let acquiring = store.acquire(&call, request);
                // Dropped while its write stands at the gate.
                tokio::select! { biased; _ = acquiring => panic!("answered"), () = async { gate.arrived(); gate.go(); } => {} }
            });
        });
        asking.join().unwrap();
        // Closing waits for what is under way.
        fencehold_store::conformance::block_on(a.store.close());
        let view = b.look("k").expect("it was carried out");
        assert!(view.holder.is_none(), "{server:?}: nobody is left to hold it");
        assert_eq!(view.endings[0].owner, Owner::new("A").unwrap(), "and visible as such");
    }
}

/// R13, R14: a hold id is sent again, and whoever sent it again goes. The first was answered, and is at work.
#[test]
fn a_repeat_whose_asker_has_gone_leaves_the_lease_alone() {
    for server in CLOUDS {
        let stage = Stage::on(server);
        let (a, again) = (stage.holder("A"), stage.holder("A"));
        let request = a.ask("k");
        let token = a.acquire(request.clone()).unwrap().grant.token;
        let request = AcquireRequest { hold_age_ms: 1, ..request };
        let mut asking = again.store.acquire(&again.call, request);
        let polled = asking
            .as_mut()
            .poll(&mut std::task::Context::from_waker(std::task::Waker::noop()));
        assert!(polled.is_pending(), "{server:?}");
        drop(asking);
        // Closing waits for what is under way.
        fencehold_store::conformance::block_on(again.store.close());
        let view = a.look("k").unwrap();
        assert!(view.holder.is_some() && view.token == token, "{server:?}: {view:?}");
    }
}

/// R24: the bucket is put back to an earlier state. Whoever shows a newer token raises the alarm; after `store advance`
/// no token comes twice, on keys that are known as on those that are not.
#[test]
fn after_a_restored_bucket_was_advanced_no_token_comes_twice() {
    for server in CLOUDS {
        let stage = Stage::on(server);
        let a = stage.holder("A");
        let cloud = Cloud::open(&stage.place).unwrap();
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
        runtime.block_on(cloud.swap(name, &now, backup.body, limit)).unwrap();
        runtime.block_on(cloud.remove("leases/default/made-since.json", limit)).unwrap();
        let fresh = stage.holder("B");
        match fresh.renew(&lost) {
            Err(Refusal::StoreRewound { shown, .. }) => assert_eq!(shown, lost.token),
            other => panic!("{server:?}: {other:?}"),
        }
        let by = Owner::new("P").unwrap();
        let advanced =
            fencehold_store::conformance::block_on(fresh.store.advance(&fresh.call, by, 1_000)).unwrap();
        assert_eq!((advanced.keys, advanced.ended), (1, 1), "{server:?}");
        for key in ["k", "made-since"] {
            match fresh.acquire(fresh.ask(key)) {
                Err(StoreError::Unavailable { why }) => assert!(why.contains("store advance"), "{why}"),
                other => panic!("{server:?}: {other:?}"),
            }
        }
        stage.clock.pass(advanced.closed_for_ms);
        assert!(fresh.take("k").token > lost.token, "{server:?}");
        assert!(fresh.take("made-since").token > unknown.token, "{server:?}");
    }
}

/// R27: the write arrives, its answer does not; the retry meets its own first write, and knows it.
#[test]
fn a_retry_that_meets_its_own_first_write_knows_it() {
    for server in CLOUDS {
        let stage = Stage::on(server);
        let (a, b) = (stage.holder("A"), stage.holder("B"));
        a.gate.lose_write(0, Fate::Reset);
        let request = a.ask("k");
        let acquired = a.acquire(request).unwrap_or_else(|error| panic!("{server:?}: {error}"));
        assert!(a.gate.is_done());
        assert_eq!(
            (acquired.grant.token.get(), acquired.grant.resumed),
            (1, false),
            "one grant, and it was ours"
        );
        assert_eq!(b.held_by("k"), ("A".to_owned(), acquired.grant.token));
    }
}

/// R27: a write was given up on, and is still on its way while its object is what it was: it is not taken for lost.
/// It is sent again on the same condition; the first one arrives before the second, which is refused; and its sender
/// knows the first for its own.
#[test]
fn a_write_that_may_still_arrive_is_never_taken_for_lost() {
    for server in CLOUDS {
        let stage = Stage::on(server);
        let (a, b) = (Arc::new(stage.holder("A")), stage.holder("B"));
        // With a ttl of 12 s a request is given up on after 2 s.
        let request = AcquireRequest { ttl_ms: 12_000, ..a.ask("k") };
        let (first, second) = (a.gate.hold_write(), a.gate.hold_write());
        let taking = a.start(move |a| a.acquire(request));
        first.arrived();
        second.arrived();
        first.go();
        while b.look("k").is_none() {
            std::thread::yield_now();
        }
        second.go();
        let acquired = taking.join().unwrap().unwrap_or_else(|error| panic!("{server:?}: {error}"));
        assert_eq!((acquired.grant.token.get(), acquired.grant.resumed), (1, false), "{server:?}");
        assert_eq!(b.held_by("k"), ("A".to_owned(), acquired.grant.token));
    }
}

/// R27: the other way round: the second sending is carried out, and the first arrives after it.
#[test]
fn a_write_that_arrives_after_its_own_retry_harms_nothing() {
    for server in CLOUDS {
        let stage = Stage::on(server);
        let (a, b) = (Arc::new(stage.holder("A")), stage.holder("B"));
        let request = AcquireRequest { ttl_ms: 12_000, ..a.ask("k") };
        let hold = request.hold;
        let first = a.gate.hold_write();
        let taking = a.start(move |a| a.acquire(request));
        first.arrived();
        let acquired = taking.join().unwrap().unwrap_or_else(|error| panic!("{server:?}: {error}"));
        first.go();
        let own = HoldRef { key: acquired.key, hold, token: acquired.grant.token };
        a.renew(&own).expect("its own");
        assert_eq!(b.held_by("k"), ("A".to_owned(), own.token));
    }
}

/// R32: a contender with a short ttl of its own waits for the one that is on record.
#[test]
fn the_recorded_ttl_counts() {
    for server in CLOUDS {
        let stage = Stage::on(server);
        let (a, b) = (stage.holder("A"), stage.holder("B"));
        let held = a.take("k");
        let brief = || AcquireRequest { ttl_ms: TTL_MS / 10, ..b.ask("k") };
        assert!(b.acquire(brief()).is_err());
        stage.clock.pass(over_after_ms(TTL_MS / 10));
        assert!(b.acquire(brief()).is_err(), "{server:?}: by its own ttl it would be over");
        stage.clock.pass(over_after_ms(TTL_MS) - over_after_ms(TTL_MS / 10) - 1);
        assert!(b.acquire(brief()).is_err(), "{server:?}: a moment too early");
        stage.clock.pass(1);
        assert!(b.acquire(brief()).unwrap().grant.token > held.token);
    }
}

/// R35: a renewal changes nothing that the rules know of, and is seen as a change all the same: its bytes differ, so
/// that even a version made of them does.
#[test]
fn a_renewal_that_changes_nothing_is_seen_as_a_change() {
    for server in CLOUDS {
        let stage = Stage::on(server);
        let (a, b) = (stage.holder("A"), stage.holder("B"));
        let cloud = Cloud::open(&stage.place).unwrap();
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
        stage.clock.pass(over_after_ms(TTL_MS) - 1);
        assert_eq!(b.held_by("k"), ("A".to_owned(), held.token));
        stage.clock.pass(1);
        // First seen only now, whatever b saw before the renewals.
        assert_eq!(
            b.held_by("k"),
            ("A".to_owned(), held.token),
            "{server:?}: a renewal was taken for a dead holder"
        );
    }
}
