//! Taking jobs: in which order, how many, by whom, and what happens when the answer is lost.

use std::collections::BTreeMap;
use std::sync::Mutex;

use super::prelude::*;

fn ids(works: &[ClaimedWork]) -> Vec<JobId> {
    works.iter().map(|work| work.job.id).collect()
}

/// A claim hands over all that a handler needs, and the job shows who works on it.
pub(super) fn a_claim_hands_over_all_that_a_handler_needs(g: &Fixture) {
    let job = NewJob {
        options: terms(),
        labels: vec![label("tenant", "acme")],
        traceparent: Some("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01".into()),
        ..g.job_for("q")
    };
    let id = g.put_with(job.clone());
    let claimed = g.work("q", "A").job;
    assert_eq!((claimed.id, claimed.queue, claimed.kind), (id, job.queue, job.kind));
    assert_eq!(
        (claimed.payload, claimed.labels, claimed.traceparent),
        (job.payload, job.labels, job.traceparent)
    );
    assert_eq!((claimed.options, claimed.attempt), (job.options, 1));
    assert_eq!((claimed.failure_count, claimed.crash_count, claimed.checkpoint), (0, 0, None));
    assert!(claimed.effects.is_empty() && claimed.compensates.is_none());
    g.assert_ms("a full ttl", claimed.remaining_ms, g.ttl_ms());
    let view = g.detail(id).job;
    assert_eq!((view.state, view.token, view.attempt_count), (JobState::Running, claimed.token, 1));
    let runner = view.runner.expect("an attempt is running");
    assert_eq!((runner.owner.as_str(), runner.ttl_ms), ("A", g.ttl_ms()));
}

/// P2: every attempt has a token of its own, larger than every one before it, of whichever job.
pub(super) fn every_attempt_has_a_token_of_its_own(g: &Fixture) {
    g.put_many("q", 3);
    g.put_many("r", 3);
    let mut newest = Token::NONE;
    for queue_name in ["q", "r", "q", "r", "q", "r"] {
        let work = g.work(queue_name, "A");
        assert!(work.job.token > newest, "{} after {newest}", work.job.token);
        newest = work.job.token;
        if queue_name == "q" {
            g.complete(&work).expect("a live claim");
        }
    }
}

/// Jobs are claimed by priority, and then in the order of their arrival.
pub(super) fn jobs_are_claimed_by_priority_and_then_in_order(g: &Fixture) {
    let ranks = [0, 5, -3, 0, 5];
    let put: Vec<JobId> = ranks
        .iter()
        .map(|priority| {
            g.put_with(NewJob { options: JobOptions { priority: *priority, ..terms() }, ..g.job_for("q") })
        })
        .collect();
    let works = g.claim(ClaimJobsRequest { limit: 10, ..g.claim_for("q", "A") });
    assert_eq!(ids(&works), [put[1], put[4], put[0], put[3], put[2]]);
}

/// A claim takes no more than its limit, and no more than there are.
pub(super) fn a_claim_takes_no_more_than_its_limit(g: &Fixture) {
    let put = g.put_many("q", 5);
    let first = g.claim(ClaimJobsRequest { limit: 3, ..g.claim_for("q", "A") });
    assert_eq!(ids(&first), put[..3]);
    let rest = g.claim(ClaimJobsRequest { limit: 100, ..g.claim_for("q", "B") });
    assert_eq!(ids(&rest), put[3..]);
    assert!(g.try_work("q", "C").is_none());
    assert_eq!((g.count("q", JobState::Queued), g.count("q", JobState::Running)), (0, 5));
}

/// A claim takes from the queues that it names and from no other.
pub(super) fn a_claim_takes_only_from_its_own_queues(g: &Fixture) {
    g.put("other");
    let (q, r) = (g.put("q"), g.put("r"));
    let request = ClaimJobsRequest {
        queues: vec![(queue("q"), 1), (queue("r"), 1)],
        limit: 10,
        ..g.claim_for("q", "A")
    };
    let mut claimed = ids(&g.claim(request));
    claimed.sort_unstable();
    assert_eq!(claimed, [q, r]);
    assert_eq!(g.count("other", JobState::Queued), 1);
}

