//! Code and docs say things in plain words: none of those that `xtask/words.toml` replaces.
//!
//! A word of kind `name` is looked for where a type, a trait, a module, a function, a macro or a file gets its name, and in the
//! code of Markdown pages. A word of kind `prose` is looked for in comments, in texts of more than one word (help, errors) and in
//! pages: whole words, in any case, also across the end of a line.

use std::fs;

use super::docs;
use crate::exceptions::{self, Finding, ListEntry};
use crate::source::{Piece, pieces};
use crate::workspace;

/// The list itself has every word.
const LIST: &str = "xtask/words.toml";

/// What precedes the name of something that is declared.
const DECLARES: [&str; 8] = ["struct", "enum", "trait", "type", "union", "mod", "fn", "macro_rules"];

pub(crate) fn run() -> Result<(), String> {
    let root = workspace::root();
    let entries = exceptions::read(LIST)?;
    let rules = rules(&entries).map_err(|why| format!("{LIST}, {why}"))?;
    let mut findings = Vec::new();
    for file in docs::committed(root)? {
        let path = file.to_string_lossy().into_owned();
        if path != LIST
            && let Ok(text) = fs::read_to_string(root.join(&file))
        {
            findings.extend(look(&rules, &path, &text));
        }
    }
    // A name is renamed file by file, prose is rewritten crate by crate.
    let folder = |finding: &Finding| {
        let is_prose = rules.iter().any(|rule| rule.is_prose && rule.words.contains(&finding.word));
        let mut parts = finding.path.split('/');
        match (is_prose, parts.next(), parts.next()) {
            (true, Some("crates"), Some(name)) => Some(format!("crates/{name}")),
            (true, Some(folder @ ("bench" | "deploy" | "xtask")), _) => Some(folder.to_owned()),
            _ => Some(finding.path.clone()),
        }
    };
    exceptions::judge(LIST, &entries, findings, folder, |findings| findings)
}

struct Rule<'a> {
    entry: &'a ListEntry,
    words: &'a [String],
    is_prose: bool,
    instead: &'a str,
}

fn rules(entries: &[ListEntry]) -> Result<Vec<Rule<'_>>, String> {
    let rule = |entry: &'_ ListEntry| match entry.needs("match")? {
        kind @ ("name" | "prose") => Ok(kind == "prose"),
        kind => Err(format!("a word is matched as `name` or `prose`, not as `{kind}`")),
    };
    let mut rules = Vec::new();
    for entry in exceptions::section(entries, "word") {
        entry.needs("word")?;
        rules.push(Rule {
            entry,
            words: entry.all("word"),
            is_prose: rule(entry)?,
            instead: entry.needs("instead")?,
        });
    }
    Ok(rules)
}

