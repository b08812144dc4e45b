//! Events are read in order, each once, whatever transactions stay open, commit late, or are rolled back.

use std::collections::HashMap;

use serde_json::Value;

use crate::interleaved::{keys, reader};
use crate::session::{Session, with_sessions};

fn enqueue(session: &Session) -> String {
    format!("job/{}", session.value("SELECT enqueue_job('q', 'work', '1')"))
}

#[test]
fn an_open_transaction_with_an_enqueue_keeps_no_other_event_back() {
    let (test_store, _, [open, other]) = with_sessions();
    let read = reader(&test_store);
    enqueue(&other);
    let start = read(None).next_cursor;
    open.value("BEGIN");
    let late = enqueue(&open);
    let early = enqueue(&other);
    let page = read(Some(start));
    assert_eq!(keys(&page), [&early], "while the first one is open");
    let page = read(Some(page.next_cursor));
    assert_eq!(keys(&page), [""; 0], "once");
    open.value("COMMIT");
    let page = read(Some(page.next_cursor));
    assert_eq!(keys(&page), [&late]);
    assert_eq!(keys(&read(Some(page.next_cursor))), [""; 0], "once");
    assert_eq!(keys(&read(Some(start))), [&early, &late], "in the same order for all");
}

#[test]
fn after_a_rollback_no_transaction_of_another_database_keeps_events_back() {
    let (test_store, _, [open, other]) = with_sessions();
    let (_neighbour, _, [elsewhere]) = with_sessions();
    let read = reader(&test_store);
    enqueue(&other);
    let start = read(None).next_cursor;
    elsewhere.value("BEGIN");
    elsewhere.value("SELECT pg_current_xact_id()");
    open.value("BEGIN");
    enqueue(&open);
    open.value("ROLLBACK");
    let after = enqueue(&other);
    assert_eq!(keys(&read(Some(start))), [&after]);
    elsewhere.value("COMMIT");
}

/// The claim of a job that was committed late is written before its enqueue gets the number under which it is read.
#[test]
fn what_follows_a_late_event_is_read_after_it() {
    let (test_store, _, [open, other, third]) = with_sessions();
    let read = reader(&test_store);
    enqueue(&other);
    let start = read(None).next_cursor;
    open.value("BEGIN");
    let late = enqueue(&open);
    let early = enqueue(&other);
    let page = read(Some(start));
    assert_eq!(keys(&page), [&early]);
    third.value("BEGIN");
    let later = enqueue(&third);
    open.value("COMMIT");
    other.value(&claim(1, 9));
    let page = read(Some(page.next_cursor));
    let told: Vec<_> = page.events.iter().filter(|event| event.key.as_str() == late).collect();
    let told: Vec<_> = told.iter().map(|event| serde_json::to_value(&event.data).unwrap()).collect();
    assert!(told.len() == 2 && told[0]["job_enqueued"].is_object(), "{told:?}");
    assert!(told[1]["job_claimed"].is_object(), "{told:?}");
    third.value("COMMIT");
    assert_eq!(keys(&read(Some(page.next_cursor))), [&later]);
}

fn claim(nth: u64, most: u64) -> String {
    format!(
        "SELECT id, token FROM job_claim('default', ARRAY['q'], ARRAY[1], ARRAY[0]::bigint[], {most}, md5('{nth}')::uuid, 'a', 30000,
             NULL, NULL, NULL, false) WHERE id IS NOT NULL"
    )
}

/// What was written about one job, in order.
const LIFE: [&str; 3] = ["job_enqueued", "job_claimed", "job_attempt_ended"];

/// A session that may have a transaction open.
struct EventWriter {
    session: Session,
    open: bool,
    /// What it wrote in its transaction: jobs, and how far each has come.
    wrote: Vec<(String, usize)>,
    /// Numbers that it drew for events which it writes later.
    drew: Vec<String>,
    /// Claims of its own, as arguments of a completion.
    claims: Vec<(String, String)>,
}

/// A reader that goes on from where it was.
#[derive(Default)]
struct EventReader {
    after: i64,
    pass_to: i64,
    seqs: Vec<i64>,
    told: HashMap<String, Vec<usize>>,
}

impl EventReader {
    /// True: there is nothing more.
    fn read(&mut self, session: &Session, most: u64, passes: bool) -> bool {
        let pass_to = if passes { self.pass_to } else { 0 };
        let sql = format!(
            "SELECT events::text, next, newest, told FROM events_read('default', {}, NULL, {most}, {pass_to})",
            self.after
        );
        let row = session.run(&sql).unwrap().remove(0);
        let number = |nth: usize| row[nth].as_ref().unwrap().parse::<i64>().unwrap();
        let events: Vec<Value> = serde_json::from_str(row[0].as_ref().unwrap()).unwrap();
        for event in &events {
            self.seqs.push(event["seq"].as_i64().unwrap());
            let what = LIFE.iter().position(|what| event["fact"][what].is_object());
            let key = event["key"].as_str().unwrap().to_owned();
            self.told.entry(key).or_default().push(what.unwrap());
        }
        (self.after, self.pass_to) = (number(1), number(2));
        events.is_empty() && number(3) >= number(2)
    }
}

