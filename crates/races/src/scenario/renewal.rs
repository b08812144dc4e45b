//! A renewal, and what else happens to the lease meanwhile.

use super::prelude::*;

pub(super) const R03: Race = Race {
    id: "R03",
    name: "renew against sweep",
    promise: "P4 The store's clock decides",
    schedule: "The sweep has L on its list for its deadline; A renews in time; the sweep comes to L",
    must_hold: "L lives",
    naive: Some("the sweep trusts the list that it made"),
    needs: &[MovesTime],
    script: |script| {
        let (a, s) = (script.actor("A"), script.actor("sweep"));
        let lease = a.acquires()?;
        let sweep = s.begins(LeaseCall::Sweep(script.key.clone()))?;
        script.passes(script.ttl_ms() / 2);
        script.must(a.renews(&lease).is_renewed(), "A renews in time")?;
        script.passes(script.ttl_ms() / 2);
        sweep.goes_on()?;
        script.must(script.is_held_by("A"), "a lease that was renewed in time lives")
    },
    ..LEASE_RACE
};

pub(super) const R03_JOB: Race = Race {
    id: "R03-job",
    name: "renew against sweep, a job",
    promise: "P4 The store's clock decides",
    schedule: "The sweep has A's claim on its list for its deadline; A renews in time; the sweep comes to it",
    must_hold: "A's claim lives",
    naive: Some("the sweep trusts the list that it made, and puts a running job back"),
    needs: &[MovesTime],
    script: |script| {
        let (a, s) = (script.worker("A"), script.worker("sweep"));
        let work = a.claims()?;
        let sweep = s.begins(JobCall::Sweep)?;
        script.passes(script.ttl_ms() / 2);
        script.must(a.renews(&work).is_renewed(), "A renews in time")?;
        script.passes(script.ttl_ms() / 2);
        sweep.goes_on()?;
        script.must(script.job()?.worker.as_deref() == Some("A"), "a claim that was renewed in time lives")
    },
    ..JOB_RACE
};

pub(super) const R04: Race = Race {
    id: "R04",
    name: "renew against revoke",
    promise: "P3 Renewal is only renewal",
    schedule: "A's renewal has set out; P revokes; the renewal arrives",
    must_hold: "it is refused: revoked, and the key is free",
    naive: Some("the renewal writes back what it read"),
    script: |script| {
        let (a, p) = (script.actor("A"), script.actor("P"));
        let lease = a.acquires()?;
        let renewal = a.begins(LeaseCall::Renew(lease.clone()))?;
        p.does(LeaseCall::Revoke(script.key.clone()));
        let told = renewal.goes_on()?;
        script.must(script.lease().holder.is_none(), "a revoked lease stays revoked")?;
        script.must(told.is_lost_as(LeaseOutcome::Revoked), "A learns that it was revoked")
    },
    ..LEASE_RACE
};

pub(super) const R08: Race = Race {
    id: "R08",
    name: "steal back",
    promise: "P3 Renewal is only renewal",
    schedule: "A's renewal is delayed; the lease expires and B takes the key; the renewal arrives",
    must_hold: "it is refused, and B still holds the key",
    naive: Some("having been the holder is enough: A retakes"),
    script: |script| {
        let (a, b) = (script.actor("A"), script.actor("B"));
        let old = a.acquires()?;
        let delayed = a.begins(LeaseCall::Renew(old.clone()))?;
        script.expires(&old);
        b.acquires()?;
        let told = delayed.goes_on()?;
        script.must(script.is_held_by("B"), "B still holds the key")?;
        script.must(told.is_lost(), "A learns that it lost the lease")
    },
    ..LEASE_RACE
};

pub(super) const R08_JOB: Race = Race {
    id: "R08-job",
    name: "steal back, a job",
    promise: "P3 Renewal is only renewal",
    schedule: "A's renewal is delayed; its claim expires and B claims the job; the renewal arrives",
    must_hold: "it is refused, and B still has the job",
    naive: Some("having been the worker is enough: A retakes"),
    script: |script| {
        let (a, b) = (script.worker("A"), script.worker("B"));
        let old = a.claims()?;
        let delayed = a.begins(JobCall::Renew(old.clone()))?;
        script.crashes(&old)?;
        b.claims()?;
        let told = delayed.goes_on()?;
        script.must(script.job()?.worker.as_deref() == Some("B"), "B still has the job")?;
        script.must(told.is_stale(), "A learns that it is stale")
    },
    ..JOB_RACE
};

pub(super) const R11: Race = Race {
    id: "R11",
    name: "revoke against a renewal in flight",
    promise: "P9 Force leaves a trace",
    schedule: "A's renewal is in flight; P revokes and B takes the key; the renewal lands",
    must_hold: "it is refused, B holds the key, and a token was consumed by force",
    naive: Some("the lease is revived over B's"),
    script: |script| {
        let (a, b, p) = (script.actor("A"), script.actor("B"), script.actor("P"));
        let old = a.acquires()?;
        let renewal = a.begins(LeaseCall::Renew(old.clone()))?;
        let forced = p.does(LeaseCall::Revoke(script.key.clone()));
        let new = b.acquires()?;
        let told = renewal.goes_on()?;
        script.must(script.is_held_by("B"), "B holds the key")?;
        script.must(told.is_lost(), "A learns that it lost the lease")?;
        let LeaseReply::Revoked { consumed } = forced else {
            return script.broken("force ends the lease");
        };
        script.must(old.token < consumed && consumed < new.token, "force consumed a token of its own")
    },
    ..LEASE_RACE
};

pub(super) const R12: Race = Race {
    id: "R12",
    name: "release against own heartbeat",
    promise: "P3 Renewal is only renewal",
    schedule: "A's heartbeat is on its way; A releases; the heartbeat arrives",
    must_hold: "the lease stays released, and the next one gets the key",
    naive: Some("revived: it is not renewed, and all wait"),
    script: |script| {
        let (a, b) = (script.actor("A"), script.actor("B"));
        let lease = a.acquires()?;
        let heartbeat = a.begins(LeaseCall::Renew(lease.clone()))?;
        script.must(a.releases(&lease).is_released(), "the holder can give it back")?;
        let told = heartbeat.goes_on()?;
        script.must(script.lease().holder.is_none(), "a released lease stays released")?;
        script.must(told.is_lost_as(LeaseOutcome::Released), "the heartbeat learns: released")?;
        b.acquires().map(drop)
    },
    ..LEASE_RACE
};

pub(super) const R12_JOB: Race = Race {
    id: "R12-job",
    name: "release against own heartbeat",
    promise: "P3 Renewal is only renewal",
    schedule: "A releases the job; a renewal that it had sent before arrives",
    must_hold: "the job stays free, and B can have it",
    naive: Some("revived: no worker has it, and all wait"),
    script: |script| {
        let (a, b) = (script.worker("A"), script.worker("B"));
        let work = a.claims()?;
        let heartbeat = a.begins(JobCall::Renew(work.clone()))?;
        a.hands_back(&work);
        let told = heartbeat.goes_on()?;
        script.must(script.job()?.worker.is_none(), "a job that was released stays so")?;
        script.must(matches!(told, JobReply::Over { .. }), "the renewal learns that the attempt is over")?;
        b.claims().map(drop)
    },
    ..JOB_RACE
};
