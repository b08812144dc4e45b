//! The bytes of every call and every answer on the socket. A change of one raises [`PROTOCOL`](super::frame::PROTOCOL) and adds a
//! file of that number: its lines are what this test prints.

use std::fmt::Write as _;

use fencehold_contract::job::{
    AttemptLedgerEntry, AttemptRef, AttemptReport, AttemptView, BeginOperationRequest, BegunOperation,
    ChangeJobBatchResponse, ChangeJobResult, ChangeJobsRequest, ClaimJobsRequest, ClaimedJob, ClaimedJobs,
    CompensatedEffect, EffectPage, EffectResolution, EffectView, EnqueuedJob, FindingKind, JobAction,
    JobCounts, JobDetail, JobFilter, JobPage, JobSelector, JobView, LedgerEntry, LedgerResponse,
    ListEffectsRequest, ListJobsRequest, NewJob, OperationStatus, QueueList, QueueMode, QueueView,
    RenewAttemptBatchResponse, Report, ResolveEffectRequest, RunnerView, ScheduleSpec, ScheduleView,
    SetQueueModeRequest, Unique, WaitRequest, When,
};
use fencehold_contract::operation::{JobRequest, JobResponse, StoreRequest, StoreResponse};
use fencehold_contract::{
    AcquireLeaseRequest, AcquiredLease, AdvancedStore, BlockedWrite, ClosedNamespace, ContentionList,
    EndingView, EventPage, HoldRef, HolderView, KeyContention, LeasePage, LeaseStats, LeaseStatsRequest,
    LeaseStatsStep, LeaseView, ListContentionRequest, ListEventsRequest, ListLeasesRequest, Quota,
    QuotaRequest, QuotaUsage, QuotaView, RecordedBlockedWrite, RefusedAcquire, ReleasedLease,
    RenewLeaseBatchResponse, RevokeLeasesRequest, RevokeTarget, RevokedLease, StoreStatus,
};
use fencehold_core::job::{
    AttemptOutcome, AttemptRenewal, CompensationState, EffectName, JobId, JobKind, JobOptions, JobRefusal,
    JobState, QueueName, ReportedAttempt, ScheduleName, UniqueKey,
};
use fencehold_core::lease::{Grant, LeaseOutcome, LeaseRenewal, Revoked, YieldRequest};
use fencehold_core::ledger::{Compensation, Effect, EffectState, EffectStateKind, InDoubtPolicy};
use fencehold_core::{
    BlockedAction, Event, EventData, HoldId, Key, Namespace, Owner, Reason, Refusal, Task, Token,
};

const GOLDEN: &str = include_str!("../golden/frames.v11.hex");

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

fn queue() -> QueueName {
    QueueName::new("emails").unwrap()
}

fn kind() -> JobKind {
    JobKind::new("send").unwrap()
}

fn effect_name() -> EffectName {
    EffectName::new("charge").unwrap()
}

fn labels() -> Vec<(Box<str>, Box<str>)> {
    vec![("team".into(), "red".into())]
}

fn hold_ref() -> HoldRef {
    HoldRef { key: key(), hold_id: hold(), token: Token::new(33) }
}

fn attempt() -> AttemptRef {
    AttemptRef { job_id: id(), hold_id: hold(), token: Token::new(34) }
}

fn notice() -> YieldRequest {
    YieldRequest { contender: owner(), task: task(), priority: 2, yield_in_ms: 70 }
}

fn undo() -> Compensation {
    Compensation { kind: kind(), queue: Some(queue()), payload: "{}".into() }
}

fn effect() -> Effect {
    Effect {
        name: effect_name(),
        position: 1,
        token: Token::new(34),
        written_at_ms: 1_800_000_000_001,
        state: EffectState::Intended(InDoubtPolicy::Manual),
        value: Some("[1]".into()),
        compensation: Some(Box::new(undo())),
        compensation_job_id: Some(id()),
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
        options: JobOptions::default(),
        failure_count: 1,
        crash_count: 1,
        labels: labels(),
        traceparent: Some("00-1-2-01".into()),
        checkpoint: Some(vec![1, 2, 3]),
        effects: vec![effect()],
        compensates: Some(CompensatedEffect { job_id: id(), effect: effect_name() }),
    }
}

