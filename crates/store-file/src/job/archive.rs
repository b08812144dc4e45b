//! Reading what of jobs is not in memory.

use std::sync::Arc;

use fencehold_contract::StoreError;
use fencehold_core::Timestamp;
use fencehold_core::job::JobId;
use fencehold_core::ledger::Effect;
use fencehold_engine::{
    Archive, ArchiveRange, ArchiveResult, ArchiveRow, JobBody, JobNote, StoredEvents, StoredJob, StoredJobs,
};
use rusqlite::{Params, Row, params};

use super::body_cache::{AHEAD, AHEAD_BYTES};
use super::codec::{decode_body, decode_effect, decode_finished};
use super::write::tag_of;
use crate::sqlite::{self, SqlitePersistence, from_sql, to_sql};

/// Not a join: SQLite would look at the value of `?1` to plan it, and plan it anew for every other value.
const FINISHED: &str = "SELECT arrival, queue, record FROM job_finished \
                        WHERE arrival = (SELECT arrival FROM jobs WHERE id = ?1)";

/// An error of the database is the disk's; a row that cannot be understood is only missing.
fn disk<T>(read: rusqlite::Result<T>) -> ArchiveResult<T> {
    read.map_err(|error| error.to_string())
}

fn understood<T>(arrival: u64, read: Result<T, String>) -> Option<T> {
    read.map_err(|problem| tracing::warn!(arrival, problem, "a row of a job cannot be read"))
        .ok()
}

impl Archive for SqlitePersistence {
    fn load_jobs(&mut self, now: Timestamp) -> Result<(StoredJobs, u64), StoreError> {
        SqlitePersistence::load_jobs(self, now)
    }

    fn load_events(&mut self, until_seq: u64) -> Result<StoredEvents, StoreError> {
        SqlitePersistence::load_events(self, until_seq)
    }

    fn finished(&mut self, id: JobId) -> ArchiveResult<Option<StoredJob>> {
        let read = |row: &Row<'_>| Ok((from_sql(row.get(0)?), row.get(1).ok().zip(row.get(2).ok())));
        let found = self.rows(FINISHED, [id.as_bytes()], read)?;
        Ok(found
            .into_iter()
            .next()
            .and_then(|(arrival, row): (u64, Option<(u32, Vec<u8>)>)| {
                let (queue, record) =
                    understood(arrival, row.ok_or_else(|| "the row is damaged".to_owned()))?;
                finished_job(arrival, id, queue, &record)
            }))
    }

    fn body(&mut self, arrival: u64) -> ArchiveResult<Option<Arc<JobBody>>> {
        if let Some(body) = self.bodies.get(arrival) {
            return Ok(Some(body));
        }
        let many = if self.bodies.missed(arrival) { AHEAD } else { 1 };
        let sql = "SELECT arrival, body FROM jobs WHERE arrival BETWEEN ?1 AND ?2 ORDER BY arrival";
        let mut statement = disk(self.connection.prepare_cached(sql))?;
        let mut rows = disk(statement.query([to_sql(arrival), to_sql(arrival.saturating_add(many - 1))]))?;
        let mut found = Vec::new();
        let mut bytes = 0;
        while let Some(row) = disk(rows.next())? {
            let at = from_sql(disk(row.get(0))?);
            let body = disk(row.get_ref(1))?.as_blob().unwrap_or_default();
            bytes += body.len();
            found.extend(understood(at, decode_body(body)).map(|body| (at, Arc::new(body))));
            if bytes > AHEAD_BYTES {
                break;
            }
        }
        let body = found.first().filter(|(at, _)| *at == arrival).map(|(_, body)| Arc::clone(body));
        if many > 1 {
            self.bodies.look_ahead(found);
        }
        Ok(body)
    }

    fn note(&mut self, arrival: u64, what: JobNote) -> ArchiveResult<Option<Arc<[u8]>>> {
        let sql = "SELECT bytes FROM job_notes WHERE arrival = ?1 AND what = ?2";
        let mut read = self.rows(sql, params![to_sql(arrival), tag_of(what)], |row| {
            let bytes = row.get_ref(0)?.as_blob().map(Arc::from);
            Ok(bytes.map_err(|_| "a note is damaged".to_owned()))
        })?;
        Ok(read.pop().and_then(|note| understood(arrival, note)))
    }

