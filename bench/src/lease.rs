//! Leases on a `file:` store, beside the disk's own rate and redis-server.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use fencehold_load::{AcquireRelease, BatchRenewals, Failed, Measured, Target, run};

use crate::disk::DiskLoad;
use crate::figure::Figure;
use crate::redis::Redis;
use crate::scratch_dir::{ScratchDir, open};
use crate::{Common, scale};

/// What to measure.
#[derive(Debug, clap::Args)]
pub(crate) struct LeasePlan {
    #[command(flatten)]
    common: Common,
    /// How many clients at once, one measurement each
    #[arg(long, value_name = "N,…", value_delimiter = ',', default_value = "1,64,512")]
    clients: Vec<usize>,
    /// How many held leases to weigh and to reopen with; 0: skip
    #[arg(long, value_name = "N", default_value_t = 1_000_000)]
    held: usize,
    /// How many leases to let end at one moment; 0: skip
    #[arg(long, value_name = "N", default_value_t = 100_000)]
    ending: usize,
}

/// Clients that each take a key of their own and give it back.
pub(crate) async fn pairs(target: &Target, clients: usize, time: Duration) -> Result<Measured, Failed> {
    run(AcquireRelease::clients(target, clients)?, time).await
}

/// Clients that each renew a batch of their own holds.
pub(crate) async fn renewals(
    target: &Target,
    clients: usize,
    batch: usize,
    time: Duration,
) -> Result<Measured, Failed> {
    run(BatchRenewals::clients(target, clients, batch), time).await
}

/// Measures, calling `show` with each line as it is known.
pub(crate) async fn measure(plan: &LeasePlan, mut show: impl FnMut(Figure)) -> Result<(), Failed> {
    let home = ScratchDir::make(&plan.common.dir)?;
    let mut disk = DiskLoad::open(&home.0)?;
    disk.sample(plan.common.time / 4)?;
    in_process(plan, &home, &mut disk, &mut show).await?;
    if plan.ending > 0 {
        let target = open(&home.0.join("ending"))?;
        show(scale::mass_expiry(&target, plan.ending).await?);
        target.store.close().await;
    }
    if plan.held > 0 {
        let place = home.0.join("held");
        for line in scale::many_held(|| open(&place), plan.held).await? {
            show(line);
        }
    }
    if plan.common.peers {
        beside_redis(plan, &home, &mut show).await?;
    }
    show(disk.line());
    Ok(())
}

/// The owner in this process.
async fn in_process(
    plan: &LeasePlan,
    home: &ScratchDir,
    disk: &mut DiskLoad,
    show: &mut impl FnMut(Figure),
) -> Result<(), Failed> {
    let time = plan.common.time;
    let target = open(&home.0.join("own"))?;
    // The first calls make the database: that is not what is measured.
    pairs(&target, 1, time / 10).await?;
    let mut one_client = None;
    for clients in &plan.clients {
        disk.sample(time / 4)?;
        let pairs = pairs(&target, *clients, time).await?;
        disk.sample(time / 4)?;
        let line = Figure::new("acquire + release", *clients).measured(&pairs);
        show(match (*clients, one_client) {
            (1, _) => {
                one_client = Some(pairs.per_second());
                let ratio = pairs.percentile_us(50.0) / disk.latencies.percentile_us(50.0).max(0.001);
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
        disk.sample(time / 8)?;
        let renewed = renewals(&target, *clients, 100, time).await?;
        let line = Figure::new("renew, by 100", *clients).measured(&renewed);
        let per_second = renewed.per_second();
        show(if *clients == 64 { line.bar("at least 100 k/s", per_second >= 100_000.0) } else { line });
    }
    target.store.close().await;
    Ok(())
}

/// The owner in another process, and redis-server, one after the other and back, so that both see the same weather.
async fn beside_redis(
    plan: &LeasePlan,
    home: &ScratchDir,
    show: &mut impl FnMut(Figure),
) -> Result<(), Failed> {
    const CLIENTS: usize = 64;
    let time = plan.common.time;
    let place = home.0.join("shared");
    let owner = OwnerProcess::start(&place)?;
    let target = open(&place)?;
    let status = target.store.status(&target.call).await?;
    if status.owner_pid == Some(std::process::id()) {
        return Err("the other process does not own the directory".into());
    }
    let redis = Redis::start(&home.0.join("redis")).await?;
    pairs(&target, CLIENTS, time / 10).await?;
    let ours = pairs(&target, CLIENTS, time).await?;
    let theirs = run(redis.pairs(CLIENTS).await?, time).await?;
    let ratio = ours.per_second() / theirs.per_second();
    show(Figure::new("redis-server: acquire + release", CLIENTS).measured(&theirs));
    show(
        Figure::new("through the socket: acquire + release", CLIENTS)
            .measured(&ours)
            .ratio("redis-server", ratio)
            .bar("at least 0.5", ratio >= 0.5),
    );
    let ours = renewals(&target, CLIENTS, 100, time).await?;
    let single = run(redis.renewals(CLIENTS, 1).await?, time).await?;
    let piped = run(redis.renewals(CLIENTS, 100).await?, time).await?;
    let ratio = ours.per_second() / single.per_second();
    show(Figure::new("redis-server: renew", CLIENTS).measured(&single));
    show(Figure::new("redis-server: renew, 100 in a pipeline", CLIENTS).measured(&piped));
    show(
        Figure::new("through the socket: renew, by 100", CLIENTS)
            .measured(&ours)
            .ratio("redis-server: renew", ratio)
            .bar("at least 2", ratio >= 2.0),
    );
    target.store.close().await;
    drop(owner);
    Ok(())
}

/// Another process of this program that owns a directory until its standard input ends.
struct OwnerProcess(Child);

impl OwnerProcess {
    fn start(directory: &Path) -> Result<OwnerProcess, Failed> {
        let mut child = Command::new(std::env::current_exe()?)
            .arg("own")
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
    let target = open(directory)?;
    target.store.status(&target.call).await?;
    let mut stdout = std::io::stdout();
    writeln!(stdout, "owner")?;
    stdout.flush()?;
    // Blocks this thread only: the store runs on its own.
    std::io::stdin().read_to_end(&mut Vec::new())?;
    target.store.close().await;
    Ok(())
}
