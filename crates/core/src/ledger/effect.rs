//! One effect: announced, recorded, found again.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::job::{EffectName, JobId, Kind, Queue};
use crate::token::Token;
use crate::wire::{AsJson, AsMoment, AsOptionalJson, null};

wire! {
    /// One named side effect of a job.
    #[derive(Hash)]
    pub struct Effect {
        /// Its name within the job.
        pub name: EffectName,
        /// Its place among the job's effects, in the order in which they were first heard of.
        pub nth: u16,
        /// The attempt that announced or recorded it.
        pub token: Token,
        /// When, in wall time.
        #[serde(rename = "at", with = "AsMoment")]
        pub at_wall_ms: u64,
        /// How it stands.
        pub state: EffectState,
        /// What it gave, as JSON.
        #[serde(default, with = "AsOptionalJson", skip_serializing_if = "Option::is_none")]
        pub value: Option<Box<str>>,
        /// The job that undoes it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub undo: Option<Box<UndoWith>>,
        /// The undo job, once it was enqueued.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub undo_job: Option<JobId>,
    }
}

/// How an effect stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum EffectState {
    /// It was announced; nobody has said yet what came of it.
    Intended(OnDoubt),
    /// It happened.
    Done,
    /// Its undo job is under way.
    Undoing,
    /// It was undone.
    Undone,
    /// Its undo job failed for good.
    UndoFailed,
}

impl fmt::Display for EffectState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            EffectState::Intended(_) => "intended",
            EffectState::Done => "done",
            EffectState::Undoing => "undoing",
            EffectState::Undone => "undone",
            EffectState::UndoFailed => "undo failed",
        })
    }
}

/// What an attempt does that finds an intent without an outcome.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum OnDoubt {
    /// Do it again under the same idempotency key: what it calls tells the two apart.
    #[default]
    RunAgain,
    /// Stop: a person must look.
    Ask,
}

impl OnDoubt {
    /// Every one, in the order of their tags.
    pub const ALL: [OnDoubt; 2] = [OnDoubt::RunAgain, OnDoubt::Ask];
}

wire! {
    /// The job that undoes an effect.
    #[derive(Hash)]
    #[serde(deny_unknown_fields)]
    pub struct UndoWith {
        /// Its kind.
        pub kind: Kind,
        /// Its queue; `None`: the queue of the job whose effect it undoes.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub queue: Option<Queue>,
        /// Its payload, as JSON.
        #[serde(default = "null", with = "AsJson")]
        pub payload: Box<str>,
    }
}

/// What becomes of an attempt that is about to have an effect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Begun {
    /// Go ahead. The effect as it is kept from now on.
    Go(Effect),
    /// It has happened already, and gave this.
    Recorded(Effect),
    /// Nobody knows whether it has happened: stop.
    InDoubt,
}

/// What came of an effect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// Its name.
    pub name: EffectName,
    /// What it gave, as JSON.
    pub value: Box<str>,
    /// The job that undoes it.
    pub undo: Option<Box<UndoWith>>,
}

/// The key under which every attempt has this effect: what it calls can tell a repetition by it.
pub fn idempotency_key(job: JobId, effect: &EffectName) -> String {
    format!("{job}/{effect}")
}

/// An attempt is about to have an effect. `nth` is the place of the next new effect.
pub fn begin(
    found: Option<&Effect>,
    name: &EffectName,
    policy: OnDoubt,
    token: Token,
    nth: u16,
    wall_ms: u64,
) -> Begun {
    match found {
        None => Begun::Go(Effect {
            name: name.clone(),
            nth,
            token,
            at_wall_ms: wall_ms,
            state: EffectState::Intended(policy),
            value: None,
            undo: None,
            undo_job: None,
        }),
        Some(found) => match found.state {
            // The same attempt asks again: its first asking was answered, or not.
            EffectState::Intended(_) if found.token == token => Begun::Go(found.clone()),
            EffectState::Intended(OnDoubt::Ask) => Begun::InDoubt,
            EffectState::Intended(OnDoubt::RunAgain) => {
                let state = EffectState::Intended(policy);
                Begun::Go(Effect { token, at_wall_ms: wall_ms, state, ..found.clone() })
            }
            _ if seeded!(RecordedEffectBegins) => {
                Begun::Go(Effect { state: EffectState::Intended(policy), value: None, ..found.clone() })
            }
            _ => Begun::Recorded(found.clone()),
        },
    }
}

/// An attempt knows that an effect did not happen. True: what it announced goes, as if it had never been.
///
/// What an earlier attempt announced stays: that one may have had the effect.
pub fn withdraws(found: &Effect, token: Token) -> bool {
    matches!(found.state, EffectState::Intended(_)) && found.token == token && !seeded!(IntentStays)
}

/// An effect has happened. The first record stands: `Err` is that one.
pub fn record(
    found: Option<&Effect>,
    outcome: &Outcome,
    token: Token,
    nth: u16,
    wall_ms: u64,
) -> Result<Effect, Effect> {
    if let Some(found) = found
        && !matches!(found.state, EffectState::Intended(_))
        && !seeded!(EffectRecordedTwice)
    {
        return Err(found.clone());
    }
    Ok(Effect {
        name: outcome.name.clone(),
        nth: found.map_or(nth, |found| found.nth),
        token,
        at_wall_ms: wall_ms,
        state: EffectState::Done,
        value: Some(outcome.value.clone()),
        undo: outcome.undo.clone(),
        undo_job: None,
    })
}
