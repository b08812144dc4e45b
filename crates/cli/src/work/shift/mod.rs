//! One process at work: claims jobs, runs them, renews their claims, hands in what came of them.

mod claim;
mod hand_in;
mod hints;
mod renew;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use fencehold_contract::job::{Claimed, RenewedJobs};
use fencehold_contract::{Call, JobStore, LeaseStore, StoreError};
use fencehold_core::job::{Refusal, Reported};
use fencehold_core::{HoldId, Token};
use rustix::process::Signal;
use tokio::task::{AbortHandle, JoinError, JoinSet};

use self::hand_in::Handed;
use self::hints::Hints;
use super::run::Ran;
use super::running::{Running, Told};
use super::tries::Tries;
use super::{Plan, Voice};
use crate::duration::show_ms;
use crate::failure::Failure;
use crate::output::{Output, note};
use crate::process::{Signals, boot_ms};

/// How long one claim waits for jobs. Nothing depends on it.
const CLAIM_WAIT_MS: u64 = 60_000;
/// How long a shift that is over tries to hand in what came of its last jobs.
const HAND_IN_MS: u64 = 10_000;

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
    hints: Hints,
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
    Claimed { hold: HoldId, sent_ms: u64, answered_ms: u64, answer: Result<Claimed, StoreError> },
    Renewed { tokens: Vec<Token>, sent_ms: u64, answered_ms: u64, answer: Result<RenewedJobs, StoreError> },
    Reported { words: Vec<Handed>, answer: Result<Vec<Result<Reported, Refusal>>, StoreError> },
    Ended { token: Token, ran: Result<Ran, Failure> },
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
        let hints = Hints::of(&*store, &call.namespace);
        Shift {
            plan,
            store,
            hints,
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
                Some(hint) = self.hints.next() => self.hurry(&hint),
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
            Ok(News::Claimed { hold, sent_ms, answered_ms, answer }) => {
                self.claimed(hold, sent_ms, answered_ms, answer);
            }
            Ok(News::Renewed { tokens, sent_ms, answered_ms, answer }) => {
                self.renewed(&tokens, sent_ms, answered_ms, answer);
            }
            Ok(News::Reported { words, answer }) => self.reported(words, answer),
            Ok(News::Ended { token, ran }) => self.ended(token, ran),
            // A claim that was called off gives back what it was handed meanwhile.
            Err(gone) if gone.is_cancelled() => self.claiming = None,
            Err(panicked) => std::panic::resume_unwind(panicked.into_panic()),
        }
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

/// The jobs of the store: they were seen to be there before the shift began.
fn jobs(store: &dyn LeaseStore) -> Result<&dyn JobStore, StoreError> {
    store
        .jobs()
        .ok_or_else(|| StoreError::Unsupported { store: String::new(), what: "keep jobs".to_owned() })
}
