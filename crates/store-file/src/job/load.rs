//! Starting from what was kept of jobs: those that have not come to their end, and what goes with them.

use std::collections::BTreeSet;

use fencehold_contract::job::{JobCounts, QueueMode};
use fencehold_contract::stored::queue_mode_numbered;
use fencehold_core::job::{Due, JobId, QueueName};
use fencehold_core::{Namespace, Timestamp, Token};
use fencehold_engine::{JobBody, StoredJob, StoredJobs, StoredQueue, StoredSchedule, StoredUnique};
use rusqlite::{Connection, OptionalExtension, Row, params};

use super::codec::{decode_body, decode_job, decode_schedule};
use crate::load::{Trust, began_ms};
use crate::sqlite::{self, from_sql, namespace_at, number};

/// Reads everything, inside the transaction that raised the epoch, or in one of the same owner. How many rows were set aside comes with it.
pub(crate) fn load(
    connection: &Connection,
    now: Timestamp,
    trust: Trust,
) -> rusqlite::Result<(StoredJobs, u64)> {
    let sql = "SELECT token_ceiling, keep_finished_ms FROM meta";
    let mut kept = connection.query_row(sql, [], |row| {
        let (token_ceiling, kept_ms) = (Token::new(from_sql(row.get(0)?)), row.get::<_, Option<i64>>(1)?);
        let keep_finished_ms = kept_ms.map(from_sql);
        Ok(StoredJobs { token_ceiling, keep_finished_ms, ..StoredJobs::default() })
    })?;
    kept.last_arrival = number(connection, "SELECT coalesce(max(arrival), 0) FROM jobs", [])?;
    let sql = "SELECT id FROM jobs WHERE typeof(id) = 'blob' AND length(id) = 16 ORDER BY id DESC LIMIT 1";
    let last_id: Option<[u8; 16]> = connection.query_row(sql, [], |row| row.get(0)).optional()?;
    kept.last_id = last_id.map(JobId::from_bytes);
    load_queues(connection, &mut kept)?;
    load_live(connection, now, trust, &mut kept)?;
    let sql = "SELECT namespace, key, job, payload, until_wall_ms FROM uniques";
    kept.uniques = load_rows(connection, "unique keys", sql, read_unique)?;
    let sql = "SELECT namespace, spec, next_wall_ms, last_wall_ms FROM schedules";
    kept.schedules = load_rows(connection, "schedules", sql, read_schedule)?;
    Ok((kept, number(connection, "SELECT count(*) FROM job_aside", [])?))
}

/// No store has so many queues: a larger number is damage.
const QUEUE_NUMBER_MAX: u32 = 10_000_000;

fn load_queues(connection: &Connection, kept: &mut StoredJobs) -> rusqlite::Result<()> {
    let sql =
        "SELECT number, namespace, name, mode, completed, failed, cancelled FROM queues ORDER BY number";
    let mut statement = connection.prepare(sql)?;
    let mut rows = statement.query([])?;
    let (mut broken, mut taken) = (Vec::new(), BTreeSet::new());
    while let Some(row) = rows.next()? {
        let number: i64 = row.get(0)?;
        // A count that cannot be read is reported as none, and `store check` finds that it does not add up.
        let count = |nth| row.get(nth).ok().and_then(|count: i64| u64::try_from(count).ok());
        let (completed, failed, cancelled) = (count(4), count(5), count(6));
        let mode = row.get::<_, u8>(3).ok().and_then(queue_mode_numbered);
        let named = row.get(1).ok().zip(row.get(2).ok());
        let named = named.and_then(|(space, name): (String, String)| {
            Namespace::new(space).ok().zip(QueueName::new(name).ok())
        });
        let whole = mode.is_some() && completed.and(failed).and(cancelled).is_some();
        if named.is_none() || !whole {
            broken.push(number);
        }
        let number = u32::try_from(number).ok().filter(|number| *number <= QUEUE_NUMBER_MAX);
        let (Some((namespace, name)), Some(number)) =
            (named.or_else(|| named_by_its_jobs(connection, number?)), number)
        else {
            continue;
        };
        if !taken.insert((namespace.clone(), name.clone())) {
            continue;
        }
        // A queue that seems empty is forgotten: where its counts are damaged, its finished jobs are counted.
        let sql = "SELECT count(*) FROM job_finished WHERE queue = ?1";
        let recounted = if whole { None } else { Some(sqlite::number(connection, sql, [number])?) };
        let finished = JobCounts {
            completed: completed.or(recounted).unwrap_or(0),
            failed: failed.unwrap_or(0),
            cancelled: cancelled.unwrap_or(0),
            ..JobCounts::default()
        };
        let mode = mode.unwrap_or_default();
        kept.queues.push(StoredQueue { number, namespace, name, mode, finished });
    }
    drop(rows);
    for number in broken {
        let problem = format!("the row of queue {number} is damaged");
        set_aside(connection, &problem, Some(number))?;
        connection.execute("DELETE FROM queues WHERE number = ?1", [number])?;
        let queue = kept.queues.iter().find(|queue| i64::from(queue.number) == number);
        queue.map(|queue| put_queue(connection, queue)).transpose()?;
    }
    Ok(())
}

