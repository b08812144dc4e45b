//! The commands, drawn by chance, and what is known so far to draw them from.

use std::collections::BTreeSet;
use std::num::NonZeroU32;
use std::time::Duration;

use fencehold_contract::job::{
    AttemptLedgerEntry, AttemptRef, AttemptReport, BeginOperationRequest, BegunOperation,
    ChangeJobBatchResponse, ChangeJobsRequest, ClaimJobsRequest, ClaimedJob, ClaimedJobs, EffectResolution,
    EnqueuedJob, JobAction, JobFilter, JobSelector, JobStore, LedgerEntry, LedgerResponse, NewJob,
    OperationStatus, QueueMode, RenewAttemptBatchResponse, Report, ResolveEffectRequest, SetQueueModeRequest,
    Unique, When,
};
use fencehold_contract::{CallContext, StoreError};
use fencehold_core::job::{EffectName, JobId, JobKind, JobOptions, JobState, UniqueKey};
use fencehold_core::ledger::{Compensation, InDoubtPolicy};
use fencehold_core::retry::{Backoff, RetryPolicy};
use fencehold_core::{HoldId, Reason, Token};
use fencehold_test_servers::calls::{owner, queue};

type Refused<T> = Result<T, fencehold_core::job::JobRefusal>;

/// One command.
#[derive(Clone, Debug)]
pub(crate) enum Command {
    Enqueue(Vec<NewJob>),
    Claim(ClaimJobsRequest),
    Renew(Vec<AttemptRef>),
    Report(Vec<AttemptReport>),
    Ledger(Vec<AttemptLedgerEntry>),
    Act(ChangeJobsRequest),
    SetQueue(SetQueueModeRequest),
    Begin(BeginOperationRequest),
    Resolve(ResolveEffectRequest),
    Pass(u64),
}

/// What came of it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum CommandResult {
    Enqueued(Result<Vec<Refused<EnqueuedJob>>, StoreError>),
    Claimed(Result<ClaimedJobs, StoreError>),
    Renewed(Result<RenewAttemptBatchResponse, StoreError>),
    Reported(Result<Vec<Refused<fencehold_core::job::ReportedAttempt>>, StoreError>),
    Ledger(Result<Vec<Refused<LedgerResponse>>, StoreError>),
    Acted(Result<ChangeJobBatchResponse, StoreError>),
    Queue(Result<(), StoreError>),
    Began(Result<Refused<BegunOperation>, StoreError>),
    Resolved(Result<Refused<()>, StoreError>),
    Passed,
}

impl Command {
    pub(crate) async fn carry_out(&self, store: &dyn JobStore, call: &CallContext) -> CommandResult {
        match self.clone() {
            Command::Enqueue(jobs) => CommandResult::Enqueued(store.enqueue(call, jobs).await),
            Command::Claim(request) => CommandResult::Claimed(store.claim(call, request).await),
            Command::Renew(attempts) => CommandResult::Renewed(store.renew_attempts(call, attempts).await),
            Command::Report(reports) => CommandResult::Reported(store.report(call, reports).await),
            Command::Ledger(entries) => CommandResult::Ledger(store.write_effects(call, entries).await),
            Command::Act(request) => CommandResult::Acted(act_on_all(store, call, request).await),
            Command::SetQueue(order) => {
                CommandResult::Queue(store.set_queue_mode(call, order).await.map(drop))
            }
            Command::Begin(request) => CommandResult::Began(store.begin_operation(call, request).await),
            Command::Resolve(request) => CommandResult::Resolved(store.resolve_effect(call, request).await),
            Command::Pass(_) => CommandResult::Passed,
        }
    }

    pub(crate) fn draw(choices: &mut Choices, known: &mut KnownIds) -> Command {
        let command = match choices.below(20) {
            0..=3 => Command::Enqueue((0..=choices.below(3)).map(|_| known.new_job(choices)).collect()),
            4..=7 => Command::Claim(known.claim(choices)),
            8 | 9 => Command::Renew((0..=choices.below(3)).map(|_| known.attempt(choices)).collect()),
            10..=13 => Command::Report((0..=choices.below(2)).map(|_| known.report(choices)).collect()),
            14 | 15 => Command::Ledger((0..=choices.below(2)).map(|_| known.entry(choices)).collect()),
            16 => Command::Act(known.act(choices)),
            17 if choices.one_in(2) => Command::SetQueue(known.order(choices)),
            17 => Command::Resolve(known.resolve(choices)),
            18 => Command::Begin(known.begin(choices)),
            _ => Command::Pass(*choices.pick(&[1, 500, 4_000, 5_000, 10_000, 20_000, 30_000])),
        };
        // A claim whose jobs have all ended is remembered by the engine, and not by PostgreSQL: it is not repeated.
        if matches!(command, Command::Report(_) | Command::Ledger(_) | Command::Act(_) | Command::Pass(_)) {
            known.claims.clear();
        }
        command
    }
}

