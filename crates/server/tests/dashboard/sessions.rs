//! Log-in, and what comes from elsewhere.

use fencehold_server::ServerOptions;
use fencehold_server::access::Scope;

use super::browser::{Browser, SAME_ORIGIN, attributes};
use crate::security::fixture::{SecurityFixture, eventually, hear};

#[test]
fn a_browser_logs_in_with_an_access_token_and_comes_back_to_where_it_wanted() {
    let fixture = SecurityFixture::new();
    let token = fixture.token(None, &[Scope::LeaseRead]);
    let mut browser = Browser::new(&fixture);
    let sent = browser.get("/leases?prefix=a%2F");
    assert_eq!(sent.status, 303, "{sent:?}");
    assert!(sent.head.contains("location: login?back=leases%3fprefix%3da%252f"), "{sent:?}");
    let form = browser.page("/login?back=leases%3Fprefix%3Da%252F");
    assert!(form.contains("value=\"leases?prefix=a%2F\""), "{form}");
    let reply = browser.log_in(&token.bearer.reveal(), "leases?prefix=a%2F");
    assert_eq!(reply.status, 303, "{reply:?}");
    assert!(reply.head.contains("location: leases?prefix=a%2f"), "{reply:?}");
    assert!(reply.head.contains("path=/; httponly; samesite=strict"), "{reply:?}");
    browser.page("/leases?prefix=a%2F");
    // The cookie is for pages. The API takes what no browser sends by itself.
    assert_eq!(browser.get("/v1/leases").status, 401);
    let out = browser.send_form("/logout", SAME_ORIGIN, &[]);
    assert!(out.status == 303 && out.head.contains("max-age=0"), "{out:?}");
}

#[test]
fn over_an_encrypting_proxy_the_cookie_is_for_this_host_and_encrypted_connections_alone() {
    let fixture = SecurityFixture::new();
    let token = fixture.token(None, &[Scope::LeaseRead]);
    let headers = format!("{SAME_ORIGIN}x-forwarded-proto: https\r\n");
    let reply =
        Browser::new(&fixture).send_form("/login", &headers, &[("access_token", &token.bearer.reveal())]);
    assert!(reply.head.contains("set-cookie: __host-fencehold=fencehold_"), "{reply:?}");
    assert!(reply.head.contains("; secure"), "{reply:?}");
}

#[test]
fn a_wrong_token_is_refused_and_no_other_site_is_led_to() {
    let fixture = SecurityFixture::new();
    let token = fixture.token(None, &[Scope::LeaseRead]);
    let mut browser = Browser::new(&fixture);
    let wrong = token.bearer.reveal().replace("fencehold_01", "fencehold_02");
    for shown in ["", "secret", wrong.as_str()] {
        let reply = browser.log_in(shown, "leases");
        assert_eq!(reply.status, 401, "{shown}: {reply:?}");
        assert!(!reply.head.contains("set-cookie") && !reply.body.contains(&wrong), "{reply:?}");
    }
    for back in ["https://site.example/", "//site.example", "/\\site.example", "revoke-lease"] {
        let reply = browser.log_in(&token.bearer.reveal(), back);
        assert!(reply.head.contains("location: ./\r\n"), "{back}: {reply:?}");
    }
}

#[test]
fn a_session_ends_with_its_access_token() {
    let fixture = SecurityFixture::new();
    let token = fixture.token(None, &[Scope::LeaseRead]);
    let browser = Browser::logged_in(&fixture, &token);
    browser.page("/leases");
    fixture.revoke(&token);
    eventually("the session is over", || browser.get("/leases").status == 303);
    let sent = browser.get("/leases");
    assert!(sent.head.contains("location: login?back=leases&ended=yes"), "{sent:?}");
    assert!(browser.page("/login?ended=yes").contains("your session has ended"));
    let live = browser.get("/live");
    assert_eq!((live.status, live.kind()), (401, "unauthorized"), "{live:?}");
}

