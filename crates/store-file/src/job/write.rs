//! Writing what a batch changes about jobs.

use fencehold_contract::stored::queue_mode_number;
use fencehold_engine::{JobChange, JobNote, StoredJob, StoredQueue};
use rusqlite::{CachedStatement, Connection, params};

use super::codec::{encode_body, encode_effect, encode_finished, encode_job, encode_schedule};
use crate::sqlite::to_sql;

/// The statements that a batch runs over and over, looked up once a batch.
pub(crate) struct JobStatements<'c> {
    connection: &'c Connection,
    buffer: &'c mut Vec<u8>,
    body: Option<CachedStatement<'c>>,
    live: Option<CachedStatement<'c>>,
    not_live: Option<CachedStatement<'c>>,
    finished: Option<CachedStatement<'c>>,
}

/// A statement that was looked up before, or is now.
fn found<'s, 'c>(
    statement: &'s mut Option<CachedStatement<'c>>,
    connection: &'c Connection,
    sql: &str,
) -> rusqlite::Result<&'s mut CachedStatement<'c>> {
    if statement.is_none() {
        *statement = Some(connection.prepare_cached(sql)?);
    }
    Ok(statement.as_mut().expect("it has just been put there"))
}

impl<'c> JobStatements<'c> {
    pub(crate) fn new(connection: &'c Connection, buffer: &'c mut Vec<u8>) -> Self {
        JobStatements { connection, buffer, body: None, live: None, not_live: None, finished: None }
    }

    pub(crate) fn write(&mut self, change: &JobChange) -> rusqlite::Result<()> {
        let connection = self.connection;
        match change {
            JobChange::Body { arrival, id, body } => {
                encode_body(body, self.buffer);
                let statement = found(&mut self.body, connection, "INSERT INTO jobs VALUES (?1, ?2, ?3)")?;
                let values = params![to_sql(*arrival), id.as_bytes(), &self.buffer[..]];
                statement.execute(values).map(drop)
            }
            JobChange::Live(job) => {
                let StoredJob { arrival, id, queue, record, deadline_ms, about, reopened, .. } = job.as_ref();
                encode_job(*about, record, self.buffer);
                let sql = "INSERT OR REPLACE INTO job_live VALUES (?1, ?2, ?3, ?4, ?5)";
                let statement = found(&mut self.live, connection, sql)?;
                let bytes = &self.buffer[..];
                statement.execute(params![
                    to_sql(*arrival),
                    id.as_bytes(),
                    queue,
                    to_sql(*deadline_ms),
                    bytes
                ])?;
                if *reopened {
                    let sql = "DELETE FROM job_finished WHERE arrival = ?1";
                    connection.prepare_cached(sql)?.execute([to_sql(*arrival)])?;
                }
                Ok(())
            }
            JobChange::Finished(job) => {
                let arrival = to_sql(job.arrival);
                found(&mut self.not_live, connection, "DELETE FROM job_live WHERE arrival = ?1")?
                    .execute([arrival])?;
                if job.renewed {
                    let sql = "DELETE FROM job_terms WHERE arrival = ?1";
                    connection.prepare_cached(sql)?.execute([arrival])?;
                }
                encode_finished(job.about, &job.record, job.deadline_ms, self.buffer);
                let sql = "INSERT OR REPLACE INTO job_finished VALUES (?1, ?2, ?3)";
                let statement = found(&mut self.finished, connection, sql)?;
                statement.execute(params![arrival, job.queue, &self.buffer[..]]).map(drop)
            }
            change => write_rarer(connection, self.buffer, change),
        }
    }
}

