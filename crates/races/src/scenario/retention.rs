//! What outlives a process, and what is removed in time.

use fencehold_contract::job::{NewJob, Report, Unique};
use fencehold_core::job::UniqueKey;
use fencehold_core::limits::{COLLECT_AFTER_FREE_MS, FINISHED_KEPT_MS};

use super::prelude::*;

pub(super) const R23: Race = Race {
    id: "R23",
    name: "restart with leases in flight",
    promise: "P6 Acknowledged is durable",
    schedule: "A holds the key; the store restarts; B asks; the ttl passes; B asks again",
    must_hold: "B gets nothing early, and the key with a larger token on time",
    needs: &[Restarts],
    script: |script| {
        let (a, b) = (script.actor("A"), script.actor("B"));
        let lease = a.acquires()?;
        script.restarts();
        script.must(b.asks(b.wish()).is_held(), "nothing is free because of a restart")?;
        script.must(a.renews(&lease).is_renewed(), "its holder goes on")?;
        script.expires(&lease);
        let new = b.acquires()?;
        script.must(new.token > lease.token, "tokens grow over a restart")
    },
    ..LEASE_RACE
};

pub(super) const R23_JOB: Race = Race {
    id: "R23-job",
    name: "restart with claims in flight",
    promise: "P6 Acknowledged is durable",
    schedule: "A works on the job; the store restarts; B asks; A's claim expires; B asks again",
    must_hold: "B gets nothing early, and the job under a larger token on time",
    needs: &[Restarts],
    script: |script| {
        let (a, b) = (script.worker("A"), script.worker("B"));
        let old = a.claims()?;
        script.restarts();
        script.must(b.finds_nothing()?, "nothing is free because of a restart")?;
        script.must(a.renews(&old).is_renewed(), "its worker goes on")?;
        script.crashes(&old)?;
        let new = b.claims()?;
        script.must(new.token > old.token, "tokens grow over a restart")
    },
    ..JOB_RACE
};

pub(super) const R24: Race = Race {
    id: "R24",
    name: "backup put back",
    promise: "P2 Tokens only grow",
    schedule: "A shows a token that the store has lost with all it did since its backup; the operator advances; A \
               shows it again; B takes the key",
    must_hold: "A is refused with an alarm, then as fenced out; B's token is larger than A's",
    naive: Some("the token is not checked, and no one notices"),
    needs: &[Advances, MovesTime],
    script: |script| {
        let (a, b) = (script.actor("A"), script.actor("B"));
        let kept = a.acquires()?;
        // To a store that was put back, what it gave since is a token that it has never given.
        let lost = HeldLease { token: kept.token + 7, ..kept };
        script.must(
            matches!(a.renews(&lost), LeaseReply::Rewound { .. }),
            "a token that was never given is an alarm",
        )?;
        script.is_advanced()?;
        let told = a.renews(&lost);
        script.must(
            matches!(told, LeaseReply::Lost { current, .. } if current > lost.token),
            "A is fenced out",
        )?;
        let new = b.acquires()?;
        script.must(new.token > lost.token, "no token comes twice")
    },
    ..LEASE_RACE
};

pub(super) const R36: Race = Race {
    id: "R36",
    name: "collected key",
    promise: "P2 Tokens only grow",
    schedule: "A key is released and stays free for so long that its record is removed; B takes it",
    must_hold: "the token is larger than before",
    needs: &[Collects, MovesTime],
    script: |script| {
        let (a, b) = (script.actor("A"), script.actor("B"));
        let lease = a.acquires()?;
        a.releases(&lease);
        script.passes(COLLECT_AFTER_FREE_MS + 1);
        // A call has waited for the sweep.
        script.actor("sweep").does(LeaseCall::Sweep(script.key.clone()));
        let new = b.acquires()?;
        script.must(new.token > lease.token, "tokens grow over a collected key")
    },
    ..LEASE_RACE
};

const DAY_MS: u64 = 24 * 60 * 60 * 1000;
const DAYS: u64 = 10;
/// A finished job may be there for as long as it is kept and a day more: nothing removes it before the next process comes.
const KEPT_DAYS: u64 = FINISHED_KEPT_MS / DAY_MS + 1;

pub(super) const R47: Race = Race {
    id: "R47",
    name: "owners that live for a second",
    promise: "P10 Nothing to clean",
    schedule: "Every day a process works off one job under the same unique key, and ends after a second",
    must_hold: "each day's job is a new one, and finished jobs are removed when their time is over",
    needs: &[MovesTime, Restarts],
    script: |script| {
        let a = script.worker("A");
        let unique = UniqueKey::new("daily").or_else(|bad| script.broken(&bad.to_string()))?;
        let mut made: Vec<JobId> = Vec::new();
        for _ in 0..DAYS {
            // The one before has ended: time passes with no process on the store.
            script.restarts();
            script.moves_time(DAY_MS);
            let id = script.fresh_job();
            let unique = Some(Unique { key: unique.clone(), window_ms: DAY_MS / 2 });
            let enqueued = a.enqueues(vec![NewJob { unique, ..a.new_job(id)? }])?;
            script.must(enqueued == [id], "a unique key is free when its time is over")?;
            let (hold, claimed) = a.claims_up_to(1, script.ttl_ms())?;
            script.must(claimed.len() == 1, "the job of the day is done")?;
            a.reports(hold, &claimed, &Report::Complete { result: None })?;
            script.trace.note("A", "does the job of the day, and ends");
            script.moves_time(1_000);
            made.push(id);
        }
        let is_kept = |id: &JobId| matches!(a.sees(*id), Ok(Some(_)));
        let over = made.len() - usize::try_from(KEPT_DAYS).unwrap_or(usize::MAX);
        for id in &made[..over] {
            script.comes("a finished job is removed when its time is over", || !is_kept(id))?;
        }
        // The one between them has come to its time just now.
        script.must(made[over + 1..].iter().all(is_kept), "no job is removed before its time is over")
    },
    ..RACE_OF_JOBS
};
