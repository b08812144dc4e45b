//! Where a span stands: the trace that it belongs to, and its own id, as W3C's `traceparent` carries them.

use std::fmt;

use sha2::{Digest, Sha256};

use crate::access::{hex, unhex};

/// A trace, and one span in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TraceContext {
    pub(crate) trace: [u8; 16],
    pub(crate) span: [u8; 8],
    /// Whether the trace is to be recorded.
    pub(crate) sampled: bool,
}

impl TraceContext {
    /// Reads a `traceparent`. What has not its form is none: a trace is never a reason to refuse anything.
    pub(crate) fn parse(text: &str) -> Option<TraceContext> {
        let mut fields = text.trim().split('-');
        let (version, trace, span, flags) = (fields.next()?, fields.next()?, fields.next()?, fields.next()?);
        let (version, flags) = (unhex::<1>(version)?, unhex::<1>(flags)?);
        let context = TraceContext { trace: unhex(trace)?, span: unhex(span)?, sampled: flags[0] & 1 == 1 };
        let broken = version[0] == 0xff || version[0] == 0 && fields.next().is_some();
        (!broken && context.trace != [0; 16] && context.span != [0; 8]).then_some(context)
    }

    /// A span that follows from some names, always the same, in a trace that follows from them too.
    pub(crate) fn derived(names: &[&[u8]]) -> TraceContext {
        let (mut trace, mut span) = ([0; 16], [0; 8]);
        let digest = digest(names);
        trace.copy_from_slice(&digest[..16]);
        span.copy_from_slice(&digest[16..24]);
        TraceContext { trace, span, sampled: true }
    }

    /// The span in this trace that follows from some names.
    pub(crate) fn with_span_of(self, names: &[&[u8]]) -> TraceContext {
        TraceContext { span: TraceContext::derived(names).span, ..self }
    }
}

/// Names of any length, none running into the next.
fn digest(names: &[&[u8]]) -> [u8; 32] {
    let mut hasher = Sha256::new();
    for name in names {
        hasher.update((name.len() as u64).to_be_bytes());
        hasher.update(name);
    }
    hasher.finalize().into()
}

impl fmt::Display for TraceContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let flags = u8::from(self.sampled);
        write!(f, "00-{}-{}-{flags:02x}", hex(&self.trace), hex(&self.span))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_traceparent_is_read_and_written() {
        let text = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
        assert_eq!(TraceContext::parse(text).unwrap().to_string(), text);
        assert!(!TraceContext::parse(&text.replace("-01", "-00")).unwrap().sampled);
        let zeros = format!("00-{}-b7ad6b7169203331-01", "0".repeat(32));
        for bad in
            ["", "00-1-2-3", &zeros, &format!("{text}-x"), &text.replacen("00", "ff", 1), &"é".repeat(30)]
        {
            assert_eq!(TraceContext::parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn what_is_derived_is_always_the_same_and_of_its_names_only() {
        let one = TraceContext::derived(&[b"a", b"bc"]);
        assert_eq!(one, TraceContext::derived(&[b"a", b"bc"]));
        assert_ne!(one, TraceContext::derived(&[b"ab", b"c"]));
        assert_eq!(one.with_span_of(&[b"x"]).trace, one.trace);
    }
}
