//! The tables of `docs/security.md`: each is what a test has seen, and the test fails when the page says something else.
//! `cargo xtask security` writes them anew.

use std::path::{Path, PathBuf};

/// Set to anything: the page is written, not compared.
const WRITE: &str = "FENCEHOLD_WRITE_SECURITY";

fn path() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/security.md")
}

/// Compares the table of this name with what was seen, or writes it.
pub fn check(name: &str, what: &str, columns: &[String], rows: &[(String, Vec<String>)]) {
    let seen = table(what, columns, rows);
    let (begin, end) = (format!("<!-- seen: {name} -->\n"), format!("<!-- end: {name} -->\n"));
    let page = std::fs::read_to_string(path()).unwrap();
    let from = page
        .find(&begin)
        .unwrap_or_else(|| panic!("docs/security.md has no line {begin}"))
        + begin.len();
    let to = page.find(&end).unwrap_or_else(|| panic!("docs/security.md has no line {end}"));
    let told = &page[from..to];
    if told == seen {
        return;
    }
    if std::env::var_os(WRITE).is_some() {
        // Beside it first: a page that is written halfway is lost.
        let new = path().with_extension(format!("{name}.new"));
        std::fs::write(&new, format!("{}{seen}{}", &page[..from], &page[to..])).unwrap();
        std::fs::rename(new, path()).unwrap();
        return;
    }
    let missing = |a: &str, b: &str| -> Vec<String> {
        a.lines()
            .filter(|line| !b.lines().any(|other| other == *line))
            .map(str::to_owned)
            .collect()
    };
    panic!(
        "docs/security.md, {name}: it is not what was seen; `cargo xtask security` writes it anew.\nseen:\n{}\nwritten:\n{}",
        missing(&seen, told).join("\n"),
        missing(told, &seen).join("\n")
    );
}

fn table(what: &str, columns: &[String], rows: &[(String, Vec<String>)]) -> String {
    let head = format!("| {what} | {} |\n|{}\n", columns.join(" | "), "---|".repeat(columns.len() + 1));
    let line = |(name, cells): &(String, Vec<String>)| {
        assert_eq!(cells.len(), columns.len(), "{name}");
        format!("| {name} | {} |\n", cells.join(" | "))
    };
    head + &rows.iter().map(line).collect::<String>()
}
