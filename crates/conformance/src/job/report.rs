//! What a holder says of its job: the first word stands, and the same word again gets the same answer.

use super::prelude::*;

/// A completed job is done, and keeps what it gave.
pub(super) fn a_completed_job_keeps_its_result(g: &Fixture) {
    let work = g.new_work("q", "A");
    let answer = g.complete(&work);
    assert_eq!(answer, Ok(ReportedAttempt { state: JobState::Completed, retry_in_ms: None, late: false }));
    let detail = g.detail(work.job.id);
    assert_eq!(detail.result.as_deref(), Some("{\"sent\":true}"));
    assert_eq!((detail.job.state, detail.job.runner), (JobState::Completed, None));
    assert_eq!(detail.attempts.len(), 1);
    assert_eq!(
        (detail.attempts[0].outcome, detail.attempts[0].owner.as_str()),
        (AttemptOutcome::Completed, "A")
    );
    let silent = g.new_work("q", "A");
    g.say(&silent, Report::Complete { result: None }).expect("a live claim");
    assert_eq!(g.detail(silent.job.id).result, None);
}

/// R15: the same completion arrives twice: the same answer, and the first result stands.
pub(super) fn the_same_completion_twice_gets_the_same_answer(g: &Fixture) {
    let work = g.new_work("q", "A");
    let first = g.complete(&work);
    assert!(first.is_ok());
    assert_eq!(g.complete(&work), first);
    let detail = g.detail(work.job.id);
    assert_eq!((detail.result.as_deref(), detail.attempts.len()), (Some("{\"sent\":true}"), 1));
    assert_eq!(g.count("q", JobState::Completed), 1);
    if g.has(TestCapability::TellsEvents) {
        let ended = |fact: &EventData| matches!(fact, EventData::JobAttemptEnded { .. });
        assert_eq!(g.job_facts(work.job.id).iter().filter(|fact| ended(fact)).count(), 1);
    }
}

/// R15: also in one and the same call.
pub(super) fn the_same_completion_twice_in_one_call_happens_once(g: &Fixture) {
    let work = g.new_work("q", "A");
    let report = AttemptReport { attempt: work.attempt(), report: completed() };
    let answers = g.report_all(vec![report.clone(), report]);
    assert!(answers[0].is_ok());
    assert_eq!(answers[0], answers[1]);
    assert_eq!(g.count("q", JobState::Completed), 1);
}

/// R15: a completion with another result is refused, and the first one stands. How the JSON was written does not matter.
pub(super) fn another_completion_is_a_conflict_that_says_so(g: &Fixture) {
    let say = |work: &ClaimedWork, result: Option<&str>| {
        g.say(work, Report::Complete { result: result.map(Into::into) })
    };
    let is_told = |answer: Result<ReportedAttempt, JobRefusal>, work: &ClaimedWork| match answer {
        Err(refusal @ JobRefusal::Conflict { .. }) => {
            let text = refusal.to_string();
            assert!(text.contains("another result") && text.contains(&work.job.id.to_string()), "{text}");
        }
        other => panic!("{other:?}"),
    };
    let work = g.new_work("q", "A");
    let first = say(&work, Some("{\"sent\":true,\"to\":[1,2]}"));
    assert!(first.is_ok());
    assert_eq!(say(&work, Some(" {\"to\": [1, 2], \"sent\": true}")), first, "the same result");
    for other in [Some("7"), Some("{\"sent\":true,\"to\":[2,1]}"), Some("null"), None] {
        is_told(say(&work, other), &work);
    }
    let detail = g.detail(work.job.id);
    assert_eq!(detail.result.as_deref(), Some("{\"sent\":true,\"to\":[1,2]}"));
    assert_eq!((detail.job.state, detail.attempts.len()), (JobState::Completed, 1));

    let without = g.new_work("q", "A");
    let first = say(&without, None);
    assert!(first.is_ok());
    assert_eq!(say(&without, None), first);
    is_told(say(&without, Some("1")), &without);

    let together = g.new_work("q", "A");
    let says = |result: &str| Report::Complete { result: Some(result.into()) };
    let report = |result| AttemptReport { attempt: together.attempt(), report: says(result) };
    let mut answers = g.report_all(vec![report("1"), report("2"), report("1")]);
    assert_eq!(answers[0], answers[2]);
    is_told(answers.swap_remove(1), &together);
    assert_eq!(g.detail(together.job.id).result.as_deref(), Some("1"));
}

