//! One granted lease, on a key or on a job, as its holder knows it: what it was promised, until when, and whether that
//! still stands.
//!
//! Time is judged here, by the clock, at every look: when a thread comes late, no one believes in a lease
//! that is over. A lease that is lost stays lost.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use fencehold_contract::clock::Clock;
use fencehold_contract::job::ClaimedJob;
use fencehold_core::job::JobId;
use fencehold_core::lease::{LeaseOutcome, LeaseRenewal};
use fencehold_core::ttl::{Deadlines, GrantedTerm};
use fencehold_core::{HoldId, Key, Owner, Task, Token};

use crate::error::{Error, LostCause};
use crate::metrics;
use crate::wake::WatchValue;
use crate::watch::{LeaseSnapshot, LeaseState, YieldRequest};

/// How long a handler may go on after its job was cancelled before that is worth a warning. Then after twice that, and so on.
const IGNORED_MS: u64 = 5_000;

/// What a renewal brought.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Renewed {
    pub(crate) term: GrantedTerm,
    /// When the holder takes it for lost now.
    pub(crate) lost_at_ms: u64,
    /// How long before that moment, as it stood, the renewal came through.
    pub(crate) slack_ms: u64,
}

/// What is held: a key, or a job.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum HoldTarget {
    /// A key.
    Key(Key),
    /// A job: the lease is the claim of one attempt.
    Job(JobId),
}

/// What a hold was asked for with.
pub(crate) struct HoldGrant {
    pub(crate) held: HoldTarget,
    pub(crate) token: Token,
    pub(crate) owner: Owner,
    pub(crate) task: Option<Task>,
    pub(crate) ttl_ms: u64,
    pub(crate) max_age_ms: Option<u64>,
    pub(crate) hold: HoldId,
    pub(crate) term: GrantedTerm,
}

impl HoldGrant {
    /// The claim of a job.
    pub(crate) fn of(job: &ClaimedJob, hold: HoldId, owner: Owner, ttl_ms: u64, term: GrantedTerm) -> Self {
        let max_age_ms = job.options.attempt_timeout_ms.map(|limit_ms| u64::from(limit_ms.get()));
        let (target, token) = (HoldTarget::Job(job.id), job.token);
        HoldGrant { held: target, token, owner, task: None, ttl_ms, max_age_ms, hold, term }
    }
}

/// One granted lease.
pub(crate) struct Holding {
    /// Its number within the handle.
    pub(crate) serial: u64,
    pub(crate) granted: HoldGrant,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) span: tracing::Span,
    watch: WatchValue<HoldingState>,
}

struct HoldingState {
    snapshot: LeaseSnapshot,
    deadlines: Deadlines,
    /// The last answer gave less than a ttl: an end is set for this lease.
    cut_short: bool,
    /// What the last renewal came back with, if it failed.
    failure: Option<String>,
    /// When it was learnt that someone called the job off.
    called_off_ms: Option<u64>,
    /// When to warn that its handler does not heed that.
    warn_at_ms: u64,
}

impl Holding {
    pub(crate) fn new(serial: u64, granted: HoldGrant, clock: Arc<dyn Clock>) -> Self {
        let HoldGrant { held, token, owner, task, term, .. } = &granted;
        let deadlines = Deadlines::new(*term);
        let span = match held {
            HoldTarget::Key(key) => {
                let task = task.as_ref().map(tracing::field::display);
                tracing::info_span!("hold", %key, token = token.get(), %owner, task)
            }
            HoldTarget::Job(job) => tracing::info_span!("attempt", %job, token = token.get(), %owner),
        };
        let standing = HoldingState {
            snapshot: LeaseSnapshot {
                state: LeaseState::Held,
                deadline_ms: deadlines.deadline_ms(),
                lost_at_ms: deadlines.lost_at_ms(),
                yield_request: None,
                lost: None,
            },
            deadlines,
            cut_short: term.remaining_ms() < granted.ttl_ms,
            failure: None,
            called_off_ms: None,
            warn_at_ms: 0,
        };
        Holding { serial, granted, clock, span, watch: WatchValue::new(standing) }
    }

    /// The key, where the lease is on one.
    pub(crate) fn key(&self) -> Option<&Key> {
        match &self.granted.held {
            HoldTarget::Key(key) => Some(key),
            HoldTarget::Job(_) => None,
        }
    }

    /// The key under which the store's events speak of it.
    pub(crate) fn event_key(&self) -> Option<Key> {
        match &self.granted.held {
            HoldTarget::Key(key) => Some(key.clone()),
            HoldTarget::Job(job) => Key::new(format!("job/{job}")).ok(),
        }
    }

