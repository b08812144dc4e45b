//! The caller's own transactions: what the library does in them, by each adapter alike.

mod kills;
mod open;

use std::sync::OnceLock;
use std::time::{Duration, UNIX_EPOCH};

use fencehold::fence::{FenceError, KeyToken};
use fencehold::job::{Backoff, EffectState, InDoubtPolicy, JobDetail, JobState, RetryPolicy};
use fencehold::store::ListEventsRequest;
use fencehold::transaction::{PostgresTransaction as _, TransactionError};
use fencehold::{
    BlockedAction, Error, EventData, Fencehold, Job, JobBuilder, JobError, JobId, Key, Token, TypedJob,
};
use fencehold_test_servers::postgres::{Durable, PostgresServer, fresh_schema};
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;

use self::open::{Adapter, Connection, Open};

/// Longer than anything takes, however busy the machine.
const TIMEOUT: Duration = Duration::from_secs(60);
const QUEUE: &str = "mail";
const TRACE: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

fn cluster() -> &'static PostgresServer {
    static CLUSTER: OnceLock<PostgresServer> = OnceLock::new();
    CLUSTER.get_or_init(|| PostgresServer::start(Durable::No))
}

/// A store in a schema of its own, with a table beside it.
#[derive(Clone)]
struct Fixture {
    schema: String,
    url: String,
    fh: Fencehold,
}

impl Fixture {
    async fn open() -> Self {
        let cluster = tokio::task::spawn_blocking(cluster).await.unwrap();
        let schema = fresh_schema();
        let fh = crate::connect_patiently(&cluster.url_text(&schema)).await;
        let url = format!("postgres://postgres@127.0.0.1:{}/postgres", cluster.url(&schema).hosts[0].1);
        let fixture = Fixture { schema, url, fh };
        let mut connection = fixture.connect(Adapter::TokioPostgres).await;
        let mut transaction = connection.begin().await;
        let table = format!("CREATE TABLE {} (what text)", fixture.table());
        transaction.execute(&table).await.unwrap();
        transaction.commit().await;
        fixture
    }

    async fn connect(&self, adapter: Adapter) -> Connection {
        adapter.connect(&self.url).await
    }

    fn table(&self) -> String {
        format!("written_in_{}", self.schema)
    }

    async fn write(&self, transaction: &mut Open<'_>, what: &str) -> Result<(), JobError> {
        transaction
            .execute(&format!("INSERT INTO {} VALUES ('{what}')", self.table()))
            .await
    }

    async fn value(&self, sql: &str) -> Option<String> {
        let mut connection = self.connect(Adapter::TokioPostgres).await;
        connection.begin().await.query_text(sql, &[]).await.unwrap()
    }

    async fn written(&self) -> String {
        let sql = format!("SELECT string_agg(what, ', ' ORDER BY what) FROM {}", self.table());
        self.value(&sql).await.unwrap_or_default()
    }

    async fn job_count(&self) -> u64 {
        let counts = self.fh.jobs().counts().await.unwrap();
        counts.queued + counts.scheduled
    }

    fn job(&self, kind: &str) -> JobBuilder {
        self.fh.queue(QUEUE).job(kind, &())
    }

    async fn detail(&self, id: JobId) -> JobDetail {
        self.fh.jobs().get(id).await.unwrap()
    }
}

/// Everything that can be said of a job.
fn every_option(fixture: &Fixture, nth: u8) -> JobBuilder {
    let retry = RetryPolicy::new(Backoff::Linear, Duration::from_millis(250), Duration::from_millis(90_000))
        .jitter_percent(15);
    fixture
        .fh
        .queue(QUEUE)
        // A payload that `jsonb` would write in another way, or not take at all.
        .job("welcome", &serde_json::json!({"zeta": 1.0, "alpha": "a\u{0}b", "nth": nth}))
        .id(JobId::from_bytes([nth; 16]))
        .priority(-3)
        .run_at(UNIX_EPOCH + Duration::from_millis(4_102_444_800_123))
        .retry(retry)
        .max_failures(7)
        .max_crashes(2)
        .attempt_timeout(Duration::from_secs(60))
        .unique(format!("key-{nth}"), Duration::from_secs(3_600))
        .label("tenant", "seven")
        .label("a", "")
        .traceparent(TRACE)
        .preempt_within(Duration::from_secs(5))
}

