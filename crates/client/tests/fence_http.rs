//! The fence of an HTTP service, with a real server and real clients on loopback.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use axum::body::Body;
use axum::extract::Extension;
use axum::http::{Method, Request, StatusCode};
use axum::response::IntoResponse;
use axum::routing::{get, post};
use axum::{Router, serve};
use fencehold::fence::http::{
    FenceClientLayer, FenceLayer, FenceMarks, FenceProblem, RaiseService, set_headers,
};
use fencehold::fence::{FencedFile, KeyToken};
use fencehold::{Fencehold, Key, Namespace, Owner, Token};
use http_body_util::BodyExt;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use tokio::net::TcpListener;
use tokio::sync::{Notify, Semaphore};
use tower::{Layer, ServiceExt};

fn pass(token: u64) -> KeyToken {
    KeyToken::new(Key::new("orders").unwrap(), Token::new(token))
}

async fn start(router: Router) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move { serve(listener, router).await.unwrap() });
    address
}

fn client() -> Client<HttpConnector, Body> {
    Client::builder(TokioExecutor::new()).build_http()
}

/// An answer: its status, and its body as a problem if it is one.
struct HttpResponse {
    status: StatusCode,
    problem: Option<FenceProblem>,
    body: String,
}

async fn send(method: Method, url: String, pass: Option<KeyToken>) -> HttpResponse {
    let mut request = Request::builder().method(method).uri(url).body(Body::empty()).unwrap();
    if let Some(pass) = pass {
        set_headers(&pass, request.headers_mut());
    }
    ask(request).await
}

async fn ask(request: Request<Body>) -> HttpResponse {
    let answer = client().request(request).await.unwrap();
    let status = answer.status();
    let kind = answer.headers().get("content-type");
    let is_problem = kind.is_some_and(|value| value == "application/problem+json");
    let body = answer.into_body().collect().await.unwrap().to_bytes();
    let problem = is_problem.then(|| FenceProblem::parse(&body).unwrap());
    HttpResponse { status, problem, body: String::from_utf8(body.to_vec()).unwrap() }
}

/// A service at an address, as a holder uses it.
struct Service(String);

impl Service {
    /// Writes under a token of the key `orders`.
    fn post(&self, token: u64) -> impl Future<Output = HttpResponse> + use<> {
        self.post_as(pass(token))
    }

    fn post_as(&self, pass: KeyToken) -> impl Future<Output = HttpResponse> + use<> {
        send(Method::POST, format!("{}/orders", self.0), Some(pass))
    }

    /// Raises its fence to a token.
    fn raise(&self, token: u64) -> impl Future<Output = HttpResponse> + use<> {
        send(Method::PUT, format!("{}/fence", self.0), Some(pass(token)))
    }
}

/// A service that counts how often its handler ran.
async fn counting(register: FenceMarks) -> (Service, Arc<AtomicUsize>) {
    let ran = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&ran);
    let handler = move || async move { counter.fetch_add(1, Ordering::SeqCst).to_string() };
    let router = Router::new()
        .route("/orders", post(handler).get(|| async { "read" }))
        .layer(FenceLayer::new(register.clone()))
        .route_service("/fence", RaiseService::new(register));
    (Service(start(router).await), ran)
}

#[tokio::test]
async fn a_stale_holder_is_refused_before_the_handler_runs() {
    let (service, ran) = counting(FenceMarks::in_memory()).await;
    let newer = pass(34).with_owner(Owner::new("host/7/next").unwrap());
    assert_eq!(service.post(33).await.status, StatusCode::OK);
    assert_eq!(service.post_as(newer).await.status, StatusCode::OK);
    let refused = service.post(33).await;
    assert_eq!(refused.status, StatusCode::PRECONDITION_FAILED);
    let problem = refused.problem.unwrap();
    assert!(problem.is_stale());
    assert_eq!((problem.token, problem.highest_token), (Some(Token::new(33)), Some(Token::new(34))));
    assert_eq!(problem.raised_by.unwrap().as_str(), "host/7/next");
    assert_eq!(
        problem.detail,
        "this service refuses token 33 for orders: it has seen 34, shown by host/7/next; the hold under token 33 is \
         over: stop what runs under it, and acquire anew"
    );
    assert_eq!(ran.load(Ordering::SeqCst), 2, "the handler never saw it");
    let elsewhere = pass(1).in_namespace(Namespace::new("team-a").unwrap());
    assert_eq!(service.post_as(elsewhere).await.status, StatusCode::OK);
}

