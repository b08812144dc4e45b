//! Who a caller is: names that come twice, and holds that are another tenant's.

use fencehold_core::Namespace;

use super::prelude::*;

pub(super) const R09: Race = Race {
    id: "R09",
    name: "same worker, two attempts",
    promise: "P5 Check and write are one act",
    schedule: "W takes the key, loses it and takes it again; then its first thread completes, as W",
    must_hold: "the first attempt is stale, although the owner's name matches",
    naive: Some("the owner's name matches: the dead attempt completes"),
    script: |script| {
        let (first, second) = (script.actor("W, 1st").named("W"), script.actor("W, 2nd").named("W"));
        let old = first.acquires()?;
        script.expires(&old);
        let new = second.acquires()?;
        script.must(second.completes(&new, "2nd attempt").is_completed(), "the holder completes")?;
        let told = first.completes(&old, "1st attempt");
        let stands = script.resource.look().result;
        script
            .must(stands == Some((new.token, "2nd attempt".to_owned())), "the result of the holder stands")?;
        script.must(told.is_stale(), "the first attempt learns that it is stale")
    },
    ..LEASE_RACE
};

pub(super) const R09_JOB: Race = Race {
    id: "R09-job",
    name: "same worker, two attempts at a job",
    promise: "P5 Check and write are one act",
    schedule: "W claims the job, loses it and claims it again; then its first thread completes, as W",
    must_hold: "the first attempt is stale, although the owner's name matches",
    naive: Some("the owner's name matches: the dead attempt completes"),
    script: |script| {
        let (first, second) = (script.worker("W, 1st").named("W"), script.worker("W, 2nd").named("W"));
        let old = first.claims()?;
        script.crashes(&old)?;
        let new = second.claims()?;
        script.must(new.token > old.token, "every attempt has a token of its own")?;
        let told = first.completes(&old, "1st attempt");
        script.must(script.job()?.state == JobState::Running, "the second attempt goes on")?;
        script.must(told.is_stale(), "the first attempt learns that it is stale")?;
        script.must(
            second.completes(&new, "2nd attempt").leaves_it(JobState::Completed),
            "the second completes",
        )
    },
    ..JOB_RACE
};

pub(super) const R10: Race = Race {
    id: "R10",
    name: "reused name",
    promise: "P5 Check and write are one act",
    schedule: "W dies with its lease and starts again under its old name, with a new hold id",
    must_hold: "nothing of the dead one is adopted: the new one waits like anybody else",
    naive: Some("the name matches: the orphan looks alive"),
    script: |script| {
        let (dead, new) = (script.actor("W"), script.actor("W again").named("W"));
        let orphan = dead.acquires()?;
        let adopted = HeldLease { hold: new.wish().hold, ..orphan.clone() };
        script.must(!new.renews(&adopted).is_renewed(), "a name renews nothing")?;
        script.must(new.asks(new.wish()).is_held(), "the orphan is in the way until it expires")?;
        script.expires(&orphan);
        let own = new.acquires()?;
        script.must(own.token > orphan.token, "the new one gets a larger token")
    },
    ..LEASE_RACE
};

pub(super) const R10_JOB: Race = Race {
    id: "R10-job",
    name: "reused name, a job",
    promise: "P5 Check and write are one act",
    schedule: "W dies with its claim and starts again under its old name",
    must_hold: "nothing of the dead one is adopted: the new one waits until the claim is over",
    naive: Some("the name matches: the new one adopts a job of which it knows nothing"),
    script: |script| {
        let (dead, again) = (script.worker("W"), script.worker("W again").named("W"));
        let orphan = dead.claims()?;
        script.must(again.finds_nothing()?, "a claim is not adopted by its owner's name")?;
        script.crashes(&orphan)?;
        let work = again.claims()?;
        script.must(work.token > orphan.token, "the new attempt has a token of its own")
    },
    ..JOB_RACE
};

pub(super) const R34: Race = Race {
    id: "R34",
    name: "other tenant's hold",
    promise: "P5 Check and write are one act",
    schedule: "The right hold id and token are shown in the wrong namespace",
    must_hold: "refused, and the lease is untouched",
    script: |script| {
        let a = script.actor("A");
        let lease = a.acquires()?;
        let elsewhere = Namespace::new("elsewhere").or_else(|bad| script.broken(&bad.to_string()))?;
        let told = script.drive(script.ours()?.renew_in(elsewhere, "B", &lease));
        script.trace.note("B", "renews A's hold in another namespace");
        script.must(!told.is_renewed(), "a hold means nothing in another namespace")?;
        script.must(a.renews(&lease).is_renewed(), "the lease is untouched")
    },
    ..LEASE_RACE
};