/// R16: the completion's answer is lost, and the client reports a failure: what came first stands.
pub(super) fn a_failure_after_a_completion_changes_nothing(g: &Fixture) {
    let work = g.new_work("q", "A");
    g.complete(&work).expect("a live claim");
    let finished = Err(JobRefusal::Finished { state: JobState::Completed });
    assert_eq!(g.fail(&work), finished);
    assert_eq!(g.fail_for_good(&work), finished);
    assert_eq!(g.say(&work, Report::Release {}), finished);
    assert_eq!(g.say(&work, Report::Snooze { delay_ms: 5 }), finished);
    assert_eq!((g.state(work.job.id), g.counts_of(work.job.id)), (JobState::Completed, (0, 0)));
    assert!(g.try_work("q", "B").is_none(), "nothing is tried again");
}

/// The other way round: a job that was reported as failed is not completed by the same attempt.
pub(super) fn a_completion_after_a_failure_is_refused(g: &Fixture) {
    let work = g.new_work("q", "A");
    g.fail(&work).expect("a live claim");
    assert_over(g.complete(&work), &work, AttemptOutcome::Failed);
    assert_eq!(g.state(work.job.id), JobState::Scheduled);
    assert_eq!(g.detail(work.job.id).result, None);
}

/// A failed job is tried again after its delay, as often as its terms say, and then it has failed for good.
pub(super) fn a_failed_job_is_tried_again_until_its_attempts_are_used_up(g: &Fixture) {
    let id = g.put_with(NewJob { options: terms(), ..g.job_for("q") });
    for failures in 1..=3 {
        let work = g.work("q", "A");
        assert_eq!((work.job.attempt, work.job.failure_count), (u32::from(failures), failures - 1));
        let answer = g.fail(&work).expect("a live claim");
        assert_eq!(g.fail(&work), Ok(answer), "the same word, the same answer");
        assert_eq!(g.counts_of(id), (failures, 0));
        if failures < 3 {
            assert_eq!((answer.state, answer.retry_in_ms), (JobState::Scheduled, Some(RETRY_MS)));
            g.pass(RETRY_MS - 1);
            assert!(g.try_work("q", "A").is_none(), "too early");
            g.pass(1);
        } else {
            assert_eq!((answer.state, answer.retry_in_ms), (JobState::Failed, None));
        }
    }
    g.pass(100 * RETRY_MS);
    assert!(g.try_work("q", "A").is_none());
    let attempts = g.detail(id).attempts;
    let errors: Vec<_> = attempts.iter().map(|attempt| attempt.error.as_deref()).collect();
    assert_eq!(errors, [Some("no route to host"); 3]);
}

/// A holder may say that trying again is useless, or when to.
pub(super) fn a_holder_may_say_when_to_try_again_and_whether(g: &Fixture) {
    let hopeless = g.new_work("q", "A");
    assert_eq!(g.fail_for_good(&hopeless).map(|answer| answer.state), Ok(JobState::Failed));
    let later = g.new_work("q", "A");
    let word = Report::Fail { error: "busy".to_owned(), retry_in_ms: Some(77_000), permanent: false };
    let answer = g.say(&later, word).expect("a live claim");
    assert_eq!((answer.state, answer.retry_in_ms), (JobState::Scheduled, Some(77_000)));
    let at_once = g.new_work("q", "A");
    let word = Report::Fail { error: "busy".to_owned(), retry_in_ms: Some(0), permanent: false };
    g.say(&at_once, word).expect("a live claim");
    assert_eq!(g.work("q", "B").job.id, at_once.job.id);
}

