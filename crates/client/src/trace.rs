//! The W3C trace context, as far as it is checked: its form.

use fencehold_core::BadInput;
use fencehold_core::limits::TRACE_BYTES_MAX;

/// The length of a `traceparent` of version 00.
const LENGTH: usize = 55;

/// Checks the form of a `traceparent`: version, trace id, parent id, flags. Versions to come may have more at the end.
pub(crate) fn checked(text: Box<str>) -> Result<Box<str>, BadInput> {
    let bad = |problem: &str| {
        let like = "a traceparent looks like 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
        Err(BadInput::new("trace", format!("{problem}; {like}")))
    };
    if text.len() > TRACE_BYTES_MAX {
        return bad(&format!("has {} bytes; the limit is {TRACE_BYTES_MAX}", text.len()));
    }
    let fields: Vec<&str> = text.split('-').collect();
    let [version, trace, parent, flags, more @ ..] = fields.as_slice() else {
        return bad("does not have four fields between hyphens");
    };
    let lengths =
        [(version, 2, "version"), (trace, 32, "trace id"), (parent, 16, "parent id"), (flags, 2, "flags")];
    for (field, digits, name) in lengths {
        let fine = |c: u8| c.is_ascii_digit() || (b'a'..=b'f').contains(&c);
        if field.len() != digits || !field.bytes().all(fine) {
            return bad(&format!("its {name} is not {digits} hexadecimal digits in lower case"));
        }
    }
    if *version == "ff" {
        return bad("its version ff is not one");
    }
    if trace.bytes().all(|c| c == b'0') || parent.bytes().all(|c| c == b'0') {
        return bad("its trace id or its parent id is all zeros");
    }
    if *version == "00" && (!more.is_empty() || text.len() != LENGTH) {
        return bad("has more than four fields");
    }
    if text.bytes().any(|c| c.is_ascii_control()) {
        return bad("has a control character");
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::checked;

    const GOOD: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    #[test]
    fn a_trace_context_is_checked_for_its_form() {
        let to_come = format!("{}-more", GOOD.replacen("00", "cc", 1));
        for good in [GOOD, &GOOD.replacen("00", "01", 1), &to_come] {
            assert_eq!(checked(good.into()).as_deref(), Ok(good));
        }
        let zeros = format!("00-{}-b7ad6b7169203331-01", "0".repeat(32));
        for bad in [
            "",
            "00",
            "00-1-2-3",
            &GOOD.to_uppercase(),
            &GOOD.replacen("00", "ff", 1),
            &format!("{GOOD}-more"),
            &GOOD.replace("0af7", "0xf7"),
            &zeros,
            &"é".repeat(40),
            &"-".repeat(300),
        ] {
            assert!(checked(bad.into()).is_err(), "{bad}");
        }
    }
}
