//! Answers that are lost on the way back from a server: the remote store finds out what became of the request, or says that
//! it does not know (P7, R13).

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use fencehold_contract::clock::{ManualClock, SystemClock};
use fencehold_contract::job::{ClaimJobsRequest, NewJob};
use fencehold_contract::problem::{ErrorKind, Problem};
use fencehold_contract::{
    AcquireLeaseRequest, AcquiredLease, CallContext, HoldRef, LeaseStore, ListEventsRequest, ReleasedLease,
    RevokeLeasesRequest, RevokeTarget, StoreError, StoreUrl,
};
use fencehold_core::job::{JobId, JobKind, QueueName};
use fencehold_core::{EventData, HoldId, Key, Namespace, Owner, Reason};
use fencehold_engine::MemoryStore;
use fencehold_server::Server;
use fencehold_server::access::Access;
use fencehold_store_remote::RemoteStore;
use fencehold_test_store::block_on;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;

/// An answer that is no server's, if there is to be one, and how often it was given.
type FalseResponse = Arc<Mutex<(Option<String>, usize)>>;

/// A server, a way to it on which answers can get lost, and a client at the end of that way.
struct LossyPath {
    /// The server's own store, to see what became of things.
    store: Arc<dyn LeaseStore>,
    remote: Arc<RemoteStore>,
    /// How many answers are still to be lost: the request arrives, and the connection is cut before its answer does.
    to_lose: Arc<AtomicUsize>,
    /// What is answered to every request after those, instead of passing it on.
    instead: FalseResponse,
    /// Whether batches are answered as by a server that knows none, and how many were.
    refused_batches: Arc<(AtomicBool, AtomicUsize)>,
    // Last, so that the client goes before what it talks to.
    runtime: Runtime,
}

impl LossyPath {
    fn open() -> Self {
        let runtime = crate::plain_client::runtime();
        let clock = Arc::new(ManualClock::new());
        let store: Arc<dyn LeaseStore> = Arc::new(MemoryStore::open(clock.clone()).unwrap());
        let server = Server::new(Arc::clone(&store), clock, Access::default());
        let to_lose = Arc::new(AtomicUsize::new(0));
        let bind = || runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
        let (listener, gate) = (bind(), bind());
        let (behind, address) = (listener.local_addr().unwrap(), gate.local_addr().unwrap());
        runtime.spawn(async move { server.serve(listener, std::future::pending()).await });
        let instead = FalseResponse::default();
        let (losing, answering) = (Arc::clone(&to_lose), Arc::clone(&instead));
        let refused_batches = Arc::<(AtomicBool, AtomicUsize)>::default();
        let refusing = Arc::clone(&refused_batches);
        runtime.spawn(async move {
            while let Ok((client, _)) = gate.accept().await {
                let refusing = Arc::clone(&refusing);
                tokio::spawn(pass_on(client, behind, Arc::clone(&losing), Arc::clone(&answering), refusing));
            }
        });
        let StoreUrl::Remote(url) = format!("http://{address}").parse().unwrap() else { unreachable!() };
        let remote = RemoteStore::open(&url, Arc::new(SystemClock)).unwrap();
        LossyPath { store, remote: Arc::new(remote), to_lose, instead, refused_batches, runtime }
    }

    /// From now on, once no more answers are to be lost, every request is answered with this.
    fn answer_instead(&self, status: &str, kind: &str, body: &str) {
        let head = format!("HTTP/1.1 {status}\r\ncontent-type: {kind}\r\ncontent-length: {}", body.len());
        *self.instead.lock().unwrap() = (Some(format!("{head}\r\n\r\n{body}")), 0);
    }

    fn answer_with_problem(&self, problem: &Problem) {
        let body = serde_json::to_string(problem).unwrap();
        self.answer_instead("503 Service Unavailable", "application/problem+json", &body);
    }

    /// How many requests were answered so.
    fn answered_instead(&self) -> usize {
        self.instead.lock().unwrap().1
    }

    fn lose(&self, answers: usize) {
        self.to_lose.store(answers, Ordering::SeqCst);
    }

