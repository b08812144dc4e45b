//! Forms that change something.

use fencehold_server::ServerOptions;
use fencehold_server::access::Scope;
use serde_json::json;

use super::browser::{Browser, SAME_ORIGIN, form_of, hidden_fields};
use crate::security::fixture::{SecurityFixture, TestToken, held};

fn enqueue(fixture: &SecurityFixture, token: &TestToken) -> String {
    let said = fixture.post(token, "/v1/jobs/enqueue", json!({ "queue": "emails", "kind": "welcome" }));
    assert_eq!(said.status, 200, "{said:?}");
    said.json["job_id"].as_str().unwrap().to_owned()
}

#[test]
fn a_hold_is_revoked_with_a_reason_and_the_audit_says_so() {
    let fixture = SecurityFixture::new();
    let operator = fixture.operator();
    fixture.acquire(&operator, "deploy/<b>", 1, 30_000);
    let browser = Browser::logged_in(&fixture, &operator);
    let page = browser.page("/lease?key=deploy%2F%3Cb%3E");
    let unconfirmed = browser.submit(&page, "revoke-lease", &[("reason", "wrong branch")]);
    assert_eq!(unconfirmed.status, 400, "{unconfirmed:?}");
    let no_reason = browser.submit(&page, "revoke-lease", &[("confirm", "yes")]);
    assert_eq!(no_reason.status, 400, "{no_reason:?}");
    let done = browser.submit(&page, "revoke-lease", &[("reason", "wrong branch"), ("confirm", "yes")]);
    assert_eq!(done.status, 303, "{done:?}");
    let after = browser.page("/lease?key=deploy%2F%3Cb%3E&done=revoked");
    assert!(after.contains("revoked") && after.contains("wrong branch"), "{after}");
    let audit = browser.page("/audit");
    for text in ["revoke_lease", "key deploy/&lt;b&gt;, token 1", "wrong branch (by token-1)"] {
        assert!(audit.contains(text), "no {text} in {audit}");
    }
}

/// What the page showed is what is ended, and nothing that came after it.
#[test]
fn a_hold_that_came_later_is_not_revoked() {
    let fixture = SecurityFixture::new();
    let operator = fixture.operator();
    fixture.acquire(&operator, "k", 1, 30_000);
    let browser = Browser::logged_in(&fixture, &operator);
    let page = browser.page("/lease?key=k");
    assert_eq!(fixture.post(&operator, "/v1/leases/release", held("k", 1, 1)).status, 200);
    fixture.acquire(&operator, "k", 2, 30_000);
    let late = browser.submit(&page, "revoke-lease", &[("reason", "late"), ("confirm", "yes")]);
    assert_eq!(late.status, 409, "{late:?}");
    fixture.renews(&operator, "k", 2, 2);
}

#[test]
fn what_a_token_may_not_do_is_not_offered_and_is_refused_when_forged() {
    let fixture = SecurityFixture::new();
    let operator = fixture.operator();
    fixture.acquire(&operator, "k", 1, 30_000);
    let id = enqueue(&fixture, &operator);
    let reader = fixture.token(None, &[Scope::LeaseRead, Scope::JobRead]);
    let browser = Browser::logged_in(&fixture, &reader);
    for path in ["/lease?key=k", &format!("/job?id={id}"), "/queues"] {
        let page = browser.page(path);
        assert!(!page.contains("form_token"), "{path} offers an action: {page}");
    }
    let form_token = own_form_token(&reader);
    for (path, fields) in [
        ("/revoke-lease", vec![("key", "k"), ("token", "1"), ("reason", "x")]),
        ("/cancel-job", vec![("id", id.as_str()), ("reason", "x")]),
        ("/retry-job", vec![("id", id.as_str())]),
        ("/delete-job", vec![("id", id.as_str())]),
        ("/change-jobs", vec![("action", "retry"), ("total", "1"), ("queue", "emails")]),
        ("/revoke-leases", vec![("prefix", "k"), ("reason", "x")]),
        ("/set-queue-mode", vec![("queue", "emails"), ("mode", "paused")]),
        ("/create-access-token", vec![("name", "x"), ("scope", "admin")]),
    ] {
        let all: Vec<(&str, &str)> = fields
            .into_iter()
            .chain([("form_token", form_token.as_str()), ("confirm", "yes")])
            .collect();
        let forged = browser.send_form(path, SAME_ORIGIN, &all);
        assert_eq!(forged.status, 403, "{path}: {forged:?}");
        assert!(forged.body.contains("this needs a token with the scope"), "{path}: {forged:?}");
    }
    fixture.renews(&operator, "k", 1, 1);
    assert!(Browser::logged_in(&fixture, &operator).page("/audit").contains("denied"));
}

