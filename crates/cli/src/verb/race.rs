//! `fencehold race …`: races arranged on purpose, here, on your store; and what the naive lock makes of them.

use std::fmt::Write as _;

use clap::ArgGroup;
use fencehold_contract::StoreUrl;
use fencehold_races::{Event, RACES, Race, Report, Side, Verdict, World, WorldError, find, play};
use serde::Serialize;

use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::{Format, Output};
use crate::show::{Cell, Colour, Style, Table, or_dash};
use crate::verb::{DONE, Outcome};

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
    what: What,
}

#[derive(Debug, clap::Subcommand)]
enum What {
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
        how: How,
    },
}

#[derive(Clone, Copy, Debug, clap::Args)]
struct How {
    /// Run a naive lock under the same schedule, and see the damage
    #[arg(long)]
    naive: bool,
    /// How often
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    repeat: u32,
}

impl How {
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
struct Ran {
    id: &'static str,
    name: &'static str,
    promise: &'static str,
    runs: u32,
    verdict: &'static str,
    message: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    trace: Vec<Event>,
}

impl Args {
    #[expect(clippy::unused_async, reason = "every verb is one; a race brings the threads that it needs")]
    pub(crate) async fn run(self, context: &Context) -> Outcome {
        context.output.refuse_env()?;
        match self.what {
            What::Ls => list(context.output),
            What::Run { race: Some(race), how, .. } => one(context, &race, how),
            What::Run { race: None, how, .. } => all(context, how),
        }
    }
}

fn list(output: Output) -> Outcome {
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

fn one(context: &Context, id: &str, how: How) -> Outcome {
    let race = find(id).ok_or_else(|| {
        Failure::new(Exit::Usage, format!("there is no race {id:?}"))
            .with_next("`fencehold race ls` lists them.")
    })?;
    if how.naive && race.naive.is_none() {
        return Err(Failure::new(Exit::Usage, format!("{id} has no naive twin"))
            .with_next("`fencehold race ls` shows which races have one."));
    }
    let report = Ground::open(url(context)?)?.repeated(race, how)?;
    let output = context.output;
    match output.format {
        Format::Table | Format::Env => output.text(&told(race, &report, output.style))?,
        Format::Json => output.one(&ran(race, &report, how.repeat), |_| String::new())?,
        Format::Jsonl => output.text(&report.trace())?,
    }
    Ok(match report.verdict {
        Verdict::Held => DONE,
        Verdict::Broken(_) => Exit::Failed.code(),
        // Not 0: it must not pass for a promise that held.
        _ => Exit::NotApplicable.code(),
    })
}

fn all(context: &Context, how: How) -> Outcome {
    let races: Vec<&Race> = RACES.iter().filter(|race| !how.naive || race.naive.is_some()).collect();
    let reports = Ground::open(url(context)?)?.all(&races, how)?;
    let broken = reports.iter().any(|report| matches!(report.verdict, Verdict::Broken(_)));
    let lines: Vec<Ran> = races
        .iter()
        .zip(&reports)
        .map(|(race, report)| Ran { trace: Vec::new(), ..ran(race, report, how.repeat) })
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
    Ok(if broken { Exit::Failed.code() } else { DONE })
}

/// The store that was named, or else memory: a race never runs by accident in a store that is in use.
fn url(context: &Context) -> Result<StoreUrl, Failure> {
    let Some(text) = context.store_named() else { return Ok(StoreUrl::memory()) };
    text.parse().map_err(Failure::from)
}

/// Where races are run.
struct Ground {
    url: StoreUrl,
    /// The one world of all races, where it has room for many.
    shared: Option<World>,
}

impl Ground {
    fn open(url: StoreUrl) -> Result<Ground, Failure> {
        let world = world(&url)?;
        let shared = world.has_room_for_many().then_some(world);
        Ok(Ground { url, shared })
    }

    /// Runs races in turn; where each has to wait for the store's own time, all at once.
    fn all(&self, races: &[&Race], how: How) -> Result<Vec<Report>, Failure> {
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
    fn repeated(&self, race: &Race, how: How) -> Result<Report, Failure> {
        let mut nth = 1;
        loop {
            let report = self.once(race, how)?;
            if nth == how.repeat || matches!(report.verdict, Verdict::Broken(_)) {
                return Ok(report);
            }
            nth += 1;
        }
    }

    fn once(&self, race: &Race, how: How) -> Result<Report, Failure> {
        let mut seed = [0; 8];
        getrandom::fill(&mut seed)
            .map_err(|error| Failure::new(Exit::Failed, format!("there is no randomness: {error}")))?;
        match &self.shared {
            Some(world) => Ok(play(race, world, how.side(), seed)),
            None => Ok(play(race, &world(&self.url)?, how.side(), seed)),
        }
    }
}

fn world(url: &StoreUrl) -> Result<World, Failure> {
    World::open(url).map_err(|error| match error {
        WorldError::BadInput(bad) => bad.into(),
        WorldError::Store(error) => Failure::of_store(error, &url.to_string()),
        error => Failure::new(Exit::Usage, error.to_string()),
    })
}

fn ran(race: &Race, report: &Report, runs: u32) -> Ran {
    let verdict = match report.verdict {
        Verdict::Held => "held",
        Verdict::Broken(_) => "broken",
        _ => "not_applicable",
    };
    Ran {
        id: race.id,
        name: race.name,
        promise: race.promise,
        runs,
        verdict,
        message: report.verdict.to_string(),
        trace: report.entries.iter().filter_map(|entry| entry.event.clone()).collect(),
    }
}

fn told(race: &Race, report: &Report, style: Style) -> String {
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
        Verdict::Held => Colour::Good,
        Verdict::Broken(_) => Colour::Bad,
        _ => Colour::Faint,
    };
    let verdict = style.wrap(&report.verdict.to_string(), "Verdict:    ".len());
    let _ = writeln!(text, "Verdict:    {}", style.paint(&verdict, colour));
    text
}
