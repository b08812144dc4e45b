//! Clocks that are set, and terms that differ.

use fencehold_contract::job::{NewJob, When};

use super::prelude::*;

pub(super) const R20: Race = Race {
    id: "R20",
    name: "wall clock + 1 h",
    promise: "P4 The store's clock decides",
    schedule: "The wall clock is set forward by an hour",
    must_hold: "all leases live on",
    needs: &[MovesWall],
    script: |script| {
        let (a, b) = (script.actor("A"), script.actor("B"));
        let lease = a.acquires()?;
        script.sets_the_wall_clock(3_600_000);
        script.must(b.asks(b.wish()).is_held(), "the lease lives on")?;
        script.must(a.renews(&lease).is_renewed(), "its holder can renew")
    },
    ..LEASE_RACE
};

pub(super) const R21: Race = Race {
    id: "R21",
    name: "wall clock − 1 h",
    promise: "P4 The store's clock decides",
    schedule: "The wall clock is set back by an hour; the ttl passes",
    must_hold: "the lease ends on time: nothing is immortal",
    needs: &[MovesWall],
    script: |script| {
        let (a, b) = (script.actor("A"), script.actor("B"));
        let lease = a.acquires()?;
        script.sets_the_wall_clock(-3_600_000);
        script.expires(&lease);
        b.acquires().map(drop)
    },
    ..LEASE_RACE
};

pub(super) const R32: Race = Race {
    id: "R32",
    name: "different ttl",
    promise: "P4 The store's clock decides",
    schedule: "A holds the key with its ttl; B, which has a much shorter ttl configured, asks, and again when that \
               would be over",
    must_hold: "the recorded ttl counts",
    needs: &[MovesTime],
    script: |script| {
        let (a, b) = (script.actor("A"), script.actor("B"));
        let short_ms = script.least_ttl_ms().max(script.ttl_ms() / 10);
        let lease = a.takes(AcquireTerms { ttl_ms: short_ms * 10, ..a.wish() })?;
        let short = || AcquireTerms { ttl_ms: short_ms, ..b.wish() };
        script.must(b.asks(short()).is_held(), "B sees the holder")?;
        script.passes(short_ms * 2);
        script.must(b.asks(short()).is_held(), "no early theft by a shorter ttl")?;
        script.must(a.renews(&lease).is_renewed(), "its holder can renew")
    },
    ..LEASE_RACE
};

const LATER_MS: u64 = 5_000;

pub(super) const R42: Race = Race {
    id: "R42",
    name: "wall clock back over a ready job",
    promise: "P10 Nothing to clean",
    schedule: "A job that waits for a moment becomes ready; the wall clock is set back by an hour; two ask",
    must_hold: "it stays ready, and the job behind it is served too",
    needs: &[MovesTime, MovesWall],
    script: |script| {
        let (a, b) = (script.worker("A"), script.worker("B"));
        let (low, high) = (script.fresh_job(), script.fresh_job());
        a.enqueues(vec![a.new_job(low)?])?;
        let now_ms = a.sees(low)?.map_or(0, |detail| detail.job.enqueued_at_ms);
        a.enqueues(vec![NewJob {
            when: When::At { wall_ms: now_ms + LATER_MS },
            options: JobOptions { priority: 1, ..JobOptions::default() },
            ..a.new_job(high)?
        }])?;
        script.passes(LATER_MS);
        let is_ready = || matches!(a.sees(high), Ok(Some(detail)) if detail.job.state == JobState::Queued);
        script.comes("a job is ready when its moment has come", is_ready)?;
        script.sets_the_wall_clock(-3_600_000);
        script.must(is_ready(), "a job that is ready stays ready")?;
        for (worker, expected, which) in [(a, high, 2), (b, low, 1)] {
            let (_, claimed) = worker.claims_up_to(1, script.ttl_ms())?;
            let given: Vec<JobId> = claimed.iter().map(|job| job.id).collect();
            script.must(given == [expected], "every job of the queue is served, in its order")?;
            script.trace.note(worker.name, format!("gets job {which} of the queue"));
        }
        Ok(())
    },
    ..RACE_OF_JOBS
};

pub(super) const R43: Race = Race {
    id: "R43",
    name: "clock forward while a claim waits",
    promise: "P4 The store's clock decides",
    schedule: "A stands in line; the store's clock steps forward; A gets a job, and never renews",
    must_hold: "A's deadline counts from the answer: A has stopped before B can get the job",
    naive: Some("A counts the step as time in line, and works on while B has the job"),
    needs: &[MovesTime],
    script: |script| {
        let (a, b) = (script.worker("A"), script.worker("B"));
        let waiting = a.waits()?;
        // No time passes for A itself.
        script.steps_forward(script.ttl_ms() * 2);
        script.has_a_job(JobOptions::default())?;
        let JobReply::Claimed(work) = waiting.told()? else {
            return script.broken("one who waits is given the job");
        };
        let stops_after_ms = script.protocols.jobs.relies_for_ms(&work);
        let lasts_ms = script.job()?.remaining_ms;
        script.crashes(&work)?;
        script.must(b.claims()?.token > work.token, "the job goes on without A")?;
        script.must(stops_after_ms <= lasts_ms, "A has stopped before B can get the job")
    },
    ..RACE_OF_JOBS
};
