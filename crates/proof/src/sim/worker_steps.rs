//! What workers and those who give them work do, and what they make of the answers.

use fencehold_contract::job::{
    AttemptLedgerEntry, AttemptReport, ChangeJobsRequest, ClaimJobsRequest, JobAction, JobSelector,
    LedgerEntry, LedgerResponse, NewJob, QueueMode, Report, ScheduleSpec, SetQueueModeRequest, Unique, When,
};
use fencehold_core::Reason;
use fencehold_core::job::{EffectName, JobId, JobKind, JobOptions, QueueName, ScheduleName, UniqueKey};
use fencehold_core::ledger::{Compensation, InDoubtPolicy};
use fencehold_core::retry::RetryPolicy;
use std::time::Duration;

use super::audit::BEAT;
use super::owner::{HeldJob, OwnerActivity};
use super::store::SimCaller;
use super::world::{SimResponse, Simulation, TIMEOUT_MS};
use crate::simulated::{MachineRequest, MachineResponse};

/// How often an unanswered word is said.
const SENDINGS_MAX: u32 = 4;
/// For how long a unique key is taken at least.
const WINDOW_MS: u64 = 20_000;

impl Simulation {
    /// Begins something about jobs. Returns when to look up again.
    pub(super) fn begins_with_jobs(&mut self, at: usize) -> u64 {
        match self.random.draw() % 22 {
            0..=7 => self.enqueues(at),
            8 => self.enqueues_again(at),
            9 => self.looks_at_a_job(at),
            10 => self.acts(at),
            11 => self.orders_a_queue(at),
            12 => self.sets_a_schedule(at),
            _ => return self.claims(at),
        }
        self.random.between(10, 400)
    }

    fn enqueues(&mut self, at: usize) {
        let id = self.fresh_job();
        let payload = format!("{}", self.random.draw() % 2);
        let mut job = NewJob::new(id, self.some_queue(), kind("work"), payload);
        if self.random.per_mille(350) {
            let key = UniqueKey::new(format!("unique/{}", self.random.draw() % 3)).expect("a short name");
            job.unique = Some(Unique { key, window_ms: WINDOW_MS });
        }
        job.when = match self.random.draw() % 10 {
            0 | 1 => When::After { delay_ms: self.random.between(1, 4_000) },
            2 | 3 => When::At { wall_ms: self.stamp().wall_ms + self.random.between(0, 4_000) },
            _ => When::Now,
        };
        let priority = i16::try_from(self.random.between(0, 2)).unwrap_or(0);
        job.options =
            JobOptions { priority, max_failures: 3, max_crashes: 3, retry: quick(), ..JobOptions::default() };
        let (name, job_name) = (self.name(at), self.job_name(id));
        let unique = job
            .unique
            .as_ref()
            .map(|unique| format!(" as {}", unique.key))
            .unwrap_or_default();
        self.tell(|| format!("{name} enqueues {job_name}{unique}"));
        self.owners[at].enqueued = Some(job.clone());
        self.send(at, MachineRequest::Enqueue(vec![job]));
    }

    fn enqueues_again(&mut self, at: usize) {
        let Some(job) = self.owners[at].enqueued.clone() else { return };
        let (name, job_name) = (self.name(at), self.job_name(job.id));
        self.tally.count("sent again");
        self.tell(|| format!("{name} enqueues {job_name} once more"));
        self.send(at, MachineRequest::Enqueue(vec![job]));
    }

    fn looks_at_a_job(&mut self, at: usize) {
        let Some(id) = self.some_job() else { return };
        let (name, job_name) = (self.name(at), self.job_name(id));
        self.tell(|| format!("{name} looks at {job_name}"));
        self.send(at, MachineRequest::Job(id));
    }

    fn acts(&mut self, at: usize) {
        let Some(id) = self.some_job() else { return };
        let reason = || Reason::new("simulated").unwrap_or_else(|_| unreachable!("a reason"));
        let (action, verb) = match self.random.draw() % 6 {
            0 => (JobAction::Retry, "starts over"),
            2 => (JobAction::Complete { result: Some("7".into()), reason: reason() }, "completes by force"),
            3 => (JobAction::Fail { reason: reason() }, "fails by force"),
            1 => (JobAction::Cancel { reason: None, force: true }, "calls off at once"),
            _ => (JobAction::Cancel { reason: Reason::new("simulated").ok(), force: false }, "calls off"),
        };
        let (name, job_name) = (self.name(at), self.job_name(id));
        self.tell(|| format!("{name} {verb} {job_name}"));
        let by = self.owners[at].signs();
        self.send(
            at,
            MachineRequest::Act(ChangeJobsRequest::new(JobSelector::Ids { job_ids: vec![id] }, action, by)),
        );
    }

