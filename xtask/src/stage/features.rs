//! The library with no feature, with each alone, and with each pair of those that share code: what compiles only beside another feature
//! is found here.

use std::process::Output;

use crate::process;

/// The features of `crates/client` whose code meets.
const PAIRED: [&str; 6] = ["etcd", "file", "object", "postgres", "remote", "tower"];
/// Those that only add to what is always there.
const ALONE: [&str; 6] = ["diesel-async", "metrics", "sqlx", "tokio-postgres", "tokio-util", "uuid"];

pub(crate) fn run() -> Result<(), String> {
    for chosen in choices() {
        let features: Vec<String> = chosen.iter().map(|name| format!("fencehold/{name}")).collect();
        let features = features.join(",");
        // Beside all dependencies with all their features: otherwise each choice would build half of them anew. That a feature
        // of the library names the *dependency* that it needs is still checked; whether it names that one's features is not.
        let words =
            "check --quiet --package=fencehold --package=fencehold-dependencies --no-default-features";
        let shown = if chosen.is_empty() { "no feature".to_owned() } else { chosen.join(" and ") };
        println!("{shown}");
        let checked = process::cargo(words)
            .args(["--features", &features])
            .output()
            .map_err(|error| format!("cargo cannot be started: {error}"))?;
        judge(&shown, &checked)?;
    }
    Ok(())
}

/// None, each alone, each pair that may matter.
fn choices() -> Vec<Vec<&'static str>> {
    let alone = PAIRED.iter().chain(&ALONE).map(|one| vec![*one]);
    let pairs = PAIRED
        .iter()
        .enumerate()
        .flat_map(|(at, one)| PAIRED[at + 1..].iter().map(|other| vec![*one, *other]));
    std::iter::once(Vec::new()).chain(alone).chain(pairs).collect()
}

/// A quiet cargo prints errors and warnings alone. `-D warnings` would do, but other flags build every dependency anew.
fn judge(shown: &str, checked: &Output) -> Result<(), String> {
    if checked.status.success() && checked.stderr.is_empty() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&checked.stderr);
    Err(format!("the library does not compile without warnings with {shown}:\n{said}"))
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn every_feature_is_chosen_alone_and_with_each_other() {
        let choices = choices();
        assert_eq!(choices.len(), 1 + 12 + 15);
        assert!(choices.contains(&vec!["object"]) && choices.contains(&vec!["file", "postgres"]));
    }

    #[test]
    fn the_features_are_those_of_the_library() {
        let manifest = include_str!("../../../crates/client/Cargo.toml");
        let features = manifest.split("[features]").nth(1).unwrap().split("\n[").next().unwrap();
        let named = features.lines().filter(|line| !line.starts_with('#'));
        let named = named.filter_map(|line| line.split_once(" = ")).map(|(name, _)| name);
        let mut named: Vec<_> = named.filter(|name| *name != "default").collect();
        named.sort_unstable();
        let mut known = [&PAIRED[..], &ALONE].concat();
        known.sort_unstable();
        assert_eq!(named, known);
        let page = include_str!("../../../crates/client/README.md");
        let rows = page.lines().filter_map(|line| line.strip_prefix("| `")?.split_once('`'));
        let mut listed: Vec<_> = rows.map(|(name, _)| name).filter(|name| *name != "default").collect();
        listed.sort_unstable();
        assert_eq!(listed, known, "the table of all features");
    }

    #[test]
    fn a_warning_is_a_failure() {
        let said = |script: &str| Command::new("sh").args(["-c", script]).output().unwrap();
        assert_eq!(judge("file", &said("true")), Ok(()));
        let why = judge("file", &said("echo 'warning: unused' >&2")).unwrap_err();
        assert!(why.ends_with("with file:\nwarning: unused\n"), "{why}");
        assert!(judge("file", &said("exit 1")).is_err());
    }
}