/// What cannot be read is noted: `store status` counts it, and `store check` names it.
fn set_aside(connection: &Connection, problem: &str, queue: Option<i64>) -> rusqlite::Result<()> {
    let sql = "INSERT INTO job_aside (problem, queue) VALUES (?1, ?2)";
    connection.execute(sql, params![problem, queue]).map(drop)
}

fn put_queue(connection: &Connection, queue: &StoredQueue) -> rusqlite::Result<()> {
    let mut buffer = Vec::new();
    let change = fencehold_engine::JobChange::Queue(queue.clone());
    super::JobStatements::new(connection, &mut buffer).write(&change)
}

/// The name of a queue, as one of its jobs has it.
fn named_by_its_jobs(connection: &Connection, number: u32) -> Option<(Namespace, QueueName)> {
    let sql = "SELECT body FROM jobs WHERE arrival IN \
               (SELECT arrival FROM job_live WHERE queue = ?1 UNION ALL \
                SELECT arrival FROM job_finished WHERE queue = ?1) LIMIT 16";
    let mut statement = connection.prepare(sql).ok()?;
    let mut rows = statement.query([number]).ok()?;
    while let Some(row) = rows.next().ok()? {
        let body = row.get_ref(0).ok().and_then(|body| body.as_blob().ok());
        if let Some(Ok(body)) = body.map(decode_body) {
            return Some((body.namespace, body.queue));
        }
    }
    None
}

/// The number of the queue in which a job stands by its own body, where its row names none that there is.
fn queue_of(connection: &Connection, arrival: i64, kept: &mut StoredJobs) -> rusqlite::Result<Option<u32>> {
    let sql = "SELECT body FROM jobs WHERE arrival = ?1";
    let read = connection.query_row(sql, [arrival], |row| {
        Ok(row.get_ref(0)?.as_blob().ok().and_then(|body| decode_body(body).ok()))
    });
    let Some(body) = read.ok().flatten() else { return Ok(None) };
    let same = |queue: &&StoredQueue| queue.namespace == body.namespace && queue.name == body.queue;
    if let Some(queue) = kept.queues.iter().find(same) {
        return Ok(Some(queue.number));
    }
    let number = kept.queues.iter().map(|queue| queue.number + 1).max().unwrap_or(0);
    let JobBody { namespace, queue: name, .. } = body;
    let queue =
        StoredQueue { number, namespace, name, mode: QueueMode::Open, finished: JobCounts::default() };
    put_queue(connection, &queue)?;
    kept.queues.push(queue);
    Ok(Some(number))
}

