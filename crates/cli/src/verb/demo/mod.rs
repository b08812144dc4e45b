//! `fencehold demo`: a server on a directory of its own, and processes that crash, stall, contend and recover in front of it.
//!
//! ```text
//! fencehold demo ── fleet ──┬── fencehold serve       on the temporary directory
//!                           ├── fencehold work …      killed now and then
//!                           ├── fencehold run …       in line for one key
//!                           ├── writer, writer        stopped past their ttl, and continued
//!                           └── shop                  a saga
//! ```
//!
//! Two processes see to it that nothing is left, so that either may be killed. The *fleet* process starts all others, and inherits those
//! whose parent has ended; it ends them when its stdin does, which is when the first process has gone. The first process, which
//! people start, inherits them all if the fleet process has gone.

mod fleet;
mod parts;

use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, ExitStatus, Stdio};
use std::time::Duration;

use clap::ValueEnum;
use rustix::process::Signal;
use tokio::sync::oneshot;
use tokio::time::sleep;

use crate::context::Context;
use crate::failure::Failure;
use crate::hold_id;
use crate::process::{OURSELVES, Signals, adopt_orphans, end_descendants};
use crate::verb::VerbResult;

/// How long the fleet process gets to end all others by itself.
const LEAVES_WITHIN: Duration = Duration::from_secs(15);
/// How long what was killed may take to be gone.
const GONE_WITHIN: Duration = Duration::from_secs(10);

/// Start a server with processes that crash, stall and recover, to look at
#[derive(Debug, clap::Args)]
#[command(before_help = "\
fencehold demo
fencehold demo --listen localhost:8080

# In another shell
fencehold event watch --store http://localhost:7117")]
#[command(after_help = "\
The store is a temporary directory. The processes are real ones of this program: two `fencehold work`, of which one is killed \
now and then; two writers that hold one key in turn, of which one is stopped past its ttl and continued; three `fencehold run` \
that contend for one key; a shop whose orders are sagas, some of which are undone. Ctrl-C ends them all and removes the directory, \
and so does the end of this process, however it ends.")]
pub(crate) struct Args {
    /// The address to listen on [default: localhost:7117, or a free port if that one is taken]
    #[arg(long, value_name = "HOST:PORT")]
    listen: Option<String>,
    /// Ask for no access token, even where other machines can reach the server
    #[arg(long)]
    insecure: bool,
    /// End it after this many seconds
    #[arg(long, value_name = "N")]
    seconds: Option<u64>,
    /// Which of its processes this is. The first starts the others.
    #[arg(long, hide = true, value_enum)]
    part: Option<Part>,
    /// Where the store is, and everything else.
    #[arg(long, hide = true, requires = "part")]
    directory: Option<PathBuf>,
    /// As whom this process acts.
    #[arg(long, hide = true, requires = "part")]
    name: Option<String>,
}

/// A process of the demo that is no other verb.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Part {
    /// Starts all others.
    Fleet,
    /// A command that `work` and `run` run.
    Step,
    /// Holds a key, and renews it without a look at the clock.
    Writer,
    /// Works on orders.
    Shop,
}

impl Args {
    pub(crate) async fn run(self, context: &Context) -> VerbResult<ExitCode> {
        match (self.part, self.name, self.directory) {
            (None, ..) => first(context).await,
            (Some(Part::Fleet), _, Some(directory)) => {
                let fleet =
                    fleet::Options { listen: self.listen, insecure: self.insecure, seconds: self.seconds };
                fleet::run(context, &directory, fleet).await.map(|()| ExitCode::SUCCESS)
            }
            (Some(Part::Step), ..) => Ok(parts::step()),
            (Some(Part::Writer), Some(name), _) => {
                parts::write(context, &name).await.map(|()| ExitCode::SUCCESS)
            }
            (Some(Part::Shop), Some(name), _) => {
                parts::sell(context, &name).await.map(|()| ExitCode::SUCCESS)
            }
            _ => Err(Failure::usage("--part is for the processes that the demo starts")),
        }
    }
}

/// What people start: it starts the fleet process and waits for its end.
async fn first(context: &Context) -> VerbResult<ExitCode> {
    if context.store_named().is_some() {
        return Err(Failure::usage("the demo makes a store of its own")
            .with_next("Leave --store out; `fencehold serve --store …` serves a store of yours."));
    }
    context.output.refuse_env()?;
    let unstarted = |error: io::Error| Failure::failed(format!("the demo cannot be started: {error}"));
    let mut signals = Signals::listen().map_err(unstarted)?;
    adopt_orphans().map_err(unstarted)?;
    let directory = create_directory()?;
    let status = match start_fleet(&directory) {
        Ok(fleet) => until_over(fleet, &mut signals).await,
        Err(error) => {
            clean_up(&directory)?;
            return Err(unstarted(error));
        }
    };
    clean_up(&directory)?;
    // It has said why it failed.
    let failed = status.is_some_and(|status| !status.success());
    Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// In a process group of its own: a key that interrupts reaches the first process only.
fn start_fleet(directory: &Path) -> io::Result<Child> {
    Command::new(OURSELVES)
        .arg0("fencehold")
        .args(std::env::args_os().skip(1))
        .args(["--part", "fleet", "--directory"])
        .arg(directory)
        .stdin(Stdio::piped())
        .process_group(0)
        .spawn()
}

/// How the fleet process ended, as far as that was seen. A second signal does not wait for it.
async fn until_over(mut fleet: Child, signals: &mut Signals) -> Option<ExitStatus> {
    let stdin = fleet.stdin.take();
    let (sender, mut ended) = oneshot::channel();
    std::thread::spawn(move || sender.send(fleet.wait()));
    tokio::select! {
        status = &mut ended => return status.ok()?.ok(),
        () = told_to_stop(signals) => drop(stdin),
    }
    tokio::select! {
        status = ended => status.ok()?.ok(),
        () = told_to_stop(signals) => None,
        () = sleep(LEAVES_WITHIN) => None,
    }
}

async fn told_to_stop(signals: &mut Signals) {
    while matches!(signals.next().await, Signal::USR1 | Signal::USR2) {}
}

fn create_directory() -> Result<PathBuf, Failure> {
    let name = format!("fencehold-demo-{:016x}", u64::from_le_bytes(hold_id::random()?));
    let directory = std::env::temp_dir().join(name);
    let created = std::fs::DirBuilder::new().mode(0o700).create(&directory);
    created
        .map_err(|error| Failure::failed(format!("{} cannot be created: {error}", directory.display())))?;
    Ok(directory)
}

/// Ends every process below this one, and removes the directory.
fn clean_up(directory: &Path) -> Result<(), Failure> {
    let are_gone = end_descendants(GONE_WITHIN);
    match std::fs::remove_dir_all(directory) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            let what = format!("{} cannot be removed: {error}", directory.display());
            Err(Failure::failed(what).with_next("Remove it by hand."))
        }
        _ if !are_gone => Err(Failure::failed("processes of the demo cannot be ended")
            .with_next("`ps -ef | grep fencehold` shows them.")),
        _ => Ok(()),
    }
}
