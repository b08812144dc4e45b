//! Bad input: refused with the field that is wrong, and nothing is done.

use std::num::NonZeroU32;

use super::prelude::*;

fn json_of(bytes: usize) -> Box<str> {
    format!("\"{}\"", "x".repeat(bytes - 2)).into()
}

/// A job that can never be right is refused by its field, however large the rest of the batch.
pub(super) fn a_bad_job_is_refused_by_its_field(g: &Fixture) {
    let with_terms = |terms| NewJob { options: terms, ..g.job_for("q") };
    let day_ms = 24 * 60 * 60 * 1000;
    let month = NonZeroU32::new(31 * day_ms);
    let labels = |count: usize| (0..count).map(|nth| label(&format!("label-{nth}"), "x")).collect();
    let bad = [
        ("id", NewJob { id: JobId::nil(), ..g.job_for("q") }),
        ("payload", NewJob { payload: "{not json".into(), ..g.job_for("q") }),
        ("payload", NewJob { payload: "".into(), ..g.job_for("q") }),
        ("payload", NewJob { payload: "1 2".into(), ..g.job_for("q") }),
        ("payload", NewJob { payload: json_of(PAYLOAD_BYTES_MAX + 1), ..g.job_for("q") }),
        ("max_failures", with_terms(JobOptions { max_failures: 0, ..JobOptions::default() })),
        ("max_failures", with_terms(JobOptions { max_failures: u16::MAX, ..JobOptions::default() })),
        ("max_crashes", with_terms(JobOptions { max_crashes: 0, ..JobOptions::default() })),
        ("time limit", with_terms(JobOptions { attempt_timeout_ms: month, ..JobOptions::default() })),
        ("run_at", NewJob { when: When::At { wall_ms: RUN_AT_WALL_MS_MAX + 1 }, ..g.job_for("q") }),
        ("run_at", NewJob { when: When::At { wall_ms: u64::MAX }, ..g.job_for("q") }),
        ("delay", NewJob { when: When::After { delay_ms: DELAY_MS_MAX + 1 }, ..g.job_for("q") }),
        ("delay", NewJob { when: When::After { delay_ms: u64::MAX }, ..g.job_for("q") }),
        ("window", NewJob { unique: unique("k", 0), ..g.job_for("q") }),
        ("window", NewJob { unique: unique("k", UNIQUE_WINDOW_MS_MAX + 1), ..g.job_for("q") }),
        ("labels", NewJob { labels: labels(LABELS_MAX + 1), ..g.job_for("q") }),
        ("label", NewJob { labels: vec![label("", "x")], ..g.job_for("q") }),
        ("label", NewJob { labels: vec![label("a\nb", "x")], ..g.job_for("q") }),
        ("label", NewJob { labels: vec![label("a", &"x".repeat(10_000))], ..g.job_for("q") }),
        ("label", NewJob { labels: vec![label("a", "1"), label("a", "2")], ..g.job_for("q") }),
        ("trace", NewJob { traceparent: Some("x".repeat(10_000).into()), ..g.job_for("q") }),
        ("yield", NewJob { preempt_within_ms: Some(u64::MAX), ..g.job_for("q") }),
        ("queue", NewJob { queue: QueueName::operations(), ..g.job_for("q") }),
    ];
    for (field, job) in bad {
        match g.enqueue(job.clone()) {
            Err(JobRefusal::BadInput(bad)) => {
                let text = bad.to_string();
                assert!(text.contains(field), "{field}: {text}");
                assert!(text.len() < 1_000, "an error is for people, not a copy of what was sent");
            }
            other => panic!("{field}: {other:?}"),
        }
        assert!(g.find(job.id).is_none());
    }
    assert_eq!(g.count("q", JobState::Queued), 0);
}

/// What is just within its bounds is taken.
pub(super) fn what_is_within_its_bounds_is_taken(g: &Fixture) {
    let payload = json_of(PAYLOAD_BYTES_MAX);
    let id = g.put_with(NewJob {
        payload: payload.clone(),
        options: JobOptions {
            max_failures: 1,
            max_crashes: 1,
            attempt_timeout_ms: NonZeroU32::new(1),
            ..JobOptions::default()
        },
        when: When::At { wall_ms: RUN_AT_WALL_MS_MAX },
        unique: unique("k", UNIQUE_WINDOW_MS_MAX),
        labels: (0..LABELS_MAX).map(|nth| label(&format!("label-{nth}"), "")).collect(),
        ..g.job_for("q")
    });
    let detail = g.detail(id);
    assert_eq!((detail.payload, detail.job.state), (payload, JobState::Scheduled));
    for payload in ["null", "0", "\"\"", "[]", " {} ", "{\"é\":\"\\u0000\"}"] {
        g.put_with(NewJob { payload: payload.into(), ..g.job_for("q") });
    }
}

