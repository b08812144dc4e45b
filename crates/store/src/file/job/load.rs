//! Starting from what was kept of jobs: those that have not come to their end, and what goes with them.

use fencehold_core::job::{Due, JobId, Queue};
use fencehold_core::{Namespace, Stamp, Token};
use rusqlite::{Connection, params};

use super::codec::{decode, decode_job};
use crate::engine::{KeptJob, KeptJobs, KeptQueue, KeptSchedule, KeptUnique};
use crate::file::load::Trust;
use crate::file::sqlite::from_sql;
use crate::job::{Counts, QueueMode};

/// Reads everything, inside the transaction that raised the epoch. How many rows were set aside comes with it.
pub(in crate::file) fn load(
    connection: &Connection,
    now: Stamp,
    trust: Trust,
) -> rusqlite::Result<(KeptJobs, u64)> {
    let sql = "SELECT token_ceiling, keep_finished_ms FROM meta";
    let (ceiling, keep_finished_ms): (i64, Option<i64>) =
        connection.query_row(sql, [], |row| Ok((row.get(0)?, row.get(1)?)))?;
    let mut kept = KeptJobs {
        token_ceiling: Token::new(from_sql(ceiling)),
        keep_finished_ms: keep_finished_ms.map(from_sql),
        ..KeptJobs::default()
    };
    let last: Option<i64> = connection.query_row("SELECT max(arrival) FROM jobs", [], |row| row.get(0))?;
    kept.last_arrival = last.map_or(0, from_sql);
    let last_id: Option<[u8; 16]> = connection.query_row("SELECT max(id) FROM jobs", [], |row| row.get(0))?;
    kept.last_id = last_id.map(JobId::from_bytes);
    load_queues(connection, &mut kept)?;
    load_live(connection, now, trust, &mut kept)?;
    load_uniques(connection, &mut kept)?;
    load_schedules(connection, &mut kept)?;
    let aside: i64 = connection.query_row("SELECT count(*) FROM job_aside", [], |row| row.get(0))?;
    Ok((kept, from_sql(aside)))
}

fn load_queues(connection: &Connection, kept: &mut KeptJobs) -> rusqlite::Result<()> {
    let sql =
        "SELECT number, namespace, name, mode, completed, failed, cancelled FROM queues ORDER BY number";
    let mut statement = connection.prepare(sql)?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        let (namespace, name): (String, String) = (row.get(1)?, row.get(2)?);
        let (Ok(namespace), Ok(name)) = (Namespace::new(namespace), Queue::new(name)) else { continue };
        let finished = Counts {
            completed: from_sql(row.get(4)?),
            failed: from_sql(row.get(5)?),
            cancelled: from_sql(row.get(6)?),
            ..Counts::default()
        };
        let mode = match row.get::<_, u8>(3)? {
            1 => QueueMode::Paused,
            2 => QueueMode::Draining,
            _ => QueueMode::Open,
        };
        kept.queues
            .push(KeptQueue { number: row.get(0)?, namespace, name, mode, finished });
    }
    Ok(())
}

