//! The end of a job and its effects in a transaction of the handler's own, through the library: both happen, or neither.

use std::sync::OnceLock;
use std::time::Duration;

use fencehold::fence::FenceError;
use fencehold::job::{EffectState, InDoubtPolicy, JobState, RetryPolicy};
use fencehold::store::{CallContext, ListEventsRequest};
use fencehold::{BlockedAction, EventData, Fencehold, IntoOutcome, Job, JobError, JobId, RunningWorker};
use fencehold_test_servers::postgres::{Durable, PostgresServer, fresh_schema};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio_postgres::{Client, NoTls, Transaction};

/// Longer than anything takes, however busy the machine.
const TIMEOUT: Duration = Duration::from_secs(60);
const QUEUE: &str = "q";

fn cluster() -> &'static PostgresServer {
    static CLUSTER: OnceLock<PostgresServer> = OnceLock::new();
    CLUSTER.get_or_init(|| PostgresServer::start(Durable::No))
}

/// A store in a schema of its own, with a table beside it that jobs write to.
#[derive(Clone)]
struct PostgresFixture {
    schema: String,
    port: u16,
    runtime: Handle,
    fh: Fencehold,
}

impl PostgresFixture {
    async fn open() -> Self {
        let cluster = tokio::task::spawn_blocking(cluster).await.unwrap();
        let schema = fresh_schema();
        let fh = crate::connect_patiently(&cluster.url_text(&schema)).await;
        let port = cluster.url(&schema).hosts[0].1;
        let shop = PostgresFixture { schema, port, runtime: Handle::current(), fh };
        let table = format!("CREATE TABLE {} (what text)", shop.table());
        shop.client().await.batch_execute(&table).await.unwrap();
        shop
    }

    fn table(&self) -> String {
        format!("sold_in_{}", self.schema)
    }

    /// A connection of the handler's own. A handler runs on a thread without a reactor, so it is made elsewhere.
    async fn client(&self) -> Client {
        let config = format!("host=127.0.0.1 port={} user=postgres dbname=postgres", self.port);
        let connecting = self.runtime.spawn(async move {
            let (client, connection) = tokio_postgres::connect(&config, NoTls).await.unwrap();
            tokio::spawn(connection);
            client
        });
        connecting.await.unwrap()
    }

    async fn sell(&self, transaction: &Transaction<'_>, what: &str) -> Result<(), JobError> {
        let sql = format!("INSERT INTO {} VALUES ($1)", self.table());
        transaction.execute(&sql, &[&what]).await?;
        Ok(())
    }

    async fn sold(&self) -> Vec<String> {
        let sql = format!("SELECT what FROM {} ORDER BY what", self.table());
        let rows = self.client().await.query(&sql, &[]).await.unwrap();
        rows.iter().map(|row| row.get(0)).collect()
    }

    /// A worker that sells by this handler.
    fn worker<R: IntoOutcome + 'static, F: Future<Output = Result<R, JobError>> + Send + 'static>(
        &self,
        handler: impl Fn(PostgresFixture, Job) -> F + Send + Sync + 'static,
    ) -> RunningWorker {
        let shop = self.clone();
        let worker = self.fh.worker().queue(QUEUE);
        worker
            .handle("sell", move |job, ()| handler(shop.clone(), job))
            .start()
            .unwrap()
    }

    /// A job for it that is tried again at once.
    async fn enqueue(&self) -> JobId {
        let again = RetryPolicy::fixed(Duration::from_millis(1));
        self.fh
            .queue(QUEUE)
            .job("sell", &())
            .retry(again)
            .enqueue()
            .await
            .unwrap()
            .job_id
    }
}

#[tokio::test]
async fn what_is_committed_with_the_completion_is_there_and_the_job_is_done() {
    let shop = PostgresFixture::open().await;
    let worker = shop.worker(|shop, job| async move {
        let mut client = shop.client().await;
        let mut transaction = client.transaction().await?;
        shop.sell(&transaction, "a chair").await?;
        job.complete_in(&mut transaction, &7).await?;
        transaction.commit().await?;
        // Said again, and too late to change anything.
        Ok(8)
    });
    let id = shop.enqueue().await;
    assert_eq!(shop.fh.jobs().result::<u32>(id, TIMEOUT).await, Ok(7));
    worker.drain().await.unwrap();
    assert_eq!(shop.sold().await, ["a chair"]);
    let detail = shop.fh.jobs().get(id).await.unwrap();
    assert_eq!((detail.job.state, detail.attempts.len()), (JobState::Completed, 1));
}

