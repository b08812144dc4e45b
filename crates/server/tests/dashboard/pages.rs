//! Every page, with and without something to show.

use fencehold_server::ServerOptions;
use fencehold_server::access::Scope;
use serde_json::{Value, json};

use super::browser::{Browser, attributes};
use crate::security::fixture::{SecurityFixture, TestToken, acquire, held, hold};

const PAGES: [&str; 14] = [
    "/",
    "/leases",
    "/lease?key=reports%2Fdaily",
    "/queues",
    "/jobs",
    "/jobs?state=failed&state=running&queue=emails&label=a%3Db",
    "/matching-leases?prefix=reports%2F",
    "/matching-jobs?state=failed&queue=emails",
    "/workers",
    "/worker?owner=worker-7",
    "/schedules",
    "/effects",
    "/audit",
    "/access-tokens",
];

fn operator(fixture: &SecurityFixture) -> (TestToken, Browser<'_>) {
    let token = fixture.operator();
    let browser = Browser::logged_in(fixture, &token);
    (token, browser)
}

/// Something on every page. The id of a job that failed.
fn fill(fixture: &SecurityFixture, token: &TestToken) -> String {
    let post = |path: &str, body: Value| {
        let said = fixture.post(token, path, body);
        assert_eq!(said.status, 200, "{path}: {said:?}");
        said.json
    };
    fixture.acquire(token, "reports/daily", 1, 30_000);
    let refused = fixture.post(token, "/v1/leases/acquire", acquire("reports/daily", 2, 30_000));
    assert_eq!(refused.status, 409);
    post("/v1/leases/release", held("reports/daily", 1, 1));
    fixture.acquire(token, "reports/daily", 3, 30_000);
    let stale = json!({ "key": "reports/daily", "token": 1, "action": "write" });
    post("/v1/leases/report-blocked-write", stale);
    let options = json!({ "max_failures": 1 });
    let job = json!({
        "queue": "emails", "kind": "welcome", "payload": { "to": "ada@example.org" }, "options": options,
        "labels": { "customer": "7" },
    });
    let id = post("/v1/jobs/enqueue", job)["job_id"].as_str().unwrap().to_owned();
    let claim = json!({ "queues": [{ "queue": "emails" }], "limit": 1, "hold_id": hold(9), "owner": "worker-7", "ttl_ms": 30_000 });
    let claimed = post("/v1/jobs/claim", claim);
    let attempt = json!({
        "job_id": id, "hold_id": hold(9), "token": claimed["jobs"][0]["token"],
        "report": { "type": "fail", "error": "the mail server said no", "permanent": true },
    });
    post("/v1/jobs/report", attempt);
    let schedule =
        json!({ "name": "nightly", "cron": "0 6 * * *", "queue": "reports", "kind": "daily", "by": "ada" });
    post("/v1/schedules/set", schedule);
    id
}

/// What every page must be like, whatever it shows.
fn check(path: &str, browser: &Browser<'_>) -> String {
    let reply = browser.get(path);
    assert_eq!(reply.status, 200, "{path}: {reply:?}");
    for header in [
        "content-security-policy: default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; connect-src 'self'; \
         form-action 'self'; frame-ancestors 'none'; base-uri 'none'",
        "x-content-type-options: nosniff",
        "referrer-policy: same-origin",
        "cache-control: no-store",
        "content-type: text/html; charset=utf-8",
    ] {
        assert!(reply.head.contains(header), "{path}: {header} is missing in {}", reply.head);
    }
    let page = reply.body;
    assert!(page.len() < 300_000, "{path} has {} bytes", page.len());
    for forbidden in [" style=", "<style", " onclick", "javascript:", "http://", "https://"] {
        assert!(!page.contains(forbidden), "{path} has {forbidden}: {page}");
    }
    assert_eq!(page.matches("<script").count(), 1, "{path}: {page}");
    for name in ["href", "src", "action", "data-live"] {
        for url in attributes(&page, name) {
            assert!(!url.starts_with('/') && !url.contains("//"), "{path}: {name}={url} is not relative");
        }
    }
    page
}

#[test]
fn every_page_is_there_when_there_is_nothing_and_says_what_to_do() {
    let fixture = SecurityFixture::new();
    let (_, browser) = operator(&fixture);
    for path in PAGES {
        check(path, &browser);
    }
    assert!(browser.page("/leases").contains("fencehold run --key demo -- sleep 60"));
    assert!(browser.page("/jobs").contains("fencehold job enqueue"));
    assert!(browser.page("/lease?key=never").contains("It was never held"));
}

