//! The ledger of a job: its side effects by name, each recorded at most once, and the order in which they are undone.
//!
//! An effect may be announced before it happens (an *intent*) and is recorded when it has (an *outcome*, with a value).
//! An attempt that finds an intent without an outcome cannot know whether the effect happened: it goes by the policy
//! that the intent was written with.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::job::{EffectName, JobId, JobKind, QueueName};
use crate::token::Token;
use crate::wire::{AsJson, AsMoment, AsOptionalJson, null};

wire! {
    /// One named side effect of a job.
    #[derive(Hash)]
    pub struct Effect {
        /// Its name within the job.
        pub name: EffectName,
        /// Its place among the job's effects, in the order in which they were first heard of.
        pub position: u16,
        /// The attempt that announced or recorded it.
        pub token: Token,
        /// When, in wall time.
        #[serde(rename = "written_at", with = "AsMoment")]
        pub written_at_ms: u64,
        /// How it stands.
        #[serde(flatten, with = "AsEffectState")]
        pub state: EffectState,
        /// What it gave, as JSON.
        #[serde(default, with = "AsOptionalJson", skip_serializing_if = "Option::is_none")]
        pub value: Option<Box<str>>,
        /// The job that undoes it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub compensation: Option<Box<Compensation>>,
        /// The undo job, once it was enqueued.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub compensation_job_id: Option<JobId>,
    }
}

/// How an effect stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum EffectState {
    /// It was announced; its outcome was not reported yet.
    Intended(InDoubtPolicy),
    /// It happened.
    Done,
    /// Its undo job is under way.
    Compensating,
    /// It was undone.
    Compensated,
    /// Its undo job failed for good.
    CompensationFailed,
}

impl EffectState {
    /// The state without what goes with it.
    pub const fn kind(self) -> EffectStateKind {
        match self {
            EffectState::Intended(_) => EffectStateKind::Intended,
            EffectState::Done => EffectStateKind::Done,
            EffectState::Compensating => EffectStateKind::Compensating,
            EffectState::Compensated => EffectStateKind::Compensated,
            EffectState::CompensationFailed => EffectStateKind::CompensationFailed,
        }
    }
}

impl fmt::Display for EffectState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.kind().fmt(f)
    }
}

worded! {
    /// The state of an effect without what goes with it.
    #[cfg_attr(feature = "schema", schemars(rename = "EffectState"))]
    pub enum EffectStateKind {
        /// It was announced: it may have happened.
        Intended = "intended",
        /// It happened.
        Done = "done",
        /// Its compensation is under way.
        Compensating = "compensating",
        /// It was compensated.
        Compensated = "compensated",
        /// Its compensation failed.
        CompensationFailed = "compensation failed",
    }
}

/// The JSON form of the state of an effect: two fields.
struct AsEffectState;

#[derive(Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
struct JsonEffectState {
    /// How it stands.
    state: EffectStateKind,
    /// Of an intended one: what an attempt does that finds it so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    in_doubt_policy: Option<InDoubtPolicy>,
}

impl AsEffectState {
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "that is how serde calls it")]
    fn serialize<S: Serializer>(state: &EffectState, serializer: S) -> Result<S::Ok, S::Error> {
        let in_doubt_policy = if let EffectState::Intended(policy) = *state { Some(policy) } else { None };
        JsonEffectState { state: state.kind(), in_doubt_policy }.serialize(serializer)
    }

    fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<EffectState, D::Error> {
        let JsonEffectState { state, in_doubt_policy } = JsonEffectState::deserialize(deserializer)?;
        Ok(match state {
            EffectStateKind::Intended => EffectState::Intended(in_doubt_policy.unwrap_or_default()),
            EffectStateKind::Done => EffectState::Done,
            EffectStateKind::Compensating => EffectState::Compensating,
            EffectStateKind::Compensated => EffectState::Compensated,
            EffectStateKind::CompensationFailed => EffectState::CompensationFailed,
        })
    }
}

#[cfg(feature = "schema")]
crate::schema_as! { AsEffectState = JsonEffectState }

/// What an attempt does that finds an intent without an outcome.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum InDoubtPolicy {
    /// Do it again under the same idempotency key: what it calls tells the two apart.
    #[default]
    Retry,
    /// Stop: a person must look.
    Manual,
}

