//! How many lines of code there are, without comments and blank lines: what ships, by crate, and the rest. With
//! `FENCEHOLD_LINES_SINCE=COMMIT`, those of a commit too.

use std::collections::BTreeMap;

use super::shipped;
use crate::process::git;

/// Lines of what ships by crate, and lines of everything else: tests, benchmarks, proofs, chores.
#[derive(Debug, Default, PartialEq, Eq)]
struct Lines {
    product: BTreeMap<String, usize>,
    other: usize,
}

pub(crate) fn run() -> Result<(), String> {
    let now = count("HEAD")?;
    let since = std::env::var("FENCEHOLD_LINES_SINCE").ok();
    let before = since.as_deref().map(count).transpose()?;
    for (name, lines) in &now.product {
        println!("{name:<16}{lines:>7}");
    }
    let product = |lines: &Lines| lines.product.values().sum::<usize>();
    println!("{:<16}{:>7}\n{:<16}{:>7}", "product", product(&now), "other", now.other);
    if let (Some(since), Some(before)) = (since, before) {
        println!("{:<16}{:>7}  at {since}", "product", product(&before));
        println!("{:<16}{:>7}  at {since}", "other", before.other);
    }
    Ok(())
}

fn count(commit: &str) -> Result<Lines, String> {
    let mut lines = Lines::default();
    let files = git(&["ls-tree", "-r", "--name-only", commit])?;
    for path in files.lines() {
        if let Some((_, "rs" | "sql")) = path.rsplit_once('.') {
            add(&mut lines, path, &git(&["show", &format!("{commit}:{path}")])?);
        }
    }
    Ok(lines)
}

fn add(lines: &mut Lines, path: &str, text: &str) {
    let is_sql = matches!(path.rsplit_once('.'), Some((_, "sql")));
    let (code, tests) = code_and_tests(text, if is_sql { "--" } else { "//" });
    match product_crate(path) {
        Some(name) => {
            *lines.product.entry(name.to_owned()).or_default() += code;
            lines.other += tests;
        }
        None => lines.other += code + tests,
    }
}

/// The crate that a file is part of, if that ships and the file is no test.
pub(super) fn product_crate(path: &str) -> Option<&str> {
    let (name, file) = path.strip_prefix("crates/")?.split_once("/src/")?;
    let never = shipped::NEVER_USED
        .iter()
        .any(|crate_name| crate_name.strip_prefix("fencehold-") == Some(name));
    let is_test = ["tests", "fuzz", "golden"]
        .iter()
        .any(|word| file.split('/').any(|part| part.trim_end_matches(".rs").ends_with(word)));
    (!never && !is_test && name != "dependencies").then_some(name)
}

/// Lines of code, and those of them that are modules of tests at the end of their file.
fn code_and_tests(text: &str, comment: &str) -> (usize, usize) {
    let is_code = |line: &&str| !line.trim().is_empty() && !line.trim_start().starts_with(comment);
    let code = text.lines().filter(is_code).count();
    let tests = match text.find("\n#[cfg(test)]\nmod tests {") {
        Some(at) => text[at..].lines().filter(is_code).count(),
        None => 0,
    };
    (code - tests, tests)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_blanks_and_tests_are_no_product() {
        let text =
            "//! Why.\n\nfn f() {}\n/// What.\nfn g() {}\n\n#[cfg(test)]\nmod tests {\n    fn t() {}\n}\n";
        let mut lines = Lines::default();
        add(&mut lines, "crates/core/src/key.rs", text);
        add(&mut lines, "crates/core/src/job/tests.rs", text);
        add(&mut lines, "crates/proof/src/lib.rs", text);
        add(&mut lines, "crates/store-postgres/src/schema/tables.sql", "-- Why.\nSELECT 1;\n");
        let product = [("core", 2), ("store-postgres", 1)].map(|(name, lines)| (name.to_owned(), lines));
        assert_eq!(lines, Lines { product: BTreeMap::from(product), other: 4 + 6 + 6 });
    }
}