    fn orders_a_queue(&mut self, at: usize) {
        let queue = self.some_queue();
        // Mostly open: a queue that is paused gives nothing away.
        let (name, order) = (self.name(at), self.random.draw() % 10);
        if order == 3 {
            self.tell(|| format!("{name} removes {queue}"));
            let by = self.owners[at].signs();
            return self.send(at, MachineRequest::RemoveQueue(queue, by));
        }
        let mode = if order < 3 { QueueMode::Paused } else { QueueMode::Open };
        self.tell(|| format!("{name} has {queue} {}", mode.name()));
        let by = self.owners[at].signs();
        self.send(at, MachineRequest::SetQueue(SetQueueModeRequest { queue, mode, by }));
    }

    fn sets_a_schedule(&mut self, at: usize) {
        let spec = ScheduleSpec {
            name: ScheduleName::new(BEAT).expect("a short name"),
            cron: "* * * * *".to_owned(),
            time_zone: "UTC".to_owned(),
            queue: self.some_queue(),
            kind: kind(BEAT),
            payload: "0".into(),
            options: JobOptions { max_failures: 3, max_crashes: 3, retry: quick(), ..JobOptions::default() },
            labels: Vec::new(),
            by: self.owners[at].signs(),
        };
        let name = self.name(at);
        self.tell(|| format!("{name} sets the schedule {BEAT}: {}", spec.cron));
        self.send(at, MachineRequest::SetSchedule(Box::new(spec)));
    }

    fn claims(&mut self, at: usize) -> u64 {
        let queues = self.queues.iter().map(|queue| (queue.clone(), 1)).collect();
        let ttl_ms = self.random.one_of(&self.plan.ttls_ms.clone());
        let wait_ms = if self.random.per_mille(500) { self.random.between(1, 3_000) } else { 0 };
        let request = ClaimJobsRequest {
            queues,
            limit: 1,
            hold_id: self.fresh_hold(),
            owner: self.owners[at].signs(),
            ttl_ms,
            wait_ms,
            waited_before_ms: 0,
        };
        let name = self.name(at);
        self.tell(|| format!("{name} asks for a job: ttl {ttl_ms} ms, waits {wait_ms} ms"));
        self.send(at, MachineRequest::Claim(request.clone()));
        self.owners[at].about = OwnerActivity::Claiming { request, first_sent_ms: self.now_ms, sendings: 1 };
        TIMEOUT_MS + wait_ms
    }

    pub(super) fn claims_again(&mut self, at: usize) -> u64 {
        let now_ms = self.now_ms;
        let OwnerActivity::Claiming { request, first_sent_ms, sendings } = &mut self.owners[at].about else {
            return 1;
        };
        if *sendings >= SENDINGS_MAX {
            self.owners[at].about = OwnerActivity::Nothing;
            return self.random.between(10, 400);
        }
        *sendings += 1;
        let mut again = request.clone();
        again.waited_before_ms = now_ms - *first_sent_ms;
        let (wait_ms, name) = (again.wait_ms, self.name(at));
        self.tally.count("sent again");
        self.tell(|| format!("{name} asks for a job once more with the same hold id"));
        self.send(at, MachineRequest::Claim(again));
        TIMEOUT_MS + wait_ms
    }

    /// A worker looks up from its job: renews, goes on, or notices that its time is up.
    pub(super) fn works(&mut self, at: usize) -> u64 {
        let OwnerActivity::Working(work) = &self.owners[at].about else { return 1 };
        let mut work = work.clone();
        let pause_ms = self.random.between(10, (work.ttl_ms / 3).max(11));
        if self.now_ms >= work.believes_until_ms && !work.is_blind {
            self.tally.count("taken for lost");
            let (name, token) = (self.name(at), work.token);
            if self.random.per_mille(400) {
                self.tell(|| format!("{name} takes token {token} for lost"));
                self.owners[at].about = OwnerActivity::Nothing;
                return pause_ms;
            }
            self.tell(|| format!("{name} does not notice that its time is up"));
            work.is_blind = true;
        }
        if let Some((question, sendings)) = &mut work.unanswered {
            if *sendings >= SENDINGS_MAX {
                self.owners[at].about = OwnerActivity::Nothing;
                return pause_ms;
            }
            *sendings += 1;
            let (question, name, again) = (question.clone(), self.owners[at].name.clone(), *sendings > 1);
            if again {
                self.tally.count("sent again");
                self.tell(|| format!("{name} says it once more"));
            } else {
                self.tell(|| format!("{name} has had the effect, and records it"));
            }
            self.owners[at].about = OwnerActivity::Working(work);
            self.send(at, question);
            return TIMEOUT_MS;
        }
        if !work.is_blind && !self.calm && self.random.per_mille(450) {
            let (name, token) = (self.name(at), work.token);
            self.tell(|| format!("{name} renews its claim under token {token}"));
            self.send(at, MachineRequest::RenewClaims(vec![work.attempt()]));
            return pause_ms;
        }
        let question = self.next_word(at, &work);
        work.unanswered = Some((question.clone(), 1));
        self.owners[at].about = OwnerActivity::Working(work);
        self.send(at, question);
        TIMEOUT_MS
    }

