//! Deliberate bugs as edits of the source: how they are written, and how they are applied.
//!
//! One file `NAME.diff` is one bug. Its head says what is `wrong`, which promise it `breaks` and which `check` must notice it.
//! Then come *hunks*: a line `--- PATH`, and lines that begin with a space (stays), `-` (goes) or `+` (comes). A hunk has no
//! line numbers: what stays and goes must occur exactly once in the file. Whitespace does not count, so a hunk survives
//! rustfmt and may break lines where it likes. `BUG` in a line that comes is true while the bug is on.
//!
//! All edits are applied together, so no two may change the same place. `switch.diff` has no head: it is the switch itself.

use std::collections::BTreeMap;
use std::path::Path;

/// The edit that adds the switch, and the file that it adds to `core`.
const SWITCH: &str = "switch";

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Bug {
    pub(crate) name: String,
    pub(crate) wrong: String,
    pub(crate) breaks: String,
    pub(crate) check: String,
}

#[derive(Debug)]
struct Hunk {
    /// The edit that it belongs to.
    name: String,
    path: String,
    lines: Vec<(char, String)>,
}

/// What comes instead of some bytes of a source.
#[derive(Debug, PartialEq, Eq)]
struct Change {
    from: usize,
    to: usize,
    text: String,
}

#[derive(Debug, Default)]
pub(crate) struct Edits {
    /// By promise, then by name.
    pub(crate) bugs: Vec<Bug>,
    hunks: Vec<Hunk>,
}

impl Edits {
    /// Reads every edit of the workspace at `root`.
    pub(crate) fn read(root: &Path) -> Result<Self, String> {
        let folder = root.join("crates/proof/bugs");
        let unreadable = |error| format!("{}: {error}", folder.display());
        let mut edits = Self::default();
        for entry in std::fs::read_dir(&folder).map_err(unreadable)? {
            let path = entry.map_err(unreadable)?.path();
            let Some(name) = path.to_str().and_then(|path| path.strip_suffix(".diff")) else { continue };
            let name = name.rsplit('/').next().unwrap_or(name);
            let text = std::fs::read_to_string(&path).map_err(unreadable)?;
            edits.add(name, &text).map_err(|why| format!("{name}.diff: {why}"))?;
        }
        edits
            .bugs
            .sort_by_key(|bug| (bug.breaks.len(), bug.breaks.clone(), bug.name.clone()));
        Ok(edits)
    }

    fn add(&mut self, name: &str, text: &str) -> Result<(), String> {
        let mut hunks = text.split("\n--- ");
        let head = if text.starts_with("--- ") { "" } else { hunks.next().unwrap_or_default() };
        for hunk in hunks {
            let (path, lines) = hunk.trim_start_matches("--- ").split_once('\n').unwrap_or((hunk, ""));
            let mut read = Vec::new();
            for line in lines.lines().filter(|line| !line.is_empty()) {
                let (mark, rest) = line.split_at(1);
                let mark = mark.chars().next().filter(|mark| " +-".contains(*mark));
                read.push((mark.ok_or_else(|| format!("`{line}` stays, goes or comes?"))?, rest.to_owned()));
            }
            let comes: Vec<_> = read.iter().filter(|(mark, _)| *mark == '+').collect();
            if name != SWITCH && !comes.iter().any(|(_, line)| line.contains("BUG")) {
                return Err(format!("what comes into {path} does not ask for BUG"));
            }
            self.hunks
                .push(Hunk { name: name.to_owned(), path: path.to_owned(), lines: read });
        }
        if name != SWITCH {
            let field = |field: &str| {
                let found = head.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(": "));
                found.map(str::to_owned).ok_or_else(|| format!("it has no line `{field}: …`"))
            };
            let (wrong, breaks, check) = (field("wrong")?, field("breaks")?, field("check")?);
            self.bugs.push(Bug { name: name.to_owned(), wrong, breaks, check });
        }
        Ok(())
    }

    /// Every file of the workspace at `root` that is changed or added, with its new text. An error lists all that does not apply.
    pub(crate) fn applied(&self, root: &Path) -> Result<BTreeMap<String, String>, String> {
        let mut by_path = BTreeMap::<&str, Vec<&Hunk>>::new();
        for hunk in &self.hunks {
            by_path.entry(&hunk.path).or_default().push(hunk);
        }
        let (mut files, mut problems) = (BTreeMap::new(), Vec::new());
        for (path, hunks) in by_path {
            match std::fs::read_to_string(root.join(path)) {
                Err(error) => {
                    problems.extend(hunks.iter().map(|hunk| format!("{}.diff: {path}: {error}", hunk.name)));
                }
                Ok(source) => match all(&source, &hunks) {
                    Ok(text) => drop(files.insert(path.to_owned(), text)),
                    Err(why) => problems.extend(why),
                },
            }
        }
        match std::fs::read_to_string(root.join("crates/proof/bugs/switch.rs")) {
            Ok(switch) => drop(files.insert("crates/core/src/switch.rs".to_owned(), switch)),
            Err(error) => problems.push(format!("crates/proof/bugs/switch.rs: {error}")),
        }
        if problems.is_empty() { Ok(files) } else { Err(problems.join("\n")) }
    }
}

