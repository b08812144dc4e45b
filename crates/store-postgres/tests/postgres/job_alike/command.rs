//! The commands, drawn by chance, and what is known so far to draw them from.

use std::collections::BTreeSet;
use std::num::NonZeroU32;

use fencehold_contract::job::{
    ActOn, ActRequest, Acted, Action, AttemptRef, Began, BeginRequest, Begun, ClaimRequest, Claimed,
    Enqueued, JobFilter, JobStore, LedgerAct, LedgerAnswer, LedgerEntry, NewJob, QueueMode, QueueOrder,
    RenewedJobs, Report, ResolveRequest, Unique, When, Word,
};
use fencehold_contract::{Call, StoreError};
use fencehold_core::job::{EffectName, JobId, Kind, Queue, State, Terms, UniqueKey};
use fencehold_core::ledger::{OnDoubt, UndoWith};
use fencehold_core::retry::{Backoff, Retry};
use fencehold_core::{HoldId, Owner, Reason, Token};

type Refused<T> = Result<T, fencehold_core::job::Refusal>;

/// One command.
#[derive(Clone, Debug)]
pub(crate) enum Command {
    Enqueue(Vec<NewJob>),
    Claim(ClaimRequest),
    Renew(Vec<AttemptRef>),
    Report(Vec<Report>),
    Ledger(Vec<LedgerEntry>),
    Act(ActRequest),
    SetQueue(QueueOrder),
    Begin(BeginRequest),
    Resolve(ResolveRequest),
    Pass(u64),
}

/// What came of it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Answer {
    Enqueued(Result<Vec<Refused<Enqueued>>, StoreError>),
    Claimed(Result<Claimed, StoreError>),
    Renewed(Result<RenewedJobs, StoreError>),
    Reported(Result<Vec<Refused<fencehold_core::job::Reported>>, StoreError>),
    Ledger(Result<Vec<Refused<LedgerAnswer>>, StoreError>),
    Acted(Result<Acted, StoreError>),
    Queue(Result<(), StoreError>),
    Began(Result<Began, StoreError>),
    Resolved(Result<Refused<()>, StoreError>),
    Passed,
}

impl Command {
    pub(crate) async fn carry_out(&self, store: &dyn JobStore, call: &Call) -> Answer {
        match self.clone() {
            Command::Enqueue(jobs) => Answer::Enqueued(store.enqueue(call, jobs).await),
            Command::Claim(request) => Answer::Claimed(store.claim(call, request).await),
            Command::Renew(attempts) => Answer::Renewed(store.renew_claims(call, attempts).await),
            Command::Report(reports) => Answer::Reported(store.report(call, reports).await),
            Command::Ledger(entries) => Answer::Ledger(store.ledger(call, entries).await),
            Command::Act(request) => Answer::Acted(act_on_all(store, call, request).await),
            Command::SetQueue(order) => Answer::Queue(store.set_queue(call, order).await.map(drop)),
            Command::Begin(request) => Answer::Began(store.begin(call, request).await),
            Command::Resolve(request) => Answer::Resolved(store.resolve(call, request).await),
            Command::Pass(_) => Answer::Passed,
        }
    }

    pub(crate) fn draw(chance: &mut Chance, known: &mut Known) -> Command {
        let command = match chance.below(20) {
            0..=3 => Command::Enqueue((0..=chance.below(3)).map(|_| known.new_job(chance)).collect()),
            4..=7 => Command::Claim(known.claim(chance)),
            8 | 9 => Command::Renew((0..=chance.below(3)).map(|_| known.attempt(chance)).collect()),
            10..=13 => Command::Report((0..=chance.below(2)).map(|_| known.report(chance)).collect()),
            14 | 15 => Command::Ledger((0..=chance.below(2)).map(|_| known.entry(chance)).collect()),
            16 => Command::Act(known.act(chance)),
            17 if chance.one_in(2) => Command::SetQueue(known.order(chance)),
            17 => Command::Resolve(known.resolve(chance)),
            18 => Command::Begin(known.begin(chance)),
            _ => Command::Pass(*chance.pick(&[1, 500, 4_000, 5_000, 10_000, 20_000, 30_000])),
        };
        // A claim whose jobs have all ended is remembered by the engine, and not by PostgreSQL: it is not repeated.
        if matches!(command, Command::Report(_) | Command::Ledger(_) | Command::Act(_) | Command::Pass(_)) {
            known.claims.clear();
        }
        command
    }
}

/// Page by page: where one ends is each store's own.
async fn act_on_all(store: &dyn JobStore, call: &Call, mut request: ActRequest) -> Result<Acted, StoreError> {
    let mut all = Acted { items: Vec::new(), next: None };
    loop {
        let acted = store.act(call, request.clone()).await?;
        all.items.extend(acted.items);
        match (&mut request.on, acted.next) {
            (ActOn::Matching { cursor, .. }, Some(next)) => *cursor = Some(next),
            _ => return Ok(all),
        }
    }
}

/// Chance that is told by a number: the same number, the same chance.
pub(crate) struct Chance(u64);

