//! `fencehold bench …`: how fast the store is here, as a ratio to what lies beneath it.

use std::path::PathBuf;
use std::time::Duration;

use fencehold_core::limits::BATCH_MAX;

#[cfg(all(feature = "remote", feature = "server"))]
use crate::bench::http;
use crate::bench::{Failed, Line, job, lease, named, peers, queue};
use crate::context::{Context, Create};
use crate::duration::parse_ms;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::note;
use crate::show::{Cell, Colour, Table, or_dash};
use crate::verb::{DONE, Outcome};

const EXAMPLES: &str = "\
Examples:
  # The whole page, on the disk of the current directory: a few minutes
  fencehold bench lease
  fencehold bench job
  # The same through a server, beside the same in this process; with etcd too
  fencehold bench http --peers
  # A store that runs already, and what each thing costs there in requests
  fencehold bench lease --store etcd://etcd-1,etcd-2,etcd-3 --clients 1,8
  fencehold bench job --store http://127.0.0.1:7117
  fencehold bench job --store 'postgres://app@db/app?connections=64' --jobs 100000
  # A quick look
  fencehold bench lease --time 1s --held 0 --ending 0
  fencehold bench job --time 1s --stored 0
";

/// Measure leases or jobs here, beside the disk's own rate
#[derive(Debug, clap::Args)]
#[command(before_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, clap::Subcommand)]
enum What {
    /// Acquire, release and renew on a `file:` store, or on the one that --store names
    #[command(before_help = EXAMPLES)]
    Lease(LeaseArgs),
    /// Enqueue, claim and complete on a `file:` store, or on the one that --store names
    #[command(before_help = EXAMPLES)]
    Job(JobArgs),
    /// Both through a server that is started for it, beside a `file:` store in this process
    #[cfg(all(feature = "remote", feature = "server"))]
    #[command(before_help = EXAMPLES)]
    Http(HttpArgs),
    #[command(hide = true)]
    Own { directory: PathBuf },
    #[command(hide = true)]
    Fill { directory: PathBuf, many: usize },
}

#[derive(Debug, clap::Args)]
struct LeaseArgs {
    /// On whose disk; a folder of its own is made there and removed afterwards
    #[arg(long, value_name = "DIR", default_value = ".")]
    dir: PathBuf,
    /// How many clients at once
    #[arg(long, value_name = "N,…", value_delimiter = ',', default_value = "1,64,512")]
    clients: Vec<usize>,
    /// How long one measurement takes
    #[arg(long, value_name = "TIME", value_parser = parse_ms, default_value = "3s")]
    time: u64,
    /// How many held leases to weigh and to reopen with; 0: skip
    #[arg(long, value_name = "N", default_value_t = 1_000_000)]
    held: usize,
    /// How many leases to let end at one moment; 0: skip
    #[arg(long, value_name = "N", default_value_t = 100_000)]
    ending: usize,
    /// Through the socket, beside a private redis-server, too
    #[arg(long)]
    peers: bool,
}

#[derive(Debug, clap::Args)]
struct JobArgs {
    /// On whose disk; a folder of its own is made there and removed afterwards
    #[arg(long, value_name = "DIR", default_value = ".")]
    dir: PathBuf,
    /// How long one measurement takes
    #[arg(long, value_name = "TIME", value_parser = parse_ms, default_value = "3s")]
    time: u64,
    /// How many stored jobs to weigh, and to measure with; 0: skip
    #[arg(long, value_name = "N", default_value_t = 1_000_000)]
    stored: usize,
    /// How many to enqueue in bulk; 0: skip
    #[arg(long, value_name = "N", default_value_t = 100_000)]
    bulk: usize,
    /// Beside a private beanstalkd, too
    #[arg(long)]
    peers: bool,
    /// How many jobs to work off on the store that --store names
    #[arg(long, value_name = "N", default_value_t = 100_000)]
    jobs: usize,
    /// Beside the queues of this program (`bench/peers`), too, on the database that `DATABASE_URL` names
    #[arg(long, value_name = "PROGRAM")]
    beside: Option<PathBuf>,
}

#[cfg(all(feature = "remote", feature = "server"))]
#[derive(Debug, clap::Args)]
struct HttpArgs {
    /// On whose disk; a folder of its own is made there and removed afterwards
    #[arg(long, value_name = "DIR", default_value = ".")]
    dir: PathBuf,
    /// How long one measurement takes
    #[arg(long, value_name = "TIME", value_parser = parse_ms, default_value = "4s")]
    time: u64,
    /// How many requests are to wait while the server is weighed; 0: skip
    #[arg(long, value_name = "N", default_value_t = 8_000)]
    waiting: usize,
    /// How many are to watch a prefix each while leases are granted; 0: skip
    #[arg(long, value_name = "N", default_value_t = 1_000)]
    watchers: usize,
    /// Beside a private etcd, too
    #[arg(long)]
    peers: bool,
}

