//! The bytes of every call and every answer on the socket. A change of one raises [`PROTOCOL`](super::frame::PROTOCOL) and adds a
//! file of that number: its lines are what this test prints.

use std::fmt::Write as _;

use fencehold_contract::job::{
    ActOn, ActRequest, Acted, ActedItem, Action, AttemptRef, AttemptView, Began, BeginRequest, Begun,
    ClaimRequest, Claimed, ClaimedJob, Counts, Enqueued, Finding, FindingKind, FindingPage, FindingsRequest,
    JobDetail, JobFilter, JobPage, JobView, JobsRequest, LedgerAct, LedgerAnswer, LedgerEntry, NewJob,
    QueueMode, QueueOrder, QueueView, RenewedJobs, Report, ResolveRequest, RunnerView, ScheduleSpec,
    ScheduleView, UndoOf, Unique, WaitRequest, When, Word,
};
use fencehold_contract::operation::{Answer, Ask, JobAnswer, JobAsk};
use fencehold_contract::{
    AcquireRequest, Acquired, Advanced, EndingView, EventPage, EventsRequest, HoldRef, HolderView, LeasePage,
    LeaseView, Limits, LimitsRequest, LimitsView, ListRequest, NamespaceClosed, Renewed, RevokeRequest,
    RevokedLease, StoreStatus, Used, Which,
};
use fencehold_core::job::{
    EffectName, Ended, JobId, JobRenewal, Kind, Queue, Refusal as JobRefusal, Reported, ScheduleName, State,
    Terms, Undo, UniqueKey,
};
use fencehold_core::lease::{Grant, How, Notice, Renewal, Revoked};
use fencehold_core::ledger::{Effect, EffectState, OnDoubt, UndoWith};
use fencehold_core::{Event, Fact, HoldId, Key, Namespace, Owner, Reason, Refusal, Task, Token};

const GOLDEN: &str = include_str!("../golden/frames.v6.hex");

fn key() -> Key {
    Key::new("reports/daily").unwrap()
}

fn owner() -> Owner {
    Owner::new("ada").unwrap()
}

fn task() -> Option<Task> {
    Task::new("run-42").ok()
}

fn hold() -> HoldId {
    HoldId::from_random([7; 16])
}

fn id() -> JobId {
    JobId::from_random(1_800_000_000_000, [3; 10])
}

fn queue() -> Queue {
    Queue::new("emails").unwrap()
}

fn kind() -> Kind {
    Kind::new("send").unwrap()
}

fn effect_name() -> EffectName {
    EffectName::new("charge").unwrap()
}

fn labels() -> Vec<(Box<str>, Box<str>)> {
    vec![("team".into(), "red".into())]
}

fn hold_ref() -> HoldRef {
    HoldRef { key: key(), hold: hold(), token: Token::new(33) }
}

fn attempt() -> AttemptRef {
    AttemptRef { job: id(), hold: hold(), token: Token::new(34) }
}

fn notice() -> Notice {
    Notice { contender: owner(), task: task(), priority: 2, yield_at_ms: 70 }
}

fn undo() -> UndoWith {
    UndoWith { kind: kind(), queue: Some(queue()), payload: "{}".into() }
}

fn effect() -> Effect {
    Effect {
        name: effect_name(),
        nth: 1,
        token: Token::new(34),
        at_wall_ms: 1_800_000_000_001,
        state: EffectState::Intended(OnDoubt::Ask),
        value: Some("[1]".into()),
        undo: Some(Box::new(undo())),
        undo_job: Some(id()),
    }
}

fn claimed() -> ClaimedJob {
    ClaimedJob {
        id: id(),
        queue: queue(),
        kind: kind(),
        payload: r#"{"to":"x"}"#.into(),
        token: Token::new(34),
        attempt: 2,
        remaining_ms: 30_000,
        terms: Terms::default(),
        failures: 1,
        crashes: 1,
        labels: labels(),
        trace: Some("00-1-2-01".into()),
        checkpoint: Some(vec![1, 2, 3]),
        effects: vec![effect()],
        undo_of: Some(UndoOf { job: id(), effect: effect_name() }),
    }
}

fn detail() -> JobDetail {
    let runner = RunnerView {
        owner: owner(),
        ttl_ms: 30_000,
        remaining_ms: 20_000,
        since_wall_ms: 5,
        age_ms: 6,
        cancel_by: Some(owner()),
        notice: Some(notice()),
    };
    let attempt = AttemptView {
        token: Token::new(33),
        owner: owner(),
        since_wall_ms: 1,
        ended_wall_ms: 2,
        how: Ended::Crashed,
        error: Some("gone".into()),
    };
    let job = JobView {
        id: id(),
        queue: queue(),
        kind: kind(),
        state: State::Running,
        token: Token::new(34),
        terms: Terms::default(),
        attempts: 2,
        failures: 1,
        crashes: 1,
        enqueued_wall_ms: 3,
        since_wall_ms: 4,
        due_in_ms: Some(5),
        runner: Some(runner),
        labels: labels(),
        unique: UniqueKey::new("order-7").ok(),
        undo: Undo::default(),
        undo_of: None,
    };
    JobDetail {
        job,
        payload: "null".into(),
        result: Some("1".into()),
        progress: Some("2".into()),
        checkpoint: Some(vec![9]),
        trace: None,
        attempts: vec![attempt],
        effects: vec![effect()],
    }
}