impl Chance {
    pub(crate) fn new(number: u64) -> Self {
        Chance(number.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x5851_f42d_4c95_7f2d)
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
pub(crate) struct Known {
    number: u64,
    made: u64,
    jobs: Vec<NewJob>,
    ids: BTreeSet<JobId>,
    attempts: Vec<AttemptRef>,
    claims: Vec<ClaimRequest>,
    begun: Vec<BeginRequest>,
}

impl Known {
    pub(crate) fn new(number: u64) -> Self {
        Known {
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
    pub(crate) fn queues() -> Vec<QueueOrder> {
        let order = |name| QueueOrder { queue: queue(name), mode: QueueMode::Open, by: owner("P") };
        ["a", "b", "undo"].map(order).to_vec()
    }

    pub(crate) fn ids(&self) -> Vec<JobId> {
        self.ids.iter().copied().collect()
    }

    /// Remembers whom it can speak for from now on.
    pub(crate) fn learn(&mut self, command: &Command, answer: &Answer) {
        match (command, answer) {
            (Command::Enqueue(jobs), _) => self.ids.extend(jobs.iter().map(|job| job.id)),
            (Command::Claim(request), Answer::Claimed(Ok(claimed))) => {
                for job in &claimed.jobs {
                    self.ids.insert(job.id);
                    self.attempts
                        .push(AttemptRef { job: job.id, hold: request.hold, token: job.token });
                }
            }
            (Command::Begin(request), Answer::Began(Ok(began))) => {
                if let Begun::New(job) = &began.what {
                    self.ids.insert(job.id);
                    self.attempts
                        .push(AttemptRef { job: job.id, hold: request.hold, token: job.token });
                }
            }
            _ => {}
        }
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

    fn new_job(&mut self, chance: &mut Chance) -> NewJob {
        if !self.jobs.is_empty() && chance.one_in(6) {
            // The same again, or almost.
            let mut job = chance.pick(&self.jobs).clone();
            if chance.one_in(3) {
                job.payload = "\"another\"".into();
            }
            if chance.one_in(3) {
                job.id = self.fresh_id();
            }
            return job;
        }
        let retry = Retry::new(Backoff::Exponential, 2_000, 60_000).jitter_percent(20);
        let terms = Terms {
            priority: *chance.pick(&[0, 0, 0, -1, 5]),
            max_attempts: *chance.pick(&[1, 2, 10]),
            max_crashes: *chance.pick(&[1, 2, 5]),
            attempt_ms: *chance.pick(&[None, None, NonZeroU32::new(25_000)]),
            retry,
        };
        let terms = if chance.one_in(3) { Terms::default() } else { terms };
        let unique = chance.one_in(4).then(|| Unique {
            key: UniqueKey::new(*chance.pick(&["k1", "k2"])).unwrap(),
            window_ms: *chance.pick(&[1_000, 60_000]),
        });
        let labels = if chance.one_in(3) { vec![("tenant".into(), "acme".into())] } else { Vec::new() };
        let job = NewJob {
            terms,
            when: *chance.pick(&[
                When::Now,
                When::Now,
                When::After { delay_ms: 10_000 },
                When::At { wall_ms: 1_800_000_040_000 },
            ]),
            unique,
            labels,
            trace: chance
                .one_in(5)
                .then(|| "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01".into()),
            ..NewJob::new(
                self.fresh_id(),
                queue(chance.word(&["a", "a", "b"])),
                Kind::new(*chance.pick(&["mail", "report"])).unwrap(),
                *chance.pick(&["{\"to\":\"ada\"}", "[1, 2]", "not json"]),
            )
        };
        self.jobs.push(job.clone());
        job
    }

    fn claim(&mut self, chance: &mut Chance) -> ClaimRequest {
        if !self.claims.is_empty() && chance.one_in(6) {
            return chance.pick(&self.claims).clone();
        }
        let queues = match chance.below(4) {
            0 => vec![(queue("a"), 3), (queue("b"), 1)],
            1 => vec![(queue("b"), 1)],
            2 => vec![(queue("a"), 1), (queue("b"), 1), (queue("undo"), 2)],
            _ => vec![(queue("a"), 1)],
        };
        let request = ClaimRequest {
            queues,
            limit: usize::try_from(1 + chance.below(3)).unwrap(),
            hold: HoldId::from_random(self.fresh()),
            owner: owner(chance.word(&["A", "B", "C"])),
            ttl_ms: *chance.pick(&[10_000, 30_000]),
            wait_ms: 0,
            waited_before_ms: 0,
        };
        self.claims.push(request.clone());
        request
    }

    /// Somebody who may speak for an attempt, or may not.
    fn attempt(&mut self, chance: &mut Chance) -> AttemptRef {
        let nobody = AttemptRef {
            job: JobId::from_random(1, [1; 10]),
            hold: HoldId::from_random([9; 16]),
            token: Token::new(1),
        };
        if self.attempts.is_empty() {
            return nobody;
        }
        let latest = self.attempts.len().saturating_sub(4);
        let mut attempt = if chance.one_in(3) {
            chance.pick(&self.attempts).clone()
        } else {
            chance.pick(&self.attempts[latest..]).clone()
        };
        match chance.below(24) {
            0 => attempt.hold = HoldId::from_random([7; 16]),
            1 => attempt.token = chance.pick(&self.attempts).token,
            2 => attempt.token = Token::new(attempt.token.get() + 1_000_000),
            3 => attempt.job = chance.pick(&self.attempts).job,
            4 => return nobody,
            _ => {}
        }
        attempt
    }

    fn report(&mut self, chance: &mut Chance) -> Report {
        let word = match chance.below(12) {
            0..=3 => Word::Complete { result: chance.one_in(2).then(|| "{\"sent\": true}".into()) },
            4..=6 => Word::Fail {
                error: "no route to host".to_owned(),
                retry_in_ms: *chance.pick(&[None, Some(0), Some(3_000)]),
                for_good: chance.one_in(3),
            },
            7 => Word::Snooze { for_ms: *chance.pick(&[0, 5_000]) },
            8 => Word::HandBack,
            9 => Word::Checkpoint { bytes: vec![0, 1, 255, u8::try_from(chance.below(200)).unwrap()] },
            10 => Word::Progress { note: "{\"done\":7}".into() },
            _ => Word::Progress { note: "not json".into() },
        };
        Report { attempt: self.attempt(chance), word }
    }

    fn entry(&mut self, chance: &mut Chance) -> LedgerEntry {
        let effect = EffectName::new(*chance.pick(&["charge", "ship"])).unwrap();
        let act = if chance.one_in(2) {
            LedgerAct::Begin { effect, policy: *chance.pick(&[OnDoubt::RunAgain, OnDoubt::Ask]) }
        } else if chance.one_in(4) {
            LedgerAct::Withdraw { effect }
        } else {
            let undo = chance.one_in(2).then(|| UndoWith {
                kind: Kind::new("undo").unwrap(),
                queue: chance.one_in(2).then(|| queue("undo")),
                payload: "{}".into(),
            });
            LedgerAct::Record { effect, value: "7".into(), undo }
        };
        LedgerEntry { attempt: self.attempt(chance), act }
    }

    fn some_id(&self, chance: &mut Chance) -> JobId {
        let ids = self.ids();
        if ids.is_empty() { JobId::from_random(1, [1; 10]) } else { *chance.pick(&ids) }
    }

    fn act(&mut self, chance: &mut Chance) -> ActRequest {
        let on = if chance.one_in(3) {
            let filter = JobFilter {
                queue: chance.one_in(2).then(|| queue("a")),
                states: chance
                    .pick(&[vec![State::Failed], vec![State::Queued, State::Running], vec![]])
                    .clone(),
                labels: if chance.one_in(3) { vec![("tenant".into(), "acme".into())] } else { Vec::new() },
                ..JobFilter::default()
            };
            ActOn::Matching { filter, cursor: None, limit: 100 }
        } else {
            let ids: BTreeSet<JobId> = (0..=chance.below(2)).map(|_| self.some_id(chance)).collect();
            ActOn::Jobs(ids.into_iter().collect())
        };
        let action = match chance.below(4) {
            0 | 1 => Action::Cancel { reason: Reason::new("wrong").ok(), now: chance.one_in(2) },
            2 => Action::Retry,
            _ => Action::Delete { force: chance.one_in(2) },
        };
        ActRequest { on, action, by: owner("P"), dry_run: chance.one_in(5) }
    }

    #[expect(clippy::unused_self, reason = "reads like the others")]
    fn order(&self, chance: &mut Chance) -> QueueOrder {
        let mode = *chance.pick(&[QueueMode::Open, QueueMode::Open, QueueMode::Paused, QueueMode::Draining]);
        QueueOrder { queue: queue(chance.word(&["a", "b"])), mode, by: owner("P") }
    }

    fn begin(&mut self, chance: &mut Chance) -> BeginRequest {
        if !self.begun.is_empty() && chance.one_in(3) {
            return chance.pick(&self.begun).clone();
        }
        let request = BeginRequest {
            id: self.fresh_id(),
            key: UniqueKey::new(*chance.pick(&["op1", "op2"])).unwrap(),
            payload: (*chance.pick(&["{}", "{}", "[]"])).into(),
            hold: HoldId::from_random(self.fresh()),
            owner: owner(chance.word(&["A", "B"])),
            ttl_ms: 10_000,
            window_ms: *chance.pick(&[1_000, 100_000]),
            policy: *chance.pick(&[OnDoubt::RunAgain, OnDoubt::Ask]),
        };
        self.begun.push(request.clone());
        request
    }

    fn resolve(&mut self, chance: &mut Chance) -> ResolveRequest {
        ResolveRequest {
            job: self.some_id(chance),
            effect: EffectName::new(*chance.pick(&["charge", "ship"])).unwrap(),
            happened: chance.one_in(2).then(|| "8".into()),
            by: owner("P"),
        }
    }
}

fn queue(name: &str) -> Queue {
    Queue::new(name).unwrap()
}

fn owner(name: &str) -> Owner {
    Owner::new(name).unwrap()
}
