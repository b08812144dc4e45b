//! What is written down holds: relative links in Markdown lead somewhere, files and tests that a page names are there, the index
//! leads to every page and every word, and no text speaks of a path that only the machine of its writer has.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use crate::{doc_index, markdown, process, workspace};

/// Folders of checkouts and of things beside them: a reader has neither. Split, so that this file may hold them.
const FOREIGN_PATHS: &[&str] = &[concat!("/wo", "rk/"), concat!("../sha", "red")];

pub(crate) fn run() -> Result<(), String> {
    let root = workspace::root();
    let files = committed(root)?;
    let mut faults = Vec::new();
    let mut pages = BTreeMap::new();
    for file in &files {
        // What is not UTF-8, or has a NUL, is no text.
        let Ok(text) = fs::read_to_string(root.join(file)) else { continue };
        if text.contains('\0') {
            continue;
        }
        faults.extend(foreign_paths(file, &text));
        if file.extension().is_some_and(|extension| extension == "md") {
            faults.extend(broken_links(root, file, &text));
            // What was decided or changed once may be gone.
            if !file.starts_with("docs/decisions") && file != Path::new("CHANGELOG.md") {
                faults.extend(gone(root, file, &text));
            }
            pages.insert(file.clone(), text);
        }
    }
    faults.extend(doc_index::faults(&pages));
    if faults.is_empty() {
        let pages = pages.len();
        println!("{} files, {pages} of them Markdown: links resolve, no foreign paths", files.len());
        return Ok(());
    }
    for fault in &faults {
        eprintln!("{fault}");
    }
    Err(format!("{} faults in {} files, listed above", faults.len(), files.len()))
}

/// The files that git has or would take, relative to `root`; in a bare copy of the sources, all but what cargo built.
pub(super) fn committed(root: &Path) -> Result<BTreeSet<PathBuf>, String> {
    // Not merely in some repository: an unpacked copy may lie, ignored, inside another checkout.
    if root.join(".git").exists()
        && let Ok(names) = process::git(&["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
    {
        let files = names.split_terminator('\0').map(PathBuf::from);
        // A file that is deleted but not yet committed is still listed.
        return Ok(files.filter(|file| root.join(file).is_file()).collect());
    }
    let mut files = BTreeSet::new();
    walk(root, Path::new(""), &mut files)
        .map_err(|error| format!("{} cannot be read: {error}", root.display()))?;
    Ok(files)
}

fn walk(root: &Path, folder: &Path, files: &mut BTreeSet<PathBuf>) -> std::io::Result<()> {
    for entry in fs::read_dir(root.join(folder))? {
        let entry = entry?;
        let path = folder.join(entry.file_name());
        if entry.file_type()?.is_file() {
            files.insert(path);
        } else if entry.file_type()?.is_dir() && path != Path::new("target") && path != Path::new(".git") {
            walk(root, &path, files)?;
        }
    }
    Ok(())
}

fn foreign_paths(file: &Path, text: &str) -> Vec<String> {
    let mut faults = Vec::new();
    for (index, line) in text.lines().enumerate() {
        for foreign in FOREIGN_PATHS {
            let starts_there = |(at, _): (usize, &str)| !line[..at].ends_with(continues_a_path);
            if line.match_indices(foreign).any(starts_there) {
                faults.push(format!(
                    "{}:{}: a path outside the project: {foreign}",
                    file.display(),
                    index + 1
                ));
            }
        }
    }
    faults
}

/// Before a slash, these belong to the same path: `docs/x`, `~/x`, `${HOME}/x`.
fn continues_a_path(c: char) -> bool {
    c.is_alphanumeric() || matches!(c, '_' | '-' | '.' | '~' | '}')
}

fn broken_links(root: &Path, file: &Path, text: &str) -> Vec<String> {
    let fault = |link: markdown::Link| {
        let why = why_broken(root, file, text, &link.target)?;
        Some(format!("{}:{}: link to `{}`: {why}", file.display(), link.line, link.target))
    };
    markdown::links(text).into_iter().filter_map(fault).collect()
}

/// What a page says of our code and is not there: files, as `crates/…`, and tests, as `crates/….rs: name`.
fn gone(root: &Path, file: &Path, text: &str) -> Vec<String> {
    let mut faults = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let mut fault =
            |what: &str| faults.push(format!("{}:{}: there is no {what}", file.display(), index + 1));
        for quoted in line
            .split('`')
            .skip(1)
            .step_by(2)
            .filter(|quoted| quoted.starts_with("crates/"))
        {
            let (path, function) = quoted.split_once(": ").unwrap_or((quoted, ""));
            if !path.contains(['{', '*', '…', ' ']) && !root.join(path).exists() {
                fault(path);
            } else if !function.is_empty() {
                let source = fs::read_to_string(root.join(path)).unwrap_or_default();
                let name = function.rsplit("::").next().unwrap_or(function);
                if !source.contains(&format!("fn {name}(")) {
                    fault(quoted);
                }
            }
        }
    }
    faults
}

/// Nothing if the link from `file`, which holds `text`, leads somewhere, or leads to another site.
fn why_broken(root: &Path, file: &Path, text: &str, target: &str) -> Option<&'static str> {
    let scheme = target.split_once(':').map(|(scheme, _)| scheme);
    if scheme.is_some_and(|scheme| scheme.chars().all(|c| c.is_ascii_alphanumeric() || c == '+')) {
        return None;
    }
    let (path, anchor) = match target.split_once('#') {
        Some((path, anchor)) => (path, Some(anchor)),
        None => (target, None),
    };
    if path.is_empty() {
        return anchor.and_then(|anchor| why_no_anchor(text, anchor));
    }
    let Some(path) = markdown::inside(file, path) else { return Some("it leaves the project") };
    let path = root.join(path);
    if !path.exists() {
        return Some("there is no such file");
    }
    // The other kinds of file have line numbers and the like for anchors.
    if path.extension().is_none_or(|extension| extension != "md") {
        return None;
    }
    let text = fs::read_to_string(path).unwrap_or_default();
    anchor.and_then(|anchor| why_no_anchor(&text, anchor))
}