/// Queues take turns by their weights, in one claim as in many, and none starves.
pub(super) fn queues_take_turns_by_their_weights(g: &Fixture) {
    for limit in [1, 40] {
        let names = [format!("heavy-{limit}"), format!("light-{limit}")];
        for name in &names {
            g.put_many(name, 40);
        }
        let queues = vec![(queue(&names[0]), 3), (queue(&names[1]), 1)];
        let mut heavy = 0;
        for _ in 0..40 / limit {
            let request = ClaimJobsRequest { queues: queues.clone(), limit, ..g.claim_for("q", "A") };
            let works = g.claim(request);
            assert_eq!(works.len(), limit);
            heavy += works.iter().filter(|work| work.job.queue == queues[0].0).count();
        }
        assert!((28..=32).contains(&heavy), "three of four are of the heavy queue, not {heavy} of 40");
    }
}

/// R13: the answer is lost; the same claim again gets the same jobs and tokens, with the time that remains.
pub(super) fn the_same_claim_again_gets_the_same_jobs_with_the_time_that_remains(g: &Fixture) {
    g.put_many("q", 3);
    let request = ClaimJobsRequest { limit: 2, ..g.claim_for("q", "B") };
    let first = g.claim(request.clone());
    assert_eq!(first.len(), 2);
    g.pass_if_it_can(g.ttl_ms() / 3);
    let again = g.claim(request);
    let told = |works: &[ClaimedWork]| -> Vec<_> {
        works
            .iter()
            .map(|work| (work.job.id, work.job.token, work.job.attempt))
            .collect()
    };
    assert_eq!(told(&again), told(&first));
    for work in &again {
        if g.has(TestCapability::MovesTime) {
            g.assert_ms("what remains", work.job.remaining_ms, g.ttl_ms() - g.ttl_ms() / 3);
        }
        g.complete(work).expect("a live claim");
    }
    assert_eq!(g.count("q", JobState::Queued), 1);
}

/// R13: what has come to its end in the meantime is not handed over again, nor anything instead of it.
pub(super) fn the_same_claim_again_gets_only_what_it_still_has(g: &Fixture) {
    g.put_many("q", 3);
    let request = ClaimJobsRequest { limit: 2, ..g.claim_for("q", "B") };
    let first = g.claim(request.clone());
    g.complete(&first[0]).expect("a live claim");
    let again = g.claim(request);
    assert_eq!(ids(&again), [first[1].job.id]);
    assert_eq!(g.count("q", JobState::Queued), 1);
}

/// R13: after all of them have come to their end, it gets nothing, whether they ended by its word or without it.
pub(super) fn the_same_claim_again_after_all_its_jobs_ended_gets_nothing(g: &Fixture) {
    g.put_many("q", 5);
    let request = ClaimJobsRequest { limit: 2, ..g.claim_for("q", "B") };
    for work in g.claim(request.clone()) {
        g.complete(&work).expect("a live claim");
    }
    let waits = ClaimJobsRequest { wait_ms: g.ttl_ms(), ..request.clone() };
    assert!(g.claim(request).is_empty());
    assert!(g.claim(waits).is_empty(), "nor does it stand in line");
    if g.has(TestCapability::MovesTime) {
        let request = g.claim_for("q", "B");
        g.crash(&g.claim(request.clone())[0]);
        assert!(g.claim(request).is_empty());
    }
    assert_eq!(g.count("q", JobState::Queued), 3);
}

/// P7: the same claim is sent again, and its answer is not read: the jobs stay with their holder.
pub(super) fn a_repetition_that_is_not_read_takes_no_claim_away(g: &Fixture) {
    let mut all = Vec::new();
    for _ in 0..20 {
        g.put_many("q", 2);
        let request = ClaimJobsRequest { limit: 2, ..g.claim_for("q", "A") };
        let works = g.claim(request.clone());
        assert_eq!(works.len(), 2);
        let store = g.handle(&request.owner);
        let jobs = jobs_of(&*store);
        g.send_and_go(jobs.claim(&g.call, request), jobs.get_job(&g.call, works[0].job.id));
        for work in &works {
            g.renew_work(work).expect("a live claim");
        }
        all.extend(works);
    }
    for work in all {
        g.complete(&work).expect("a live claim");
    }
}