fn detail() -> JobDetail {
    let runner = RunnerView {
        owner: owner(),
        ttl_ms: 30_000,
        remaining_ms: 20_000,
        claimed_at_ms: 5,
        age_ms: 6,
        cancel_requested_by: Some(owner()),
        yield_request: Some(notice()),
    };
    let attempt = AttemptView {
        token: Token::new(33),
        owner: owner(),
        started_at_ms: 1,
        ended_at_ms: 2,
        outcome: AttemptOutcome::Crashed,
        error: Some("gone".into()),
    };
    let job = JobView {
        id: id(),
        queue: queue(),
        kind: kind(),
        state: JobState::Running,
        token: Token::new(34),
        options: JobOptions::default(),
        attempt_count: 2,
        failure_count: 1,
        crash_count: 1,
        enqueued_at_ms: 3,
        state_changed_at_ms: 4,
        due_in_ms: Some(5),
        runner: Some(runner),
        labels: labels(),
        unique_key: UniqueKey::new("order-7").ok(),
        compensation_state: CompensationState::default(),
        compensates: None,
    };
    JobDetail {
        job,
        payload: "null".into(),
        result: Some("1".into()),
        progress: Some("2".into()),
        checkpoint: Some(vec![9]),
        traceparent: None,
        attempts: vec![attempt],
        effects: vec![effect()],
    }
}

fn spec() -> ScheduleSpec {
    ScheduleSpec {
        name: ScheduleName::new("nightly").unwrap(),
        cron: "0 3 * * *".to_owned(),
        time_zone: "UTC".to_owned(),
        queue: queue(),
        kind: kind(),
        payload: "null".into(),
        options: JobOptions::default(),
        labels: labels(),
        by: owner(),
    }
}

fn new_job(when: When) -> NewJob {
    NewJob {
        when,
        unique: Some(Unique { key: UniqueKey::new("order-7").unwrap(), window_ms: 60_000 }),
        labels: labels(),
        preempt_within_ms: Some(500),
        ..NewJob::new(id(), queue(), kind(), "null")
    }
}

fn lease_asks() -> Vec<StoreRequest> {
    let acquire = AcquireLeaseRequest {
        task: task(),
        max_age_ms: Some(90_000),
        wait_ms: 5_000,
        seen_token: Some(Token::new(32)),
        preempt_within_ms: Some(700),
        ..AcquireLeaseRequest::new(key(), hold(), owner(), 30_000)
    };
    let revoke = |which| StoreRequest::Revoke {
        request: RevokeLeasesRequest { target: which, by: owner(), reason: Reason::new("stuck").unwrap() },
        from: 3,
    };
    let list = ListLeasesRequest {
        prefix: Some("reports/".to_owned()),
        owner: Some(owner()),
        task: task(),
        task_prefix: task(),
        include_free: true,
        cursor: Some(7),
        limit: 100,
    };
    let prefix = Some("job/".to_owned());
    let events = ListEventsRequest { cursor: Some(7), prefix, task_prefix: task(), limit: 9, wait_ms: 8 };
    let limits = Quota { max_queues: Some(1), max_ttl_ms: Some(60_000), ..Quota::default() };
    vec![
        StoreRequest::Acquire(acquire),
        StoreRequest::Renew(vec![hold_ref()]),
        StoreRequest::Release(vec![hold_ref(), hold_ref()]),
        revoke(RevokeTarget::Key { key: key(), only_token: Some(Token::new(33)) }),
        revoke(RevokeTarget::Task(task().unwrap())),
        revoke(RevokeTarget::Owner(owner())),
        revoke(RevokeTarget::Prefix("reports/".to_owned())),
        revoke(RevokeTarget::TaskPrefix(task().unwrap())),
        StoreRequest::Get(key()),
        StoreRequest::List(list),
        StoreRequest::Events(events),
        StoreRequest::Advance { by: owner(), increment: 1_000 },
        StoreRequest::Status,
        StoreRequest::KeepFinished { ms: 5 },
        StoreRequest::Quota(QuotaRequest { quota: Some(limits), all_namespaces: true, by: Some(owner()) }),
        StoreRequest::Reopen { by: owner() },
        StoreRequest::Stats(LeaseStatsRequest { since_ms: 3_600_000, step_ms: Some(60_000) }),
        StoreRequest::ReportBlockedWrite(BlockedWrite {
            key: key(),
            token: Token::new(33),
            action: BlockedAction::Write,
        }),
        StoreRequest::Contention(ListContentionRequest { key: Some(key()), prefix: Some("re".to_owned()) }),
    ]
}

