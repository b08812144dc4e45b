//! What is held passes to the next one while the last one is not done with it.

use super::prelude::*;

pub(super) const R01: Race = Race {
    id: "R01",
    name: "delete after reclaim",
    promise: "P5 Check and write are one act",
    schedule: "A's release is on its way; the lease expires; B takes the key; the release arrives",
    must_hold: "B's lease is untouched, and A learns that it was superseded",
    naive: Some("read, compare, delete: B's lease is destroyed"),
    script: |script| {
        let (a, b) = (script.actor("A"), script.actor("B"));
        let old = a.acquires()?;
        let release = a.begins(LeaseCall::Release(old.clone()))?;
        script.expires(&old);
        let new = b.acquires()?;
        let told = release.goes_on()?;
        script.must(script.is_held_by("B"), "B's lease is untouched")?;
        script.must(told.is_lost(), "A learns that it lost the lease")?;
        script.must(b.renews(&new).is_renewed(), "B can renew")
    },
    ..LEASE_RACE
};

pub(super) const R02: Race = Race {
    id: "R02",
    name: "double reclaim",
    promise: "P1 One holder",
    schedule: "A lease is over; A and B both set out to take it; both arrive",
    must_hold: "exactly one wins, and the loser sees the winner",
    naive: Some("delete and recreate: both win"),
    script: |script| {
        let dead = script.actor("D").acquires()?;
        script.expires(&dead);
        let (a, b) = (script.actor("A"), script.actor("B"));
        let first = a.begins(LeaseCall::Acquire(a.wish()))?;
        let second = b.begins(LeaseCall::Acquire(b.wish()))?;
        let (first, second) = (first.goes_on()?, second.goes_on()?);
        let winners = [&first, &second].into_iter().filter(|told| told.is_granted()).count();
        script.must(winners == 1, "exactly one of the two is granted the key")?;
        let sees =
            |told: &LeaseReply, winner: &str| matches!(told, LeaseReply::Held { owner } if owner == winner);
        script.must(sees(&first, "B") || sees(&second, "A"), "the loser sees the winner")
    },
    ..LEASE_RACE
};

pub(super) const R05: Race = Race {
    id: "R05",
    name: "stale sweeper",
    promise: "P5 Check and write are one act",
    schedule: "A sweeper stalls with its list; the lease expires and another sweeps; B takes the key; the first \
               goes on",
    must_hold: "B is untouched",
    naive: Some("it acts on its old list"),
    script: |script| {
        let (a, b) = (script.actor("A"), script.actor("B"));
        let lease = a.acquires()?;
        let stalled = script.actor("sweep 1").begins(LeaseCall::Sweep(script.key.clone()))?;
        script.expires(&lease);
        script.actor("sweep 2").does(LeaseCall::Sweep(script.key.clone()));
        let new = b.acquires()?;
        stalled.goes_on()?;
        script.must(script.is_held_by("B"), "the next holder is untouched")?;
        script.must(b.renews(&new).is_renewed(), "B can renew")
    },
    ..LEASE_RACE
};

pub(super) const R06: Race = Race {
    id: "R06",
    name: "complete after takeover",
    promise: "P5 Check and write are one act",
    schedule: "A stalls with its result on the way; the lease expires; B takes over and completes; A's result arrives",
    must_hold: "A's result is refused as stale, B's stands",
    naive: Some("A's result overwrites B's"),
    script: |script| {
        let (a, b) = (script.actor("A"), script.actor("B"));
        let old = a.acquires()?;
        let late = a.begins(LeaseCall::Complete(old.clone(), "by A"))?;
        script.expires(&old);
        let new = b.acquires()?;
        script.must(b.completes(&new, "by B").is_completed(), "the holder completes")?;
        let told = late.goes_on()?;
        let stands = script.resource.look().result;
        script.must(stands == Some((new.token, "by B".to_owned())), "the result of the holder stands")?;
        script.must(told.is_stale(), "the late one learns that it is stale")?;
        a.exits("stale");
        b.exits("success");
        Ok(())
    },
    ..LEASE_RACE
};

