//! `enqueue_jobs`: the documents of the HTTP API in the user's own transaction, taken and refused as the library does.

use fencehold_contract::job::NewJob;
use fencehold_contract::operation::check_job;
use fencehold_core::Timestamp;
use fencehold_core::job::JobId;
use fencehold_test_servers::calls::call;
use fencehold_test_store::{TestStore as _, block_on};
use serde_json::{Value, json};

use crate::job_races::JobRaceFixture;
use crate::session::Session;

fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

fn enqueue(documents: &str) -> String {
    format!("SELECT string_agg(job_id || ' ' || existed, ',') FROM enqueue_jobs({})", quoted(documents))
}

/// What the library says of a document.
#[derive(Debug)]
enum Verdict {
    Taken,
    /// By the rules, in these words.
    Refused(String),
    /// It is not of the form.
    Misformed,
}

fn verdict_of_the_library(document: &str) -> Verdict {
    let Ok(job) = serde_json::from_str::<NewJob>(document) else { return Verdict::Misformed };
    let id = if job.id.is_nil() { JobId::from_bytes([1; 16]) } else { job.id };
    match check_job(&NewJob { id, ..job }, Timestamp::default()) {
        Ok(_) => Verdict::Taken,
        Err(bad) => Verdict::Refused(bad.to_string()),
    }
}

fn with(name: &str, value: &Value) -> String {
    json!({ "kind": "work", name: value }).to_string()
}

/// Documents that are good, and each kind of mistake in their options.
fn options() -> Vec<String> {
    let option = |name: &str, value: Value| with("options", &json!({ name: value }));
    let retry = |backoff: &str, base: u64, cap: u64, jitter: u64| {
        option(
            "retry",
            json!({ "backoff": backoff, "base_delay_ms": base, "max_delay_ms": cap, "jitter_percent": jitter }),
        )
    };
    let mut documents = Vec::new();
    documents.extend([-32_769, -32_768, 32_767, 32_768].map(|rank| option("priority", json!(rank))));
    for name in ["max_failures", "max_crashes"] {
        documents.extend([-1, 0, 1, 10_000, 10_001, 65_536].map(|count| option(name, json!(count))));
    }
    documents.push(option("max_failures", Value::Null));
    let limits = [0_u64, 1, 2_592_000_000, 2_592_000_001, 4_294_967_296];
    documents.extend(limits.map(|ms| option("attempt_timeout_ms", json!(ms))));
    documents.push(option("attempt_timeout_ms", Value::Null));
    documents.extend([
        retry("exponential", 1_000, 3_600_000, 20),
        retry("linear", 1, 1, 100),
        retry("fixed", 5_000, 5_000, 0),
        retry("fixed", 5_000, 5_001, 0),
        retry("linear", 90_061_001, 1_000, 0),
        retry("linear", 0, 1_000, 0),
        retry("linear", 1, 1_000, 101),
        retry("linear", 1, 1_000, 256),
        retry("quadratic", 1, 1_000, 0),
        retry("linear", 1, 4_294_967_296, 0),
    ]);
    documents
}

