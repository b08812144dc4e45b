//! Several operations in one request. Each passes the same points as if it had come alone: the pace of its caller, rights, limits,
//! counts and traces.
//!
//! Operations on the same key or job go one after the other, in their order; all others go side by side, so that they share a commit of
//! the store. The response is one body. So that a slow operation (a row that a transaction of the caller's own has locked, say)
//! does not hold up the others, it gets only so much time after the first has been answered. One that has no answer by then goes on
//! without its batch, and its result is `outcome-unknown`: sent again alone, it gets what came of it.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use fencehold_contract::http::{
    BATCH_OPERATIONS_MAX, BatchOperation, BatchRequest, BatchResponse, BatchResult, Subject,
};
use fencehold_contract::problem::{ErrorKind, Problem};
use fencehold_core::BadInput;
use futures_util::StreamExt as _;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;

use super::dispatch::{Endpoint, HandlerResult, PendingOperation, RequestContext, without_paths};
use crate::observe::Stopwatch;

type Endpoints = HashMap<&'static str, Endpoint>;
/// What came of the operation at a place.
type Outcome = (usize, HandlerResult<Vec<u8>>);

pub(super) async fn perform(
    asked: RequestContext,
    request: BatchRequest,
    endpoints: Arc<Endpoints>,
) -> HandlerResult<BatchResponse> {
    let count = request.operations.len();
    if count == 0 || count > BATCH_OPERATIONS_MAX {
        let message = format!("takes 1 to {BATCH_OPERATIONS_MAX} operations, not {count}");
        return Err(BadInput::new("operations", message).into());
    }
    if asked.idempotency_key.is_some() {
        let message = "a batch takes none: give its jobs ids, or enqueue them in a request of their own";
        return Err(BadInput::new("Idempotency-Key", message).into());
    }
    let names: Vec<_> = request.operations.iter().map(|operation| operation.operation).collect();
    let mut outcomes: Vec<Option<HandlerResult<Vec<u8>>>> = Vec::new();
    let mut read = Vec::with_capacity(count);
    for (nth, operation) in request.operations.into_iter().enumerate() {
        // The request itself was the first one that counts.
        let pace = if nth == 0 { Ok(()) } else { asked.store.pace() };
        let (pending, outcome) = match pace.and_then(|()| operation_of(&asked, &endpoints, &operation)) {
            Ok((context, pending)) => (Some((nth, context, pending)), None),
            Err(problem) => (None, Some(Err(problem))),
        };
        read.extend(pending);
        outcomes.push(outcome);
    }
    carry_out(read, asked.server.batch_grace, &mut outcomes).await;
    let results = names.into_iter().zip(outcomes).map(|(operation, outcome)| {
        let (ok, error) = match outcome.unwrap_or_else(|| Err(too_slow())).and_then(text) {
            Ok(response) => (Some(response), None),
            Err(problem) => (None, Some(Box::new(without_paths(&problem).unwrap_or(problem)))),
        };
        BatchResult { operation, ok, error }
    });
    Ok(BatchResponse { results: results.collect() })
}

type ReadOperation = (usize, RequestContext, Box<dyn PendingOperation>);

fn operation_of(
    asked: &RequestContext,
    endpoints: &Endpoints,
    operation: &BatchOperation,
) -> HandlerResult<(RequestContext, Box<dyn PendingOperation>)> {
    let name = operation.operation.name();
    let none = || Problem::new(ErrorKind::PathNotFound, format!("there is no operation {name}"));
    let endpoint = endpoints.get(name).ok_or_else(none)?;
    Ok((asked.for_operation(&endpoint.spec), endpoint.read(&operation.request)?))
}

/// Carries out what was read, and notes what came of it; nothing, where it took too long.
async fn carry_out(
    read: Vec<ReadOperation>,
    grace: Duration,
    outcomes: &mut [Option<HandlerResult<Vec<u8>>>],
) {
    let watch = Stopwatch::start();
    let mut batch = RunningBatch { sequences: sequences(read), under_way: FuturesUnordered::new(), outcomes };
    for sequence in 0..batch.sequences.len() {
        batch.begin_next(sequence);
    }
    if batch.note_next().await {
        let grace = Duration::from_micros(watch.us()) + grace;
        let the_others = async { while batch.note_next().await {} };
        if tokio::time::timeout(grace, the_others).await.is_err() {
            // Dropped, a grant would be given back, and who asks again would be refused.
            tokio::spawn(batch.under_way.for_each(|_| std::future::ready(())));
        }
    }
}

/// What is left of a batch. Of each sequence one operation is under way.
struct RunningBatch<'o> {
    sequences: Vec<VecDeque<ReadOperation>>,
    under_way: FuturesUnordered<BoxFuture<'static, (usize, Outcome)>>,
    outcomes: &'o mut [Option<HandlerResult<Vec<u8>>>],
}

impl RunningBatch<'_> {
    fn begin_next(&mut self, sequence: usize) {
        if let Some((nth, context, operation)) =
            self.sequences.get_mut(sequence).and_then(VecDeque::pop_front)
        {
            let performing = operation.perform(context);
            self.under_way
                .push(Box::pin(async move { (sequence, (nth, performing.await)) }));
        }
    }

    /// Notes the next one that ends, and begins the one behind it. False: none was left.
    async fn note_next(&mut self) -> bool {
        let Some((sequence, (nth, outcome))) = self.under_way.next().await else { return false };
        if let Some(place) = self.outcomes.get_mut(nth) {
            *place = Some(outcome);
        }
        self.begin_next(sequence);
        true
    }
}

/// Operations that share a subject in one sequence, in their order; sequences have nothing to do with each other.
fn sequences(read: Vec<ReadOperation>) -> Vec<VecDeque<ReadOperation>> {
    // What each sequence became part of: itself, as long as none joined it to another.
    let mut part_of: Vec<usize> = Vec::with_capacity(read.len());
    let mut sequence_of: HashMap<Subject, usize> = HashMap::new();
    let mut placed = Vec::with_capacity(read.len());
    for operation in read {
        let mut sequence = part_of.len();
        part_of.push(sequence);
        for subject in operation.2.subjects() {
            let other = whole(&part_of, *sequence_of.entry(subject).or_insert(sequence));
            let (first, second) = (sequence.min(other), sequence.max(other));
            if let Some(place) = part_of.get_mut(second) {
                *place = first;
            }
            sequence = first;
        }
        placed.push((sequence, operation));
    }
    let mut sequences: Vec<VecDeque<ReadOperation>> = part_of.iter().map(|_| VecDeque::new()).collect();
    for (sequence, operation) in placed {
        if let Some(sequence) = sequences.get_mut(whole(&part_of, sequence)) {
            sequence.push_back(operation);
        }
    }
    sequences
}

/// The sequence that this one is part of.
fn whole(part_of: &[usize], mut sequence: usize) -> usize {
    while let Some(of) = part_of.get(sequence).filter(|of| **of != sequence) {
        sequence = *of;
    }
    sequence
}

fn text(response: Vec<u8>) -> HandlerResult<Box<str>> {
    let text = String::from_utf8(response).map(String::into_boxed_str);
    text.map_err(|_| Problem::new(ErrorKind::Unusable, "the answer is no text"))
}

fn too_slow() -> Problem {
    let detail =
        "it took longer than the others of its batch, which wait no longer for it; send it again, alone";
    Problem::new(ErrorKind::OutcomeUnknown, detail)
}