/// What the store keeps of a job, without what differs between two alike: ids, moments, places.
async fn kept(fixture: &Fixture, id: JobId) -> (String, JobDetail) {
    let sql = format!(
        "SELECT jsonb_build_array(b.kind, b.payload, b.terms, b.extra, l.priority, q.name, c.due_ms, c.urgent, u.payload,
                u.until_ms - b.enqueued_ms)::text
         FROM {0}.job_body b JOIN {0}.job_lane l ON l.lane = b.lane JOIN {0}.job_queue q ON q.number = l.queue
         LEFT JOIN {0}.job_scheduled c ON c.arrival = b.arrival LEFT JOIN {0}.job_unique u ON u.job = b.id WHERE b.id = '{id}'",
        fixture.schema
    );
    (fixture.value(&sql).await.unwrap(), fixture.detail(id).await)
}

#[tokio::test]
async fn a_job_of_a_transaction_is_there_with_its_commit_and_never_was_if_it_is_rolled_back() {
    let fixture = Fixture::open().await;
    for (nth, adapter) in (1..).zip(Adapter::ALL) {
        let mut connection = fixture.connect(adapter).await;
        let mut transaction = connection.begin().await;
        let enqueued = every_option(&fixture, nth).enqueue_in(&mut transaction).await.unwrap();
        assert_eq!(enqueued.job_id, JobId::from_bytes([nth; 16]), "{adapter:?}");
        assert!(!enqueued.existed);
        transaction.roll_back().await;
        let gone = fixture.fh.jobs().get(enqueued.job_id).await;
        assert!(matches!(gone, Err(Error::JobNotFound { .. })), "{adapter:?}: {gone:?}");

        let mut transaction = connection.begin().await;
        fixture.write(&mut transaction, &format!("{adapter:?}")).await.unwrap();
        every_option(&fixture, nth).enqueue_in(&mut transaction).await.unwrap();
        let again = every_option(&fixture, nth).enqueue_in(&mut transaction).await.unwrap();
        assert!(again.existed, "{adapter:?}");
        transaction.commit().await;
        fixture.detail(enqueued.job_id).await;
    }
    assert_eq!(fixture.written().await, "DieselAsync, Sqlx, TokioPostgres");
    assert_eq!(fixture.job_count().await, 3);
}

/// The defaults, too.
#[tokio::test]
async fn what_is_enqueued_in_a_transaction_is_kept_as_the_library_keeps_it() {
    let (ours, theirs) = (Fixture::open().await, Fixture::open().await);
    let mut connection = ours.connect(Adapter::Sqlx).await;
    let plain = |fixture: &Fixture| fixture.job("plain").id(JobId::from_bytes([9; 16]));
    let later = |fixture: &Fixture| {
        fixture
            .fh
            .queue("other")
            .job("later", "x")
            .delay(Duration::from_secs(0))
            .id(JobId::from_bytes([8; 16]))
    };
    let mut transaction = connection.begin().await;
    plain(&ours).enqueue_in(&mut transaction).await.unwrap();
    let all = [every_option(&ours, 1), every_option(&ours, 2), later(&ours)];
    ours.fh.queue(QUEUE).enqueue_batch_in(&mut transaction, all).await.unwrap();
    transaction.commit().await;
    plain(&theirs).enqueue().await.unwrap();
    let all = [every_option(&theirs, 1), every_option(&theirs, 2), later(&theirs)];
    for enqueued in theirs.fh.queue(QUEUE).enqueue_batch(all).await {
        enqueued.unwrap();
    }
    for nth in [9, 1, 2, 8] {
        let id = JobId::from_bytes([nth; 16]);
        let ((row, mut detail), (wanted_row, mut wanted)) = (kept(&ours, id).await, kept(&theirs, id).await);
        assert_eq!(row, wanted_row);
        for detail in [&mut detail, &mut wanted] {
            (detail.job.enqueued_at_ms, detail.job.state_changed_at_ms, detail.job.due_in_ms) = (0, 0, None);
        }
        assert_eq!(format!("{detail:?}"), format!("{wanted:?}"));
    }
}

