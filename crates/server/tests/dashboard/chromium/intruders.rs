//! What must not get in: wrong tokens, sessions that are over, other sites, texts that want to be more than text.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;

use fencehold_server::ServerOptions;
use fencehold_server::access::Scope;
use fencehold_test_servers::chromium::{FOREIGN_HOST, in_browser};
use serde_json::{Value, json};

use super::{log_in, origin};
use crate::dashboard::browser::Browser;
use crate::security::fixture::{SecurityFixture, acquire, hear, hold};

#[test]
fn a_wrong_token_is_refused_and_a_missing_scope_is_named() {
    let fixture = SecurityFixture::new();
    let operator = fixture.operator();
    fixture.acquire(&operator, "deploy", 1, 30_000);
    let reader = fixture.token(None, &[Scope::LeaseRead]);
    in_browser("log-in", |browser| {
        let origin = origin(&fixture);
        browser.open(&format!("{origin}/lease?key=deploy"));
        let wrong = reader.bearer.reveal().replace("fencehold_0", "fencehold_f");
        browser.write("input[name=access_token]", &wrong);
        browser.click("button.primary");
        browser.until("the refusal", || browser.has("[role=alert]"));
        browser.picture("wrong-token-light");
        browser.write("input[name=access_token]", &reader.bearer.reveal());
        browser.click("button.primary");
        // It leads to where the person wanted to go.
        browser.reads("Lease deploy");
        assert!(!browser.has("#revoke"), "what the token may not do is offered");
        browser.open(&format!("{origin}/jobs"));
        browser.reads("this needs a token with");
        browser.picture("missing-scope-light");
        browser.was_clean(&origin, &["401 (Unauthorized)", "403 (Forbidden)"]);
    });
}

#[test]
fn a_page_whose_token_is_revoked_meanwhile_goes_to_the_log_in_by_itself() {
    let fixture = SecurityFixture::new();
    let operator = fixture.operator();
    let reader = fixture.token(None, &[Scope::LeaseRead]);
    in_browser("session-ends", |browser| {
        let origin = origin(&fixture);
        log_in(browser, &origin, &reader);
        browser.open(&format!("{origin}/leases"));
        browser.until("that it is live", || browser.has("#live[data-state=live]"));
        fixture.revoke(&reader);
        // Something happens that this session no longer learns of.
        fixture.acquire(&operator, "secret/plans", 1, 30_000);
        browser.reads("your session has ended");
        assert!(!browser.text().contains("secret/plans"));
        browser.was_clean(&origin, &["401 (Unauthorized)"]);
    });
}

#[test]
fn texts_of_callers_stay_texts() {
    let fixture = SecurityFixture::new();
    let operator = fixture.operator();
    let hostile = "<script>window.isOwned=1</script><img src=x onerror=window.isOwned=1>\u{202e}\"'";
    let mut request = acquire(hostile, 1, 30_000);
    request["owner"] = json!(hostile);
    request["task"] = json!(hostile);
    assert_eq!(fixture.post(&operator, "/v1/leases/acquire", request).status, 200);
    // The overview shows keys that callers contend for.
    let mut refused = acquire(hostile, 2, 30_000);
    refused["owner"] = json!(hostile);
    assert_eq!(fixture.post(&operator, "/v1/leases/acquire", refused).status, 409);
    let job = json!({ "queue": "q", "kind": "<b>k</b>", "payload": { hostile: hostile }, "labels": { "<i>": hostile } });
    let said = fixture.post(&operator, "/v1/jobs/enqueue", job);
    assert_eq!(said.status, 200, "{said:?}");
    let id = said.json["job_id"].as_str().unwrap().to_owned();
    let claim = json!({ "queues": [{ "queue": "q" }], "limit": 1, "hold_id": hold(9), "owner": hostile, "ttl_ms": 30_000 });
    assert_eq!(fixture.post(&operator, "/v1/jobs/claim", claim).status, 200);
    in_browser("hostile", |browser| {
        let origin = origin(&fixture);
        log_in(browser, &origin, &operator);
        let of = |name: &str| serde_html_form::to_string([(name, hostile)]).unwrap();
        for path in [
            "/".to_owned(),
            "/leases".to_owned(),
            format!("/lease?{}", of("key")),
            format!("/leases?{}", of("prefix")),
            format!("/matching-leases?{}", of("owner")),
            "/workers".to_owned(),
            format!("/worker?{}", of("owner")),
            "/jobs".to_owned(),
            format!("/jobs?{}", of("payload")),
            format!("/job?id={id}"),
        ] {
            browser.open(&format!("{origin}{path}"));
            let found = browser.script(
                "return [window.isOwned === undefined, document.querySelector('main script, main img, main b, main i') === null, \
                 !document.body.innerText.includes('\\u202e'), document.title.includes('\\u202e')]",
            );
            assert_eq!(found, json!([true, true, true, false]), "{path}");
        }
        browser.reads("U+202E");
        browser.picture("hostile-light");
        browser.was_clean(&origin, &[]);
    });
}