/// What is not part of every job's life.
fn write_rarer(connection: &Connection, buffer: &mut Vec<u8>, change: &JobChange) -> rusqlite::Result<()> {
    let run = |sql: &str, values: &[&dyn rusqlite::ToSql]| {
        connection.prepare_cached(sql)?.execute(values).map(drop)
    };
    match change {
        JobChange::Term { arrival, token, deadline_ms } => run(
            "INSERT OR REPLACE INTO job_terms VALUES (?1, ?2, ?3)",
            &[&to_sql(*arrival), &to_sql(token.get()), &to_sql(*deadline_ms)],
        ),
        JobChange::Drop { arrival } => {
            let arrival = to_sql(*arrival);
            for sql in [
                "DELETE FROM jobs WHERE arrival = ?1",
                "DELETE FROM job_live WHERE arrival = ?1",
                "DELETE FROM job_terms WHERE arrival = ?1",
                "DELETE FROM job_finished WHERE arrival = ?1",
                "DELETE FROM job_notes WHERE arrival = ?1",
                "DELETE FROM effects WHERE arrival = ?1",
            ] {
                run(sql, &[&arrival])?;
            }
            Ok(())
        }
        JobChange::Note { arrival, what, bytes } => {
            let sql = "INSERT OR REPLACE INTO job_notes VALUES (?1, ?2, ?3)";
            connection
                .prepare_cached(sql)?
                .execute(params![to_sql(*arrival), tag_of(*what), &bytes[..]])
                .map(drop)
        }
        JobChange::Effect { arrival, effect } => {
            encode_effect(effect, buffer);
            let sql = "INSERT OR REPLACE INTO effects VALUES (?1, ?2, ?3)";
            connection
                .prepare_cached(sql)?
                .execute(params![to_sql(*arrival), effect.name.as_str(), &buffer[..]])
                .map(drop)
        }
        JobChange::NoEffect { arrival, effect } => run(
            "DELETE FROM effects WHERE arrival = ?1 AND name = ?2",
            &[&to_sql(*arrival), &effect.as_str()],
        ),
        change => write_other(connection, buffer, change),
    }
}

/// What is kept beside the jobs themselves.
fn write_other(connection: &Connection, buffer: &mut Vec<u8>, change: &JobChange) -> rusqlite::Result<()> {
    let run = |sql: &str, values: &[&dyn rusqlite::ToSql]| {
        connection.prepare_cached(sql)?.execute(values).map(drop)
    };
    match change {
        JobChange::Unique(taken) => {
            let sql = "INSERT OR REPLACE INTO uniques VALUES (?1, ?2, ?3, ?4, ?5)";
            let values = params![
                taken.namespace.as_str(),
                taken.key,
                taken.job.as_bytes(),
                taken.payload,
                to_sql(taken.until_ms)
            ];
            connection.prepare_cached(sql)?.execute(values).map(drop)
        }
        JobChange::NoUnique { namespace, key } => {
            let sql = "DELETE FROM uniques WHERE namespace = ?1 AND key = ?2";
            connection
                .prepare_cached(sql)?
                .execute(params![namespace.as_str(), key])
                .map(drop)
        }
        JobChange::Queue(queue) => write_queue(connection, queue),
        JobChange::NoQueue { number } => run("DELETE FROM queues WHERE number = ?1", &[number]),
        JobChange::Schedule(schedule) => {
            encode_schedule(&schedule.spec, buffer);
            let sql = "INSERT OR REPLACE INTO schedules VALUES (?1, ?2, ?3, ?4, ?5)";
            let values = params![
                schedule.namespace.as_str(),
                schedule.spec.name.as_str(),
                &buffer[..],
                schedule.next_wall_ms.map(to_sql),
                schedule.last_wall_ms.map(to_sql)
            ];
            connection.prepare_cached(sql)?.execute(values).map(drop)
        }
        JobChange::NoSchedule { namespace, name } => run(
            "DELETE FROM schedules WHERE namespace = ?1 AND name = ?2",
            &[&namespace.as_str(), &name.as_str()],
        ),
        JobChange::TokenCeiling { token } => {
            run("UPDATE meta SET token_ceiling = ?1 WHERE id = 1", &[&to_sql(token.get())])
        }
        _ => Ok(()),
    }
}

fn write_queue(connection: &Connection, queue: &StoredQueue) -> rusqlite::Result<()> {
    let sql = "INSERT OR REPLACE INTO queues VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)";
    let values = params![
        queue.number,
        queue.namespace.as_str(),
        queue.name.as_str(),
        queue_mode_number(queue.mode),
        to_sql(queue.finished.completed),
        to_sql(queue.finished.failed),
        to_sql(queue.finished.cancelled)
    ];
    connection.prepare_cached(sql)?.execute(values).map(drop)
}

/// The tag of a note in its row. Never change one: add another.
pub(super) fn tag_of(note: JobNote) -> u8 {
    match note {
        JobNote::Checkpoint => 1,
        JobNote::Progress => 2,
        JobNote::Result => 3,
    }
}
