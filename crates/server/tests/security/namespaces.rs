//! Namespaces are separate worlds (R34): nothing that is said in one tells of another.

use fencehold_server::audit::AuditFilter;
use serde_json::{Value, json};

use super::fixture::{HttpReply, SecurityFixture, acquire, eventually, held, hold};

/// What was said, but for what the caller itself named.
fn without(said: &HttpReply, names: &[&str]) -> (u16, String) {
    let text = names.iter().fold(said.body.clone(), |text, name| text.replace(name, "…"));
    (said.status, text)
}

#[test]
fn another_namespace_is_closed_whether_or_not_anything_is_there() {
    let fixture = SecurityFixture::new();
    let (here, there) = (fixture.admin("here"), fixture.admin("there"));
    fixture.acquire(&there, "secret", 1, 30_000);
    let ask = |namespace: &str| {
        let named = format!("fencehold-namespace: {namespace}");
        let headers = here.headers().replace("fencehold-namespace: here", &named);
        fixture.ask_with(&headers, "GET", "/v1/leases/get?key=secret", None)
    };
    let (real, made_up) = (ask("there"), ask("nowhere"));
    assert_eq!(real.status, 403);
    assert_eq!(without(&real, &["there"]), without(&made_up, &["nowhere"]));
    // And it stands in the audit that it was tried.
    eventually("both are in the audit", || {
        let rows = fixture.token_db().audit(&AuditFilter::default()).unwrap().entries;
        let denied = |name: &&str| rows.iter().any(|row| row.namespace == *name && row.outcome == "denied");
        ["there", "nowhere"].iter().all(denied)
    });
    // A token for one namespace is at home there without saying so.
    let headers = here.headers().replace("fencehold-namespace: here\r\n", "");
    let unnamed = fixture.ask_with(&headers, "GET", "/v1/leases/get?key=secret", None);
    assert_eq!((unnamed.status, &unnamed.json["token"]), (200, &json!(0)), "{unnamed:?}");
}

#[test]
fn the_right_hold_id_in_the_wrong_namespace_is_as_wrong_as_any() {
    let fixture = SecurityFixture::new();
    let (a, b) = (fixture.admin("a"), fixture.admin("b"));
    let mine = fixture.acquire(&b, "mine", 2, 30_000);
    let theirs = fixture.acquire(&a, "theirs", 1, 30_000);
    // Everything right but the namespace, in the middle of a batch that is otherwise fine; and nothing right at all.
    for path in ["/v1/leases/renew-batch", "/v1/leases/release-batch"] {
        let holds = json!({ "holds": [held("mine", 2, mine), held("theirs", 1, theirs), held("made-up", 7, theirs)] });
        let said = fixture.post(&b, path, holds);
        assert_eq!(said.status, 200, "{said:?}");
        let results = said.json["results"].as_array().unwrap();
        assert!(results[0].get("ok").is_some(), "the good one pays for the bad one: {said:?}");
        let blank = |answer: &Value| answer.to_string().replace("theirs", "…").replace("made-up", "…");
        assert!(results[1].get("error").is_some(), "{said:?}");
        assert_eq!(blank(&results[1]), blank(&results[2]), "what is said tells that it exists");
    }
    let view = fixture.ask(&a, "GET", "/v1/leases/get?key=theirs", None);
    assert_eq!(view.json["token"].as_u64(), Some(theirs));
    assert!(view.json["holder"].is_object(), "it was touched: {view:?}");
    // The same key is another key there.
    let again = fixture.post(&b, "/v1/leases/acquire", acquire("theirs", 3, 30_000));
    assert_eq!(again.status, 200, "{again:?}");
}

#[test]
fn another_namespaces_job_is_no_job_in_any_item_of_a_batch() {
    let fixture = SecurityFixture::new();
    let (a, b) = (fixture.admin("a"), fixture.admin("b"));
    let enqueue = |token| {
        let said =
            fixture.post(token, "/v1/jobs/enqueue-batch", json!({ "jobs": [{ "queue": "q", "kind": "k" }] }));
        said.json["results"][0]["ok"]["job_id"].as_str().unwrap().to_owned()
    };
    let claim = |token, number| {
        let claim =
            json!({ "queues": [{ "queue": "q" }], "hold_id": hold(number), "owner": "w", "ttl_ms": 30_000 });
        let claimed = fixture.post(token, "/v1/jobs/claim", claim);
        claimed.json["jobs"][0]["token"].as_u64().unwrap()
    };
    let (theirs, mine) = (enqueue(&a), enqueue(&b));
    let (their_token, my_token) = (claim(&a, 1), claim(&b, 2));
    let made_up = "01935f6e-7b00-7000-8000-00000000abcd";
    let report = |job: &str, number: u8, token: u64| json!({ "job_id": job, "hold_id": hold(number), "token": token, "report": { "type": "complete" } });
    let reports =
        [report(&theirs, 1, their_token), report(made_up, 1, their_token), report(&mine, 2, my_token)];
    let said = fixture.post(&b, "/v1/jobs/report-batch", json!({ "reports": reports }));
    let results = said.json["results"].as_array().unwrap();
    let blank = |answer: &Value| answer.to_string().replace(&theirs, "…").replace(made_up, "…");
    assert!(results[0].get("error").is_some(), "{said:?}");
    assert_eq!(blank(&results[0]), blank(&results[1]), "what is said tells that it exists");
    assert!(results[2].get("ok").is_some(), "the good one pays for the bad one: {said:?}");
    let cancel =
        json!({ "selector": { "type": "ids", "job_ids": [theirs, made_up] }, "force": true, "by": "b" });
    let said = fixture.post(&b, "/v1/jobs/cancel-batch", cancel);
    let results = said.json["results"].as_array().unwrap();
    assert_eq!(results[0]["error"]["job_id"], theirs, "{said:?}");
    assert_eq!(blank(&results[0]), blank(&results[1]), "{said:?}");
    let one = |job: &str| {
        let said = fixture.post(&b, "/v1/jobs/cancel", json!({ "job_id": job, "force": true, "by": "b" }));
        (said.status, said.json["job_id"] == job, blank(&said.json))
    };
    assert_eq!((one(&theirs).0, one(&theirs).1), (404, true));
    assert_eq!(one(&theirs), one(made_up));
    assert_eq!(fixture.ask(&b, "GET", &format!("/v1/jobs/{theirs}"), None).status, 404);
    let theirs = fixture.ask(&a, "GET", &format!("/v1/jobs/{theirs}"), None);
    assert!(theirs.body.contains("\"state\":\"running\""), "it was touched: {theirs:?}");
}

#[test]
fn a_forged_hold_id_is_refused_counted_and_changes_nothing() {
    let fixture = SecurityFixture::new();
    let (token, operator) = (fixture.admin("team"), fixture.operator());
    let fence = fixture.acquire(&token, "k", 1, 30_000);
    for path in ["/v1/leases/renew-batch", "/v1/leases/release-batch"] {
        let said = fixture.post(&token, path, json!({ "holds": [held("k", 8, fence)] }));
        let problem = &said.json["results"][0]["error"];
        assert_eq!(problem["type"], "urn:fencehold:wrong-hold-id", "{said:?}");
        assert!(!said.body.contains(&hold(1)) && !said.body.contains(&hold(8)), "a secret came back");
    }
    fixture.renews(&token, "k", 1, fence);
    assert!(fixture.shows(&operator, "fencehold_wrong_hold_ids_total", 2.0));
}
