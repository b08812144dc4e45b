//! One process at work: claims jobs, runs them, renews their claims, hands in what came of them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use fencehold_core::job::{Refusal, Reported};
use fencehold_core::limits::CALL_BYTES_MAX;
use fencehold_core::{HoldId, Token, ttl};
use fencehold_store::job::{AttemptRef, ClaimRequest, Claimed, ClaimedJob, RenewedJobs, Report, Word};
use fencehold_store::{Call, JobStore, LeaseStore, StoreError};
use rustix::process::Signal;
use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinError, JoinSet};

use super::line::{Line, said};
use super::run::{Ran, run};
use super::running::{Running, Told};
use super::tries::{AGAIN_MS, Tries, random};
use super::{Plan, Voice, verdict};
use crate::duration::show_ms;
use crate::failure::Failure;
use crate::hold;
use crate::output::{Format, Output, note};
use crate::process::{Signals, Tenure, boot_ms};

/// How long one claim waits for jobs. Nothing depends on it.
const CLAIM_WAIT_MS: u64 = 60_000;
/// How long a shift that is over tries to hand in what came of its last jobs.
const HAND_IN_MS: u64 = 10_000;
/// How many bytes of results go into one call.
const REPORT_BYTES: usize = CALL_BYTES_MAX / 2;

/// One process at work.
pub(crate) struct Shift {
    plan: Plan,
    store: Arc<dyn LeaseStore>,
    call: Call,
    place: String,
    output: Output,
    voice: Voice,
    tasks: JoinSet<News>,
    /// The claims whose commands run, by token: the same job may come twice, under two.
    running: BTreeMap<Token, Running>,
    /// What is to be handed in.
    words: Vec<Handed>,
    claiming: Option<AbortHandle>,
    claims: Tries,
    renewing: bool,
    reporting: bool,
    reports: Tries,
    /// The last claim found nothing, and nothing has ended since.
    dry: bool,
    /// When commands that still run are told to end, once the shift is over.
    over_at_ms: Option<u64>,
    failure: Option<Failure>,
}

/// What a task of this shift brings.
enum News {
    Claimed { hold: HoldId, sent_ms: u64, answer: Result<Claimed, StoreError> },
    Renewed { tokens: Vec<Token>, sent_ms: u64, answer: Result<RenewedJobs, StoreError> },
    Reported { words: Vec<Handed>, answer: Result<Vec<Result<Reported, Refusal>>, StoreError> },
    Ended { token: Token, ran: Result<Ran, Failure> },
}

/// What came of a run, on its way to the store.
#[derive(Clone, Debug)]
struct Handed {
    report: Report,
    line: Line,
}

impl Shift {
    pub(crate) fn new(
        plan: Plan,
        store: Arc<dyn LeaseStore>,
        call: Call,
        place: String,
        output: Output,
        voice: Voice,
    ) -> Self {
        Shift {
            plan,
            store,
            call,
            place,
            output,
            voice,
            tasks: JoinSet::new(),
            running: BTreeMap::new(),
            words: Vec::new(),
            claiming: None,
            claims: Tries::default(),
            renewing: false,
            reporting: false,
            reports: Tries::default(),
            dry: false,
            over_at_ms: None,
            failure: None,
        }
    }

    /// Works until it is told to stop, or cannot go on. When this returns no command runs any more.
    pub(crate) async fn work(mut self, signals: &mut Signals) -> Result<(), Failure> {
        loop {
            self.begin_what_is_due();
            if self.is_done() {
                break;
            }
            let due_in = Duration::from_millis(self.due_ms().saturating_sub(boot_ms()));
            tokio::select! {
                Some(news) = self.tasks.join_next() => self.hear(news),
                signal = signals.next() => self.heed(signal),
                () = tokio::time::sleep(due_in) => {}
            }
        }
        for handed in &self.words {
            let attempt = &handed.report.attempt;
            note(&format!("job {}: what came of it could not be handed in; its claim runs out", attempt.job));
        }
        self.failure.map_or(Ok(()), Err)
    }

    fn is_done(&self) -> bool {
        if !self.running.is_empty() || self.claiming.is_some() {
            return false;
        }
        let handed_in = self.words.is_empty() && !self.reporting;
        match self.over_at_ms {
            Some(over_at_ms) => handed_in || boot_ms() >= over_at_ms.saturating_add(HAND_IN_MS),
            None => handed_in && self.dry && self.plan.until_empty,
        }
    }

