//! Values in which everything is there that can be kept: every state, every ending, every event, what is left out too.

use std::num::{NonZeroU32, NonZeroU64};
use std::time::Duration;

use fencehold_contract::Quota;
use fencehold_contract::job::ScheduleSpec;
use fencehold_core::job::{
    AttemptHistory, AttemptOutcome, CancelRequest, Claim, CompensationState, Due, EffectName, JobId, JobKind,
    JobNotes, JobOptions, JobRecord, JobState, PastAttempt, QueueName, ScheduleName,
};
use fencehold_core::ledger::{Compensation, Effect, EffectState, InDoubtPolicy};
use fencehold_core::retry::{Backoff, RetryPolicy};
use fencehold_core::{
    BlockedAction, Event, EventData, HoldHash, Key, Namespace, Owner, Reason, Task, Timestamp, Token, lease,
};

/// A moment.
pub const AT: Timestamp = Timestamp { store_ms: 5, wall_ms: 1_800_000_000_000 };

fn owner(name: &str) -> Owner {
    Owner::new(name).expect("a name")
}

fn queue(name: &str) -> QueueName {
    QueueName::new(name).expect("a name")
}

fn kind(name: &str) -> JobKind {
    JobKind::new(name).expect("a name")
}

/// A job's id.
pub fn job(nth: u8) -> JobId {
    JobId::from_bytes([nth; 16])
}

/// Records of keys: one that was never held, one that is, with all that can be on record.
pub fn leases() -> [lease::LeaseRecord; 3] {
    let owner = owner("host/7");
    let at = Timestamp { store_ms: 1_000_005, wall_ms: 6 };
    let endings = lease::LeaseOutcome::ALL.iter().zip(1..).map(|(how, nth)| lease::Ending {
        token: Token::new(nth),
        hash: HoldHash::from_bytes([9; 16]),
        owner: owner.clone(),
        task: Task::new("run-1").ok(),
        outcome: *how,
        at,
        by: Some(owner.clone()),
        reason: Reason::new("stuck").ok(),
    });
    let history = lease::HoldHistory { endings: endings.collect(), forgotten_at_ms: Some(1_000_002) };
    let hold = lease::Hold {
        hash: HoldHash::from_bytes([0xa3; 16]),
        owner: owner.clone(),
        task: None,
        ttl_ms: 30_000,
        max_age_ms: NonZeroU64::new(99),
        since: at,
        priority: -4,
        yield_request: Some(Box::new(lease::PendingYield {
            contender: owner.clone(),
            task: None,
            priority: 3,
            yield_at_ms: 1_000_008,
        })),
    };
    let plain = lease::Hold { max_age_ms: None, priority: 0, yield_request: None, ..hold.clone() };
    [
        lease::LeaseRecord::default(),
        lease::LeaseRecord { counter: Token::new(9), hold: Some(plain), history: None },
        lease::LeaseRecord { counter: Token::new(9), hold: Some(hold), history: Some(Box::new(history)) },
    ]
}

/// The same as stores have them that ask no holder to yield.
pub fn leases_without_notice() -> [lease::LeaseRecord; 3] {
    leases().map(|mut record| {
        if let Some(hold) = &mut record.hold {
            hold.yield_request = None;
        }
        record
    })
}

/// The terms of a job, none as usual.
pub fn terms(backoff: Backoff) -> JobOptions {
    JobOptions {
        priority: -3,
        max_failures: 7,
        max_crashes: 2,
        attempt_timeout_ms: NonZeroU32::new(60_000),
        retry: RetryPolicy::new(backoff, Duration::from_millis(250), Duration::from_millis(90_000))
            .jitter_percent(15),
    }
}

/// A claim whose holder was called off and asked to yield.
pub fn claim() -> Claim {
    Claim {
        hash: HoldHash::from_bytes([7; 16]),
        owner: owner("ada"),
        ttl_ms: 30_000,
        since: AT,
        cancel: Some(Box::new(CancelRequest { by: owner("op"), reason: Reason::new("no more").ok() })),
        yield_request: Some(Box::new(lease::PendingYield {
            contender: owner("eve"),
            task: Task::new("run-1").ok(),
            priority: 2,
            yield_at_ms: 70,
        })),
    }
}

/// An attempt that ended in each way.
pub fn trail() -> AttemptHistory {
    let attempt = |how: AttemptOutcome| PastAttempt {
        token: Token::new(8),
        hash: HoldHash::from_bytes([7; 16]),
        owner: owner("ada"),
        since: AT,
        ended: Timestamp { store_ms: 900, ..AT },
        outcome: how,
        error: (how != AttemptOutcome::Completed).then(|| "gone".into()),
    };
    AttemptHistory { attempts: AttemptOutcome::ALL.map(attempt).to_vec(), forgotten: 3 }
}

/// A job in every state, with every way to wait, to be undone and to end.
pub fn jobs() -> Vec<JobRecord> {
    let dues = [Due::Now, Due::Store(9_000), Due::Wall(AT.wall_ms + 60_000)];
    let states = JobState::ALL.iter().enumerate().map(|(nth, state)| JobRecord {
        state: *state,
        due: dues[nth % dues.len()],
        token: Token::new(9),
        failure_count: 4,
        crash_count: 1,
        options: terms(Backoff::ALL[nth % Backoff::ALL.len()]),
        compensation_state: CompensationState::ALL[nth % CompensationState::ALL.len()],
        notes: JobNotes { checkpoint: true, progress: false, result: nth % 2 == 0, effects: 2 },
        since_wall_ms: AT.wall_ms,
        claim: (*state == JobState::Running).then(|| Box::new(claim())),
        trail: (nth > 0).then(|| Box::new(trail())),
    });
    states.collect()
}

