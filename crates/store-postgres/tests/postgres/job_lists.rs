//! What a page of a list reads does not grow with the jobs that are not on it: counted in index entries, not in time.

use std::collections::BTreeSet;

use fencehold_test_store::TestStore as _;

use crate::call_cost::{MANY, entries_read};
use crate::session::{Session, with_sessions};

/// Some pages.
const FEW: u64 = 400;
/// A page and the one behind it, of which the library asks.
const PAGE: u64 = 21;
/// For a page that needs no look at other jobs.
const ENTRIES_MAX: u64 = 16 * PAGE;

/// Jobs of two queues and two tenants, far more than a page in every state; a few of a rare kind, with a label, and failed.
fn many_jobs(session: &Session, many: u64) {
    session.value(&format!(
        "SELECT count(*) FROM enqueue_jobs((SELECT json_agg(json_build_object('queue', CASE WHEN n % 100 = 99 THEN 'small' ELSE 'big' END,
             'kind', CASE WHEN n % 100 = 50 THEN 'rare' ELSE 'common' END, 'payload', n,
             'labels', CASE WHEN n % 100 = 70 THEN '{{\"tenant\": \"t\", \"env\": \"prod\"}}'::json ELSE '{{}}'::json END))
             FROM generate_series(1, {many}) AS n));
         SELECT count(*) FROM enqueue_jobs((SELECT json_agg(json_build_object('queue', 'big', 'kind', 'common', 'payload', n))
             FROM generate_series(1, {many}) AS n), 'other');
         SELECT count(*) FROM enqueue_jobs((SELECT json_agg(json_build_object('queue', 'big', 'kind', 'common', 'payload', n, 'delay_ms', 1000000))
             FROM generate_series(1, {many}) AS n))"
    ));
    // Half of them have ended, as if by `job_place`.
    session.value(
        "WITH gone AS (DELETE FROM job_ready WHERE arrival % 2 = 0 RETURNING lane, arrival)
         INSERT INTO job_settled (arrival, lane, state, since_ms, keeps)
             SELECT arrival, lane, CASE WHEN arrival % 30 = 0 THEN 4 ELSE 3 END, 0, false FROM gone",
    );
    session.value("VACUUM ANALYZE");
}

#[derive(Clone, Copy, Default)]
struct Filter {
    queue: Option<&'static str>,
    kind: Option<&'static str>,
    states: Option<&'static str>,
    labels: &'static str,
    contains: Option<&'static str>,
}

impl Filter {
    fn page(self, from: &str, most: u64) -> String {
        let text = |value: Option<&str>| value.map_or("NULL".to_owned(), |value| format!("'{value}'"));
        let labels = if self.labels.is_empty() { "[]" } else { self.labels };
        format!(
            "job_list('default', {from}, {}, {}, {}::smallint[], '{labels}', NULL, {}, {most}, 10000)",
            text(self.queue),
            text(self.kind),
            text(self.states),
            text(self.contains)
        )
    }

    /// The places of all that match, read one by one.
    fn expected(self) -> String {
        let equals = |what: &str, value: Option<&str>| {
            value.map_or("true".to_owned(), |value| format!("{what} = '{value}'"))
        };
        let states = self.states.map_or("true".to_owned(), |states| {
            format!("job_state(b.id, b.lane, b.arrival) = ANY('{states}')")
        });
        format!(
            "SELECT coalesce(string_agg(b.arrival::text, ',' ORDER BY b.arrival), '') FROM job_body b JOIN job_lane l USING (lane) JOIN job_queue q ON q.number = l.queue
             WHERE q.namespace = 'default' AND {} AND {} AND {states} AND coalesce(b.extra->'labels', '[]') @> '{}' AND strpos(b.payload, '{}') > 0",
            equals("q.name", self.queue),
            equals("b.kind", self.kind),
            if self.labels.is_empty() { "[]" } else { self.labels },
            self.contains.unwrap_or("")
        )
    }

    /// The same by pages; and how many there were.
    fn listed(self, session: &Session, most: u64) -> (String, usize) {
        let (mut places, mut from, mut pages) = (Vec::new(), "0".to_owned(), 0);
        loop {
            pages += 1;
            let page = session.value(&format!(
                "SELECT concat_ws(' ', coalesce(string_agg(arrival::text, ',' ORDER BY arrival) FILTER (WHERE id IS NOT NULL), '-'),
                     max(arrival) FILTER (WHERE id IS NULL) + 1) FROM {}",
                self.page(&from, most)
            ));
            let (found, next) = page
                .split_once(' ')
                .map_or((page.as_str(), None), |(found, next)| (found, Some(next)));
            places.extend((found != "-").then(|| found.to_owned()));
            let Some(next) = next else { return (places.join(","), pages) };
            next.clone_into(&mut from);
        }
    }
}

