//! Live updates.

use std::io::{BufRead as _, BufReader};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use fencehold_contract::clock::ManualClock;
use fencehold_contract::operation::{StoreBackend, StoreRequest, StoreResponse};
use fencehold_contract::{CallContext, Capabilities, StoreError};
use fencehold_engine::MemoryStore;
use fencehold_server::ServerOptions;
use fencehold_server::access::Scope;

use super::browser::{Browser, attributes};
use crate::security::fixture::{HttpReply, SecurityFixture, eventually, hear};

#[test]
fn an_open_page_hears_that_something_happened_to_what_it_shows() {
    let fixture = SecurityFixture::new();
    let operator = fixture.operator();
    let browser = Browser::logged_in(&fixture, &operator);
    let page = browser.page("/lease?key=a%2Fb");
    let url = attributes(&page, "data-live")[0].replace("&amp;", "&");
    assert_eq!(url, "live?prefix=a%2Fb");
    let mut lines = BufReader::new(browser.send("GET", &format!("/{url}"), "", "")).lines();
    let mut until = |text: &str| {
        let mut seen = Vec::new();
        while seen.last().is_none_or(|line: &String| line != text) {
            seen.push(lines.next().unwrap_or_else(|| panic!("ended after {seen:?}")).unwrap());
            // Comments come four times a minute.
            assert!(seen.len() < 20, "no {text} in {seen:?}");
        }
    };
    // From now on it hears of everything.
    until(":");
    fixture.acquire(&operator, "a/b", 2, 30_000);
    until("event: changed");
    fixture.acquire(&operator, "a/b/c", 3, 30_000);
    until("event: changed");
}

#[test]
fn a_page_is_live_only_for_those_who_may_read_events() {
    let fixture = SecurityFixture::new();
    let reader = fixture.token(None, &[Scope::JobRead]);
    let browser = Browser::logged_in(&fixture, &reader);
    assert!(attributes(&browser.page("/jobs"), "data-live").is_empty());
    let denied = browser.get("/live");
    assert_eq!((denied.status, denied.kind()), (403, "forbidden"), "{denied:?}");
}

/// A store that takes 100 ms to say how it is, which every overview asks, and counts how often it was asked.
#[derive(Debug)]
struct SlowStore {
    store: MemoryStore,
    clock: ManualClock,
    asked: Arc<AtomicUsize>,
}

#[async_trait]
impl StoreBackend for SlowStore {
    async fn execute(&self, call: &CallContext, ask: StoreRequest) -> Result<StoreResponse, StoreError> {
        if matches!(ask, StoreRequest::Status) {
            self.asked.fetch_add(1, Ordering::SeqCst);
            self.clock.advance_ms(100);
        }
        self.store.execute(call, ask).await
    }

    fn capabilities(&self) -> Capabilities {
        StoreBackend::capabilities(&self.store)
    }

    async fn close(&self) {
        StoreBackend::close(&self.store).await;
    }
}

/// However many show it, it is made for a twentieth of the time.
#[test]
fn pages_that_ask_again_are_answered_with_one_rendering_and_those_of_another_caller_are_not() {
    let clock = ManualClock::new();
    let asked = Arc::new(AtomicUsize::new(0));
    let store = MemoryStore::open(Arc::new(clock.clone())).unwrap();
    let store = SlowStore { store, clock: clock.clone(), asked: Arc::clone(&asked) };
    let fixture = SecurityFixture::over(ServerOptions::default(), Arc::new(store), clock.clone());
    let (operator, other) = (fixture.operator(), fixture.operator());
    let browser = Browser::logged_in(&fixture, &operator);
    let times = |found: &dyn Fn() -> HttpReply| {
        let before = asked.load(Ordering::SeqCst);
        let reply = found();
        assert_eq!(reply.status, 200, "{reply:?}");
        (reply, asked.load(Ordering::SeqCst) - before)
    };
    let again =
        |browser: &Browser<'_>, path: &str| hear(browser.send("GET", path, "fencehold-again: 1\r\n", ""));
    let (made, asks) = times(&|| again(&browser, "/"));
    assert_eq!(asks, 1);
    assert!(!made.head.contains("fencehold-age-ms"), "{}", made.head);
    // Two other windows of the same caller.
    for _ in 0..2 {
        let (known, asks) = times(&|| again(&browser, "/"));
        assert_eq!(asks, 0, "it is known");
        assert_eq!(known.body, made.body);
        for header in ["fencehold-age-ms: 100", "fencehold-next-in-ms: 1900", "cache-control: no-store"] {
            assert!(known.head.contains(header), "{header} is missing in {}", known.head);
        }
    }
    // What may differ has its own.
    assert_eq!(times(&|| again(&browser, "/?namespace=elsewhere")).1, 1, "another namespace");
    assert_eq!(times(&|| again(&Browser::logged_in(&fixture, &other), "/")).1, 1, "another caller");
    // A person that opens the page sees how things stand.
    assert_eq!(times(&|| browser.get("/")).1, 1);
    clock.advance_ms(2_000);
    assert_eq!(times(&|| again(&browser, "/")).1, 1, "it is too old");
    // Who is let in no longer gets nothing that is known.
    fixture.revoke(&operator);
    eventually("the server knows", || browser.get("/leases").status == 303);
    assert_eq!(again(&browser, "/").status, 303);
}

/// A feed that only tells pages that something happened serves a stream of events as soon as one is opened.
#[test]
fn a_stream_of_events_that_joins_open_pages_misses_nothing() {
    let fixture = SecurityFixture::new();
    let operator = fixture.operator();
    let browser = Browser::logged_in(&fixture, &operator);
    let mut page = BufReader::new(browser.send("GET", "/live", "", "")).lines();
    let mut hears = |text: &str| page.by_ref().map_while(Result::ok).any(|line| line == text);
    assert!(hears(":"));
    fixture.acquire(&operator, "a", 2, 30_000);
    assert!(hears("event: changed"));
    let bearer = operator.bearer.reveal();
    let headers = format!("authorization: Bearer {bearer}\r\n");
    let stream = Browser::new(&fixture).send("GET", "/v1/events/stream?cursor=0", &headers, "");
    let mut events = BufReader::new(stream).lines().map_while(Result::ok);
    let mut next = || {
        events
            .by_ref()
            .find_map(|line| Some(line.strip_prefix("data: ")?.to_owned()))
            .unwrap()
    };
    assert!(next().contains(r#""key":"a""#));
    for key in ["b", "c"] {
        fixture.acquire(&operator, key, if key == "b" { 3 } else { 4 }, 30_000);
        let event = next();
        assert!(event.contains(&format!(r#""key":"{key}""#)), "{event}");
    }
}