    /// What a worker says next of its job.
    fn next_word(&mut self, at: usize, work: &HeldJob) -> MachineRequest {
        let (name, token, job) = (self.name(at), work.token, self.job_name(work.job));
        if let Some(effect) = work.effects.first().cloned() {
            let policy =
                if self.random.per_mille(250) { InDoubtPolicy::Manual } else { InDoubtPolicy::Retry };
            self.tell(|| format!("{name} announces {effect} of {job} under token {token}"));
            let act = LedgerEntry::Begin { effect, in_doubt_policy: policy };
            return MachineRequest::Ledger(vec![AttemptLedgerEntry { attempt: work.attempt(), entry: act }]);
        }
        let (said, verb) = match self.random.draw() % 20 {
            0 => (
                Report::Checkpoint { checkpoint: token.get().to_le_bytes().to_vec() },
                "leaves a checkpoint of",
            ),
            1 => (Report::Progress { progress: "1".into() }, "tells how far it is with"),
            2 => (Report::Snooze { delay_ms: self.random.between(1, 2_000) }, "puts off"),
            3 => (Report::Release {}, "gives back"),
            4..=6 => {
                let for_good = self.random.per_mille(300);
                let retry_in_ms = self.random.per_mille(300).then_some(50);
                (Report::Fail { error: "simulated".to_owned(), retry_in_ms, permanent: for_good }, "fails")
            }
            _ => (Report::Complete { result: Some(format!("{token}").into()) }, "completes"),
        };
        self.tell(|| format!("{name} {verb} {job} under token {token}"));
        MachineRequest::Report(vec![AttemptReport { attempt: work.attempt(), report: said }])
    }

    /// What an owner makes of an answer about jobs.
    pub(super) fn told_of_jobs(&mut self, caller: SimCaller, question: MachineRequest, answer: SimResponse) {
        let at = caller.owner;
        match (question, answer) {
            (MachineRequest::Claim(asked), Ok(MachineResponse::Claimed(claimed))) => {
                self.told_of_claim(caller, &asked, claimed);
            }
            (MachineRequest::RenewClaims(attempts), Ok(MachineResponse::RenewedClaims(renewed))) => {
                let until_ms = match renewed.results.first() {
                    Some(Ok(renewal)) => Some(self.owners[at].believes_until_ms(
                        caller.sent_ms,
                        renewed.waited_ms,
                        renewal.remaining_ms,
                    )),
                    _ => None,
                };
                // One in ten goes on although the answer was that its claim is over.
                let heeds = !self.random.per_mille(100);
                let about = &mut self.owners[at].about;
                if let OwnerActivity::Working(work) = about
                    && attempts.first().is_some_and(|attempt| attempt.token == work.token)
                {
                    match until_ms {
                        Some(until_ms) => work.believes_until_ms = work.believes_until_ms.max(until_ms),
                        None if heeds => *about = OwnerActivity::Nothing,
                        None => work.is_blind = true,
                    }
                }
            }
            (MachineRequest::Report(reports), Ok(MachineResponse::Reported(answers))) => {
                let goes_on = answers.first().is_some_and(Result::is_ok)
                    && matches!(reports[0].report, Report::Checkpoint { .. } | Report::Progress { .. });
                self.answered(at, reports[0].attempt.token, |work| goes_on.then_some(work));
            }
            (MachineRequest::Ledger(entries), Ok(MachineResponse::Ledger(answers))) => {
                let (entry, answer) = (&entries[0], answers.into_iter().next());
                let undo = self.random.per_mille(600).then(|| Compensation {
                    kind: kind("undo"),
                    queue: None,
                    payload: "\"undo\"".into(),
                });
                self.answered(at, entry.attempt.token, |mut work| match (&entry.entry, answer) {
                    (LedgerEntry::Begin { effect, .. }, Some(Ok(LedgerResponse::Proceed {}))) => {
                        let value = format!("\"{effect} by {}\"", work.token).into();
                        let act = LedgerEntry::Record { effect: effect.clone(), value, compensation: undo };
                        let entry = AttemptLedgerEntry { attempt: work.attempt(), entry: act };
                        work.unanswered = Some((MachineRequest::Ledger(vec![entry]), 0));
                        Some(work)
                    }
                    (_, Some(Ok(LedgerResponse::Recorded { .. }))) => {
                        work.effects.retain(|effect| effect != entry.entry.effect());
                        Some(work)
                    }
                    _ => None,
                });
            }
            _ => {}
        }
    }