fn why_no_anchor(text: &str, anchor: &str) -> Option<&'static str> {
    (!markdown::anchors(text).contains(anchor)).then_some("that page has no such heading")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn why(file: &str, text: &str, target: &str) -> Option<&'static str> {
        why_broken(workspace::root(), Path::new(file), text, target)
    }

    #[test]
    fn links_to_files_folders_headings_and_sites_hold() {
        let page = "docs/decisions/README.md";
        for target in ["../../LICENSE", "..", "#here", "https://example.org/x", "mailto:a@example.org"] {
            assert_eq!(why(page, "# Here", target), None, "{target}");
        }
    }

    #[test]
    fn a_broken_link_says_why() {
        assert_eq!(why("README.md", "", "no-such-file.md"), Some("there is no such file"));
        assert_eq!(why("README.md", "# Here", "#there"), Some("that page has no such heading"));
        assert_eq!(why("README.md", "", "docs/../../x.md"), Some("it leaves the project"));
        assert_eq!(why("README.md", "", "/LICENSE"), Some("it leaves the project"));
    }

    #[test]
    fn anchors_are_looked_up_in_the_page_that_is_linked() {
        let target = "docs/decisions/README.md#no-such-heading";
        assert_eq!(why("README.md", "# No such heading", target), Some("that page has no such heading"));
    }

    #[test]
    fn a_file_or_a_test_that_is_gone_is_found_with_its_line() {
        let here = "crates/core/tests/ledger.rs";
        let text = format!(
            "`crates/core`, `{here}: the_first_record_stands`\n`crates/x` and `{here}: no_such_test`"
        );
        let found = gone(workspace::root(), Path::new("a.md"), &text);
        assert_eq!(
            found,
            ["a.md:2: there is no crates/x", &format!("a.md:2: there is no {here}: no_such_test")]
        );
    }

    #[test]
    fn foreign_paths_are_found_with_their_line() {
        for foreign in FOREIGN_PATHS {
            let text = format!("fine\nsee `{foreign}x`\n");
            let expected = format!("a.md:2: a path outside the project: {foreign}");
            assert_eq!(foreign_paths(Path::new("a.md"), &text), [expected]);
        }
    }

    #[test]
    fn longer_paths_that_contain_a_foreign_one_are_fine() {
        let text = format!("docs{0}x ~{0}x https://example.org{0}x", FOREIGN_PATHS[0]);
        assert_eq!(foreign_paths(Path::new("a.md"), &text), Vec::<String>::new());
    }
}
