//! Looking for damage among the jobs: every row can be read, every job is in one place, and the books add up.

use fencehold_core::Namespace;
use fencehold_core::job::{JobId, JobRecord, JobState, QueueName};
use rusqlite::Connection;

use super::codec::{decode_body, decode_finished, decode_schedule};
use crate::maintenance::CheckReport;
use crate::sqlite::{namespace_at, number, rows};

pub(crate) fn examine(connection: &Connection, report: &mut CheckReport) -> rusqlite::Result<()> {
    let number = |sql: &str| number(connection, sql, []);
    report.jobs = number("SELECT count(*) FROM job_live")?;
    report.set_aside += number("SELECT count(*) FROM job_aside")?;
    let newest = number("SELECT token_ceiling FROM meta")?;
    let mut problem = |id: [u8; 16], what: &str| {
        report.problems.push(format!("job {}: {what}", JobId::from_bytes(id)));
    };
    for (finished, sql) in [
        (false, "SELECT j.id, l.record, j.body FROM job_live l JOIN jobs j ON j.arrival = l.arrival"),
        (true, "SELECT j.id, f.record, j.body FROM job_finished f JOIN jobs j ON j.arrival = f.arrival"),
    ] {
        rows(connection, sql, [], |row| {
            let id = row.get(0).unwrap_or_default();
            if id == [0; 16] {
                problem(id, "its id cannot be read");
            }
            match decode_finished(row.get_ref(1)?.as_blob().unwrap_or_default()) {
                Ok((_, record, _)) => {
                    if let Some(what) = wrong(&record, finished, newest) {
                        problem(id, what);
                    }
                }
                Err(what) => problem(id, &what),
            }
            if let Err(what) = decode_body(row.get_ref(2)?.as_blob().unwrap_or_default()) {
                problem(id, &what);
            }
            Ok(())
        })?;
    }
    examine_queues(connection, report)?;
    for (what, sql) in [
        (
            "jobs are in a queue that is not there",
            "SELECT (SELECT count(*) FROM job_live WHERE queue NOT IN (SELECT number FROM queues)) \
             + (SELECT count(*) FROM job_finished WHERE queue NOT IN (SELECT number FROM queues))",
        ),
        (
            "unique keys cannot be read",
            "SELECT count(*) FROM uniques WHERE typeof(namespace) <> 'text' OR typeof(until_wall_ms) <> 'integer' \
             OR length(CAST(key AS BLOB)) <> 16 OR length(CAST(job AS BLOB)) <> 16 \
             OR length(CAST(payload AS BLOB)) <> 16 OR typeof(key) <> 'blob' OR typeof(job) <> 'blob' \
             OR typeof(payload) <> 'blob'",
        ),
        (
            "jobs stand among the live and the finished",
            "SELECT count(*) FROM job_live JOIN job_finished USING (arrival)",
        ),
        (
            "jobs have lost their body",
            "SELECT (SELECT count(*) FROM job_live WHERE arrival NOT IN (SELECT arrival FROM jobs)) \
             + (SELECT count(*) FROM job_finished WHERE arrival NOT IN (SELECT arrival FROM jobs))",
        ),
        (
            "jobs stand nowhere",
            "SELECT count(*) FROM jobs WHERE arrival NOT IN (SELECT arrival FROM job_live) \
             AND arrival NOT IN (SELECT arrival FROM job_finished) \
             AND arrival NOT IN (SELECT arrival FROM job_aside)",
        ),
        (
            "effects are of no job",
            "SELECT count(*) FROM effects WHERE arrival NOT IN (SELECT arrival FROM jobs)",
        ),
        (
            "notes are of no job",
            "SELECT count(*) FROM job_notes WHERE arrival NOT IN (SELECT arrival FROM jobs)",
        ),
        (
            "finished jobs are not in the counts, or in the counts and not there",
            "SELECT abs((SELECT count(*) FROM job_finished) \
             - (SELECT coalesce(sum(completed + failed + cancelled), 0) FROM queues))",
        ),
    ] {
        let count = number(sql)?;
        if count > 0 {
            report.problems.push(format!("{count} {what}"));
        }
    }
    Ok(())
}

/// Whether every queue and every schedule can be read.
fn examine_queues(connection: &Connection, report: &mut CheckReport) -> rusqlite::Result<()> {
    let sql = "SELECT number, namespace, name, mode, completed, failed, cancelled FROM queues";
    rows(connection, sql, [], |row| {
        let number: i64 = row.get(0)?;
        let named = row.get(1).ok().zip(row.get(2).ok());
        let named = named.is_some_and(|(space, name): (String, String)| {
            Namespace::new(space).is_ok() && QueueName::new(name).is_ok()
        });
        let mode = row.get::<_, i64>(3).is_ok_and(|mode| (0..=2).contains(&mode));
        let counts = (4..7).all(|nth| row.get::<_, i64>(nth).is_ok_and(|count| count >= 0));
        for (whole, what) in [(named, "its name"), (mode, "its mode"), (counts, "a count")] {
            if !whole {
                report.problems.push(format!("queue {number}: {what} cannot be read"));
            }
        }
        Ok(())
    })?;
    rows(connection, "SELECT namespace, name, spec FROM schedules", [], |row| {
        let named = namespace_at(row, 0).is_some();
        let spec = decode_schedule(row.get_ref(2)?.as_blob().unwrap_or_default());
        if !named || spec.is_err() {
            let name = row.get::<_, String>(1).unwrap_or_default();
            report.problems.push(format!("schedule {name:?} cannot be read"));
        }
        Ok(())
    })
    .map(drop)
}

/// What is wrong with a record, if anything.
fn wrong(record: &JobRecord, finished: bool, newest: u64) -> Option<&'static str> {
    if record.state.is_final() != finished {
        Some("its state is not that of its table")
    } else if (record.state == JobState::Running) != record.claim.is_some() {
        Some("it is claimed and not running, or running and not claimed")
    } else if record.token.get() > newest {
        Some("its token was never set aside")
    } else if !record.attempts().is_sorted_by(|a, b| a.token < b.token) {
        Some("its attempts are out of order")
    } else {
        None
    }
}