/// Page by page: where one ends is each store's own.
async fn act_on_all(
    store: &dyn JobStore,
    call: &CallContext,
    mut request: ChangeJobsRequest,
) -> Result<ChangeJobBatchResponse, StoreError> {
    let mut all = ChangeJobBatchResponse { results: Vec::new(), next_cursor: None };
    loop {
        let acted = store.change_jobs(call, request.clone()).await?;
        all.results.extend(acted.results);
        if acted.next_cursor.is_none() {
            return Ok(all);
        }
        request.cursor = acted.next_cursor;
    }
}

/// Chance from a number: the same number, the same chance.
pub(crate) struct Choices(u64);

impl Choices {
    pub(crate) fn new(number: u64) -> Self {
        Choices(number.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x5851_f42d_4c95_7f2d)
    }

    /// By the mixing function of `SplitMix64`.
    fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.bits() % limit
    }

    fn one_in(&mut self, many: u64) -> bool {
        self.below(many) == 0
    }

    fn word(&mut self, from: &[&'static str]) -> &'static str {
        let word: &&str = self.pick(from);
        word
    }

    fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        let nth = usize::try_from(self.below(from.len() as u64)).unwrap();
        &from[nth]
    }
}

/// What has been said so far.
pub(crate) struct KnownIds {
    number: u64,
    made: u64,
    jobs: Vec<NewJob>,
    ids: BTreeSet<JobId>,
    attempts: Vec<AttemptRef>,
    claims: Vec<ClaimJobsRequest>,
    begun: Vec<BeginOperationRequest>,
}

impl KnownIds {
    pub(crate) fn new(number: u64) -> Self {
        KnownIds {
            number,
            made: 0,
            jobs: Vec::new(),
            ids: BTreeSet::new(),
            attempts: Vec::new(),
            claims: Vec::new(),
            begun: Vec::new(),
        }
    }

    /// Every queue, open: made in this order, so that turns go the same way.
    pub(crate) fn queues() -> Vec<SetQueueModeRequest> {
        let order = |name| SetQueueModeRequest { queue: queue(name), mode: QueueMode::Open, by: owner("P") };
        ["a", "b", "undo"].map(order).to_vec()
    }

    pub(crate) fn ids(&self) -> Vec<JobId> {
        self.ids.iter().copied().collect()
    }

    /// Remembers whom it can speak for from now on.
    pub(crate) fn learn(&mut self, command: &Command, answer: &CommandResult) {
        match (command, answer) {
            (Command::Enqueue(jobs), _) => self.ids.extend(jobs.iter().map(|job| job.id)),
            (Command::Claim(request), CommandResult::Claimed(Ok(claimed))) => {
                for job in &claimed.jobs {
                    self.begun_by(request.hold_id, job);
                }
            }
            (Command::Begin(request), CommandResult::Began(Ok(Ok(began)))) => {
                if let OperationStatus::Started { job } = &began.operation {
                    self.begun_by(request.hold_id, job);
                }
            }
            _ => {}
        }
    }

    fn begun_by(&mut self, hold_id: HoldId, job: &ClaimedJob) {
        self.ids.insert(job.id);
        self.attempts.push(AttemptRef { job_id: job.id, hold_id, token: job.token });
    }

    fn fresh(&mut self) -> [u8; 16] {
        self.made += 1;
        let mut bits = [0x5a; 16];
        bits[..8].copy_from_slice(&self.number.to_be_bytes());
        bits[8..].copy_from_slice(&self.made.to_be_bytes());
        bits
    }

    fn fresh_id(&mut self) -> JobId {
        let bits = self.fresh();
        let mut ten = [0; 10];
        ten[..5].copy_from_slice(&bits[3..8]);
        ten[5..].copy_from_slice(&bits[11..]);
        JobId::from_random(1_763_000_000_000, ten)
    }

