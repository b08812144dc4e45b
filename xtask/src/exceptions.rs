//! What a check of words or names lets pass, from a file beside the sources.
//!
//! `[[allowed]]` is for good, with a reason. `[remaining]` is what has still to be rewritten: how often, and where. It may only
//! shrink: a check fails when there is more, when there is less than the file says, and when an exception excuses nothing.
//!
//! The files are TOML of the plainest kind: texts, lists of texts and numbers, each on one line. In `[remaining]` a key is a path
//! and a word, or a word alone, and its value is how often that occurs.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use crate::workspace;

/// Set to write `[remaining]` anew instead of failing.
const WRITE: &str = "FENCEHOLD_WRITE_REMAINING";

const REMAINING: &str = "[remaining]";

/// One table of such a file.
#[derive(Debug, Default)]
pub(crate) struct ListEntry {
    line: usize,
    section: String,
    fields: BTreeMap<String, Vec<String>>,
}

impl ListEntry {
    /// The values of a list, or the only one; none if it is not there.
    pub(crate) fn all(&self, field: &str) -> &[String] {
        self.fields.get(field).map_or(&[], Vec::as_slice)
    }

    pub(crate) fn one(&self, field: &str) -> Option<&str> {
        self.all(field).first().map(String::as_str)
    }

    pub(crate) fn needs(&self, field: &str) -> Result<&str, String> {
        let missing = || format!("line {}: [[{}]] has no `{field}`", self.line, self.section);
        self.one(field).filter(|value| !value.is_empty()).ok_or_else(missing)
    }
}

/// A place that a check objects to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Finding {
    pub(crate) word: String,
    pub(crate) path: String,
    pub(crate) line: usize,
    /// What to write instead.
    pub(crate) instead: String,
}

/// The tables of one section.
pub(crate) fn section<'a>(entries: &'a [ListEntry], name: &'a str) -> impl Iterator<Item = &'a ListEntry> {
    entries.iter().filter(move |entry| entry.section == name)
}

pub(crate) fn read(path: &str) -> Result<Vec<ListEntry>, String> {
    let text = fs::read_to_string(workspace::root().join(path))
        .map_err(|error| format!("{path} cannot be read: {error}"))?;
    parse(&text).map_err(|why| format!("{path}, {why}"))
}

pub(crate) fn parse(text: &str) -> Result<Vec<ListEntry>, String> {
    let mut entries: Vec<ListEntry> = Vec::new();
    let mut is_remaining = false;
    for (index, line) in text.lines().enumerate() {
        let line = line.trim();
        let at = index + 1;
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        if line == REMAINING {
            is_remaining = true;
            continue;
        }
        if let Some(section) = line.strip_prefix("[[").and_then(|rest| rest.strip_suffix("]]")) {
            entries.push(ListEntry { line: at, section: section.to_owned(), ..ListEntry::default() });
            continue;
        }
        let unreadable = || format!("line {at} cannot be read: {line}");
        let (name, value) = line.split_once('=').ok_or_else(unreadable)?;
        let value = value.trim();
        let values = match value.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            Some(list) => list.split(", ").map(unquoted).collect(),
            None => vec![unquoted(value)],
        };
        if is_remaining {
            let key = unquoted(name);
            let (path, word) = key
                .split_once(": ")
                .map_or((None, key.as_str()), |(path, word)| (Some(path), word));
            let fields =
                [("word", Some(word)), ("path", path), ("count", values.first().map(String::as_str))];
            let fields = fields
                .into_iter()
                .filter_map(|(name, value)| Some((name.to_owned(), vec![value?.to_owned()])));
            entries.push(ListEntry { line: at, section: "remaining".to_owned(), fields: fields.collect() });
            continue;
        }
        let entry = entries.last_mut().ok_or_else(unreadable)?;
        entry.fields.insert(name.trim().to_owned(), values);
    }
    Ok(entries)
}

fn unquoted(value: &str) -> String {
    value.trim().trim_matches('"').to_owned()
}

