//! Traces: what became of a job from its enqueuing over every attempt to its end, and of a lease.
//!
//! A span's id follows from what it is about (a job and the token of its attempt, a key and the token of its hold), so the
//! story is reported right by whichever server hears of it, also after a restart: nothing has to be remembered in between.
//! An attempt is reported when it ends; one that crashed, when the next one does, as it sent no report.

mod context;
mod export;
mod job_trace;
mod messages;

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use fencehold_contract::metrics::Counter;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};

pub(crate) use context::TraceContext;
use export::ExportQueue;
pub use export::Receiver;
pub(crate) use job_trace::{about, attempts, enqueuing, holding, working};

/// How many look up what became of jobs at once.
const TELLERS_MAX: usize = 32;

/// What a span is, in OTLP's numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SpanKind {
    /// The answer to a request.
    Server = 2,
    /// Something was put where another thread takes it.
    Producer = 4,
    /// It was taken, and worked on.
    Consumer = 5,
}

/// Something that took some time.
#[derive(Clone, Debug)]
pub(crate) struct Span {
    pub(crate) at: TraceContext,
    pub(crate) parent: Option<[u8; 8]>,
    pub(crate) links: Vec<TraceContext>,
    pub(crate) name: Cow<'static, str>,
    pub(crate) kind: SpanKind,
    pub(crate) start_wall_us: u64,
    pub(crate) end_wall_us: u64,
    pub(crate) attributes: Vec<(&'static str, Attribute)>,
    pub(crate) error: Option<String>,
}

/// What is known of a span.
#[derive(Clone, Debug)]
pub(crate) enum Attribute {
    Text(String),
    Number(u64),
}

impl From<u64> for Attribute {
    fn from(number: u64) -> Self {
        Attribute::Number(number)
    }
}

impl From<String> for Attribute {
    fn from(text: String) -> Self {
        Attribute::Text(text)
    }
}

/// Where spans are handed in. Without a receiver they are not even made.
#[derive(Clone, Debug)]
pub(crate) struct Tracer {
    sender: Option<mpsc::Sender<ExportQueue>>,
    dropped: Arc<Counter>,
    /// Who looks up what became of jobs, to tell of it: so many at once.
    tellers: Arc<Semaphore>,
    /// Makes this server's ids its own.
    seed: [u8; 16],
    next: Arc<AtomicU64>,
}

impl Default for Tracer {
    fn default() -> Self {
        Tracer {
            sender: None,
            dropped: Arc::default(),
            tellers: Arc::new(Semaphore::new(0)),
            seed: [0; 16],
            next: Arc::default(),
        }
    }
}

impl Tracer {
    /// Starts to send spans to a receiver. Must be called on a runtime.
    pub(crate) fn start(receiver: Receiver) -> Self {
        let (sender, spans) = mpsc::channel(export::WAITING_MAX);
        let dropped = Arc::new(Counter::default());
        let seed = receiver.seed;
        tokio::spawn(receiver.run(spans, Arc::clone(&dropped)));
        let tellers = Arc::new(Semaphore::new(TELLERS_MAX));
        Tracer { sender: Some(sender), dropped, tellers, seed, next: Arc::default() }
    }

    pub(crate) fn is_on(&self) -> bool {
        self.sender.is_some()
    }

    /// A span that never was before: in this trace, else in one of its own.
    pub(crate) fn fresh(&self, parent: Option<TraceContext>) -> TraceContext {
        let number = self.next.fetch_add(1, Ordering::Relaxed).to_be_bytes();
        let names: [&[u8]; 2] = [&self.seed, &number];
        parent.map_or_else(|| TraceContext::derived(&names), |parent| parent.with_span_of(&names))
    }

    /// Hands a span in. If too many wait already, it is dropped.
    pub(crate) fn record(&self, span: Span) {
        if let Some(sender) = self.sender.as_ref().filter(|_| span.at.sampled)
            && sender.try_send(ExportQueue::Span(Box::new(span))).is_err()
        {
            self.dropped.add_one();
        }
    }

    /// Leave to look up what so many spans should tell. If too many look things up already, they are dropped.
    pub(crate) fn teller(&self, spans: usize) -> Option<OwnedSemaphorePermit> {
        let teller = Arc::clone(&self.tellers).try_acquire_owned().ok();
        if teller.is_none() {
            self.dropped.add(spans as u64);
        }
        teller
    }

    /// Waits until what was handed in is sent, or has been tried for long enough.
    pub(crate) async fn flush(&self) {
        if let Some(sender) = &self.sender {
            export::flush(sender).await;
        }
    }

    /// How many were dropped.
    pub(crate) fn dropped(&self) -> u64 {
        self.dropped.get()
    }
}