fn load_live(
    connection: &Connection,
    now: Timestamp,
    trust: Trust,
    kept: &mut StoredJobs,
) -> rusqlite::Result<()> {
    let sql = "SELECT l.arrival, l.id, l.queue, l.deadline_ms, l.record, t.token, t.deadline_ms \
               FROM job_live l LEFT JOIN job_terms t ON t.arrival = l.arrival ORDER BY l.arrival";
    let mut statement = connection.prepare(sql)?;
    let mut rows = statement.query([])?;
    let mut broken: Vec<(i64, String)> = Vec::new();
    let known: BTreeSet<u32> = kept.queues.iter().map(|queue| queue.number).collect();
    let mut moved = Vec::new();
    while let Some(row) = rows.next()? {
        let arrival: i64 = row.get(0)?;
        let queue = row.get::<_, u32>(2).ok().filter(|number| known.contains(number));
        let queue = if queue.is_some() {
            queue
        } else {
            moved.push(arrival);
            queue_of(connection, arrival, kept)?
        };
        let read = (|| {
            let id: [u8; 16] = row.get(1).map_err(|_| "the id is not 16 bytes".to_owned())?;
            let queue = queue.ok_or("its queue is not known, nor does its body tell")?;
            let deadline_ms: i64 = row.get(3).map_err(|_| "the deadline is not a number".to_owned())?;
            let bytes = row.get_ref(4).ok().and_then(|bytes| bytes.as_blob().ok());
            let (about, record) = decode_job(bytes.ok_or("the record is not a blob")?)?;
            let term = row.get::<_, i64>(5).ok().zip(row.get::<_, i64>(6).ok());
            let renewed = term.is_some();
            let term = term.filter(|(token, _)| from_sql(*token) == record.token.get());
            let deadline_ms =
                from_sql(term.map_or(deadline_ms, |(_, renewed_ms)| renewed_ms.max(deadline_ms)));
            let (arrival, id, reopened) = (from_sql(arrival), JobId::from_bytes(id), false);
            Ok::<_, String>(StoredJob { arrival, id, queue, record, deadline_ms, about, reopened, renewed })
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
    for arrival in moved {
        let Some(job) = kept.live.iter().find(|job| Ok(job.arrival) == u64::try_from(arrival)) else {
            continue;
        };
        let problem = format!("job {}: its queue was not known, and was found by its body", job.id);
        set_aside(connection, &problem, Some(i64::from(job.queue)))?;
        let sql = "UPDATE job_live SET queue = ?2 WHERE arrival = ?1";
        connection.execute(sql, params![arrival, job.queue])?;
    }
    if trust != Trust::Exact {
        let mut buffer = Vec::new();
        let mut writing = super::JobStatements::new(connection, &mut buffer);
        for job in kept
            .live
            .iter()
            .filter(|job| job.record.claim.is_some() || job.record.due != Due::Now)
        {
            let change = fencehold_engine::JobChange::Live(Box::new(job.clone()));
            writing.write(&change)?;
        }
        connection.execute("DELETE FROM job_terms", [])?;
    }
    Ok(())
}

/// Makes a job's moments mean something on the clock of now.
pub fn rebase(job: &mut StoredJob, now: Timestamp, trust: Trust) {
    if trust == Trust::NewBoot {
        if let Due::Store(due_ms) = job.record.due {
            // It waits since its last attempt ended, of which both clocks are known.
            let ended = job.record.attempts().last().map_or(now, |last| last.ended);
            let whole_ms = due_ms.saturating_sub(ended.store_ms);
            let left_ms = whole_ms.saturating_sub(now.wall_ms.saturating_sub(ended.wall_ms));
            job.record.due = Due::Store(now.store_ms.saturating_add(left_ms));
        }
        if let Some(claim) = &mut job.record.claim {
            claim.since.store_ms = began_ms(claim.since, now);
        }
    }
    if let Some(claim) = &job.record.claim {
        let anew_ms = now.store_ms.saturating_add(claim.ttl_ms);
        job.deadline_ms = match trust {
            Trust::Exact => job.deadline_ms,
            // A renewal that was lost may have kept it.
            Trust::Lengthen => job.deadline_ms.max(anew_ms),
            Trust::Reboot | Trust::NewBoot => anew_ms,
        };
    }
}

fn read_unique(row: &Row<'_>) -> Option<StoredUnique> {
    Some(StoredUnique {
        namespace: namespace_at(row, 0)?,
        key: row.get(1).ok()?,
        job: JobId::from_bytes(row.get(2).ok()?),
        payload: row.get(3).ok()?,
        until_ms: from_sql(row.get(4).ok()?),
    })
}

fn read_schedule(row: &Row<'_>) -> Option<StoredSchedule> {
    Some(StoredSchedule {
        namespace: namespace_at(row, 0)?,
        spec: decode_schedule(row.get_ref(1).ok()?.as_blob().ok()?).ok()?,
        next_wall_ms: row.get::<_, Option<i64>>(2).ok()?.map(from_sql),
        last_wall_ms: row.get::<_, Option<i64>>(3).ok()?.map(from_sql),
    })
}

/// Rows of which those that cannot be read stay where they are, and are not served: noted once, no matter who opens the store.
fn load_rows<T>(
    connection: &Connection,
    what: &str,
    sql: &str,
    read: impl Fn(&Row<'_>) -> Option<T>,
) -> rusqlite::Result<Vec<T>> {
    let (rows, broken) = sqlite::readable_rows(connection, sql, read)?;
    if broken > 0 {
        tracing::warn!(
            what,
            broken,
            "rows of the store cannot be read and are not served; `store check` names them"
        );
        let problem = format!("{broken} {what} cannot be read");
        if number(connection, "SELECT count(*) FROM job_aside WHERE problem = ?1", [&problem])? == 0 {
            set_aside(connection, &problem, None)?;
        }
    }
    Ok(rows)
}