    /// When there is something to do without news.
    fn due_ms(&self) -> u64 {
        let now_ms = boot_ms();
        let mut due_ms = now_ms.saturating_add(CLAIM_WAIT_MS);
        let mut by = |at_ms: u64| due_ms = due_ms.min(at_ms.max(now_ms));
        if !self.renewing {
            self.renewable().for_each(|running| by(running.renew_at_ms));
        }
        if !self.words.is_empty() && !self.reporting {
            by(self.reports.not_before_ms);
        }
        if self.wants_more() {
            by(self.claims.not_before_ms);
        }
        if let Some(over_at_ms) = self.over_at_ms {
            let later_ms = over_at_ms.saturating_add(HAND_IN_MS);
            by(if now_ms < over_at_ms { over_at_ms } else { later_ms });
        }
        due_ms
    }

    fn begin_what_is_due(&mut self) {
        let now_ms = boot_ms();
        if self.over_at_ms.is_some_and(|at_ms| now_ms >= at_ms) {
            self.end_all();
        }
        if !self.renewing && self.renewable().any(|running| running.renew_at_ms <= now_ms) {
            self.renew();
        }
        if !self.reporting && !self.words.is_empty() && self.reports.may(now_ms) {
            self.hand_in();
        }
        if self.wants_more() && self.claims.may(now_ms) {
            self.claim();
        }
    }

    fn wants_more(&self) -> bool {
        self.over_at_ms.is_none()
            && self.claiming.is_none()
            && !self.dry
            && self.running.len() < self.plan.concurrency
    }

    fn renewable(&self) -> impl Iterator<Item = &Running> {
        self.running.values().filter(|running| running.told != Some(Told::Lost))
    }

    fn hear(&mut self, news: Result<News, JoinError>) {
        match news {
            Ok(News::Claimed { hold, sent_ms, answer }) => self.claimed(hold, sent_ms, answer),
            Ok(News::Renewed { tokens, sent_ms, answer }) => self.renewed(&tokens, sent_ms, answer),
            Ok(News::Reported { words, answer }) => self.reported(words, answer),
            Ok(News::Ended { token, ran }) => self.ended(token, ran),
            // A claim that was called off gives back what it was handed meanwhile.
            Err(gone) if gone.is_cancelled() => self.claiming = None,
            Err(panicked) => std::panic::resume_unwind(panicked.into_panic()),
        }
    }

    fn claim(&mut self) {
        let hold = match hold::fresh() {
            Ok(hold) => hold,
            Err(failure) => return self.stop(failure),
        };
        let request = ClaimRequest {
            queues: self.plan.queues.clone(),
            limit: self.plan.concurrency - self.running.len(),
            hold,
            owner: self.plan.owner.clone(),
            ttl_ms: self.plan.ttl_ms,
            wait_ms: if self.plan.until_empty { 0 } else { CLAIM_WAIT_MS },
            waited_before_ms: 0,
        };
        let (store, call) = (Arc::clone(&self.store), self.call.clone());
        let claiming = async move {
            let began_ms = boot_ms();
            loop {
                let sent_ms = boot_ms();
                let waited_ms = sent_ms - began_ms;
                let wait_ms = request.wait_ms.saturating_sub(waited_ms);
                let again = ClaimRequest { wait_ms, waited_before_ms: waited_ms, ..request.clone() };
                let answer = match jobs(&*store) {
                    Ok(jobs) => jobs.claim(&call, again).await,
                    Err(error) => Err(error),
                };
                // The same hold id gets the jobs that it has, if it has any: it is asked until that is known.
                if !matches!(answer, Err(StoreError::Unknown { .. })) {
                    return News::Claimed { hold, sent_ms, answer };
                }
                tokio::time::sleep(Duration::from_millis(AGAIN_MS)).await;
            }
        };
        self.claiming = Some(self.tasks.spawn(claiming));
    }

    fn claimed(&mut self, hold: HoldId, sent_ms: u64, answer: Result<Claimed, StoreError>) {
        self.claiming = None;
        let claimed = match answer {
            Ok(claimed) => claimed,
            Err(error @ (StoreError::Unavailable { .. } | StoreError::Full { .. })) => {
                if self.claims.failures == 0 {
                    note(&format!("no jobs can be claimed at the moment: {error}; trying again"));
                }
                return self.claims.failed();
            }
            Err(error) => {
                let failure = Failure::of_store(error, &self.place);
                return self.stop(failure);
            }
        };
        self.claims.went_well();
        self.dry = self.plan.until_empty && claimed.jobs.is_empty();
        for job in claimed.jobs {
            let term_began_ms = sent_ms.saturating_add(claimed.waited_ms);
            self.begin(job, hold, term_began_ms);
        }
    }

