//! `fencehold run`: a command under a lease.

use std::ffi::OsString;
use std::process::ExitCode;
use std::time::Duration;

use fencehold::{Error, Fencehold, Lease, LeaseState, LeaseWatch};
use fencehold_core::limits::TTL_MS_MIN;
use fencehold_core::{Key, Owner, Refusal, Task, ttl};
use tokio::sync::watch;

use crate::context::{Context, CreateStore, OpenStore};
use crate::duration::{parse_ms, show_ms};
use crate::exit_code::{self, ExitStatus};
use crate::failure::{ErrorKind, Failure};
use crate::hold_id::{HOLD_VARIABLE, KEY_VARIABLE, TASK_VARIABLE, TOKEN_VARIABLE};
use crate::output::note;
use crate::process::{
    CommandEnd, CommandSpec, LeaseStatus, Signals, Streams, Watchdog, boot_ms, grace_ms, pass_token,
    supervise,
};
use crate::verb::VerbResult;

/// Run a command under a lease
#[derive(Debug, clap::Args)]
#[command(after_help = more(), before_help = "\
# In ten crontabs: one runs, the others exit with 75
fencehold run --key reports/daily -- ./build-report

# One after the other, up to five minutes in line
fencehold run --key db/migrate --wait 5m -- ./migrate

# What the lease protects can check the token
fencehold run --key k -- sh -c 'echo token $FENCEHOLD_TOKEN'")]
pub(crate) struct Args {
    /// What to hold while the command runs
    #[arg(long)]
    key: Key,
    /// How long the lease lasts if this process dies; else it is renewed
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = parse_ms, allow_hyphen_values = true)]
    ttl: u64,
    /// How long to wait in line if the key is held [default: not at all]
    #[arg(long, value_name = "DURATION", value_parser = parse_ms, allow_hyphen_values = true)]
    wait: Option<u64>,
    /// What the lease is for, as in run-42
    #[arg(long)]
    task: Option<Task>,
    /// Who holds it [default: host/pid/random]
    #[arg(long)]
    owner: Option<Owner>,
    /// What the command gets between TERM and KILL [default: a quarter of the ttl, 10s at most]
    #[arg(long, value_name = "DURATION", value_parser = parse_ms, allow_hyphen_values = true)]
    grace: Option<u64>,
    /// The longest that the command may run; then it is ended
    #[arg(long, value_name = "DURATION", value_parser = parse_ms, allow_hyphen_values = true)]
    max_age: Option<u64>,
    /// Higher is served first in line
    #[arg(long, value_name = "N", default_value_t = 0, allow_hyphen_values = true)]
    priority: i16,
    /// Ask a holder of lower priority to yield within this time
    #[arg(long, value_name = "DURATION", value_parser = parse_ms, allow_hyphen_values = true)]
    preempt_within: Option<u64>,
    /// Let the command inherit the access token, also that in the store's URL
    #[arg(long)]
    pass_access_token: bool,
    #[command(flatten)]
    create: CreateStore,
    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "CMD")]
    command: Vec<OsString>,
}

const MORE: &str = "\
The command finds FENCEHOLD_TOKEN, FENCEHOLD_KEY and, if there is one, FENCEHOLD_TASK in its environment. It runs in a \
process group of its own, and gets the signals TERM, INT, HUP, QUIT, USR1 and USR2 that this process gets. What it \
leaves behind in its group is ended before the lease is given back.

A watchdog ends the group in time if the lease cannot be renewed, or if this process is stopped or killed: first TERM, \
then KILL before another can get the lease. It cannot be ahead of a revocation, which ends the lease at once, nor \
follow processes that leave the group, nor end a command that becomes another user (sudo): the token is for those.";

fn more() -> String {
    format!("{MORE}\n\n{}", exit_code::table())
}