/// A site on this machine that shows a page.
fn another_site(page: String) -> (std::net::SocketAddr, std::thread::JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let serving = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut head = [0; 4_096];
        let _ = stream.read(&mut head).unwrap();
        let length = page.len();
        write!(stream, "HTTP/1.1 200 OK\r\ncontent-type: text/html\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n{page}").unwrap();
    });
    (address, serving)
}

/// Without access tokens there is no cookie that the browser could keep back: only the server can tell.
#[test]
fn a_form_of_another_site_changes_nothing() {
    let fixture = SecurityFixture::open(ServerOptions::default());
    let programs = Browser::new(&fixture);
    let body = acquire("deploy", 1, 30_000).to_string();
    let taken =
        hear(programs.send("POST", "/v1/leases/acquire", "content-type: application/json\r\n", &body));
    assert_eq!(taken.status, 200, "{taken:?}");
    let origin = origin(&fixture);
    let page = format!(
        "<form method=post action='{origin}/revoke-lease'><input name=key value=deploy><input name=token value=1><input name=by value=x>\
         <input name=reason value=x><input name=confirm value=yes><button>win a prize</button></form>"
    );
    let (address, serving) = another_site(page);
    in_browser("another-site", |browser| {
        let site = format!("http://localhost:{}/", address.port());
        browser.open(&site);
        browser.click("button");
        browser.until("the refusal", || browser.url().starts_with(&origin));
        let text = browser.text();
        assert!(text.contains("another origin") || text.contains("was not sent by a page"), "{text}");
        let view = programs.get("/v1/leases/get?key=deploy").json;
        assert_eq!(view["holder"]["owner"], json!("tester"), "it was revoked");
    });
    serving.join().unwrap();
}

#[test]
fn an_open_server_shows_nothing_under_the_name_of_another_site() {
    let fixture = SecurityFixture::open(ServerOptions::default());
    in_browser("foreign-host", |browser| {
        browser.open(&format!("http://{FOREIGN_HOST}:{}/", fixture.address.port()));
        let text = browser.text();
        assert!(text.contains("not a name of this machine") && !text.contains("Overview"), "{text}");
        let read = browser.script_until_called(
            "const done = arguments[arguments.length - 1]; fetch('/v1/leases').then(reply => done(reply.status), () => done('failed'))",
        );
        assert!(read == json!(403) || read == json!("failed"), "{read}");
    });
}

#[test]
fn payloads_are_hidden_from_those_who_may_only_look() {
    let fixture = SecurityFixture::new();
    let operator = fixture.operator();
    let job = json!({ "queue": "emails", "kind": "welcome", "payload": { "to": "ada@example.org" } });
    let id: Value = fixture.post(&operator, "/v1/jobs/enqueue", job).json["job_id"].clone();
    let path = format!("/job?id={}", id.as_str().unwrap());
    let reader = fixture.token(None, &[Scope::JobRead]);
    in_browser("payloads", |browser| {
        let origin = origin(&fixture);
        log_in(browser, &origin, &operator);
        browser.open(&format!("{origin}{path}"));
        browser.reads("ada@example.org");
        browser.click("#settings summary");
        browser.click("form[action=logout] button");
        browser.until("the log-in", || browser.has("input[name=access_token]"));
        log_in(browser, &origin, &reader);
        browser.open(&format!("{origin}{path}"));
        browser.reads("need an access token with the scope job:payload");
        assert!(!browser.text().contains("ada@example.org"));
        browser.open(&format!("{origin}/jobs"));
        browser.reads("welcome");
        assert!(!browser.has("input[name=payload]"), "a search tells what is in them");
        browser.open(&format!("{origin}/jobs?payload=ada"));
        assert!(!browser.text().contains("welcome"), "a search tells what is in them");
        browser.was_clean(&origin, &["403 (Forbidden)"]);
    });
}
