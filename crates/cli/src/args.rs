//! The arguments of every command. Commands define their own, each in its file.

use std::ffi::OsString;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Args, CommandFactory, FromArgMatches, Parser, Subcommand as _, ValueEnum as _};

use crate::duration::parse_ms;
use crate::exit_code;
use crate::failure::Failure;
use crate::output::{self, Format};
use crate::verb::{FrequentVerb, Verb};

const STORE_HELP: &str = "The store: file:DIR, memory:, postgres://, s3://, gs://, az://, etcd://, http(s):// \
                          [env: FENCEHOLD_STORE] [default: file: in the user's state directory]";
const NAMESPACE_HELP: &str = "Namespace [env: FENCEHOLD_NAMESPACE] [default: default]";
const TIMEOUT_HELP: &str =
    "How long to retry while the store is unreachable [env: FENCEHOLD_TIMEOUT] [default: 10s]";
const VERBOSE_HELP: &str = "Log to stderr; -vv and -vvv log more [env: FENCEHOLD_LOG, as in fencehold=debug]";

/// Every help: what it is, then examples, then the rest.
const HELP: &str = "{about-with-newline}\n{before-help}{usage-heading} {usage}\n\n{all-args}{after-help}";
/// Also where it is not printed on a terminal: it may be read on one later.
const HELP_COLUMNS: usize = 80;

/// Leases and durable jobs: one holder at a time, and tokens that fence off a late one
#[derive(Debug, Parser)]
#[command(name = "fencehold", version, after_help = exit_code::table(), disable_help_subcommand = true)]
#[command(before_help = "\
# Never two at a time: the second one exits with 75
fencehold run --key reports/daily -- ./build-report

# Wait for a turn
fencehold run --key db/migrate --wait 5m -- ./migrate

# Who holds what, and why is this stuck?
fencehold lease ls
fencehold explain reports/daily")]
pub(crate) struct Cli<V: clap::Subcommand = Verb> {
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(subcommand)]
    pub(crate) verb: V,
}

/// What every command takes, before it or after it.
#[derive(Debug, Args)]
#[command(next_help_heading = "Options of every command")]
pub(crate) struct Global {
    #[arg(long, global = true, value_name = "URL", help = STORE_HELP)]
    pub(crate) store: Option<String>,
    #[arg(long, global = true, value_name = "NAME", help = NAMESPACE_HELP)]
    pub(crate) namespace: Option<String>,
    #[arg(long, global = true, value_name = "DURATION", help = TIMEOUT_HELP, value_parser = parse_ms,
        allow_hyphen_values = true)]
    pub(crate) timeout: Option<u64>,
    /// How to print data; env is for lease acquire and job claim
    #[arg(short = 'o', long = "output", global = true, value_name = "FORMAT", value_enum, default_value_t)]
    pub(crate) output: Format,
    /// Print nothing but data and errors
    #[arg(short, long, global = true, conflicts_with = "verbose")]
    pub(crate) quiet: bool,
    #[arg(short, long, global = true, action = clap::ArgAction::Count, help = VERBOSE_HELP)]
    pub(crate) verbose: u8,
}

/// The whole definition: help, completions and man pages come from it. Commands state their examples as they are typed.
pub(crate) fn definition() -> clap::Command {
    shaped(<Cli>::command())
}

fn shaped(command: clap::Command) -> clap::Command {
    let mut examples = String::from("Examples:\n");
    for line in command.get_before_help().map(ToString::to_string).unwrap_or_default().lines() {
        examples.extend([if line.is_empty() { "" } else { "  " }, line, "\n"]);
    }
    command
        .before_help(examples)
        .help_template(HELP)
        .term_width(HELP_COLUMNS)
        .subcommand_value_name("COMMAND")
        .subcommand_help_heading("Commands")
        .mut_subcommands(shaped)
}

/// What was said, where it is one of these verbs.
fn read<V: clap::Subcommand + Into<Verb>>() -> Result<Cli, clap::Error> {
    let matches = shaped(Cli::<V>::command()).try_get_matches()?;
    let Cli { global, verb } = Cli::<V>::from_arg_matches(&matches)?;
    Ok(Cli { global, verb: verb.into() })
}

/// What was said, or what was wrong with it; nothing, if it was help or the version, which is printed here.
pub(crate) fn parse() -> Result<Option<Box<Cli>>, Failure> {
    let first = std::env::args_os().nth(1);
    // The definition of all verbs takes longer to make than a shell takes to start a command.
    let is_frequent = first.is_some_and(|word| FrequentVerb::has_subcommand(&word.to_string_lossy()));
    let read = if is_frequent { read::<FrequentVerb>() } else { read::<Verb>() };
    match read {
        Ok(cli) => Ok(Some(Box::new(cli))),
        Err(error) => match error.kind() {
            ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
                // clap knows whether stdout takes colours.
                let _ = error.print();
                Ok(None)
            }
            _ => {
                // What was read of it is lost with the rest.
                output::speak(format_wanted(std::env::args_os().skip(1)), false);
                Err(misused(&error))
            }
        },
    }
}