fn job_asks() -> Vec<JobRequest> {
    let report = |word| AttemptReport { attempt: attempt(), report: word };
    let entry = |act| AttemptLedgerEntry { attempt: attempt(), entry: act };
    let filter = JobFilter {
        queue: Some(queue()),
        kind: Some(kind()),
        states: vec![JobState::Failed],
        labels: labels(),
        owner: Some(owner()),
        payload_contains: Some("x".to_owned()),
    };
    let change = |selector, action| {
        let by = owner();
        JobRequest::Change(ChangeJobsRequest {
            selector,
            action,
            by,
            dry_run: true,
            cursor: Some(1),
            limit: 5,
        })
    };
    let resolve = |resolution| {
        let (job_id, effect, by) = (id(), effect_name(), owner());
        JobRequest::ResolveEffect(ResolveEffectRequest { job_id, effect, resolution, by })
    };
    let claim = ClaimJobsRequest {
        queues: vec![(queue(), 2)],
        limit: 10,
        hold_id: hold(),
        owner: owner(),
        ttl_ms: 30_000,
        wait_ms: 1_000,
        waited_before_ms: 1,
    };
    let begin = BeginOperationRequest {
        job_id: id(),
        idempotency_key: UniqueKey::new("order-7").unwrap(),
        payload: "{}".into(),
        hold_id: hold(),
        owner: owner(),
        ttl_ms: 30_000,
        idempotency_window_ms: 60_000,
        in_doubt_policy: InDoubtPolicy::Manual,
    };
    let words = vec![
        Report::Complete { result: Some("1".into()) },
        Report::Fail { error: "no".to_owned(), retry_in_ms: Some(5), permanent: true },
        Report::Snooze { delay_ms: 9 },
        Report::Release {},
        Report::Checkpoint { checkpoint: vec![1] },
        Report::Progress { progress: "2".into() },
    ];
    let acts = vec![
        LedgerEntry::Begin { effect: effect_name(), in_doubt_policy: InDoubtPolicy::Retry },
        LedgerEntry::Record { effect: effect_name(), value: "1".into(), compensation: Some(undo()) },
        LedgerEntry::Withdraw { effect: effect_name() },
    ];
    let matching = JobSelector::Filter { filter: filter.clone() };
    vec![
        JobRequest::Enqueue(vec![
            new_job(When::Now),
            new_job(When::At { wall_ms: 1_800_000_000_000 }),
            new_job(When::After { delay_ms: 700 }),
        ]),
        JobRequest::Claim(claim),
        JobRequest::Renew(vec![attempt()]),
        JobRequest::Report(words.into_iter().map(report).collect()),
        JobRequest::WriteEffects(acts.into_iter().map(entry).collect()),
        JobRequest::Get(id()),
        JobRequest::WaitFor(WaitRequest { id: id(), wait_ms: 5 }),
        JobRequest::List(ListJobsRequest { filter, cursor: Some(3), limit: 100 }),
        change(
            JobSelector::Ids { job_ids: vec![id()] },
            JobAction::Cancel { reason: Reason::new("stuck").ok(), force: true },
        ),
        change(matching, JobAction::Retry),
        change(JobSelector::All {}, JobAction::Delete { force: true }),
        change(
            JobSelector::Ids { job_ids: vec![id()] },
            JobAction::Complete { result: Some("1".into()), reason: Reason::new("seen").unwrap() },
        ),
        change(JobSelector::All {}, JobAction::Fail { reason: Reason::new("gone").unwrap() }),
        JobRequest::Queues,
        JobRequest::SetQueueMode(SetQueueModeRequest {
            queue: queue(),
            mode: QueueMode::Draining,
            by: owner(),
        }),
        JobRequest::Schedules,
        JobRequest::SetSchedule(Box::new(spec())),
        JobRequest::DeleteSchedule { name: ScheduleName::new("nightly").unwrap(), by: owner() },
        JobRequest::BeginOperation(begin),
        JobRequest::Effects(ListEffectsRequest { cursor: Some(1), limit: 2 }),
        resolve(EffectResolution::Happened { value: "1".into() }),
        resolve(EffectResolution::DidNotHappen {}),
        JobRequest::DeleteQueue { queue: queue(), by: owner() },
    ]
}