/// The same of the rest.
fn documents() -> Vec<String> {
    let with = |name: &str, value: Value| with(name, &value);
    let labels = |count: u32| {
        let labels: serde_json::Map<String, Value> =
            (0..count).map(|nth| (nth.to_string(), json!("x"))).collect();
        with("labels", Value::Object(labels))
    };
    let nested =
        |depth: usize| format!(r#"{{"kind":"work","payload":{}{}}}"#, "[".repeat(depth), "]".repeat(depth));
    let mut documents: Vec<String> = [
        r#"{"kind":"work"}"#,
        r"{}",
        r"[]",
        r"7",
        r"null",
        r#"{"kind":null}"#,
        r#"{"kind":7}"#,
        r#"{"kind":"work","kind":"work"}"#,
        r#"{"kind":"work","options":{"priority":1,"priority":1}}"#,
        r#"{"kind":"work","quue":"q"}"#,
        r#"{"kind":"work","options":{"tries":3}}"#,
        r#"{"kind":"work","options":{"retry":{}}}"#,
        r#"{"kind":"work","options":null}"#,
        r#"{"kind":"work","options":{}}"#,
        r#"{"kind":"work","labels":null}"#,
        r#"{"kind":"work","labels":{"a":"1","a":"2"}}"#,
        r#"{"kind":"work","labels":{"a":1}}"#,
        r#"{"kind":"work","labels":["a"]}"#,
        r#"{"kind":"work","payload":"a\u0000b"}"#,
        r#"{"kind":"work","payload":"\u0000\\u0000\\\u0000\ue000"}"#,
        r#"{"kind":"w\u0000rk"}"#,
        r#"{"kind":"work","labels":{"a":"\u0000"}}"#,
        r#"{"kind":"work","payload":{"b":1.0,"a":1e400,"b":2}}"#,
        r#"{"kind":"work","options":{"max_failures":3.0}}"#,
        r#"{"kind":"work","options":{"max_failures":3e0}}"#,
        r#"{"kind":"work","delay_ms":-0}"#,
        r#"{"kind":"work","delay_ms":01}"#,
    ]
    .map(str::to_owned)
    .to_vec();
    documents.extend(
        ["", "a\nb", "a\u{85}", "fencehold/operations", "q", "ü"].map(|name| with("queue", json!(name))),
    );
    documents.extend(["", "a\tb"].map(|name| with("kind", json!(name))));
    documents.extend([128, 129].map(|bytes| with("queue", json!("q".repeat(bytes)))));
    documents.push(with("queue", Value::Null));
    documents.extend([512, 513].map(|bytes| with("unique_key", json!("k".repeat(bytes)))));
    for field in
        ["id", "run_at", "delay_ms", "unique_key", "unique_window_ms", "traceparent", "preempt_within_ms"]
    {
        documents.push(with(field, Value::Null));
        documents.push(with(field, json!("")));
        documents.push(with(field, json!(true)));
    }
    let ids = [
        "00000000-0000-0000-0000-000000000000",
        "0A000000-0000-7000-8000-000000000001",
        "0a0000000000700080000000000000 02",
        "0a0",
    ];
    documents.extend(ids.map(|id| with("id", json!(id))));
    let moments = [
        "2026-12-01T08:00:00Z",
        "2026-12-01T08:00:00.123456789+01:00",
        "2026-12-01 08:00:00z",
        "2026-12-01T08:00:00",
        "2026-13-01T08:00:00Z",
        "1969-12-31T23:59:59Z",
        "9999-12-31T23:59:59.999Z",
        "tomorrow",
    ];
    documents.extend(moments.map(|moment| with("run_at", json!(moment))));
    documents.push(r#"{"kind":"work","run_at":"2026-12-01T08:00:00Z","delay_ms":1}"#.to_owned());
    documents.extend([0_u64, 31_536_000_000, 31_536_000_001, u64::MAX].map(|ms| with("delay_ms", json!(ms))));
    documents
        .extend([0_u64, 1, 86_400_000, 86_400_001, u64::MAX].map(|ms| with("preempt_within_ms", json!(ms))));
    documents.push(with("unique_window_ms", json!(1_000)));
    for ms in [0_u64, 1, 31_622_400_000, 31_622_400_001, u64::MAX] {
        documents.push(
            json!({ "kind": "work", "unique_key": ms.to_string(), "unique_window_ms": ms }).to_string(),
        );
    }
    documents.extend([256, 257].map(|bytes| with("traceparent", json!("t".repeat(bytes)))));
    documents.extend([16, 17].map(labels));
    for (name, bytes) in
        [("n".repeat(64), 256), ("n".repeat(65), 1), ("n".to_owned(), 257), (String::new(), 1)]
    {
        documents.push(with("labels", json!({ name: "v".repeat(bytes) })));
    }
    documents.push(with("labels", json!({ "n": "a\nb" })));
    documents.extend([127, 128].map(nested));
    documents
        .extend([(1 << 20) - 2, (1 << 20) - 1].map(|bytes: usize| with("payload", json!("p".repeat(bytes)))));
    documents
}

#[test]
fn a_document_is_taken_and_refused_as_the_library_does() {
    let (_fixture, [session]) = JobRaceFixture::with_sessions();
    let (mut taken, mut alike) = (0, 0);
    for document in documents().into_iter().chain(options()) {
        let shown: String = document.chars().take(200).collect();
        session.value("BEGIN");
        match (verdict_of_the_library(&document), session.run(&enqueue(&format!("[{document}]")))) {
            (Verdict::Taken, Ok(_)) => taken += 1,
            (Verdict::Misformed, Err((code, _))) => assert!(code.starts_with("22"), "{shown}: {code}"),
            (Verdict::Refused(words), Err(refusal)) => {
                assert_eq!(refusal, ("22023".to_owned(), words), "{shown}");
                alike += 1;
            }
            (theirs, ours) => panic!("{shown}: the library says {theirs:?}, the database {ours:?}"),
        }
        session.value("ROLLBACK");
    }
    assert!(taken > 40 && alike > 25, "{taken}, {alike}");
}

#[test]
fn a_name_is_refused_in_the_words_of_the_library() {
    let (_fixture, [session]) = JobRaceFixture::with_sessions();
    for (queue, words) in [
        ("", "queue must not be empty"),
        ("übel\u{7f}", "queue has a control character at byte 5"),
        (&"q".repeat(129), "queue has 129 bytes; the limit is 128"),
    ] {
        let document = json!([{ "queue": queue, "kind": "work" }]).to_string();
        assert_eq!(session.refusal(&enqueue(&document)), ("22023".to_owned(), words.to_owned()));
        let short = format!("SELECT enqueue_job({}, 'work', '1')", quoted(queue));
        assert_eq!(session.refusal(&short), ("22023".to_owned(), words.to_owned()));
    }
}

/// Its detail says which of them it is.
#[test]
fn one_bad_job_keeps_all_out_and_a_set_that_is_too_large_is_refused() {
    let (_fixture, [session]) = JobRaceFixture::with_sessions();
    let set = json!([{ "kind": "one" }, { "kind": "" }, { "kind": "three" }]).to_string();
    assert_eq!(session.refusal(&enqueue(&set)).1, "kind must not be empty");
    let detail = "DO $$ DECLARE d text; BEGIN PERFORM enqueue_jobs('[{\"kind\":\"a\"},{\"kind\":7}]');
        EXCEPTION WHEN OTHERS THEN GET STACKED DIAGNOSTICS d = PG_EXCEPTION_DETAIL; RAISE EXCEPTION '%', d; END $$";
    assert_eq!(session.refusal(detail).1, "It is job 2 of 2.");
    let many = vec![json!({ "kind": "k" }); 10_001];
    let (code, message) = session.refusal(&enqueue(&Value::from(many).to_string()));
    assert_eq!((&*code, &*message), ("22023", "jobs are 10001; the limit of one call is 10000"));
    let large = vec![json!({ "kind": "k", "payload": "p".repeat((1 << 20) - 2) }); 17];
    let (code, message) = session.refusal(&enqueue(&Value::from(large).to_string()));
    assert_eq!((&*code, &*message), ("22023", "jobs have 17825792 bytes; the limit of one call is 16777216"));
    for bad in ["{}", "null", "7"] {
        assert_eq!(session.refusal(&enqueue(bad)).0, "22023");
    }
    assert_eq!(session.refusal("SELECT enqueue_jobs(NULL)").0, "22023");
    assert_eq!(session.value("SELECT count(*) FROM jobs WHERE kind <> 'work'"), "0");
    assert_eq!(session.value("SELECT count(*) FROM enqueue_jobs('[]')"), "0");
}

fn ids(session: &Session, documents: &Value) -> Vec<(String, bool)> {
    let answer = session.value(&enqueue(&documents.to_string()));
    let pair = |text: &str| text.split_once(' ').map(|(id, existed)| (id.to_owned(), existed == "true"));
    answer.split(',').map(|text| pair(text).unwrap()).collect()
}

#[test]
fn jobs_of_one_call_are_alike_by_id_or_key_and_come_in_its_order() {
    let (fixture, [session]) = JobRaceFixture::with_sessions();
    let set = json!([
        { "kind": "a", "unique_key": "k" },
        { "kind": "b", "id": "0a000000-0000-7000-8000-000000000001" },
        { "kind": "a", "unique_key": "k" },
        { "kind": "c" },
        { "kind": "b", "id": "0a000000-0000-7000-8000-000000000001" },
    ]);
    let first = ids(&session, &set);
    assert_eq!(first.iter().map(|job| job.1).collect::<Vec<_>>(), [false, false, true, false, true]);
    assert_eq!((&first[2].0, &first[4].0), (&first[0].0, &first[1].0));
    let again = ids(&session, &set);
    assert_eq!(again.iter().map(|job| job.1).collect::<Vec<_>>(), [true, true, true, false, true]);
    let kinds = "SELECT string_agg(b.kind, '' ORDER BY b.arrival) FROM job_body b WHERE b.kind <> 'work'";
    assert_eq!(session.value(kinds), "abcc");
    let store = fixture.test_store.store();
    let jobs = store.jobs().unwrap();
    let detail = block_on(jobs.get_job(&call(), first[0].0.parse().unwrap())).unwrap().unwrap();
    assert_eq!(detail.payload.as_ref(), "null");
}

/// Whatever `jsonb` would make of it.
#[test]
fn a_payload_is_kept_as_it_was_written() {
    let (_fixture, [session]) = JobRaceFixture::with_sessions();
    for payload in [
        r#"{"b": 1.0,"a":1e400,"b":2}"#,
        r#""\u0000\\u0000\\\u0000\ue000\u0000\u0000""#,
        "\"\u{e000} \\u0000\"",
        r#"[ "\ud83d\ude00" , 0.10 ]"#,
    ] {
        let document = format!(r#"[{{"kind":"kept","payload":{payload}}}]"#);
        let (id, _) = session
            .value(&enqueue(&document))
            .split_once(' ')
            .map(|(id, new)| (id.to_owned(), new.to_owned()))
            .unwrap();
        assert_eq!(session.value(&format!("SELECT payload FROM job_body WHERE id = '{id}'")), payload);
    }
}

#[test]
fn a_large_set_is_enqueued_in_one_statement() {
    let (_fixture, [session]) = JobRaceFixture::with_sessions();
    let many: Vec<Value> = (0..10_000).map(|nth| json!({ "kind": "k", "payload": nth })).collect();
    let count = format!(
        "SELECT count(*) FROM enqueue_jobs({}) WHERE NOT existed",
        quoted(&Value::from(many).to_string())
    );
    assert_eq!(session.value(&count), "10000");
    let order = "SELECT bool_and(payload = (nth - 1)::text) FROM (SELECT payload, row_number() OVER (ORDER BY arrival) AS nth FROM job_body WHERE kind = 'k') b";
    assert_eq!(session.value(order), "t");
}