/// The first attempt rolls back, the second loses its connection before the commit, the third comes through.
#[tokio::test]
async fn neither_is_there_if_the_transaction_is_rolled_back_or_its_session_dies() {
    let shop = PostgresFixture::open().await;
    let worker = shop.worker(|shop, job| async move {
        let mut client = shop.client().await;
        let mut transaction = client.transaction().await?;
        shop.sell(&transaction, &format!("by attempt {}", job.attempt())).await?;
        job.complete_in(&mut transaction, &job.attempt()).await?;
        match job.attempt() {
            1 => {
                transaction.rollback().await?;
                return Err(JobError::new("changed its mind"));
            }
            2 => {
                let pid: i32 = transaction.query_one("SELECT pg_backend_pid()", &[]).await?.get(0);
                let meant = format!("pid = {pid}");
                let ending = move || cluster().admin().end_sessions(&meant);
                shop.runtime.spawn_blocking(ending).await?;
            }
            _ => {}
        }
        transaction.commit().await?;
        Ok(job.attempt())
    });
    let id = shop.enqueue().await;
    assert_eq!(shop.fh.jobs().result::<u32>(id, TIMEOUT).await, Ok(3));
    worker.drain().await.unwrap();
    assert_eq!(shop.sold().await, ["by attempt 3"]);
    assert_eq!(shop.fh.jobs().get(id).await.unwrap().job.failure_count, 2);
}

#[tokio::test]
async fn an_effect_is_had_once_and_its_value_is_given_the_second_time() {
    let shop = PostgresFixture::open().await;
    let worker = shop.worker(|shop, job| async move {
        let mut client = shop.client().await;
        let mut transaction = client.transaction().await?;
        let effect = async |transaction: &mut Transaction<'_>| {
            shop.sell(transaction, &format!("by attempt {}", job.attempt())).await?;
            Ok(format!("receipt {}", job.attempt()))
        };
        let receipt = job.once_in(&mut transaction, "sell", effect).await?;
        match job.attempt() {
            // What is rolled back was not recorded.
            1 => transaction.rollback().await?,
            _ => transaction.commit().await?,
        }
        if job.attempt() <= 2 { Err(JobError::new("no route to host")) } else { Ok(receipt) }
    });
    let id = shop.enqueue().await;
    assert_eq!(shop.fh.jobs().result::<String>(id, TIMEOUT).await.as_deref(), Ok("receipt 2"));
    worker.drain().await.unwrap();
    assert_eq!(shop.sold().await, ["by attempt 2"]);
    let detail = shop.fh.jobs().get(id).await.unwrap();
    let [effect] = &detail.effects[..] else { panic!("{:?}", detail.effects) };
    assert!(matches!(effect.state, EffectState::Done), "{effect:?}");
}

#[tokio::test]
async fn a_stale_attempt_completes_nothing_and_has_no_effect() {
    let shop = PostgresFixture::open().await;
    let (told, mut refusals) = mpsc::unbounded_channel();
    let handler = move |shop: PostgresFixture, job: Job| {
        let told = told.clone();
        // It goes on although its handler is dropped when the claim is lost: as one would that has not heard of it.
        let stale = shop.runtime.clone().spawn(async move {
            shop.fh.jobs().force_cancel(job.id(), None).await.unwrap();
            let mut client = shop.client().await;
            let mut transaction = client.transaction().await.unwrap();
            shop.sell(&transaction, "a chair").await.unwrap();
            let completed = job.complete_in(&mut transaction, &()).await;
            told.send(completed.unwrap_err().to_string()).unwrap();
            drop(transaction);
            let mut transaction = client.transaction().await.unwrap();
            let effect = async |_: &mut Transaction<'_>| -> Result<(), JobError> { panic!("it ran") };
            let had = job.once_in(&mut transaction, "sell", effect).await;
            told.send(had.unwrap_err().to_string()).unwrap();
        });
        async move { Ok(stale.await?) }
    };
    let worker = shop.worker(handler);
    let id = shop.enqueue().await;
    for _ in 0..2 {
        let refused = tokio::time::timeout(TIMEOUT, refusals.recv()).await.unwrap().unwrap();
        assert!(refused.contains("token 1 is stale; the newest is 2"), "{refused}");
    }
    worker.drain().await.unwrap();
    assert!(shop.sold().await.is_empty());
    let detail = shop.fh.jobs().get(id).await.unwrap();
    assert_eq!((detail.job.state, detail.effects.len()), (JobState::Cancelled, 0));
}