/// The format that arguments name which cannot be read as a whole.
fn format_wanted(words: impl Iterator<Item = OsString>) -> Format {
    let words: Vec<String> = words
        .map(|word| word.to_string_lossy().into_owned())
        .take_while(|word| word != "--")
        .collect();
    let named = words.iter().enumerate().find_map(|(at, word)| match word.as_str() {
        "-o" | "--output" => words.get(at + 1).map(String::as_str),
        word => word.strip_prefix("--output=").or_else(|| word.strip_prefix("-o")),
    });
    named.and_then(|name| Format::from_str(name, true).ok()).unwrap_or_default()
}

/// Bad usage in our own words: the flag, what is wrong with its value, and where to read more.
fn misused(error: &clap::Error) -> Failure {
    if error.kind() == ErrorKind::ValueValidation
        && let Some(ContextValue::String(argument)) = error.get(ContextKind::InvalidArg)
        && let Some(source) = std::error::Error::source(error)
    {
        // The value itself may be long, or rewrite a terminal: it is not repeated.
        return Failure::usage(format!("{argument}: {source}")).with_next("`--help` shows how it is meant.");
    }
    let text = error.render().to_string();
    let text = text.strip_prefix("error: ").unwrap_or(&text).trim_end();
    Failure::usage(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exit_code::ExitStatus;

    #[test]
    fn the_definition_holds() {
        definition().debug_assert();
    }

    /// Looks at every command that is shown, with its path and its help.
    fn for_each(look: &mut impl FnMut(&str, &clap::Command, &str)) {
        for_each_of(definition(), look);
    }

    fn for_each_of(mut command: clap::Command, look: &mut impl FnMut(&str, &clap::Command, &str)) {
        fn descend(
            command: &mut clap::Command,
            path: &str,
            look: &mut impl FnMut(&str, &clap::Command, &str),
        ) {
            let help = command.render_help().to_string();
            look(path, command, &help);
            for sub in command.get_subcommands_mut().filter(|sub| !sub.is_hide_set()) {
                let path = format!("{path} {}", sub.get_name());
                descend(sub, &path, look);
            }
        }
        command.build();
        descend(&mut command, "fencehold", look);
    }

    #[test]
    fn a_frequent_verb_is_defined_as_it_is_among_all_verbs() {
        let shown = |command: &clap::Command, help: &str| {
            let arguments: Vec<_> = command.get_arguments().collect();
            format!("{help}{arguments:?}")
        };
        let mut all = std::collections::HashMap::new();
        for_each(&mut |path, command, help| drop(all.insert(path.to_owned(), shown(command, help))));
        let mut seen = 0;
        for_each_of(shaped(Cli::<FrequentVerb>::command()), &mut |path, command, help| {
            if path != "fencehold" {
                assert_eq!(all.get(path), Some(&shown(command, help)), "{path}");
                seen += 1;
            }
        });
        assert!(seen > 10, "{seen}");
    }

    #[test]
    fn every_verb_shows_an_example_before_its_usage() {
        for_each(&mut |path, _, help| {
            let example = help.find("Examples:\n").unwrap_or_else(|| panic!("{path} shows no example"));
            let usage = help.find("Usage:").unwrap_or_else(|| panic!("{path} has no usage"));
            assert!(example < usage, "{path}");
        });
    }

    #[test]
    fn the_store_can_be_named_before_or_after_the_verb_and_a_command_keeps_its_own_flags() {
        for line in [
            &["fencehold", "--store", "memory:", "run", "--key", "k", "--", "cmd", "--store", "x"],
            &["fencehold", "run", "--key", "k", "--store", "memory:", "--", "cmd", "--store", "x"],
        ] {
            let matches = definition().try_get_matches_from(line).unwrap();
            let cli = <Cli>::from_arg_matches(&matches).unwrap();
            assert_eq!(cli.global.store.as_deref(), Some("memory:"));
        }
    }

    #[test]
    fn a_bad_value_names_its_flag_and_is_not_repeated() {
        let long = "\u{1b}]0;x".repeat(200);
        let line = ["fencehold", "run", "--key", &long, "--", "true"];
        let error = definition().try_get_matches_from(line).unwrap_err();
        let Failure::Said { exit, what, .. } = misused(&error) else { panic!("nothing said") };
        assert_eq!(exit, ExitStatus::Usage);
        assert_eq!(what, "--key <KEY>: key has 1000 bytes; the limit is 512");
    }

    #[test]
    fn an_error_is_in_the_format_that_was_asked_for_also_where_the_rest_cannot_be_read() {
        let format = |line: &str| format_wanted(line.split(' ').map(OsString::from));
        assert_eq!(format("lease ls -o json --nonsense"), Format::Json);
        assert_eq!(format("-ojsonl nonsense"), Format::Jsonl);
        assert_eq!(format("--output=json nonsense"), Format::Json);
        assert_eq!(format("run --key k -- cmd -o json"), Format::Table, "that is the command's own");
        assert_eq!(format("lease ls -o"), Format::Table);
    }

    #[test]
    fn help_fits_into_80_columns_and_breaks_no_example() {
        for_each(&mut |path, command, help| {
            for line in help.lines() {
                assert!(line.chars().count() <= HELP_COLUMNS, "{path}: {line}");
            }
            let examples = command.get_before_help().map(ToString::to_string).unwrap_or_default();
            assert!(help.contains(examples.trim_end()), "{path}: an example is broken:\n{help}");
        });
    }
}
