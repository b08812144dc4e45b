//! What a person does on the pages: looks for what crashed, waits for news, revokes, retries; with a pointer, by keys alone, without scripts.

use fencehold_test_servers::chromium::{CONTROL, ENTER, PLAIN_HOST, SPACE, TAB, in_browser};
use serde_json::json;

use super::scene::Scene;
use super::{log_in, origin};
use crate::security::fixture::{SecurityFixture, hold};

/// How many jobs have failed: more than a page of a list, a step of a change and a page of the API.
const FAILED: usize = 1_203;

#[test]
fn a_newcomer_finds_who_crashed_last_what_it_held_and_who_took_over() {
    let fixture = SecurityFixture::new();
    let scene = Scene::arrange(&fixture);
    in_browser("newcomer", |browser| {
        let origin = origin(&fixture);
        log_in(browser, &origin, &scene.operator);
        // The front page names the worker that was lost last.
        browser.click(".lost a.owner");
        browser.reads("Worker biller-1");
        browser.reads("What it lost, and who took over");
        let text = browser.text();
        assert!(text.contains("crashed") && text.contains("biller-2"), "{text}");
        // What it held, who had that next, and under which token.
        browser.click("main table a.name.mono");
        browser.reads("Job ");
        let url = browser.url();
        assert!(url.ends_with(&scene.crashed_job), "{url}");
        let rows = browser.script(
            "return [...document.querySelectorAll('main table.list tbody tr')].slice(0, 2).map(row => row.innerText.replace(/\\s+/g, ' '))",
        );
        let row = |nth: usize| rows[nth].as_str().unwrap().to_owned();
        assert!(row(0).contains("biller-2") && row(0).contains("running"), "{rows}");
        assert!(row(1).contains("biller-1") && row(1).contains("crashed"), "{rows}");
        let token = |nth: usize| {
            row(nth)
                .split(' ')
                .next()
                .unwrap()
                .trim_start_matches('#')
                .parse::<u64>()
                .unwrap()
        };
        assert!(token(0) > token(1), "{rows}");
        browser.was_clean(&origin, &[]);
    });
}

#[test]
fn an_open_page_shows_what_happens_without_being_loaded_again() {
    let fixture = SecurityFixture::new();
    let operator = fixture.operator();
    in_browser("live", |browser| {
        let origin = origin(&fixture);
        log_in(browser, &origin, &operator);
        browser.open(&format!("{origin}/leases"));
        browser.until("that it is live", || browser.has("#live[data-state=live]"));
        browser.script("window.isTheSamePage = true");
        fixture.acquire(&operator, "reports/daily", 1, 30_000);
        browser.reads("reports/daily");
        assert_eq!(browser.script("return window.isTheSamePage"), json!(true));
        browser.was_clean(&origin, &[]);
    });
}

#[test]
fn a_hold_is_revoked_with_a_reason_that_the_audit_shows() {
    let fixture = SecurityFixture::new();
    let operator = fixture.operator();
    fixture.acquire(&operator, "deploy", 1, 30_000);
    in_browser("revoke", |browser| {
        let origin = origin(&fixture);
        log_in(browser, &origin, &operator);
        browser.follow("Leases");
        browser.follow("deploy");
        browser.click("#revoke summary");
        browser.write("input[name=reason]", "wrong branch");
        browser.click("input[name=confirm]");
        browser.picture("revoke-light");
        browser.click("button.danger");
        browser.reads("The hold was ended by force");
        browser.follow("Audit");
        browser.reads("wrong branch");
        browser.reads("key deploy, token 1");
        browser.was_clean(&origin, &[]);
    });
}

/// Makes this many jobs that have failed.
fn fail_jobs(scene: &SecurityFixture, token: &crate::security::fixture::TestToken, count: usize) {
    let post = |path: &str, body: serde_json::Value| {
        let said = scene.post(token, path, body);
        assert_eq!(said.status, 200, "{said:?}");
        said.json
    };
    let job = json!({ "queue": "emails", "kind": "welcome", "options": { "max_failures": 1 } });
    post("/v1/jobs/enqueue-batch", json!({ "jobs": vec![job; count] }));
    let claim = json!({ "queues": [{ "queue": "emails" }], "limit": count, "hold_id": hold(9), "owner": "mailer", "ttl_ms": 60_000 });
    let claimed = post("/v1/jobs/claim", claim);
    let jobs = claimed["jobs"].as_array().unwrap();
    assert_eq!(jobs.len(), count);
    let report = json!({ "type": "fail", "error": "no", "permanent": true });
    let reports = jobs.iter().map(
        |job| json!({ "job_id": job["id"], "hold_id": hold(9), "token": job["token"], "report": report }),
    );
    post("/v1/jobs/report-batch", json!({ "reports": reports.collect::<Vec<_>>() }));
}

