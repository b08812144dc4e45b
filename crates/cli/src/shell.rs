//! Texts for a shell: words that can be copied, lines that can be evaluated.

use std::fmt::Write as _;

/// A text as one word of a shell line, so that advice can be copied.
pub(crate) fn word(text: &str) -> String {
    let plain = |c: char| c.is_alphanumeric() || "_-./:@%+=,".contains(c);
    if !text.is_empty() && text.chars().all(plain) { text.to_owned() } else { quoted(text) }
}

/// A text in quotes, whatever a shell would make of it otherwise.
pub(crate) fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

/// Lines for `eval` that set variables and export them. Every value is quoted: it may hold anything a shell would obey.
pub(crate) fn exports(variables: &[(&str, &str)]) -> String {
    let mut lines = String::new();
    for (name, value) in variables {
        let _ = writeln!(lines, "{name}={}", quoted(value));
    }
    let names: Vec<&str> = variables.iter().map(|(name, _)| *name).collect();
    let _ = writeln!(lines, "export {}", names.join(" "));
    lines
}
