//! More at once than one step has room for.

use fencehold_contract::job::Report;
use fencehold_core::limits::PAYLOAD_BYTES_MAX;

use super::prelude::*;

/// More than any store sweeps in one go.
const MANY: usize = 600;
/// How long a sweep that needs several goes may take, by the store's clock.
const SWEPT_WITHIN_MS: u64 = 1_000;

pub(super) const R29: Race = Race {
    id: "R29",
    name: "mass expiry",
    promise: "P10 Nothing to clean",
    schedule: "More leases end in one moment than one sweep looks at; A renews its own; B takes one of theirs",
    must_hold: "A and B are answered, and every one of them is over without anybody asking",
    needs: &[MovesTime, OwnClock],
    script: |script| {
        let ours = script.ours()?;
        let (a, b, crowd) = (script.actor("A"), script.actor("B"), script.actor("crowd"));
        let own = a.takes(AcquireTerms { ttl_ms: script.ttl_ms() * 4, ..a.wish() })?;
        let theirs = crowd.takes_others(MANY)?;
        script.passes(script.ttl_ms());
        script.must(a.renews(&own).is_renewed(), "A is answered while others end")?;
        let one = &theirs[MANY / 2];
        let told = b.asks(AcquireTerms { key: one.key.clone(), ..b.wish() });
        script.must(
            matches!(&told, LeaseReply::Granted(new) if new.token > one.token),
            "B gets what has run out, swept or not",
        )?;
        script.passes(SWEPT_WITHIN_MS);
        script.comes("all that have run out are over", || script.drive(ours.held()) == Some(2))?;
        let told = crowd.renews_all(&theirs);
        script
            .must(told.iter().all(|told| told.is_lost_as(LeaseOutcome::Expired)), "each of them learns so")?;
        script.must(script.is_held_by("A"), "A still has its own")
    },
    ..LEASE_RACE
};

/// With a megabyte each: more than one message between processes has room for.
const JOBS: usize = 34;

pub(super) const R45: Race = Race {
    id: "R45",
    name: "answer too large",
    promise: "P10 Nothing to clean",
    schedule: "Jobs whose effects exceed one answer are given back, then claimed together",
    must_hold: "fewer are claimed at a time, each can be read, and none counts as crashed",
    script: |script| {
        let (a, b) = (script.worker("A"), script.worker("B"));
        // Long enough for all that is written and read, also where time passes by itself.
        let ttl_ms = script.ttl_ms() * 20;
        let new: Result<Vec<_>, _> = (0..JOBS).map(|_| a.new_job(script.fresh_job())).collect();
        a.enqueues(new?)?;
        script
            .trace
            .note("A", format!("records a megabyte in each of {JOBS} jobs, and gives them back"));
        let (hold, claimed) = a.claims_up_to(JOBS, ttl_ms)?;
        for job in &claimed {
            let payload = format!("\"{}\"", "x".repeat(PAYLOAD_BYTES_MAX - 2));
            a.records_one(hold, job, payload)?;
            a.reports(hold, std::slice::from_ref(job), &Report::Release {})?;
        }
        let mut done = 0;
        while done < JOBS {
            let (hold, claimed) = b.claims_up_to(JOBS, ttl_ms)?;
            script
                .trace
                .note("B", format!("claims all that there are, and gets {}", claimed.len()));
            script.must(!claimed.is_empty(), "a job that is ready is handed out")?;
            let whole = claimed.iter().all(|job| job.effects.len() == 1 && job.crash_count == 0);
            script.must(whole, "each carries all that was stored, and none counts as crashed")?;
            done += claimed.len();
            b.reports(hold, &claimed, &Report::Complete { result: None })?;
        }
        Ok(())
    },
    ..RACE_OF_JOBS
};