/// Lists by one condition, in a queue or a namespace, and by several.
fn filters() -> Vec<(&'static str, Filter)> {
    let none = Filter::default();
    let label = r#"[["tenant", "t"]]"#;
    vec![
        ("all", none),
        ("queued", Filter { states: Some("{0}"), ..none }),
        ("scheduled", Filter { states: Some("{1}"), ..none }),
        ("completed", Filter { states: Some("{3}"), ..none }),
        ("failed", Filter { states: Some("{4}"), ..none }),
        ("queued or failed", Filter { states: Some("{0,4}"), ..none }),
        ("running", Filter { states: Some("{2}"), ..none }),
        ("of a queue", Filter { queue: Some("small"), ..none }),
        ("failed in a queue", Filter { queue: Some("small"), states: Some("{4}"), ..none }),
        ("of a queue that is not there", Filter { queue: Some("none"), ..none }),
        ("of a kind", Filter { kind: Some("rare"), ..none }),
        ("of a kind in a queue", Filter { queue: Some("big"), kind: Some("rare"), ..none }),
        ("with a label", Filter { labels: label, ..none }),
        ("with two labels", Filter { labels: r#"[["env", "prod"], ["tenant", "t"]]"#, ..none }),
        ("with a label in a queue", Filter { labels: label, queue: Some("big"), ..none }),
    ]
}

#[test]
fn a_page_reads_what_is_on_it_and_little_else() {
    let (_test_store, _, [session]) = with_sessions();
    many_jobs(&session, MANY);
    let mut dear = Vec::new();
    for (what, filter) in filters() {
        let read = entries_read(&session, &format!("SELECT count(*) FROM {}", filter.page("0", PAGE)));
        if read > ENTRIES_MAX {
            dear.push(format!("{what}: {read} index entries"));
        }
    }
    assert!(dear.is_empty(), "{dear:#?}");
}

#[test]
fn pages_have_all_that_match_and_in_their_order() {
    let (test_store, _, [session]) = with_sessions();
    many_jobs(&session, FEW);
    let both = [
        ("of a kind and failed", Filter { kind: Some("rare"), states: Some("{4}"), ..Filter::default() }),
        (
            "of a label and queued",
            Filter { labels: r#"[["env", "prod"]]"#, states: Some("{0}"), ..Filter::default() },
        ),
        ("with this in the payload", Filter { contains: Some("99"), ..Filter::default() }),
        (
            "with this in the payload, queued",
            Filter { contains: Some("99"), states: Some("{0}"), ..Filter::default() },
        ),
    ];
    for (what, filter) in filters().into_iter().chain(both) {
        let (listed, pages) = filter.listed(&session, PAGE);
        assert_eq!(listed, session.value(&filter.expected()), "{what}, in {pages} pages");
    }
    // What was delayed is due, but was not moved.
    test_store.pass(1_000_001);
    for states in ["{0}", "{1}", "{0,1}"] {
        let filter = Filter { states: Some(states), ..Filter::default() };
        assert_eq!(filter.listed(&session, 1_000).0, session.value(&filter.expected()), "{states}");
    }
}

/// Where a note says that a lane begins further on, what came back below it is listed.
#[test]
fn jobs_that_came_back_are_listed() {
    let (_test_store, _, [session]) = with_sessions();
    many_jobs(&session, FEW);
    session.value("DELETE FROM job_ready WHERE arrival < 200 AND arrival % 20 <> 1");
    session.value("UPDATE job_ready SET back = true WHERE arrival < 200");
    session.value(
        "INSERT INTO job_head (lane, head, newest, at, entries, full_at, back_low)
             SELECT lane, 199, 199, clock_timestamp(), 5000, clock_timestamp(), 40 FROM job_lane",
    );
    session.value("DELETE FROM job_ready WHERE arrival <= 40");
    let filter = Filter { states: Some("{0}"), ..Filter::default() };
    assert_eq!(filter.listed(&session, PAGE).0, session.value(&filter.expected()));
}

/// However many queues there are, a page reads one entry of most of them.
#[test]
fn many_queues_are_merged_by_their_first_jobs() {
    let (_test_store, _, [session]) = with_sessions();
    session.value(
        "SELECT count(*) FROM enqueue_jobs((SELECT json_agg(json_build_object('queue', 'q' || n % 100, 'kind', 'work', 'payload', n))
             FROM generate_series(1, 2000) AS n))",
    );
    let filter = Filter { states: Some("{0}"), ..Filter::default() };
    let read = entries_read(&session, &format!("SELECT count(*) FROM {}", filter.page("0", PAGE)));
    assert!(read < 2_000, "{read} index entries for a page of {PAGE} out of 100 queues");
    assert_eq!(filter.listed(&session, 500).0, session.value(&filter.expected()));
}

/// A search reads so many payloads in a request, and says where it got to.
#[test]
fn a_search_in_payloads_is_bounded_and_goes_on() {
    let (_test_store, _, [session]) = with_sessions();
    session.value(
        "SELECT count(*) FROM enqueue_jobs((SELECT json_agg(json_build_object('queue', 'q', 'kind', 'work', 'payload', n || repeat('x', 100000)))
             FROM generate_series(1, 60) AS n))",
    );
    for states in [None, Some("{0}")] {
        let filter = Filter { contains: Some("60x"), states, ..Filter::default() };
        let looks = session
            .value(&format!("SELECT max(arrival) FILTER (WHERE id IS NULL) FROM {}", filter.page("0", PAGE)));
        assert_eq!(looks, "21", "two megabytes, and the one with which it is more");
        let (listed, pages) = filter.listed(&session, PAGE);
        assert_eq!((listed, pages), (session.value(&filter.expected()), 3));
    }
}

/// The labels of a job are kept apart as long as the job is there.
#[test]
fn labels_go_with_their_jobs() {
    let (_test_store, _, [session]) = with_sessions();
    many_jobs(&session, FEW);
    let labels = "SELECT count(*) || ' of ' || count(DISTINCT arrival) FROM job_label";
    assert_eq!(session.value(labels), "8 of 4");
    session.value(
        "SELECT job_forget(array_agg(arrival)) FROM (SELECT arrival FROM job_body WHERE arrival <= 200) AS b",
    );
    assert_eq!(session.value(labels), "4 of 2");
    let of_jobs = session.value("SELECT string_agg(arrival::text, ',') FROM job_body WHERE extra ? 'labels'");
    let kept: BTreeSet<String> = session
        .value("SELECT string_agg(arrival::text, ',') FROM job_label")
        .split(',')
        .map(str::to_owned)
        .collect();
    assert_eq!(kept, of_jobs.split(',').map(str::to_owned).collect());
}
