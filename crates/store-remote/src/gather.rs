//! Calls that share requests, as commits share syncs: what comes while as many requests are under way as a lane has goes out together
//! when one of them is answered.
//!
//! A lone caller always finds the lane free and waits for nothing. Calls share a request only with those of the same namespace and
//! timeout, which are headers. A request under way that takes long holds up those that gather for a moment only. What came of a batch
//! as a whole is each operation's own to judge: those that are to be sent again go alone.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use fencehold_contract::CallContext;
use fencehold_contract::http::{
    BATCH_OPERATIONS_MAX, BatchOperation, BatchRequest, BatchResponse, BatchedOperation, HttpOperation,
    OperationSpec, op,
};
use fencehold_contract::problem::ErrorKind;
use fencehold_core::Namespace;
use tokio::sync::oneshot;

use super::budget::RequestError;
use super::http_client::{HttpClient, read, write};

/// How many requests of a lane are under way before others gather: while the server works on one, the next is written and read.
const REQUESTS_MAX: usize = 2;
/// A request that takes longer holds up those that gather no more.
const GATHER_MAX: Duration = Duration::from_millis(50);
/// A larger request goes alone: what it brings costs more than a request, and it would wait for its turn in the lane.
const SHARED_BYTES_MAX: usize = 2 << 10;
/// How large a batch becomes: far below what a server reads in one body, unless its settings say otherwise.
const BATCH_BYTES_MAX: usize = 256 << 10;
/// What an operation takes up in a batch besides its request.
const WRAPPING_BYTES: usize = 64;

/// The way of one call to the server.
pub(super) struct Route<'g> {
    gatherer: &'g Arc<Gatherer>,
    /// Whether it may share a request.
    shares: bool,
}

impl<'g> Route<'g> {
    pub(super) fn new(gatherer: &'g Arc<Gatherer>, shares: bool) -> Self {
        Route { gatherer, shares }
    }

    /// Asks once: alone, or together with others.
    pub(super) async fn send<O: HttpOperation>(
        &self,
        call: &CallContext,
        request: &O::Request,
    ) -> Result<O::Response, RequestError> {
        read::<O>(&self.send_text(O::SPEC, call, write::<O>(request)?).await?)
    }

    /// The same with what was written for an operation, and what is to be read.
    pub(super) async fn send_text(
        &self,
        spec: OperationSpec,
        call: &CallContext,
        written: String,
    ) -> Result<String, RequestError> {
        let wire = &self.gatherer.wire;
        let Some(operation) = BatchedOperation::of(&spec).filter(|_| self.gatherer.may_share(self.shares))
        else {
            return wire.send_text(spec, call, written).await;
        };
        let lane = Lane::of(call);
        if let Some(_under_way) = self.gatherer.begin(&lane) {
            return wire.send_text(spec, call, written).await;
        }
        if written.len() > SHARED_BYTES_MAX {
            return wire.send_text(spec, call, written).await;
        }
        let operation = BatchOperation { operation, request: written.into() };
        match self.gatherer.gather(lane, spec, call, operation).await {
            Ok(response) => Ok(response.into()),
            Err(GatherError::Alone(request)) => wire.send_text(spec, call, request.into()).await,
            Err(GatherError::Failed(fault)) => Err(fault),
        }
    }
}

/// Calls that may share a request.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Lane {
    namespace: Namespace,
    timeout_ms: u64,
}

impl Lane {
    fn of(call: &CallContext) -> Self {
        Lane { namespace: call.namespace.clone(), timeout_ms: call.timeout_ms }
    }
}

/// Why an operation has no response from the batch that it was in.
enum GatherError {
    /// It was not carried out there. Here it is, to be sent alone.
    Alone(Box<str>),
    Failed(RequestError),
}

type Response = Result<Box<str>, GatherError>;

/// One operation that waits to be sent.
struct Gathered {
    spec: OperationSpec,
    call: CallContext,
    operation: BatchOperation,
    response: oneshot::Sender<Response>,
}

