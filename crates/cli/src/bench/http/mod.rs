//! `bench http`: a store through a server, beside the same store in this process, in one run.
//!
//! The server is another process of this program, on a directory of its own on the same disk. What is compared is measured
//! in turns, a slice each, so that both see the same weather.

mod crowd;
#[cfg(feature = "etcd")]
mod etcd;
mod raw;
mod served;
mod watchers;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use fencehold_contract::StoreError;
use fencehold_contract::clock::SystemClock;
use served::Served;

use super::home::{Home, open_store};
use super::load::{Measured, Subject, pairs, renewals};
use super::{Failed, Line, life};

/// How many connections the bars are about.
const CLIENTS: usize = 64;
/// How many items one call of a batch has.
const BATCH: usize = 100;
/// In so many slices each thing is measured.
const TURNS: u32 = 4;

/// What to measure.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    /// Where: a directory of its own is made in it, and removed afterwards.
    pub(crate) directory: PathBuf,
    /// How long each measurement takes, all its slices together.
    pub(crate) time: Duration,
    /// How many requests wait at once while the server is weighed; 0: none.
    pub(crate) waiting: usize,
    /// How many watchers of a prefix each; 0: none.
    pub(crate) watchers: usize,
    /// Whether to measure beside etcd too.
    pub(crate) peers: bool,
}

/// Measures, calling `show` with each line as it is known.
pub(crate) async fn measure(plan: &Plan, mut show: impl FnMut(Line)) -> Result<(), Failed> {
    let home = Home::make(&plan.directory)?;
    let served = Served::start(&home.0.join("served"))?;
    let here = Subject::new(open_store(&home.0.join("here"))?);
    let through = Subject::new(fencehold_stores::open(&served.url().parse()?, Arc::new(SystemClock))?);
    for subject in [&here, &through] {
        // The first calls make the database and the connections; they are nobody's everyday.
        pairs(subject, CLIENTS, plan.time / 10).await?;
        life::lives(subject, CLIENTS, plan.time / 10).await?;
    }
    beside_in_process(plan, &here, &through, &mut show).await?;
    here.store.close().await;
    if plan.peers {
        beside_etcd(plan, &home, &through, &mut show).await?;
    }
    if plan.watchers > 0 {
        show(watchers::of_prefixes(&served, &through, plan.watchers, plan.time).await?);
        show(watchers::of_everything(&served, &through, plan.time).await?);
    }
    through.store.close().await;
    drop(served);
    if plan.waiting > 0 {
        show(crowd::weigh(&home.0.join("crowd"), plan.waiting).await?);
    }
    Ok(())
}

/// Every operation here and through the server.
async fn beside_in_process(
    plan: &Plan,
    here: &Subject,
    through: &Subject,
    show: &mut impl FnMut(Line),
) -> Result<(), Failed> {
    let slice = plan.time / TURNS;
    compare(here, through, "acquire + release", 0.2, show, async |subject| {
        pairs(subject, CLIENTS, slice).await
    })
    .await?;
    compare(here, through, "enqueue + claim + complete", 0.2, show, async |subject| {
        life::lives(subject, CLIENTS, slice).await
    })
    .await?;
    compare(here, through, "renew, by 100", 0.7, show, async |subject| {
        renewals(subject, CLIENTS, BATCH, slice).await
    })
    .await?;
    compare(here, through, "enqueue + claim + complete, by 100", 0.7, show, async |subject| {
        life::lives_by(subject, CLIENTS, BATCH, slice).await
    })
    .await
}

/// One thing in turns here and through the server; the ratio must be at least `bar`.
async fn compare(
    here: &Subject,
    through: &Subject,
    what: &str,
    bar: f64,
    show: &mut impl FnMut(Line),
    once: impl AsyncFn(&Subject) -> Result<Measured, StoreError>,
) -> Result<(), Failed> {
    let (mut in_process, mut by_http) = (Measured::default(), Measured::default());
    for _ in 0..TURNS {
        in_process.add(once(here).await?);
        by_http.add(once(through).await?);
    }
    let (in_process, by_http) = (in_process.sorted(), by_http.sorted());
    show(Line::new(format!("file: in process: {what}"), CLIENTS).measured(&in_process));
    let ratio = by_http.per_second() / in_process.per_second();
    show(
        Line::new(format!("through http: {what}"), CLIENTS)
            .measured(&by_http)
            .ratio("in process", ratio)
            .bar(format!("at least {bar}"), ratio >= bar),
    );
    Ok(())
}

#[cfg(feature = "etcd")]
async fn beside_etcd(
    plan: &Plan,
    home: &Home,
    through: &Subject,
    show: &mut impl FnMut(Line),
) -> Result<(), Failed> {
    let peer = etcd::Etcd::start(&home.0.join("etcd")).await?;
    peer.pairs(etcd::Way::LeaseEach, CLIENTS, plan.time / 10).await?;
    let slice = plan.time / TURNS;
    let (mut ours, mut leases, mut session) = (Measured::default(), Measured::default(), Measured::default());
    for _ in 0..TURNS {
        leases.add(peer.pairs(etcd::Way::LeaseEach, CLIENTS, slice).await?);
        ours.add(pairs(through, CLIENTS, slice).await?);
        session.add(peer.pairs(etcd::Way::OneSession, CLIENTS, slice).await?);
    }
    let (ours, leases, session) = (ours.sorted(), leases.sorted(), session.sorted());
    let ratio = ours.per_second() / leases.per_second();
    show(
        Line::new("etcd: acquire + release, a lease for each", CLIENTS)
            .measured(&leases)
            .ratio("ours through http, to it", ratio)
            .bar("at least 4", ratio >= 4.0),
    );
    show(
        Line::new("etcd: acquire + release, one lease a connection", CLIENTS)
            .measured(&session)
            .ratio("ours through http, to it", ours.per_second() / session.per_second()),
    );
    Ok(())
}

#[cfg(not(feature = "etcd"))]
async fn beside_etcd(_: &Plan, _: &Home, _: &Subject, _: &mut impl FnMut(Line)) -> Result<(), Failed> {
    Err("this fencehold was built without etcd, so it cannot be measured beside it".into())
}
