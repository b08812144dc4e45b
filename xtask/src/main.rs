//! The chores of the project, run as `cargo xtask COMMAND`.
//!
//! A *command* is what a person types. It runs *stages* (see `lanes.rs`) and stops at the first that fails. A stage is one
//! file under `stage/`; a new one is that file, one line in `stage/mod.rs`, and its name in the commands below.
//!
//! Deliberately absent: dependencies. Every test run waits for xtask first, so it must build in a moment.

#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a tool for the terminal: what it prints is what it is for"
)]
#![allow(clippy::disallowed_methods, reason = "it times its stages for people; nothing decides by that time")]

mod doc_index;
mod edit;
mod exceptions;
mod install;
mod lanes;
mod markdown;
mod private_postgres;
mod process;
mod report;
mod source;
mod stage;
mod workspace;

use std::process::ExitCode;

use stage::{
    ALIKE, API, BUGS, CHAOS, CLIPPY, CLOCKS, CRATES, DENY, DIST, DIST_DEV, DOCS, DOCTESTS, EDITS,
    ETCD_FAULTS, EXAMPLES, FAULTS, FEATURES, FORMAT, LINES, LONG, NEIGHBOURS, PACKAGE, PEERS, PEERS_HTTP,
    PEERS_POSTGRES, POSTGRES, PROGRAMS, PROOF, PROOF_LARGE, RACES, REQUESTS, RUSTDOC, SAME_SECOND, SECURITY,
    SEMVER, SERVERS, SHIPPED, STORED, Stage, TESTS, TESTS_QUICK, TYPES, UPGRADE, WORDS,
};

struct Command {
    name: &'static str,
    about: &'static str,
    stages: &'static [Stage],
}

/// Cheap stages come first, so that a slip is known in seconds. While servers are downloaded the workspace is compiled; and while tests wait for
/// something, the rest fills the processors.
const ALL: &[Stage] = &[
    FORMAT,
    DOCS,
    WORDS,
    TYPES,
    EDITS,
    API,
    CRATES,
    PROGRAMS,
    SHIPPED,
    STORED,
    SERVERS.beside(&["stored"]),
    CLIPPY,
    TESTS.after(&["servers"]),
    PROOF.beside(&["clippy"]),
    FEATURES.beside(&["clippy"]),
    RUSTDOC.beside(&["clippy"]),
    PACKAGE.beside(&["clippy"]),
    DOCTESTS.beside(&["clippy"]),
    EXAMPLES.beside(&["clippy"]),
];

const COMMANDS: &[Command] = &[
    Command { name: "test", about: "everything that CI runs", stages: ALL },
    Command {
        name: "quick",
        about: "what every commit should pass",
        stages: &[
            FORMAT,
            WORDS,
            TYPES,
            EDITS,
            API,
            CRATES,
            PROGRAMS,
            STORED,
            SERVERS.beside(&["stored"]),
            CLIPPY,
            TESTS_QUICK.after(&["servers"]),
        ],
    },
    Command {
        name: "long",
        about: "what takes long: races, chaos, faults and floods at length, and every test twenty times",
        stages: &[
            SERVERS,
            RACES,
            CHAOS,
            CLOCKS,
            SAME_SECOND,
            ETCD_FAULTS,
            POSTGRES,
            ALIKE,
            UPGRADE,
            NEIGHBOURS,
            REQUESTS,
            LONG,
        ],
    },
    Command { name: "servers", about: "installs the servers that tests start", stages: &[SERVERS] },
    Command {
        name: "proof",
        about: "models, simulation and real faults at length: a good quarter of an hour",
        stages: &[PROOF_LARGE, SERVERS, FAULTS],
    },
    Command {
        name: "faults",
        about: "kills, stops, failing and full disks, clocks that jump: at length",
        stages: &[SERVERS, FAULTS],
    },
    Command {
        name: "bugs",
        about: "each deliberate bug in turn, and which checks notice it",
        stages: &[BUGS],
    },
    Command {
        name: "peers",
        about: "our benchmarks beside redis-server, beanstalkd, etcd-server and other queues on PostgreSQL",
        stages: &[PEERS, PEERS_HTTP, PEERS_POSTGRES],
    },
    Command {
        name: "security",
        about: "writes the tables of docs/security.md anew, by what users, roles and tokens may do",
        stages: &[SERVERS, SECURITY],
    },
    Command { name: "lines", about: "how many lines of code there are, by crate", stages: &[LINES] },
    Command {
        name: "dist",
        about: "packages for people to install, into dist/, each tried on a clean Debian",
        stages: &[DIST],
    },
    Command {
        name: "dist --dev",
        about: "the same with the binary that tests use: larger, and for this machine",
        stages: &[DIST_DEV],
    },
    Command { name: "deny", about: "bans, licences and sources of dependencies", stages: &[DENY] },
    Command {
        name: "semver",
        about: "what changed in the Rust API since the last release",
        stages: &[SEMVER],
    },
];

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    // A command with an option has a line of its own in the list.
    let (words, wanted) = args.split_at(match args.get(1) {
        Some(option) if option.starts_with("--") => 2,
        _ => args.len().min(1),
    });
    let name = if words.is_empty() { "help".to_owned() } else { words.join(" ") };
    let name = name.as_str();
    if matches!(name, "help" | "-h" | "--help") {
        print!("{}", help());
        return ExitCode::SUCCESS;
    }
    if name == lanes::ALONE {
        let stage = ALL.iter().find(|stage| wanted.first().is_some_and(|name| name == stage.name));
        return stage.map_or(ExitCode::FAILURE, lanes::run_alone);
    }
    let stages = match choose(name, wanted) {
        Ok(stages) => stages,
        Err(why) => {
            eprintln!("xtask: {why}\n\n{}", help());
            return ExitCode::from(2);
        }
    };
    match stage::run_all(&stages) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("\nxtask: stage `{}` failed: {}", failure.stage, failure.why);
            ExitCode::FAILURE
        }
    }
}