/// Every place of a file that has a word of the list.
fn look(rules: &[Rule<'_>], path: &str, text: &str) -> Vec<Finding> {
    let rules: Vec<&Rule<'_>> = rules.iter().filter(|rule| exceptions::is_under(path, rule.entry)).collect();
    let mut prose = Prose::default();
    let mut names: Vec<(usize, &str)> = Vec::new();
    match path.rsplit_once('.') {
        Some((_, "rs")) => {
            // Its folders have names too; the first file in one answers for it.
            let folders = path.strip_suffix("/mod.rs").unwrap_or(path);
            names.extend(folders.rsplit('/').next().map(|name| (1, name.trim_end_matches(".rs"))));
            let mut before = None;
            for (line, piece) in pieces(text) {
                match piece {
                    Piece::Comment(text) => prose.add(line, text.trim_start_matches(['/', '!', '*'])),
                    Piece::Text(text) if text.trim().contains(' ') => {
                        prose.end();
                        prose.add(line, text);
                        prose.end();
                    }
                    Piece::Name(name) => {
                        prose.end();
                        if before.is_some_and(|before| DECLARES.contains(&before)) {
                            names.push((line, name));
                        }
                    }
                    Piece::Text(_) | Piece::Mark(_) => prose.end(),
                }
                before = match piece {
                    Piece::Name(name) => Some(name),
                    // Stands between `macro_rules` and the name.
                    Piece::Mark('!') => before,
                    Piece::Comment(_) | Piece::Text(_) | Piece::Mark(_) => None,
                };
            }
        }
        Some((_, "md")) => {
            prose.add(1, text);
            for (index, line) in text.lines().enumerate() {
                for code in line.split('`').skip(1).step_by(2) {
                    let code = code.split(|c: char| !c.is_alphanumeric() && c != '_');
                    // A name in small letters may be anything here.
                    names.extend(
                        code.filter(|name| name.starts_with(char::is_uppercase))
                            .map(|name| (index + 1, name)),
                    );
                }
            }
        }
        Some((_, "toml" | "yml" | "sql" | "service" | "sh" | "py")) => prose.add(1, text),
        _ => {}
    }
    let mut findings = Vec::new();
    for rule in rules {
        for word in rule.words {
            let mut lines = Vec::new();
            if rule.is_prose {
                prose.find(word, &mut lines);
            } else {
                lines.extend(names.iter().filter(|(_, name)| name == word).map(|(line, _)| *line));
            }
            findings.extend(lines.into_iter().map(|line| Finding {
                word: word.clone(),
                path: path.to_owned(),
                line,
                instead: rule.instead.to_owned(),
            }));
        }
    }
    findings
}

/// Words as they follow each other, with their lines; an empty one where a sentence or its part ends.
#[derive(Default)]
struct Prose(Vec<(usize, String)>);

impl Prose {
    fn add(&mut self, line: usize, text: &str) {
        for (index, text) in text.lines().enumerate() {
            let mut word = String::new();
            // Comment marks at the start of a line are no ends of sentences.
            for c in text
                .trim_start()
                .trim_start_matches(['/', '!', '#', '-', '>', '*'])
                .chars()
                .chain([' '])
            {
                if c.is_alphanumeric() || matches!(c, '_' | '\'' | '’') {
                    word.extend(c.to_lowercase().map(|c| if c == '’' { '\'' } else { c }));
                    continue;
                }
                if !word.is_empty() {
                    self.0.push((line + index, std::mem::take(&mut word)));
                }
                if !c.is_whitespace() && !matches!(c, '*' | '`') {
                    self.end();
                }
            }
        }
    }

    fn end(&mut self) {
        self.0.push((0, String::new()));
    }

    /// Adds the lines in which a word, or a few in this order, begin.
    fn find(&self, wanted: &str, lines: &mut Vec<usize>) {
        let wanted: Vec<&str> = wanted.split(' ').collect();
        for (at, (line, first)) in self.0.iter().enumerate() {
            if first == wanted[0] && self.0[at..].iter().map(|(_, word)| word).take(wanted.len()).eq(&wanted)
            {
                lines.push(*line);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WORDS: &str = "[[word]]\nmatch = \"name\"\nword = [\"Gizmo\", \"gizmo\"]\ninstead = \"Device\"\n\
                         [[word]]\nmatch = \"prose\"\nword = [\"thou\", \"is spake\"]\ninstead = \"you\"\n\
                         [[word]]\nmatch = \"name\"\nword = \"cog\"\npath = \"crates/a\"\ninstead = \"gear\"\n";

    fn found(path: &str, text: &str) -> Vec<(String, usize)> {
        let entries = exceptions::parse(WORDS).unwrap();
        let rules = rules(&entries).unwrap();
        look(&rules, path, text)
            .into_iter()
            .map(|finding| (finding.word, finding.line))
            .collect()
    }

    fn word(word: &str, line: usize) -> (String, usize) {
        (word.to_owned(), line)
    }

    #[test]
    fn a_declared_name_is_found_and_a_variable_is_not() {
        let text = "mod gizmo;\nlet gizmo = 1;\npub(crate) struct Gizmo<T>;\n// fn gizmo\nmacro_rules! gizmo { () => {} }\nfn a_gizmo(gizmo: u8) {}\n";
        let expected = [word("Gizmo", 3), word("gizmo", 1), word("gizmo", 5)];
        assert_eq!(found("src/a.rs", text), expected);
    }

    #[test]
    fn a_file_and_a_folder_have_names_too() {
        assert_eq!(found("src/gizmo.rs", ""), [word("gizmo", 1)]);
        assert_eq!(found("src/gizmo/mod.rs", ""), [word("gizmo", 1)]);
    }

    #[test]
    fn a_word_may_be_bad_in_one_folder_only() {
        assert_eq!(found("crates/a/x.rs", "fn cog() {}"), [word("cog", 1)]);
        assert_eq!(found("crates/ab/x.rs", "fn cog() {}"), []);
    }

    #[test]
    fn prose_is_found_in_comments_and_texts_and_across_lines() {
        let text = "/// Thou.\n//! it is\n//! spake of\nfn thou() { f(\"so thou art\", \"thou\", thou) }\n// it is. Spake\n";
        assert_eq!(found("src/a.rs", text), [word("thou", 1), word("thou", 4), word("is spake", 2)]);
    }

    #[test]
    fn pages_are_prose_and_have_names_in_their_code() {
        let text = "# Thou\nGizmo `Gizmo::new` `gizmo`\nmy_thou thou-art\n";
        assert_eq!(found("a.md", text), [word("Gizmo", 2), word("thou", 1), word("thou", 3)]);
        assert_eq!(found("a.toml", "# thou\n"), [word("thou", 1)]);
        assert_eq!(found("a.json", "thou"), []);
    }

    #[test]
    fn a_rule_needs_all_of_its_parts() {
        for list in
            ["[[word]]\nword = \"a\"\ninstead = \"b\"\n", "[[word]]\nword = \"a\"\nmatch = \"name\"\n"]
        {
            assert!(rules(&exceptions::parse(list).unwrap()).is_err(), "{list}");
        }
    }
}
