//! A public type has a name of its own: no two structs, enums, traits or aliases of what ships are `pub` under one name.
//!
//! `pub(crate)` does not count; what is `pub` and cannot be reached from another crate is refused by the lint `unreachable_pub`.
//! Exceptions stand in `xtask/types.toml`.

use std::collections::BTreeMap;
use std::fs;

use super::{docs, lines};
use crate::exceptions::{self, Finding};
use crate::source::{Piece, pieces};
use crate::workspace;

const LIST: &str = "xtask/types.toml";

pub(crate) fn run() -> Result<(), String> {
    let root = workspace::root();
    let entries = exceptions::read(LIST)?;
    let mut declared = Vec::new();
    for file in docs::committed(root)? {
        let path = file.to_string_lossy().into_owned();
        if file.extension().is_some_and(|extension| extension == "rs")
            && lines::product_crate(&path).is_some()
        {
            let text = fs::read_to_string(root.join(&file))
                .map_err(|error| format!("{path} cannot be read: {error}"))?;
            declared.extend(public_types(&path, &text));
        }
    }
    if declared.is_empty() {
        return Err("no public types were found".to_owned());
    }
    exceptions::judge(LIST, &entries, declared, |_| None, of_several)
}

/// Every public type that a file declares.
fn public_types(path: &str, text: &str) -> Vec<Finding> {
    // A module of tests stands last in its file.
    let text = text.split("\n#[cfg(test)]\nmod tests {").next().unwrap_or_default();
    let code: Vec<(usize, Piece<'_>)> = pieces(text)
        .into_iter()
        .filter(|(_, piece)| !matches!(piece, Piece::Comment(_) | Piece::Name("unsafe" | "auto")))
        .collect();
    let declared = |window: &[(usize, Piece<'_>)]| match *window {
        [
            (_, Piece::Name("pub")),
            (_, Piece::Name("struct" | "enum" | "trait" | "type" | "union")),
            (line, Piece::Name(name)),
        ] => Some(Finding {
            word: name.to_owned(),
            path: path.to_owned(),
            line,
            instead: "a name that no other public type has".to_owned(),
        }),
        _ => None,
    };
    code.windows(3).filter_map(declared).collect()
}

/// Those that share their name.
fn of_several(declared: Vec<Finding>) -> Vec<Finding> {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for finding in &declared {
        *counts.entry(finding.word.clone()).or_default() += 1;
    }
    declared.into_iter().filter(|finding| counts[&finding.word] > 1).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_public_types_of_one_name_are_found_and_private_ones_are_not() {
        let a = "pub struct Twice;\npub(crate) enum Once {}\n/// pub struct Commented;\npub unsafe trait Alone {}\n";
        let b = "pub type\n    Twice<T> = T;\npub enum Once {}\nstruct Alone;\nf(\"pub struct Alone\");\n\n#[cfg(test)]\nmod tests {\n    pub struct Alone;\n}\n";
        let declared = [public_types("a.rs", a), public_types("b.rs", b)].concat();
        let names: Vec<_> = declared.iter().map(|finding| (finding.word.as_str(), finding.line)).collect();
        assert_eq!(names, [("Twice", 1), ("Alone", 4), ("Twice", 2), ("Once", 3)]);
        let twice = of_several(declared);
        let twice: Vec<_> = twice
            .iter()
            .map(|finding| (finding.word.as_str(), finding.path.as_str()))
            .collect();
        assert_eq!(twice, [("Twice", "a.rs"), ("Twice", "b.rs")]);
    }
}
