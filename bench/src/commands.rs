//! `fencehold work` and `fencehold run` beside what a shell has: `xargs -P` and `flock`.
//!
//! Everything is a process, so what is measured is a whole life: from the start of the program to its end. Ours and theirs
//! take turns, and what counts is the median of the rounds' ratios.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use fencehold_load::{Failed, Latencies, Measured};

use crate::figure::{Figure, median};
use crate::job::enqueue_many;
use crate::scratch_dir::{ScratchDir, open};

/// Two synced appends of 4 KiB, as a script makes them.
const TWO_APPENDS: &str = "for n in 1 2; do \
     dd if=/dev/zero of=log bs=4096 count=1 oflag=append conv=notrunc,fdatasync status=none; done";
/// Jobs that a command which needs none must not read.
const JOBS_STORED: usize = 300_000;
const MEMORY_KB_MAX: u64 = 20_000;

/// What to measure.
#[derive(Debug, clap::Args)]
pub(crate) struct CommandsPlan {
    /// On whose disk; a folder of its own is made there and removed afterwards
    #[arg(long, value_name = "DIR", default_value = ".")]
    dir: PathBuf,
    /// How many jobs `work` runs in a round
    #[arg(long, value_name = "N", default_value_t = 2_000, value_parser = clap::value_parser!(u32).range(1..))]
    jobs: u32,
    /// How many commands at once
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=256))]
    concurrency: u32,
    /// How often `run` runs in a round
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..))]
    runs: u32,
    /// How many rounds
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=99))]
    rounds: u32,
}

/// Measures, calling `show` with each line as it is known.
pub(crate) async fn measure(plan: &CommandsPlan, mut show: impl FnMut(Figure)) -> Result<(), Failed> {
    let scratch = ScratchDir::make(&plan.dir)?;
    let place = Place { directory: scratch.0.canonicalize()? };
    Place::succeed(&mut place.fencehold(&["store", "create"]))?;
    work(plan, &place, &mut show)?;
    run(plan, &place, &mut show)?;
    let target = open(&place.store())?;
    enqueue_many(&target, JOBS_STORED).await?;
    target.store.close().await;
    let kb = memory_kb(&place)?;
    show(
        Figure::new(format!("run with {JOBS_STORED} jobs stored: {:.1} MB", kb as f64 / 1e3), 0)
            .bar("at most 20 MB", kb <= MEMORY_KB_MAX),
    );
    Ok(())
}

/// Where the commands run.
struct Place {
    directory: PathBuf,
}

impl Place {
    fn store(&self) -> PathBuf {
        self.directory.join("store")
    }

    fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new(program);
        command.current_dir(&self.directory).stdin(Stdio::null()).stdout(Stdio::null());
        command
    }

    fn fencehold(&self, words: &[&str]) -> Command {
        let program = std::env::current_exe().unwrap_or_default().with_file_name("fencehold");
        let mut command = self.command(program);
        command
            .args(words)
            .env("FENCEHOLD_STORE", format!("file:{}", self.store().display()));
        command
    }

    /// Runs it to its end.
    fn succeed(command: &mut Command) -> Result<Spent, Failed> {
        let (started, cpu) = (Instant::now(), cpu_of_children());
        let status = command
            .status()
            .map_err(|error| format!("{} cannot be started: {error}", command.get_program().display()))?;
        if !status.success() {
            return Err(format!("{command:?} ended with {status}").into());
        }
        Ok(Spent { time: started.elapsed(), cpu: cpu_of_children().saturating_sub(cpu) })
    }
}

/// What something took, with everything that it started.
#[derive(Clone, Copy, Default)]
struct Spent {
    time: Duration,
    cpu: Duration,
}

/// Processor time of the children of this process that have ended, and of theirs. To a hundredth of a second: enough for
/// many.
fn cpu_of_children() -> Duration {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields = stat.rsplit_once(')').map(|(_, fields)| fields).unwrap_or_default();
    let ticks: u64 = fields
        .split_ascii_whitespace()
        .skip(13)
        .take(2)
        .filter_map(|field| field.parse::<u64>().ok())
        .sum();
    let ticks_per_second = rustix::param::clock_ticks_per_second().max(1);
    Duration::from_secs_f64(ticks as f64 / ticks_per_second as f64)
}

