//! Looking for damage among the jobs: every row can be read, every job is in one place, and the books add up.

use fencehold_core::job::{JobId, Record, State};
use rusqlite::Connection;

use super::codec::{decode, decode_job};
use crate::engine::Body;
use crate::file::sqlite::from_sql;
use crate::file::tools::CheckReport;

pub(in crate::file) fn examine(connection: &Connection, report: &mut CheckReport) -> rusqlite::Result<()> {
    let number = |sql: &str| connection.query_row(sql, [], |row| row.get::<_, i64>(0)).map(from_sql);
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
        let mut statement = connection.prepare(sql)?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            let id = row.get(0)?;
            match decode_job(row.get_ref(1)?.as_blob().unwrap_or_default()) {
                Ok((_, record)) => {
                    if let Some(what) = wrong(&record, finished, newest) {
                        problem(id, what);
                    }
                }
                Err(what) => problem(id, &what),
            }
            if let Err(what) = decode::<Body>("body", row.get_ref(2)?.as_blob().unwrap_or_default()) {
                problem(id, &what);
            }
        }
    }
    for (what, sql) in [
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

/// What is wrong with a record, if anything.
fn wrong(record: &Record, finished: bool, newest: u64) -> Option<&'static str> {
    if record.state.is_final() != finished {
        Some("its state is not that of its table")
    } else if (record.state == State::Running) != record.claim.is_some() {
        Some("it is claimed and not running, or running and not claimed")
    } else if record.token.get() > newest {
        Some("its token was never set aside")
    } else if !record.attempts().is_sorted_by(|a, b| a.token < b.token) {
        Some("its attempts are out of order")
    } else {
        None
    }
}
