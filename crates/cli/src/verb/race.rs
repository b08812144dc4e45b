//! `fencehold race …`: races arranged on purpose, here, on your store; and what the naive lock makes of them.

use std::fmt::Write as _;
use std::process::ExitCode;

use clap::ArgGroup;
use fencehold_contract::StoreUrl;
use fencehold_races::{
    Environment, EnvironmentError, Interrupt, RACES, Race, RaceReport, RaceVerdict, Side, TraceEvent, find,
    play,
};
use serde::Serialize;
use tokio::sync::oneshot;

use crate::context::Context;
use crate::exit_code::{ExitStatus, of_signal};
use crate::failure::Failure;
use crate::output::{Format, note};
use crate::process::Signals;
use crate::show::{BAR, Cell, Colour, Progress, Style, Table, or_dash};
use crate::store_choice::STORE_VARIABLE;
use crate::verb::{VerbResult, verbs};

const EXAMPLES: &str = "\
fencehold race ls
# A worker that overslept completes after another one took over
fencehold race run R06
# The same schedule against a naive lock: exit code 1
fencehold race run R06 --naive
# All races, each in a directory of its own inside DIR
fencehold race run --all --store file:DIR
# On a store that is in use, under names of their own
fencehold race run --all --store postgres://localhost/app";

const MORE: &str = "\
The exit code is 1 if a promise is broken. It is 77 if this store cannot show the one race that was named; with --all, it \
is 0 if those races held that the store can show, and 77 if it can show none.

Without --store and FENCEHOLD_STORE a race runs on memory:. On file:DIR it runs in a directory of its own inside DIR. On \
every other store races run at once, touch nothing of yours, and wait for what expires; one that needs power over the \
store's time, or something that the store does not accept, is not applicable. What races make is removed at their end, \
also when a signal ends them early.";

verbs! {
    /// Run races against a store, and see whether its promises hold
    #[command(before_help = EXAMPLES)]
    Verb:
    Ls = LsArgs,
    Run = RaceArgs,
}

/// List the races, and the promise that each puts at stake
#[derive(Debug, clap::Args)]
#[command(before_help = EXAMPLES)]
pub(crate) struct LsArgs {}

/// Run a race, or all of them, and print the verdict
#[derive(Clone, Debug, clap::Args)]
#[command(before_help = EXAMPLES, after_help = MORE)]
#[command(group = ArgGroup::new("which").required(true).args(["race", "all"]))]
pub(crate) struct RaceArgs {
    /// The race, as in R06
    #[arg(value_name = "RACE")]
    race: Option<String>,
    /// All races
    #[arg(long)]
    all: bool,
    /// Run a naive lock under the same schedule, and see the damage
    #[arg(long)]
    naive: bool,
    /// How often
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    repeat: u32,
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
    /// Where it was run.
    store: String,
    runs: u32,
    verdict: &'static str,
    message: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    trace: Vec<TraceEvent>,
}

impl LsArgs {
    #[expect(clippy::unused_async, reason = "every verb is called alike")]
    pub(crate) async fn run(self, context: &Context) -> VerbResult {
        context.output.refuse_env()?;
        let list = Races { races: RACES.iter().map(listed).collect::<Vec<Listed>>() };
        context.output.list(&list, &list.races, "no races", |races| {
            Table::of(["RACE", "NAME", "PROMISE", "MUST HOLD", "NAIVE LOCK"], races, |race| {
                let Listed { id, name, promise, must_hold, naive, .. } = *race;
                [id.into(), name.into(), promise.into(), must_hold.into(), or_dash(naive)]
            })
        })
    }
}

impl RaceArgs {
    pub(crate) async fn run(self, context: &Context) -> VerbResult<ExitCode> {
        context.output.refuse_env()?;
        match &self.race {
            Some(race) => one(context, race, &self).await,
            None => all(context, &self).await,
        }
    }
}

fn listed(race: &Race) -> Listed {
    let Race { id, name, promise, schedule, must_hold, naive, .. } = *race;
    Listed { id, name, promise, schedule, must_hold, naive }
}

async fn one(context: &Context, id: &str, how: &RaceArgs) -> VerbResult<ExitCode> {
    let race = find(id).ok_or_else(|| {
        Failure::usage(format!("there is no race {id:?}")).with_next("`fencehold race ls` lists them.")
    })?;
    if how.naive && race.naive.is_none() {
        return Err(Failure::usage(format!("{id} has no naive twin"))
            .with_next("`fencehold race ls` shows which races have one."));
    }
    let url = url(context)?;
    let reports = match run_races(&url, vec![race], how).await? {
        RunEnd::Ended(reports) => reports,
        RunEnd::Interrupted { code } => return Ok(code.into()),
    };
    let (report, store, output) = (&reports[0], url.to_string(), context.output);
    match output.format {
        Format::Table | Format::Env => output.text(&told(race, report, &store, output.style))?,
        Format::Json => output.one(&ran(race, report, &store, how.repeat), |_| String::new())?,
        Format::Jsonl => {
            note(&format!("{} on {store}", race.id));
            output.text(&report.trace())?;
        }
    }
    Ok(match report.verdict {
        RaceVerdict::Held => ExitCode::SUCCESS,
        RaceVerdict::Broken(_) => ExitStatus::Failed.into(),
        // Not 0: it must not pass for a promise that held.
        _ => ExitStatus::NotApplicable.into(),
    })
}