/// What a form of this token's session carries.
fn own_form_token(token: &TestToken) -> String {
    use sha2::Digest as _;
    let mut hash = sha2::Sha256::new();
    hash.update(b"fencehold dashboard form\n");
    hash.update(format!("Bearer {}", token.bearer.reveal()));
    hash.finalize()
        .iter()
        .fold(String::new(), |text, byte| format!("{text}{byte:02x}"))
}

#[test]
fn a_job_is_cancelled_and_starts_over() {
    let fixture = SecurityFixture::new();
    let operator = fixture.operator();
    let id = enqueue(&fixture, &operator);
    let browser = Browser::logged_in(&fixture, &operator);
    let path = format!("/job?id={id}");
    let state = || fixture.ask(&operator, "GET", &format!("/v1/jobs/{id}"), None).json["state"].clone();
    let page = browser.page(&path);
    let done = browser.submit(&page, "cancel-job", &[("reason", "not needed"), ("confirm", "yes")]);
    assert_eq!((done.status, state()), (303, json!("cancelled")), "{done:?}");
    let page = browser.page(&path);
    assert!(form_of(&page, "cancel-job").is_none(), "{page}");
    let done = browser.submit(&page, "retry-job", &[]);
    assert_eq!((done.status, state()), (303, json!("queued")), "{done:?}");
    assert!(browser.page("/audit").contains("not needed (by token-1)"));
}

#[test]
fn a_job_is_deleted_once_that_is_confirmed() {
    let fixture = SecurityFixture::new();
    let operator = fixture.operator();
    let id = enqueue(&fixture, &operator);
    let browser = Browser::logged_in(&fixture, &operator);
    let page = browser.page(&format!("/job?id={id}"));
    let status = || fixture.ask(&operator, "GET", &format!("/v1/jobs/{id}"), None).status;
    assert_eq!((browser.submit(&page, "delete-job", &[]).status, status()), (400, 200));
    assert_eq!((browser.submit(&page, "delete-job", &[("confirm", "yes")]).status, status()), (303, 404));
}

#[test]
fn all_jobs_that_match_are_changed_once_that_is_confirmed_and_no_others() {
    let fixture = SecurityFixture::new();
    let operator = fixture.operator();
    let ids = [0, 1, 2].map(|_| enqueue(&fixture, &operator));
    let other = json!({ "queue": "reports", "kind": "daily" });
    assert_eq!(fixture.post(&operator, "/v1/jobs/enqueue", other).status, 200);
    let browser = Browser::logged_in(&fixture, &operator);
    let page = browser.page("/matching-jobs?queue=emails&state=queued");
    assert!(page.contains("3 jobs"), "{page}");
    let (_, cancel) = page.split_once("<details class=\"act\" id=\"cancel\">").unwrap();
    let unconfirmed = browser.submit(cancel, "change-jobs", &[("reason", "not needed")]);
    assert_eq!(unconfirmed.status, 400, "{unconfirmed:?}");
    let done = browser.submit(cancel, "change-jobs", &[("reason", "not needed"), ("confirm", "yes")]);
    assert!(done.status == 200 && done.body.contains("3 jobs were cancelled"), "{done:?}");
    for id in ids {
        let job = fixture.ask(&operator, "GET", &format!("/v1/jobs/{id}"), None).json;
        assert_eq!(job["state"], "cancelled");
    }
    let counts = fixture.ask(&operator, "GET", "/v1/queues/get?queue=reports", None).json;
    assert_eq!(counts["job_counts"]["queued"], 1, "{counts}");
}