pub(super) const R06_JOB: Race = Race {
    id: "R06-job",
    name: "complete after takeover, a job",
    promise: "P5 Check and write are one act",
    schedule: "A stalls with its completion on the way; its claim expires; B claims the job and completes it; A's \
               completion arrives",
    must_hold: "A's is refused as stale, B's stands",
    naive: Some("A's result overwrites B's"),
    script: |script| {
        let (a, b) = (script.worker("A"), script.worker("B"));
        let old = a.claims()?;
        let late = a.begins(JobCall::Complete(old.clone(), "by A"))?;
        script.crashes(&old)?;
        let new = b.claims()?;
        script
            .must(b.completes(&new, "by B").leaves_it(JobState::Completed), "the holder completes the job")?;
        let told = late.goes_on()?;
        script.must(script.job()?.result.as_deref() == Some("by B"), "the result of the holder stands")?;
        script.must(told.is_stale(), "the late one learns that it is stale")?;
        a.exits("stale");
        b.exits("success");
        Ok(())
    },
    ..JOB_RACE
};

pub(super) const R18: Race = Race {
    id: "R18",
    name: "fence unseen",
    promise: "P5 Check and write are one act",
    schedule: "A is paused; B takes the key, raises the fence, and has not written yet; A writes",
    must_hold: "A is refused before B's first write",
    naive: Some("the first write that B's would have stopped is accepted"),
    script: |script| {
        let (a, b) = (script.actor("A"), script.actor("B"));
        let old = a.acquires()?;
        let late = a.begins(LeaseCall::Complete(old.clone(), "by A"))?;
        script.expires(&old);
        let new = b.acquires()?;
        b.raises_the_fence(&new);
        let told = late.goes_on()?;
        script.must(script.resource.look().result.is_none(), "nothing stale was written")?;
        script.must(told.is_stale(), "A learns that it is stale")
    },
    ..LEASE_RACE
};

pub(super) const R28: Race = Race {
    id: "R28",
    name: "two claimers and a sweep",
    promise: "P1 One holder",
    schedule: "A lease is over; a sweep and two claimers come to it in turn, all having set out before",
    must_hold: "one hold and one token",
    naive: Some("the sweep deletes what the first claimer took, and the second takes it too"),
    script: |script| {
        let (a, b, s) = (script.actor("A"), script.actor("B"), script.actor("sweep"));
        let dead = script.actor("D").acquires()?;
        script.expires(&dead);
        let sweep = s.begins(LeaseCall::Sweep(script.key.clone()))?;
        let first = a.begins(LeaseCall::Acquire(a.wish()))?;
        let second = b.begins(LeaseCall::Acquire(b.wish()))?;
        let first = first.goes_on()?;
        sweep.goes_on()?;
        let second = second.goes_on()?;
        script.must(first.is_granted(), "the first claimer gets it")?;
        script.must(second.is_held(), "the second does not")?;
        script.must(script.is_held_by("A"), "the first still holds it")
    },
    ..LEASE_RACE
};

pub(super) const R28_JOB: Race = Race {
    id: "R28-job",
    name: "two claimers and a sweep, a job",
    promise: "P1 One holder",
    schedule: "A claim is over; a sweep and two claimers come to the job in turn, all having set out before",
    must_hold: "one attempt and one token",
    naive: Some("the sweep frees what the first claimer took, and the second takes it too"),
    script: |script| {
        let (a, b, s) = (script.worker("A"), script.worker("B"), script.worker("sweep"));
        let dead = script.worker("D").claims()?;
        script.crashes(&dead)?;
        let sweep = s.begins(JobCall::Sweep)?;
        let first = a.begins(JobCall::Claim(a.wish()))?;
        let second = b.begins(JobCall::Claim(b.wish()))?;
        let first = first.goes_on()?;
        sweep.goes_on()?;
        let second = second.goes_on()?;
        script.must(first.is_claimed(), "the first claimer gets it")?;
        script.must(second == JobReply::Nothing, "the second does not")?;
        script.must(script.job()?.worker.as_deref() == Some("A"), "the first still has it")
    },
    ..JOB_RACE
};