#[tokio::test]
async fn a_batch_is_enqueued_in_order_and_one_bad_job_keeps_all_out() {
    let fixture = Fixture::open().await;
    for adapter in Adapter::ALL {
        let mut connection = fixture.connect(adapter).await;
        let (queue, first) = (fixture.fh.queue(format!("{adapter:?}")), format!("first of {adapter:?}"));
        let job = |nth: u32| {
            let job = queue.job("work", &nth);
            if nth.is_multiple_of(3) { job.unique(&first, TIMEOUT) } else { job }
        };
        // 3 and 0 have one key, and are two payloads.
        let mut transaction = connection.begin().await;
        let refused = queue.enqueue_batch_in(&mut transaction, (0..4).map(job)).await;
        assert!(matches!(refused, Err(Error::Conflict { .. })), "{adapter:?}: {refused:?}");
        transaction.roll_back().await;
        assert_eq!(queue.view().await.unwrap(), None);

        let mut transaction = connection.begin().await;
        let enqueued = queue.enqueue_batch_in(&mut transaction, (0..3).map(job)).await.unwrap();
        let more = [job(0), job(4)];
        let more = queue.enqueue_batch_in(&mut transaction, more).await.unwrap();
        assert_eq!((more[0].job_id, more[0].existed, more[1].existed), (enqueued[0].job_id, true, false));
        assert!(
            queue
                .enqueue_batch_in(&mut transaction, Vec::<JobBuilder>::new())
                .await
                .unwrap()
                .is_empty()
        );
        transaction.commit().await;
        for (nth, enqueued) in [0_u32, 1, 2, 4].into_iter().zip([enqueued, vec![more[1]]].concat()) {
            assert_eq!(fixture.detail(enqueued.job_id).await.payload.as_ref(), nth.to_string());
        }
    }
}

/// What the library's own call answers, and what it answers in a transaction.
#[tokio::test]
async fn what_is_refused_is_refused_with_the_error_of_the_library() {
    let fixture = Fixture::open().await;
    let taken = fixture
        .fh
        .queue(QUEUE)
        .job("work", &1)
        .unique("k", TIMEOUT)
        .id(JobId::from_bytes([7; 16]));
    taken.enqueue().await.unwrap();
    fixture.fh.queue("drained").drain().await.unwrap();
    let queue = |name: &str| fixture.fh.queue(name);
    let refused = || {
        [
            queue(QUEUE).job("work", &2).unique("k", TIMEOUT),
            queue("others").job("work", &1).unique("k", TIMEOUT),
            queue(QUEUE).job("play", &1).id(JobId::from_bytes([7; 16])),
            queue("drained").job("work", &1),
            queue("fencehold/operations").job("work", &1),
            queue("").job("work", &1),
            queue(QUEUE).job("a\nb", &1),
            queue(QUEUE).job("work", &1).max_failures(0),
            queue(QUEUE).job("work", &"x".repeat(1 << 20)),
            queue(QUEUE).job("work", &1).delay(Duration::from_secs(u64::MAX / 1_000)),
            queue(QUEUE).job("work", &1).label("", "x"),
            queue(QUEUE).job("work", &1).unique("k", Duration::ZERO),
            queue(QUEUE).job("work", &1).run_at(UNIX_EPOCH - Duration::from_secs(1)),
        ]
    };
    for adapter in Adapter::ALL {
        let mut connection = fixture.connect(adapter).await;
        for (ours, theirs) in refused().into_iter().zip(refused()) {
            let mut transaction = connection.begin().await;
            let refused = ours.enqueue_in(&mut transaction).await.unwrap_err();
            assert_eq!(refused, theirs.enqueue().await.unwrap_err(), "{adapter:?}");
            transaction.roll_back().await;
        }
    }
    assert_eq!(fixture.job_count().await, 1);
}