#[test]
fn all_leases_that_match_are_revoked_with_a_reason_and_no_others() {
    let fixture = SecurityFixture::new();
    let operator = fixture.operator();
    for (key, hold) in [("gpu/0", 1), ("gpu/1", 2), ("deploy", 3)] {
        fixture.acquire(&operator, key, hold, 30_000);
    }
    let browser = Browser::logged_in(&fixture, &operator);
    for query in ["", "?prefix=gpu%2F&owner=tester"] {
        let unclear = browser.get(&format!("/matching-leases{query}"));
        assert!(unclear.status == 400 && unclear.body.contains("name exactly one"), "{query}: {unclear:?}");
    }
    let page = browser.page("/matching-leases?prefix=gpu%2F");
    assert!(page.contains("Revoke 2 holds"), "{page}");
    assert_eq!(browser.submit(&page, "revoke-leases", &[("reason", "fire drill")]).status, 400);
    let done = browser.submit(&page, "revoke-leases", &[("reason", "fire drill"), ("confirm", "yes")]);
    assert!(done.status == 200 && done.body.contains("2 holds were ended"), "{done:?}");
    fixture.renews(&operator, "deploy", 3, 1);
    assert!(browser.page("/lease?key=gpu%2F0").contains("fire drill"));
    assert!(browser.page("/audit").contains("fire drill"));
}

#[test]
fn a_queue_is_paused_and_resumed() {
    let fixture = SecurityFixture::new();
    let operator = fixture.operator();
    enqueue(&fixture, &operator);
    let browser = Browser::logged_in(&fixture, &operator);
    for mode in ["paused", "draining", "open"] {
        let done = browser.submit(&browser.page("/queues"), "set-queue-mode", &[("mode", mode)]);
        assert_eq!(done.status, 303, "{done:?}");
        let said = fixture.ask(&operator, "GET", "/v1/queues/get?queue=emails", None);
        assert_eq!(said.json["mode"], mode, "{said:?}");
    }
}

#[test]
fn an_access_token_is_shown_once_and_is_revoked() {
    let fixture = SecurityFixture::new();
    let operator = fixture.operator();
    let browser = Browser::logged_in(&fixture, &operator);
    let page = browser.page("/access-tokens");
    let fields = [("name", "new-one"), ("scope", "lease:read"), ("scope", "job:read"), ("expires", "1d")];
    let made = browser.submit(&page, "create-access-token", &fields);
    assert_eq!(made.status, 200, "{made:?}");
    let (_, shown) = made.body.split_once("<code class=\"copy\">fencehold_").unwrap();
    let shown = format!("fencehold_{}", shown.split('<').next().unwrap());
    let mut other = Browser::new(&fixture);
    assert_eq!(other.log_in(&shown, "").status, 303);
    other.page("/leases");
    let list = browser.page("/access-tokens");
    assert!(list.contains("new-one") && !list.contains(&shown), "{list}");
    let id = shown.split('_').nth(1).unwrap();
    let (_, row) = list.split_once(&format!("id=\"revoke-{id}\"")).unwrap();
    let revoked =
        browser.submit(row, "revoke-access-token", &[("reason", "found in a log"), ("confirm", "yes")]);
    assert_eq!(revoked.status, 303, "{revoked:?}");
    assert_eq!(other.get("/leases").status, 303, "it is still let in");
}

/// Without access tokens, the person who acts says who that is.
#[test]
fn on_an_open_server_a_form_asks_for_a_name() {
    let fixture = SecurityFixture::open(ServerOptions::default());
    let browser = Browser::new(&fixture);
    let body = crate::security::fixture::acquire("k", 1, 30_000).to_string();
    let taken = crate::security::fixture::hear(browser.send(
        "POST",
        "/v1/leases/acquire",
        "content-type: application/json\r\n",
        &body,
    ));
    assert_eq!(taken.status, 200, "{taken:?}");
    let page = browser.page("/lease?key=k");
    let form = form_of(&page, "revoke-lease").unwrap();
    assert!(form.contains("name=\"by\"") && !hidden_fields(form).is_empty(), "{form}");
    let nameless = browser.submit(&page, "revoke-lease", &[("reason", "x"), ("confirm", "yes")]);
    assert_eq!(nameless.status, 400, "{nameless:?}");
    let done = browser.submit(&page, "revoke-lease", &[("by", "ada"), ("reason", "x"), ("confirm", "yes")]);
    assert_eq!(done.status, 303, "{done:?}");
    assert!(browser.page("/lease?key=k").contains("by <bdi>ada</bdi>"));
}