/// An error always gets through: what is too long of it is cut off.
pub(super) fn an_error_that_is_too_long_is_cut_off(g: &Fixture) {
    let work = g.new_work("q", "A");
    let error = "é".repeat(ERROR_BYTES_KEPT);
    g.say(&work, Report::Fail { error: error.clone(), retry_in_ms: None, permanent: true })
        .expect("a live claim");
    let kept = g.detail(work.job.id).attempts[0].error.clone().expect("an error");
    assert!(kept.len() <= ERROR_BYTES_KEPT && error.starts_with(&*kept) && !kept.is_empty());
}

/// A snoozed job comes back when its time has come; it counts as nothing.
pub(super) fn a_snoozed_job_comes_back_and_nothing_is_counted(g: &Fixture) {
    let work = g.new_work("q", "A");
    let answer = g.say(&work, Report::Snooze { delay_ms: 5_000 }).expect("a live claim");
    assert_eq!((answer.state, answer.retry_in_ms), (JobState::Scheduled, Some(5_000)));
    g.pass(4_999);
    assert!(g.try_work("q", "B").is_none());
    g.pass(1);
    let again = g.work("q", "B");
    assert_eq!((again.job.id, again.job.attempt), (work.job.id, 2));
    assert_eq!(g.counts_of(work.job.id), (0, 0));
}

/// A job that is handed back stands where it stood before: ahead of those that came later.
pub(super) fn a_job_that_is_handed_back_stands_at_its_old_place(g: &Fixture) {
    let first = g.new_work("q", "A");
    let put = g.put_many("q", 3);
    let answer = g.say(&first, Report::Release {}).expect("a live claim");
    assert_eq!((answer.state, answer.retry_in_ms), (JobState::Queued, Some(0)));
    assert_eq!(g.say(&first, Report::Release {}), Ok(answer), "the same word, the same answer");
    let works = g.claim(ClaimJobsRequest { limit: 10, ..g.claim_for("q", "B") });
    let order: Vec<_> = works.iter().map(|work| work.job.id).collect();
    assert_eq!(order, [first.job.id, put[0], put[1], put[2]]);
    assert_eq!(g.counts_of(first.job.id), (0, 0));
}

/// P7: the same word again was heard the first time, whatever has become of the job since.
pub(super) fn the_same_word_again_is_heard_after_the_job_has_moved_on(g: &Fixture) {
    let failure =
        Report::Fail { error: "no route to host".to_owned(), retry_in_ms: Some(0), permanent: false };
    for (nth, word) in [failure, Report::Snooze { delay_ms: 0 }, Report::Release {}]
        .into_iter()
        .enumerate()
    {
        let queue = format!("q{nth}");
        let work = g.new_work(&queue, "A");
        g.say(&work, word.clone()).expect("a live claim");
        let next = g.work(&queue, "B");
        let again = g.say(&work, word).expect("the same word again");
        assert_eq!((again.state, again.late), (JobState::Running, false), "{queue}");
        assert_stale(g.say(&work, completed()), work.job.token, next.job.token);
        g.complete(&next).expect("nothing was taken from the next attempt");
        assert_eq!(g.detail(work.job.id).job.failure_count, u16::from(nth == 0));
    }
}

/// A job that is tried again, or was put off, stands where it stood before when its time has come.
pub(super) fn a_job_that_comes_back_stands_at_its_old_place(g: &Fixture) {
    let failed = g.new_work("q", "A");
    let snoozed = g.new_work("q", "A");
    let put = g.put_many("q", 2);
    g.say(&snoozed, Report::Snooze { delay_ms: RETRY_MS }).expect("a live claim");
    g.fail(&failed).expect("a live claim");
    g.pass(RETRY_MS);
    let works = g.claim(ClaimJobsRequest { limit: 10, ..g.claim_for("q", "B") });
    let order: Vec<_> = works.iter().map(|work| work.job.id).collect();
    assert_eq!(order, [failed.job.id, snoozed.job.id, put[0], put[1]]);
}

