//! A store through a server, beside the same store in this process, redis-server and etcd.
//!
//! The server is the `fencehold` beside this program, on a directory of its own on the same disk. What is compared is measured
//! in turns, a slice each, so that both see the same weather.

mod etcd;
mod raw;
mod server_process;
mod waiters;
mod watchers;

use fencehold_load::{Failed, Measured, Target, run};
use server_process::ServerProcess;

use crate::Common;
use crate::figure::Figure;
use crate::job::lives;
use crate::lease::{pairs, renewals};
use crate::redis::Redis;
use crate::scratch_dir::{ScratchDir, open, open_url};

/// How many connections the bars are about.
const CLIENTS: usize = 64;
/// How many items one call of a batch has.
const BATCH: usize = 100;
/// In so many slices each thing is measured.
const TURNS: u32 = 4;

/// What to measure.
#[derive(Debug, clap::Args)]
pub(crate) struct HttpPlan {
    #[command(flatten)]
    common: Common,
    /// How many requests are to wait while the server is weighed; 0: skip
    #[arg(long, value_name = "N", default_value_t = 8_000)]
    waiting: usize,
    /// How many are to watch a prefix each while leases are granted; 0: skip
    #[arg(long, value_name = "N", default_value_t = 1_000)]
    watchers: usize,
}

/// Measures, calling `show` with each line as it is known.
pub(crate) async fn measure(plan: &HttpPlan, mut show: impl FnMut(Figure)) -> Result<(), Failed> {
    let home = ScratchDir::make(&plan.common.dir)?;
    let served = ServerProcess::start(&home.0.join("served"))?;
    let here = open(&home.0.join("here"))?;
    let through = open_url(served.url())?;
    let time = plan.common.time;
    for target in [&here, &through] {
        // The first calls make the database and the connections; that is not what is measured.
        pairs(target, CLIENTS, time / 10).await?;
        lives(target, CLIENTS, 1, time / 10).await?;
    }
    beside_in_process(plan, &here, &through, &mut show).await?;
    here.store.close().await;
    show(Figure::new("through http: acquire + release", 1).measured(&pairs(&through, 1, time).await?));
    if plan.common.peers {
        beside_redis(plan, &home, &through, &mut show).await?;
        beside_etcd(plan, &home, &through, &mut show).await?;
    }
    if plan.watchers > 0 {
        show(watchers::of_prefixes(&served, &through, plan.watchers, time).await?);
        show(watchers::of_everything(&served, &through, time).await?);
    }
    through.store.close().await;
    drop(served);
    if plan.waiting > 0 {
        show(waiters::weigh(&home.0.join("crowd"), plan.waiting).await?);
    }
    Ok(())
}

/// Every operation here and through the server.
async fn beside_in_process(
    plan: &HttpPlan,
    here: &Target,
    through: &Target,
    show: &mut impl FnMut(Figure),
) -> Result<(), Failed> {
    let slice = plan.common.time / TURNS;
    compare(here, through, "acquire + release", 0.6, show, async |target| {
        pairs(target, CLIENTS, slice).await
    })
    .await?;
    compare(here, through, "enqueue + claim + complete", 0.2, show, async |target| {
        lives(target, CLIENTS, 1, slice).await
    })
    .await?;
    compare(here, through, "renew, by 100", 0.7, show, async |target| {
        renewals(target, CLIENTS, BATCH, slice).await
    })
    .await?;
    compare(here, through, "enqueue + claim + complete, by 100", 0.7, show, async |target| {
        lives(target, CLIENTS, BATCH, slice).await
    })
    .await
}

/// One thing in turns here and through the server; the ratio must be at least `bar`.
async fn compare(
    here: &Target,
    through: &Target,
    what: &str,
    bar: f64,
    show: &mut impl FnMut(Figure),
    once: impl AsyncFn(&Target) -> Result<Measured, Failed>,
) -> Result<(), Failed> {
    let (mut in_process, mut by_http) = (Measured::default(), Measured::default());
    for _ in 0..TURNS {
        in_process.then(once(here).await?);
        by_http.then(once(through).await?);
    }
    show(Figure::new(format!("file: in process: {what}"), CLIENTS).measured(&in_process));
    let ratio = by_http.per_second() / in_process.per_second();
    show(
        Figure::new(format!("through http: {what}"), CLIENTS)
            .measured(&by_http)
            .ratio("in process", ratio)
            .bar(format!("at least {bar}"), ratio >= bar),
    );
    Ok(())
}

/// The same calls beside redis-server, which syncs every write too.
async fn beside_redis(
    plan: &HttpPlan,
    home: &ScratchDir,
    through: &Target,
    show: &mut impl FnMut(Figure),
) -> Result<(), Failed> {
    let peer = Redis::start(&home.0.join("redis")).await?;
    run(peer.pairs(CLIENTS).await?, plan.common.time / 10).await?;
    let slice = plan.common.time / TURNS;
    let (mut ours, mut theirs) = (Measured::default(), Measured::default());
    for _ in 0..TURNS {
        theirs.then(run(peer.pairs(CLIENTS).await?, slice).await?);
        ours.then(pairs(through, CLIENTS, slice).await?);
    }
    let ratio = ours.per_second() / theirs.per_second();
    show(
        Figure::new("redis-server: acquire + release", CLIENTS)
            .measured(&theirs)
            .ratio("ours through http, to it", ratio)
            .bar("at least 1", ratio >= 1.0),
    );
    Ok(())
}

async fn beside_etcd(
    plan: &HttpPlan,
    home: &ScratchDir,
    through: &Target,
    show: &mut impl FnMut(Figure),
) -> Result<(), Failed> {
    let peer = etcd::Etcd::start(&home.0.join("etcd")).await?;
    run(peer.pairs(etcd::LockMethod::LeaseEach, CLIENTS).await?, plan.common.time / 10).await?;
    let slice = plan.common.time / TURNS;
    let (mut ours, mut leases, mut session) = (Measured::default(), Measured::default(), Measured::default());
    for _ in 0..TURNS {
        leases.then(run(peer.pairs(etcd::LockMethod::LeaseEach, CLIENTS).await?, slice).await?);
        ours.then(pairs(through, CLIENTS, slice).await?);
        session.then(run(peer.pairs(etcd::LockMethod::OneSession, CLIENTS).await?, slice).await?);
    }
    let ratio = ours.per_second() / leases.per_second();
    show(
        Figure::new("etcd: acquire + release, a lease for each", CLIENTS)
            .measured(&leases)
            .ratio("ours through http, to it", ratio)
            .bar("at least 4", ratio >= 4.0),
    );
    show(
        Figure::new("etcd: acquire + release, one lease a connection", CLIENTS)
            .measured(&session)
            .ratio("ours through http, to it", ours.per_second() / session.per_second()),
    );
    Ok(())
}