fn work(plan: &CommandsPlan, place: &Place, show: &mut impl FnMut(Figure)) -> Result<(), Failed> {
    let many = plan.jobs as usize;
    std::fs::write(place.directory.join("jobs"), "1\n".repeat(many))?;
    let concurrency = plan.concurrency.to_string();
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for _ in 0..plan.rounds {
        Place::succeed(
            &mut place.fencehold(&["job", "enqueue", "--queue", "q", "--kind", "k", "--jsonl", "jobs"]),
        )?;
        let mut xargs = place.command("xargs");
        xargs.args(["-P", &concurrency, "-n", "1", "true"]);
        xargs.stdin(std::fs::File::open(place.directory.join("jobs"))?);
        theirs.push(Place::succeed(&mut xargs)?);
        let words = ["work", "--queue", "q", "--concurrency", &concurrency, "--until-empty", "--", "true"];
        ours.push(Place::succeed(&mut place.fencehold(&words))?);
    }
    let per_second =
        |spent: &[Spent]| many as f64 / median(spent.iter().map(|spent| spent.time.as_secs_f64()));
    let cpu_us =
        |spent: &[Spent]| median(spent.iter().map(|spent| spent.cpu.as_secs_f64())) * 1e6 / many as f64;
    let line = |what: &str, spent: &[Spent]| Figure {
        per_second: per_second(spent),
        cpu_us: cpu_us(spent),
        ..Figure::new(what, plan.concurrency as usize)
    };
    show(line("xargs: true", &theirs));
    let by =
        |of: fn(&Spent) -> f64| median(ours.iter().zip(&theirs).map(|(ours, theirs)| of(ours) / of(theirs)));
    let (time, cpu) = (by(|spent| spent.time.as_secs_f64()), by(|spent| spent.cpu.as_secs_f64()));
    show(
        line("work: true", &ours)
            .ratio("xargs, time", time)
            .bar("at most 2", time <= 2.0),
    );
    show(
        Figure::new("work: true", plan.concurrency as usize)
            .ratio("xargs, cpu", cpu)
            .bar("at most 2", cpu <= 2.0),
    );
    Ok(())
}

fn run(plan: &CommandsPlan, place: &Place, show: &mut impl FnMut(Figure)) -> Result<(), Failed> {
    let flock = |script: &[&str]| {
        let mut command = place.command("flock");
        command.arg("lock").args(script);
        command
    };
    let ours = || place.fencehold(&["run", "--key", "k", "--", "true"]);
    let mut spent: [Vec<Vec<Duration>>; 4] = Default::default();
    for _ in 0..plan.rounds {
        let in_a_row = |make: &dyn Fn() -> Command| -> Result<Vec<Duration>, Failed> {
            (0..plan.runs).map(|_| Ok(Place::succeed(&mut make())?.time)).collect()
        };
        spent[0].push(in_a_row(&|| flock(&["true"]))?);
        spent[1].push(in_a_row(&|| flock(&["sh", "-c", TWO_APPENDS]))?);
        spent[2].push(in_a_row(&ours)?);
        let owner = Owner::start(place)?;
        spent[3].push(in_a_row(&ours)?);
        owner.end()?;
    }
    let mean = |round: &[Duration]| round.iter().sum::<Duration>().as_secs_f64() / round.len() as f64;
    let line = |what: &str, rounds: &[Vec<Duration>]| {
        let mut latencies = Latencies::default();
        rounds.iter().flatten().for_each(|time| latencies.add(*time));
        let done = latencies.len();
        let time = rounds.iter().flatten().sum();
        Figure::new(what, 1).measured(&Measured { done, time, calls: vec![latencies] })
    };
    let [flock, appends, alone, served] = &spent;
    show(line("flock: true", flock));
    show(line("flock: two synced appends of 4 KiB", appends));
    let ratio = |ours: &[Vec<Duration>]| {
        median(ours.iter().zip(appends).map(|(ours, theirs)| mean(ours) / mean(theirs)))
    };
    let (without, with) = (ratio(alone), ratio(served));
    let against = "flock with two appends";
    show(
        line("run: true", alone)
            .ratio(against, without)
            .bar("at most 2.5", without <= 2.5),
    );
    show(
        line("run: true, another process serves", served)
            .ratio(against, with)
            .bar("at most 1.5", with <= 1.5),
    );
    Ok(())
}

/// A process that serves the directory, and does nothing else.
struct Owner(Child);

impl Owner {
    fn start(place: &Place) -> Result<Owner, Failed> {
        let mut command = place.fencehold(&["run", "--key", "owner", "--", "sh", "-c", "echo up; read line"]);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let mut up = String::new();
        let stdout = child.stdout.take().ok_or("the owner has no standard output")?;
        BufReader::new(stdout).read_line(&mut up)?;
        Ok(Owner(child))
    }

    fn end(mut self) -> Result<(), Failed> {
        if let Some(mut stdin) = self.0.stdin.take() {
            stdin.write_all(b"go\n")?;
        }
        self.0.wait()?;
        Ok(())
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The most memory that `run` had when its command ran.
fn memory_kb(place: &Place) -> Result<u64, Failed> {
    let script = "sed -n 's/^VmHWM:[^0-9]*\\([0-9]*\\).*/\\1/p' /proc/$PPID/status >memory";
    Place::succeed(&mut place.fencehold(&["run", "--key", "k", "--", "sh", "-c", script]))?;
    let text = std::fs::read_to_string(Path::new(&place.directory).join("memory"))?;
    Ok(text.trim().parse()?)
}