    /// Many callers at once, each with a key of its own: what each of them got.
    fn acquire_at_once(&self, callers: u8) -> Vec<Result<AcquiredLease, StoreError>> {
        let acquire = |nth: u8| {
            let remote = Arc::clone(&self.remote);
            let key = Key::new(format!("k/{nth}")).unwrap();
            let request = AcquireLeaseRequest::new(key, hold(nth), owner(), 30_000);
            self.runtime.spawn(async move { remote.acquire(&call(), request).await })
        };
        let callers: Vec<_> = (1..=callers).map(acquire).collect();
        callers
            .into_iter()
            .map(|caller| self.runtime.block_on(caller).unwrap())
            .collect()
    }

    /// How often something of this kind happened.
    fn count(&self, of_kind: impl Fn(&EventData) -> bool) -> usize {
        let request = ListEventsRequest { limit: 1_000, ..ListEventsRequest::default() };
        let page = block_on(self.store.list_events(&call(), request)).unwrap();
        page.events.iter().filter(|event| of_kind(&event.data)).count()
    }
}

/// Passes a connection on, byte by byte, until an answer is to be lost.
async fn pass_on(
    mut client: TcpStream,
    server: SocketAddr,
    to_lose: Arc<AtomicUsize>,
    instead: FalseResponse,
    refused_batches: Arc<(AtomicBool, AtomicUsize)>,
) {
    let mut server = TcpStream::connect(server).await.unwrap();
    let (mut asked, mut answered) = ([0; 16_384], [0; 16_384]);
    loop {
        tokio::select! {
            read = client.read(&mut asked) => match read {
                Ok(length) if length > 0 => {
                    let none_to_lose = to_lose.load(Ordering::SeqCst) == 0;
                    let answer = none_to_lose.then(|| {
                        let mut instead = instead.lock().unwrap();
                        instead.1 += 1;
                        instead.0.clone()
                    });
                    let (refusing, refused) = &*refused_batches;
                    if asked.starts_with(b"POST /v1/batch ") && refusing.load(Ordering::SeqCst) {
                        refused.fetch_add(1, Ordering::SeqCst);
                        let problem = Problem::new(ErrorKind::PathNotFound, "there is nothing at /v1/batch");
                        let body = serde_json::to_string(&problem).unwrap();
                        let head = "HTTP/1.1 404 Not Found\r\ncontent-type: application/problem+json\r\nconnection: close";
                        let answer = format!("{head}\r\ncontent-length: {}\r\n\r\n{body}", body.len());
                        client.write_all(answer.as_bytes()).await.unwrap();
                        return;
                    }
                    match answer.flatten() {
                        Some(answer) => client.write_all(answer.as_bytes()).await.unwrap(),
                        None => server.write_all(&asked[..length]).await.unwrap(),
                    }
                }
                _ => return,
            },
            read = server.read(&mut answered) => {
                let lost = to_lose.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
                match read {
                    Ok(length) if length > 0 && lost.is_err() => {
                        client.write_all(&answered[..length]).await.unwrap();
                    }
                    _ => return,
                }
            }
        }
    }
}

fn call() -> CallContext {
    CallContext::new(Namespace::default())
}

fn hold(nth: u8) -> HoldId {
    HoldId::from_random([nth; 16])
}

fn owner() -> Owner {
    Owner::new("ada").unwrap()
}

fn request() -> AcquireLeaseRequest {
    AcquireLeaseRequest::new(Key::new("k").unwrap(), hold(1), owner(), 30_000)
}

fn new_job() -> NewJob {
    let (queue, kind) = (QueueName::new("q").unwrap(), JobKind::new("a").unwrap());
    NewJob::new(JobId::from_random(1, [7; 10]), queue, kind, "1")
}

#[test]
fn a_lost_grant_is_found_again_by_its_hold_id() {
    let way = LossyPath::open();
    way.lose(2);
    let acquired = block_on(way.remote.acquire(&call(), request())).unwrap();
    assert_eq!((acquired.grant.token.get(), acquired.grant.resumed), (1, true));
    assert_eq!(way.count(|fact| matches!(fact, EventData::LeaseAcquired { .. })), 1, "granted once");
}

