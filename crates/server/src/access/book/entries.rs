//! The audit in the book: what was asked for, what came of it, and what was denied.

use fencehold_core::Namespace;
use rusqlite::{Connection, params};

use super::{Book, BookError, from_sql, to_sql};
use crate::audit::{AuditEntry, AuditFilter, AuditRow, Outcome};

/// Refused attempts are many when somebody tries doors; only the latest are kept. What was done is kept for ever.
const DENIED_KEPT: i64 = if cfg!(test) { 50 } else { 10_000 };

/// How many entries pass between two times that older denials are forgotten.
const TRIM_EVERY: i64 = 16;

impl Book {
    /// Enters what somebody is about to do, and gives the number by which [`Book::settle`] finds it again.
    pub fn enter(
        &mut self,
        entry: &AuditEntry,
        outcome: Outcome,
        now_wall_ms: u64,
    ) -> Result<i64, BookError> {
        self.change(|connection| {
            let seq = append(connection, entry, outcome, now_wall_ms)?;
            if outcome == Outcome::Denied && seq % TRIM_EVERY == 0 {
                connection.execute(
                    "DELETE FROM audit WHERE outcome = 'denied' AND seq <= (SELECT seq FROM audit WHERE outcome = 'denied'
                     ORDER BY seq DESC LIMIT 1 OFFSET ?)",
                    [DENIED_KEPT],
                )?;
            }
            Ok(seq)
        })
    }

    /// Notes what came of it.
    pub fn settle(&mut self, seq: i64, outcome: Outcome) -> Result<(), BookError> {
        self.change(|connection| {
            connection
                .execute("UPDATE audit SET outcome = ? WHERE seq = ?", params![outcome.name(), seq])
                .map(drop)
        })
    }

    /// The audit, oldest first.
    pub fn audit(&self, filter: &AuditFilter) -> Result<Vec<AuditRow>, BookError> {
        let read = || {
            let mut statement = self.connection.prepare_cached(
                "SELECT * FROM (SELECT seq, at_wall_ms, who, came_from, namespace, act, target, reason, outcome FROM audit
                 WHERE seq > ?1 AND at_wall_ms >= ?2 AND (?3 IS NULL OR namespace = ?3) ORDER BY seq DESC LIMIT ?4) ORDER BY seq",
            )?;
            let rows = statement.query_map(
                params![
                    to_sql(filter.after.unwrap_or(0)),
                    to_sql(filter.since_wall_ms.unwrap_or(0)),
                    filter.namespace.as_ref().map(Namespace::as_str),
                    to_sql(filter.limit.unwrap_or(u64::MAX)),
                ],
                |row| {
                    Ok(AuditRow {
                        seq: from_sql(row.get(0)?),
                        at_wall_ms: from_sql(row.get(1)?),
                        who: row.get(2)?,
                        from: row.get(3)?,
                        namespace: row.get(4)?,
                        act: row.get(5)?,
                        target: row.get(6)?,
                        reason: row.get(7)?,
                        outcome: row.get(8)?,
                    })
                },
            )?;
            rows.collect::<rusqlite::Result<_>>()
        };
        read().map_err(|error: rusqlite::Error| self.sorry(&error))
    }
}

pub(super) fn append(
    connection: &Connection,
    entry: &AuditEntry,
    outcome: Outcome,
    now_wall_ms: u64,
) -> rusqlite::Result<i64> {
    connection.execute(
        "INSERT INTO audit (at_wall_ms, who, came_from, namespace, act, target, reason, outcome) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        params![
            to_sql(now_wall_ms),
            entry.who,
            entry.from,
            entry.namespace,
            entry.act,
            entry.target,
            entry.reason,
            outcome.name()
        ],
    )?;
    Ok(connection.last_insert_rowid())
}

#[cfg(test)]
mod tests {
    use super::super::tests::new;
    use super::*;
    use crate::access::secret::Bearer;

    #[test]
    fn a_token_is_revoked_once_and_only_the_latest_denials_are_kept() {
        let place = tempfile::tempdir().unwrap();
        let mut book = Book::open(&place.path().join("access.db")).unwrap();
        let bearer = Bearer::from_random([5; 38]);
        book.create(&bearer, &new(), "here", 1).unwrap();
        assert!(book.revoke(bearer.id, "me", "here", None, 2).unwrap());
        assert!(!book.revoke(bearer.id, "me", "here", None, 3).unwrap());
        assert_eq!(book.tokens().unwrap()[0].revoked_wall_ms, Some(2), "the first time stands");
        let entry = |act| AuditEntry {
            who: "w".to_owned(),
            from: "f".to_owned(),
            namespace: "n".to_owned(),
            act,
            target: String::new(),
            reason: None,
        };
        book.connection.execute_batch("PRAGMA synchronous = OFF").unwrap();
        for _ in 0..DENIED_KEPT + 50 {
            book.enter(&entry("denied"), Outcome::Denied, 4).unwrap();
        }
        let all = book.audit(&AuditFilter::default()).unwrap();
        let denied = i64::try_from(all.iter().filter(|row| row.outcome == "denied").count()).unwrap();
        assert!((DENIED_KEPT..DENIED_KEPT + TRIM_EVERY).contains(&denied), "{denied}");
        assert_eq!(all[0].act, "token create", "what was done is kept for ever");
    }
}
