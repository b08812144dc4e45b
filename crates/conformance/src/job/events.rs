//! What happened to jobs, for people, metrics and audit.

use super::prelude::*;

/// A job's events tell its story in order: under the key `job/<id>`, with tokens and names.
pub(super) fn events_tell_a_jobs_story_in_order(g: &Fixture) {
    let a = g.new_work("q", "A");
    let id = a.job.id;
    g.fail(&a).expect("a live claim");
    g.pass(RETRY_MS);
    let b = g.work("q", "B");
    g.say(&b, Report::Release {}).expect("a live claim");
    let c = g.work("q", "C");
    g.complete(&c).expect("a live claim");
    let ended = |work: &super::fixture::ClaimedWork, name: &str, how, state, again_in_ms| {
        EventData::JobAttemptEnded {
            token: work.job.token,
            owner: owner(name),
            outcome: how,
            state,
            retry_in_ms: again_in_ms,
        }
    };
    let claimed = |work: &super::fixture::ClaimedWork, name: &str, attempt| EventData::JobClaimed {
        token: work.job.token,
        owner: owner(name),
        attempt,
    };
    let story = [
        EventData::JobEnqueued { queue: queue("q"), kind: kind("work"), state: JobState::Queued },
        claimed(&a, "A", 1),
        ended(&a, "A", AttemptOutcome::Failed, JobState::Scheduled, Some(RETRY_MS)),
        claimed(&b, "B", 2),
        ended(&b, "B", AttemptOutcome::Released, JobState::Queued, Some(0)),
        claimed(&c, "C", 3),
        ended(&c, "C", AttemptOutcome::Completed, JobState::Completed, None),
    ];
    assert_eq!(g.job_facts(id), story);
}

/// P9: what operators do is on record with their names.
pub(super) fn what_operators_do_is_on_record(g: &Fixture) {
    let work = g.new_work("q", "A");
    let id = work.job.id;
    g.cancel(id, false).expect("a running job");
    g.cancel(id, true).expect("a running job");
    g.retry(id).expect("a job that can start over");
    g.work("q", "A");
    g.delete(id, true).expect("by force");
    let by = || owner("P");
    let told: Vec<String> = g
        .job_facts(id)
        .into_iter()
        .filter_map(|fact| match fact {
            EventData::JobCancelRequested { token, by: who, reason: Some(_) }
                if who == by() && token == work.job.token =>
            {
                Some("cancel requested".to_owned())
            }
            EventData::JobCancelled { by: who, reason: Some(_) } if who == by() => {
                Some("cancelled".to_owned())
            }
            EventData::JobRetried { by: who, state } if who == by() => Some(format!("retried when {state}")),
            EventData::JobDeleted { by: who, state, forced } if who == by() => {
                Some(format!("deleted when {state}, forced: {forced}"))
            }
            _ => None,
        })
        .collect();
    let expected =
        ["cancel requested", "cancelled", "retried when cancelled", "deleted when running, forced: true"];
    assert_eq!(told, expected);
    g.set_queue("q", QueueMode::Paused);
    g.set_queue("q", QueueMode::Paused);
    let changed = EventData::QueueChanged { queue: queue("q"), mode: "paused".to_owned(), by: by() };
    assert_eq!(g.events().into_iter().filter(|event| event.data == changed).count(), 1, "once");
}

/// A crash is on record, and so is the alarm of a token that was never given.
pub(super) fn crashes_and_alarms_are_on_record(g: &Fixture) {
    let work = g.new_work("q", "A");
    let mut ahead = work.attempt();
    ahead.token = fencehold_core::Token::new(work.job.token.get() + 1_000_000_000);
    g.say_as(ahead, super::fixture::completed())
        .expect_err("a token that was never given");
    g.crash(&work);
    let facts = g.job_facts(work.job.id);
    assert!(facts.iter().any(|fact| matches!(fact, EventData::StoreRewound { .. })), "{facts:?}");
    let crashed = |fact: &&EventData| {
        matches!(fact, EventData::JobAttemptEnded { outcome: AttemptOutcome::Crashed, .. })
    };
    assert_eq!(facts.iter().filter(crashed).count(), 1, "{facts:?}");
}

/// A job that was there already is not told of as if it were new.
pub(super) fn an_enqueue_that_is_repeated_is_told_once(g: &Fixture) {
    let job: NewJob = g.job_for("q");
    let id = g.put_with(job.clone());
    g.enqueue(job).expect("the same job");
    assert_eq!(g.job_facts(id).len(), 1);
}