#[derive(Serialize, Deserialize)]
struct Welcome {
    to: String,
}

impl TypedJob for Welcome {
    const KIND: &'static str = "welcome";
    type Result = String;
}

#[tokio::test]
async fn a_typed_job_of_a_transaction_has_a_result_to_wait_for() {
    let fixture = Fixture::open().await;
    let queue = fixture.fh.queue(QUEUE);
    let worker = fixture.fh.worker().queue(QUEUE);
    let worker = worker.handle_typed(async |job: Welcome| Ok::<_, JobError>(format!("to {}", job.to)));
    let worker = worker.start().unwrap();
    for adapter in Adapter::ALL {
        let mut connection = fixture.connect(adapter).await;
        let mut transaction = connection.begin().await;
        let job = queue.typed_job(&Welcome { to: format!("{adapter:?}") });
        let job = job.enqueue_in(&mut transaction).await.unwrap();
        transaction.commit().await;
        assert_eq!(job.result(TIMEOUT).await, Ok(format!("to {adapter:?}")));
    }
    worker.drain().await.unwrap();
}

#[tokio::test]
async fn what_another_transaction_uses_is_waited_for_with_a_bound_and_told_as_unavailable() {
    let fixture = Fixture::open().await;
    let mut other = fixture.connect(Adapter::TokioPostgres).await;
    let mut holds = other.begin().await;
    fixture.job("work").unique("k", TIMEOUT).enqueue_in(&mut holds).await.unwrap();
    for adapter in Adapter::ALL {
        let mut connection = fixture.connect(adapter).await;
        let mut transaction = connection.begin().await;
        transaction.execute("SET LOCAL fencehold.enqueue_wait_ms = 50").await.unwrap();
        let refused = fixture
            .job("work")
            .unique("k", TIMEOUT)
            .enqueue_in(&mut transaction)
            .await
            .unwrap_err();
        assert!(refused.is_retryable() && refused.to_string().contains("backend"), "{adapter:?}: {refused}");
        transaction.roll_back().await;
    }
    holds.commit().await;
}

#[tokio::test]
async fn a_handle_whose_store_is_elsewhere_says_so_and_one_behind_a_server_is_told_the_schema() {
    let fixture = Fixture::open().await;
    let mut connection = fixture.connect(Adapter::TokioPostgres).await;
    let mut transaction = connection.begin().await;
    let memory = Fencehold::connect("memory:").await.unwrap();
    let refused = memory
        .queue(QUEUE)
        .job("work", &())
        .enqueue_in(&mut transaction)
        .await
        .unwrap_err();
    assert!(refused.to_string().starts_with("store is memory:, which is in no database"), "{refused}");
    let lease = memory.lease("k").acquire().await.unwrap();
    let refused = lease.fence_in(&mut transaction).await.unwrap_err();
    assert!(matches!(refused, FenceError::BadInput(_)), "{refused}");
    let named = |schema: &str| Fencehold::builder().url("memory:").postgres_schema(schema).connect();
    assert!(matches!(named("No").await, Err(Error::BadInput(_))));
    let named = named(&fixture.schema).await.unwrap();
    let enqueued = named.queue(QUEUE).job("work", &()).enqueue_in(&mut transaction).await.unwrap();
    transaction.commit().await;
    fixture.detail(enqueued.job_id).await;
}

