//! Values in which everything is there that can be kept: every state, every ending, every event, what is left out too.

use std::num::{NonZeroU32, NonZeroU64};

use fencehold_contract::Limits;
use fencehold_contract::job::ScheduleSpec;
use fencehold_core::job::{
    Attempt, Cancel, Claim, Due, EffectName, Ended, JobId, Kind, Notes, Queue, Record, ScheduleName, State,
    Terms, Trail, Undo,
};
use fencehold_core::ledger::{Effect, EffectState, OnDoubt, UndoWith};
use fencehold_core::retry::{Backoff, Retry};
use fencehold_core::{
    Attempted, Event, Fact, HoldHash, Key, Namespace, Owner, Reason, Stamp, Task, Token, lease,
};

/// A moment.
pub const AT: Stamp = Stamp { store_ms: 5, wall_ms: 1_800_000_000_000 };

fn owner(name: &str) -> Owner {
    Owner::new(name).expect("a name")
}

fn queue(name: &str) -> Queue {
    Queue::new(name).expect("a name")
}

fn kind(name: &str) -> Kind {
    Kind::new(name).expect("a name")
}

/// A job's id.
pub fn job(nth: u8) -> JobId {
    JobId::from_bytes([nth; 16])
}

/// Records of keys: one that was never held, one that is, with all that can be on record.
pub fn leases() -> [lease::Record; 3] {
    let owner = owner("host/7");
    let at = Stamp { store_ms: 1_000_005, wall_ms: 6 };
    let endings = lease::How::ALL.iter().zip(1..).map(|(how, nth)| lease::Ending {
        token: Token::new(nth),
        hash: HoldHash::from_bytes([9; 16]),
        owner: owner.clone(),
        task: Task::new("run-1").ok(),
        how: *how,
        at,
        by: Some(owner.clone()),
        reason: Reason::new("stuck").ok(),
    });
    let history = lease::History { endings: endings.collect(), forgotten_at_ms: Some(1_000_002) };
    let hold = lease::Hold {
        hash: HoldHash::from_bytes([0xa3; 16]),
        owner: owner.clone(),
        task: None,
        ttl_ms: 30_000,
        max_age_ms: NonZeroU64::new(99),
        since: at,
        priority: -4,
        notice: Some(Box::new(lease::Notice {
            contender: owner.clone(),
            task: None,
            priority: 3,
            yield_at_ms: 1_000_008,
        })),
    };
    let plain = lease::Hold { max_age_ms: None, priority: 0, notice: None, ..hold.clone() };
    [
        lease::Record::default(),
        lease::Record { counter: Token::new(9), hold: Some(plain), history: None },
        lease::Record { counter: Token::new(9), hold: Some(hold), history: Some(Box::new(history)) },
    ]
}

/// The same as stores have them that ask no holder to yield.
pub fn leases_without_notice() -> [lease::Record; 3] {
    leases().map(|mut record| {
        if let Some(hold) = &mut record.hold {
            hold.notice = None;
        }
        record
    })
}

/// The terms of a job, none as usual.
pub fn terms(backoff: Backoff) -> Terms {
    Terms {
        priority: -3,
        max_attempts: 7,
        max_crashes: 2,
        attempt_ms: NonZeroU32::new(60_000),
        retry: Retry::new(backoff, 250, 90_000).jitter_percent(15),
    }
}

/// A claim whose holder was called off and asked to yield.
pub fn claim() -> Claim {
    Claim {
        hash: HoldHash::from_bytes([7; 16]),
        owner: owner("ada"),
        ttl_ms: 30_000,
        since: AT,
        cancel: Some(Box::new(Cancel { by: owner("op"), reason: Reason::new("no more").ok() })),
        notice: Some(Box::new(lease::Notice {
            contender: owner("eve"),
            task: Task::new("run-1").ok(),
            priority: 2,
            yield_at_ms: 70,
        })),
    }
}

/// An attempt that ended in each way.
pub fn trail() -> Trail {
    let attempt = |how: Ended| Attempt {
        token: Token::new(8),
        hash: HoldHash::from_bytes([7; 16]),
        owner: owner("ada"),
        since: AT,
        ended: Stamp { store_ms: 900, ..AT },
        how,
        error: (how != Ended::Completed).then(|| "gone".into()),
    };
    Trail { attempts: Ended::ALL.map(attempt).to_vec(), forgotten: 3 }
}

/// A job in every state, with every way to wait, to be undone and to end.
pub fn jobs() -> Vec<Record> {
    let dues = [Due::Now, Due::Store(9_000), Due::Wall(AT.wall_ms + 60_000)];
    let states = State::ALL.iter().enumerate().map(|(nth, state)| Record {
        state: *state,
        due: dues[nth % dues.len()],
        token: Token::new(9),
        failures: 4,
        crashes: 1,
        terms: terms(Backoff::ALL[nth % Backoff::ALL.len()]),
        undo: Undo::ALL[nth % Undo::ALL.len()],
        notes: Notes { checkpoint: true, progress: false, result: nth % 2 == 0, effects: 2 },
        since_wall_ms: AT.wall_ms,
        claim: (*state == State::Running).then(|| Box::new(claim())),
        trail: (nth > 0).then(|| Box::new(trail())),
    });
    states.collect()
}