    fn told_of_claim(
        &mut self,
        caller: SimCaller,
        asked: &ClaimJobsRequest,
        claimed: fencehold_contract::job::ClaimedJobs,
    ) {
        let at = caller.owner;
        let first_sent_ms = match &self.owners[at].about {
            OwnerActivity::Claiming { request, first_sent_ms, .. } if request.hold_id == asked.hold_id => {
                *first_sent_ms
            }
            // Of an earlier claim: an owner that no longer wants it lets it run out.
            _ => return,
        };
        let Some(job) = claimed.jobs.into_iter().next() else {
            self.owners[at].about = OwnerActivity::Nothing;
            return;
        };
        // Which sending was answered cannot be known.
        let believes_until_ms =
            self.owners[at].believes_until_ms(first_sent_ms, claimed.waited_ms, job.remaining_ms);
        let effects = if job.compensates.is_some() { 0 } else { self.random.between(0, 2) };
        let effect = |nth: u64| EffectName::new(format!("effect {nth}")).expect("a short name");
        let (name, job_name, token) = (self.name(at), self.job_name(job.id), job.token);
        self.tell(|| format!("{name} works on {job_name} under token {token}"));
        self.owners[at].about = OwnerActivity::Working(HeldJob {
            job: job.id,
            hold: asked.hold_id,
            token,
            ttl_ms: asked.ttl_ms,
            believes_until_ms,
            effects: (0..effects).map(effect).collect(),
            unanswered: None,
            is_blind: false,
        });
        let after_ms = self.random.between(1, (asked.ttl_ms / 3).max(2));
        self.wakes_in(at, after_ms);
    }

    /// A word of the work at hand was answered: what is left of the work.
    fn answered(
        &mut self,
        at: usize,
        token: fencehold_core::Token,
        then: impl FnOnce(HeldJob) -> Option<HeldJob>,
    ) {
        let OwnerActivity::Working(work) = &self.owners[at].about else { return };
        if work.token != token {
            return;
        }
        let work = HeldJob { unanswered: None, ..work.clone() };
        self.owners[at].about = then(work).map_or(OwnerActivity::Nothing, OwnerActivity::Working);
        let after_ms = self.random.between(1, 300);
        self.wakes_in(at, after_ms);
    }

    fn fresh_job(&mut self) -> JobId {
        let nth = self.job_ids.len() as u64;
        let mut bits = [0; 10];
        bits[2..].copy_from_slice(&nth.to_be_bytes());
        let id = JobId::from_random(self.stamp().wall_ms, bits);
        self.job_ids.push(id);
        id
    }

    fn some_job(&mut self) -> Option<JobId> {
        let nth = self.random.draw() % self.job_ids.len().max(1) as u64;
        self.job_ids.get(usize::try_from(nth).unwrap_or(0)).copied()
    }

    fn some_queue(&mut self) -> QueueName {
        let nth = self.random.draw() % self.queues.len() as u64;
        self.queues[usize::try_from(nth).unwrap_or(0)].clone()
    }

    pub(super) fn name(&self, at: usize) -> String {
        self.owners[at].name.clone()
    }

    /// A short name for a job, for the story.
    pub(super) fn job_name(&self, id: JobId) -> String {
        match self.job_ids.iter().position(|known| *known == id) {
            Some(nth) => format!("job {nth}"),
            None => "an undo job".to_owned(),
        }
    }
}

/// A retry policy that a short story has time for.
fn quick() -> RetryPolicy {
    RetryPolicy::fixed(Duration::from_millis(200))
}

fn kind(name: &str) -> JobKind {
    JobKind::new(name).expect("a short name")
}