#[tokio::test]
async fn a_stale_holder_writes_nothing_in_its_transaction_and_that_is_recorded() {
    let fixture = Fixture::open().await;
    for adapter in Adapter::ALL {
        let key = format!("reports/{adapter:?}");
        let lease = fixture.fh.lease(&key).acquire().await.unwrap();
        let mut connection = fixture.connect(adapter).await;
        let mut transaction = connection.begin().await;
        lease.fence_in(&mut transaction).await.unwrap();
        fixture.write(&mut transaction, &key).await.unwrap();
        transaction.commit().await;
        let old = lease.token();
        let pass =
            |token| KeyToken::new(Key::new(key.as_str()).unwrap(), token).in_schema(fixture.schema.as_str());
        lease.release().await.unwrap();

        let mut transaction = connection.begin().await;
        match pass(old).fence_in(&mut transaction).await {
            Err(refused @ FenceError::Ended { .. }) => {
                let text = refused.to_string();
                assert!(!refused.is_retryable() && text.contains("it was released"), "{adapter:?}: {text}");
            }
            other => panic!("{adapter:?}: {other:?}"),
        }
        transaction.roll_back().await;

        // Revoked, and given to another, while the first one has not heard of it.
        let late = fixture.fh.lease(&key).acquire().await.unwrap();
        let table = format!(
            "UPDATE {0}.lease_hold SET deadline_ms = {0}.now_ms() - 1, lasts_ms = 1, look_at_ms = 0",
            fixture.schema
        );
        let mut transaction = connection.begin().await;
        transaction.execute(&table).await.unwrap();
        transaction.commit().await;
        let newer = crate::connect_patiently(&cluster().url_text(&fixture.schema)).await;
        let newer = newer.lease(&key).acquire().await.unwrap();
        let mut transaction = connection.begin().await;
        match late.fence_in(&mut transaction).await {
            Err(FenceError::Stale { token, highest_token, .. }) => {
                assert_eq!((token, highest_token), (late.token(), newer.token()), "{adapter:?}");
            }
            other => panic!("{adapter:?}: {other:?}"),
        }
        transaction.roll_back().await;
        assert_eq!(blocked(&fixture, &key).await, [(BlockedAction::Write, late.token())], "{adapter:?}");
        let mut transaction = connection.begin().await;
        let zero = pass(Token::NONE).fence_in(&mut transaction).await;
        assert!(matches!(zero, Err(FenceError::BadInput(_))), "{zero:?}");
        newer.release().await.unwrap();
    }
    assert_eq!(fixture.written().await, "reports/DieselAsync, reports/Sqlx, reports/TokioPostgres");
}

/// Which stale writes were recorded for a key, but for renewals of the library's.
async fn blocked(fixture: &Fixture, key: &str) -> Vec<(BlockedAction, Token)> {
    let request =
        ListEventsRequest { prefix: Some(key.to_owned()), limit: 1_000, ..ListEventsRequest::default() };
    let events = fixture
        .fh
        .store()
        .list_events(&fixture.fh.call(), request)
        .await
        .unwrap()
        .events;
    let blocked = events.into_iter().filter_map(|event| match event.data {
        EventData::StaleWriteBlocked { action: BlockedAction::Renew, .. } => None,
        EventData::StaleWriteBlocked { token, action, .. } => Some((action, token)),
        _ => None,
    });
    blocked.collect()
}

#[tokio::test]
async fn outside_of_a_transaction_nothing_is_fenced() {
    let fixture = Fixture::open().await;
    let lease = fixture.fh.lease("k").acquire().await.unwrap();
    for adapter in [Adapter::Sqlx, Adapter::DieselAsync] {
        let refused = match &mut fixture.connect(adapter).await {
            Connection::Sqlx(connection) => lease.fence_in(&mut **connection).await.unwrap_err(),
            Connection::DieselAsync(connection) => lease.fence_in(&mut **connection).await.unwrap_err(),
            Connection::TokioPostgres(_) => unreachable!(),
        };
        assert!(refused.to_string().contains("no transaction was begun"), "{adapter:?}: {refused}");
    }
    lease.release().await.unwrap();
}