impl Args {
    pub(crate) async fn run(self, context: &Context) -> Outcome {
        let mut lines = Vec::new();
        let mut show = |line: Line| {
            note(&format!("measured: {}", line.in_short()));
            lines.push(line);
        };
        let measured = match self.what {
            What::Lease(args) if context.store_named().is_some() => {
                let plan = args.named_plan()?;
                let store = context.open(Create::default())?;
                let measured = named::measure(store.leases.clone(), &plan, show).await;
                store.leases.close().await;
                measured
            }
            What::Job(args) if context.store_named().is_some() => {
                let store = context.open(Create::default())?;
                let mut measured =
                    named::measure_jobs(store.leases.clone(), time(args.time), &mut show).await;
                if measured.is_ok() {
                    measured = queue::measure(store.leases.clone(), &args.named_plan(), show).await;
                }
                store.leases.close().await;
                measured
            }
            What::Lease(args) => lease::measure(&args.plan()?, show).await,
            #[cfg(all(feature = "remote", feature = "server"))]
            What::Http(args) => http::measure(&args.plan(), show).await,
            What::Job(args) => job::measure(&args.plan(), show).await,
            What::Own { directory } => {
                return lease::own_until_told(&directory).await.map(|()| DONE).map_err(failed);
            }
            What::Fill { directory, many } => {
                return job::fill(&directory, many).await.map(|()| DONE).map_err(failed);
            }
        };
        measured.map_err(failed)?;
        context.output.many(&lines, "nothing was measured", || table(&lines))?;
        Ok(DONE)
    }
}

fn failed(error: Failed) -> Failure {
    Failure::new(Exit::Failed, error.to_string())
}

fn time(ms: u64) -> Duration {
    Duration::from_millis(ms.clamp(100, 600_000))
}

impl LeaseArgs {
    fn check(&self) -> Result<(), Failure> {
        if self.clients.iter().any(|clients| *clients == 0 || *clients > 10_000) {
            return Err(Failure::new(Exit::Usage, "--clients takes numbers from 1 to 10000"));
        }
        Ok(())
    }

    fn named_plan(self) -> Result<named::Plan, Failure> {
        self.check()?;
        Ok(named::Plan {
            clients: self.clients,
            time: time(self.time),
            batch: 100,
            held: self.held.min(BATCH_MAX),
        })
    }

    fn plan(self) -> Result<lease::Plan, Failure> {
        self.check()?;
        Ok(lease::Plan {
            directory: self.dir,
            clients: self.clients,
            time: time(self.time),
            held: self.held,
            ending: self.ending,
            peers: self.peers,
        })
    }
}

impl JobArgs {
    fn named_plan(self) -> queue::Plan {
        let peers = self.beside.map(|program| peers::Peers { program });
        queue::Plan { jobs: self.jobs.max(3), time: time(self.time), peers }
    }

    fn plan(self) -> job::Plan {
        job::Plan {
            directory: self.dir,
            time: time(self.time),
            stored: self.stored,
            bulk: self.bulk,
            peers: self.peers,
        }
    }
}

#[cfg(all(feature = "remote", feature = "server"))]
impl HttpArgs {
    fn plan(self) -> http::Plan {
        http::Plan {
            directory: self.dir,
            time: time(self.time),
            waiting: self.waiting,
            watchers: self.watchers,
            peers: self.peers,
        }
    }
}

fn table(lines: &[Line]) -> Table {
    let mut table = Table::new([
        "what",
        "clients",
        "per second",
        "p50",
        "p99",
        "cpu each",
        "ratio",
        "against",
        "bar",
        "",
    ]);
    for line in lines {
        let rate = (line.per_second > 0.0).then(|| format!("{:.0}", line.per_second));
        let time = |us: f64| {
            (us > 0.0).then(|| if us < 1e4 { format!("{us:.0} µs") } else { format!("{:.1} ms", us / 1e3) })
        };
        let met = match line.met {
            Some(true) => Cell::from("met").in_colour(Colour::Good),
            Some(false) => Cell::from("short").in_colour(Colour::Bad),
            None => Cell::from(""),
        };
        table.row([
            Cell::from(&line.what),
            or_dash((line.clients > 0).then_some(line.clients)),
            or_dash(rate),
            or_dash(time(line.p50_us)),
            or_dash(time(line.p99_us)),
            or_dash(time(line.cpu_us)),
            or_dash(line.ratio.map(|ratio| format!("{ratio:.2}"))),
            Cell::from(&line.against),
            Cell::from(&line.bar),
            met,
        ]);
    }
    table
}