/// A worker stalls past its ttls, another one takes over, and the first one wakes up and goes on: each thing that it tries is refused, in a
/// transaction that keeps no trace, and each refusal is in the events.
#[tokio::test]
async fn what_a_late_worker_was_refused_in_its_own_transactions_is_recorded() {
    let shop = PostgresFixture::open().await;
    let of_handler = shop.clone();
    let (stalled, mut stalling) = mpsc::unbounded_channel();
    let (took_over, mut taken_over) = mpsc::unbounded_channel();
    let (refused, mut refusals) = mpsc::unbounded_channel::<()>();
    let wake = std::sync::Arc::new(tokio::sync::Semaphore::new(0));
    let late_wakes = std::sync::Arc::clone(&wake);
    let handle = move |job: Job, (): ()| {
        let (shop, stalled, took_over) = (of_handler.clone(), stalled.clone(), took_over.clone());
        let (refused, wake) = (refused.clone(), std::sync::Arc::clone(&late_wakes));
        // It goes on although its handler is dropped when the claim is lost: as one would that has not heard of it.
        let attempt = shop.runtime.clone().spawn(async move {
            let lease = shop.fh.lease("reports/daily").acquire().await.unwrap();
            if job.attempt() > 1 {
                took_over.send((lease.token(), job.token())).unwrap();
                // It goes on until the late one has tried everything.
                wake.acquire_many(2).await.unwrap().forget();
                return;
            }
            stalled.send((lease.token(), job.token())).unwrap();
            wake.acquire().await.unwrap().forget();
            let mut client = shop.client().await;
            let mut transaction = client.transaction().await.unwrap();
            let fenced = lease.fence_in(&mut transaction).await;
            assert!(matches!(fenced, Err(FenceError::Stale { .. })), "{fenced:?}");
            drop(transaction);
            let mut transaction = client.transaction().await.unwrap();
            let effect = async |_: &mut Transaction<'_>| -> Result<(), JobError> { panic!("it ran") };
            let once = job.once_in(&mut transaction, "sell", effect).await;
            assert!(once.unwrap_err().to_string().contains("is stale"));
            drop(transaction);
            let mut transaction = client.transaction().await.unwrap();
            let completed = job.complete_in(&mut transaction, &()).await;
            assert!(completed.unwrap_err().to_string().contains("is stale"));
            refused.send(()).unwrap();
            // Until the test has looked: what it gives back and reports now is refused and recorded too.
            wake.acquire().await.unwrap().forget();
        });
        async move {
            attempt.await?;
            Ok::<_, JobError>(())
        }
    };
    let first = shop.fh.worker().queue(QUEUE).handle("sell", handle.clone()).start().unwrap();
    let id = shop.enqueue().await;
    let (old_lease, old_claim) = tokio::time::timeout(TIMEOUT, stalling.recv()).await.unwrap().unwrap();
    let other = crate::connect_patiently(&cluster().url_text(&shop.schema)).await;
    let second = other.worker().queue(QUEUE).handle("sell", handle).start().unwrap();
    // It stalls: no renewal comes, and its time is up.
    let schema = &shop.schema;
    let over = format!(
        "UPDATE {schema}.lease_hold SET deadline_ms = {schema}.now_ms() - 1, lasts_ms = 1, look_at_ms = 0;
         UPDATE {schema}.job_running SET deadline_ms = {schema}.now_ms() - 1"
    );
    shop.client().await.batch_execute(&over).await.unwrap();
    let (lease, claim) = tokio::time::timeout(TIMEOUT, taken_over.recv()).await.unwrap().unwrap();
    assert!(lease > old_lease && claim > old_claim);
    wake.add_permits(1);
    tokio::time::timeout(TIMEOUT, refusals.recv()).await.unwrap().unwrap();
    let store = shop.fh.store();
    let call = CallContext::new(fencehold::Namespace::default());
    let mut blocked = Vec::new();
    for prefix in ["reports/daily".to_owned(), format!("job/{id}")] {
        let request =
            ListEventsRequest { prefix: Some(prefix), limit: 1_000, ..ListEventsRequest::default() };
        for event in store.list_events(&call, request).await.unwrap().events {
            match event.data {
                // Renewals of the library, which has not heard of it either.
                EventData::StaleWriteBlocked { action: BlockedAction::Renew, .. } => {}
                EventData::StaleWriteBlocked { token, current_token, action, .. } => {
                    blocked.push((action, token, current_token));
                }
                _ => {}
            }
        }
    }
    assert_eq!(
        blocked,
        [
            (BlockedAction::Write, old_lease, lease),
            (BlockedAction::BeginEffect, old_claim, claim),
            (BlockedAction::Complete, old_claim, claim),
        ]
    );
    assert!(shop.sold().await.is_empty());
    wake.add_permits(3);
    first.drain().await.unwrap();
    second.drain().await.unwrap();
}