/// Whether a file is the one that an entry names, or is below that folder. An entry without a path is about every file.
pub(crate) fn is_under(path: &str, entry: &ListEntry) -> bool {
    let paths = entry.all("path");
    let below = |folder: &String| {
        path.strip_prefix(folder.as_str())
            .is_some_and(|rest| rest.is_empty() || rest.starts_with(['/', '.']))
    };
    paths.is_empty() || paths.iter().any(below)
}

fn excuses(entry: &ListEntry, finding: &Finding) -> bool {
    let words = entry.all("word");
    let named = words.iter().any(|word| word == "*" || *word == finding.word);
    named && is_under(&finding.path, entry)
}

/// What is left of `findings` without those that are allowed, and what is wrong with the entries that allow them.
pub(crate) fn without_allowed(
    entries: &[ListEntry],
    findings: Vec<Finding>,
) -> Result<(Vec<Finding>, Vec<String>), String> {
    let mut faults = Vec::new();
    for entry in section(entries, "allowed") {
        entry.needs("reason")?;
        entry.needs("word")?;
        if !findings.iter().any(|finding| excuses(entry, finding)) {
            faults.push(format!("line {}: this allows what does not occur: remove it", entry.line));
        }
    }
    let is_allowed = |finding: &Finding| section(entries, "allowed").any(|entry| excuses(entry, finding));
    Ok((findings.into_iter().filter(|finding| !is_allowed(finding)).collect(), faults))
}

/// Holds what is not allowed against what remains to be done.
pub(crate) fn faults(entries: &[ListEntry], findings: &[Finding]) -> Result<Vec<String>, String> {
    let mut faults = Vec::new();
    let mut excused = vec![false; findings.len()];
    for entry in section(entries, "remaining") {
        let count: usize = entry
            .needs("count")?
            .parse()
            .map_err(|_| format!("line {}: `count` is no number", entry.line))?;
        let (word, path) = (entry.needs("word")?, entry.one("path").unwrap_or("the project"));
        let mut here = Vec::new();
        for (finding, excused) in findings.iter().zip(&mut excused) {
            if !*excused && excuses(entry, finding) {
                *excused = true;
                here.push(finding);
            }
        }
        let line = entry.line;
        match here.len() {
            found if found > count => {
                faults.push(format!(
                    "line {line}: `{word}` is {found} times in {path}, {count} remained: write {}",
                    here[0].instead
                ));
                faults.extend(here.iter().map(|finding| format!("    {}:{}", finding.path, finding.line)));
            }
            0 => faults.push(format!("line {line}: `{word}` is gone from {path}: remove this entry")),
            found if found < count => {
                faults.push(format!(
                    "line {line}: `{word}` is {found} times in {path}: lower the count from {count}"
                ));
            }
            _ => {}
        }
    }
    for (finding, _) in findings.iter().zip(excused).filter(|(_, excused)| !excused) {
        let Finding { word, path, line, instead } = finding;
        faults.push(format!("{path}:{line}: `{word}`: write {instead}"));
    }
    Ok(faults)
}

/// Fails with what is wrong. If asked to, writes what remains into the file at `list` instead, by the folders that `folder` gives.
pub(crate) fn judge(
    list: &str,
    entries: &[ListEntry],
    findings: Vec<Finding>,
    folder: impl Fn(&Finding) -> Option<String>,
    are_wrong: impl Fn(Vec<Finding>) -> Vec<Finding>,
) -> Result<(), String> {
    let found = findings.len();
    let (findings, mut wrong) = without_allowed(entries, findings)?;
    let allowed = found - findings.len();
    let findings = are_wrong(findings);
    if std::env::var_os(WRITE).is_some() {
        return write(&workspace::root().join(list), &findings, folder);
    }
    wrong.extend(faults(entries, &findings)?);
    if wrong.is_empty() {
        println!("{allowed} are allowed for a reason, {} remain to be rewritten", findings.len());
        return Ok(());
    }
    for line in &wrong {
        eprintln!("{line}");
    }
    Err(format!(
        "{} faults, listed above (lines without a file are of {list}); what is there for good goes to its `allowed`, with a \
         reason; {WRITE}=1 writes its `remaining` anew",
        wrong.iter().filter(|line| !line.starts_with(' ')).count()
    ))
}

