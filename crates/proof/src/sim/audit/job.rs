//! What was promised of one job: one running claim, an end that stands, effects that are recorded once.

use std::collections::BTreeMap;

use fencehold_contract::job::{ClaimedJob, JobDetail};
use fencehold_core::Timestamp;
use fencehold_core::job::{JobId, JobState};
use fencehold_core::ledger::{Effect, EffectState, InDoubtPolicy};
use fencehold_core::limits::TRAIL_MAX;

use super::{Audit, DurationRange, HAPPENS_WITHIN_MS, Outage};
use crate::simulated::ImageState;

/// The newest attempt at a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct AuditedClaim {
    pub(super) token: u64,
    pub(super) hold: [u8; 16],
    pub(super) ttl_ms: u64,
    pub(super) span: DurationRange,
    /// How it ended by its own word, and when that was; what was said again in the same step is no surprise.
    pub(super) said: Option<(AttemptEnd, u64)>,
}

/// How an attempt ended that did not simply run out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AttemptEnd {
    Complete,
    Fail,
    Snooze,
    HandBack,
    /// It stopped at an intent, was abandoned, or someone decided over its head.
    Silenced,
}

/// An effect, as far as it was answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct AuditedEffect {
    /// The attempt that announced or recorded it.
    pub(super) token: u64,
    /// When it was first heard of, among the effects of its job.
    pub(super) nth: usize,
    pub(super) policy: InDoubtPolicy,
    /// `None`: it was announced, and its outcome was not reported.
    pub(super) value: Option<Box<str>>,
    pub(super) can_be_undone: bool,
    pub(super) undone: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct AuditedJob {
    /// `None`: it was made by the store, and no one has seen it yet.
    pub(super) payload: Option<Box<str>>,
    pub(super) claim: Option<AuditedClaim>,
    /// The attempts before, by hold id and token, and how they ended by their own word.
    pub(super) earlier: Vec<([u8; 16], u64, Option<AttemptEnd>)>,
    /// How it ended, where it did; also `Indeterminate`, until a person has looked.
    pub(super) ended: Option<JobState>,
    pub(super) cancel_asked: bool,
    /// Someone had it start over: what was said before counts no more.
    pub(super) was_retried: bool,
    pub(super) checkpoint: Option<Vec<u8>>,
    pub(super) effects: BTreeMap<String, AuditedEffect>,
    /// Where it stands in line; `None`: the store made it.
    pub(super) queue: Option<String>,
    /// No one gets it before this moment.
    pub(super) not_before_ms: u64,
    /// It is ready at this moment, unless it is claimed.
    pub(super) ready_by_ms: u64,
    /// The moment of the wall clock that it waits for.
    pub(super) moment: Option<WallMoment>,
    pub(super) failures: u16,
    pub(super) crashes: u16,
    pub(super) max_attempts: u16,
    pub(super) max_crashes: u16,
    pub(super) undoes: Option<(JobId, String)>,
}

/// A moment of the wall clock. Once it has come, it has come, wherever the clock is set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct WallMoment {
    pub(super) wall_ms: u64,
    /// It has come: the job may be given.
    pub(super) came: bool,
    /// Since when the store certainly knows that.
    pub(super) since_ms: Option<u64>,
}

/// How an attempt stands that shows its hold id and its token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AttemptStatus {
    Live,
    /// After a power cut or a failed disk: live, or not.
    MaybeLive,
    RunOut,
    Said(AttemptEnd),
    /// The same, and others have had the job since.
    SaidEarlier {
        said: AttemptEnd,
        /// Whether the job certainly remembers it.
        remembered: bool,
    },
    Stale,
}

impl AuditedJob {
    pub(super) fn new(payload: Option<Box<str>>) -> Self {
        AuditedJob {
            payload,
            claim: None,
            earlier: Vec::new(),
            ended: None,
            cancel_asked: false,
            was_retried: false,
            checkpoint: None,
            effects: BTreeMap::new(),
            queue: None,
            not_before_ms: 0,
            ready_by_ms: 0,
            moment: None,
            failures: 0,
            crashes: 0,
            max_attempts: u16::MAX,
            max_crashes: u16::MAX,
            undoes: None,
        }
    }

    pub(super) fn speaker(&self, now_ms: u64, hold: [u8; 16], token: u64) -> AttemptStatus {
        let Some(claim) = self.claim.as_ref().filter(|claim| claim.token == token && claim.hold == hold)
        else {
            let mut earlier = self.earlier.iter().rev().enumerate();
            let found = earlier.find(|(_, attempt)| (attempt.0, attempt.1) == (hold, token));
            return match found.map(|(later, attempt)| (later, attempt.2)) {
                // What was completed was started over, or no attempt would have had it since.
                None | Some((_, None | Some(AttemptEnd::Complete | AttemptEnd::Silenced))) => {
                    AttemptStatus::Stale
                }
                Some((later, Some(said))) => {
                    AttemptStatus::SaidEarlier { said, remembered: later < TRAIL_MAX / 2 }
                }
            };
        };
        if let Some((said, _)) = claim.said {
            return AttemptStatus::Said(said);
        }
        if now_ms < claim.span.certain_until_ms {
            AttemptStatus::Live
        } else if now_ms < claim.span.possible_until_ms {
            AttemptStatus::MaybeLive
        } else {
            AttemptStatus::RunOut
        }
    }