fn spec() -> ScheduleSpec {
    ScheduleSpec {
        name: ScheduleName::new("nightly").unwrap(),
        cron: "0 3 * * *".to_owned(),
        zone: "UTC".to_owned(),
        queue: queue(),
        kind: kind(),
        payload: "null".into(),
        terms: Terms::default(),
        labels: labels(),
        by: owner(),
    }
}

fn new_job(when: When) -> NewJob {
    NewJob {
        when,
        unique: Some(Unique { key: UniqueKey::new("order-7").unwrap(), window_ms: 60_000 }),
        labels: labels(),
        yield_within_ms: Some(500),
        ..NewJob::new(id(), queue(), kind(), "null")
    }
}

fn lease_asks() -> Vec<Ask> {
    let acquire = AcquireRequest {
        task: task(),
        max_age_ms: Some(90_000),
        wait_ms: 5_000,
        seen_token: Some(Token::new(32)),
        yield_within_ms: Some(700),
        ..AcquireRequest::new(key(), hold(), owner(), 30_000)
    };
    let revoke = |which| Ask::Revoke {
        request: RevokeRequest { which, by: owner(), reason: Reason::new("stuck").unwrap() },
        from: 3,
    };
    let list = ListRequest {
        prefix: Some("reports/".to_owned()),
        owner: Some(owner()),
        task: task(),
        include_free: true,
        cursor: Some(7),
        limit: 100,
    };
    let events = EventsRequest { after: Some(7), prefix: Some("job/".to_owned()), limit: 9, wait_ms: 8 };
    let limits = Limits { queues: Some(1), ttl_ms: Some(60_000), ..Limits::default() };
    vec![
        Ask::Acquire(acquire),
        Ask::Renew(vec![hold_ref()]),
        Ask::Release(vec![hold_ref(), hold_ref()]),
        revoke(Which::Key { key: key(), only_token: Some(Token::new(33)) }),
        revoke(Which::Task(task().unwrap())),
        revoke(Which::Owner(owner())),
        revoke(Which::Prefix("reports/".to_owned())),
        Ask::Get(key()),
        Ask::List(list),
        Ask::Events(events),
        Ask::Advance { by: owner(), lift: 1_000 },
        Ask::Status,
        Ask::KeepFinished { ms: 5 },
        Ask::Limits(LimitsRequest { set: Some(limits), every_namespace: true, by: owner() }),
        Ask::OpenNow { by: owner() },
    ]
}

fn job_asks() -> Vec<JobAsk> {
    let report = |word| Report { attempt: attempt(), word };
    let entry = |act| LedgerEntry { attempt: attempt(), act };
    let filter = JobFilter {
        queue: Some(queue()),
        kind: Some(kind()),
        states: vec![State::Failed],
        labels: labels(),
        owner: Some(owner()),
        payload_contains: Some("x".to_owned()),
    };
    let act = |on, action| JobAsk::Act(ActRequest { on, action, by: owner(), dry_run: true });
    let claim = ClaimRequest {
        queues: vec![(queue(), 2)],
        limit: 10,
        hold: hold(),
        owner: owner(),
        ttl_ms: 30_000,
        wait_ms: 1_000,
        waited_before_ms: 1,
    };
    let begin = BeginRequest {
        id: id(),
        key: UniqueKey::new("order-7").unwrap(),
        payload: "{}".into(),
        hold: hold(),
        owner: owner(),
        ttl_ms: 30_000,
        window_ms: 60_000,
        policy: OnDoubt::Ask,
    };
    let words = vec![
        Word::Complete { result: Some("1".into()) },
        Word::Fail { error: "no".to_owned(), retry_in_ms: Some(5), for_good: true },
        Word::Snooze { for_ms: 9 },
        Word::HandBack,
        Word::Checkpoint { bytes: vec![1] },
        Word::Progress { note: "2".into() },
    ];
    let acts = vec![
        LedgerAct::Begin { effect: effect_name(), policy: OnDoubt::RunAgain },
        LedgerAct::Record { effect: effect_name(), value: "1".into(), undo: Some(undo()) },
        LedgerAct::Withdraw { effect: effect_name() },
    ];
    let matching = ActOn::Matching { filter: filter.clone(), cursor: Some(1), limit: 5 };
    vec![
        JobAsk::Enqueue(vec![
            new_job(When::Now),
            new_job(When::At { wall_ms: 1_800_000_000_000 }),
            new_job(When::After { delay_ms: 700 }),
        ]),
        JobAsk::Claim(claim),
        JobAsk::Renew(vec![attempt()]),
        JobAsk::Report(words.into_iter().map(report).collect()),
        JobAsk::Ledger(acts.into_iter().map(entry).collect()),
        JobAsk::Get(id()),
        JobAsk::WaitFor(WaitRequest { id: id(), wait_ms: 5 }),
        JobAsk::List(JobsRequest { filter, cursor: Some(3), limit: 100 }),
        act(ActOn::Jobs(vec![id()]), Action::Cancel { reason: Reason::new("stuck").ok(), now: true }),
        act(matching, Action::Retry),
        act(ActOn::Jobs(Vec::new()), Action::Delete { force: true }),
        JobAsk::Queues,
        JobAsk::SetQueue(QueueOrder { queue: queue(), mode: QueueMode::Draining, by: owner() }),
        JobAsk::Schedules,
        JobAsk::SetSchedule(Box::new(spec())),
        JobAsk::RemoveSchedule { name: ScheduleName::new("nightly").unwrap(), by: owner() },
        JobAsk::Begin(begin),
        JobAsk::Findings(FindingsRequest { cursor: Some(1), limit: 2 }),
        JobAsk::Resolve(ResolveRequest {
            job: id(),
            effect: effect_name(),
            happened: Some("1".into()),
            by: owner(),
        }),
        JobAsk::RemoveQueue { queue: queue(), by: owner() },
    ]
}