fn is_bad<T: std::fmt::Debug>(what: &str, answer: Result<T, StoreError>) {
    match answer {
        Err(StoreError::BadInput(_)) => {}
        other => panic!("{what}: {other:?}"),
    }
}

/// A claim that can never be served is refused.
pub(super) fn a_bad_claim_is_refused(g: &Fixture) {
    g.put("q");
    let ask = || g.claim_for("q", "A");
    let many = (0..=QUEUES_PER_CLAIM_MAX).map(|nth| (queue(&format!("q{nth}")), 1)).collect();
    let bad = [
        ("no ttl", ClaimJobsRequest { ttl_ms: 0, ..ask() }),
        ("a ttl too long", ClaimJobsRequest { ttl_ms: TTL_MS_MAX + 1, ..ask() }),
        ("no jobs", ClaimJobsRequest { limit: 0, ..ask() }),
        ("too many jobs", ClaimJobsRequest { limit: JOBS_PER_CALL_MAX + 1, ..ask() }),
        ("no queues", ClaimJobsRequest { queues: Vec::new(), ..ask() }),
        ("too many queues", ClaimJobsRequest { queues: many, ..ask() }),
        ("a queue twice", ClaimJobsRequest { queues: vec![(queue("q"), 1), (queue("q"), 2)], ..ask() }),
        ("a reserved queue", ClaimJobsRequest { queues: vec![(QueueName::operations(), 1)], ..ask() }),
        ("a queue of no weight", ClaimJobsRequest { queues: vec![(queue("q"), 0)], ..ask() }),
        ("a wait too long", ClaimJobsRequest { wait_ms: WAIT_MS_MAX + 1, ..ask() }),
    ];
    for (what, request) in bad {
        is_bad(what, g.claim_raw(request));
    }
    assert_eq!(g.count("q", JobState::Queued), 1);
    let patient = ClaimJobsRequest { waited_before_ms: u64::MAX, ..ask() };
    assert_eq!(g.claim(patient).len(), 1, "odd, but no harm");
}

/// Too many items in one call are refused as a whole, before any is looked at.
pub(super) fn a_batch_over_its_limit_is_refused_as_a_whole(g: &Fixture) {
    let work = g.new_work("q", "A");
    let too_many = JOBS_PER_CALL_MAX + 1;
    is_bad("jobs", g.enqueue_raw((0..too_many).map(|_| g.job_for("q")).collect()));
    let reports = vec![AttemptReport { attempt: work.attempt(), report: Report::Release {} }; too_many];
    is_bad("reports", g.report_raw(reports));
    let store = g.test_store.store();
    is_bad("renewals", g.drive(jobs_of(&*store).renew_attempts(&g.call, vec![work.attempt(); too_many])));
    let action = JobAction::Delete { force: true };
    let on = JobSelector::Ids { job_ids: vec![work.job.id; too_many] };
    is_bad("actions", g.act_raw(ChangeJobsRequest::new(on, action, owner("P"))));
    let all = JobSelector::Filter { filter: JobFilter::default() };
    is_bad("a filter of nothing", g.act_raw(ChangeJobsRequest::new(all, JobAction::Retry, owner("P"))));
    for limit in [0, PAGE_MAX + 1] {
        let request = ListJobsRequest { limit, ..ListJobsRequest::default() };
        is_bad("a page", g.drive(jobs_of(&*store).list_jobs(&g.call, request)));
    }
    assert_eq!((g.state(work.job.id), g.count("q", JobState::Queued)), (JobState::Running, 0));
    assert_eq!(g.enqueue_raw(Vec::new()), Ok(Vec::new()), "nothing is no harm");
}

/// More bytes than one call carries are refused as a whole.
pub(super) fn a_call_of_too_many_bytes_is_refused_as_a_whole(g: &Fixture) {
    let jobs = (0..20).map(|_| NewJob { payload: json_of(PAYLOAD_BYTES_MAX), ..g.job_for("q") });
    is_bad("20 MiB", g.enqueue_raw(jobs.collect()));
    assert_eq!(g.count("q", JobState::Queued), 0);
}

