//! `fencehold race …`: races arranged on purpose, here, on your store; and what the naive lock makes of them.

use std::fmt::Write as _;

use fencehold_race::{Event, RACES, Race, Report, Side, Verdict, World, WorldError, find, play};
use fencehold_store::StoreUrl;
use serde::Serialize;

use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::{Format, Output};
use crate::show::{Cell, Colour, Palette, Table, or_dash};
use crate::verb::{DONE, Outcome};

const EXAMPLES: &str = "\
Examples:
  fencehold race list
  # A worker that overslept completes after somebody else took over
  fencehold race run R06
  # The same schedule against the lock that everybody writes first: exit code 1
  fencehold race run R06 --naive
  # Every race, on a directory of its own inside DIR
  fencehold race all --store file:DIR
";

/// Arrange races against a store, and see whether its promises hold
#[derive(Debug, clap::Args)]
#[command(before_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, clap::Subcommand)]
enum What {
    /// List the races, and the promise that each puts at stake
    #[command(before_help = EXAMPLES)]
    List,
    /// Run one race: its trace, its picture, the verdict; the exit code is 1 if the promise is broken
    ///
    /// Without --store it runs on memory:. On `file:DIR` it runs in a directory of its own inside DIR.
    #[command(before_help = EXAMPLES)]
    Run {
        /// Which race, as in R06
        #[arg(value_name = "RACE")]
        race: String,
        #[command(flatten)]
        how: How,
    },
    /// Run every race; the exit code is 1 if a promise is broken
    ///
    /// Without --store they run on memory:. On `file:DIR` each runs in a directory of its own inside DIR.
    #[command(before_help = EXAMPLES)]
    All {
        #[command(flatten)]
        how: How,
    },
}

#[derive(Clone, Copy, Debug, clap::Args)]
struct How {
    /// Run the naive lock under the same schedule, and see the damage
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
    naive: Option<&'static str>,
}

/// What became of one race.
#[derive(Debug, Serialize)]
struct Ran {
    id: &'static str,
    name: &'static str,
    promise: &'static str,
    runs: u32,
    verdict: &'static str,
    says: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    trace: Vec<Event>,
}

impl Args {
    #[expect(clippy::unused_async, reason = "every verb is one; a race brings the threads that it needs")]
    pub(crate) async fn run(self, context: &Context) -> Outcome {
        context.output.refuse_env()?;
        match self.what {
            What::List => list(context.output),
            What::Run { race, how } => one(context, &race, how),
            What::All { how } => all(context, how),
        }
    }
}

fn list(output: Output) -> Outcome {
    let listed: Vec<Listed> = RACES.iter().map(listed).collect();
    output.many(&listed, "there are no races", || {
        let mut table =
            Table::new(["race", "name", "promise at stake", "what must hold", "how the naive lock breaks"]);
        for race in &listed {
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
            .with_next("`fencehold race list` names them.")
    })?;
    if how.naive && race.naive.is_none() {
        return Err(Failure::new(Exit::Usage, format!("{id} has no naive twin"))
            .with_next("`fencehold race list` shows which races have one."));
    }
    let report = repeated(race, &url(context)?, how)?;
    let output = context.output;
    match output.format {
        Format::Table | Format::Env => output.text(&told(race, &report, output.palette))?,
        Format::Json => output.one(&ran(race, &report, how.repeat), |_| String::new())?,
        Format::Jsonl => output.text(&report.trace())?,
    }
    Ok(code(&report))
}

fn all(context: &Context, how: How) -> Outcome {
    let url = url(context)?;
    let mut lines = Vec::new();
    let mut exit = DONE;
    for race in RACES.iter().filter(|race| !how.naive || race.naive.is_some()) {
        let report = repeated(race, &url, how)?;
        exit = exit.max(code(&report));
        lines.push(Ran { trace: Vec::new(), ..ran(race, &report, how.repeat) });
    }
    context.output.many(&lines, "there are no races", || {
        let mut table = Table::new(["race", "name", "promise at stake", "runs", "verdict"]);
        for line in &lines {
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
                Cell::from(&line.says).in_colour(colour),
            ]);
        }
        table
    })?;
    Ok(exit)
}

/// The store that was named, or else memory: a race is never arranged in somebody's own store by accident.
fn url(context: &Context) -> Result<StoreUrl, Failure> {
    let Some(text) = context.store_named() else { return Ok(StoreUrl::Memory) };
    text.parse().map_err(Failure::from)
}

/// The first run that broke the promise, or the last one.
fn repeated(race: &Race, url: &StoreUrl, how: How) -> Result<Report, Failure> {
    let failed = |error: WorldError| match error {
        WorldError::BadInput(bad) => bad.into(),
        WorldError::Store(error) => Failure::of_store(error, &url.to_string()),
        error => Failure::new(Exit::Usage, error.to_string()),
    };
    let mut nth = 1;
    loop {
        let mut seed = [0; 8];
        getrandom::fill(&mut seed)
            .map_err(|error| Failure::new(Exit::Failed, format!("there is no randomness: {error}")))?;
        let report = play(race, &World::open(url).map_err(failed)?, how.side(), seed);
        if nth == how.repeat || matches!(report.verdict, Verdict::Broken(_)) {
            return Ok(report);
        }
        nth += 1;
    }
}

fn code(report: &Report) -> u8 {
    if matches!(report.verdict, Verdict::Broken(_)) { Exit::Failed.code() } else { DONE }
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
        says: report.verdict.to_string(),
        trace: report.entries.iter().filter_map(|entry| entry.event.clone()).collect(),
    }
}

fn told(race: &Race, report: &Report, palette: Palette) -> String {
    let mut text = report.trace();
    let title = format!("{} {}", race.id, race.name);
    let _ = writeln!(
        text,
        "\n{}\n{}.\n\n{}",
        palette.paint(&title, Colour::Strong),
        race.schedule,
        report.picture()
    );
    let _ = writeln!(text, "At stake:   {}\nMust hold:  {}", race.promise, race.must_hold);
    let colour = match report.verdict {
        Verdict::Held => Colour::Good,
        Verdict::Broken(_) => Colour::Bad,
        _ => Colour::Faint,
    };
    let _ = writeln!(text, "Verdict:    {}", palette.paint(&report.verdict.to_string(), colour));
    text
}