/// The source with every hunk applied, or every reason why not.
fn all(source: &str, hunks: &[&Hunk]) -> Result<String, Vec<String>> {
    let (mut changes, mut problems) = (Vec::new(), Vec::new());
    for hunk in hunks {
        match hunk.changes(source) {
            Ok(own) => changes.extend(own.into_iter().map(|change| (change, &hunk.name))),
            Err(why) => problems.push(format!("{}.diff: {}: {why}", hunk.name, hunk.path)),
        }
    }
    changes.sort_by_key(|(change, _)| (change.from, change.to));
    for pair in changes.windows(2) {
        let ((one, by), (other, after)) = (&pair[0], &pair[1]);
        if one.from == other.from || one.to > other.from {
            problems.push(format!("{by}.diff and {after}.diff change the same place: {}", other.text));
        }
    }
    if !problems.is_empty() {
        return Err(problems);
    }
    let mut text = source.to_owned();
    for (change, _) in changes.iter().rev() {
        text.replace_range(change.from..change.to, &change.text);
    }
    Ok(text)
}

impl Hunk {
    fn changes(&self, source: &str) -> Result<Vec<Change>, String> {
        let visible = |line: &str| -> Vec<char> { line.chars().filter(|c| !c.is_whitespace()).collect() };
        let stays_or_goes = self.lines.iter().filter(|(mark, _)| *mark != '+');
        let old: Vec<char> = stays_or_goes.flat_map(|(_, line)| visible(line)).collect();
        if old.is_empty() {
            return Err("nothing in it says where".to_owned());
        }
        let text: Vec<(usize, char)> = source.char_indices().filter(|(_, c)| !c.is_whitespace()).collect();
        let is_old = |found: &[(usize, char)]| found.iter().map(|(_, c)| c).eq(&old);
        let found: Vec<_> = text.windows(old.len()).filter(|found| is_old(found)).collect();
        let [found] = found.as_slice() else {
            let shown: String = old.iter().take(60).collect();
            return Err(format!("`{shown}…` occurs {} times; it must occur once", found.len()));
        };
        let end_of = |count: usize| found[count - 1].0 + found[count - 1].1.len_utf8();
        let (mut changes, mut open, mut at) = (Vec::new(), None::<(usize, String)>, 0);
        let close = |open: &mut Option<(usize, String)>, at: usize, changes: &mut Vec<Change>| {
            let Some((from, text)) = open.take() else { return };
            // What only comes stands right behind what is before it.
            let start = if from > 0 && from == at { end_of(from) } else { found[from].0 };
            let end = if from == at { start } else { end_of(at) };
            let on = format!("::fencehold_core::switch::is_on(\"{}\")", self.name);
            changes.push(Change { from: start, to: end, text: text.replace("BUG", &on) });
        };
        for (mark, line) in &self.lines {
            if *mark == ' ' {
                close(&mut open, at, &mut changes);
                at += visible(line).len();
                continue;
            }
            let (_, text) = open.get_or_insert_with(|| (at, "\n".to_owned()));
            if *mark == '+' {
                text.push_str(line);
                text.push('\n');
            } else {
                at += visible(line).len();
            }
        }
        close(&mut open, at, &mut changes);
        Ok(changes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOURCE: &str = "fn live(a: u64) -> bool {\n    // Why.\n    if a > 0 {\n        return true;\n    }\n    a == 0 && b()\n}\n";

    fn edits(texts: &[(&str, &str)]) -> Edits {
        let mut edits = Edits::default();
        for (name, hunks) in texts {
            let head = "wrong: all of it\nbreaks: P1\ncheck: race\n\n";
            edits.add(name, &format!("{head}{hunks}")).unwrap();
        }
        edits
    }

    fn applied(texts: &[(&str, &str)]) -> Result<String, Vec<String>> {
        let edits = edits(texts);
        all(SOURCE, &edits.hunks.iter().collect::<Vec<_>>())
    }

    fn squeezed(text: &str) -> String {
        text.split_whitespace().collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn edits_of_one_file_are_applied_together_and_whitespace_does_not_count() {
        let one = "--- a.rs\n if a\n   > 0\n+ || BUG\n {\n";
        let other = "--- a.rs\n+ if BUG { return false; }\n-a == 0\n+a == 1\n && b()\n";
        let text = applied(&[("One", one), ("Other", other)]).unwrap();
        let expected = "fn live(a: u64) -> bool { // Why. if a > 0 || ::fencehold_core::switch::is_on(\"One\") { return true; } \
                        if ::fencehold_core::switch::is_on(\"Other\") { return false; } a == 1 && b() }";
        assert_eq!(squeezed(&text), expected);
    }

    #[test]
    fn what_does_not_occur_exactly_once_is_refused_by_name() {
        let said = applied(&[("Gone", "--- a.rs\n if a > 1 {\n+BUG\n")]).unwrap_err().join(" ");
        assert_eq!(said, "Gone.diff: a.rs: `ifa>1{…` occurs 0 times; it must occur once");
        let said = applied(&[("Twice", "--- a.rs\n a\n+BUG\n")]).unwrap_err().join(" ");
        assert!(said.contains("it must occur once"), "{said}");
    }

    #[test]
    fn two_edits_of_one_place_are_refused() {
        let said = applied(&[("One", "--- a.rs\n > 0\n+BUG\n"), ("Other", "--- a.rs\n if a > 0\n+BUG\n")]);
        assert!(
            said.unwrap_err()
                .join(" ")
                .contains("One.diff and Other.diff change the same place")
        );
    }

    #[test]
    fn an_edit_that_lacks_something_is_refused() {
        let mut edits = Edits::default();
        let said = edits.add("Bug", "wrong: all\nbreaks: P1\n\n--- a.rs\n a\n+BUG\n").unwrap_err();
        assert_eq!(said, "it has no line `check: …`");
        let said = edits.add("Bug", "wrong: all\n\n--- a.rs\n a\n+b\n").unwrap_err();
        assert_eq!(said, "what comes into a.rs does not ask for BUG");
        let said = edits.add("Bug", "wrong: all\n\n--- a.rs\na\n+BUG\n").unwrap_err();
        assert_eq!(said, "`a` stays, goes or comes?");
    }
}
