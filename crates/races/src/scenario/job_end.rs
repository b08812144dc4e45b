//! How a job and its effects end: done, called off, or for people to look at.

use super::prelude::*;

pub(super) const R17: Race = Race {
    id: "R17",
    name: "crash between effect and record",
    promise: "P8 Effects once",
    schedule: "A announces an effect and has it; it is killed before it can record that; B takes the job up",
    must_hold: "the same idempotency key reaches the downstream; or, where the policy is to ask, the job is \
                in doubt",
    naive: Some("it is done twice, silently"),
    script: |script| {
        let (a, b) = (script.worker("A"), script.worker("B"));
        let old = a.claims()?;
        script.must(
            a.announces(&old, "charge", InDoubtPolicy::Retry) == JobReply::Go,
            "an effect may happen",
        )?;
        a.pays("charge");
        script.must(a.announces(&old, "ship", InDoubtPolicy::Manual) == JobReply::Go, "another may, too")?;
        script.crashes(&old)?;
        let new = b.claims()?;
        script
            .must(b.announces(&new, "charge", InDoubtPolicy::Retry) == JobReply::Go, "B may do it again")?;
        b.pays("charge");
        script.must(script.payments.times_paid() == 1, "the till was paid once")?;
        script.must(b.records(&new, "charge") == JobReply::Recorded, "and that is on record")?;
        script.must(
            b.announces(&new, "ship", InDoubtPolicy::Manual) == JobReply::InDoubt,
            "the doubt is reported",
        )?;
        script.must(script.job()?.state == JobState::InDoubt, "the job waits for a person")
    },
    ..JOB_RACE
};

pub(super) const R31: Race = Race {
    id: "R31",
    name: "poison job",
    promise: "P10 Nothing to clean",
    schedule: "A job kills every holder",
    must_hold: "it is quarantined after max_crashes, and harms no worker after that",
    naive: Some("it loops for ever"),
    script: |script| {
        script.has_a_job(JobOptions { max_crashes: 2, ..JobOptions::default() })?;
        let (a, b, c) = (script.worker("A"), script.worker("B"), script.worker("C"));
        script.crashes(&a.claims()?)?;
        script.claim_runs_out(&b.claims()?)?;
        script.must(c.finds_nothing()?, "no other worker gets what has killed two")?;
        script.must(script.job()?.state == JobState::Quarantined, "the job is kept for people")
    },
    ..RACE_OF_JOBS
};

pub(super) const R33: Race = Race {
    id: "R33",
    name: "cancel against complete",
    promise: "P5 Check and write are one act",
    schedule: "A's completion and P's cancellation set out at once; the cancellation arrives first",
    must_hold: "one terminal state, and both learn which",
    naive: Some("both learn that they won"),
    script: |script| {
        let (a, p) = (script.worker("A"), script.worker("P"));
        let work = a.claims()?;
        let completion = a.begins(JobCall::Complete(work.clone(), "by A"))?;
        let cancellation = p.begins(JobCall::Cancel { now: true })?;
        let cancelled = cancellation.goes_on()?;
        let completed = completion.goes_on()?;
        script.must(cancelled.leaves_it(JobState::Cancelled), "what arrives first is carried out")?;
        script.must(script.job()?.state == JobState::Cancelled, "the first terminal state stands")?;
        script.must(completed.is_stale(), "A learns that it is over")?;
        let again = p.does(JobCall::Cancel { now: true });
        let same = matches!(again, JobReply::Stands { state: JobState::Cancelled, .. });
        script.must(same, "the same word again gets the same answer")
    },
    ..JOB_RACE
};

pub(super) const R40: Race = Race {
    id: "R40",
    name: "cancel in the middle",
    promise: "P8 Effects once",
    schedule: "A has recorded one effect; P cancels; A, which has not heard of it, has another; then it hears of \
               it and releases it",
    must_hold: "every recorded effect is undone once, the last one first, and none before the attempt has ended",
    naive: Some("undone too early, and the second effect stays"),
    script: |script| {
        let (a, p, u) = (script.worker("A"), script.worker("P"), script.worker("undo"));
        let work = a.claims()?;
        a.announces(&work, "charge", InDoubtPolicy::Retry);
        script.must(a.records(&work, "charge") == JobReply::Recorded, "an effect is recorded")?;
        p.does(JobCall::Cancel { now: false });
        script
            .must(u.undoes().is_none() && script.job()?.undone.is_empty(), "nothing is undone too early")?;
        a.announces(&work, "ship", InDoubtPolicy::Retry);
        script.must(a.records(&work, "ship") == JobReply::Recorded, "so is the next")?;
        let told = a.renews(&work);
        script.must(
            told == JobReply::Renewed { cancel_requested: true },
            "A hears of it at its next renewal",
        )?;
        script.must(
            a.hands_back(&work).leaves_it(JobState::Cancelled),
            "the job is cancelled when its attempt ends",
        )?;
        let undone = [u.undoes(), u.undoes(), u.undoes()];
        let expected = [Some("ship".to_owned()), Some("charge".to_owned()), None];
        script.must(undone == expected, "each effect is undone once, the last one first")
    },
    ..JOB_RACE
};