#[tokio::test]
async fn the_error_of_the_database_has_its_sqlstate() {
    let fixture = Fixture::open().await;
    let sql = format!("SELECT {}.fence('k', 1)::text AS answer", fixture.schema);
    for adapter in Adapter::ALL {
        let mut connection = fixture.connect(adapter).await;
        let refused = connection.begin().await.query_text(&sql, &[]).await.unwrap_err();
        let message = "k: token 1 was never given here; the newest is 0";
        assert_eq!(refused, TransactionError::refused("FH003", message), "{adapter:?}");
        assert_eq!(refused.to_string(), format!("{message} (SQLSTATE FH003)"));
    }
}

/// The first attempt rolls back; the second commits its effect and fails; the third finds the value and completes.
#[tokio::test]
async fn an_effect_is_had_once_and_the_job_is_completed_with_it() {
    let fixture = Fixture::open().await;
    for adapter in Adapter::ALL {
        let shop = fixture.clone();
        let queue = format!("{adapter:?}");
        let worker = fixture.fh.worker().queue(&queue).handle("sell", move |job: Job, (): ()| {
            let shop = shop.clone();
            // A driver's connection needs the runtime of the test.
            let attempt = tokio::spawn(sell(shop, adapter, job));
            async move { attempt.await.unwrap() }
        });
        let worker = worker.start().unwrap();
        let again = RetryPolicy::fixed(Duration::from_millis(1));
        let job = fixture
            .fh
            .queue(&queue)
            .job("sell", &())
            .retry(again)
            .enqueue()
            .await
            .unwrap()
            .job_id;
        let receipt = fixture.fh.jobs().result::<String>(job, TIMEOUT).await;
        assert_eq!(receipt, Ok(format!("receipt 2 by {adapter:?}")));
        worker.drain().await.unwrap();
        let detail = fixture.detail(job).await;
        assert_eq!((detail.job.state, detail.attempts.len()), (JobState::Completed, 3));
        let [effect] = &detail.effects[..] else { panic!("{:?}", detail.effects) };
        assert!(matches!(effect.state, EffectState::Done), "{effect:?}");
    }
    assert_eq!(fixture.written().await, "2 by DieselAsync, 2 by Sqlx, 2 by TokioPostgres");
}

async fn sell(shop: Fixture, adapter: Adapter, job: Job) -> Result<String, JobError> {
    let mut connection = shop.connect(adapter).await;
    let mut transaction = connection.begin().await;
    let what = format!("{} by {adapter:?}", job.attempt());
    let effect = async |transaction: &mut Open<'_>| {
        shop.write(transaction, &what).await?;
        Ok(format!("receipt {what}"))
    };
    let receipt = job.once_in(&mut transaction, "sell", effect).await?;
    match job.attempt() {
        1 => {
            transaction.roll_back().await;
            Err(JobError::new("changed its mind"))
        }
        2 => {
            transaction.commit().await;
            Err(JobError::new("no route to host"))
        }
        _ => {
            job.complete_in(&mut transaction, &receipt).await?;
            transaction.commit().await;
            // Said again, and too late to change anything.
            Ok("another".to_owned())
        }
    }
}