#[test]
fn a_lost_release_is_told_as_done() {
    let way = LossyPath::open();
    let token = block_on(way.remote.acquire(&call(), request())).unwrap().grant.token;
    way.lose(1);
    let held = HoldRef { key: Key::new("k").unwrap(), hold_id: hold(1), token };
    let released = ReleasedLease { key: held.key.clone(), token };
    assert_eq!(block_on(way.remote.release(&call(), vec![held])).unwrap(), [Ok(released)]);
    assert_eq!(way.count(|fact| matches!(fact, EventData::LeaseEnded { .. })), 1, "ended once");
}

#[test]
fn force_is_never_repeated_and_says_that_it_does_not_know() {
    let way = LossyPath::open();
    block_on(way.remote.acquire(&call(), request())).unwrap();
    way.lose(1);
    let which = RevokeTarget::Key { key: Key::new("k").unwrap(), only_token: None };
    let revoke = RevokeLeasesRequest { target: which, by: owner(), reason: Reason::new("stuck").unwrap() };
    let answer = block_on(way.remote.revoke(&call(), revoke));
    assert!(matches!(answer, Err(StoreError::OutcomeUnknown { .. })), "{answer:?}");
    assert_eq!(way.to_lose.load(Ordering::SeqCst), 0, "it was carried out, and its answer lost");
    assert_eq!(way.count(|fact| matches!(fact, EventData::LeaseEnded { .. })), 1);
}

#[test]
fn the_same_claim_gets_the_jobs_that_it_has_and_the_same_enqueue_makes_one_job() {
    let way = LossyPath::open();
    let jobs = LeaseStore::jobs(&*way.remote).unwrap();
    let job = new_job();
    way.lose(1);
    let enqueued = block_on(jobs.enqueue(&call(), vec![job.clone()])).unwrap();
    assert_eq!(enqueued[0].as_ref().unwrap().job_id, job.id);
    way.lose(1);
    let claim = ClaimJobsRequest {
        queues: vec![(job.queue.clone(), 1)],
        limit: 5,
        hold_id: hold(2),
        owner: owner(),
        ttl_ms: 30_000,
        wait_ms: 0,
        waited_before_ms: 0,
    };
    let claimed = block_on(jobs.claim(&call(), claim)).unwrap();
    assert_eq!(claimed.jobs.iter().map(|job| (job.id, job.attempt)).collect::<Vec<_>>(), [(job.id, 1)]);
    assert_eq!(way.count(|fact| matches!(fact, EventData::JobEnqueued { .. })), 1);
    assert_eq!(way.count(|fact| matches!(fact, EventData::JobClaimed { .. })), 1);
}

#[test]
fn when_patience_ends_it_is_said_whether_something_may_have_been_done() {
    let way = LossyPath::open();
    let impatient = call().with_timeout_ms(300);
    way.lose(usize::MAX);
    let written = block_on(way.remote.acquire(&impatient, request()));
    assert!(matches!(written, Err(StoreError::OutcomeUnknown { .. })), "{written:?}");
    let looked = block_on(way.remote.get(&impatient, Key::new("k").unwrap()));
    // What only looks does nothing.
    assert!(matches!(looked, Err(StoreError::Unavailable { .. })), "{looked:?}");
    way.lose(0);
    let again = AcquireLeaseRequest { hold_id_age_ms: 1_000, ..request() };
    let acquired = block_on(way.remote.acquire(&call(), again)).unwrap();
    assert!(acquired.grant.resumed, "the caller's own repeat finds it too");
}

#[test]
fn nothing_was_done_is_not_said_of_what_was_sent_before() {
    let way = LossyPath::open();
    way.answer_with_problem(&Problem::new(ErrorKind::Unavailable, "the store is away"));
    way.lose(1);
    let acquired = block_on(way.remote.acquire(&call(), request()));
    assert!(matches!(acquired, Err(StoreError::OutcomeUnknown { .. })), "{acquired:?}");
    assert_eq!(way.count(|fact| matches!(fact, EventData::LeaseAcquired { .. })), 1, "it was carried out");
}