/// A bad word is refused, and its attempt goes on.
pub(super) fn a_bad_word_is_refused_and_the_attempt_goes_on(g: &Fixture) {
    let work = g.new_work("q", "A");
    let fail = |retry_in_ms| Report::Fail { error: String::new(), retry_in_ms, permanent: false };
    let bad = [
        Report::Complete { result: Some("{".into()) },
        Report::Complete { result: Some(json_of(PAYLOAD_BYTES_MAX + 1)) },
        Report::Snooze { delay_ms: DELAY_MS_MAX + 1 },
        Report::Snooze { delay_ms: u64::MAX },
        fail(Some(DELAY_MS_MAX + 1)),
        fail(Some(u64::MAX)),
        Report::Checkpoint { checkpoint: vec![0; CHECKPOINT_BYTES_MAX + 1] },
        Report::Progress { progress: "{".into() },
        Report::Progress { progress: json_of(PROGRESS_BYTES_MAX + 1) },
    ];
    for word in bad {
        let said = format!("{word:?}").chars().take(60).collect::<String>();
        let answer = g.say(&work, word);
        assert!(matches!(answer, Err(JobRefusal::BadInput(_))), "{said}: {answer:?}");
    }
    for value in ["{", "", &json_of(EFFECT_VALUE_BYTES_MAX + 1)] {
        assert_matches!(g.record(&work, "charge", value), Err(JobRefusal::BadInput(_)));
    }
    let detail = g.detail(work.job.id);
    assert_eq!((detail.job.state, detail.effects.len(), detail.progress), (JobState::Running, 0, None));
    g.say(&work, Report::Checkpoint { checkpoint: vec![0; CHECKPOINT_BYTES_MAX] })
        .expect("just within");
    g.complete(&work).expect("a live claim");
}

/// JSON that many parsers cannot read is refused wherever it would be stored; what they just read is taken.
pub(super) fn json_that_is_nested_too_deeply_is_refused(g: &Fixture) {
    let nested = |levels: usize| format!("{}{}", "[".repeat(levels), "]".repeat(levels));
    let (deepest, too_deep) = (nested(JSON_DEPTH_MAX), nested(JSON_DEPTH_MAX + 1));
    let bottomless = nested(50_000);
    serde_json::from_str::<serde_json::Value>(&deepest).expect("JSON that a parser reads");
    let in_a_string = format!("\"\\\"{too_deep}\"");
    for payload in [deepest.as_str(), &in_a_string] {
        g.put_with(NewJob { payload: payload.into(), ..g.job_for("taken") });
    }
    let says_so = |bad: &dyn std::fmt::Display| {
        let text = bad.to_string();
        assert!(text.contains("nested") && text.len() < 1_000, "{text}");
    };
    let work = g.new_work("q", "A");
    g.announce(&work, "open", InDoubtPolicy::Retry).expect("a live claim");
    let store = g.test_store.store();
    let jobs = jobs_of(&*store);
    for deep in [too_deep.as_str(), &bottomless] {
        let undo = Compensation { kind: kind("undo"), queue: None, payload: deep.into() };
        let mut refused = vec![g.enqueue(NewJob { payload: deep.into(), ..g.job_for("q") }).map(drop)];
        refused.push(g.say(&work, Report::Complete { result: Some(deep.into()) }).map(drop));
        refused.push(g.record_with_undo(&work, "charge", undo).map(drop));
        if deep.len() < PROGRESS_BYTES_MAX {
            refused.push(g.say(&work, Report::Progress { progress: deep.into() }).map(drop));
            refused.push(g.record(&work, "charge", deep).map(drop));
        }
        for answer in refused {
            assert_matches!(answer, Err(JobRefusal::BadInput(bad)) => says_so(&bad));
        }
        let begin = BeginOperationRequest { payload: deep.into(), ..super::operation::request(g, "op", "A") };
        let mut refused = vec![g.drive(jobs.begin_operation(&g.call, begin)).map(drop)];
        let spec = ScheduleSpec { payload: deep.into(), ..super::schedule::spec("* * * * *") };
        refused.push(g.drive(jobs.set_schedule(&g.call, spec)).map(drop));
        if deep.len() < EFFECT_VALUE_BYTES_MAX {
            let (job, effect) = (work.job.id, effect("open"));
            let happened = EffectResolution::Happened { value: deep.into() };
            let resolve = ResolveEffectRequest { job_id: job, effect, resolution: happened, by: owner("P") };
            refused.push(g.drive(jobs.resolve_effect(&g.call, resolve)).map(drop));
        }
        for answer in refused {
            assert_matches!(answer, Err(StoreError::BadInput(bad)) => says_so(&bad));
        }
    }
    assert_eq!((g.count("q", JobState::Queued), g.state(work.job.id)), (0, JobState::Running));
}

/// An action on an unknown job says so, and the others go through.
pub(super) fn an_action_on_an_unknown_job_costs_the_others_nothing(g: &Fixture) {
    let (one, two) = (g.put("q"), g.put("q"));
    let nobody = fresh_id().0;
    let on = JobSelector::Ids { job_ids: vec![one, nobody, two] };
    let action = JobAction::Cancel { reason: None, force: false };
    let acted = g.act_raw(ChangeJobsRequest::new(on, action, owner("P"))).expect("an answer");
    let told: Vec<_> = acted.results.into_iter().map(|item| (item.job_id, item.result)).collect();
    let cancelled = Ok(JobState::Cancelled);
    assert_eq!(told, [(one, cancelled.clone()), (nobody, Err(JobRefusal::JobNotFound)), (two, cancelled)]);
}
