//! An operator reports in place of a holder: completing and failing jobs by force.

use super::prelude::*;

fn reason() -> Reason {
    Reason::new("seen in the outbox").expect("a reason")
}

fn force_complete(g: &Fixture, id: JobId) -> Result<JobState, JobRefusal> {
    g.act(id, JobAction::Complete { result: Some("{\"sent\":7}".into()), reason: reason() })
}

fn force_fail(g: &Fixture, id: JobId) -> Result<JobState, JobRefusal> {
    g.act(id, JobAction::Fail { reason: reason() })
}

/// P9: the token is raised first, so whatever the holder still says is stale; who did it and why is kept.
pub(super) fn a_job_that_was_ended_by_force_fences_its_holder_out(g: &Fixture) {
    for (state, end) in
        [(JobState::Completed, force_complete as fn(&Fixture, JobId) -> _), (JobState::Failed, force_fail)]
    {
        let work = g.new_work("q", "A");
        let id = work.job.id;
        assert_eq!(end(g, id), Ok(state));
        let detail = g.detail(id);
        let raised = detail.job.token;
        assert!(raised > work.job.token && detail.job.state == state, "{detail:?}");
        assert_eq!(detail.result.as_deref(), (state == JobState::Completed).then_some("{\"sent\":7}"));
        assert_stale(g.renew_work(&work), work.job.token, raised);
        assert_stale(g.complete(&work), work.job.token, raised);
        assert_stale(g.fail(&work), work.job.token, raised);
        assert_stale(g.record(&work, "charge", "1").map(drop), work.job.token, raised);
        let attempt = only(detail.attempts);
        assert_eq!(attempt.outcome, AttemptOutcome::Revoked);
        let why = attempt.error.expect("who, and why");
        assert_eq!(&*why, format!("{state} by P: seen in the outbox"));
        assert!(g.try_work("q", "B").is_none(), "it is not given out again");
        assert_eq!(end(g, id), Err(JobRefusal::Finished { state }), "the first end stands");
    }
}

/// The work was done, whatever was known of it: a job that waits, failed, or was called off is completed, too.
pub(super) fn a_job_that_no_one_holds_is_completed_by_force(g: &Fixture) {
    let failed = g.new_work("q", "A");
    g.fail_for_good(&failed).expect("a live claim");
    let cancelled = g.put("q");
    g.cancel(cancelled, false).expect("a job that waits");
    let waits = g.put("q");
    for id in [failed.job.id, cancelled, waits] {
        let before = g.detail(id).job.token;
        assert_eq!(force_complete(g, id), Ok(JobState::Completed));
        assert!(g.detail(id).job.token > before, "a token is consumed");
    }
    assert!(g.try_work("q", "B").is_none());
}

/// A holder whose claim ran out may report late while no one else had the job: not after an operator's word.
pub(super) fn no_late_report_changes_what_was_ended_by_force(g: &Fixture) {
    let work = g.new_work("q", "A");
    g.die(&work);
    assert_eq!(force_fail(g, work.job.id), Ok(JobState::Failed));
    assert_stale(g.complete(&work), work.job.token, g.detail(work.job.id).job.token);
}

/// What has ended is not failed by force, and what is being undone is not completed.
pub(super) fn what_has_ended_is_not_failed_by_force(g: &Fixture) {
    let work = g.new_work("q", "A");
    g.complete(&work).expect("a live claim");
    assert_eq!(force_fail(g, work.job.id), Err(JobRefusal::Finished { state: JobState::Completed }));
    let cancelled = g.put("q");
    g.cancel(cancelled, false).expect("a job that waits");
    assert_eq!(force_fail(g, cancelled), Err(JobRefusal::Finished { state: JobState::Cancelled }));
    let undone = g.new_work("q", "A");
    g.record_undoable(&undone, "charge");
    assert_eq!(force_fail(g, undone.job.id), Ok(JobState::Failed));
    assert_eq!(g.work("undo", "U").job.kind.as_str(), "undo-charge", "its effects are undone");
    let refused = force_complete(g, undone.job.id);
    assert!(matches!(refused, Err(JobRefusal::WrongState { .. })), "{refused:?}");
}

/// An open intent of a job that was completed by force stays a finding: what became of the effect is another question.
pub(super) fn an_intent_outlives_a_completion_by_force(g: &Fixture) {
    let work = g.new_work("q", "A");
    g.announce(&work, "charge", InDoubtPolicy::Manual).expect("a live claim");
    assert_eq!(force_complete(g, work.job.id), Ok(JobState::Completed));
    let finding = only(g.findings());
    assert_eq!((finding.job_id, finding.job_state), (work.job.id, JobState::Completed));
}

/// R33, by force: an operator's word and the holder's completion at once have one end, and both learn which.
pub(super) fn force_and_a_completion_at_once_have_one_end(g: &Fixture) {
    for _ in 0..20 {
        let work = g.new_work("q", "A");
        let mut answers = at_once(2, |nth| {
            if nth == 0 { g.complete(&work).map(|answer| answer.state) } else { force_fail(g, work.job.id) }
        })
        .into_iter();
        let (completed, forced) = (answers.next().expect("one"), answers.next().expect("another"));
        match g.state(work.job.id) {
            JobState::Completed => {
                assert_eq!(completed, Ok(JobState::Completed));
                assert_eq!(forced, Err(JobRefusal::Finished { state: JobState::Completed }));
            }
            JobState::Failed => {
                assert_eq!(forced, Ok(JobState::Failed));
                assert!(matches!(completed, Err(JobRefusal::Stale { .. })), "{completed:?}");
            }
            other => panic!("{other}"),
        }
    }
}

/// P9, P10: what was done by force is on record with its name and reason, and so is the attempt that it ended.
pub(super) fn what_was_done_by_force_is_on_record(g: &Fixture) {
    let revoked = |id: JobId, state: JobState| {
        let ended = |fact: &EventData| matches!(fact, EventData::JobAttemptEnded { outcome: AttemptOutcome::Revoked, state: now, .. } if *now == state);
        g.job_facts(id).iter().filter(|fact| ended(fact)).count()
    };
    let (completed, failed, cancelled) = (g.new_work("q", "A"), g.new_work("q", "A"), g.new_work("q", "A"));
    force_complete(g, completed.job.id).expect("a running job");
    force_fail(g, failed.job.id).expect("a running job");
    g.cancel(cancelled.job.id, true).expect("a running job");
    for (work, state) in
        [(&completed, JobState::Completed), (&failed, JobState::Failed), (&cancelled, JobState::Cancelled)]
    {
        assert_eq!(revoked(work.job.id, state), 1, "{state}: {:?}", g.job_facts(work.job.id));
    }
    for (work, state) in [(&completed, JobState::Completed), (&failed, JobState::Failed)] {
        let by_force = EventData::JobEndedByForce { by: owner("P"), reason: reason(), state };
        assert_eq!(g.job_facts(work.job.id).last(), Some(&by_force));
    }
}