impl InDoubtPolicy {
    /// Every one, in the order of their tags.
    pub const ALL: [InDoubtPolicy; 2] = [InDoubtPolicy::Retry, InDoubtPolicy::Manual];
}

wire! {
    /// The job that undoes an effect.
    #[derive(Hash)]
    #[serde(deny_unknown_fields)]
    pub struct Compensation {
        /// Its kind.
        pub kind: JobKind,
        /// Its queue; `None`: the queue of the job whose effect it undoes.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub queue: Option<QueueName>,
        /// Its payload, as JSON.
        #[serde(default = "null", with = "AsJson")]
        pub payload: Box<str>,
    }
}

/// What becomes of an attempt that is about to have an effect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EffectStart {
    /// Go ahead. The effect as it is kept from now on.
    Go(Effect),
    /// It has happened already, and gave this.
    Recorded(Effect),
    /// It may or may not have happened: stop.
    InDoubt,
}

/// What came of an effect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EffectOutcome {
    /// Its name.
    pub name: EffectName,
    /// What it gave, as JSON.
    pub value: Box<str>,
    /// The job that undoes it.
    pub compensation: Option<Box<Compensation>>,
}

/// The key under which every attempt has this effect: what it calls can tell a repetition by it.
pub fn idempotency_key(job: JobId, effect: &EffectName) -> String {
    format!("{job}/{effect}")
}

/// An attempt is about to have an effect. `nth` is the place of the next new effect.
pub fn begin(
    found: Option<&Effect>,
    name: &EffectName,
    policy: InDoubtPolicy,
    token: Token,
    nth: u16,
    wall_ms: u64,
) -> EffectStart {
    match found {
        None => EffectStart::Go(Effect {
            name: name.clone(),
            position: nth,
            token,
            written_at_ms: wall_ms,
            state: EffectState::Intended(policy),
            value: None,
            compensation: None,
            compensation_job_id: None,
        }),
        Some(found) => match found.state {
            // The same attempt asks again: its first asking was answered, or not.
            EffectState::Intended(_) if found.token == token => EffectStart::Go(found.clone()),
            EffectState::Intended(InDoubtPolicy::Manual) => EffectStart::InDoubt,
            EffectState::Intended(InDoubtPolicy::Retry) => {
                let state = EffectState::Intended(policy);
                EffectStart::Go(Effect { token, written_at_ms: wall_ms, state, ..found.clone() })
            }
            _ => EffectStart::Recorded(found.clone()),
        },
    }
}

/// An attempt knows that an effect did not happen. True: what it announced goes, as if it had never been.
///
/// What an earlier attempt announced stays: that one may have had the effect.
pub fn withdraws(found: &Effect, token: Token) -> bool {
    matches!(found.state, EffectState::Intended(_)) && found.token == token
}

/// An effect has happened. The first record stands: `Err` is that one.
pub fn record(
    found: Option<&Effect>,
    outcome: &EffectOutcome,
    token: Token,
    nth: u16,
    wall_ms: u64,
) -> Result<Effect, Effect> {
    if let Some(found) = found
        && !matches!(found.state, EffectState::Intended(_))
    {
        return Err(found.clone());
    }
    Ok(Effect {
        name: outcome.name.clone(),
        position: found.map_or(nth, |found| found.position),
        token,
        written_at_ms: wall_ms,
        state: EffectState::Done,
        value: Some(outcome.value.clone()),
        compensation: outcome.compensation.clone(),
        compensation_job_id: None,
    })
}

/// The effect to undo next; `None`: there is nothing (more) to undo, or an undo that failed stands in the way, or one is
/// under way.
pub fn next_to_undo(effects: &[Effect]) -> Option<&Effect> {
    let blocked =
        |effect: &Effect| matches!(effect.state, EffectState::Compensating | EffectState::CompensationFailed);
    if effects.iter().any(blocked) {
        return None;
    }
    effects
        .iter()
        .filter(|effect| effect.state == EffectState::Done && effect.compensation.is_some())
        .max_by_key(|effect| effect.position)
}

/// Whether nothing that can be undone is left.
pub fn stands_undone(effects: &[Effect]) -> bool {
    effects.iter().all(|effect| match effect.state {
        EffectState::Done => effect.compensation.is_none(),
        EffectState::Compensating | EffectState::CompensationFailed => false,
        EffectState::Intended(_) | EffectState::Compensated => true,
    })
}
