//! What the library tells `tracing`, and what it never does. Each test has a process of its own: it listens to all that its process says.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use fencehold_test_servers::is_alone;

use crate::gated_store::{GatedCall, GatedFixture, done, next, with, within};

/// Everything that `tracing` gets in this process.
#[derive(Clone, Default)]
struct TracingLog(Arc<Mutex<Vec<u8>>>);

impl TracingLog {
    fn listen() -> TracingLog {
        let log = TracingLog::default();
        let writer = log.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_max_level(tracing_subscriber::filter::LevelFilter::TRACE)
            .with_span_events(tracing_subscriber::fmt::format::FmtSpan::FULL)
            .with_writer(move || writer.clone())
            .with_ansi(false)
            .finish();
        tracing::subscriber::set_global_default(subscriber).expect("the only one");
        log
    }

    fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).expect("text")
    }
}

impl std::io::Write for TracingLog {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[tokio::test]
async fn a_hold_id_is_never_printed() {
    if !is_alone("tracing_output::a_hold_id_is_never_printed") {
        return;
    }
    let log = TracingLog::listen();
    let fixture = GatedFixture::new().await;
    let builder = fixture.fh.lease("k").task("run-42");
    let election = fixture.fh.election("leader");
    let lease = done(builder.clone().acquire()).await;
    let error = within(builder.clone().try_acquire()).await.unwrap_err();
    let watch = lease.watch();
    let held = format!("{:?} {builder:?} {election:?} {lease:?} {error:?} {error} {watch:?}", fixture.fh);
    let snapshot = watch.snapshot();
    done(lease.run(async {})).await;
    fixture.revoke("k").await;
    let lost = within(lease.release()).await.unwrap_err();
    let logged = log.text();
    for span in ["acquire", "hold", "release"] {
        assert!(logged.contains(&format!("{span}{{key=k")), "a span {span}: {logged}");
    }
    assert!(logged.contains("token=1") && logged.contains("owner=me"));
    let text = format!("{held} {snapshot:?} {lost:?} {lost} {lost:#?} {logged}").to_lowercase();
    for request in fixture.gate.acquires() {
        let secret = request.hold_id.reveal();
        let byte = |nth: usize| u8::from_str_radix(&secret[2 * nth..2 * nth + 2], 16).expect("a digit pair");
        let bytes = format!("{}, {}, {}, {}", byte(0), byte(1), byte(2), byte(3));
        assert!(!text.contains(&secret[..12]) && !text.contains(&bytes), "{text}");
    }
}

#[tokio::test]
async fn a_ttl_below_the_advice_is_warned_of_once() {
    if !is_alone("tracing_output::a_ttl_below_the_advice_is_warned_of_once") {
        return;
    }
    let log = TracingLog::listen();
    let fixture = GatedFixture::new().await;
    for _ in 0..30 {
        let lease = fixture.acquire("ample", 10_000).await;
        fixture.pass(2_800);
        lease.release().await.expect("held");
    }
    let advice = fixture.fh.ttl_advice("ample").unwrap();
    assert_eq!(advice.suggested_ttl, Duration::from_millis(3_500));
    let quiet = log.text();
    assert!(!quiet.contains("below the advice"), "{quiet}");
    for _ in 0..30 {
        let lease = fixture.acquire("tight", 500).await;
        // Not long enough to be renewed: the clock would pass while a renewal is under way.
        fixture.pass(140);
        lease.release().await.expect("held");
    }
    let logged = log.text();
    assert_eq!(logged.matches("below the advice").count(), 1, "{logged}");
    assert!(logged.contains("key=tight") && logged.contains("suggested_ttl_ms=640"), "{logged}");
}

/// A line names what it is about by itself: at `warn` there are no spans to look it up in.
fn line(log: &TracingLog, words: &[&str]) -> bool {
    // What stands after the target: fields of the event itself, and not of its spans.
    let text = log.text();
    let mut own = text.lines().filter_map(|line| Some(line.rsplit_once("fencehold::")?.1));
    own.any(|own| words.iter().all(|word| own.contains(word)))
}

#[tokio::test]
async fn what_goes_wrong_is_told_with_its_job_or_key() {
    if !is_alone("tracing_output::what_goes_wrong_is_told_with_its_job_or_key") {
        return;
    }
    let log = TracingLog::listen();
    let fixture = GatedFixture::new().await;
    let lease = fixture.acquire("revoked-key", 30_000).await;
    fixture.revoke("revoked-key").await;
    within(lease.release()).await.unwrap_err();
    assert!(line(&log, &["the lease is lost", "key=revoked-key", "token=1"]), "{}", log.text());

    let worker = fixture.worker().handle(
        "break",
        async |_job: fencehold::Job, (): ()| -> Result<(), fencehold::JobError> {
            Err(fencehold::JobError::new("no disk"))
        },
    );
    let worker = worker.start().expect("a worker");
    let id = fixture.enqueue("break").await;
    fixture.until_failed(id).await;
    let told = ["an attempt failed", &format!("job={id}"), "kind=break", "no disk"];
    assert!(line(&log, &told), "{}", log.text());
    assert!(log.text().contains("outcome=\"failed\""), "its span has the outcome");
    done(worker.drain()).await;
}

#[tokio::test]
async fn a_handler_that_ignores_its_cancellation_is_told_of() {
    if !is_alone("tracing_output::a_handler_that_ignores_its_cancellation_is_told_of") {
        return;
    }
    let log = TracingLog::listen();
    let fixture = GatedFixture::new().await;
    let (begun, mut beginnings) = tokio::sync::mpsc::unbounded_channel();
    let handler = with(begun, |begun, job, ()| async move {
        begun.send(job)?;
        std::future::pending::<Result<(), fencehold::JobError>>().await
    });
    let worker = fixture.worker().handle("deaf", handler).start().expect("a worker");
    let id = fixture.enqueue("deaf").await;
    let job = next(&mut beginnings).await;
    done(fixture.fh.jobs().cancel(id, None)).await;
    for _ in 0..3 {
        fixture.pass_renewal(&job, 10_000).await;
    }
    assert!(job.is_cancelled());
    assert!(line(&log, &["was cancelled", "its handler goes on", &format!("job={id}")]), "{}", log.text());
    drop(worker);
}

#[tokio::test]
async fn each_change_of_the_circuit_breaker_is_told_with_its_state() {
    if !is_alone("tracing_output::each_change_of_the_circuit_breaker_is_told_with_its_state") {
        return;
    }
    let log = TracingLog::listen();
    let mut policy = fencehold::CircuitBreakerPolicy::default();
    policy.failures_in_a_row = 2;
    policy.open_jitter_percent = 0;
    let fixture = GatedFixture::with(|connect| connect.circuit_breaker(policy)).await;
    fixture.gate.close(GatedCall::Acquire);
    for _ in 0..2 {
        within(fixture.fh.lease("k").try_acquire()).await.unwrap_err();
    }
    let opened = ["WARN", "the store keeps failing: acquisitions pause", "state=\"open\""];
    let fields = ["failures_in_a_row=2", "opened_in_a_row=1", "open_ms=1000", "slow_after_ms=5000"];
    assert!(breaker_line(&log, &opened) && breaker_line(&log, &fields), "{}", log.text());
    fixture.gate.open(GatedCall::Acquire);
    fixture.pass(1_000);
    let _lease = done(fixture.fh.lease("k").try_acquire()).await;
    let tried = ["INFO", "acquisitions may try the store", "state=\"half_open\"", "calls_max=1"];
    assert!(breaker_line(&log, &tried), "{}", log.text());
    assert!(breaker_line(&log, &["INFO", "the store answers again", "state=\"closed\""]), "{}", log.text());
    assert_eq!(log.text().matches("fencehold::breaker").count(), 3, "one for each change: {}", log.text());
}

/// A line of the circuit breaker, which has a target of its own.
fn breaker_line(log: &TracingLog, words: &[&str]) -> bool {
    let text = log.text();
    let mut lines = text.lines().filter(|line| line.contains("fencehold::breaker"));
    lines.any(|line| words.iter().all(|word| line.contains(word)))
}