fn lease_answers() -> Vec<Answer> {
    let renewal =
        Renewal { token: Token::new(33), remaining_ms: 30_000, notice: Some(notice()), yield_in_ms: Some(5) };
    let lost = Refusal::Lost {
        token: Token::new(33),
        how: Some(How::Expired),
        by: Some(owner()),
        reason: Reason::new("stuck").ok(),
        current: Token::new(34),
    };
    let revoked = Revoked { token: Token::new(33), consumed: Token::new(34), owner: owner(), task: task() };
    let view = LeaseView {
        key: key(),
        token: Token::new(33),
        holder: Some(HolderView {
            owner: owner(),
            task: task(),
            ttl_ms: 30_000,
            max_age_ms: Some(90_000),
            priority: 1,
            age_ms: 5,
            since_wall_ms: 1_800_000_000_000,
            remaining_ms: 20_000,
            renewed_ms_ago: Some(7),
            notice: Some(notice()),
            yield_in_ms: Some(8),
        }),
        waiters: 2,
        endings: vec![EndingView {
            token: Token::new(32),
            owner: owner(),
            task: task(),
            how: How::Revoked,
            at_wall_ms: 9,
            by: Some(owner()),
            reason: Reason::new("stuck").ok(),
        }],
    };
    let fact = Fact::LeaseEnded {
        token: Token::new(33),
        owner: owner(),
        task: task(),
        how: How::Expired,
        by: None,
        reason: None,
    };
    let status = StoreStatus {
        store: "file:".to_owned(),
        owner_pid: Some(7),
        epoch: Some(3),
        keys: 1,
        held: 2,
        waiters: 3,
        jobs: 4,
        last_event: 5,
        set_aside: 6,
        maintenance: vec!["prune".to_owned()],
        closed_for_ms: 8,
        counts_hidden: true,
    };
    let closed = NamespaceClosed { namespace: Namespace::default(), closed_for_ms: 9 };
    let used = Used { queues: 1, keys: 2, jobs: 3, bytes: 4, schedules: 5 };
    vec![
        Answer::Acquired(Acquired {
            key: key(),
            grant: Grant { token: Token::new(33), remaining_ms: 30_000, resumed: true },
            waited_ms: 5,
        }),
        Answer::Renewed(Renewed { answers: vec![Ok(renewal), Err(lost.clone())], waited_ms: 1 }),
        Answer::Released(vec![Ok(Token::new(33)), Err(lost)]),
        Answer::Revoked { ended: vec![RevokedLease { key: key(), revoked }], next: Some(5) },
        Answer::Lease(Some(view.clone())),
        Answer::Lease(None),
        Answer::Leases(LeasePage { leases: vec![view], next: Some(3) }),
        Answer::Events(EventPage {
            events: vec![Event::new(7, 8, Namespace::default(), key(), fact)],
            next: 8,
        }),
        Answer::Advanced(Advanced { keys: 1, ended: 2, closed_for_ms: 3, namespaces: vec![closed] }),
        Answer::Status(status),
        Answer::KeepsFinished,
        Answer::Opened,
        Answer::Limits(LimitsView { limits: Limits::USUAL, used }),
    ]
}

