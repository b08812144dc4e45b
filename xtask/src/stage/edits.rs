//! Deliberate bugs: every edit of `crates/proof/bugs` applies to the source, and no crate has a bug of its own.

use std::fs;
use std::path::Path;

use crate::edit::Edits;
use crate::stage::bugs;
use crate::workspace;

/// Words that only a bug on purpose would need, in lower case.
const NEVER: [&str; 3] = ["seeded", "fencehold_bug", "\"bugs\""];

pub(crate) fn run() -> Result<(), String> {
    let root = workspace::root();
    let edits = Edits::read(root)?;
    let files = edits
        .applied(root)
        .map_err(|why| format!("these edits of crates/proof/bugs do not apply any more:\n{why}"))?;
    if let Some(bug) = edits.bugs.iter().find(|bug| !bugs::is_check(&bug.check)) {
        return Err(format!("{}.diff: there is no check `{}`", bug.name, bug.check));
    }
    let mut found = Vec::new();
    walk(&root.join("crates"), &mut found)?;
    if !found.is_empty() {
        let why = "a bug on purpose belongs into crates/proof/bugs";
        return Err(format!("{why}; found\n{}", found.join("\n")));
    }
    println!("{} bugs apply to {} files", edits.bugs.len(), files.len());
    Ok(())
}

fn walk(folder: &Path, found: &mut Vec<String>) -> Result<(), String> {
    let unreadable = |error| format!("{}: {error}", folder.display());
    for entry in fs::read_dir(folder).map_err(unreadable)? {
        let path = entry.map_err(unreadable)?.path();
        if path.ends_with("crates/proof") {
            continue;
        }
        if path.is_dir() {
            walk(&path, found)?;
        } else if path.extension().is_some_and(|kind| kind == "rs" || kind == "toml") {
            let text = fs::read_to_string(&path).map_err(unreadable)?;
            found.extend(words_of(&text).map(|line| format!("{}:{line}", path.display())));
        }
    }
    Ok(())
}

/// The lines that have such a word.
fn words_of(text: &str) -> impl Iterator<Item = usize> {
    let lines = text.lines().map(str::to_lowercase).enumerate();
    lines.filter_map(|(at, line)| NEVER.iter().any(|word| line.contains(word)).then_some(at + 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bug_in_a_crate_is_found_by_its_line() {
        let text = "fn a() {}\nif seeded!(A) {}\n#[cfg(feature = \"bugs\")]\nvar(\"FENCEHOLD_BUG\")\n";
        assert_eq!(words_of(text).collect::<Vec<_>>(), [2, 3, 4]);
    }
}
