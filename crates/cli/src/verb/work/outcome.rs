//! What a run of the command means for its job.

use std::time::Duration;

use fencehold::{JobError, Outcome};
use fencehold_core::limits::{ERROR_BYTES_KEPT, PAYLOAD_BYTES_MAX};
use serde_json::value::RawValue;

/// The exit code by which a command puts its job off: `EX_TEMPFAIL` of sysexits.
pub(super) const SNOOZE_CODE: u8 = 75;

/// What an exit code means.
pub(super) fn outcome(
    code: u8,
    stdout: &[u8],
    stderr_end: &[u8],
    snooze: Duration,
) -> Result<Outcome, JobError> {
    match code {
        0 => Outcome::complete(&result(stdout)),
        SNOOZE_CODE => Ok(Outcome::snooze(snooze)),
        code => Err(JobError::new(error(code, stderr_end))),
    }
}

/// What the command wrote, if it is JSON; else as a JSON text, cut where it would be too long. Nothing is nothing.
fn result(stdout: &[u8]) -> Option<Box<RawValue>> {
    let text = String::from_utf8_lossy(stdout);
    let text = text.trim_end();
    if text.is_empty() {
        return None;
    }
    if text.len() <= PAYLOAD_BYTES_MAX
        && let Ok(json) = RawValue::from_string(text.trim_start().to_owned())
    {
        return Some(json);
    }
    let mut end = text.len().min(PAYLOAD_BYTES_MAX);
    loop {
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        let json = serde_json::to_string(&text[..end]).ok()?;
        if json.len() <= PAYLOAD_BYTES_MAX {
            return RawValue::from_string(json).ok();
        }
        // What must be escaped grows: a little more is cut than is too much, until it fits.
        end = end.saturating_sub((json.len() - PAYLOAD_BYTES_MAX).div_ceil(6).max(1));
    }
}

fn error(code: u8, stderr_end: &[u8]) -> String {
    let text = String::from_utf8_lossy(stderr_end);
    let text = text.trim();
    let code = match code {
        129..=192 => format!("exit code {code} (128 + signal {})", code - 128),
        code => format!("exit code {code}"),
    };
    if text.is_empty() { code } else { format!("{code}: {text}") }
}

/// The end of what was written, and no more than is kept of an error.
#[derive(Debug, Default)]
pub(super) struct OutputEnd(Vec<u8>);

impl OutputEnd {
    const KEPT: usize = ERROR_BYTES_KEPT - 64;

    pub(super) fn add(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
        if self.0.len() > 2 * Self::KEPT {
            self.0.drain(..self.0.len() - Self::KEPT);
        }
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.0[self.0.len().saturating_sub(Self::KEPT)..]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn completed(stdout: &[u8]) -> Option<String> {
        result(stdout).map(|json| json.get().to_owned())
    }

    #[test]
    fn json_is_kept_as_it_is_and_anything_else_as_a_text() {
        assert_eq!(completed(b""), None);
        assert_eq!(completed(b"\n"), None);
        assert_eq!(completed(b"{\"a\": 1}\n").as_deref(), Some("{\"a\": 1}"));
        assert_eq!(completed(b"done \"well\"\n").as_deref(), Some("\"done \\\"well\\\"\""));
        assert_eq!(completed(b"\xff").as_deref(), Some("\"\u{fffd}\""));
    }

    #[test]
    fn a_result_is_never_too_long_and_always_json() {
        for byte in [b'x', b'"', 1, 0xff] {
            let result = completed(&vec![byte; PAYLOAD_BYTES_MAX + 5]).unwrap();
            assert!(result.len() <= PAYLOAD_BYTES_MAX && result.len() > PAYLOAD_BYTES_MAX / 2);
            assert!(serde_json::from_str::<String>(&result).is_ok());
        }
    }

    #[test]
    fn other_codes_fail_with_the_end_of_what_was_said() {
        let mut end = OutputEnd::default();
        for nth in 0..10_000 {
            end.add(format!("line {nth}\n").as_bytes());
        }
        let failed = |code, said| outcome(code, b"ignored", said, Duration::ZERO).unwrap_err().to_string();
        let error = failed(3, end.bytes());
        assert!(error.starts_with("exit code 3: ") && error.ends_with("line 9999"), "{error}");
        assert!(error.len() <= ERROR_BYTES_KEPT);
        assert_eq!(failed(137, b""), "exit code 137 (128 + signal 9)");
    }

    #[test]
    fn one_code_snoozes() {
        let snooze = Duration::from_millis(7);
        assert_eq!(outcome(75, b"", b"", snooze).ok(), Some(Outcome::snooze(snooze)));
    }
}