    fn effects(&mut self, arrival: u64) -> ArchiveResult<Vec<Effect>> {
        let sql = "SELECT effect FROM effects WHERE arrival = ?1";
        let read = self.rows(sql, [to_sql(arrival)], |row| {
            Ok(decode_effect(row.get_ref(0)?.as_blob().unwrap_or_default()))
        })?;
        Ok(read.into_iter().filter_map(|effect| understood(arrival, effect)).collect())
    }

    fn page(&mut self, rows: ArchiveRange, from: u64, rows_max: usize) -> ArchiveResult<Vec<ArchiveRow>> {
        let sql = match rows {
            ArchiveRange::Live => {
                "SELECT arrival, id, NULL, NULL FROM job_live WHERE arrival >= ?1 ORDER BY arrival LIMIT ?2"
            }
            ArchiveRange::Finished => {
                "SELECT f.arrival, j.id, f.queue, f.record FROM job_finished f JOIN jobs j \
                 ON j.arrival = f.arrival WHERE f.arrival >= ?1 ORDER BY f.arrival LIMIT ?2"
            }
            ArchiveRange::All => {
                "SELECT j.arrival, j.id, f.queue, f.record FROM jobs j LEFT JOIN job_finished f \
                 ON f.arrival = j.arrival WHERE j.arrival >= ?1 ORDER BY j.arrival LIMIT ?2"
            }
        };
        let limit = i64::try_from(rows_max).unwrap_or(i64::MAX);
        self.rows(sql, params![to_sql(from), limit], |row| {
            let (arrival, id) = (from_sql(row.get(0)?), readable_id(row));
            let (queue, record): (Option<u32>, Option<Vec<u8>>) =
                (row.get(2).unwrap_or_default(), row.get(3).unwrap_or_default());
            let finished = queue
                .zip(record)
                .and_then(|(queue, record)| finished_job(arrival, id, queue, &record));
            Ok(ArchiveRow { arrival, id, finished })
        })
    }

    fn with_effects(&mut self, from: u64, rows_max: usize) -> ArchiveResult<Vec<(u64, JobId)>> {
        let sql = "SELECT e.arrival, j.id FROM (SELECT DISTINCT arrival FROM effects WHERE arrival >= ?1 \
                   ORDER BY arrival LIMIT ?2) e JOIN jobs j ON j.arrival = e.arrival ORDER BY e.arrival";
        let limit = i64::try_from(rows_max).unwrap_or(i64::MAX);
        self.rows(sql, params![to_sql(from), limit], |row| Ok((from_sql(row.get(0)?), readable_id(row))))
    }
}

impl SqlitePersistence {
    /// Reads rows, each as `read` does.
    fn rows<T>(
        &self,
        sql: &str,
        values: impl Params,
        read: impl FnMut(&Row<'_>) -> rusqlite::Result<T>,
    ) -> ArchiveResult<Vec<T>> {
        disk(sqlite::rows(&self.connection, sql, values, read))
    }
}

/// The id in a row's second column; one that cannot be read is that of no job.
fn readable_id(row: &Row<'_>) -> JobId {
    JobId::from_bytes(row.get(1).unwrap_or_default())
}

fn finished_job(arrival: u64, id: JobId, queue: u32, record: &[u8]) -> Option<StoredJob> {
    let (about, record, deadline_ms) = understood(arrival, decode_finished(record))?;
    Some(StoredJob { arrival, id, queue, record, deadline_ms, about, reopened: false, renewed: false })
}

#[cfg(test)]
mod tests {
    use rusqlite::{Connection, OptionalExtension as _, StatementStatus};

    use super::*;

    /// Asked for every job that comes with an id older than the newest: most of them, when many clients enqueue at once.
    #[test]
    fn a_finished_job_is_looked_for_by_a_plan_that_is_made_once() {
        let connection = Connection::open_in_memory().unwrap();
        for step in crate::schema::VERSIONS {
            connection.execute_batch(step).unwrap();
        }
        for nth in 0..3_u8 {
            let mut statement = connection.prepare_cached(FINISHED).unwrap();
            let found = statement.query_row([[nth; 16]], |_| Ok(())).optional().unwrap();
            assert_eq!(found, None);
            assert_eq!(statement.get_status(StatementStatus::RePrepare), 0, "planned anew for value {nth}");
        }
    }
}