impl Args {
    pub(crate) async fn run(self, context: &Context) -> VerbResult<ExitCode> {
        // Validate before creating the store.
        ttl::check(self.ttl, TTL_MS_MIN)?;
        if self.pass_access_token {
            pass_token();
        }
        let grace_ms = grace_ms(self.grace, self.ttl)?;
        let watchdog = Watchdog::default();
        if self.begins_at_once() {
            // Before there are threads.
            watchdog.fork();
        }
        // First of all: the store starts threads, and a signal must not meet a half-taken lease.
        let mut signals = Signals::listen()
            .map_err(|error| Failure::failed(format!("signals cannot be passed on: {error}")))?;
        let store = context.open(self.create)?;
        store
            .closing(async |store| self.hold(store, watchdog, grace_ms, &mut signals).await)
            .await
    }

    /// Whether it does not stand in line. Those who do, perhaps for long, need no watchdog yet.
    fn begins_at_once(&self) -> bool {
        self.wait.is_none() && self.preempt_within.is_none()
    }

    async fn hold(
        self,
        store: &OpenStore,
        watchdog: Watchdog,
        grace_ms: u64,
        signals: &mut Signals,
    ) -> VerbResult<ExitCode> {
        let fencehold = store.library().await?;
        if self.begins_at_once() {
            // It is introduced while the store is asked.
            let watchdog = watchdog.clone();
            tokio::spawn(async move { watchdog.ensure().await });
        }
        let lease = tokio::select! {
            acquired = self.acquire(&fencehold) => match acquired {
                Ok(lease) => lease,
                Err(error) => {
                    let failure = self.refused(error, store).await;
                    // A grant that may have come too late is given back before the store is closed.
                    fencehold.close().await;
                    return Err(failure);
                }
            },
            // Dropping the request leaves the line, and gives back what was granted meanwhile.
            signal = signals.next() => {
                fencehold.close().await;
                return Ok(exit_code::of_signal(signal.as_raw()).into());
            }
        };
        let (tell, lease_status) = watch::channel(LeaseStatus::of(&lease.watch().snapshot()));
        let follower = tokio::spawn(follow(lease.watch(), tell));
        let variables = self.variables(&lease);
        let command = CommandSpec { words: &self.command, variables, grace_ms, streams: Streams::Ours };
        let finish = supervise(command, &watchdog, lease_status, Some(signals)).await;
        follower.abort();
        let settled = async {
            match finish {
                Ok(finish) if !finish.left.is_empty() => {
                    // What still runs is still under the lease: it is left to run out, and not given back. It may be lost already.
                    let _ = lease.detach();
                    Err(unended(&self.key, &finish))
                }
                Ok(finish) => settle(lease, finish, &store.name).await,
                Err(failure) => {
                    let _ = lease.release().await;
                    Err(failure)
                }
            }
        };
        // The watchdog has nothing left to watch, and goes meanwhile.
        let (outcome, ()) = tokio::join!(settled, watchdog.dismiss());
        fencehold.close().await;
        outcome
    }

    async fn acquire(&self, fencehold: &Fencehold) -> Result<Lease, Error> {
        let mut builder = fencehold
            .lease(&self.key)
            .ttl(Duration::from_millis(self.ttl))
            .priority(self.priority);
        if let Some(task) = &self.task {
            builder = builder.task(task);
        }
        if let Some(owner) = &self.owner {
            builder = builder.owner(owner);
        }
        if let Some(max_age_ms) = self.max_age {
            builder = builder.max_age(Duration::from_millis(max_age_ms));
        }
        if let Some(wait_ms) = self.wait {
            builder = builder.wait(Duration::from_millis(wait_ms));
        }
        match (self.preempt_within, self.wait) {
            (Some(within_ms), _) => builder.preempt_within(Duration::from_millis(within_ms)).acquire().await,
            (None, Some(_)) => builder.acquire().await,
            (None, None) => builder.try_acquire().await,
        }
    }

