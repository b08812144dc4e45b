//! A hold that a script kept: its id from the environment or from stdin, never from the arguments, where everybody on
//! the machine could read it.

use std::io::{IsTerminal, Read};

use fencehold_contract::HoldRef;
use fencehold_contract::job::AttemptRef;
use fencehold_core::job::JobId;
use fencehold_core::{HoldId, Key, Token};

use crate::exit_code::ExitStatus;
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
    let mut bits = [0; 16];
    getrandom::fill(&mut bits).map_err(|error| {
        Failure::new(ExitStatus::Failed, format!("the system gives no randomness: {error}"))
    })?;
    Ok(HoldId::from_random(bits))
}

/// The hold that the environment and stdin name.
pub(crate) fn kept(key: Key, token: Option<u64>) -> Result<HoldRef, Failure> {
    Ok(HoldRef { key, hold_id: hold_id()?, token: self::token(token)? })
}

/// The attempt at a job that the environment and stdin name.
pub(crate) fn attempt(job: Option<JobId>, token: Option<u64>) -> Result<AttemptRef, Failure> {
    let job = match job {
        Some(job) => job,
        None => job_id()?,
    };
    Ok(AttemptRef { job_id: job, hold_id: hold_id()?, token: self::token(token)? })
}

fn job_id() -> Result<JobId, Failure> {
    let Some(text) = std::env::var_os(JOB_VARIABLE).filter(|text| !text.is_empty()) else {
        return Err(Failure::new(ExitStatus::Usage, "the job is missing").with_next(format!(
            "Set {JOB_VARIABLE}, or name the job, as `fencehold job claim` printed it."
        )));
    };
    JobId::parse(&text.to_string_lossy())
        .map_err(|error| Failure::new(ExitStatus::Usage, format!("{JOB_VARIABLE}: {error}")))
}

fn hold_id() -> Result<HoldId, Failure> {
    if let Some(text) = std::env::var_os(HOLD_VARIABLE).filter(|text| !text.is_empty()) {
        let parsed = HoldId::parse(&text.to_string_lossy());
        return parsed.map_err(|error| Failure::new(ExitStatus::Usage, format!("{HOLD_VARIABLE}: {error}")));
    }
    let stdin = std::io::stdin();
    let missing = || {
        Failure::new(ExitStatus::Usage, "the hold id is missing").with_next(format!(
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
        .map_err(|error| Failure::new(ExitStatus::Usage, format!("stdin cannot be read: {error}")))?;
    let text = String::from_utf8_lossy(&bytes);
    if text.trim().is_empty() {
        return Err(missing());
    }
    HoldId::parse(&text).map_err(|error| Failure::new(ExitStatus::Usage, format!("stdin: {error}")))
}

fn token(flag: Option<u64>) -> Result<Token, Failure> {
    if let Some(token) = flag {
        return Ok(Token::new(token));
    }
    let Some(text) = std::env::var_os(TOKEN_VARIABLE).filter(|text| !text.is_empty()) else {
        return Err(Failure::new(ExitStatus::Usage, "the token is missing").with_next(format!(
            "Set {TOKEN_VARIABLE}, or give --token N, as `lease acquire` or `job claim` printed it."
        )));
    };
    let number = text.to_str().and_then(|text| text.trim().parse().ok());
    number
        .map(Token::new)
        .ok_or_else(|| Failure::new(ExitStatus::Usage, format!("{TOKEN_VARIABLE}: not a token")))
}