    fn new_job(&mut self, choices: &mut Choices) -> NewJob {
        if !self.jobs.is_empty() && choices.one_in(6) {
            // The same again, or almost.
            let mut job = choices.pick(&self.jobs).clone();
            if choices.one_in(3) {
                job.payload = "\"another\"".into();
            }
            if choices.one_in(3) {
                job.id = self.fresh_id();
            }
            return job;
        }
        let retry = RetryPolicy::new(
            Backoff::Exponential,
            Duration::from_millis(2_000),
            Duration::from_millis(60_000),
        )
        .jitter_percent(20);
        let terms = JobOptions {
            priority: *choices.pick(&[0, 0, 0, -1, 5]),
            max_failures: *choices.pick(&[1, 2, 10]),
            max_crashes: *choices.pick(&[1, 2, 5]),
            attempt_timeout_ms: *choices.pick(&[None, None, NonZeroU32::new(25_000)]),
            retry,
        };
        let terms = if choices.one_in(3) { JobOptions::default() } else { terms };
        let unique = choices.one_in(4).then(|| Unique {
            key: UniqueKey::new(*choices.pick(&["k1", "k2"])).unwrap(),
            window_ms: *choices.pick(&[1_000, 60_000]),
        });
        let labels = if choices.one_in(3) { vec![("tenant".into(), "acme".into())] } else { Vec::new() };
        let job = NewJob {
            options: terms,
            when: *choices.pick(&[
                When::Now,
                When::Now,
                When::After { delay_ms: 10_000 },
                When::At { wall_ms: 1_800_000_040_000 },
            ]),
            unique,
            labels,
            traceparent: choices
                .one_in(5)
                .then(|| "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01".into()),
            ..NewJob::new(
                self.fresh_id(),
                queue(choices.word(&["a", "a", "b"])),
                JobKind::new(*choices.pick(&["mail", "report"])).unwrap(),
                *choices.pick(&["{\"to\":\"ada\"}", "[1, 2]", "not json"]),
            )
        };
        self.jobs.push(job.clone());
        job
    }

    fn claim(&mut self, choices: &mut Choices) -> ClaimJobsRequest {
        if !self.claims.is_empty() && choices.one_in(6) {
            return choices.pick(&self.claims).clone();
        }
        let queues = match choices.below(4) {
            0 => vec![(queue("a"), 3), (queue("b"), 1)],
            1 => vec![(queue("b"), 1)],
            2 => vec![(queue("a"), 1), (queue("b"), 1), (queue("undo"), 2)],
            _ => vec![(queue("a"), 1)],
        };
        let request = ClaimJobsRequest {
            queues,
            limit: usize::try_from(1 + choices.below(3)).unwrap(),
            hold_id: HoldId::from_random(self.fresh()),
            owner: owner(choices.word(&["A", "B", "C"])),
            ttl_ms: *choices.pick(&[10_000, 30_000]),
            wait_ms: 0,
            waited_before_ms: 0,
        };
        self.claims.push(request.clone());
        request
    }

    /// A caller that may report on an attempt, or may not.
    fn attempt(&mut self, choices: &mut Choices) -> AttemptRef {
        let nobody = AttemptRef {
            job_id: JobId::from_random(1, [1; 10]),
            hold_id: HoldId::from_random([9; 16]),
            token: Token::new(1),
        };
        if self.attempts.is_empty() {
            return nobody;
        }
        let latest = self.attempts.len().saturating_sub(4);
        let mut attempt = if choices.one_in(3) {
            choices.pick(&self.attempts).clone()
        } else {
            choices.pick(&self.attempts[latest..]).clone()
        };
        match choices.below(24) {
            0 => attempt.hold_id = HoldId::from_random([7; 16]),
            1 => attempt.token = choices.pick(&self.attempts).token,
            2 => attempt.token = Token::new(attempt.token.get() + 1_000_000),
            3 => attempt.job_id = choices.pick(&self.attempts).job_id,
            4 => return nobody,
            _ => {}
        }
        attempt
    }

    fn report(&mut self, choices: &mut Choices) -> AttemptReport {
        let word = match choices.below(12) {
            0..=3 => Report::Complete { result: choices.one_in(2).then(|| "{\"sent\": true}".into()) },
            4..=6 => Report::Fail {
                error: "no route to host".to_owned(),
                retry_in_ms: *choices.pick(&[None, Some(0), Some(3_000)]),
                permanent: choices.one_in(3),
            },
            7 => Report::Snooze { delay_ms: *choices.pick(&[0, 5_000]) },
            8 => Report::Release {},
            9 => {
                Report::Checkpoint { checkpoint: vec![0, 1, 255, u8::try_from(choices.below(200)).unwrap()] }
            }
            10 => Report::Progress { progress: "{\"done\":7}".into() },
            _ => Report::Progress { progress: "not json".into() },
        };
        AttemptReport { attempt: self.attempt(choices), report: word }
    }

