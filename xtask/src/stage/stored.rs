//! What was stored once is never stored differently under the same version: no golden file of a store has changed or gone since it
//! was made. Tests hold the code against those files; this holds the files against their history. In a copy of the sources without a
//! history there is nothing to hold them against.

use crate::process::git;
use crate::workspace;

/// Named after what is stored and its version: `lease.v1.hex`.
const GOLDENS: &str = ":(glob)crates/*/golden/*.v[0-9]*";

pub(crate) fn run() -> Result<(), String> {
    if !workspace::root().join(".git").exists() {
        println!("no history here");
        return Ok(());
    }
    // A file that was only moved is as it was.
    let log = ["log", "--format=commit %h", "--name-only", "-M100%", "--diff-filter=MDT", "--", GOLDENS];
    let now = ["diff", "HEAD", "--name-only", "-M100%", "--diff-filter=MDT", "--", GOLDENS];
    judge(&git(&log)?, &git(&now)?)
}

/// Looks at the files that each commit changed or removed, and at those that are changed or gone since.
fn judge(log: &str, now: &str) -> Result<(), String> {
    let mut commit = "this work tree";
    let mut faults: Vec<String> = now.lines().map(|file| format!("{file} in {commit}")).collect();
    for line in log.lines().filter(|line| !line.is_empty()) {
        match line.strip_prefix("commit ") {
            Some(name) => commit = name,
            None => faults.push(format!("{line} in {commit}")),
        }
    }
    if faults.is_empty() {
        return Ok(());
    }
    let faults = faults.join(", ");
    Err(format!(
        "golden bytes changed without a version: {faults}; put them back, and add a version beside them"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_golden_file_that_changed_is_named_with_its_commit() {
        assert_eq!(judge("", ""), Ok(()));
        let said = judge("commit abc1234\n\na/golden/lease.v1.hex\n", "").unwrap_err();
        assert!(said.contains("without a version: a/golden/lease.v1.hex in abc1234;"), "{said}");
        let said = judge("", "a/golden/lease.v1.hex\n").unwrap_err();
        assert!(said.contains("a/golden/lease.v1.hex in this work tree;"), "{said}");
    }
}