    pub(crate) fn now_ms(&self) -> u64 {
        self.clock.now().store_ms
    }

    /// For how long it has been held.
    pub(crate) fn age_ms(&self) -> u64 {
        self.now_ms().saturating_sub(self.granted.term.from_ms())
    }

    /// How it stands now.
    pub(crate) fn look(&self) -> LeaseSnapshot {
        self.settle();
        self.watch.read(|standing, _| standing.snapshot.clone())
    }

    /// Takes it for lost if its time is up. True: just now.
    pub(crate) fn settle(&self) -> bool {
        let now_ms = self.now_ms();
        let max_age_ms = self.granted.max_age_ms;
        self.lose_if(
            |standing| now_ms >= standing.snapshot.lost_at_ms,
            |standing| standing.why_over(max_age_ms),
        )
    }

    /// Ends it, unless it has ended already. True: it did.
    pub(crate) fn lose(&self, why: LostCause) -> bool {
        self.lose_if(|_| true, |_| why)
    }

    fn lose_if(
        &self,
        when: impl FnOnce(&HoldingState) -> bool,
        why: impl FnOnce(&HoldingState) -> LostCause,
    ) -> bool {
        let lost = self.watch.update(|standing| {
            if standing.snapshot.state == LeaseState::Lost || !when(standing) {
                return None;
            }
            let why = why(standing);
            standing.snapshot.state = LeaseState::Lost;
            standing.snapshot.lost = Some(why.clone());
            Some(why)
        });
        if let (Some(why), HoldTarget::Key(_)) = (&lost, &self.granted.held) {
            metrics::lease_ended(why);
        }
        if let Some(why) = lost.as_ref().filter(|why| **why != LostCause::Released) {
            self.warn(format_args!("is lost: {why}"));
        }
        lost.is_some()
    }

    /// A renewal came through. Gives what became of it; `None` where it came too late.
    pub(crate) fn renewed(&self, sent_ms: u64, waited_ms: u64, renewal: &LeaseRenewal) -> Option<Renewed> {
        self.settle();
        let now_ms = self.now_ms();
        let term = GrantedTerm::new(sent_ms, waited_ms, now_ms, renewal.remaining_ms);
        let notice = renewal.yield_request.as_ref().map(|notice| YieldRequest {
            contender: notice.contender.clone(),
            task: notice.task.clone(),
            priority: notice.priority,
            deadline_ms: sent_ms.saturating_add(notice.yield_in_ms),
        });
        let (renewed, recovered, asked) = self.watch.update(|standing| {
            let snapshot = &mut standing.snapshot;
            if snapshot.state == LeaseState::Lost {
                return None;
            }
            let slack_ms = snapshot.lost_at_ms.saturating_sub(now_ms);
            let recovered = snapshot.state == LeaseState::AtRisk;
            let asked = notice.is_some() && snapshot.yield_request.is_none();
            standing.deadlines.renew(term, self.granted.ttl_ms);
            snapshot.deadline_ms = standing.deadlines.deadline_ms();
            snapshot.lost_at_ms = standing.deadlines.lost_at_ms();
            snapshot.state = LeaseState::Held;
            snapshot.yield_request = notice;
            standing.cut_short = renewal.remaining_ms < self.granted.ttl_ms;
            standing.failure = None;
            Some((Renewed { term, lost_at_ms: snapshot.lost_at_ms, slack_ms }, recovered, asked))
        })?;
        if recovered {
            tracing::info!(parent: &self.span, "the lease is renewed again");
        }
        if asked {
            tracing::info!(parent: &self.span, "someone asks this holder to yield");
        }
        Some(renewed)
    }

    /// A renewal failed: no new work, and keep trying.
    pub(crate) fn not_renewed(&self, failure: String) {
        let drained = self.watch.update(|standing| {
            standing.failure = Some(failure.clone());
            let held = standing.snapshot.state == LeaseState::Held;
            held.then(|| standing.snapshot.state = LeaseState::AtRisk)
        });
        if drained.is_some() {
            self.warn(format_args!("was not renewed, and is draining: {failure}"));
        }
    }

    /// Warns, with what it is about: a span of a lower level may not be kept.
    fn warn(&self, what: fmt::Arguments<'_>) {
        let HoldGrant { held, token, owner, .. } = &self.granted;
        let token = token.get();
        match held {
            HoldTarget::Key(key) => {
                tracing::warn!(parent: &self.span, %key, token, %owner, "the lease {what}");
            }
            HoldTarget::Job(job) => {
                tracing::warn!(parent: &self.span, %job, token, %owner, "the claim {what}");
            }
        }
    }

