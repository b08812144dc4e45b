//! `bench lease`: leases on one store, beside the disk's own rate, in one run.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use super::disk::Disk;
use super::home::{Home, open_store};
use super::load::{self, Subject};
use super::redis::Redis;
use super::scale;
use super::{Failed, Line};

/// What to measure.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    /// Where: a directory of its own is made in it, and removed afterwards.
    pub(crate) directory: PathBuf,
    /// How many clients at once, one measurement each.
    pub(crate) clients: Vec<usize>,
    /// How long one measurement takes.
    pub(crate) time: Duration,
    /// How many held leases to measure memory and reopening with; 0: none.
    pub(crate) held: usize,
    /// How many leases to let end at once; 0: none.
    pub(crate) ending: usize,
    /// Whether to measure through the socket beside redis-server too.
    pub(crate) peers: bool,
}

/// Measures, calling `show` with each line as it is known.
pub(crate) async fn measure(plan: &Plan, mut show: impl FnMut(Line)) -> Result<(), Failed> {
    let home = Home::make(&plan.directory)?;
    let mut disk = Disk::open(&home.0)?;
    disk.sample(plan.time / 4)?;
    in_process(plan, &home, &mut disk, &mut show).await?;
    if plan.ending > 0 {
        let subject = Subject::new(open_store(&home.0.join("ending"))?);
        show(scale::mass_expiry(&subject, plan.ending).await?);
        subject.store.close().await;
    }
    if plan.held > 0 {
        let place = home.0.join("held");
        for line in scale::many_held(|| open_store(&place), plan.held).await? {
            show(line);
        }
    }
    if plan.peers {
        beside_redis(plan, &home, &mut show).await?;
    }
    show(disk.line());
    Ok(())
}

/// The owner in this process.
async fn in_process(
    plan: &Plan,
    home: &Home,
    disk: &mut Disk,
    show: &mut impl FnMut(Line),
) -> Result<(), Failed> {
    let subject = Subject::new(open_store(&home.0.join("own"))?);
    // The first calls make the database; they are nobody's everyday.
    load::pairs(&subject, 1, plan.time / 10).await?;
    let mut one_client = None;
    for clients in &plan.clients {
        disk.sample(plan.time / 4)?;
        let pairs = load::pairs(&subject, *clients, plan.time).await?;
        disk.sample(plan.time / 4)?;
        let line = Line::new("acquire + release", *clients).measured(&pairs);
        show(match (*clients, one_client) {
            (1, _) => {
                one_client = Some(pairs.per_second());
                let ratio = pairs.latencies.at(50.0) / disk.latencies.at(50.0).max(0.001);
                line.ratio("one fsync (acquire, p50)", ratio).bar("at most 1.5", ratio <= 1.5)
            }
            (64, Some(one)) => {
                let ratio = pairs.per_second() / one;
                line.ratio("one client", ratio).bar("at least 5", ratio >= 5.0)
            }
            (_, Some(one)) => line.ratio("one client", pairs.per_second() / one),
            _ => line,
        });
    }
    for clients in &plan.clients {
        disk.sample(plan.time / 8)?;
        let renewed = load::renewals(&subject, *clients, 100, plan.time).await?;
        let line = Line::new("renew, by 100", *clients).measured(&renewed);
        let per_second = renewed.per_second();
        show(if *clients == 64 { line.bar("at least 100 k/s", per_second >= 100_000.0) } else { line });
    }
    subject.store.close().await;
    Ok(())
}

/// The owner in another process, and redis-server, one after the other and back, so that both see the same weather.
async fn beside_redis(plan: &Plan, home: &Home, show: &mut impl FnMut(Line)) -> Result<(), Failed> {
    const CLIENTS: usize = 64;
    let place = home.0.join("shared");
    let owner = OwnerProcess::start(&place)?;
    let subject = Subject::new(open_store(&place)?);
    let status = subject.store.status(&subject.call).await?;
    if status.owner_pid == Some(std::process::id()) {
        return Err("the other process does not own the directory".into());
    }
    let redis = Redis::start(&home.0.join("redis")).await?;
    load::pairs(&subject, CLIENTS, plan.time / 10).await?;
    let (ours, theirs) =
        (load::pairs(&subject, CLIENTS, plan.time).await?, redis.pairs(CLIENTS, plan.time).await?);
    let ratio = ours.per_second() / theirs.per_second();
    show(Line::new("redis-server: acquire + release", CLIENTS).measured(&theirs));
    show(
        Line::new("through the socket: acquire + release", CLIENTS)
            .measured(&ours)
            .ratio("redis-server", ratio)
            .bar("at least 0.5", ratio >= 0.5),
    );
    let ours = load::renewals(&subject, CLIENTS, 100, plan.time).await?;
    let single = redis.renewals(CLIENTS, 1, plan.time).await?;
    let piped = redis.renewals(CLIENTS, 100, plan.time).await?;
    let ratio = ours.per_second() / single.per_second();
    show(Line::new("redis-server: renew", CLIENTS).measured(&single));
    show(Line::new("redis-server: renew, 100 in a pipeline", CLIENTS).measured(&piped));
    show(
        Line::new("through the socket: renew, by 100", CLIENTS)
            .measured(&ours)
            .ratio("redis-server: renew", ratio)
            .bar("at least 2", ratio >= 2.0),
    );
    subject.store.close().await;
    drop(owner);
    Ok(())
}

/// Another process of this program that owns a directory until its standard input ends.
struct OwnerProcess(Child);

impl OwnerProcess {
    fn start(directory: &Path) -> Result<OwnerProcess, Failed> {
        let mut child = Command::new(std::env::current_exe()?)
            .args(["bench", "own"])
            .arg(directory)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let mut line = String::new();
        if let Some(stdout) = child.stdout.take() {
            BufReader::new(stdout).read_line(&mut line)?;
        }
        match line.trim() {
            "owner" => Ok(OwnerProcess(child)),
            _ => Err("the other process could not open the directory".into()),
        }
    }
}

impl Drop for OwnerProcess {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }
}

/// What the other process does.
pub(crate) async fn own_until_told(directory: &Path) -> Result<(), Failed> {
    let subject = Subject::new(open_store(directory)?);
    subject.store.status(&subject.call).await?;
    let mut stdout = std::io::stdout();
    writeln!(stdout, "owner")?;
    stdout.flush()?;
    // Blocks this thread only: the store runs on its own.
    std::io::stdin().read_to_end(&mut Vec::new())?;
    subject.store.close().await;
    Ok(())
}
