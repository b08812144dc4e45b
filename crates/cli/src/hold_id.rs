//! A hold that a script kept: its id from the environment or from stdin, never from the arguments, where everybody on
//! the machine could read it.

use std::ffi::OsString;
use std::fmt::Display;
use std::io::{IsTerminal, Read};

use fencehold_contract::HoldRef;
use fencehold_contract::job::AttemptRef;
use fencehold_core::job::JobId;
use fencehold_core::{HoldId, Key, Token};
use serde::Serialize;

use crate::context::variable;
use crate::failure::Failure;

pub(crate) const HOLD_VARIABLE: &str = "FENCEHOLD_HOLD_ID";
pub(crate) const TOKEN_VARIABLE: &str = "FENCEHOLD_TOKEN";
pub(crate) const TOKEN_HELP: &str = "The token that was granted [env: FENCEHOLD_TOKEN]";
pub(crate) const KEY_VARIABLE: &str = "FENCEHOLD_KEY";
pub(crate) const TASK_VARIABLE: &str = "FENCEHOLD_TASK";
pub(crate) const JOB_VARIABLE: &str = "FENCEHOLD_JOB_ID";

/// The longest line that is read as a hold id: enough for one, with room for blanks.
const STDIN_BYTES_MAX: u64 = 256;

/// A new hold id.
pub(crate) fn fresh() -> Result<HoldId, Failure> {
    Ok(HoldId::from_random(random()?))
}

/// What a caller was granted, with the one showing of its hold id.
#[derive(Debug, Serialize)]
pub(crate) struct WithHoldId<T> {
    #[serde(flatten)]
    pub(crate) granted: T,
    pub(crate) hold_id: String,
}

/// Random bytes, for a new id.
pub(crate) fn random<const BYTES: usize>() -> Result<[u8; BYTES], Failure> {
    let mut bytes = [0; BYTES];
    getrandom::fill(&mut bytes)
        .map_err(|error| Failure::failed(format!("the system gives no randomness: {error}")))?;
    Ok(bytes)
}

/// The hold that the environment and stdin name.
pub(crate) fn kept(key: Key, token: Option<u64>) -> Result<HoldRef, Failure> {
    Ok(HoldRef { key, hold_id: hold_id()?, token: self::token(token)? })
}

/// The attempt at a job that the environment and stdin name.
pub(crate) fn attempt(job: Option<JobId>, token: Option<u64>) -> Result<AttemptRef, Failure> {
    let named = || {
        let next = format!("Set {JOB_VARIABLE}, or name the job, as `fencehold job claim` printed it.");
        given(JOB_VARIABLE, JobId::parse)?.ok_or_else(|| Failure::usage("the job is missing").with_next(next))
    };
    Ok(AttemptRef { job_id: job.map_or_else(named, Ok)?, hold_id: hold_id()?, token: self::token(token)? })
}

/// What a variable names, if it is set.
fn given<T, E: Display>(name: &str, parse: impl Fn(&str) -> Result<T, E>) -> Result<Option<T>, Failure> {
    let parse = |text: OsString| parse(&text.to_string_lossy());
    let bad = |error| Failure::usage(format!("{name}: {error}"));
    variable(name).map(parse).transpose().map_err(bad)
}

/// For a verb whose stdin is something else: the hold id must be in the environment.
pub(crate) fn require_variable(why: &str) -> Result<(), Failure> {
    let missing = || {
        Failure::usage(format!("the hold id is missing, and {why}"))
            .with_next(format!("Set {HOLD_VARIABLE}, as `job claim` printed it."))
    };
    variable(HOLD_VARIABLE).map(drop).ok_or_else(missing)
}

fn hold_id() -> Result<HoldId, Failure> {
    if let Some(hold_id) = given(HOLD_VARIABLE, HoldId::parse)? {
        return Ok(hold_id);
    }
    let stdin = std::io::stdin();
    let missing = || {
        Failure::usage("the hold id is missing").with_next(format!(
            "Set {HOLD_VARIABLE}, or write it to stdin, as `lease acquire` or `job claim` printed it."
        ))
    };
    // No one types one: the user has forgotten the variable.
    if stdin.is_terminal() {
        return Err(missing());
    }
    let mut bytes = Vec::new();
    stdin
        .lock()
        .take(STDIN_BYTES_MAX)
        .read_to_end(&mut bytes)
        .map_err(|error| Failure::usage(format!("stdin cannot be read: {error}")))?;
    let text = String::from_utf8_lossy(&bytes);
    if text.trim().is_empty() {
        return Err(missing());
    }
    HoldId::parse(&text).map_err(|error| Failure::usage(format!("stdin: {error}")))
}

fn token(flag: Option<u64>) -> Result<Token, Failure> {
    let named = || {
        let next =
            format!("Set {TOKEN_VARIABLE}, or give --token N, as `lease acquire` or `job claim` printed it.");
        given(TOKEN_VARIABLE, |text| text.trim().parse().map_err(|_| "not a token"))?
            .ok_or_else(|| Failure::usage("the token is missing").with_next(next))
    };
    flag.map_or_else(named, Ok).map(Token::new)
}
