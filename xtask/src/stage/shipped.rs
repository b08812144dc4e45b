//! What only tests need is not in the program that people get: points at which a process is held,
//! simulation, models, suites, what makes the OpenAPI document. Features add up over everything that is built together, so one careless line in a manifest
//! would bring them in.

use crate::process;

const NEVER: [&str; 3] = ["gates", "schema", "sim"];
/// Crates that only tests and benchmarks may use.
pub(super) const NEVER_USED: [&str; 4] =
    ["fencehold-bench", "fencehold-conformance", "fencehold-proof", "fencehold-test-servers"];
/// Is on for sure. If it is not found, the list is not what it seems.
const CERTAINLY: (&str, &str) = ("fencehold-stores", "file");

pub(crate) fn run() -> Result<(), String> {
    // Without dependencies of tests, whose features are not those of a build.
    let mut tree = process::cargo("tree --locked -p fencehold-cli -e normal --prefix none -f");
    judge(&process::output(tree.arg("{p} features: {f}"))?)
}

fn judge(tree: &str) -> Result<(), String> {
    let on: Vec<(&str, &str)> = tree.lines().flat_map(own_features).collect();
    if !on.contains(&CERTAINLY) {
        return Err("`cargo tree` lists no features of this project".to_owned());
    }
    if let Some(used) = NEVER_USED
        .iter()
        .find(|name| tree.lines().any(|line| line.split(' ').next() == Some(name)))
    {
        return Err(format!("the program that people get is built with {used}"));
    }
    match on.iter().find(|(_, feature)| NEVER.contains(feature)) {
        None => Ok(()),
        Some((package, feature)) => {
            Err(format!("the program that people get is built with the feature `{feature}` of {package}"))
        }
    }
}

/// The features of one of our own packages, if a line is about one.
fn own_features(line: &str) -> Vec<(&str, &str)> {
    let Some((package, features)) = line.split_once(" features: ") else { return Vec::new() };
    let name = package.split(' ').next().unwrap_or_default();
    if name != "fencehold" && !name.starts_with("fencehold-") {
        return Vec::new();
    }
    // What was listed before ends with a mark.
    let features = features.trim_end_matches(" (*)");
    features.split(',').map(|feature| (name, feature)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TREE: &str = "fencehold-cli v0.1.0 (/w/crates/cli) features: default,file\n\
                        other v1.0.0 features: gates\n\
                        fencehold-stores v0.1.0 (/w/crates/stores) features: file (*)\n";

    #[test]
    fn what_is_for_tests_alone_is_named() {
        assert_eq!(judge(TREE), Ok(()));
        for feature in NEVER {
            let tree =
                format!("{TREE}fencehold-races v0.1.0 (/w/crates/races) features: file,{feature} (*)\n");
            let said = judge(&tree).unwrap_err();
            assert!(said.contains(&format!("the feature `{feature}` of fencehold-races")), "{said}");
        }
    }

    #[test]
    fn a_crate_of_tests_is_named() {
        let said = judge(&format!("{TREE}fencehold-conformance v0.1.0 (/w) features: \n")).unwrap_err();
        assert!(said.ends_with("built with fencehold-conformance"), "{said}");
    }

    #[test]
    fn a_list_without_features_proves_nothing() {
        assert!(judge("fencehold-cli v0.1.0 (/w/crates/cli) features: \n").is_err());
    }
}
