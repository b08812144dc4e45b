//! Writing what a batch changes about jobs.

use fencehold_contract::stored::queue_mode_number;
use fencehold_engine::{JobChange, JobNote, StoredJob, StoredQueue, StoredSchedule, StoredUnique};
use rusqlite::{CachedStatement, Connection, ToSql, params};

use super::codec::{encode_body, encode_effect, encode_finished, encode_job, encode_schedule};
use crate::sqlite::{run, to_sql};

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
                let (arrival, deadline_ms) = (to_sql(*arrival), to_sql(*deadline_ms));
                statement.execute(params![arrival, id.as_bytes(), queue, deadline_ms, &self.buffer[..]])?;
                if *reopened {
                    run(connection, "DELETE FROM job_finished WHERE arrival = ?1", [arrival])?;
                }
                Ok(())
            }
            JobChange::Finished(job) => {
                let arrival = to_sql(job.arrival);
                found(&mut self.not_live, connection, "DELETE FROM job_live WHERE arrival = ?1")?
                    .execute([arrival])?;
                if job.renewed {
                    run(connection, "DELETE FROM job_terms WHERE arrival = ?1", [arrival])?;
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

/// What is not part of every job's life, and what is kept beside the jobs themselves.
fn write_rarer(connection: &Connection, buffer: &mut Vec<u8>, change: &JobChange) -> rusqlite::Result<()> {
    let run = |sql: &str, values: &[&dyn ToSql]| run(connection, sql, values);
    match change {
        JobChange::Term { arrival, token, deadline_ms } => {
            let values = params![to_sql(*arrival), to_sql(token.get()), to_sql(*deadline_ms)];
            run("INSERT OR REPLACE INTO job_terms VALUES (?1, ?2, ?3)", values)
        }
        JobChange::Drop { arrival } => {
            for sql in DROP {
                run(sql, params![to_sql(*arrival)])?;
            }
            Ok(())
        }
        JobChange::Note { arrival, what, bytes } => {
            let values = params![to_sql(*arrival), tag_of(*what), &bytes[..]];
            run("INSERT OR REPLACE INTO job_notes VALUES (?1, ?2, ?3)", values)
        }
        JobChange::Effect { arrival, effect } => {
            encode_effect(effect, buffer);
            let values = params![to_sql(*arrival), effect.name.as_str(), &buffer[..]];
            run("INSERT OR REPLACE INTO effects VALUES (?1, ?2, ?3)", values)
        }
        JobChange::NoEffect { arrival, effect } => {
            let values = params![to_sql(*arrival), effect.as_str()];
            run("DELETE FROM effects WHERE arrival = ?1 AND name = ?2", values)
        }
        JobChange::Unique(StoredUnique { namespace, key, job, payload, until_ms }) => {
            let values = params![namespace.as_str(), key, job.as_bytes(), payload, to_sql(*until_ms)];
            run("INSERT OR REPLACE INTO uniques VALUES (?1, ?2, ?3, ?4, ?5)", values)
        }
        JobChange::NoUnique { namespace, key } => {
            let values = params![namespace.as_str(), key];
            run("DELETE FROM uniques WHERE namespace = ?1 AND key = ?2", values)
        }
        JobChange::Queue(StoredQueue { number, namespace, name, mode, finished }) => {
            let [completed, failed, cancelled] =
                [finished.completed, finished.failed, finished.cancelled].map(to_sql);
            let (mode, space) = (queue_mode_number(*mode), namespace.as_str());
            let values = params![number, space, name.as_str(), mode, completed, failed, cancelled];
            run("INSERT OR REPLACE INTO queues VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)", values)
        }
        JobChange::NoQueue { number } => run("DELETE FROM queues WHERE number = ?1", params![number]),
        JobChange::Schedule(schedule) => {
            let StoredSchedule { namespace, spec, next_wall_ms, last_wall_ms } = schedule.as_ref();
            encode_schedule(spec, buffer);
            let (next, last) = (next_wall_ms.map(to_sql), last_wall_ms.map(to_sql));
            let values = params![namespace.as_str(), spec.name.as_str(), &buffer[..], next, last];
            run("INSERT OR REPLACE INTO schedules VALUES (?1, ?2, ?3, ?4, ?5)", values)
        }
        JobChange::NoSchedule { namespace, name } => {
            let values = params![namespace.as_str(), name.as_str()];
            run("DELETE FROM schedules WHERE namespace = ?1 AND name = ?2", values)
        }
        JobChange::TokenCeiling { token } => {
            run("UPDATE meta SET token_ceiling = ?1 WHERE id = 1", params![to_sql(token.get())])
        }
        // Written with statements that are looked up once a batch.
        JobChange::Body { .. } | JobChange::Live(_) | JobChange::Finished(_) => Ok(()),
    }
}

/// What removes a job.
const DROP: [&str; 6] = [
    "DELETE FROM jobs WHERE arrival = ?1",
    "DELETE FROM job_live WHERE arrival = ?1",
    "DELETE FROM job_terms WHERE arrival = ?1",
    "DELETE FROM job_finished WHERE arrival = ?1",
    "DELETE FROM job_notes WHERE arrival = ?1",
    "DELETE FROM effects WHERE arrival = ?1",
];

/// The tag of a note in its row. Never change one: add another.
pub(super) fn tag_of(note: JobNote) -> u8 {
    match note {
        JobNote::Checkpoint => 1,
        JobNote::Progress => 2,
        JobNote::Result => 3,
    }
}