/// R13: many times at once, it takes its jobs once.
pub(super) fn the_same_claim_many_times_at_once_takes_its_jobs_once(g: &Fixture) {
    for _ in 0..10 {
        let put = g.put_many("q", 4);
        let request = ClaimJobsRequest { limit: 2, ..g.claim_for("q", "B") };
        let answers = at_once(6, |_| g.claim_raw(request.clone()));
        for answer in answers {
            match answer {
                Ok(claimed) => assert_eq!(ids(&works(request.hold_id, claimed)), put[..2]),
                // A later sending took its place.
                Err(StoreError::Unavailable { .. }) => {}
                Err(other) => panic!("{other}"),
            }
        }
        let rest = g.claim(ClaimJobsRequest { limit: 10, ..g.claim_for("q", "A") });
        assert_eq!(ids(&rest), put[2..]);
    }
}

/// What is too much to hand over at once is handed over in part: the rest stays where it is.
pub(super) fn a_claim_of_large_jobs_is_cut_short_and_never_refused(g: &Fixture) {
    const JOBS: usize = 20;
    let payload: Box<str> = format!("\"{}\"", "x".repeat(PAYLOAD_BYTES_MAX - 2)).into();
    let put: Vec<JobId> = (0..JOBS)
        .map(|_| g.put_with(NewJob { payload: payload.clone(), ..g.job_for("q") }))
        .collect();
    let mut claimed = Vec::new();
    while claimed.len() < JOBS {
        let works = g.claim(ClaimJobsRequest { limit: JOBS, ..g.claim_for("q", "B") });
        assert!(!works.is_empty(), "at least one goes through");
        assert!(works.iter().all(|work| work.job.payload == payload));
        claimed.extend(ids(&works));
    }
    assert_eq!(claimed, put);
}

/// R45: what a claim carries is more than payloads. Jobs with much more than fits into one answer are handed out a few at a
/// time; none is lost on the way, and none counts as crashed.
pub(super) fn jobs_that_carry_much_are_claimed_a_few_at_a_time(g: &Fixture) {
    // Together they carry three times as much as one answer may, and more than any request.
    const JOBS: usize = 20;
    let put = g.put_many("q", JOBS);
    let works = g.claim(ClaimJobsRequest { limit: JOBS, ..g.claim_for("q", "A") });
    assert_eq!(works.len(), JOBS);
    for work in &works {
        g.say(work, Report::Checkpoint { checkpoint: vec![7; CHECKPOINT_BYTES_MAX] })
            .expect("a live claim");
        record_large(g, work, "charge").expect("a live claim");
        g.say(work, Report::Release {}).expect("a live claim");
    }
    let mut claimed = Vec::new();
    while claimed.len() < JOBS {
        let works = g.claim(ClaimJobsRequest { limit: JOBS, ..g.claim_for("q", "B") });
        assert!(!works.is_empty(), "at least one goes through");
        // What one answer carries beyond its first job is bounded: over some transports more of it does not get through.
        let carried = (works.len() - 1) * (CHECKPOINT_BYTES_MAX + PAYLOAD_BYTES_MAX);
        assert!(carried <= 8 << 20, "{} jobs in one answer: {carried} bytes beyond the first", works.len());
        for work in &works {
            assert_eq!(work.job.checkpoint.as_ref().map(Vec::len), Some(CHECKPOINT_BYTES_MAX));
            assert_eq!((work.job.effects.len(), work.job.crash_count), (1, 0));
        }
        claimed.extend(ids(&works));
    }
    assert_eq!(claimed, put);
}

fn record_large(g: &Fixture, work: &ClaimedWork, name: &str) -> Result<LedgerResponse, JobRefusal> {
    let payload = format!("\"{}\"", "x".repeat(PAYLOAD_BYTES_MAX - 2)).into();
    g.record_with_undo(work, name, Compensation { kind: kind("undo"), queue: None, payload })
}