/// Where one attempt left off, the next one goes on.
pub(super) fn a_checkpoint_reaches_the_next_attempt(g: &Fixture) {
    let work = g.new_work("q", "A");
    for bytes in [b"page 1".to_vec(), b"page 2".to_vec()] {
        g.say(&work, Report::Checkpoint { checkpoint: bytes }).expect("a live claim");
    }
    assert_eq!(g.state(work.job.id), JobState::Running, "a checkpoint ends nothing");
    g.say(&work, Report::Release {}).expect("a live claim");
    let next = g.work("q", "B");
    assert_eq!(next.job.checkpoint.as_deref(), Some(&b"page 2"[..]));
    assert_over_or_stale(&g.say(&work, Report::Checkpoint { checkpoint: b"page 9".to_vec() }));
    assert_eq!(g.detail(work.job.id).checkpoint.as_deref(), Some(&b"page 2"[..]));
}

fn assert_over_or_stale(answer: &Result<ReportedAttempt, JobRefusal>) {
    assert!(matches!(answer, Err(JobRefusal::Over { .. } | JobRefusal::Stale { .. })), "{answer:?}");
}

/// People see how far a job has come.
pub(super) fn progress_is_shown(g: &Fixture) {
    let work = g.new_work("q", "A");
    for note in ["{\"done\":1}", "{\"done\":2}"] {
        g.say(&work, Report::Progress { progress: note.into() }).expect("a live claim");
    }
    assert_eq!(g.detail(work.job.id).progress.as_deref(), Some("{\"done\":2}"));
}

/// Many reports in one call are answered each, in order; a bad one costs the others nothing.
pub(super) fn many_reports_are_answered_each_and_in_order(g: &Fixture) {
    g.put_many("q", 4);
    let works = g.claim(ClaimJobsRequest { limit: 4, ..g.claim_for("q", "A") });
    let says = |nth: usize, word| AttemptReport { attempt: works[nth].attempt(), report: word };
    let nobody = AttemptRef { job_id: fresh_id().0, ..works[0].attempt() };
    let answers = g.report_all(vec![
        says(0, completed()),
        AttemptReport { attempt: nobody, report: completed() },
        says(1, Report::Complete { result: Some("not json".into()) }),
        says(2, failed()),
        says(1, Report::Release {}),
        says(3, Report::Snooze { delay_ms: 1_000 }),
    ]);
    let states = answers.iter();
    let states: Vec<_> = states.map(|answer| answer.as_ref().map(|told| told.state).ok()).collect();
    let expected = [
        Some(JobState::Completed),
        None,
        None,
        Some(JobState::Scheduled),
        Some(JobState::Queued),
        Some(JobState::Scheduled),
    ];
    assert_eq!(states, expected);
    assert_eq!(answers[1], Err(JobRefusal::JobNotFound));
    assert!(matches!(answers[2], Err(JobRefusal::BadInput(_))), "{answers:?}");
}

/// An unknown job, a wrong token, a wrong hold id, a token of another job, a token that was never given: each has its
/// own error, and none changes anything.
pub(super) fn every_wrong_speaker_has_its_own_error(g: &Fixture) {
    let (mine, other) = (g.new_work("q", "A"), g.new_work("q", "B"));
    let as_mine = mine.attempt();
    let say = |attempt: AttemptRef| g.say_as(attempt, completed());

    assert_eq!(say(AttemptRef { job_id: fresh_id().0, ..as_mine.clone() }), Err(JobRefusal::JobNotFound));
    let wrong_hold = JobRefusal::WrongHoldId { token: mine.job.token };
    assert_eq!(say(AttemptRef { hold_id: fresh_hold(), ..as_mine.clone() }), Err(wrong_hold));
    match say(AttemptRef { token: other.job.token, ..as_mine.clone() }) {
        Err(JobRefusal::WrongJob { token, job_id: job }) => {
            assert_eq!(token, other.job.token);
            assert!(job.is_none_or(|job| job == other.job.id), "{job:?}");
        }
        wrong => panic!("{wrong:?}"),
    }
    let shown = Token::new(other.job.token.get() + 1_000_000_000);
    match say(AttemptRef { token: shown, ..as_mine }) {
        Err(JobRefusal::StoreRewound { token: told, .. }) => assert_eq!(told, shown),
        wrong => panic!("{wrong:?}"),
    }
    for work in [&mine, &other] {
        assert_eq!(g.state(work.job.id), JobState::Running);
        g.complete(work).expect("a live claim");
    }
}
