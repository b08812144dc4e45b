//! `fencehold-bench`: Fencehold beside what lies beneath it and beside peers, each in one run on one machine. The pages in
//! `docs/benchmarks` say what each line is, and have its figures.
//!
//! Never shipped. `fencehold bench` measures a user's own store; both put the load of `crates/load` on it.

#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a tool for the terminal: what it prints is what it is for"
)]
#![allow(clippy::disallowed_methods, reason = "it measures real time")]

mod beanstalkd;
mod commands;
mod cpu_time;
mod disk;
mod figure;
mod http;
mod job;
mod lease;
mod log;
mod postgres;
mod queues;
mod redis;
mod scale;
mod scratch_dir;
mod server;
mod workers;

use std::path::PathBuf;
use std::time::Duration;

use clap::Parser as _;
use fencehold_core::duration::parse_ms;
use fencehold_load::Failed;
use figure::{Figure, table};

/// As in `fencehold`: stores in this process are measured as they are there.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Measure Fencehold beside the disk, a plain log and its peers
#[derive(Debug, clap::Parser)]
#[command(name = "fencehold-bench")]
struct Args {
    /// Print JSON instead of a table in Markdown
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    what: BenchCommand,
}

#[derive(Debug, clap::Subcommand)]
enum BenchCommand {
    /// Leases on a `file:` store, beside the disk and redis-server
    Lease(lease::LeasePlan),
    /// Jobs on a `file:` store, beside a plain log and beanstalkd
    Job(job::JobPlan),
    /// Leases and jobs through a server, beside the same in this process and etcd
    Http(http::HttpPlan),
    /// Leases and jobs on PostgreSQL, beside other queues on the same server
    Postgres(postgres::PostgresPlan),
    /// `fencehold work` and `fencehold run`, beside xargs and flock
    Commands(commands::CommandsPlan),
    /// Many worker processes on PostgreSQL, one job at a time each, beside as many of `graphile_worker`
    Workers(workers::WorkersPlan),
    #[command(hide = true)]
    WorkerProcess(workers::WorkerProcessPlan),
    #[command(hide = true)]
    Own { directory: PathBuf },
    #[command(hide = true)]
    Fill { directory: PathBuf, many: usize },
}

/// Where, and for how long.
#[derive(Debug, clap::Args)]
struct Common {
    /// On whose disk; a folder of its own is made there and removed afterwards
    #[arg(long, value_name = "DIR", default_value = ".")]
    dir: PathBuf,
    /// How long one measurement takes
    #[arg(long, value_name = "TIME", value_parser = parse_time, default_value = "3s")]
    time: Duration,
    /// Beside the peers, too
    #[arg(long)]
    peers: bool,
}

fn parse_time(text: &str) -> Result<Duration, String> {
    let ms = parse_ms(text)?;
    Ok(Duration::from_millis(ms.clamp(100, 600_000)))
}

// One thread, as `fencehold` has: the store has threads of its own.
#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Failed> {
    let args = Args::parse();
    let mut lines = Vec::new();
    let show = |line: Figure| {
        eprintln!("measured: {}", line.in_short());
        lines.push(line);
    };
    match args.what {
        BenchCommand::Lease(plan) => lease::measure(&plan, show).await?,
        BenchCommand::Job(plan) => job::measure(&plan, show).await?,
        BenchCommand::Http(plan) => http::measure(&plan, show).await?,
        BenchCommand::Postgres(plan) => postgres::measure(&plan, show).await?,
        BenchCommand::Commands(plan) => commands::measure(&plan, show).await?,
        BenchCommand::Workers(plan) => workers::measure(&plan, show).await?,
        BenchCommand::WorkerProcess(plan) => return workers::work_until_told(&plan).await,
        BenchCommand::Own { directory } => return lease::own_until_told(&directory).await,
        BenchCommand::Fill { directory, many } => return job::fill(&directory, many).await,
    }
    if args.json {
        println!("{}", serde_json::to_string_pretty(&lines)?);
    } else {
        print!("{}", table(&lines));
    }
    Ok(())
}
