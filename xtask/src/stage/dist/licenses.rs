//! What is in the binary besides our own code, under which licences, and their texts.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use crate::process;

pub(super) fn third_party(target: &str) -> Result<String, String> {
    let mut tree =
        process::cargo("tree --locked --package fencehold-cli --edges normal --prefix none --target");
    let listed = process::output(tree.arg(target).args(["--format", "{p}\t{l}\t{r}"]))?;
    let mut crates: Vec<(String, String, String)> = listed.lines().filter_map(third).collect();
    crates.sort();
    crates.dedup();
    if crates.is_empty() {
        return Err("`cargo tree` lists no dependencies".to_owned());
    }
    let sources = sources()?;
    let mut page =
        "# Third-party software in the fencehold binary\n\n| crate | licence | source |\n|---|---|---|\n"
            .to_owned();
    let mut texts: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (name, license, repository) in &crates {
        let _ = writeln!(page, "| {name} | {license} | {repository} |");
        for text in license_texts(&sources, name) {
            texts.entry(text).or_default().push(name.clone());
        }
    }
    for (text, of) in texts {
        let _ =
            write!(page, "\n## {}\n\n```text\n{}\n```\n", of.join(", "), text.trim().replace("```", "'''"));
    }
    Ok(page)
}

/// A line of the tree, if it is about a crate of others: those of the workspace have a path.
fn third(line: &str) -> Option<(String, String, String)> {
    let mut parts = line.split('\t');
    let (package, license, repository) = (parts.next()?, parts.next()?, parts.next()?);
    if package.contains("(/") {
        return None;
    }
    let name = package.split(' ').take(2).collect::<Vec<_>>().join(" ");
    let repository = repository.trim_end_matches(" (*)");
    Some((name.replace(" v", " "), license.to_owned(), repository.to_owned()))
}

/// Where cargo unpacks what it downloads.
fn sources() -> Result<Vec<PathBuf>, String> {
    let home = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    let home = home.or_else(|| std::env::home_dir().map(|home| home.join(".cargo")));
    let folder = home
        .ok_or("there is no home directory, so no cargo registry")?
        .join("registry/src");
    let found = fs::read_dir(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    Ok(found.flatten().map(|entry| entry.path()).collect())
}

fn license_texts(sources: &[PathBuf], name: &str) -> Vec<String> {
    let folder = name.replace(' ', "-");
    let is_license = |path: &Path| {
        let name = path.file_name().unwrap_or_default().to_string_lossy().to_uppercase();
        ["LICENSE", "LICENCE", "COPYING", "NOTICE", "UNLICENSE"]
            .iter()
            .any(|start| name.starts_with(start))
    };
    let mut files: Vec<PathBuf> = sources
        .iter()
        .filter_map(|source| fs::read_dir(source.join(&folder)).ok())
        .flatten()
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.is_file() && is_license(path))
        .collect();
    files.sort();
    files.iter().filter_map(|file| fs::read_to_string(file).ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_own_crates_are_not_third_parties() {
        let theirs = "serde v1.0.228\tMIT OR Apache-2.0\thttps://example.org/serde (*)";
        let expected = ("serde 1.0.228", "MIT OR Apache-2.0", "https://example.org/serde");
        let (name, license, repository) = third(theirs).unwrap();
        assert_eq!((name.as_str(), license.as_str(), repository.as_str()), expected);
        assert_eq!(third("fencehold v0.1.0 (/w/crates/client)\tApache-2.0\thttps://example.org"), None);
    }
}
