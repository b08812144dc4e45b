//! The options of a new job, for `job enqueue` and `schedule set`.

use std::num::NonZeroU32;

use fencehold_core::BadInput;
use fencehold_core::job::JobOptions;
use fencehold_core::limits::PAYLOAD_BYTES_MAX;
use fencehold_core::retry::RetryPolicy;
use serde::de::IgnoredAny;

use crate::duration::parse_ms;

/// How a job is tried.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Job options")]
pub(crate) struct JobArgs {
    /// Higher is claimed first
    #[arg(long, value_name = "N", default_value_t = 0, allow_hyphen_values = true)]
    priority: i16,
    /// Delay after a failure: fixed:10s, linear:5s..10m, exponential:1s..1h~20%
    #[arg(long, value_name = "POLICY", default_value_t = RetryPolicy::default())]
    retry: RetryPolicy,
    /// After this many failures it has failed permanently
    #[arg(long, value_name = "N", default_value_t = JobOptions::default().max_failures, allow_hyphen_values = true)]
    max_failures: u16,
    /// After this many crashed workers it is quarantined
    #[arg(long, value_name = "N", default_value_t = JobOptions::default().max_crashes, allow_hyphen_values = true)]
    max_crashes: u16,
    /// How long one attempt may take; then it has failed
    #[arg(long, value_name = "DURATION", value_parser = parse_ms, allow_hyphen_values = true)]
    attempt_timeout: Option<u64>,
}

impl JobArgs {
    pub(crate) fn options(&self) -> Result<JobOptions, BadInput> {
        let attempt_timeout_ms = self.attempt_timeout.map(attempt_timeout_ms).transpose()?;
        let options = JobOptions {
            priority: self.priority,
            max_failures: self.max_failures,
            max_crashes: self.max_crashes,
            attempt_timeout_ms,
            retry: self.retry,
        };
        options.check().map(|()| options)
    }
}

fn attempt_timeout_ms(ms: u64) -> Result<NonZeroU32, BadInput> {
    let bad = || BadInput::new("attempt_timeout_ms", format!("is {ms} ms; it takes 1 ms to 30 days"));
    u32::try_from(ms).ok().and_then(NonZeroU32::new).ok_or_else(bad)
}

/// A payload that any store takes: JSON, and not too long.
#[derive(Clone, Debug)]
pub(crate) struct Payload(pub(crate) Box<str>);

impl std::str::FromStr for Payload {
    type Err = String;

    /// The message names no field: the reader of a flag or a line puts its name before it.
    fn from_str(text: &str) -> Result<Self, String> {
        if text.len() > PAYLOAD_BYTES_MAX {
            return Err(format!(
                "the payload has {} bytes; the limit is {PAYLOAD_BYTES_MAX} (1 MiB)",
                text.len()
            ));
        }
        serde_json::from_str::<IgnoredAny>(text)
            .map(|_| Payload(text.trim().into()))
            // A payload is one line nearly always: the column says enough, and `line 1` would be mistaken for the file's.
            .map_err(|error| format!("the payload is not JSON: {error}").replace(" at line 1 column", " at column"))
    }
}

/// A name and a value.
pub(crate) type Label = (Box<str>, Box<str>);

/// Reads `name=value`.
pub(crate) fn parse_label(text: &str) -> Result<Label, String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.into(), value.into())),
        _ => Err("a label is written NAME=VALUE".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bad_payload_says_what_is_wrong_with_it() {
        let long = format!("\"{}\"", "x".repeat(PAYLOAD_BYTES_MAX));
        for (text, says) in [
            ("", "not JSON"),
            ("{\"a\":", "not JSON"),
            ("{} {}", "not JSON"),
            ("hello", "not JSON"),
            (long.as_str(), "the limit is 1048576"),
        ] {
            let error = text.parse::<Payload>().unwrap_err();
            assert!(error.contains(says), "{error}");
        }
        assert_eq!(&*" {\"a\": 1}\n".parse::<Payload>().unwrap().0, "{\"a\": 1}");
    }

    #[test]
    fn a_label_is_split_at_its_first_sign() {
        assert_eq!(parse_label("a=b=c"), Ok(("a".into(), "b=c".into())));
        assert!(parse_label("=b").is_err() && parse_label("a").is_err());
    }
}