#[test]
fn every_page_shows_what_there_is() {
    let fixture = SecurityFixture::new();
    let (token, browser) = operator(&fixture);
    let id = fill(&fixture, &token);
    let job_path = format!("/job?id={id}");
    for path in PAGES.into_iter().chain([job_path.as_str()]) {
        check(path, &browser);
    }
    for (path, shown) in [
        ("/", vec!["reports/daily", "emails", "stale write refused", "token 2 is the newest", "welcome"]),
        ("/leases", vec!["reports/daily", "tester"]),
        ("/leases?prefix=rep&owner=tester", vec!["reports/daily"]),
        ("/queues", vec!["emails"]),
        ("/workers", vec!["tester", "worker-7"]),
        ("/worker?owner=tester", vec!["1 lease", "reports/daily", "<svg"]),
        ("/matching-jobs?state=failed&queue=emails", vec!["1 job", "Retry this job"]),
        ("/jobs?state=failed", vec!["welcome", "emails"]),
        (&job_path, vec!["the mail server said no", "worker-7", "ada@example.org", "customer", "<svg"]),
        ("/schedules", vec!["nightly", "0 6 * * *"]),
        ("/access-tokens", vec!["token-1"]),
    ] {
        let page = browser.page(path);
        for text in shown {
            assert!(page.contains(text), "{path}: no {text} in {page}");
        }
    }
    assert!(!browser.page("/leases?prefix=other").contains("reports/daily"));
}