fn contended() -> KeyContention {
    let last_refused = Some(RefusedAcquire { owner: owner(), task: task(), refused_at_ms: 3 });
    KeyContention { key: key(), begins_at_ms: 1, refused_count: 2, last_refused, max_waiter_count: 4 }
}

fn endings() -> LeaseStats {
    LeaseStats {
        begins_at_ms: 1,
        complete: true,
        released_count: 2,
        expired_count: 3,
        revoked_count: 4,
        aged_out_count: 5,
        yielded_count: 6,
        abandoned_count: 7,
        advanced_count: 8,
        event_seq: Some(9),
        steps: vec![LeaseStatsStep {
            begins_at_ms: 1,
            ended_counts: [(LeaseOutcome::Released, 2), (LeaseOutcome::Expired, 3)].into(),
        }],
    }
}

fn lease_answers() -> Vec<StoreResponse> {
    let renewal = LeaseRenewal { token: Token::new(33), remaining_ms: 30_000, yield_request: Some(notice()) };
    let lost = Refusal::Lost {
        token: Token::new(33),
        outcome: Some(LeaseOutcome::Expired),
        by: Some(owner()),
        reason: Reason::new("stuck").ok(),
        current_token: Token::new(34),
    };
    let revoked =
        Revoked { token: Token::new(33), consumed_token: Token::new(34), owner: owner(), task: task() };
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
            acquired_at_ms: 1_800_000_000_000,
            remaining_ms: 20_000,
            renewed_ago_ms: Some(7),
            yield_request: Some(notice()),
        }),
        waiter_count: 2,
        endings: vec![EndingView {
            token: Token::new(32),
            owner: owner(),
            task: task(),
            outcome: LeaseOutcome::Revoked,
            ended_at_ms: 9,
            by: Some(owner()),
            reason: Reason::new("stuck").ok(),
        }],
    };
    let fact = EventData::LeaseEnded {
        token: Token::new(33),
        owner: owner(),
        task: task(),
        outcome: LeaseOutcome::Expired,
        by: None,
        reason: None,
    };
    let status = StoreStatus {
        store: "file:".to_owned(),
        owner_pid: Some(7),
        epoch: Some(3),
        key_count: 1,
        held_count: 2,
        waiter_count: 3,
        job_count: 4,
        newest_event_seq: 5,
        unreadable_row_count: 6,
        maintenance_errors: vec!["prune".to_owned()],
        closed_for_ms: 8,
        counts_hidden: true,
    };
    let closed = ClosedNamespace { namespace: Namespace::default(), closed_for_ms: 9 };
    let used = QuotaUsage { queue_count: 1, key_count: 2, job_count: 3, payload_bytes: 4, schedule_count: 5 };
    vec![
        StoreResponse::Acquired(AcquiredLease {
            key: key(),
            grant: Grant { token: Token::new(33), remaining_ms: 30_000, resumed: true },
            waited_ms: 5,
        }),
        StoreResponse::Renewed(RenewLeaseBatchResponse {
            results: vec![Ok(renewal), Err(lost.clone())],
            waited_ms: 1,
        }),
        StoreResponse::Released(vec![Ok(ReleasedLease { key: key(), token: Token::new(33) }), Err(lost)]),
        StoreResponse::Revoked { ended: vec![RevokedLease { key: key(), revoked }], next: Some(5) },
        StoreResponse::Lease(Some(view.clone())),
        StoreResponse::Lease(None),
        StoreResponse::Leases(LeasePage { leases: vec![view], next_cursor: Some(3) }),
        StoreResponse::Events(EventPage {
            events: vec![Event::new(7, 8, Namespace::default(), key(), fact)],
            next_cursor: 8,
        }),
        StoreResponse::Advanced(AdvancedStore {
            key_count: 1,
            ended_count: 2,
            closed_for_ms: 3,
            namespaces: vec![closed],
        }),
        StoreResponse::Status(status),
        StoreResponse::KeepsFinished,
        StoreResponse::Reopened(()),
        StoreResponse::Quota(QuotaView { quota: Quota::USUAL, usage: used }),
        StoreResponse::Stats(endings()),
        StoreResponse::BlockedWriteRecorded(RecordedBlockedWrite { recorded: true }),
        StoreResponse::Contention(ContentionList { keys: vec![contended()] }),
    ]
}