#[test]
fn all_failed_jobs_of_a_queue_are_retried_beyond_one_page() {
    let fixture = SecurityFixture::new();
    let operator = fixture.operator();
    fail_jobs(&fixture, &operator, FAILED);
    let job = json!({ "queue": "others", "kind": "welcome" });
    assert_eq!(fixture.post(&operator, "/v1/jobs/enqueue", job).status, 200);
    in_browser("retry-all", |browser| {
        let origin = origin(&fixture);
        log_in(browser, &origin, &operator);
        browser.follow("Queues");
        browser.follow("1,203");
        browser.follow("Act on all that match…");
        browser.reads("1,203 jobs match");
        browser.click("#retry summary");
        browser.click("#retry input[name=confirm]");
        browser.picture("retry-all-light");
        browser.click("#retry button");
        browser.reads("1,203 jobs were retried");
        browser.picture("retried-all-light");
        let count = |queue: &str| {
            let path = format!("/v1/queues/get?queue={queue}");
            fixture.ask(&operator, "GET", &path, None).json["job_counts"].clone()
        };
        assert_eq!((&count("emails")["queued"], &count("emails")["failed"]), (&json!(FAILED), &json!(0)));
        assert_eq!(count("others")["queued"], json!(1), "what does not match is left alone");
        browser.was_clean(&origin, &[]);
    });
}

#[test]
fn everything_can_be_reached_and_done_by_keys_alone() {
    let fixture = SecurityFixture::new();
    let operator = fixture.operator();
    fixture.acquire(&operator, "deploy", 1, 30_000);
    in_browser("keys", |browser| {
        let origin = origin(&fixture);
        log_in(browser, &origin, &operator);
        browser.open(&format!("{origin}/lease?key=deploy"));
        let focused = || {
            let element = "const e = document.activeElement; const s = getComputedStyle(e);";
            browser.script(&format!(
                "{element} return [e.innerText || e.name || '', s.outlineStyle !== 'none' && parseFloat(s.outlineWidth) >= 2]"
            ))
        };
        let go_to = |name: &str| {
            for _ in 0..60 {
                browser.press(&[TAB]);
                let found = focused();
                assert_eq!(found[1], json!(true), "the focus cannot be seen: {found}");
                if found[0].as_str().is_some_and(|text| text.contains(name)) {
                    return;
                }
            }
            panic!("no {name:?} is reached");
        };
        go_to("Skip to the content");
        browser.press(&[ENTER]);
        go_to("Revoke…");
        browser.press(&[ENTER]);
        go_to("reason");
        for key in ["b", "y", SPACE, "k", "e", "y"] {
            browser.press(&[key]);
        }
        go_to("confirm");
        browser.press(&[SPACE]);
        go_to("Revoke token");
        browser.press(&[ENTER]);
        browser.reads("The hold was ended by force");
        browser.reads("by key");
        browser.was_clean(&origin, &[]);
    });
}

#[test]
fn it_works_without_javascript() {
    let fixture = SecurityFixture::new();
    let scene = Scene::arrange(&fixture);
    in_browser("no-scripts", |browser| {
        browser.set_scripts(false);
        let origin = origin(&fixture);
        log_in(browser, &origin, &scene.operator);
        assert!(browser.has("#live[data-state=off]"), "a script runs");
        browser.follow("Leases");
        browser.follow("gpu/0");
        browser.click("#revoke summary");
        browser.write("input[name=reason]", "by hand");
        browser.click("input[name=confirm]");
        browser.click("button.danger");
        browser.reads("The hold was ended by force");
        // A change of all that match goes on by hand.
        fail_jobs(&fixture, &scene.operator, 700);
        browser.open(&format!("{origin}/matching-jobs?queue=emails&state=failed&kind=welcome"));
        browser.click("#retry summary");
        browser.click("#retry input[name=confirm]");
        browser.click("#retry button");
        browser.reads("500 of 702");
        browser.picture("go-on-light");
        browser.click("form[data-continue] button");
        browser.reads("702 jobs were retried");
        browser.was_clean(&origin, &[]);
    });
}

/// Without TLS a browser keeps its clipboard from scripts.
#[test]
fn a_command_is_copied_over_plain_http() {
    let fixture = SecurityFixture::new();
    let operator = fixture.operator();
    in_browser("copy", |browser| {
        let origin = format!("http://{PLAIN_HOST}:{}", fixture.address.port());
        log_in(browser, &origin, &operator);
        browser.open(&format!("{origin}/leases"));
        assert_eq!(browser.script("return window.isSecureContext"), json!(false));
        browser.click("button.copied");
        browser.reads("Copied");
        browser.click("input[name=prefix]");
        browser.press(&[CONTROL, "v"]);
        let pasted = browser.script("return document.querySelector('input[name=prefix]').value");
        assert_eq!(pasted, json!("fencehold run --key demo -- sleep 60"));
        // The browser says of this header that it is for TLS.
        browser.was_clean(&origin, &["Cross-Origin-Opener-Policy"]);
    });
}
