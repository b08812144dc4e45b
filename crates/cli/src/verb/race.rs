//! `fencehold race …`: races arranged on purpose, here, on your store; and what the naive lock makes of them.

use std::fmt::Write as _;

use clap::ArgGroup;
use fencehold_contract::StoreUrl;
use fencehold_races::{
    Environment, EnvironmentError, RACES, Race, RaceReport, RaceVerdict, Side, TraceEvent, find, play,
};
use serde::Serialize;

use crate::context::Context;
use crate::exit_code::ExitStatus;
use crate::failure::Failure;
use crate::output::{Format, Output};
use crate::show::{Cell, Colour, Style, Table, or_dash};
use crate::verb::{DONE, VerbResult};

const EXAMPLES: &str = "\
Examples:
  fencehold race ls
  # A worker that overslept completes after another one took over
  fencehold race run R06
  # The same schedule against a naive lock: exit code 1
  fencehold race run R06 --naive
  # All races, each in a directory of its own inside DIR
  fencehold race run --all --store file:DIR
  # On a store that is in use, under names of their own
  fencehold race run --all --store postgres://localhost/app
";

const MORE: &str = "\
The exit code is 1 if a promise is broken. It is 77 if this store cannot show the one race that was named; with --all, it \
is 0 if those races held that the store can show.

Without --store a race runs on memory:. On file:DIR it runs in a directory of its own inside DIR. On every other store \
races run at once, touch nothing of yours, and wait for what expires; one that needs power over the store's time is not \
applicable.";

/// Run races against a store, and see whether its promises hold
#[derive(Debug, clap::Args)]
#[command(before_help = EXAMPLES, subcommand_value_name = "COMMAND", subcommand_help_heading = "Commands")]
pub(crate) struct Args {
    #[command(subcommand)]
    what: RaceCommand,
}

#[derive(Debug, clap::Subcommand)]
enum RaceCommand {
    /// List the races, and the promise that each puts at stake
    #[command(before_help = EXAMPLES)]
    Ls,
    /// Run a race, or all of them, and print the verdict
    #[command(before_help = EXAMPLES, after_help = MORE)]
    #[command(group = ArgGroup::new("which").required(true).args(["race", "all"]))]
    Run {
        /// The race, as in R06
        #[arg(value_name = "RACE")]
        race: Option<String>,
        /// All races
        #[arg(long)]
        all: bool,
        #[command(flatten)]
        how: RaceArgs,
    },
}

#[derive(Clone, Copy, Debug, clap::Args)]
struct RaceArgs {
    /// Run a naive lock under the same schedule, and see the damage
    #[arg(long)]
    naive: bool,
    /// How often
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    repeat: u32,
}

impl RaceArgs {
    fn side(self) -> Side {
        if self.naive { Side::Naive } else { Side::Ours }
    }
}

/// One line of the list.
#[derive(Debug, Serialize)]
struct Listed {
    id: &'static str,
    name: &'static str,
    promise: &'static str,
    schedule: &'static str,
    must_hold: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    naive: Option<&'static str>,
}

/// A list of races.
#[derive(Debug, Serialize)]
struct Races<T> {
    races: Vec<T>,
}

/// What became of one race.
#[derive(Debug, Serialize)]
struct RaceResult {
    id: &'static str,
    name: &'static str,
    promise: &'static str,
    runs: u32,
    verdict: &'static str,
    message: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    trace: Vec<TraceEvent>,
}

impl Args {
    #[expect(clippy::unused_async, reason = "every verb is one; a race brings the threads that it needs")]
    pub(crate) async fn run(self, context: &Context) -> VerbResult {
        context.output.refuse_env()?;
        match self.what {
            RaceCommand::Ls => list(context.output),
            RaceCommand::Run { race: Some(race), how, .. } => one(context, &race, how),
            RaceCommand::Run { race: None, how, .. } => all(context, how),
        }
    }
}

fn list(output: Output) -> VerbResult {
    let list = Races { races: RACES.iter().map(listed).collect::<Vec<Listed>>() };
    output.list(&list, &list.races, "no races", || {
        let mut table = Table::new(["RACE", "NAME", "PROMISE", "MUST HOLD", "NAIVE LOCK"]);
        for race in &list.races {
            table.row([
                Cell::from(race.id),
                Cell::from(race.name),
                Cell::from(race.promise),
                Cell::from(race.must_hold),
                or_dash(race.naive),
            ]);
        }
        table
    })?;
    Ok(DONE)
}

fn listed(race: &Race) -> Listed {
    let Race { id, name, promise, schedule, must_hold, naive, .. } = *race;
    Listed { id, name, promise, schedule, must_hold, naive }
}

fn one(context: &Context, id: &str, how: RaceArgs) -> VerbResult {
    let race = find(id).ok_or_else(|| {
        Failure::new(ExitStatus::Usage, format!("there is no race {id:?}"))
            .with_next("`fencehold race ls` lists them.")
    })?;
    if how.naive && race.naive.is_none() {
        return Err(Failure::new(ExitStatus::Usage, format!("{id} has no naive twin"))
            .with_next("`fencehold race ls` shows which races have one."));
    }
    let report = RaceTarget::open(url(context)?)?.repeated(race, how)?;
    let output = context.output;
    match output.format {
        Format::Table | Format::Env => output.text(&told(race, &report, output.style))?,
        Format::Json => output.one(&ran(race, &report, how.repeat), |_| String::new())?,
        Format::Jsonl => output.text(&report.trace())?,
    }
    Ok(match report.verdict {
        RaceVerdict::Held => DONE,
        RaceVerdict::Broken(_) => ExitStatus::Failed.code(),
        // Not 0: it must not pass for a promise that held.
        _ => ExitStatus::NotApplicable.code(),
    })
}