fn job_answers() -> Vec<JobResponse> {
    let stale = JobRefusal::Stale {
        token: Token::new(33),
        outcome: Some(AttemptOutcome::Crashed),
        current_token: Token::new(34),
    };
    let renewal = AttemptRenewal {
        token: Token::new(34),
        remaining_ms: 5,
        cancel_requested: true,
        yield_request: Some(notice()),
    };
    let finding = EffectView {
        finding: FindingKind::CompensationFailed,
        job_id: id(),
        queue: queue(),
        kind: kind(),
        job_state: JobState::Failed,
        effect: effect_name(),
        effect_state: EffectStateKind::CompensationFailed,
        token: Token::new(34),
        written_at_ms: 5,
        compensation_job_id: Some(id()),
    };
    let view = || QueueView {
        name: queue(),
        mode: QueueMode::Paused,
        job_counts: JobCounts { queued: 1, running: 2, ..JobCounts::default() },
        waiting_claim_count: 3,
    };
    let schedule = || ScheduleView { spec: spec(), next_run_at_ms: Some(5), last_run_at_ms: None };
    let began = |operation| {
        JobResponse::BegunOperation(Ok(BegunOperation { operation, waited_ms: 1, resumed: false }))
    };
    let conflict = JobRefusal::Conflict {
        field: "idempotency_key".to_owned(),
        job_id: id(),
        differs: "payload".to_owned(),
    };
    vec![
        JobResponse::Enqueued(vec![Ok(EnqueuedJob { job_id: id(), existed: true }), Err(stale.clone())]),
        JobResponse::Claimed(ClaimedJobs { jobs: vec![claimed()], waited_ms: 5, resumed: true }),
        JobResponse::Renewed(RenewAttemptBatchResponse {
            results: vec![Ok(renewal), Err(stale.clone())],
            waited_ms: 1,
        }),
        JobResponse::Reported(vec![
            Ok(ReportedAttempt { state: JobState::Scheduled, retry_in_ms: Some(9), late: true }),
            Err(stale.clone()),
        ]),
        JobResponse::WrittenEffects(vec![
            Ok(LedgerResponse::Proceed {}),
            Ok(LedgerResponse::Recorded { recorded_effect: effect() }),
            Ok(LedgerResponse::InDoubt {}),
            Ok(LedgerResponse::Withdrawn {}),
            Err(stale.clone()),
        ]),
        JobResponse::Job(Some(Box::new(detail()))),
        JobResponse::Jobs(JobPage { jobs: vec![detail().job], next_cursor: Some(4) }),
        JobResponse::Changed(ChangeJobBatchResponse {
            results: vec![
                ChangeJobResult { job_id: id(), result: Ok(JobState::Cancelled) },
                ChangeJobResult { job_id: id(), result: Err(stale.clone()) },
            ],
            next_cursor: Some(3),
        }),
        JobResponse::Queues(QueueList { queues: vec![view()], event_seq: Some(3) }),
        JobResponse::Queue(view()),
        JobResponse::Schedules(vec![schedule()]),
        JobResponse::Schedule(Box::new(schedule())),
        JobResponse::Deleted(true),
        began(OperationStatus::Started { job: Box::new(claimed()) }),
        began(OperationStatus::InProgress {
            job_id: id(),
            owner: owner(),
            token: Token::new(34),
            remaining_ms: 5,
        }),
        began(OperationStatus::Completed { job_id: id(), result: Some("1".into()) }),
        began(OperationStatus::Failed { job_id: id(), state: JobState::Failed, error: Some("no".into()) }),
        JobResponse::BegunOperation(Err(conflict)),
        began(OperationStatus::InDoubt { job_id: id() }),
        JobResponse::Effects(EffectPage { effects: vec![finding], next_cursor: Some(1) }),
        JobResponse::ResolvedEffect(Err(stale)),
    ]
}