#[derive(Default)]
struct LaneState {
    /// Requests under way.
    under_way: usize,
    gathered: VecDeque<Gathered>,
}

/// What waits to be sent.
pub(super) struct Gatherer {
    wire: Arc<HttpClient>,
    lanes: Mutex<HashMap<Lane, LaneState>>,
    /// The server is of an older version and knows no batches, or takes no body of this size.
    unsupported: AtomicBool,
    /// For tests: what may share a request goes in a batch also where it is alone.
    always: bool,
}

impl Gatherer {
    pub(super) fn new(wire: &Arc<HttpClient>, always: bool) -> Arc<Self> {
        Arc::new(Gatherer {
            wire: Arc::clone(wire),
            lanes: Mutex::default(),
            unsupported: AtomicBool::new(false),
            always,
        })
    }

    fn may_share(&self, shares: bool) -> bool {
        shares && !self.unsupported.load(Ordering::Relaxed)
    }

    /// Begins a request at once, unless as many are under way as may be.
    fn begin(self: &Arc<Self>, lane: &Lane) -> Option<UnderWay> {
        let mut lanes = self.lanes();
        let state = lanes.entry(lane.clone()).or_default();
        let free = state.under_way < REQUESTS_MAX && state.gathered.is_empty() && !self.always;
        free.then(|| self.count_in(lane, state))
    }

    fn count_in(self: &Arc<Self>, lane: &Lane, state: &mut LaneState) -> UnderWay {
        state.under_way += 1;
        UnderWay { gatherer: Arc::clone(self), lane: lane.clone() }
    }

    /// Waits for what comes of an operation in a batch.
    async fn gather(
        self: &Arc<Self>,
        lane: Lane,
        spec: OperationSpec,
        call: &CallContext,
        operation: BatchOperation,
    ) -> Response {
        let (sender, mut response) = oneshot::channel();
        let gathered = Gathered { spec, call: call.clone(), operation, response: sender };
        self.lanes().entry(lane.clone()).or_default().gathered.push_back(gathered);
        // A place may have become free in between.
        self.send_gathered(&lane, REQUESTS_MAX);
        let response = if let Ok(response) = tokio::time::timeout(GATHER_MAX, &mut response).await {
            response
        } else {
            self.send_gathered(&lane, usize::MAX);
            response.await
        };
        let closed = || RequestError::Unclear("the request was given up".to_owned());
        response.unwrap_or_else(|_| Err(GatherError::Failed(closed())))
    }

    /// Sends what has gathered, as long as fewer requests than this are under way.
    fn send_gathered(self: &Arc<Self>, lane: &Lane, under_way_max: usize) {
        // Without a runtime the handle is being closed, and each caller learns that.
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        loop {
            let (batch, under_way) = {
                let mut lanes = self.lanes();
                let Some(state) = lanes.get_mut(lane) else { return };
                let batch = if state.under_way < under_way_max { next_batch(state) } else { Vec::new() };
                if batch.is_empty() {
                    if state.under_way == 0 && state.gathered.is_empty() {
                        lanes.remove(lane);
                    }
                    return;
                }
                let under_way = self.count_in(lane, state);
                (batch, under_way)
            };
            let gatherer = Arc::clone(self);
            runtime.spawn(async move {
                gatherer.send(batch).await;
                drop(under_way);
            });
        }
    }