fn load_live(connection: &Connection, now: Stamp, trust: Trust, kept: &mut KeptJobs) -> rusqlite::Result<()> {
    let sql = "SELECT l.arrival, l.id, l.queue, l.deadline_ms, l.record, t.token, t.deadline_ms \
               FROM job_live l LEFT JOIN job_terms t ON t.arrival = l.arrival ORDER BY l.arrival";
    let mut statement = connection.prepare(sql)?;
    let mut rows = statement.query([])?;
    let mut broken: Vec<(i64, String)> = Vec::new();
    while let Some(row) = rows.next()? {
        let arrival: i64 = row.get(0)?;
        let read = (|| {
            let id: [u8; 16] = row.get(1).map_err(|_| "the id is not 16 bytes".to_owned())?;
            let queue: u32 = row.get(2).map_err(|_| "the queue is not a number".to_owned())?;
            let deadline_ms: i64 = row.get(3).map_err(|_| "the deadline is not a number".to_owned())?;
            let bytes = row.get_ref(4).ok().and_then(|bytes| bytes.as_blob().ok());
            let (about, record) = decode_job(bytes.ok_or("the record is not a blob")?)?;
            let term = row.get::<_, i64>(5).ok().zip(row.get::<_, i64>(6).ok());
            let renewed = term.is_some();
            let term = term.filter(|(token, _)| from_sql(*token) == record.token.get());
            let deadline_ms =
                from_sql(term.map_or(deadline_ms, |(_, renewed_ms)| renewed_ms.max(deadline_ms)));
            let id = JobId::from_bytes(id);
            let arrival = from_sql(arrival);
            Ok::<_, String>(KeptJob {
                arrival,
                id,
                queue,
                record,
                deadline_ms,
                about,
                reopened: false,
                renewed,
            })
        })();
        match read {
            Ok(mut job) => {
                rebase(&mut job, now, trust);
                kept.live.push(job);
            }
            Err(problem) => broken.push((arrival, problem)),
        }
    }
    drop(rows);
    for (arrival, problem) in broken {
        connection.execute(
            "INSERT INTO job_aside (problem, arrival, job, queue, deadline_ms, record) \
             SELECT ?2, arrival, id, queue, deadline_ms, record FROM job_live WHERE arrival = ?1",
            params![arrival, problem],
        )?;
        connection.execute("DELETE FROM job_live WHERE arrival = ?1", [arrival])?;
    }
    if trust != Trust::Exact {
        let mut buffer = Vec::new();
        let mut writing = super::Writing::new(connection, &mut buffer);
        for job in kept
            .live
            .iter()
            .filter(|job| job.record.claim.is_some() || job.record.due != Due::Now)
        {
            let change = crate::engine::JobChange::Live(Box::new(job.clone()));
            writing.write(&change)?;
        }
        connection.execute("DELETE FROM job_terms", [])?;
    }
    Ok(())
}

/// Makes a job's moments mean something on the clock of now.
pub(crate) fn rebase(job: &mut KeptJob, now: Stamp, trust: Trust) {
    if trust == Trust::NewBoot {
        if let Due::Store(_) = job.record.due {
            // How long it was still to wait is unknown on a new clock. It has waited for the boot.
            job.record.due = Due::Store(now.store_ms);
        }
        if let Some(claim) = &mut job.record.claim {
            claim.since.store_ms = now.store_ms;
        }
    }
    if let Some(claim) = &job.record.claim {
        let anew_ms = now.store_ms.saturating_add(claim.ttl_ms);
        job.deadline_ms = match trust {
            Trust::Exact => job.deadline_ms,
            // A renewal that was lost may have kept it.
            Trust::Lengthen => job.deadline_ms.max(anew_ms),
            Trust::NewBoot => anew_ms,
        };
    }
}

fn load_uniques(connection: &Connection, kept: &mut KeptJobs) -> rusqlite::Result<()> {
    let mut statement =
        connection.prepare("SELECT namespace, key, job, payload, until_wall_ms FROM uniques")?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        let Ok(namespace) = Namespace::new(row.get::<_, String>(0)?) else { continue };
        kept.uniques.push(KeptUnique {
            namespace,
            key: row.get(1)?,
            job: JobId::from_bytes(row.get(2)?),
            payload: row.get(3)?,
            until_wall_ms: from_sql(row.get(4)?),
        });
    }
    Ok(())
}

fn load_schedules(connection: &Connection, kept: &mut KeptJobs) -> rusqlite::Result<()> {
    let mut statement =
        connection.prepare("SELECT namespace, spec, next_wall_ms, last_wall_ms FROM schedules")?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        let Ok(namespace) = Namespace::new(row.get::<_, String>(0)?) else { continue };
        let spec = row.get_ref(1)?.as_blob().map_err(|error| error.to_string());
        let Ok(spec) = spec.and_then(|bytes| decode("schedule", bytes)) else { continue };
        kept.schedules.push(KeptSchedule {
            namespace,
            spec,
            next_wall_ms: row.get::<_, Option<i64>>(2)?.map(from_sql),
            last_wall_ms: row.get::<_, Option<i64>>(3)?.map(from_sql),
        });
    }
    Ok(())
}