/// An earlier attempt announced the effect and said no more: the job stops for a person, as it does outside of transactions.
#[tokio::test]
async fn an_effect_that_is_in_doubt_is_not_had_and_stops_the_job() {
    let shop = PostgresFixture::open().await;
    let (told, mut refusals) = mpsc::unbounded_channel();
    let handler = move |shop: PostgresFixture, job: Job| {
        let told = told.clone();
        async move {
            if job.attempt() == 1 {
                let announced = async |_| Err::<(), _>(JobError::new("no route to host"));
                job.once_with_intent("sell", InDoubtPolicy::Manual, announced).await?;
            }
            let mut client = shop.client().await;
            let mut transaction = client.transaction().await?;
            let effect = async |_: &mut Transaction<'_>| -> Result<(), JobError> { panic!("it ran") };
            let had = job.once_in(&mut transaction, "sell", effect).await;
            let refused = had.unwrap_err();
            told.send(refused.to_string()).unwrap();
            Err::<(), _>(refused)
        }
    };
    let worker = shop.worker(handler);
    let id = shop.enqueue().await;
    let refused = tokio::time::timeout(TIMEOUT, refusals.recv()).await.unwrap().unwrap();
    assert!(refused.contains("sell"), "{refused}");
    worker.drain().await.unwrap();
    let detail = shop.fh.jobs().get(id).await.unwrap();
    assert_eq!((detail.job.state, detail.attempts.len()), (JobState::InDoubt, 2));
    assert!(shop.sold().await.is_empty());
}

/// Each job puts the next one into the queue and ends: a claim in line may or may not have that one by then.
async fn assert_emptied(fh: &Fencehold) {
    const JOBS: u64 = 100;
    let again = fh.clone();
    let worker = fh.worker().queue(QUEUE).concurrency(2).until_empty();
    let worker = worker.handle("next", move |_job: Job, left: u64| {
        let fh = again.clone();
        async move {
            if left > 1 {
                fh.queue(QUEUE).job("next", &(left - 1)).enqueue().await?;
            }
            Ok::<_, JobError>(())
        }
    });
    fh.queue(QUEUE).job("next", &JOBS).enqueue().await.unwrap();
    let run = worker.run_until(std::future::pending::<()>());
    let drained = tokio::time::timeout(TIMEOUT, run).await.expect("it ends").unwrap();
    assert_eq!((drained.finished, drained.still_running), (JOBS, 0));
}

#[tokio::test]
async fn a_worker_that_is_to_empty_its_queues_misses_no_job_that_its_jobs_enqueue() {
    let shop = PostgresFixture::open().await;
    assert_emptied(&shop.fh).await;
    // The same through a server.
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let store = std::sync::Arc::clone(shop.fh.store());
    let clock = std::sync::Arc::new(fencehold::clock::SystemClock);
    let server = fencehold_server::Server::new(store, clock, fencehold_server::access::Access::default());
    let serving = tokio::spawn(async move { server.serve(listener, std::future::pending()).await });
    assert_emptied(&crate::connect_patiently(&url).await).await;
    serving.abort();
}

/// What happens to leases and jobs is counted by the database: a server shows what other programs did, and the alerts have what they need.
#[tokio::test]
async fn a_server_shows_what_the_database_counted() {
    let shop = PostgresFixture::open().await;
    shop.fh.lease("k").acquire().await.unwrap().release().await.unwrap();
    shop.enqueue().await;
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let other = crate::connect_patiently(&cluster().url_text(&shop.schema)).await;
    let clock = std::sync::Arc::new(fencehold::clock::SystemClock);
    let store = std::sync::Arc::clone(other.store());
    let server = fencehold_server::Server::new(store, clock, fencehold_server::access::Access::default());
    let serving = tokio::spawn(async move { server.serve(listener, std::future::pending()).await });
    let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
    let request = format!("GET /metrics HTTP/1.0\r\nhost: {address}\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut page = String::new();
    stream.read_to_string(&mut page).await.unwrap();
    for line in [
        "fencehold_leases_acquired_total 1",
        "fencehold_leases_ended_total{outcome=\"released\"} 1",
        "fencehold_leases_ended_total{outcome=\"expired\"} 0",
        "fencehold_jobs_enqueued_total 1",
        "fencehold_stale_writes_blocked_total 0",
    ] {
        assert!(page.lines().any(|shown| shown == line), "no {line} in\n{page}");
    }
    let rules = include_str!("../../../deploy/alerts.yml");
    let asked = rules.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
    // Only the disk of `file:` has the last one.
    let asked = asked.filter(|name| name.starts_with("fencehold_") && !name.contains("commit_duration"));
    let missing: Vec<&str> = asked.filter(|name| !page.contains(&format!("# TYPE {name} "))).collect();
    assert!(missing.is_empty() && !page.contains("fencehold_commit_"), "{missing:?}\n{page}");
    serving.abort();
}
