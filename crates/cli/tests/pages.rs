//! Every command on a page is right. On the pages of `docs/` all of them are run, but for those pages that speak of machines that a
//! test does not have; there, as on every other page, each command has a verb and options that exist.
//!
//! A page's shell blocks are one script, in a directory of its own. A line that ends in `# exit code N` must end so, and all others
//! with 0; what the page starts with `&` is ended with the script. A command in the text, `fencehold lease get KEY`, is run by itself,
//! beside what it needs: a lease, a job.
#![cfg(all(feature = "file", feature = "server"))]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::process::{Pid, Signal, kill_process_group};

use crate::support::{TestDirectory, code, path_with_fencehold, until};

/// Pages whose commands are not run, and why.
const NOT_RUN: &[(&str, &str)] = &[
    ("bugs_found.md", "history"),
    ("http.md", "ids and access tokens of the reader's own"),
    ("install.md", "packages, users and units of a machine: `cargo xtask dist` tries them"),
    ("operations.md", "addresses, certificates and folders of a machine"),
    ("postgres.md", "a database"),
    ("races.md", "races, which have tests of their own"),
    ("security.md", "users and roles of a machine"),
    ("stores.md", "buckets, clusters and databases"),
    ("testing.md", "hours"),
    ("top.md", "a terminal: `top.rs` has tests of its own"),
    ("upgrading.md", "two versions, and a database"),
];

/// Verbs that run until they are ended.
const ENDLESS: &[&str] = &["demo", "serve", "event watch", "lease watch", "work"];

fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

/// The Markdown files of a folder, by name, with their text.
fn markdown_in(folder: &str) -> Vec<(String, String)> {
    let entries = fs::read_dir(root().join(folder)).unwrap().map(|entry| entry.unwrap().path());
    let mut pages: Vec<_> = entries
        .filter(|path| path.extension().is_some_and(|extension| extension == "md"))
        .map(|path| (path.file_name().unwrap().to_string_lossy().into(), fs::read_to_string(&path).unwrap()))
        .collect();
    pages.sort();
    pages
}

/// The pages whose commands are run.
fn pages_to_run() -> Vec<(String, String)> {
    let is_run = |(name, _): &(String, String)| NOT_RUN.iter().all(|(other, _)| name != other);
    markdown_in("docs").into_iter().filter(is_run).collect()
}

/// The text outside fenced blocks, and the blocks of this language.
fn apart(text: &str, language: &str) -> (String, Vec<String>) {
    let (mut prose, mut blocks) = (String::new(), Vec::new());
    let mut block: Option<(String, String)> = None;
    for line in text.lines() {
        match (&mut block, line.strip_prefix("```")) {
            (None, Some(language)) => block = Some((language.to_owned(), String::new())),
            (Some(_), Some(_)) => blocks.extend(block.take()),
            (Some((_, body)), None) => *body = format!("{body}{line}\n"),
            (None, None) => prose = format!("{prose}{line}\n"),
        }
    }
    assert_eq!(block, None, "a block that is not closed");
    let blocks = blocks.into_iter().filter(|(of, _)| of == language);
    (prose, blocks.map(|(_, body)| body).collect())
}

/// The commands in the text: code spans that begin with the name of the program. A span may go on in the next line.
fn inline_commands(prose: &str) -> Vec<String> {
    let spans = prose
        .split("\n\n")
        .flat_map(|paragraph| paragraph.split('`').skip(1).step_by(2));
    let spans = spans.map(|span| span.split_whitespace().collect::<Vec<_>>().join(" "));
    spans.filter(|span| span.starts_with("fencehold ")).collect()
}

/// The commands of shell lines, wherever a command can begin.
fn block_commands(script: &str) -> Vec<String> {
    let script = script.replace("\\\n", " ");
    let lines = script.lines().map(|line| line.split(" # ").next().unwrap_or_default());
    let pieces = lines.flat_map(|line| line.split(['|', ';', '&', '(', ')', '\n']));
    let commands = pieces.map(|piece| piece.trim().trim_start_matches("$ ").trim_start_matches("exec "));
    let ours = commands.filter(|command| command.starts_with("fencehold "));
    ours.map(str::to_owned).collect()
}

/// The help of every verb, by its name: `lease acquire`.
fn help_by_verb() -> BTreeMap<&'static str, &'static str> {
    let sections = include_str!("golden/help.txt").split("$ fencehold ").skip(1);
    let verbs = sections.filter_map(|section| section.split_once(" --help\n"));
    verbs.filter(|(verb, _)| !verb.contains('\n')).collect()
}