/// A job with as much of everything as can be stored: more is refused when it is to be stored, not when it is read.
pub(super) fn the_largest_job_that_can_be_stored_can_be_claimed_and_read(g: &Fixture) {
    let payload: Box<str> = format!("\"{}\"", "x".repeat(PAYLOAD_BYTES_MAX - 2)).into();
    let id = g.put_with(NewJob { payload: payload.clone(), options: terms(), ..g.job_for("q") });
    let work = g.work("q", "A");
    g.say(&work, Report::Checkpoint { checkpoint: vec![7; CHECKPOINT_BYTES_MAX] })
        .expect("a live claim");
    let mut effects = 0;
    let refusal = loop {
        match record_large(g, &work, &format!("effect {effects}")) {
            Ok(_) => effects += 1,
            Err(refusal) => break refusal,
        }
    };
    let text = refusal.to_string();
    assert!(text.contains("bytes of this job's effects") && text.contains("16777216"), "{text}");
    assert_eq!(effects, EFFECTS_BYTES_MAX / PAYLOAD_BYTES_MAX - 1);
    g.record(&work, "effect 0", "2")
        .expect("the first record stands, also where there is no room");
    g.record(&work, "small", "1").expect("what still has room");
    g.say(&work, Report::Release {}).expect("a live claim");
    let work = g.work("q", "B");
    assert_eq!((work.job.id, work.job.effects.len(), work.job.crash_count), (id, effects + 1, 0));
    g.say(&work, Report::Complete { result: Some(payload.clone()) })
        .expect("a live claim");
    let detail = g.detail(id);
    assert_eq!((detail.result, detail.effects.len()), (Some(payload), effects + 1));
}

/// The largest batches go through: every job of them is claimed, renewed and done.
pub(super) fn the_largest_batches_go_through(g: &Fixture) {
    let put = g.put_many("q", JOBS_PER_CALL_MAX);
    let works = g.claim(ClaimJobsRequest { limit: JOBS_PER_CALL_MAX, ..g.claim_for("q", "B") });
    assert_eq!(ids(&works), put);
    let renewed = g.renew_attempts(works.iter().map(ClaimedWork::attempt).collect());
    assert!(renewed.iter().all(Result::is_ok));
    let reports = works
        .iter()
        .map(|work| AttemptReport { attempt: work.attempt(), report: completed() });
    assert!(g.report_all(reports.collect()).iter().all(Result::is_ok));
    assert_eq!(g.count("q", JobState::Completed), JOBS_PER_CALL_MAX as u64);
}

/// R28: many claim one job at once: one row, one token.
pub(super) fn one_job_goes_to_one_of_many(g: &Fixture) {
    for _ in 0..20 {
        let id = g.put("q");
        let claimed = at_once(8, |nth| g.try_work("q", ["A", "B"][nth % 2])).into_iter();
        let claimed: Vec<ClaimedWork> = claimed.flatten().collect();
        assert_eq!(ids(&claimed), [id]);
        assert_eq!(g.detail(id).job.token, claimed[0].job.token);
        g.complete(&claimed[0]).expect("a live claim");
    }
}

/// P1: many jobs pass through many hands, each through one.
pub(super) fn many_jobs_pass_through_many_hands_each_once(g: &Fixture) {
    const JOBS: usize = 200;
    let put = g.put_many("q", JOBS);
    let done: Mutex<BTreeMap<JobId, Token>> = Mutex::new(BTreeMap::new());
    at_once(6, |nth| {
        loop {
            let request = ClaimJobsRequest { limit: 3, ..g.claim_for("q", ["A", "B"][nth % 2]) };
            let works = g.claim(request);
            if works.is_empty() {
                return;
            }
            for work in works {
                g.complete(&work).expect("a live claim");
                let before = done.lock().expect("a lock").insert(work.job.id, work.job.token);
                assert_eq!(before, None, "{} was worked on twice", work.job.id);
            }
        }
    });
    let done = done.into_inner().expect("a lock");
    assert_eq!(done.len(), put.len());
    let mut tokens: Vec<Token> = done.into_values().collect();
    tokens.sort_unstable();
    tokens.dedup();
    assert_eq!(tokens.len(), JOBS, "each attempt has a token of its own");
    assert_eq!(g.count("q", JobState::Completed), JOBS as u64);
}