    /// The claim that is certainly live.
    pub(super) fn live(&self, now_ms: u64) -> Option<&AuditedClaim> {
        self.claim
            .as_ref()
            .filter(|claim| claim.said.is_none() && now_ms < claim.span.certain_until_ms)
    }

    /// Whether it was called off and may have come to its end, by a claim that ran out unseen.
    pub(super) fn may_be_cancelled(&self, now_ms: u64) -> bool {
        self.cancel_asked && self.live(now_ms).is_none()
    }

    pub(super) fn ends_claim(&mut self, said: AttemptEnd, now_ms: u64) {
        if let Some(claim) = &mut self.claim {
            claim.said.get_or_insert((said, now_ms));
        }
        if self.cancel_asked && self.ended.is_none() && said != AttemptEnd::Complete {
            self.ended = Some(JobState::Cancelled);
        }
    }

    /// It is ready at this moment of the store's clock, and not before.
    pub(super) fn waits_until(&mut self, ms: u64) {
        (self.not_before_ms, self.ready_by_ms) = (ms, ms);
    }

    /// Looks whether its moment of the wall clock has come. The store may take a little to note it; a clock that is set back
    /// before that leaves both possible.
    pub(super) fn moment_comes(&mut self, now: Timestamp, awake_since_ms: u64) {
        let Some(moment) = &mut self.moment else { return };
        if now.wall_ms >= moment.wall_ms {
            moment.came = true;
            moment.since_ms.get_or_insert(now.store_ms);
        } else if let Some(since_ms) = moment.since_ms
            && now.store_ms.saturating_sub(since_ms.max(awake_since_ms)) <= HAPPENS_WITHIN_MS
        {
            moment.since_ms = None;
        }
    }

    /// Since when it is certainly ready to be claimed.
    pub(super) fn ready_since_ms(&self) -> Option<u64> {
        if self.ended.is_some() || self.cancel_asked {
            return None;
        }
        match &self.claim {
            None => match self.moment {
                Some(moment) => moment.since_ms,
                None => Some(self.ready_by_ms),
            },
            // What became of a claim that ran out or was ended by others is not known from its answers.
            Some(claim) => match claim.said? {
                (AttemptEnd::Fail | AttemptEnd::Snooze | AttemptEnd::HandBack, _) => Some(self.ready_by_ms),
                (AttemptEnd::Complete | AttemptEnd::Silenced, _) => None,
            },
        }
    }

    pub(super) fn restarted(&mut self, gap: &Outage) {
        let Outage { stopped_ms, now_ms, found, .. } = *gap;
        self.not_before_ms = gap.earliest_ms(self.not_before_ms);
        self.ready_by_ms = gap.latest_ms(self.ready_by_ms);
        if let Some(moment) = self.moment.as_mut().filter(|moment| gap.wall_ms >= moment.wall_ms) {
            // One who starts looks at the clock, and notes what has come with its first step.
            moment.came = true;
        }
        if let Some(moment) = self.moment.as_mut().filter(|_| found != ImageState::SameBoot) {
            // That it was noted need not have been synced.
            moment.since_ms = None;
        }
        if let Some(claim) = self.claim.as_mut().filter(|claim| claim.said.is_none()) {
            claim.span.restarted(stopped_ms, now_ms, claim.ttl_ms, found);
        }
    }

    /// A claim of this job was given, fresh.
    pub(super) fn claimed(
        &mut self,
        now_ms: u64,
        hold: [u8; 16],
        token: u64,
        remaining_ms: u64,
        ttl_ms: u64,
    ) -> Audit {
        if let Some(live) = self.live(now_ms) {
            return Err(format!("P1: token {token} was given while token {} works on the job", live.token));
        }
        if let Some(state) = self.ended {
            return Err(format!("P10: a job that is {state} was given out under token {token}"));
        }
        if self.cancel_asked {
            return Err(format!("P9: a job that was called off was given out under token {token}"));
        }
        if now_ms < self.not_before_ms {
            let early_ms = self.not_before_ms - now_ms;
            return Err(format!("P4: token {token} was given {early_ms} ms before the job was due"));
        }
        if self.moment.is_some_and(|moment| !moment.came) {
            return Err(format!("P4: token {token} was given before the moment that the job waits for"));
        }
        if remaining_ms != ttl_ms {
            return Err(format!("P4: a claim for {ttl_ms} ms was given {remaining_ms} ms"));
        }
        if self.claim.as_ref().is_some_and(|claim| claim.said.is_none()) {
            self.crashes += 1;
            if self.crashes >= self.max_crashes {
                return Err(format!("P10: after {} crashes the job was given out again", self.crashes));
            }
        }
        if let Some(before) = &self.claim {
            self.earlier
                .push((before.hold, before.token, before.said.map(|(said, _)| said)));
        }
        self.claim = Some(AuditedClaim {
            token,
            hold,
            ttl_ms,
            span: DurationRange::until(now_ms + ttl_ms),
            said: None,
        });
        Ok(())
    }