#[test]
fn a_form_that_no_page_of_the_session_made_changes_nothing() {
    let fixture = SecurityFixture::new();
    let operator = fixture.operator();
    fixture.acquire(&operator, "k", 1, 30_000);
    let browser = Browser::logged_in(&fixture, &operator);
    let page = browser.page("/lease?key=k");
    let form = super::browser::form_of(&page, "revoke-lease").unwrap();
    let fine = super::browser::hidden_fields(form)[0].1.clone();
    assert_eq!(fine.len(), 64);
    let other = fixture.operator();
    let of_other = Browser::logged_in(&fixture, &other).page("/lease?key=k");
    let of_other = super::browser::hidden_fields(super::browser::form_of(&of_other, "revoke-lease").unwrap())
        [0]
    .1
    .clone();
    let post = |headers: &str, form_token: &str| {
        let fields = [
            ("form_token", form_token),
            ("key", "k"),
            ("token", "1"),
            ("reason", "forged"),
            ("confirm", "yes"),
        ];
        browser.send_form("/revoke-lease", headers, &fields).status
    };
    for (headers, form_token) in [
        ("origin: http://site.example\r\nsec-fetch-site: cross-site\r\n", fine.as_str()),
        ("origin: http://localhost:7117\r\nsec-fetch-site: same-site\r\n", &fine),
        ("origin: http://localhost:3000\r\n", &fine),
        ("origin: null\r\n", &fine),
        ("", &fine),
        (SAME_ORIGIN, ""),
        (SAME_ORIGIN, "0000"),
        (SAME_ORIGIN, &of_other),
    ] {
        assert_eq!(post(headers, form_token), 403, "{headers} {form_token}");
    }
    for path in ["/login", "/logout", "/theme"] {
        let forged = browser.send_form(path, "sec-fetch-site: cross-site\r\n", &[("access_token", "x")]);
        assert_eq!(forged.status, 403, "{path}: {forged:?}");
    }
    assert!(browser.page("/lease?key=k").contains("time left"), "it was revoked");
    assert_eq!(post(SAME_ORIGIN, &fine), 303, "the same form is fine from a page of ours");
}

#[test]
fn an_open_server_shows_its_pages_under_no_foreign_name() {
    let fixture = SecurityFixture::open(ServerOptions::default());
    let browser = Browser::new(&fixture);
    for path in ["/", "/leases", "/live", "/access-tokens"] {
        let reply = hear(browser.send("GET", path, "host: rebound.example\r\n", ""));
        assert_eq!(reply.status, 403, "{path}: {reply:?}");
        assert!(!reply.body.contains("form_token"), "{path}: {reply:?}");
    }
    let headers =
        "host: rebound.example\r\norigin: http://rebound.example\r\nsec-fetch-site: same-origin\r\n";
    let fields = [("key", "k"), ("token", "1"), ("by", "x"), ("reason", "x"), ("confirm", "yes")];
    assert_eq!(browser.send_form("/revoke-lease", headers, &fields).status, 403);
    // There is nothing to log in to.
    assert_eq!(browser.get("/login").status, 303);
}

#[test]
fn a_theme_is_chosen_without_a_script() {
    let fixture = SecurityFixture::open(ServerOptions::default());
    let mut browser = Browser::new(&fixture);
    assert!(browser.page("/").contains("data-theme=\"system\""));
    let page = browser.page("/leases?prefix=a");
    let reply = browser.submit(&page, "theme", &[("theme", "dark")]);
    assert!(reply.status == 303 && reply.head.contains("location: leases?prefix=a"), "{reply:?}");
    browser.cookie = Some("fencehold_theme=dark".to_owned());
    let page = browser.page("/");
    assert!(page.contains("data-theme=\"dark\""));
    assert!(attributes(&page, "aria-pressed").contains(&"true"), "{page}");
}