/// Another worker has the job, and this attempt has not heard of it.
#[tokio::test]
async fn a_stale_attempt_is_refused_everything_and_each_refusal_is_recorded() {
    let fixture = Fixture::open().await;
    for adapter in Adapter::ALL {
        let (told, mut telling) = mpsc::unbounded_channel();
        let shop = fixture.clone();
        let queue = format!("{adapter:?}");
        let worker = fixture.fh.worker().queue(&queue).handle("sell", move |job: Job, (): ()| {
            // It goes on although its handler is dropped when the claim is lost.
            let attempt = tokio::spawn(refused_everything(shop.clone(), adapter, job, told.clone()));
            async move { attempt.await.unwrap() }
        });
        let worker = worker.start().unwrap();
        let id = fixture.fh.queue(&queue).job("sell", &()).enqueue().await.unwrap().job_id;
        let (token, refusals): (Token, Vec<String>) =
            tokio::time::timeout(TIMEOUT, telling.recv()).await.unwrap().unwrap();
        for refused in &refusals {
            assert!(refused.contains(&format!("token {token} ")), "{adapter:?}: {refused}");
        }
        assert_eq!(refusals.len(), 3);
        worker.drain().await.unwrap();
        let expected = [
            (BlockedAction::Write, token),
            (BlockedAction::BeginEffect, token),
            (BlockedAction::Complete, token),
        ];
        let blocked = blocked(&fixture, &format!("job/{id}")).await;
        assert_eq!(blocked[..3], expected, "{adapter:?}");
    }
    assert_eq!(fixture.written().await, "");
}

async fn refused_everything(
    shop: Fixture,
    adapter: Adapter,
    job: Job,
    told: mpsc::UnboundedSender<(Token, Vec<String>)>,
) -> Result<(), JobError> {
    shop.fh.jobs().force_cancel(job.id(), None).await.unwrap();
    let mut connection = shop.connect(adapter).await;
    let mut refusals = Vec::new();
    let mut transaction = connection.begin().await;
    refusals.push(job.fence_in(&mut transaction).await.unwrap_err().to_string());
    transaction.roll_back().await;
    let mut transaction = connection.begin().await;
    let never = async |_: &mut Open<'_>| -> Result<(), JobError> { panic!("it ran") };
    refusals.push(job.once_in(&mut transaction, "sell", never).await.unwrap_err().to_string());
    transaction.roll_back().await;
    let mut transaction = connection.begin().await;
    shop.write(&mut transaction, "stale").await?;
    refusals.push(job.complete_in(&mut transaction, &()).await.unwrap_err().to_string());
    transaction.roll_back().await;
    told.send((job.token(), refusals)).unwrap();
    Ok(())
}

/// An earlier attempt announced the effect and said no more: the job stops for a person, as it does outside of transactions.
#[tokio::test]
async fn an_effect_that_is_in_doubt_is_not_had_and_stops_the_job() {
    let fixture = Fixture::open().await;
    for adapter in Adapter::ALL {
        let shop = fixture.clone();
        let queue = format!("{adapter:?}");
        let worker = fixture.fh.worker().queue(&queue).handle("sell", move |job: Job, (): ()| {
            let attempt = tokio::spawn(in_doubt(shop.clone(), adapter, job));
            async move { attempt.await.unwrap() }
        });
        let worker = worker.start().unwrap();
        let again = RetryPolicy::fixed(Duration::from_millis(1));
        let id = fixture
            .fh
            .queue(&queue)
            .job("sell", &())
            .retry(again)
            .enqueue()
            .await
            .unwrap()
            .job_id;
        let stopped = fixture.fh.jobs().result::<()>(id, TIMEOUT).await;
        assert!(stopped.is_err());
        worker.drain().await.unwrap();
        let detail = fixture.detail(id).await;
        assert_eq!((detail.job.state, detail.attempts.len()), (JobState::InDoubt, 2), "{adapter:?}");
    }
    assert_eq!(fixture.written().await, "");
}

async fn in_doubt(shop: Fixture, adapter: Adapter, job: Job) -> Result<(), JobError> {
    if job.attempt() == 1 {
        let announced = async |_| Err::<(), _>(JobError::new("no route to host"));
        job.once_with_intent("sell", InDoubtPolicy::Manual, announced).await?;
    }
    let mut connection = shop.connect(adapter).await;
    let mut transaction = connection.begin().await;
    let never = async |_: &mut Open<'_>| -> Result<(), JobError> { panic!("it ran") };
    job.once_in(&mut transaction, "sell", never).await
}