async fn all(context: &Context, how: &RaceArgs) -> VerbResult<ExitCode> {
    let races: Vec<&Race> = RACES.iter().filter(|race| !how.naive || race.naive.is_some()).collect();
    let url = url(context)?;
    note(&format!("{} races on {url}", races.len()));
    let reports = match run_races(&url, races.clone(), how).await? {
        RunEnd::Ended(reports) => reports,
        RunEnd::Interrupted { code } => return Ok(code.into()),
    };
    let store = url.to_string();
    let any = |is: fn(&RaceVerdict) -> bool| reports.iter().any(|report| is(&report.verdict));
    let (broken, held) = (
        any(|verdict| matches!(verdict, RaceVerdict::Broken(_))),
        any(|verdict| *verdict == RaceVerdict::Held),
    );
    let lines: Vec<RaceResult> = races
        .iter()
        .zip(&reports)
        .map(|(race, report)| RaceResult { trace: Vec::new(), ..ran(race, report, &store, how.repeat) })
        .collect();
    let list = Races { races: lines };
    context.output.list(&list, &list.races, "no races", |races| {
        let rows = races.iter().zip(&reports);
        Table::of(["RACE", "NAME", "PROMISE", "RUNS", "VERDICT"], rows, |(line, report)| {
            let verdict = Cell::from(&line.message).in_colour(colour(&report.verdict));
            [line.id.into(), line.name.into(), line.promise.into(), line.runs.into(), verdict]
        })
    })?;
    Ok(match (broken, held) {
        (true, _) => ExitStatus::Failed.into(),
        (false, true) => ExitCode::SUCCESS,
        (false, false) => ExitStatus::NotApplicable.into(),
    })
}

/// The store that was named, or else memory: a race never runs by accident in the user's own store.
fn url(context: &Context) -> Result<StoreUrl, Failure> {
    let in_environment = std::env::var_os(STORE_VARIABLE).is_some_and(|value| !value.is_empty());
    if context.store_named().is_none() && !in_environment {
        return Ok(StoreUrl::memory());
    }
    Ok(context.place()?.url)
}

/// How a run of races ended.
enum RunEnd {
    /// One report for each race, in order.
    Ended(Vec<RaceReport>),
    /// By a signal; what they had made is removed.
    Interrupted {
        /// The exit code.
        code: u8,
    },
}

/// Runs races on a thread of their own, so that signals are heard meanwhile. A second signal does not wait for what is removed.
async fn run_races(url: &StoreUrl, races: Vec<&'static Race>, how: &RaceArgs) -> Result<RunEnd, Failure> {
    let mut signals =
        Signals::listen().map_err(|error| Failure::failed(format!("signals cannot be heard: {error}")))?;
    let interrupt = Interrupt::default();
    let (sender, mut ended) = oneshot::channel();
    let (url, known, how) = (url.clone(), interrupt.clone(), how.clone());
    let running = std::thread::spawn(move || {
        let reports = RaceTarget::open(url, known).and_then(|target| target.all(&races, &how));
        let _ = sender.send(reports);
    });
    let signal = tokio::select! {
        reports = &mut ended => {
            return match (reports, running.join()) {
                (Ok(reports), _) => reports.map(RunEnd::Ended),
                (Err(_), Err(panic)) => std::panic::resume_unwind(panic),
                (Err(_), Ok(())) => Err(Failure::failed("the races have no report")),
            };
        }
        signal = signals.next() => signal,
    };
    note("interrupted: removing what the races have made");
    interrupt.set();
    tokio::select! {
        _ = ended => drop(running.join()),
        _ = signals.next() => {}
    }
    Ok(RunEnd::Interrupted { code: of_signal(signal.as_raw()) })
}

/// Where races are run.
struct RaceTarget {
    url: StoreUrl,
    interrupt: Interrupt,
    /// The one world of all races, where it has room for many.
    shared: Option<Environment>,
}

impl RaceTarget {
    fn open(url: StoreUrl, interrupt: Interrupt) -> Result<RaceTarget, Failure> {
        let world = world(&url, &interrupt)?;
        let shared = world.has_room_for_many().then_some(world);
        Ok(RaceTarget { url, interrupt, shared })
    }