fn job_answers() -> Vec<JobAnswer> {
    let stale =
        JobRefusal::Stale { token: Token::new(33), how: Some(Ended::Crashed), current: Token::new(34) };
    let renewal = JobRenewal {
        token: Token::new(34),
        remaining_ms: 5,
        cancel_requested: true,
        notice: Some(notice()),
        yield_in_ms: Some(7),
    };
    let finding = Finding {
        what: FindingKind::UndoFailed,
        job: id(),
        queue: queue(),
        kind: kind(),
        state: State::Failed,
        effect: effect_name(),
        effect_state: EffectState::UndoFailed,
        token: Token::new(34),
        at_wall_ms: 5,
        undo_job: Some(id()),
    };
    let view = || QueueView {
        queue: queue(),
        mode: QueueMode::Paused,
        counts: Counts { queued: 1, running: 2, ..Counts::default() },
        claimers: 3,
    };
    let schedule = || ScheduleView { spec: spec(), next_wall_ms: Some(5), last_wall_ms: None };
    let began = |what| JobAnswer::Began(Began { what, waited_ms: 1, resumed: false });
    vec![
        JobAnswer::Enqueued(vec![Ok(Enqueued { id: id(), existed: true }), Err(stale.clone())]),
        JobAnswer::Claimed(Claimed { jobs: vec![claimed()], waited_ms: 5, resumed: true }),
        JobAnswer::Renewed(RenewedJobs { answers: vec![Ok(renewal), Err(stale.clone())], waited_ms: 1 }),
        JobAnswer::Reported(vec![
            Ok(Reported { state: State::Scheduled, again_in_ms: Some(9), late: true }),
            Err(stale.clone()),
        ]),
        JobAnswer::Ledger(vec![
            Ok(LedgerAnswer::Go),
            Ok(LedgerAnswer::Recorded(effect())),
            Ok(LedgerAnswer::InDoubt),
            Ok(LedgerAnswer::Withdrawn),
            Err(stale.clone()),
        ]),
        JobAnswer::Job(Some(Box::new(detail()))),
        JobAnswer::Jobs(JobPage { jobs: vec![detail().job], next: Some(4) }),
        JobAnswer::Acted(Acted {
            items: vec![
                ActedItem { id: id(), outcome: Ok(State::Cancelled) },
                ActedItem { id: id(), outcome: Err(stale.clone()) },
            ],
            next: Some(3),
        }),
        JobAnswer::Queues(vec![view()]),
        JobAnswer::Queue(view()),
        JobAnswer::Schedules(vec![schedule()]),
        JobAnswer::Schedule(Box::new(schedule())),
        JobAnswer::Removed(true),
        began(Begun::New(Box::new(claimed()))),
        began(Begun::InProgress { job: id(), owner: owner(), token: Token::new(34), expires_in_ms: 5 }),
        began(Begun::Done { job: id(), result: Some("1".into()) }),
        began(Begun::Failed { job: id(), state: State::Failed, error: Some("no".into()) }),
        began(Begun::Conflict { job: id() }),
        began(Begun::Indeterminate { job: id() }),
        JobAnswer::Findings(FindingPage { findings: vec![finding], next: Some(1) }),
        JobAnswer::Resolved(Err(stale)),
    ]
}

#[test]
fn every_call_and_every_answer_has_the_bytes_of_its_protocol() {
    let mut written = format!("protocol {}\n", super::frame::PROTOCOL);
    let mut line = |what: &str, bytes: Vec<u8>| {
        write!(written, "{what} ").unwrap();
        for byte in bytes {
            write!(written, "{byte:02x}").unwrap();
        }
        written.push('\n');
    };
    for ask in lease_asks().into_iter().chain(job_asks().into_iter().map(Ask::Job)) {
        let bytes = postcard::to_allocvec(&ask).unwrap();
        let back: Ask = postcard::from_bytes(&bytes).unwrap();
        assert_eq!(format!("{back:?}"), format!("{ask:?}"));
        line("ask", bytes);
    }
    for answer in lease_answers().into_iter().chain(job_answers().into_iter().map(Answer::Job)) {
        let bytes = postcard::to_allocvec(&answer).unwrap();
        let back: Answer = postcard::from_bytes(&bytes).unwrap();
        assert_eq!(format!("{back:?}"), format!("{answer:?}"));
        line("answer", bytes);
    }
    if written != GOLDEN {
        println!("{written}");
    }
    for (nth, (now, golden)) in written.lines().zip(GOLDEN.lines()).enumerate() {
        assert_eq!(now, golden, "line {}: a frame has changed: raise PROTOCOL", nth + 1);
    }
    assert_eq!(written.lines().count(), GOLDEN.lines().count(), "a call or an answer has no golden bytes");
}