/// A command taken apart: its verb, and the words after it.
fn verb_and_words<'c>(
    command: &'c str,
    verbs: &BTreeMap<&'static str, &'static str>,
) -> Option<(&'static str, Vec<&'c str>)> {
    let mut words = command.split_whitespace().skip(1).peekable();
    while let Some(option) = words.next_if(|word| word.starts_with('-')) {
        if ["--store", "--namespace", "--timeout", "--output", "-o"].contains(&option) {
            words.next();
        }
    }
    let words: Vec<&str> = words.collect();
    (1..=2).rev().filter(|count| words.len() >= *count).find_map(|count| {
        let (verb, help) = verbs.get_key_value(words[..count].join(" ").as_str())?;
        // A noun is not the verb of what follows it.
        let is_noun =
            help.contains("\nCommands:\n") && words.get(count).is_some_and(|word| !word.starts_with('-'));
        (!is_noun).then(|| (*verb, words[count..].to_vec()))
    })
}

/// Nothing if this verb and these options exist.
fn what_is_wrong(command: &str, verbs: &BTreeMap<&'static str, &'static str>) -> Option<String> {
    let mut words = command.split_whitespace().skip(1);
    if words.all(|word| ["--help", "--version", "-V", "-h"].contains(&word)) {
        return None;
    }
    let Some((verb, words)) = verb_and_words(command, verbs) else {
        return Some("there is no such verb".to_owned());
    };
    let of_fencehold = words.iter().take_while(|word| **word != "--");
    let options = of_fencehold.filter(|word| word.len() > 2 && word.starts_with("--"));
    let known: BTreeSet<&str> =
        verbs[verb].split(|c: char| !(c.is_ascii_alphanumeric() || c == '-')).collect();
    let unknown = options.map(|option| option.split(['=', '\'', '"', '`']).next().unwrap_or_default());
    let unknown: Vec<&str> = unknown.filter(|option| !known.contains(option)).collect();
    (!unknown.is_empty()).then(|| format!("{verb} has no {}", unknown.join(", ")))
}

#[test]
fn every_command_on_every_page_has_a_verb_and_options_that_exist() {
    let verbs = help_by_verb();
    let mut wrong = Vec::new();
    let mut seen = 0;
    for folder in [".", "docs", "docs/benchmarks"] {
        for (page, text) in markdown_in(folder) {
            // What was so once may be gone.
            if ["CHANGELOG.md", "bugs_found.md"].contains(&page.as_str()) {
                continue;
            }
            let (prose, scripts) = apart(&text, "sh");
            let in_blocks = scripts.iter().flat_map(|script| block_commands(script));
            for command in inline_commands(&prose).into_iter().chain(in_blocks) {
                seen += 1;
                wrong.extend(
                    what_is_wrong(&command, &verbs).map(|why| format!("{folder}/{page}: {command}: {why}")),
                );
            }
        }
    }
    assert!(seen > 200, "the pages have more commands than these {seen}");
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// The check itself notices what it is for.
#[test]
fn a_wrong_verb_and_a_wrong_option_are_noticed() {
    let verbs = help_by_verb();
    let right =
        ["fencehold --store file:x lease ls --include-free", "fencehold run --key k -- ls --no-such-option"];
    for command in right {
        assert_eq!(what_is_wrong(command, &verbs), None, "{command}");
    }
    for command in ["leases ls", "lease ls --free", "lease lst", "run --keys k -- ls"] {
        assert!(what_is_wrong(&format!("fencehold {command}"), &verbs).is_some(), "{command}");
    }
    let script = "vars=$(fencehold job a \\\n  --b) || exit # fencehold c\nfencehold d | jq; fencehold e &\n";
    assert_eq!(block_commands(script), ["fencehold job a    --b", "fencehold d", "fencehold e"]);
    let prose = "see `fencehold f\nKEY`, `g` and\n\n`fencehold h`";
    assert_eq!(inline_commands(prose), ["fencehold f KEY", "fencehold h"]);
}

/// Runs a script to its end, in a directory where the program is on the path and every `./command` is there; then ends what it has
/// left running. Gives its exit code and all that it printed, with each line before it is run.
fn run(script: &str) -> (i32, String) {
    let dir = TestDirectory::new();
    let names = script.split_whitespace().filter_map(|word| word.strip_prefix("./"));
    for name in names.collect::<BTreeSet<_>>() {
        fs::write(dir.path(name), "#!/bin/sh\nexec cat\n").unwrap();
        fs::set_permissions(dir.path(name), fs::Permissions::from_mode(0o755)).unwrap();
    }
    let address = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let printed = fs::File::create(dir.path("printed")).unwrap();
    // One that hangs shows how far it came.
    let mut shell = Command::new("timeout");
    shell
        .args(["100", "sh", "-exc", &script.replace("localhost:7117", &address.to_string())])
        .env_clear()
        .current_dir(dir.path(""));
    if let Some(profile) = std::env::var_os("LLVM_PROFILE_FILE") {
        shell.env("LLVM_PROFILE_FILE", profile);
    }
    shell
        .env("PATH", path_with_fencehold())
        .env("HOME", dir.path(""))
        .env("FENCEHOLD_STORE", dir.store())
        .env("FENCEHOLD_SERVE_LISTEN", address.to_string())
        .stdin(Stdio::null())
        .stdout(printed.try_clone().unwrap())
        .stderr(printed)
        .process_group(0);
    let mut shell = shell.spawn().unwrap();
    let status = until("the end of the script", || shell.try_wait().unwrap());
    // The group may be empty already.
    let _ = kill_process_group(Pid::from_child(&shell), Signal::KILL);
    (code(status), fs::read_to_string(dir.path("printed")).unwrap())
}

/// The shell blocks of a page as one script.
fn script_of(blocks: &[String]) -> String {
    let lines = blocks.iter().flat_map(|block| block.lines());
    let lines = lines.map(|line| match line.split_once("# exit code ") {
        Some((command, rest)) => {
            let expected: String = rest.chars().take_while(char::is_ascii_digit).collect();
            format!("code=0; {} || code=$?; [ \"$code\" -eq {expected} ]", command.trim())
        }
        None => line.to_owned(),
    });
    lines.collect::<Vec<_>>().join("\n")
}

#[test]
fn the_shell_blocks_of_every_page_run_as_they_stand_there() {
    let pages = pages_to_run();
    assert!(NOT_RUN.iter().all(|(page, _)| root().join("docs").join(page).exists()), "a page that is gone");
    let scripts = pages.iter().map(|(page, text)| (page, script_of(&apart(text, "sh").1)));
    let scripts: Vec<_> = scripts.filter(|(_, script)| !script.is_empty()).collect();
    assert!(scripts.len() > 6, "more pages than these have commands: {scripts:?}");
    std::thread::scope(|scope| {
        for (page, script) in &scripts {
            scope.spawn(move || {
                let (code, printed) = run(script);
                assert_eq!(code, 0, "{page}: the last line that begins with + is wrong\n{printed}");
            });
        }
    });
}

/// What has to be there for a command to make sense.
fn needed_by(verb: &str, words: &[&str]) -> &'static str {
    const JOB: &str = "job=$(fencehold job enqueue --queue emails --kind send --payload '{}')\n";
    const CLAIMED: &str = "job=$(fencehold job enqueue --queue emails --kind send --payload '{}')\n\
                           eval \"$(fencehold job claim --queue emails -o env)\"\n";
    match verb {
        "lease renew" | "lease release" => "eval \"$(fencehold lease acquire reports/daily -o env)\"\n",
        "lease get" | "lease ls" | "lease revoke" => "fencehold lease acquire reports/daily --task run-42\n",
        "explain" if words == ["KEY"] => "fencehold lease acquire reports/daily\n",
        "job renew" | "job checkpoint" | "job progress" | "job complete" | "job fail" | "job snooze"
        | "job release" => CLAIMED,
        "job wait" => {
            "job=$(fencehold job enqueue --queue emails --kind send --payload '{}')\n\
             fencehold work --queue emails --until-empty -- true\n"
        }
        "job retry" => {
            "job=$(fencehold job enqueue --queue emails --kind send --payload '{}' --max-failures 1)\n\
             fencehold work --queue emails --until-empty -- false\n"
        }
        "job enqueue" => "",
        _ if words.contains(&"JOB") || words.contains(&"QUEUE") => JOB,
        _ => "",
    }
}