/// The stages of the command `name`, or only those of them that are in `wanted`.
fn choose(name: &str, wanted: &[String]) -> Result<Vec<Stage>, String> {
    let command = COMMANDS.iter().find(|command| command.name == name);
    let command = command.ok_or_else(|| format!("there is no command `{name}`"))?;
    for stage in wanted {
        if !command.stages.iter().any(|known| known.name == stage) {
            return Err(format!("`{name}` has no stage `{stage}`"));
        }
    }
    let chosen = |stage: &&Stage| wanted.is_empty() || wanted.iter().any(|name| name == stage.name);
    Ok(command.stages.iter().filter(chosen).copied().collect())
}

fn help() -> String {
    let line = |command: &Command| {
        let names: Vec<_> = command.stages.iter().map(|stage| stage.name).collect();
        let stages = if names.len() > 1 { format!(": {}", names.join(", ")) } else { String::new() };
        format!("  {:<12}{}{stages}", command.name, command.about)
    };
    let mut lines = vec!["cargo xtask COMMAND [STAGE...]".to_owned(), String::new()];
    lines.extend(COMMANDS.iter().map(line));
    lines.push("  help        this list".to_owned());
    lines.push(String::new());
    lines.push("Stages named after a command run alone: `cargo xtask test format docs`.\n".to_owned());
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(stages: &[Stage]) -> Vec<&str> {
        stages.iter().map(|stage| stage.name).collect()
    }

    #[test]
    fn quick_checks_nothing_that_ci_does_not() {
        let everything = names(ALL);
        for name in names(&choose("quick", &[]).unwrap()) {
            let name = name.trim_start_matches("quick-");
            assert!(everything.contains(&name), "`{name}` is in quick but not in test");
        }
    }

    #[test]
    fn a_stage_waits_only_for_what_stands_before_it() {
        for command in COMMANDS {
            for (nth, stage) in command.stages.iter().enumerate() {
                let before = names(&command.stages[..nth]);
                assert!(stage.after.iter().all(|name| before.contains(name)), "{}", stage.name);
                assert!(
                    !stage.beside || ALL.iter().any(|known| known.name == stage.name),
                    "it is found by its name"
                );
            }
        }
    }

    #[test]
    fn named_stages_run_alone_and_in_the_commands_order() {
        let wanted = ["clippy".to_owned(), "format".to_owned()];
        assert_eq!(names(&choose("test", &wanted).unwrap()), ["format", "clippy"]);
    }

    #[test]
    fn unknown_commands_and_stages_are_refused_by_name() {
        assert_eq!(choose("tset", &[]).unwrap_err(), "there is no command `tset`");
        let wanted = ["docs".to_owned()];
        assert_eq!(choose("quick", &wanted).unwrap_err(), "`quick` has no stage `docs`");
    }

    #[test]
    fn help_has_one_line_for_every_command() {
        let help = help();
        for command in COMMANDS {
            let start = format!("  {:<12}", command.name);
            assert_eq!(help.lines().filter(|line| line.starts_with(&start)).count(), 1, "{help}");
        }
    }
}
