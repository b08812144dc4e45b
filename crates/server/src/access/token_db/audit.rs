//! The audit in the book: what was asked for, what came of it, and what was denied.

use fencehold_contract::http::access::{AuditEntry, AuditPage};
use fencehold_core::Namespace;
use fencehold_core::wire::Moment;
use rusqlite::{Connection, params};

use super::{TokenDb, TokenDbError, from_sql, to_sql};
use crate::audit::{AuditFilter, AuditOutcome, AuditRecord};

/// Refused attempts are many when someone tries tokens; only the latest are kept. What was done is kept for ever.
const DENIED_KEPT: i64 = if cfg!(test) { 50 } else { 10_000 };

/// How many entries pass between two times that older denials are forgotten.
const TRIM_EVERY: i64 = 16;

impl TokenDb {
    /// Enters what a caller is about to do, and gives the number by which [`TokenDb::settle`] finds it again.
    pub fn enter(
        &mut self,
        entry: &AuditRecord,
        outcome: AuditOutcome,
        now_wall_ms: u64,
    ) -> Result<i64, TokenDbError> {
        self.change(|connection| {
            let seq = append(connection, entry, outcome, now_wall_ms)?;
            if outcome == AuditOutcome::Denied && seq % TRIM_EVERY == 0 {
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
    pub fn settle(&mut self, seq: i64, outcome: AuditOutcome) -> Result<(), TokenDbError> {
        self.change(|connection| {
            connection
                .execute("UPDATE audit SET outcome = ? WHERE seq = ?", params![outcome.name(), seq])
                .map(drop)
        })
    }

    /// A page of the audit, oldest first.
    pub fn audit(&self, filter: &AuditFilter) -> Result<AuditPage, TokenDbError> {
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
                    let target: String = row.get(6)?;
                    Ok(AuditEntry {
                        seq: from_sql(row.get(0)?),
                        at: Moment { wall_ms: from_sql(row.get(1)?) },
                        actor: row.get(2)?,
                        address: row.get(3)?,
                        namespace: row.get(4)?,
                        action: operation_of(row.get(5)?, &target),
                        target,
                        reason: row.get(7)?,
                        outcome: outcome_of(row.get(8)?),
                    })
                },
            )?;
            rows.collect::<rusqlite::Result<Vec<AuditEntry>>>()
        };
        let entries = read().map_err(|error: rusqlite::Error| self.sorry(&error))?;
        // A page without entries is gone on from where it began.
        let next_cursor = entries.last().map_or(filter.after.unwrap_or(0), |entry| entry.seq);
        Ok(AuditPage { entries, next_cursor })
    }
}

/// What earlier versions wrote, and what that is called now. Where several operations had one name, the target tells them
/// apart.
const EARLIER: &[(&str, &[(&str, &str)])] = &[
    ("lease acquire", &[("", "acquire_lease")]),
    ("lease renew", &[("", "renew_lease_batch")]),
    ("lease release", &[("", "release_lease_batch")]),
    ("lease revoke", &[("key ", "revoke_lease"), ("", "revoke_lease_batch")]),
    ("lease look", &[("", "get_lease")]),
    ("hear of holds", &[("", "watch_holds")]),
    ("store status", &[("", "get_store_status")]),
    ("store advance", &[("", "advance_store")]),
    ("store open-now", &[("", "reopen_store")]),
    ("store limits", &[(": looked at", "get_quota"), ("", "set_quota")]),
    ("job enqueue", &[("", "enqueue_job_batch")]),
    ("job claim", &[("", "claim_jobs")]),
    ("job renew", &[("", "renew_attempt_batch")]),
    ("job report", &[("", "report_attempt_batch")]),
    ("job ledger", &[("", "write_effect_batch")]),
    ("job look", &[("", "get_job")]),
    ("job cancel", &[("", "cancel_job")]),
    ("job retry", &[("", "retry_job")]),
    ("job delete", &[("", "delete_job")]),
    ("queue set", &[(": paused", "pause_queue"), (": draining", "drain_queue"), ("", "resume_queue")]),
    ("queue remove", &[("", "delete_queue")]),
    ("schedule set", &[("", "set_schedule")]),
    ("schedule remove", &[("", "delete_schedule")]),
    ("operation begin", &[("", "begin_operation")]),
    ("effect resolve", &[("", "resolve_effect")]),
    ("token create", &[("", "create_access_token")]),
    ("token ls", &[("", "list_access_tokens")]),
    ("token revoke", &[("", "revoke_access_token")]),
    ("audit", &[("", "list_audit_entries")]),
];

fn operation_of(act: String, target: &str) -> String {
    let Some((_, names)) = EARLIER.iter().find(|(earlier, _)| *earlier == act) else { return act };
    let meant = names
        .iter()
        .find(|(part, _)| target.starts_with(part) || target.ends_with(part));
    meant.map_or(act, |(_, name)| (*name).to_owned())
}

fn outcome_of(outcome: String) -> String {
    match outcome.as_str() {
        "asked" => AuditOutcome::Pending.name().to_owned(),
        "partly" => AuditOutcome::Partial.name().to_owned(),
        _ => outcome,
    }
}

pub(super) fn append(
    connection: &Connection,
    entry: &AuditRecord,
    outcome: AuditOutcome,
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
    use fencehold_contract::http::{HttpOperation as _, op};

    use super::super::tests::new;
    use super::*;
    use crate::access::secret::Bearer;

    fn record(act: &'static str) -> AuditRecord {
        let (who, from, namespace) = ("w".to_owned(), "f".to_owned(), "n".to_owned());
        AuditRecord { who, from, namespace, act, target: String::new(), reason: None }
    }

    #[test]
    fn words_of_earlier_versions_read_as_those_of_today_and_stay_as_they_are() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("access.db");
        let mut token_db = TokenDb::open(&path).unwrap();
        let rows = [
            ("lease revoke", "key deploy", "asked", "revoke_lease pending"),
            ("lease revoke", "owner ci", "done", "revoke_lease_batch done"),
            ("job cancel", "a, b", "partly", "cancel_job partial"),
            ("queue set", "queue q: paused", "done", "pause_queue done"),
            ("queue set", "queue q: draining", "failed", "drain_queue failed"),
            ("queue set", "queue paused: open", "done", "resume_queue done"),
            ("store limits", "team: looked at", "done", "get_quota done"),
            ("store limits", "every namespace: Limits", "done", "set_quota done"),
            ("token create", "4f ops (admin)", "done", "create_access_token done"),
            ("job look", "", "denied", "get_job denied"),
        ];
        for (act, target, outcome, _) in rows {
            let entry = "INSERT INTO audit (at_wall_ms, who, came_from, namespace, act, target, outcome)
                         VALUES (1, 'w', 'f', 'n', ?, ?, ?)";
            token_db.connection.execute(entry, [act, target, outcome]).unwrap();
        }
        token_db.enter(&record("cancel_job"), AuditOutcome::Pending, 2).unwrap();
        let read = token_db.audit(&AuditFilter::default()).unwrap().entries.into_iter();
        let read: Vec<String> = read.map(|entry| format!("{} {}", entry.action, entry.outcome)).collect();
        let now: Vec<&str> = rows.iter().map(|row| row.3).chain(["cancel_job pending"]).collect();
        assert_eq!(read, now);
        let kept = "SELECT group_concat(act || ' ' || outcome, ';') FROM audit WHERE seq IN (1, 3)";
        let kept: String = token_db.connection.query_row(kept, [], |row| row.get(0)).unwrap();
        assert_eq!(kept, "lease revoke asked;job cancel partly");
    }