    fn begin(&mut self, job: ClaimedJob, hold: HoldId, term_began_ms: u64) {
        let now_ms = boot_ms();
        let attempt = AttemptRef { job: job.id, hold, token: job.token };
        let kill_at_ms = term_began_ms.saturating_add(ttl::lost_after_ms(job.remaining_ms));
        let (tell, tenure) = watch::channel(Tenure::Until { kill_at_ms });
        let running = Running {
            attempt,
            kind: job.kind.clone(),
            nth: job.attempt,
            began_ms: now_ms,
            tell,
            kill_at_ms,
            renew_at_ms: term_began_ms + ttl::renew_after_ms(job.remaining_ms, random()),
            told: None,
        };
        // One that came when the shift was over, or too late to begin, is somebody else's.
        if self.over_at_ms.is_some() || now_ms.saturating_add(self.plan.grace_ms) >= kill_at_ms {
            return self.say(&running, None, Word::HandBack);
        }
        let token = job.token;
        let (words, grace_ms, voice) = (Arc::clone(&self.plan.words), self.plan.grace_ms, self.voice.clone());
        self.running.insert(token, running);
        self.tasks.spawn(async move {
            let ran = run(job, words, grace_ms, tenure, voice).await;
            News::Ended { token, ran }
        });
    }

    /// Renews all claims in one call.
    fn renew(&mut self) {
        let renewable = self.renewable().map(|running| running.attempt.clone());
        let attempts: Vec<AttemptRef> = renewable.collect();
        let tokens = attempts.iter().map(|attempt| attempt.token).collect();
        let (store, sent_ms) = (Arc::clone(&self.store), boot_ms());
        // One that takes longer than a claim lasts is of no use to it.
        let call = self.call.clone().with_patience_ms(self.call.patience_ms.min(self.plan.ttl_ms));
        self.renewing = true;
        self.tasks.spawn(async move {
            let answer = match jobs(&*store) {
                Ok(jobs) => jobs.renew_claims(&call, attempts).await,
                Err(error) => Err(error),
            };
            News::Renewed { tokens, sent_ms, answer }
        });
    }

    fn renewed(&mut self, tokens: &[Token], sent_ms: u64, answer: Result<RenewedJobs, StoreError>) {
        self.renewing = false;
        let renewed = match answer {
            Ok(renewed) => renewed,
            Err(error) => {
                tracing::warn!(%error, "claims could not be renewed");
                let again_ms = boot_ms().saturating_add((self.plan.ttl_ms / 20).clamp(10, 1_000));
                self.running.values_mut().for_each(|running| running.renew_at_ms = again_ms);
                return;
            }
        };
        let term_began_ms = sent_ms.saturating_add(renewed.waited_ms);
        for (token, answer) in tokens.iter().zip(renewed.answers) {
            let Some(running) = self.running.get_mut(token) else { continue };
            match answer {
                Ok(renewal) => {
                    running.kill_at_ms =
                        term_began_ms.saturating_add(ttl::lost_after_ms(renewal.remaining_ms));
                    running.renew_at_ms =
                        term_began_ms.saturating_add(ttl::renew_after_ms(renewal.remaining_ms, random()));
                    if running.told.is_none() {
                        running.tell.send_replace(Tenure::Until { kill_at_ms: running.kill_at_ms });
                    }
                    if renewal.cancel_requested {
                        running.end(Told::Cancelled);
                    } else if renewal.notice.is_some() {
                        running.end(Told::Yield);
                    }
                }
                Err(refusal) => running.lose(&refusal),
            }
        }
    }

    fn ended(&mut self, token: Token, ran: Result<Ran, Failure>) {
        let Some(running) = self.running.remove(&token) else { return };
        let id = running.attempt.job;
        let ran = match ran {
            Ok(ran) => ran,
            Err(failure) => {
                // It is not the job's fault that nothing could be started here.
                if let Failure::Said { what, .. } = &failure {
                    note(&format!("job {id}: {what}; it is handed back"));
                }
                self.claims.failed();
                return self.say(&running, None, Word::HandBack);
            }
        };
        let finish = &ran.finish;
        if !finish.left.is_empty() {
            let pids: Vec<String> = finish.left.iter().map(ToString::to_string).collect();
            note(&format!(
                "job {id}: processes of its command cannot be ended ({}), so its claim is left to run out",
                pids.join(", ")
            ));
            return self.show(&running.line(finish.code, "lost"));
        }
        if finish.lost || running.told == Some(Told::Lost) {
            note(&format!("job {id}: the claim under token {token} was lost, and its command ended"));
            return self.show(&running.line(finish.code, "lost"));
        }
        let word = match (running.told, finish.unwatched, finish.code) {
            // What was told to end is not believed when it says that it is done.
            (None, false, Some(code)) => {
                verdict::word(code, &ran.stdout, ran.stderr_end.bytes(), self.plan.snooze_ms)
            }
            _ => Word::HandBack,
        };
        self.say(&running, finish.code, word);
    }