/// An effect in every state.
pub fn effects() -> Vec<Effect> {
    let states = [
        EffectState::Intended(OnDoubt::RunAgain),
        EffectState::Intended(OnDoubt::Ask),
        EffectState::Done,
        EffectState::Undoing,
        EffectState::Undone,
        EffectState::UndoFailed,
    ];
    let effect = |(nth, state): (usize, &EffectState)| Effect {
        name: EffectName::new("charge").expect("a name"),
        nth: 3,
        token: Token::new(9),
        at_wall_ms: AT.wall_ms,
        state: *state,
        value: (nth > 1).then(|| "7".into()),
        undo: (nth > 2).then(|| {
            let queue = (nth > 3).then(|| queue("money"));
            Box::new(UndoWith { kind: kind("refund"), queue, payload: "{}".into() })
        }),
        undo_job: (nth > 3).then(|| job(5)),
    };
    states.iter().enumerate().map(effect).collect()
}

/// A schedule.
pub fn schedule() -> ScheduleSpec {
    ScheduleSpec {
        name: ScheduleName::new("nightly").expect("a name"),
        cron: "30 2 * * *".to_owned(),
        zone: "Europe/Berlin".to_owned(),
        queue: queue("reports"),
        kind: kind("daily"),
        payload: "{}".into(),
        terms: terms(Backoff::Linear),
        labels: vec![("team".into(), "a".into())],
        by: owner("ada"),
    }
}

/// What was set of the limits of a namespace: nothing, all.
pub fn limits() -> [Limits; 2] {
    let all = Limits {
        queues: Some(1),
        keys: Some(2),
        jobs: Some(3),
        bytes: Some(4),
        schedules: Some(5),
        ttl_ms: Some(6_000),
    };
    [Limits::default(), all]
}

/// An event of every kind, with all that it may leave out and without.
pub fn events() -> Vec<Event> {
    let (token, by) = (Token::new(9), owner("ada"));
    let (task, reason) = (Task::new("run-1").ok(), Reason::new("stuck").ok());
    let mut facts = vec![
        Fact::LeaseAcquired { token, owner: by.clone(), task: task.clone(), ttl_ms: 30_000 },
        Fact::LeaseAcquired { token, owner: by.clone(), task: None, ttl_ms: 30_000 },
    ];
    facts.extend(lease::How::ALL.map(|how| Fact::LeaseEnded {
        token,
        owner: by.clone(),
        task: task.clone(),
        how,
        by: (how == lease::How::Revoked).then(|| owner("op")),
        reason: reason.clone().filter(|_| how == lease::How::Revoked),
    }));
    let attempts = [
        Attempted::Renew,
        Attempted::Release,
        Attempted::Complete,
        Attempted::Fail,
        Attempted::Snooze,
        Attempted::HandBack,
        Attempted::Checkpoint,
        Attempted::Progress,
        Attempted::Intent,
        Attempted::Outcome,
    ];
    facts.extend(attempts.map(|attempted| Fact::StaleWriteBlocked {
        stale_token: Token::new(8),
        current_token: token,
        attempted,
        how: (attempted == Attempted::Renew).then_some(lease::How::Expired),
    }));
    facts.extend([
        Fact::YieldAsked { token, contender: owner("eve"), task, priority: -2, yield_in_ms: 70 },
        Fact::YieldWithdrawn { token },
        Fact::StoreRewound { shown_token: Token::new(77), current_token: token },
        Fact::KeyCollected { token },
        Fact::RowSetAside { problem: "the record is damaged".to_owned() },
    ]);
    facts.extend(State::ALL.map(|state| Fact::JobEnqueued {
        queue: queue("mail"),
        kind: kind("send"),
        state,
    }));
    facts.push(Fact::JobClaimed { token, owner: by.clone(), attempt: 2 });
    facts.extend(Ended::ALL.map(|how| Fact::JobAttemptEnded {
        token,
        owner: by.clone(),
        how,
        state: State::Scheduled,
        again_in_ms: (how == Ended::Failed).then_some(250),
    }));
    facts.extend([
        Fact::JobCancelRequested { token, by: by.clone(), reason: reason.clone() },
        Fact::JobCancelled { by: by.clone(), reason: None },
        Fact::JobRetried { by: by.clone(), state: State::Failed },
        Fact::JobDeleted { by: by.clone(), state: State::Running, forced: true },
        Fact::EffectUndone { effect: "charge".to_owned(), undone: true },
        Fact::QueueChanged { queue: queue("mail"), mode: "paused".to_owned(), by },
        Fact::ScheduleFired {
            schedule: ScheduleName::new("nightly").expect("a name"),
            due_wall_ms: AT.wall_ms,
        },
    ]);
    let (namespace, key) = (Namespace::default(), Key::new("gpu/3").expect("a key"));
    let event = |(seq, fact)| Event::new(seq, AT.wall_ms, namespace.clone(), key.clone(), fact);
    (300..).zip(facts).map(event).collect()
}
