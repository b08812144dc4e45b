//! One program of tests for each crate: linking them is most of what CI builds. Cargo does not look for tests by itself there
//! (`autotests = false`), so it is checked that no file of tests is left out. And whatever command is written down, in a page or in code,
//! names a program that there is.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use crate::stage::docs;
use crate::workspace;

/// What a command names a program by. Split, so that this file may hold it.
const FLAG: &str = concat!("--te", "st");

pub(crate) fn run() -> Result<(), String> {
    let root = workspace::root();
    let (mut programs, mut wrong) = (BTreeSet::new(), Vec::new());
    for entry in fs::read_dir(root.join("crates"))
        .map_err(|error| format!("crates: {error}"))?
        .flatten()
    {
        let folder = entry.path();
        if folder.join("tests").is_dir() {
            let manifest = fs::read_to_string(folder.join("Cargo.toml")).unwrap_or_default();
            match program(&manifest) {
                Ok((name, path)) => {
                    wrong.extend(left_out(&folder, path));
                    programs.insert(name.to_owned());
                }
                Err(why) => wrong.push(format!("{}: {why}", folder.display())),
            }
        }
    }
    for file in docs::committed(root)? {
        let Ok(text) = fs::read_to_string(root.join(&file)) else { continue };
        if file.extension().is_some_and(|extension| extension == "md" || extension == "rs") {
            let unknown = named(&text).into_iter().filter(|name| !programs.contains(*name));
            wrong.extend(unknown.map(|name| format!("{}: there is no {FLAG} {name}", file.display())));
        }
    }
    if wrong.is_empty() { Ok(()) } else { Err(wrong.join("; ")) }
}

/// The name of a crate's one program of tests, and its first file.
fn program(manifest: &str) -> Result<(&str, &str), &'static str> {
    let mut programs = manifest.split("[[test]]\n").skip(1);
    let (Some(program), None) = (programs.next(), programs.next()) else {
        return Err("a crate with tests has one [[test]]: more of them cost CI a link each");
    };
    if !manifest.contains("\nautotests = false\n") {
        return Err("with [[test]] comes `autotests = false`: else cargo makes a program of every file");
    }
    let value = |name: &str| {
        let (_, rest) = program.split_once(&format!("{name} = \""))?;
        rest.split_once('"').map(|(value, _)| value)
    };
    value("name").zip(value("path")).ok_or("[[test]] has a name and a path")
}

/// The files of tests that no program has.
fn left_out(folder: &Path, main: &str) -> Vec<String> {
    let main = folder.join(main);
    let declared = fs::read_to_string(&main).unwrap_or_default();
    let mut places = vec![folder.join("tests")];
    places.extend(main.parent().map(Path::to_owned).filter(|place| *place != places[0]));
    let entries = places.iter().flat_map(fs::read_dir).flatten().flatten();
    let modules = entries.map(|entry| entry.path()).filter(|path| {
        let is_module = path.extension().is_some_and(|extension| extension == "rs");
        *path != main && (is_module || path.join("mod.rs").exists())
    });
    let left_out = modules.filter(|path| {
        let name = path.file_stem().unwrap_or_default().to_string_lossy();
        !declared.lines().any(|line| line == format!("mod {name};"))
    });
    left_out
        .map(|path| format!("{} is in no program: {} has no `mod` for it", path.display(), main.display()))
        .collect()
}

/// The programs that commands in a text name.
fn named(text: &str) -> Vec<&str> {
    let after_flag = text.split(FLAG).skip(1);
    let names = after_flag.filter_map(|rest| {
        let name = rest.trim_start_matches([' ', '"', ',', '\n']);
        let end = name
            .find(|c: char| !c.is_ascii_alphanumeric() && c != '_')
            .unwrap_or(name.len());
        // A longer flag; and a name in capitals stands for any.
        let is_name = name.len() < rest.len() && name.starts_with(|c: char| c.is_ascii_lowercase());
        is_name.then(|| &name[..end])
    });
    names.collect()
}

#[cfg(test)]
mod rules {
    use super::*;

    #[test]
    fn a_crate_has_one_program_of_tests() {
        let one = "\nautotests = false\n\n[[test]]\nname = \"core\"\npath = \"tests/main.rs\"\n";
        assert_eq!(program(one), Ok(("core", "tests/main.rs")));
        assert!(program(&one.replace("false", "true")).is_err());
        assert!(program(&format!("{one}{one}")).is_err() && program("").is_err());
    }

    #[test]
    fn a_file_of_tests_that_no_program_has_is_found() {
        let folder = std::env::temp_dir().join(format!("xtask-programs-{}", std::process::id()));
        fs::create_dir_all(folder.join("tests/main/deep")).unwrap();
        for file in ["main.rs", "main/known.rs", "main/unknown.rs", "main/deep/mod.rs", "stray.rs"] {
            fs::write(folder.join("tests").join(file), "").unwrap();
        }
        fs::rename(folder.join("tests/main.rs"), folder.join("tests/main/main.rs")).unwrap();
        fs::write(folder.join("tests/main/main.rs"), "mod known;\n").unwrap();
        let found = left_out(&folder, "tests/main/main.rs");
        fs::remove_dir_all(&folder).unwrap();
        assert_eq!(found.len(), 3, "{found:?}");
    }

    #[test]
    fn commands_name_programs() {
        let text =
            format!("`{FLAG} core {FLAG} a_b -- x` {FLAG}-threads=1 [\"{FLAG}\",\n  \"cli\", {FLAG} NAME");
        assert_eq!(named(&text), ["core", "a_b", "cli"]);
    }
}