/// What is wrong with a command in the text, once it was run.
fn what_failed(command: &str, verbs: &BTreeMap<&'static str, &'static str>) -> Option<String> {
    // Otherwise the other test says so.
    let (verb, words) = verb_and_words(command, verbs)?;
    let is_endless = ENDLESS.contains(&verb) && !words.contains(&"--until-empty");
    let value = |word| match word {
        "KEY" => "reports/daily",
        "JOB" => "\"$job\"",
        "QUEUE" => "emails",
        "CMD" => "true",
        other => other,
    };
    let command: Vec<&str> = command.split(' ').map(value).collect();
    let limit = if is_endless { "timeout 2 " } else { "" };
    let (code, printed) =
        run(&format!("fencehold store create\n{}{limit}{}", needed_by(verb, &words), command.join(" ")));
    let is_right = match code {
        0 => true,
        124 => is_endless,
        // The name of a verb, which needs more than that.
        2 => words.is_empty(),
        _ => false,
    };
    (!is_right).then(|| format!("exit code {code}:\n{printed}"))
}

#[test]
fn every_command_in_the_text_runs() {
    let verbs = help_by_verb();
    let mut where_seen: BTreeMap<String, String> = BTreeMap::new();
    for (page, text) in pages_to_run() {
        let commands = inline_commands(&apart(&text, "sh").0);
        where_seen.extend(commands.into_iter().map(|command| (command, page.clone())));
    }
    let commands: Vec<_> = where_seen.into_iter().collect();
    assert!(commands.len() > 60, "the pages have more commands than these: {commands:#?}");
    let failed = std::sync::Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for some in commands.chunks(commands.len().div_ceil(6)) {
            let (verbs, failed) = (&verbs, &failed);
            scope.spawn(move || {
                for (command, page) in some {
                    let why = what_failed(command, verbs).map(|why| format!("{page}: {command}: {why}"));
                    failed.lock().unwrap().extend(why);
                }
            });
        }
    });
    let failed = failed.into_inner().unwrap();
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}
