//! Dependencies between our crates point one way. Which ones there may be stands in the table below and nowhere else.
//!
//! Dependencies of tests are not checked: the tests of a store use the suite, and the suite names no store.
//!
//! Dependencies on others, those of tests too, have their reason in a page.

use std::collections::BTreeSet;
use std::fs;

use crate::{process, workspace};

/// Where each dependency on others has its reason.
const REASONS: &str = "docs/dependencies.md";

/// Every crate by its folder, and the crates that it may use. A crate that has no line, and a line that has no crate, are errors.
const MAY_USE: &[(&str, &str)] = &[
    ("core", ""),
    ("contract", "core"),
    ("engine", "contract core"),
    ("load", "contract core"),
    ("net", "contract"),
    ("store-etcd", "contract core net"),
    ("store-file", "contract core engine"),
    ("store-object", "contract core net"),
    ("store-postgres", "contract core engine net"),
    ("store-remote", "contract core net"),
    ("stores", "contract engine store-etcd store-file store-object store-postgres store-remote"),
    ("test-store", "contract core"),
    ("test-servers", "contract core test-store"),
    ("conformance", "contract core test-store"),
    ("client", "contract core engine store-file store-object stores"),
    ("server", "contract core"),
    ("races", "contract core engine store-file stores test-store"),
    (
        "cli",
        "client contract core load races server store-etcd store-file store-object store-postgres store-remote stores",
    ),
    ("bench", "client contract core load store-file stores"),
    ("proof", "conformance contract core engine races store-file test-store"),
    // Has no code: it holds the features of everything else together while `features` is checked.
    ("dependencies", ""),
    ("xtask", ""),
];

pub(crate) fn run() -> Result<(), String> {
    let words = "tree --workspace --all-features --depth=1 --edges=normal,build --prefix=depth --no-dedupe";
    judge(MAY_USE, &process::output(&mut process::cargo(words))?)?;
    let words =
        "tree --workspace --all-features --depth=1 --edges=normal,build,dev --prefix=depth --no-dedupe";
    let page =
        fs::read_to_string(workspace::root().join(REASONS)).map_err(|error| format!("{REASONS}: {error}"))?;
    judge_reasons(&page, &process::output(&mut process::cargo(words))?)
}

/// Holds the dependencies on others in a tree of depth 1 against the rows of a page, whose first cells name them.
fn judge_reasons(page: &str, tree: &str) -> Result<(), String> {
    let used: BTreeSet<&str> = tree
        .lines()
        .filter_map(|line| line.strip_prefix('1')?.split(' ').next())
        .filter(|name| *name != "fencehold" && !name.starts_with("fencehold-"))
        .collect();
    let cells = page.lines().filter_map(|line| line.strip_prefix("| `")?.split(" | ").next());
    let listed: BTreeSet<&str> = cells
        .flat_map(|cell| cell.split(", "))
        .map(|name| name.trim_matches('`'))
        .collect();
    let without = used
        .difference(&listed)
        .map(|name| format!("{name} is used, and {REASONS} has no reason for it"));
    let unused = listed
        .difference(&used)
        .map(|name| format!("{REASONS} lists {name}, which is not used"));
    let wrong: Vec<String> = without.chain(unused).collect();
    if wrong.is_empty() { Ok(()) } else { Err(wrong.join("; ")) }
}

/// Holds a tree of depth 1, each line of which begins with its depth, against a table.
fn judge(may_use: &[(&str, &str)], tree: &str) -> Result<(), String> {
    // The library's package has the name of the project.
    let named = |line: &str| match line.split(' ').next().unwrap_or_default() {
        "fencehold" => "client".to_owned(),
        name => name.strip_prefix("fencehold-").unwrap_or(name).to_owned(),
    };
    let mut found = Vec::new();
    let mut crate_name = String::new();
    let mut wrong = Vec::new();
    for line in tree.lines() {
        if let Some(line) = line.strip_prefix('0') {
            crate_name = named(line);
            if line.ends_with("(*)") {
                return Err(format!("`cargo tree` left out what {crate_name} uses"));
            }
            if !may_use.iter().any(|(name, _)| *name == crate_name) {
                wrong.push(format!("{crate_name} is not in the table of xtask/src/stage/crates.rs"));
            }
            found.push(crate_name.clone());
        } else if let Some(line) = line.strip_prefix('1') {
            let used = named(line);
            let ours = may_use.iter().any(|(name, _)| *name == used);
            let allowed = may_use
                .iter()
                .any(|(name, uses)| *name == crate_name && uses.split(' ').any(|name| name == used));
            if ours && !allowed {
                wrong.push(format!("{crate_name} uses {used}, and may not"));
            }
        }
    }
    let gone = may_use.iter().filter(|(name, _)| !found.iter().any(|found| found == name));
    wrong.extend(gone.map(|(name, _)| {
        format!("the table of xtask/src/stage/crates.rs lists {name}, which does not exist")
    }));
    if wrong.is_empty() { Ok(()) } else { Err(wrong.join("; ")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &[(&str, &str)] = &[("below", ""), ("above", "below")];
    const TREE: &str =
        "0above v0.1.0 (/w/above)\n1below v0.1.0 (/w/below)\n1serde v1.0.0\n\n0below v0.1.0 (/w/below)\n";

    #[test]
    fn a_forbidden_use_is_named() {
        assert_eq!(judge(TABLE, TREE), Ok(()));
        let upwards = format!("{TREE}1above v0.1.0 (/w/above)\n");
        assert_eq!(judge(TABLE, &upwards), Err("below uses above, and may not".to_owned()));
    }

    #[test]
    fn each_dependency_has_a_reason() {
        let page = "| crate | what for |\n|---|---|\n| `serde`, `other` | reasons |\n";
        let tree = "0fencehold v0.1.0 (/w)\n1serde v1.0.0\n1other v2.0.0\n1fencehold-core v0.1.0 (/w)\n";
        assert_eq!(judge_reasons(page, tree), Ok(()));
        let said = judge_reasons(page, &tree.replace("other", "another"));
        let wrong = "another is used, and docs/dependencies.md has no reason for it; \
                     docs/dependencies.md lists other, which is not used";
        assert_eq!(said, Err(wrong.to_owned()));
    }

    #[test]
    fn a_tree_that_was_shortened_proves_nothing() {
        let short = "0above v0.1.0 (/w/above)\n1below v0.1.0 (/w/below)\n\n0below v0.1.0 (/w/below) (*)\n";
        assert_eq!(judge(TABLE, short), Err("`cargo tree` left out what below uses".to_owned()));
    }

    #[test]
    fn the_table_and_the_crates_are_the_same() {
        let said = judge(TABLE, &format!("{TREE}\n0new v0.1.0 (/w/new)\n")).unwrap_err();
        assert!(said.starts_with("new is not in the table"), "{said}");
        let said = judge(TABLE, "0below v0.1.0 (/w/below)\n").unwrap_err();
        assert!(said.ends_with("lists above, which does not exist"), "{said}");
    }
}