    fn entry(&mut self, choices: &mut Choices) -> AttemptLedgerEntry {
        let effect = EffectName::new(*choices.pick(&["charge", "ship"])).unwrap();
        let act = if choices.one_in(2) {
            LedgerEntry::Begin {
                effect,
                in_doubt_policy: *choices.pick(&[InDoubtPolicy::Retry, InDoubtPolicy::Manual]),
            }
        } else if choices.one_in(4) {
            LedgerEntry::Withdraw { effect }
        } else {
            let undo = choices.one_in(2).then(|| Compensation {
                kind: JobKind::new("undo").unwrap(),
                queue: choices.one_in(2).then(|| queue("undo")),
                payload: "{}".into(),
            });
            LedgerEntry::Record { effect, value: "7".into(), compensation: undo }
        };
        AttemptLedgerEntry { attempt: self.attempt(choices), entry: act }
    }

    fn some_id(&self, choices: &mut Choices) -> JobId {
        let ids = self.ids();
        if ids.is_empty() { JobId::from_random(1, [1; 10]) } else { *choices.pick(&ids) }
    }

    fn act(&mut self, choices: &mut Choices) -> ChangeJobsRequest {
        let on = if choices.one_in(3) {
            let filter = JobFilter {
                queue: choices.one_in(2).then(|| queue("a")),
                states: choices
                    .pick(&[vec![JobState::Failed], vec![JobState::Queued, JobState::Running], vec![]])
                    .clone(),
                labels: if choices.one_in(3) { vec![("tenant".into(), "acme".into())] } else { Vec::new() },
                ..JobFilter::default()
            };
            if filter == JobFilter::default() { JobSelector::All {} } else { JobSelector::Filter { filter } }
        } else {
            let ids: BTreeSet<JobId> = (0..=choices.below(2)).map(|_| self.some_id(choices)).collect();
            JobSelector::Ids { job_ids: ids.into_iter().collect() }
        };
        let action = match choices.below(6) {
            0 | 1 => JobAction::Cancel { reason: Reason::new("wrong").ok(), force: choices.one_in(2) },
            2 => JobAction::Retry,
            3 => JobAction::Complete { result: Some("7".into()), reason: Reason::new("seen").unwrap() },
            4 => JobAction::Fail { reason: Reason::new("gone").unwrap() },
            _ => JobAction::Delete { force: choices.one_in(2) },
        };
        let dry_run = choices.one_in(5);
        ChangeJobsRequest { dry_run, limit: 100, ..ChangeJobsRequest::new(on, action, owner("P")) }
    }

    #[expect(clippy::unused_self, reason = "reads like the others")]
    fn order(&self, choices: &mut Choices) -> SetQueueModeRequest {
        let mode = *choices.pick(&[QueueMode::Open, QueueMode::Open, QueueMode::Paused, QueueMode::Draining]);
        SetQueueModeRequest { queue: queue(choices.word(&["a", "b"])), mode, by: owner("P") }
    }

    fn begin(&mut self, choices: &mut Choices) -> BeginOperationRequest {
        if !self.begun.is_empty() && choices.one_in(3) {
            return choices.pick(&self.begun).clone();
        }
        let request = BeginOperationRequest {
            job_id: self.fresh_id(),
            idempotency_key: UniqueKey::new(*choices.pick(&["op1", "op2"])).unwrap(),
            payload: (*choices.pick(&["{}", "{}", "[]"])).into(),
            hold_id: HoldId::from_random(self.fresh()),
            owner: owner(choices.word(&["A", "B"])),
            ttl_ms: 10_000,
            idempotency_window_ms: *choices.pick(&[1_000, 100_000]),
            in_doubt_policy: *choices.pick(&[InDoubtPolicy::Retry, InDoubtPolicy::Manual]),
        };
        self.begun.push(request.clone());
        request
    }

    fn resolve(&mut self, choices: &mut Choices) -> ResolveEffectRequest {
        ResolveEffectRequest {
            job_id: self.some_id(choices),
            effect: EffectName::new(*choices.pick(&["charge", "ship"])).unwrap(),
            resolution: if choices.one_in(2) {
                EffectResolution::Happened { value: "8".into() }
            } else {
                EffectResolution::DidNotHappen {}
            },
            by: owner("P"),
        }
    }
}