    fn say(&mut self, running: &Running, code: Option<u8>, word: Word) {
        let line = running.line(code, said(&word));
        self.words
            .push(Handed { report: Report { attempt: running.attempt.clone(), word }, line });
    }

    /// Hands in what came of jobs, as much as one call can carry.
    fn hand_in(&mut self) {
        let mut bytes = 0;
        let fits = |handed: &Handed| {
            bytes += weight(&handed.report.word);
            bytes <= REPORT_BYTES
        };
        let many = self.words.iter().map(fits).take_while(|fits| *fits).count().max(1);
        let words: Vec<Handed> = self.words.drain(..many).collect();
        let reports: Vec<Report> = words.iter().map(|handed| handed.report.clone()).collect();
        let (store, call) = (Arc::clone(&self.store), self.call.clone());
        self.reporting = true;
        self.tasks.spawn(async move {
            let answer = match jobs(&*store) {
                Ok(jobs) => jobs.report(&call, reports).await,
                Err(error) => Err(error),
            };
            News::Reported { words, answer }
        });
    }

    fn reported(&mut self, words: Vec<Handed>, answer: Result<Vec<Result<Reported, Refusal>>, StoreError>) {
        self.reporting = false;
        self.dry = false;
        let answers = match answer {
            Ok(answers) => answers,
            Err(error) => {
                if self.reports.failures == 0 {
                    note(&format!(
                        "what came of {} jobs cannot be handed in: {error}; trying again",
                        words.len()
                    ));
                }
                self.reports.failed();
                // The same word gets the same answer, however often it is said.
                self.words.splice(..0, words);
                return;
            }
        };
        self.reports.went_well();
        for (Handed { report, mut line }, answer) in words.into_iter().zip(answers) {
            match answer {
                Ok(reported) => {
                    line.state = Some(reported.state.name());
                    line.again_in_ms = reported.again_in_ms;
                }
                Err(refusal) => {
                    note(&format!("job {}: {refusal}", report.attempt.job));
                    line.refused = Some(refusal.to_string());
                }
            }
            self.show(&line);
        }
    }

    fn show(&self, line: &Line) {
        self.voice.line(match self.output.format {
            Format::Json | Format::Jsonl => serde_json::to_string(line).unwrap_or_default(),
            Format::Table | Format::Env => line.sentence(),
        });
    }

    /// The first signal ends the shift; a second one ends what runs.
    fn heed(&mut self, signal: Signal) {
        if signal == Signal::USR1 || signal == Signal::USR2 {
            return;
        }
        let drain_ms = if self.over_at_ms.is_some() { 0 } else { self.plan.drain_ms };
        if drain_ms > 0 && !self.running.is_empty() {
            note(&format!(
                "no more jobs are claimed; {} go on for up to {} (another signal hands them back at once)",
                self.running.len(),
                show_ms(drain_ms)
            ));
        }
        self.close(drain_ms);
    }

    fn stop(&mut self, failure: Failure) {
        self.failure.get_or_insert(failure);
        self.close(0);
    }

    fn close(&mut self, drain_ms: u64) {
        let over_at_ms = boot_ms().saturating_add(drain_ms);
        self.over_at_ms = Some(self.over_at_ms.map_or(over_at_ms, |before_ms| before_ms.min(over_at_ms)));
        // Dropping the request leaves the line, and gives back what was handed over meanwhile.
        if let Some(claiming) = &self.claiming {
            claiming.abort();
        }
    }

    fn end_all(&mut self) {
        self.running.values_mut().for_each(|running| running.end(Told::ShiftOver));
    }
}

fn weight(word: &Word) -> usize {
    match word {
        Word::Complete { result: Some(result) } => result.len(),
        Word::Fail { error, .. } => error.len(),
        _ => 0,
    }
}

/// The jobs of the store: they were seen to be there before the shift began.
fn jobs(store: &dyn LeaseStore) -> Result<&dyn JobStore, StoreError> {
    store
        .jobs()
        .ok_or_else(|| StoreError::Unsupported { store: String::new(), what: "keep jobs".to_owned() })
}