    /// Someone called the job off. Learnt anew with each renewal, for as long as its handler goes on.
    pub(crate) fn call_off(&self) {
        let now_ms = self.now_ms();
        // How long it has been ignored; 0: it is new.
        let ignored_ms = self.watch.update(|standing| {
            let is_due = standing.called_off_ms.is_none() || now_ms >= standing.warn_at_ms;
            let ignored_ms = now_ms.saturating_sub(*standing.called_off_ms.get_or_insert(now_ms));
            if is_due {
                standing.warn_at_ms = now_ms.saturating_add(ignored_ms.max(IGNORED_MS));
            }
            is_due.then_some(ignored_ms)
        });
        if ignored_ms == Some(0) {
            tracing::info!(parent: &self.span, "the job was called off");
        } else if let Some(ignored_ms) = ignored_ms {
            // A handler that has not stopped does not look, or computes without an await: people must know which.
            self.warn(format_args!(
                "was cancelled {ignored_ms} ms ago, and its handler goes on: look at `is_cancelled` or await `cancelled`, or \
                 set `cancel_timeout`"
            ));
        }
    }

    pub(crate) fn is_called_off(&self) -> bool {
        self.watch.read(|standing, _| standing.called_off_ms.is_some())
    }

    /// Waits until someone calls the job off, and says since when that is known. `None`: the lease ended first.
    pub(crate) async fn called_off(&self) -> Option<u64> {
        self.settle();
        let look = |standing: &HoldingState, _| match standing {
            HoldingState { called_off_ms: Some(since_ms), .. } => Some(Some(*since_ms)),
            HoldingState { snapshot: LeaseSnapshot { state: LeaseState::Lost, .. }, .. } => Some(None),
            _ => None,
        };
        self.watch.when(look).await
    }

    /// Waits until it is lost.
    pub(crate) async fn lost(&self) -> LostCause {
        self.settle();
        self.watch.when(|standing, _| standing.snapshot.lost.clone()).await
    }

    /// Waits until the holder is asked to yield; `None`: the lease ended first.
    pub(crate) async fn yield_requested(&self) -> Option<YieldRequest> {
        self.settle();
        let look = |standing: &HoldingState, _| match &standing.snapshot {
            LeaseSnapshot { state: LeaseState::Lost, .. } => Some(None),
            snapshot => snapshot.yield_request.clone().map(Some),
        };
        self.watch.when(look).await
    }

    /// Waits for a version later than `seen`.
    pub(crate) async fn changed(&self, seen: u64) -> (u64, LeaseSnapshot) {
        self.settle();
        let news = |standing: &HoldingState, version| {
            let over = standing.snapshot.state == LeaseState::Lost;
            (version > seen || over).then(|| (version, standing.snapshot.clone()))
        };
        self.watch.when(news).await
    }

    /// How long the holder can still rely on it unless it is renewed.
    pub(crate) fn remaining(&self) -> Duration {
        let snapshot = self.look();
        let lost_at_ms = if snapshot.lost.is_some() { 0 } else { snapshot.lost_at_ms };
        Duration::from_millis(lost_at_ms.saturating_sub(self.now_ms()))
    }

    pub(crate) fn error(&self, cause: LostCause) -> Error {
        Error::lost(self.granted.held.clone(), self.granted.token, cause)
    }
}

impl HoldingState {
    fn why_over(&self, max_age_ms: Option<u64>) -> LostCause {
        if self.failure.is_none() && self.cut_short {
            if let Some(notice) = &self.snapshot.yield_request {
                let (outcome, by) = (Some(LeaseOutcome::Yielded), Some(notice.contender.clone()));
                return LostCause::Ended { outcome, current_token: None, by, reason: None };
            }
            if max_age_ms.is_some() {
                return LostCause::ended(Some(LeaseOutcome::AgedOut), None);
            }
        }
        LostCause::NotRenewed { failure: self.failure.clone() }
    }
}

impl fmt::Debug for Holding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let HoldGrant { held, token, owner, task, .. } = &self.granted;
        let snapshot = self.look();
        f.debug_struct("Lease")
            .field("held", held)
            .field("token", token)
            .field("owner", owner)
            .field("task", task)
            .field("state", &snapshot.state)
            .field("deadline_ms", &snapshot.deadline_ms)
            .finish_non_exhaustive()
    }
}