/// The enqueue of a job is late; its claim is passed over while the enqueue waits for its place, and is late too.
#[test]
fn a_late_event_after_a_late_event_of_the_same_job_is_read_after_it() {
    let (_test_store, _, [open, other, third]) = with_sessions();
    other.value(&claim(0, 1));
    let first = enqueue(&other);
    other.value(&claim(1, 1));
    let mut reader = EventReader::default();
    open.value("BEGIN");
    let late = enqueue(&open);
    let early = enqueue(&other);
    for _ in 0..3 {
        reader.read(&other, 100, true);
    }
    assert_eq!(reader.told, HashMap::from([(first.clone(), vec![0, 1]), (early.clone(), vec![0])]));
    open.value("COMMIT");
    third.value("BEGIN");
    third.value(&claim(2, 9));
    let last = enqueue(&other);
    for _ in 0..2 {
        reader.read(&other, 100, true);
    }
    third.value("COMMIT");
    assert!((0..100).any(|_| reader.read(&other, 100, true)));
    let lives = [(first, vec![0, 1]), (early, vec![0, 1]), (late, vec![0, 1]), (last, vec![0])];
    assert_eq!(reader.told, HashMap::from(lives));
}

/// Transactions that enqueue, claim and complete jobs, in random order, while two read.
#[test]
fn every_committed_event_is_read_once_and_each_jobs_in_order() {
    for seed in 1..=16 {
        play(seed);
    }
}

fn play(seed: u64) {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let mut below = move |bound: usize| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(state >> 33).unwrap() % bound
    };
    let (test_store, _, [reading]) = with_sessions();
    // What is noted once for the whole store, and would be waited for.
    reading.value(&claim(0, 1));
    let first = enqueue(&reading);
    let mut written: HashMap<String, Vec<usize>> = HashMap::from([(first, vec![0])]);
    let writer = |_| EventWriter {
        session: Session::new(&test_store),
        open: false,
        wrote: Vec::new(),
        drew: Vec::new(),
        claims: Vec::new(),
    };
    let mut writers: Vec<EventWriter> = (0..4).map(writer).collect();
    let mut readers = [EventReader::default(), EventReader::default()];
    for step in 0..150_u64 {
        let writer = &mut writers[below(4)];
        match below(10) {
            0 if !writer.open => {
                writer.session.value("BEGIN");
                writer.open = true;
            }
            1 | 2 => writer.wrote.push((enqueue(&writer.session), 0)),
            3 => {
                let sql = claim(seed * 1000 + step, 1 + step % 3);
                for row in writer.session.run(&sql).unwrap() {
                    let (id, token) = (row[0].clone().unwrap(), row[1].clone().unwrap());
                    writer.wrote.push((format!("job/{id}"), 1));
                    let hash = seed * 1000 + step;
                    let held = format!(
                        "ARRAY['{id}']::uuid[], ARRAY[md5('{hash}')::uuid], ARRAY[{token}]::bigint[]"
                    );
                    writer.claims.push((id, held));
                }
            }
            4 => {
                if let Some((id, held)) = writer.claims.pop() {
                    let sql = format!("SELECT id IS NULL FROM job_complete_batch('default', {held}, NULL)");
                    assert_eq!(writer.session.value(&sql), "t");
                    writer.wrote.push((format!("job/{id}"), 2));
                }
            }
            // One row of several events, with numbers of others in between.
            5 if writer.open => writer.drew.push(writer.session.value("SELECT next_event()")),
            6 if !writer.drew.is_empty() => {
                let seqs = std::mem::take(&mut writer.drew);
                let ids: Vec<_> =
                    seqs.iter().map(|_| writer.session.value("SELECT gen_random_uuid()")).collect();
                writer.wrote.extend(ids.iter().map(|id| (format!("job/{id}"), 0)));
                writer.session.value(&format!(
                    "INSERT INTO job_event (last_seq, at_ms, namespace, what, seqs, ids, names, kinds) VALUES
                         ({}, 0, 'default', 1, ARRAY[{}]::bigint[], '{{{}}}', ARRAY['q'], ARRAY['work'])",
                    seqs.last().unwrap(),
                    seqs.join(","),
                    ids.join(",")
                ));
            }
            7 if writer.open => {
                let commits = below(3) > 0;
                writer.session.value(if commits { "COMMIT" } else { "ROLLBACK" });
                writer.open = false;
                writer.drew.clear();
                if !commits {
                    writer.wrote.clear();
                    writer.claims.clear();
                }
            }
            _ => {
                let (most, passes) = (1 + below(20), below(2) == 0);
                readers[below(2)].read(&reading, most as u64, passes);
            }
        }
        let writer = writers.iter_mut().filter(|writer| !writer.open);
        for (job, what) in writer.flat_map(|writer| writer.wrote.drain(..)) {
            written.entry(job).or_default().push(what);
        }
    }
    for writer in &mut writers {
        if writer.open {
            writer.session.value("COMMIT");
        }
        for (job, what) in writer.wrote.drain(..) {
            written.entry(job).or_default().push(what);
        }
    }
    for reader in &mut readers {
        assert!((0..500).any(|_| reader.read(&reading, 5, true)), "seed {seed}: it comes to an end");
        assert!(reader.seqs.is_sorted_by(|one, next| one < next), "seed {seed}: {:?}", reader.seqs);
        assert_eq!(reader.told, written, "seed {seed}");
    }
    assert_eq!(reading.value("SELECT count(*) FROM event_late"), "0");
}
