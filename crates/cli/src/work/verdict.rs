//! What a run of the command means for its job.

use fencehold_contract::job::Word;
use fencehold_core::limits::{ERROR_BYTES_KEPT, PAYLOAD_BYTES_MAX};
use serde::de::IgnoredAny;

/// The exit code by which a command puts its job off: `EX_TEMPFAIL` of sysexits.
pub(crate) const SNOOZE_CODE: u8 = 75;

/// The word for an exit code.
pub(super) fn word(code: u8, stdout: &[u8], stderr_end: &[u8], snooze_ms: u64) -> Word {
    match code {
        0 => Word::Complete { result: result(stdout) },
        SNOOZE_CODE => Word::Snooze { for_ms: snooze_ms },
        code => Word::Fail { error: error(code, stderr_end), retry_in_ms: None, for_good: false },
    }
}

/// What the command wrote, if it is JSON; else as a JSON text, cut where it would be too long. Nothing is nothing.
fn result(stdout: &[u8]) -> Option<Box<str>> {
    let text = String::from_utf8_lossy(stdout);
    let text = text.trim_end();
    if text.is_empty() {
        return None;
    }
    if text.len() <= PAYLOAD_BYTES_MAX && serde_json::from_str::<IgnoredAny>(text).is_ok() {
        return Some(text.trim_start().into());
    }
    let mut end = text.len().min(PAYLOAD_BYTES_MAX);
    loop {
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        let json = serde_json::to_string(&text[..end]).ok()?;
        if json.len() <= PAYLOAD_BYTES_MAX {
            return Some(json.into());
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
pub(super) struct End(Vec<u8>);

impl End {
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
        match word(0, stdout, b"", 1) {
            Word::Complete { result } => result.map(Into::into),
            other => panic!("{other:?}"),
        }
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
        let mut end = End::default();
        for nth in 0..10_000 {
            end.add(format!("line {nth}\n").as_bytes());
        }
        let Word::Fail { error, for_good: false, .. } = word(3, b"ignored", end.bytes(), 1) else { panic!() };
        assert!(error.starts_with("exit code 3: ") && error.ends_with("line 9999"), "{error}");
        assert!(error.len() <= ERROR_BYTES_KEPT);
        let Word::Fail { error, .. } = word(137, b"", b"", 1) else { panic!() };
        assert_eq!(error, "exit code 137 (128 + signal 9)");
    }

    #[test]
    fn one_code_snoozes() {
        assert_eq!(word(75, b"", b"", 7), Word::Snooze { for_ms: 7 });
    }
}
