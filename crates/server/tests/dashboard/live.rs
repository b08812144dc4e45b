//! Live updates.

use std::io::{BufRead as _, BufReader};

use fencehold_server::access::Scope;

use super::browser::{Browser, attributes};
use crate::security::fixture::SecurityFixture;

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