#[test]
fn the_page_of_a_lease_shows_who_held_it_under_which_token_and_how_it_ended() {
    let fixture = SecurityFixture::new();
    let (token, browser) = operator(&fixture);
    fill(&fixture, &token);
    let page = browser.page("/lease?key=reports%2Fdaily");
    let (picture, table) = page.split_once("</svg></div>").unwrap();
    for title in [
        "token 1, tester: released",
        "token 2, tester: held now",
        "stale write under token 1 refused: the newest is 2",
        "acquisition by tester refused",
    ] {
        assert!(picture.contains(title), "no {title} in {picture}");
    }
    assert!(picture.contains(r#"class="bar released""#) && picture.contains(r#"class="bar running""#));
    for row in ["released", "held", "stale write under token 1 refused"] {
        assert!(table.contains(row), "no {row} in {table}");
    }
}

#[test]
fn the_overview_says_whose_stale_write_was_refused_and_who_had_taken_over() {
    let fixture = SecurityFixture::new();
    let (token, browser) = operator(&fixture);
    fill(&fixture, &token);
    // One that came too late for the release of its own holder: it is kept as an event, and did no harm to anyone.
    let crossed = json!({ "holds": [held("reports/daily", 1, 1)] });
    fixture.post(&token, "/v1/leases/renew-batch", crossed);
    let page = browser.page("/");
    let rows: Vec<&str> = page.split("<tr>").filter(|row| row.contains("stale write refused")).collect();
    let [row] = rows.as_slice() else { panic!("{rows:?}") };
    let workers: Vec<&str> = row.split("worker?owner=").skip(1).collect();
    assert!(workers.len() == 2 && workers.iter().all(|link| link.starts_with("tester")), "{row}");
    let taken_over = workers[1];
    assert!(taken_over.contains(r#"<span class="token">2</span></td></tr>"#), "{row}");
    let lease = browser.page("/lease?key=reports%2Fdaily");
    assert!(lease.contains("stale renewal under token 1 refused"), "{lease}");
}

#[test]
fn hostile_texts_are_harmless_and_visible() {
    let fixture = SecurityFixture::new();
    let (token, browser) = operator(&fixture);
    let key = "<script>alert(1)</script>\u{202e}\"'&";
    fixture.acquire(&token, key, 1, 30_000);
    let job = json!({ "kind": "<img src=x>", "queue": "\"><b>", "payload": "</pre><script>\u{2066}" });
    let said = fixture.post(&token, "/v1/jobs/enqueue", job);
    assert_eq!(said.status, 200, "{said:?}");
    let query = serde_html_form::to_string([("key", key)]).unwrap();
    let id = said.json["job_id"].as_str().unwrap();
    for path in ["/", "/leases", &format!("/lease?{query}"), "/jobs", &format!("/job?id={id}"), "/queues"] {
        let page = check(path, &browser);
        assert!(!page.contains("<img src=x") && !page.contains("\"><b>"), "{path}: {page}");
        // A form sends a text back as it is.
        let shown = attributes(&page, "value")
            .iter()
            .fold(page.clone(), |page, value| page.replace(value, ""));
        assert!(!shown.contains('\u{202e}') && !shown.contains('\u{2066}'), "{path}: {shown}");
    }
    let page = browser.page("/leases");
    assert!(page.contains("&lt;script&gt;alert(1)&lt;/script&gt;"), "{page}");
    assert!(page.contains("U+202E"), "{page}");
    assert!(
        page.contains(&format!("lease?{}", query.replace('&', "&amp;"))),
        "the link leads elsewhere: {page}"
    );
}

#[test]
fn a_full_page_stays_small_and_leads_to_the_next() {
    let fixture = SecurityFixture::new();
    let (token, browser) = operator(&fixture);
    for nth in 0..60_u8 {
        // As long as a key may be, and all of it escaped.
        let key = format!("{nth:03}{}", "\u{202e}".repeat(168));
        let mut request = acquire(&key, nth, 30_000);
        request["owner"] = json!("\u{202e}".repeat(80));
        request["task"] = json!("\u{2066}".repeat(80));
        let said = fixture.post(&token, "/v1/leases/acquire", request);
        assert_eq!(said.status, 200, "{said:?}");
    }
    let page = check("/leases", &browser);
    assert_eq!(page.matches("<tr><td>").count(), 50, "{page}");
    let next = attributes(&page, "href")
        .into_iter()
        .find(|url| url.contains("cursor="))
        .unwrap();
    let second = check(&format!("/{}", next.replace("&amp;", "&")), &browser);
    assert_eq!(second.matches("<tr><td>").count(), 10, "{second}");
}

#[test]
fn links_stay_in_the_namespace_of_the_url() {
    let fixture = SecurityFixture::new();
    let (_, browser) = operator(&fixture);
    let mut other = fixture.operator();
    other.in_namespace("team-a");
    fixture.acquire(&other, "only/here", 1, 30_000);
    assert!(!browser.page("/leases").contains("only/here"));
    let page = check("/leases?namespace=team-a", &browser);
    assert!(page.contains("only/here"));
    for url in attributes(&page, "href")
        .into_iter()
        .filter(|url| !url.starts_with("assets/") && !url.starts_with('#'))
    {
        assert!(url.contains("namespace=team-a"), "{url} leaves the namespace");
    }
}

#[test]
fn a_token_of_one_namespace_sees_no_other() {
    let fixture = SecurityFixture::new();
    let token = fixture.token(Some("team-a"), &[Scope::LeaseRead]);
    let browser = Browser::logged_in(&fixture, &token);
    browser.page("/leases");
    let denied = browser.get("/leases?namespace=team-b");
    assert_eq!(denied.status, 403, "{denied:?}");
    assert!(denied.body.contains("this token is not for the namespace team-b"), "{denied:?}");
}

#[test]
fn what_jobs_are_about_is_hidden_from_those_who_only_look() {
    let fixture = SecurityFixture::new();
    let operator = fixture.operator();
    let id = fill(&fixture, &operator);
    let path = format!("/job?id={id}");
    let reader = fixture.token(None, &[Scope::JobRead]);
    let page = Browser::logged_in(&fixture, &reader).page(&path);
    assert!(
        page.contains("need an access token with the scope job:payload") && !page.contains("ada@example.org"),
        "{page}"
    );
    let sees = fixture.token(None, &[Scope::JobRead, Scope::JobPayload]);
    assert!(Browser::logged_in(&fixture, &sees).page(&path).contains("ada@example.org"));
}

#[test]
fn the_overview_leaves_out_what_a_token_may_not_see_and_denies_nothing() {
    let fixture = SecurityFixture::new();
    let (operator, all) = operator(&fixture);
    fill(&fixture, &operator);
    let reader = fixture.token(None, &[Scope::MetricsRead]);
    let page = Browser::logged_in(&fixture, &reader).page("/");
    assert!(!page.contains("reports/daily") && !page.contains("emails"), "{page}");
    for path in ["leases", "jobs", "audit", "access-tokens"] {
        assert!(!page.contains(&format!("href=\"{path}\"")), "{path} is offered: {page}");
    }
    assert!(!all.page("/audit").contains("denied"));
}

#[test]
fn files_are_kept_by_browsers_and_have_their_hash_in_their_url() {
    let fixture = SecurityFixture::open(ServerOptions::default());
    let browser = Browser::new(&fixture);
    let page = browser.page("/");
    let urls = attributes(&page, "href").into_iter().chain(attributes(&page, "src"));
    let files: std::collections::BTreeSet<&str> = urls.filter(|url| url.starts_with("assets/")).collect();
    assert_eq!(files.len(), 3, "{files:?}");
    for url in files {
        let file = browser.get(&format!("/{url}"));
        assert_eq!(file.status, 200, "{url}");
        assert!(file.head.contains("immutable") && file.head.contains("nosniff"), "{file:?}");
        let hash = url.split('/').nth(1).unwrap();
        let again = format!("if-none-match: \"{hash}\"\r\n");
        let known = crate::security::fixture::hear(browser.send("GET", &format!("/{url}"), &again, ""));
        assert_eq!((known.status, known.body.as_str()), (304, ""), "{url}");
        let other = browser.get(&format!("/{}", url.replace(hash, "0000000000000000")));
        assert_eq!(other.status, 404, "{url}");
    }
}

#[test]
fn a_server_without_the_dashboard_has_nothing_at_its_paths() {
    let mut options = ServerOptions::default();
    options.dashboard = false;
    let fixture = SecurityFixture::open(options);
    for path in ["/", "/leases", "/login", "/live"] {
        let reply = Browser::new(&fixture).get(path);
        assert_eq!((reply.status, reply.kind()), (404, "path-not-found"), "{path}: {reply:?}");
    }
}