    /// Runs races in turn; where each has to wait for the store's own time, all at once.
    fn all(&self, races: &[&Race], how: &RaceArgs) -> Result<Vec<RaceReport>, Failure> {
        let runs = races.len() as u64 * u64::from(how.repeat);
        let progress = &Progress::counted("finished", "races", runs);
        if self.shared.is_none() {
            let go_on = |_: &&&Race| !self.interrupt.is_set();
            return races
                .iter()
                .take_while(go_on)
                .map(|race| self.repeated(race, how, progress))
                .collect();
        }
        std::thread::scope(|scope| {
            let running: Vec<_> = races
                .iter()
                .map(|race| scope.spawn(|| self.repeated(race, how, progress)))
                .collect();
            let ended = |run: std::thread::ScopedJoinHandle<'_, _>| match run.join() {
                Ok(report) => report,
                Err(panic) => std::panic::resume_unwind(panic),
            };
            running.into_iter().map(ended).collect()
        })
    }

    /// The first run that broke the promise, or the last one.
    fn repeated(&self, race: &Race, how: &RaceArgs, progress: &Progress) -> Result<RaceReport, Failure> {
        let mut nth = 1;
        loop {
            let report = self.once(race, how)?;
            progress.add(1, 1);
            let broken = matches!(report.verdict, RaceVerdict::Broken(_));
            if nth == how.repeat || broken || self.interrupt.is_set() {
                return Ok(report);
            }
            nth += 1;
        }
    }

    fn once(&self, race: &Race, how: &RaceArgs) -> Result<RaceReport, Failure> {
        let mut seed = [0; 8];
        getrandom::fill(&mut seed)
            .map_err(|error| Failure::failed(format!("there is no randomness: {error}")))?;
        let side = if how.naive { Side::Naive } else { Side::Ours };
        match &self.shared {
            Some(world) => Ok(play(race, world, side, seed)),
            None => Ok(play(race, &world(&self.url, &self.interrupt)?, side, seed)),
        }
    }
}

fn world(url: &StoreUrl, interrupt: &Interrupt) -> Result<Environment, Failure> {
    Environment::open_until(url, interrupt).map_err(|error| match error {
        EnvironmentError::Store(error) => Failure::of_store(error, &url.to_string()),
        error => Failure::usage(error.to_string()),
    })
}

fn ran(race: &Race, report: &RaceReport, store: &str, runs: u32) -> RaceResult {
    let verdict = match report.verdict {
        RaceVerdict::Held => "held",
        RaceVerdict::Broken(_) => "broken",
        _ => "not_applicable",
    };
    RaceResult {
        id: race.id,
        name: race.name,
        promise: race.promise,
        store: store.to_owned(),
        runs,
        verdict,
        message: report.verdict.to_string(),
        trace: report.entries.iter().filter_map(|entry| entry.event.clone()).collect(),
    }
}

fn told(race: &Race, report: &RaceReport, store: &str, style: Style) -> String {
    let mut text = report.trace();
    let title = format!("{} {}", race.id, race.name);
    let _ = writeln!(
        text,
        "\n{}\n{}\n\n{}",
        style.paint(&title, Colour::Strong),
        style.wrap(&format!("{}.", race.schedule), 0),
        picture(report, style)
    );
    let lines = [("Store:      ", store), ("At stake:   ", race.promise), ("Must hold:  ", race.must_hold)];
    for (name, sentence) in lines {
        let _ = writeln!(text, "{name}{}", style.wrap(sentence, name.len()));
    }
    let verdict = style.wrap(&report.verdict.to_string(), "Verdict:    ".len());
    let _ = writeln!(text, "Verdict:    {}", style.paint(&verdict, colour(&report.verdict)));
    text
}

/// The picture, or on a terminal that it is too wide for, one whose lines are broken.
fn picture(report: &RaceReport, style: Style) -> String {
    let whole = report.picture();
    let fits = |columns| whole.lines().all(|line| line.chars().count() <= columns);
    if style.columns().is_none_or(fits) {
        return whole;
    }
    let mut actors: Vec<&str> = Vec::new();
    for entry in &report.entries {
        if !actors.contains(&entry.actor.as_str()) {
            actors.push(&entry.actor);
        }
    }
    let rows = report.entries.iter().map(|entry| -> Vec<Cell> {
        let cell = |actor: &&str| if *actor == entry.actor { entry.says.as_str() } else { BAR };
        actors.iter().map(cell).map(Cell::from).collect()
    });
    Table::grid(actors.iter().copied(), rows).render(style)
}

fn colour(verdict: &RaceVerdict) -> Colour {
    match verdict {
        RaceVerdict::Held => Colour::Good,
        RaceVerdict::Broken(_) => Colour::Bad,
        _ => Colour::Faint,
    }
}