fn all(context: &Context, how: RaceArgs) -> VerbResult {
    let races: Vec<&Race> = RACES.iter().filter(|race| !how.naive || race.naive.is_some()).collect();
    let reports = RaceTarget::open(url(context)?)?.all(&races, how)?;
    let broken = reports.iter().any(|report| matches!(report.verdict, RaceVerdict::Broken(_)));
    let lines: Vec<RaceResult> = races
        .iter()
        .zip(&reports)
        .map(|(race, report)| RaceResult { trace: Vec::new(), ..ran(race, report, how.repeat) })
        .collect();
    let list = Races { races: lines };
    context.output.list(&list, &list.races, "no races", || {
        let mut table = Table::new(["RACE", "NAME", "PROMISE", "RUNS", "VERDICT"]);
        for line in &list.races {
            let colour = match line.verdict {
                "held" => Colour::Good,
                "broken" => Colour::Bad,
                _ => Colour::Faint,
            };
            table.row([
                Cell::from(line.id),
                Cell::from(line.name),
                Cell::from(line.promise),
                Cell::from(line.runs),
                Cell::from(&line.message).in_colour(colour),
            ]);
        }
        table
    })?;
    Ok(if broken { ExitStatus::Failed.code() } else { DONE })
}

/// The store that was named, or else memory: a race never runs by accident in a store that is in use.
fn url(context: &Context) -> Result<StoreUrl, Failure> {
    let Some(text) = context.store_named() else { return Ok(StoreUrl::memory()) };
    text.parse().map_err(Failure::from)
}

/// Where races are run.
struct RaceTarget {
    url: StoreUrl,
    /// The one world of all races, where it has room for many.
    shared: Option<Environment>,
}

impl RaceTarget {
    fn open(url: StoreUrl) -> Result<RaceTarget, Failure> {
        let world = world(&url)?;
        let shared = world.has_room_for_many().then_some(world);
        Ok(RaceTarget { url, shared })
    }

    /// Runs races in turn; where each has to wait for the store's own time, all at once.
    fn all(&self, races: &[&Race], how: RaceArgs) -> Result<Vec<RaceReport>, Failure> {
        if self.shared.is_none() {
            return races.iter().map(|race| self.repeated(race, how)).collect();
        }
        std::thread::scope(|scope| {
            let running: Vec<_> = races.iter().map(|race| scope.spawn(|| self.repeated(race, how))).collect();
            let ended = |run: std::thread::ScopedJoinHandle<'_, _>| match run.join() {
                Ok(report) => report,
                Err(panic) => std::panic::resume_unwind(panic),
            };
            running.into_iter().map(ended).collect()
        })
    }

    /// The first run that broke the promise, or the last one.
    fn repeated(&self, race: &Race, how: RaceArgs) -> Result<RaceReport, Failure> {
        let mut nth = 1;
        loop {
            let report = self.once(race, how)?;
            if nth == how.repeat || matches!(report.verdict, RaceVerdict::Broken(_)) {
                return Ok(report);
            }
            nth += 1;
        }
    }

    fn once(&self, race: &Race, how: RaceArgs) -> Result<RaceReport, Failure> {
        let mut seed = [0; 8];
        getrandom::fill(&mut seed)
            .map_err(|error| Failure::new(ExitStatus::Failed, format!("there is no randomness: {error}")))?;
        match &self.shared {
            Some(world) => Ok(play(race, world, how.side(), seed)),
            None => Ok(play(race, &world(&self.url)?, how.side(), seed)),
        }
    }
}

fn world(url: &StoreUrl) -> Result<Environment, Failure> {
    Environment::open(url).map_err(|error| match error {
        EnvironmentError::BadInput(bad) => bad.into(),
        EnvironmentError::Store(error) => Failure::of_store(error, &url.to_string()),
        error => Failure::new(ExitStatus::Usage, error.to_string()),
    })
}

fn ran(race: &Race, report: &RaceReport, runs: u32) -> RaceResult {
    let verdict = match report.verdict {
        RaceVerdict::Held => "held",
        RaceVerdict::Broken(_) => "broken",
        _ => "not_applicable",
    };
    RaceResult {
        id: race.id,
        name: race.name,
        promise: race.promise,
        runs,
        verdict,
        message: report.verdict.to_string(),
        trace: report.entries.iter().filter_map(|entry| entry.event.clone()).collect(),
    }
}

fn told(race: &Race, report: &RaceReport, style: Style) -> String {
    let mut text = report.trace();
    let title = format!("{} {}", race.id, race.name);
    let _ = writeln!(
        text,
        "\n{}\n{}\n\n{}",
        style.paint(&title, Colour::Strong),
        style.wrap(&format!("{}.", race.schedule), 0),
        report.picture()
    );
    for (name, sentence) in [("At stake:   ", race.promise), ("Must hold:  ", race.must_hold)] {
        let _ = writeln!(text, "{name}{}", style.wrap(sentence, name.len()));
    }
    let colour = match report.verdict {
        RaceVerdict::Held => Colour::Good,
        RaceVerdict::Broken(_) => Colour::Bad,
        _ => Colour::Faint,
    };
    let verdict = style.wrap(&report.verdict.to_string(), "Verdict:    ".len());
    let _ = writeln!(text, "Verdict:    {}", style.paint(&verdict, colour));
    text
}