/// Sent again at the end of its timeout, it would be cut off, and its outcome would be unknown.
#[test]
fn a_server_that_wants_to_be_left_alone_for_longer_than_the_callers_patience_is_asked_once() {
    let way = LossyPath::open();
    let mut problem = Problem::new(ErrorKind::RateLimited, "too many");
    problem.retry_after_ms = Some(60_000);
    way.answer_with_problem(&problem);
    let acquired = block_on(way.remote.acquire(&call().with_timeout_ms(300), request()));
    assert!(matches!(acquired, Err(StoreError::Unavailable { .. })), "{acquired:?}");
    assert_eq!(way.answered_instead(), 1);
}

/// The connection is cut while batches are under way: each operation of them is asked for again, and granted once.
#[test]
fn a_batch_whose_answer_is_lost_is_found_again_operation_by_operation() {
    let way = LossyPath::open();
    way.lose(6);
    let acquired = way.acquire_at_once(64);
    assert!(
        acquired
            .iter()
            .all(|acquired| acquired.as_ref().is_ok_and(|acquired| acquired.grant.token.get() == 1))
    );
    assert!(
        acquired
            .iter()
            .any(|acquired| acquired.as_ref().is_ok_and(|acquired| acquired.grant.resumed))
    );
    assert_eq!(way.count(|fact| matches!(fact, EventData::LeaseAcquired { .. })), 64, "each granted once");
}

#[test]
fn a_server_that_knows_no_batches_is_asked_for_one_and_then_for_each_operation() {
    let way = LossyPath::open();
    way.refused_batches.0.store(true, Ordering::SeqCst);
    let mut refused = Vec::new();
    for _ in 0..2 {
        let acquired = way.acquire_at_once(64);
        assert!(acquired.iter().all(Result::is_ok), "{acquired:?}");
        refused.push(way.refused_batches.1.load(Ordering::SeqCst));
    }
    assert!(refused[0] > 0, "none was sent");
    assert_eq!(refused[1], refused[0], "it had said that it knows none");
    assert_eq!(way.count(|fact| matches!(fact, EventData::LeaseAcquired { .. })), 64, "each granted once");
}

/// A server of a later version, say: what it was asked to do it has done.
#[test]
fn nothing_was_done_is_not_said_where_the_answer_cannot_be_read() {
    let way = LossyPath::open();
    for (body, what) in [(r#"{"gained": 7}"#, "not understood"), (r#"{"results": []}"#, "fewer")] {
        way.answer_instead("200 OK", "application/json", body);
        let jobs = LeaseStore::jobs(&*way.remote).unwrap();
        let enqueued = block_on(jobs.enqueue(&call(), vec![new_job()]));
        let Err(StoreError::OutcomeUnknown { message }) = enqueued else { panic!("{enqueued:?}") };
        assert!(message.contains(what), "{message}");
        assert_eq!(way.answered_instead(), 1, "it would be answered in the same way again");
        let looked = block_on(way.remote.get(&call(), Key::new("k").unwrap()));
        // What only looks does nothing.
        assert!(matches!(looked, Err(StoreError::Unusable { .. })), "{looked:?}");
    }
}

#[test]
fn a_server_that_is_not_there_is_unavailable_and_one_of_another_kind_unusable() {
    let nobody = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let open = |address: SocketAddr| {
        let StoreUrl::Remote(url) = format!("http://s3cr3t@{address}").parse().unwrap() else {
            unreachable!()
        };
        RemoteStore::open(&url, Arc::new(SystemClock)).map(drop).unwrap_err()
    };
    let error = open(nobody);
    assert!(matches!(error, StoreError::Unavailable { .. }), "{error:?}");

    let stranger = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = stranger.local_addr().unwrap();
    std::thread::spawn(move || {
        for client in stranger.incoming() {
            use std::io::{Read as _, Write as _};
            let mut client = client.unwrap();
            let _ = client.read(&mut [0; 4_096]).unwrap();
            client
                .write_all(b"HTTP/1.1 404 Not Found\r\ncontent-length: 2\r\n\r\nno")
                .unwrap();
        }
    });
    let error = open(address);
    assert!(matches!(error, StoreError::Unusable { .. }), "{error:?}");
    assert!(!format!("{error} {error:?}").contains("s3cr3t"), "{error}");
}