/// R18: the new holder has raised the fence by a request of its own, and written nothing yet.
#[tokio::test]
async fn a_raise_refuses_the_holder_before_though_nothing_was_written() {
    let (service, ran) = counting(FenceMarks::in_memory()).await;
    assert_eq!(service.post(33).await.status, StatusCode::OK);
    let raised = service.raise(34).await;
    assert_eq!(raised.status, StatusCode::NO_CONTENT);
    let refused = service.post(33).await;
    assert_eq!(refused.status, StatusCode::PRECONDITION_FAILED);
    let refused = service.raise(33).await;
    assert!(refused.problem.unwrap().is_stale());
    assert_eq!(ran.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn what_shows_no_token_or_nonsense_is_told_what_is_missing() {
    let (service, ran) = counting(FenceMarks::in_memory()).await;
    let (orders, fence) = (format!("{}/orders", service.0), format!("{}/fence", service.0));
    let missing = send(Method::POST, orders.clone(), None).await;
    assert_eq!(missing.status, StatusCode::PRECONDITION_REQUIRED);
    assert_eq!(missing.problem.unwrap().kind, "urn:fencehold:token-required");
    assert_eq!(send(Method::PUT, fence, None).await.status, StatusCode::PRECONDITION_REQUIRED);

    let nonsense = Request::post(&orders)
        .header("fencing-key", "orders")
        .header("fencing-token", "soon");
    let nonsense = ask(nonsense.body(Body::empty()).unwrap()).await;
    assert_eq!(nonsense.status, StatusCode::BAD_REQUEST);
    let detail = nonsense.problem.unwrap().detail;
    assert!(detail.starts_with("Fencing-Token must be decimal digits"), "{detail}");
    assert_eq!(ran.load(Ordering::SeqCst), 0);

    let read = send(Method::GET, orders, None).await;
    assert_eq!((read.status, read.body.as_str()), (StatusCode::OK, "read"), "reading needs no token");
}

/// Handlers that are at work: which tokens, and in which order they began.
#[derive(Default)]
struct HandlerLog {
    at_work: Vec<u64>,
    began: Vec<u64>,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn check_and_raise_are_one_step_and_handlers_of_two_tokens_never_overlap() {
    let folder = tempfile::tempdir().unwrap();
    for register in
        [FenceMarks::in_memory(), FenceMarks::in_file(folder.path().join("register")).await.unwrap()]
    {
        let log = Arc::new(Mutex::new(HandlerLog::default()));
        let seen = Arc::clone(&log);
        let handler = move |Extension(pass): Extension<KeyToken>| async move {
            let token = pass.token().get();
            {
                let mut log = seen.lock().unwrap();
                assert!(log.at_work.iter().all(|other| *other == token), "{token} beside {:?}", log.at_work);
                log.at_work.push(token);
                log.began.push(token);
            }
            // What else can run, runs here.
            tokio::task::yield_now().await;
            seen.lock().unwrap().at_work.retain(|other| *other != token);
            "done"
        };
        let router = Router::new().route("/orders", post(handler)).layer(FenceLayer::new(register));
        let orders = format!("{}/orders", start(router).await);
        let barrier = Arc::new(tokio::sync::Barrier::new(24));
        let clients = (0..24_u64).map(|number| {
            let (orders, barrier) = (orders.clone(), Arc::clone(&barrier));
            tokio::spawn(async move {
                barrier.wait().await;
                send(Method::POST, orders, Some(pass(1 + number % 12))).await.status
            })
        });
        let mut let_through = 0;
        for client in clients.collect::<Vec<_>>() {
            match client.await.unwrap() {
                StatusCode::OK => let_through += 1,
                StatusCode::PRECONDITION_FAILED => {}
                other => panic!("{other}"),
            }
        }
        let log = log.lock().unwrap();
        assert!(log.began.is_sorted(), "an older one began after a newer one: {:?}", log.began);
        assert_eq!(log.began.len(), let_through, "what got OK ran, and nothing else");
        assert_eq!(log.began.last(), Some(&12), "the newest always gets through");
    }
}

/// A service whose handler waits until it is let go.
async fn held(register: FenceMarks) -> (Service, Arc<Notify>, Arc<Semaphore>) {
    let (entered, let_go) = (Arc::new(Notify::new()), Arc::new(Semaphore::new(0)));
    let (notify, gate) = (Arc::clone(&entered), Arc::clone(&let_go));
    let handler = move || async move {
        notify.notify_one();
        gate.acquire().await.unwrap().forget();
        "done"
    };
    let router = Router::new()
        .route("/orders", post(handler))
        .layer(FenceLayer::new(register.clone()))
        .route_service("/fence", RaiseService::new(register));
    (Service(start(router).await), entered, let_go)
}

#[tokio::test]
async fn a_raise_is_answered_only_when_nothing_older_is_at_work() {
    let register = FenceMarks::in_memory();
    let (service, entered, let_go) = held(register.clone()).await;
    let old = tokio::spawn(service.post(33));
    entered.notified().await;
    let raise = tokio::spawn(service.raise(34));
    until_raised(&register, 34).await;
    // The fence is up already, while the handler under 33 is still at work.
    let refused = service.post(33).await;
    assert_eq!(refused.status, StatusCode::PRECONDITION_FAILED);
    assert!(!raise.is_finished(), "the one under 33 could still write");
    let_go.add_permits(1);
    assert_eq!(raise.await.unwrap().status, StatusCode::NO_CONTENT);
    assert_eq!(old.await.unwrap().status, StatusCode::OK);
}

#[tokio::test]
async fn one_who_waited_until_it_was_stale_is_refused() {
    let register = FenceMarks::in_memory();
    let (service, entered, let_go) = held(register.clone()).await;
    let oldest = tokio::spawn(service.post(33));
    entered.notified().await;
    let waiting = tokio::spawn(service.post(34));
    until_raised(&register, 34).await;
    let newest = tokio::spawn(service.post(35));
    until_raised(&register, 35).await;
    let_go.add_permits(1);
    assert_eq!(oldest.await.unwrap().status, StatusCode::OK);
    assert_eq!(waiting.await.unwrap().status, StatusCode::PRECONDITION_FAILED);
    let_go.add_permits(1);
    assert_eq!(newest.await.unwrap().status, StatusCode::OK);
}

async fn until_raised(register: &FenceMarks, to: u64) {
    let (namespace, key) = (Namespace::default(), Key::new("orders").unwrap());
    let is_raised = async || {
        let mark = register.mark(&namespace, &key).await.unwrap();
        mark.is_some_and(|mark| mark.token >= Token::new(to))
    };
    while !is_raised().await {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_client_that_goes_away_keeps_nobody_waiting() {
    let register = FenceMarks::in_memory();
    let (service, entered, _let_go) = held(register.clone()).await;
    let gone = tokio::spawn(service.post(33));
    entered.notified().await;
    gone.abort();
    let raised = service.raise(34).await;
    assert_eq!(raised.status, StatusCode::NO_CONTENT);
}

#[tokio::test]
async fn a_register_in_a_file_outlives_its_server_and_is_shared() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("register");
    let (one, _) = counting(FenceMarks::in_file(&path).await.unwrap()).await;
    let (two, _) = counting(FenceMarks::in_file(&path).await.unwrap()).await;
    assert_eq!(one.raise(34).await.status, StatusCode::NO_CONTENT);
    let refused = two.post(33).await;
    assert!(refused.problem.unwrap().is_stale());
}

#[tokio::test]
async fn a_register_that_cannot_be_used_lets_nothing_through_and_tells_no_paths() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("register");
    let (service, ran) = counting(FenceMarks::in_file(&path).await.unwrap()).await;
    std::fs::write(folder.path().join("register.fence/journal"), "dear diary").unwrap();
    let refused = service.post(1).await;
    assert_eq!(refused.status, StatusCode::INTERNAL_SERVER_ERROR);
    for told in ["register.fence", folder.path().to_str().unwrap()] {
        assert!(!refused.body.contains(told), "{}", refused.body);
    }
    assert_eq!(ran.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn the_clients_layer_shows_the_lease_and_what_a_request_brings_goes_before_it() {
    let echo = |request: Request<Body>| async move {
        let header = |name: &str| request.headers().get(name).map(|value| value.to_str().unwrap().to_owned());
        format!("{:?} {:?}", header("fencing-key"), header("fencing-token")).into_response()
    };
    let address = start(Router::new().route("/", get(echo))).await;
    let fh = Fencehold::connect("memory:").await.unwrap();
    let lease = fh.lease("orders/täglich").acquire().await.unwrap();
    let fenced = FenceClientLayer::new(&lease).layer(client());
    let say = |request: Request<Body>| async {
        let answer = fenced.clone().oneshot(request).await.unwrap();
        String::from_utf8(answer.into_body().collect().await.unwrap().to_bytes().to_vec()).unwrap()
    };
    let request = || Request::get(&address).body(Body::empty()).unwrap();
    assert_eq!(say(request()).await, r#"Some("orders/t%C3%A4glich") Some("1")"#);
    let mut other = request();
    other.extensions_mut().insert(pass(7));
    assert_eq!(say(other).await, r#"Some("orders") Some("7")"#);
}

/// Two processes behind one address: neither knows what the other's handlers do. The window between check and write is
/// closed by taking the pass to the write.
#[tokio::test]
async fn a_handler_that_takes_the_pass_to_its_write_closes_the_window() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("orders.log");
    let (entered, let_go) = (Arc::new(Notify::new()), Arc::new(Semaphore::new(0)));
    let mut addresses = Vec::new();
    for slow in [true, false] {
        let file = FencedFile::open(&path).await.unwrap();
        let (entered, let_go) = (Arc::clone(&entered), Arc::clone(&let_go));
        let handler = move |Extension(pass): Extension<KeyToken>| async move {
            if slow {
                entered.notify_one();
                let_go.acquire().await.unwrap().forget();
            }
            let line = format!("order under {}\n", pass.token());
            match file.append(&pass, "order-1", line).await {
                Ok(_) => StatusCode::OK,
                Err(error) if error.is_retryable() => StatusCode::SERVICE_UNAVAILABLE,
                Err(_) => StatusCode::PRECONDITION_FAILED,
            }
        };
        let router = Router::new()
            .route("/orders", post(handler))
            .layer(FenceLayer::new(FenceMarks::in_memory()));
        addresses.push(format!("{}/orders", start(router).await));
    }
    let old = tokio::spawn(send(Method::POST, addresses[0].clone(), Some(pass(33))));
    entered.notified().await; // checked by the first server, and not yet written
    assert_eq!(send(Method::POST, addresses[1].clone(), Some(pass(34))).await.status, StatusCode::OK);
    let_go.add_permits(1);
    assert_eq!(old.await.unwrap().status, StatusCode::PRECONDITION_FAILED);
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "order under 34\n");
}