fn add_line(written: &mut String, what: &str, bytes: &[u8]) {
    write!(written, "{what} ").unwrap();
    for byte in bytes {
        write!(written, "{byte:02x}").unwrap();
    }
    written.push('\n');
}

fn assert_golden(written: &str, golden: &str) {
    if written != golden {
        println!("{written}");
    }
    for (nth, (now, golden)) in written.lines().zip(golden.lines()).enumerate() {
        assert_eq!(now, golden, "line {}: a frame has changed: raise PROTOCOL", nth + 1);
    }
    assert_eq!(written.lines().count(), golden.lines().count(), "something that travels has no golden bytes");
}

#[test]
fn every_call_and_every_answer_has_the_bytes_of_its_protocol() {
    let mut written = format!("protocol {}\n", super::frame::PROTOCOL);
    let mut line = |what: &str, bytes: Vec<u8>| add_line(&mut written, what, &bytes);
    for ask in lease_asks().into_iter().chain(job_asks().into_iter().map(StoreRequest::Job)) {
        let bytes = postcard::to_allocvec(&ask).unwrap();
        let back: StoreRequest = postcard::from_bytes(&bytes).unwrap();
        assert_eq!(format!("{back:?}"), format!("{ask:?}"));
        line("ask", bytes);
    }
    for answer in lease_answers()
        .into_iter()
        .chain(job_answers().into_iter().map(StoreResponse::Job))
    {
        let bytes = postcard::to_allocvec(&answer).unwrap();
        let back: StoreResponse = postcard::from_bytes(&bytes).unwrap();
        assert_eq!(format!("{back:?}"), format!("{answer:?}"));
        line("answer", bytes);
    }
    assert_golden(&written, GOLDEN);
}

/// What is read out of the types themselves, so that no variant is missed.
#[cfg(feature = "gates")]
mod parts {
    use std::collections::BTreeSet;

    use fencehold_contract::StoreError;
    use serde::Serialize;
    use serde::de::DeserializeOwned;

    use super::super::frame::{FromOwner, PROTOCOL, ToOwner};
    use super::super::hostile_client::{least, variants};
    use super::*;

    const PARTS: &str = include_str!("../golden/frame-parts.v11.hex");

    /// The least value of each variant.
    fn add_each<T: Serialize + DeserializeOwned>(written: &mut String, what: &str) {
        for (name, at) in variants::<T>().iter().zip(0..) {
            let made: T = least(&[at]).unwrap();
            let bytes = postcard::to_allocvec(&made).unwrap();
            let back: T = postcard::from_bytes(&bytes).unwrap();
            assert_eq!(postcard::to_allocvec(&back).unwrap(), bytes, "{what} {name}");
            add_line(written, what, &bytes);
        }
    }

    #[test]
    fn every_envelope_error_refusal_and_fact_has_the_bytes_of_its_protocol() {
        let mut written = format!("protocol {PROTOCOL}\n");
        add_each::<ToOwner>(&mut written, "to-owner");
        add_each::<FromOwner>(&mut written, "from-owner");
        add_each::<StoreError>(&mut written, "error");
        add_each::<Refusal>(&mut written, "refusal");
        add_each::<JobRefusal>(&mut written, "job-refusal");
        add_each::<EventData>(&mut written, "fact");
        assert_golden(&written, PARTS);
    }

    /// The numbers of the variants that there are among these.
    fn numbers<T: Serialize>(values: &[T]) -> BTreeSet<usize> {
        values
            .iter()
            .map(|value| usize::from(postcard::to_allocvec(value).unwrap()[0]))
            .collect()
    }

    #[test]
    fn every_call_and_every_answer_has_a_sample() {
        let all = |count: usize| (0..count).collect::<BTreeSet<usize>>();
        let mut asks = lease_asks();
        asks.extend(job_asks().into_iter().map(StoreRequest::Job));
        assert_eq!(numbers(&asks), all(variants::<StoreRequest>().len()));
        assert_eq!(numbers(&job_asks()), all(variants::<JobRequest>().len()));
        let mut answers = lease_answers();
        answers.extend(job_answers().into_iter().map(StoreResponse::Job));
        assert_eq!(numbers(&answers), all(variants::<StoreResponse>().len()));
        assert_eq!(numbers(&job_answers()), all(variants::<JobResponse>().len()));
    }
}