    /// Sends a batch, or one that is alone, and gives each operation what came of it.
    async fn send(&self, mut batch: Vec<Gathered>) {
        let (Some(first), true) = (batch.first(), batch.len() > 1 || self.always) else {
            if let Some(Gathered { spec, call, operation, response }) = batch.pop() {
                let came = self.wire.send_text(spec, &call, operation.request.into()).await;
                let _ = response.send(came.map(String::into_boxed_str).map_err(GatherError::Failed));
            }
            return;
        };
        let call = first.call.clone();
        let (mut operations, mut waiting) = (Vec::new(), Vec::new());
        for Gathered { operation, response, .. } in batch {
            operations.push(operation);
            waiting.push(response);
        }
        let request = BatchRequest { operations };
        // The server may have said so since they gathered.
        let came = if self.unsupported.load(Ordering::Relaxed) {
            Err(RequestError::Stranger("it knows no batches".to_owned()))
        } else {
            self.wire.send::<op::PerformBatch>(&call, &request).await
        };
        let operations = request.operations;
        match came.and_then(|response| in_order(response, &operations)) {
            Ok(responses) => {
                for (waiting, response) in waiting.into_iter().zip(responses) {
                    let _ = waiting.send(response.map_err(GatherError::Failed));
                }
            }
            Err(fault) => {
                let alone = self.is_refused_as_a_batch(&fault);
                for (waiting, operation) in waiting.into_iter().zip(operations) {
                    let error = if alone {
                        GatherError::Alone(operation.request)
                    } else {
                        GatherError::Failed(fault.clone())
                    };
                    let _ = waiting.send(Err(error));
                }
            }
        }
    }

    /// Whether nothing of a batch was done because it is one, so that each may go alone.
    fn is_refused_as_a_batch(&self, fault: &RequestError) -> bool {
        let (refused, unsupported) = match fault {
            RequestError::Problem(problem) => match problem.kind {
                ErrorKind::PathNotFound | ErrorKind::MethodNotAllowed | ErrorKind::BodyTooLarge => {
                    (true, true)
                }
                // A server of an older version may know fewer operations.
                ErrorKind::BadInput => (true, false),
                _ => (false, false),
            },
            // Something in between that does not let it through.
            RequestError::Stranger(_) => (true, true),
            _ => (false, false),
        };
        self.unsupported.fetch_or(unsupported, Ordering::Relaxed);
        refused
    }

    fn lanes(&self) -> MutexGuard<'_, HashMap<Lane, LaneState>> {
        self.lanes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The operations of the next batch: those whose callers still wait, as many as it may have.
fn next_batch(state: &mut LaneState) -> Vec<Gathered> {
    let (mut batch, mut bytes) = (Vec::new(), 0);
    while let Some(next) = state.gathered.pop_front() {
        if next.response.is_closed() {
            continue;
        }
        bytes += next.operation.request.len() + WRAPPING_BYTES;
        if !batch.is_empty() && (bytes > BATCH_BYTES_MAX || batch.len() == BATCH_OPERATIONS_MAX) {
            state.gathered.push_front(next);
            break;
        }
        batch.push(next);
    }
    batch
}

/// What came of each operation of a batch.
fn in_order(
    response: BatchResponse,
    operations: &[BatchOperation],
) -> Result<Vec<Result<Box<str>, RequestError>>, RequestError> {
    let unread = |why: &str| RequestError::Unread(why.to_owned());
    if response.results.len() != operations.len() {
        return Err(unread("it answers fewer operations than it was asked"));
    }
    let results = response.results.into_iter().zip(operations);
    Ok(results
        .map(|(result, operation)| match (result.ok, result.error) {
            _ if result.operation != operation.operation => Err(unread("it answers another operation")),
            (Some(ok), None) => Ok(ok),
            // The others did not wait for it.
            (_, Some(problem)) if problem.kind == ErrorKind::OutcomeUnknown => {
                Err(RequestError::Unclear(problem.detail))
            }
            (_, Some(problem)) => Err(RequestError::Problem(problem)),
            (None, None) => Err(unread("it says neither what came of an operation nor why not")),
        })
        .collect())
}

/// A request under way. When it ends, what has gathered meanwhile is sent.
struct UnderWay {
    gatherer: Arc<Gatherer>,
    lane: Lane,
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        if let Some(state) = self.gatherer.lanes().get_mut(&self.lane) {
            state.under_way = state.under_way.saturating_sub(1);
        }
        self.gatherer.send_gathered(&self.lane, REQUESTS_MAX);
    }
}
