//! The document of the HTTP API never changes silently: a commit that changes its golden file has a line in the changelog.
//!
//! A merge counts as one change, with all that it brings. In a copy of the sources without a history there is nothing to check.

use crate::process::git;
use crate::workspace;

const DOCUMENT: &str = "crates/server/src/http/openapi.json";
const CHANGELOG: &str = "CHANGELOG.md";
/// Commits after this one are checked.
const SINCE: &str = "f437e3c";

pub(crate) fn run() -> Result<(), String> {
    let root = workspace::root();
    if !root.join(DOCUMENT).is_file() {
        return Err(format!("{DOCUMENT} is not there; if it has moved, say here where to"));
    }
    if !root.join(".git").exists() {
        println!("no history here");
        return Ok(());
    }
    let log = if git(&["rev-parse", "--is-shallow-repository"])?.trim() == "true" {
        println!("a shallow clone: only changes that are not committed are checked");
        String::new()
    } else {
        let range = format!("{SINCE}..HEAD");
        let names_of = ["log", "--first-parent", "-m", "--format=commit %h", "--name-only", &range];
        git(&[&names_of[..], &["--", DOCUMENT, CHANGELOG]].concat())?
    };
    judge(&log, &git(&["diff", "HEAD", "--name-only", "--", DOCUMENT, CHANGELOG])?)
}

/// Looks at which of the two files each commit changed, and which of them are changed since.
fn judge(log: &str, now: &str) -> Result<(), String> {
    let changes = std::iter::once(("this work tree", now)).chain(
        log.split("commit ")
            .filter(|commit| !commit.is_empty())
            .map(|commit| commit.split_once('\n').unwrap_or((commit, ""))),
    );
    let is_silent = |(_, files): &(&str, &str)| {
        let has = |name: &str| files.lines().any(|file| file == name);
        has(DOCUMENT) && !has(CHANGELOG)
    };
    let found: Vec<&str> = changes.filter(is_silent).map(|(commit, _)| commit).collect();
    if found.is_empty() {
        return Ok(());
    }
    Err(format!(
        "the document of the HTTP API changed without a line in {CHANGELOG} in {}; say there what a client has to know",
        found.join(", ")
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_changed_document_without_a_line_in_the_changelog_is_named_with_its_commit() {
        let log = format!(
            "commit aaa\n\n{CHANGELOG}\n{DOCUMENT}\ncommit bbb\n\n{DOCUMENT}\ncommit ccc\n\n{CHANGELOG}\n"
        );
        let said = judge(&log, "").unwrap_err();
        assert!(said.contains(" in bbb; "), "{said}");
        assert_eq!(judge(&log.replace("commit bbb\n", "commit bbb\n\nCHANGELOG.md\n"), ""), Ok(()));
    }

    #[test]
    fn what_is_not_committed_counts_too() {
        let said = judge("", &format!("{DOCUMENT}\n")).unwrap_err();
        assert!(said.contains("in this work tree;"), "{said}");
        assert_eq!(judge("", &format!("{CHANGELOG}\n{DOCUMENT}\n")), Ok(()));
        assert_eq!(judge("", ""), Ok(()));
    }
}