fn write(
    path: &Path,
    findings: &[Finding],
    folder: impl Fn(&Finding) -> Option<String>,
) -> Result<(), String> {
    let cannot = |error| format!("{} cannot be written: {error}", path.display());
    let text = fs::read_to_string(path).map_err(cannot)?;
    let kept = text.split(&format!("\n{REMAINING}\n")).next().unwrap_or_default().trim_end();
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for finding in findings {
        let word = &finding.word;
        let key = folder(finding).map_or_else(|| word.clone(), |folder| format!("{folder}: {word}"));
        *counts.entry(key).or_default() += 1;
    }
    let lines: Vec<String> = counts
        .into_iter()
        .map(|(key, count)| format!("\"{key}\" = {count}\n"))
        .collect();
    fs::write(path, format!("{kept}\n\n{REMAINING}\n{}", lines.concat())).map_err(cannot)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finding(word: &str, path: &str) -> Finding {
        Finding { word: word.to_owned(), path: path.to_owned(), line: 3, instead: "better".to_owned() }
    }

    fn all_faults(list: &str, findings: Vec<Finding>) -> Vec<String> {
        let entries = parse(list).unwrap();
        let (findings, mut wrong) = without_allowed(&entries, findings).unwrap();
        wrong.extend(faults(&entries, &findings).unwrap());
        wrong
    }

    #[test]
    fn what_has_no_entry_is_named_with_its_line_and_the_better_word() {
        assert_eq!(all_faults("", vec![finding("odd", "a/b.rs")]), ["a/b.rs:3: `odd`: write better"]);
        assert_eq!(all_faults("", vec![]), [""; 0]);
    }

    #[test]
    fn what_is_allowed_passes_there_and_nowhere_else() {
        let list =
            "[[allowed]]\nword = \"odd\"\npath = [\"a\", \"c.rs\"]\nreason = \"a term of the field\"\n";
        assert_eq!(all_faults(list, vec![finding("odd", "a/b.rs"), finding("odd", "c.rs")]), [""; 0]);
        assert_eq!(all_faults(list, vec![finding("odd", "a/b.rs"), finding("odd", "ab/c.rs")]).len(), 1);
        assert_eq!(
            all_faults(list, vec![finding("other", "a/b.rs")]).len(),
            2,
            "an entry that allows nothing is a fault too"
        );
    }

    #[test]
    fn an_exception_without_a_reason_is_none() {
        let entries = parse("[[allowed]]\nword = \"odd\"\n").unwrap();
        let said = without_allowed(&entries, vec![finding("odd", "a.rs")]).unwrap_err();
        assert_eq!(said, "line 1: [[allowed]] has no `reason`");
    }

    #[test]
    fn what_remains_neither_grows_nor_stays_in_the_list_when_it_is_gone() {
        let list = "[remaining]\n\"a: odd\" = 2\n";
        let odd = finding("odd", "a/b.rs");
        assert_eq!(all_faults(list, vec![odd.clone(), odd.clone()]), [""; 0]);
        let grown = all_faults(list, vec![odd.clone(), odd.clone(), odd.clone()]);
        assert_eq!(grown[0], "line 2: `odd` is 3 times in a, 2 remained: write better");
        let shrunk = all_faults(list, vec![odd]);
        assert_eq!(shrunk, ["line 2: `odd` is 1 times in a: lower the count from 2"]);
        assert_eq!(all_faults(list, vec![]), ["line 2: `odd` is gone from a: remove this entry"]);
    }

    #[test]
    fn a_line_that_is_no_entry_is_named() {
        assert_eq!(parse("[[word]]\nnonsense\n").unwrap_err(), "line 2 cannot be read: nonsense");
    }
}