    /// The same claim was answered again.
    pub(super) fn claim_resumed(&mut self, now_ms: u64, token: u64, remaining_ms: u64) -> Audit {
        let Some(claim) = &mut self.claim else { return Err("there is no claim".to_owned()) };
        let just_now = claim.said.is_some_and(|(_, at_ms)| at_ms == now_ms);
        let until_ms = now_ms + remaining_ms;
        if (claim.said.is_none() || just_now) && until_ms <= claim.span.possible_until_ms {
            claim.span.certain_until_ms = claim.span.certain_until_ms.max(until_ms);
            return Ok(());
        }
        Err(format!(
            "P7: the claim under token {token} was answered again with {remaining_ms} ms that it does not have"
        ))
    }

    /// What a holder is handed: everything that was acknowledged before, and nothing else.
    pub(super) fn handed(&self, job: &ClaimedJob) -> Audit {
        let token = job.token;
        if self.payload.as_ref().is_some_and(|payload| *payload != job.payload) {
            return Err(format!("P6: token {token} was handed another payload than was enqueued"));
        }
        if self.checkpoint != job.checkpoint {
            return Err(format!("P6: token {token} was handed another checkpoint than was written"));
        }
        self.ledger_is(&job.effects)
    }

    /// Whether the ledger says what was answered about it.
    fn ledger_is(&self, effects: &[Effect]) -> Audit {
        for effect in effects {
            let name = effect.name.as_str();
            let Some(entry) = self.effects.get(name) else {
                return Err(format!("P8: the ledger has an effect {name} that was never written"));
            };
            let open = matches!(effect.state, EffectState::Intended(_));
            if effect.token.get() != entry.token
                || open != entry.value.is_none()
                || effect.value != entry.value
            {
                return Err(format!("P8: the ledger has the effect {name} otherwise than it was written"));
            }
        }
        match self
            .effects
            .keys()
            .find(|name| effects.iter().all(|effect| effect.name.as_str() != *name))
        {
            Some(name) => Err(format!("P6: the ledger has forgotten the effect {name}")),
            None => Ok(()),
        }
    }

    /// How the job was seen.
    pub(super) fn seen(&self, now_ms: u64, detail: &JobDetail) -> Audit {
        let state = detail.job.state;
        if let Some(ended) = self.ended {
            if state != ended {
                return Err(format!("P6: a job that is {ended} was seen {state}"));
            }
        } else if state.is_final() && !(state == JobState::Cancelled && self.may_be_cancelled(now_ms)) {
            return Err(format!("P6: a job was seen {state}, and no one ended it"));
        }
        if let Some(live) = self.live(now_ms)
            && (state != JobState::Running || detail.job.token.get() != live.token)
        {
            return Err(format!("P6: token {} works on a job that was seen {state}", live.token));
        }
        if state == JobState::Running && self.claim.as_ref().is_none_or(|claim| claim.said.is_some()) {
            return Err("P10: a job was seen running, and no attempt has it".to_owned());
        }
        self.ledger_is(&detail.effects)
    }

    /// What is undone next, last effect first: `Err` says why it is not this one's turn.
    pub(super) fn undoes_next(&self, now_ms: u64, effect: &str) -> Audit {
        let undone_for = matches!(self.ended, Some(JobState::Failed | JobState::Cancelled));
        if !undone_for && !self.may_be_cancelled(now_ms) {
            return Err(format!("P8: the effect {effect} is undone, and its job has not failed"));
        }
        let Some(entry) = self
            .effects
            .get(effect)
            .filter(|entry| entry.value.is_some() && entry.can_be_undone)
        else {
            return Err(format!("P8: the effect {effect} is undone, which cannot be"));
        };
        let later = self.effects.iter().find(|(_, other)| {
            other.value.is_some() && other.can_be_undone && !other.undone && other.nth > entry.nth
        });
        match later {
            Some((name, _)) => {
                Err(format!("P8: the effect {effect} is undone before {name}, which came later"))
            }
            None => Ok(()),
        }
    }
}