    #[test]
    fn a_token_is_revoked_once_and_only_the_latest_denials_are_kept() {
        let place = tempfile::tempdir().unwrap();
        let mut token_db = TokenDb::open(&place.path().join("access.db")).unwrap();
        let bearer = Bearer::from_random([5; 38]);
        token_db.create(&bearer, &new(), "here", 1).unwrap();
        assert!(token_db.revoke(bearer.id, "me", "here", None, 2).unwrap());
        assert!(!token_db.revoke(bearer.id, "me", "here", None, 3).unwrap());
        assert_eq!(token_db.tokens().unwrap()[0].revoked_wall_ms, Some(2), "the first time stands");
        token_db.connection.execute_batch("PRAGMA synchronous = OFF").unwrap();
        for _ in 0..DENIED_KEPT + 50 {
            token_db.enter(&record("denied"), AuditOutcome::Denied, 4).unwrap();
        }
        let all = token_db.audit(&AuditFilter::default()).unwrap().entries;
        let denied = i64::try_from(all.iter().filter(|row| row.outcome == "denied").count()).unwrap();
        assert!((DENIED_KEPT..DENIED_KEPT + TRIM_EVERY).contains(&denied), "{denied}");
        assert_eq!(all[0].action, op::CreateAccessToken::SPEC.name, "what was done is kept for ever");
    }
}