    /// After a wait in vain, the error names the holder.
    async fn refused(&self, error: Error, store: &OpenStore) -> Failure {
        let waited = match &error {
            Error::WaitTimedOut { waited, .. } => u64::try_from(waited.as_millis()).unwrap_or(u64::MAX),
            _ => return Failure::of_library(error, &store.name),
        };
        let found = store.leases.get(&store.call, self.key.clone()).await.ok().flatten();
        let Some((token, holder)) = found.and_then(|lease| Some((lease.token, lease.holder?))) else {
            return Failure::of_library(error, &store.name);
        };
        let (owner, task, expires_in_ms) = (holder.owner, holder.task, holder.remaining_ms);
        let held =
            Failure::refused(&self.key, Refusal::Held { owner, task, remaining_ms: expires_in_ms, token });
        match held {
            Failure::Said { what, .. } => {
                Failure::of_kind(ErrorKind::WaitTimedOut, format!("{what}; waited {}", show_ms(waited)))
                    .with_next("Wait for longer, or see who holds it: `fencehold lease ls`.")
            }
            Failure::ReaderGone => held,
        }
    }

    fn variables(&self, lease: &Lease) -> Vec<(&'static str, Option<OsString>)> {
        vec![
            (TOKEN_VARIABLE, Some(lease.token().to_string().into())),
            (KEY_VARIABLE, Some(self.key.to_string().into())),
            (TASK_VARIABLE, self.task.as_ref().map(|task| task.to_string().into())),
            // One that is there belongs to another lease.
            (HOLD_VARIABLE, None),
        ]
    }
}

/// Nothing of the command runs any more: gives the lease back, and finds the exit code.
async fn settle(lease: Lease, finish: CommandEnd, place: &str) -> VerbResult<ExitCode> {
    let key = lease.key().clone();
    let token = lease.token();
    let how = finish
        .code
        .map_or("and cannot be ended".to_owned(), |code| format!("and ended with code {code}"));
    if finish.lost {
        let why = if lease.state() == LeaseState::Lost {
            lease.lost().await.to_string()
        } else {
            "it would have run out before it could be renewed".to_owned()
        };
        let _ = lease.release().await;
        return Err(Failure::lost(&key, token, &format!("{why}; the command was asked to end, {how}")));
    }
    match lease.release().await {
        Ok(()) => {}
        Err(Error::Lost { cause: why, .. }) => {
            return Err(Failure::lost(&key, token, &format!("{why}; the command did not know, {how}")));
        }
        // The command is done, and was alone. The lease ends by itself.
        Err(error) => {
            if let Failure::Said { what, .. } = Failure::of_library(error, place) {
                note(&format!("the lease on {key} could not be given back, and will run out: {what}"));
            }
        }
    }
    if finish.unwatched {
        return Err(Failure::failed(format!("{key}: the command was ended for want of a watchdog, {how}")));
    }
    Ok(finish.code.unwrap_or(0).into())
}

fn unended(key: &Key, finish: &CommandEnd) -> Failure {
    let exit = if finish.lost { ExitStatus::Lost } else { ExitStatus::Failed };
    let pids: Vec<String> = finish.left.iter().map(ToString::to_string).collect();
    Failure::new(exit, format!("{key}: processes of the command cannot be ended: {}", pids.join(", ")))
        .with_next("The lease is not given back: it runs out by itself.")
}

/// Follows the lease for the command: every new deadline, its end, and who asks for it.
async fn follow(mut lease: LeaseWatch, tell: watch::Sender<LeaseStatus>) {
    let mut asked = None;
    while let Some(snapshot) = lease.changed().await {
        let wish = snapshot.yield_request.as_ref().map(|notice| notice.contender.clone());
        if wish != asked
            && let Some(notice) = &snapshot.yield_request
        {
            let within = show_ms(notice.deadline_ms.saturating_sub(boot_ms()));
            note(&format!("{} asks for {} within {within}", notice.contender, lease.key()));
        }
        asked = wish;
        if tell.send(LeaseStatus::of(&snapshot)).is_err() {
            return;
        }
    }
}