/// An effect in every state.
pub fn effects() -> Vec<Effect> {
    let states = [
        EffectState::Intended(InDoubtPolicy::Retry),
        EffectState::Intended(InDoubtPolicy::Manual),
        EffectState::Done,
        EffectState::Compensating,
        EffectState::Compensated,
        EffectState::CompensationFailed,
    ];
    let effect = |(nth, state): (usize, &EffectState)| Effect {
        name: EffectName::new("charge").expect("a name"),
        position: 3,
        token: Token::new(9),
        written_at_ms: AT.wall_ms,
        state: *state,
        value: (nth > 1).then(|| "7".into()),
        compensation: (nth > 2).then(|| {
            let queue = (nth > 3).then(|| queue("money"));
            Box::new(Compensation { kind: kind("refund"), queue, payload: "{}".into() })
        }),
        compensation_job_id: (nth > 3).then(|| job(5)),
    };
    states.iter().enumerate().map(effect).collect()
}

/// A schedule.
pub fn schedule() -> ScheduleSpec {
    ScheduleSpec {
        name: ScheduleName::new("nightly").expect("a name"),
        cron: "30 2 * * *".to_owned(),
        time_zone: "Europe/Berlin".to_owned(),
        queue: queue("reports"),
        kind: kind("daily"),
        payload: "{}".into(),
        options: terms(Backoff::Linear),
        labels: vec![("team".into(), "a".into())],
        by: owner("ada"),
    }
}

/// What was set of the limits of a namespace: nothing, all.
pub fn limits() -> [Quota; 2] {
    let all = Quota {
        max_queues: Some(1),
        max_keys: Some(2),
        max_jobs: Some(3),
        max_bytes: Some(4),
        max_schedules: Some(5),
        max_ttl_ms: Some(6_000),
    };
    [Quota::default(), all]
}

/// An event of every kind, with all that it may leave out and without.
pub fn events() -> Vec<Event> {
    let (token, by) = (Token::new(9), owner("ada"));
    let (task, reason) = (Task::new("run-1").ok(), Reason::new("stuck").ok());
    let mut facts = vec![
        EventData::LeaseAcquired { token, owner: by.clone(), task: task.clone(), ttl_ms: 30_000 },
        EventData::LeaseAcquired { token, owner: by.clone(), task: None, ttl_ms: 30_000 },
    ];
    facts.extend(lease::LeaseOutcome::ALL.map(|how| EventData::LeaseEnded {
        token,
        owner: by.clone(),
        task: task.clone(),
        outcome: how,
        by: (how == lease::LeaseOutcome::Revoked).then(|| owner("op")),
        reason: reason.clone().filter(|_| how == lease::LeaseOutcome::Revoked),
    }));
    let attempts = [
        BlockedAction::Renew,
        BlockedAction::Release,
        BlockedAction::Complete,
        BlockedAction::Fail,
        BlockedAction::Snooze,
        BlockedAction::ReleaseJob,
        BlockedAction::Checkpoint,
        BlockedAction::Progress,
        BlockedAction::BeginEffect,
        BlockedAction::RecordEffect,
    ];
    facts.extend(attempts.map(|attempted| EventData::StaleWriteBlocked {
        token: Token::new(8),
        current_token: token,
        action: attempted,
        outcome: (attempted == BlockedAction::Renew).then_some(lease::LeaseOutcome::Expired),
    }));
    facts.extend([
        EventData::YieldRequested { token, contender: owner("eve"), task, priority: -2, yield_in_ms: 70 },
        EventData::YieldWithdrawn { token },
        EventData::StoreRewound { token: Token::new(77), current_token: token },
        EventData::KeyCollected { token },
        EventData::RowUnreadable { message: "the record is damaged".to_owned() },
    ]);
    facts.extend(JobState::ALL.map(|state| EventData::JobEnqueued {
        queue: queue("mail"),
        kind: kind("send"),
        state,
    }));
    facts.push(EventData::JobClaimed { token, owner: by.clone(), attempt: 2 });
    facts.extend(AttemptOutcome::ALL.map(|how| EventData::JobAttemptEnded {
        token,
        owner: by.clone(),
        outcome: how,
        state: JobState::Scheduled,
        retry_in_ms: (how == AttemptOutcome::Failed).then_some(250),
    }));
    facts.extend([
        EventData::JobCancelRequested { token, by: by.clone(), reason: reason.clone() },
        EventData::JobCancelled { by: by.clone(), reason: None },
        EventData::JobRetried { by: by.clone(), state: JobState::Failed },
        EventData::JobDeleted { by: by.clone(), state: JobState::Running, forced: true },
        EventData::EffectCompensationEnded { effect: "charge".to_owned(), compensated: true },
        EventData::QueueChanged { queue: queue("mail"), mode: "paused".to_owned(), by },
        EventData::ScheduleFired {
            schedule: ScheduleName::new("nightly").expect("a name"),
            due_at_ms: AT.wall_ms,
        },
    ]);
    at_300(facts)
}

/// Events of kinds that came later: the files of those before stay as they are.
pub fn later_events() -> Vec<Event> {
    let reason = Reason::new("seen in the outbox").expect("a reason");
    let by_force = |state| EventData::JobEndedByForce { by: owner("ada"), reason: reason.clone(), state };
    at_300([JobState::Completed, JobState::Failed].map(by_force))
}

fn at_300(facts: impl IntoIterator<Item = EventData>) -> Vec<Event> {
    let (namespace, key) = (Namespace::default(), Key::new("gpu/3").expect("a key"));
    let event = |(seq, fact)| Event::new(seq, AT.wall_ms, namespace.clone(), key.clone(), fact);
    (300..).zip(facts).map(event).collect()
}
