//! What can go wrong on the way to the database and back, and what that says of what was asked.

use fencehold_net::AttemptError;
use tokio_postgres::error::SqlState;

/// Why a statement was not answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum StatementError {
    /// Nothing was done, and it may work in a moment.
    Unreached(String),
    /// It may have been done: the connection broke, or the server went, before the answer came.
    Unclear(String),
    /// Nothing was done: another session held a lock for longer than this request may wait.
    Locked(String),
    /// It will not work, however often it is tried.
    Refused(String),
}

impl StatementError {
    /// What became of a statement.
    pub(super) fn of(error: &tokio_postgres::Error, schema: &str) -> Self {
        let Some(said) = error.as_db_error() else {
            return StatementError::Unclear(whole(error));
        };
        StatementError::said(
            said.code(),
            schema,
            format!("{} (SQLSTATE {})", said.message(), said.code().code()),
        )
    }

    /// What an answer of the server says.
    fn said(code: &SqlState, schema: &str, why: String) -> Self {
        match code {
            &SqlState::LOCK_NOT_AVAILABLE => StatementError::Locked(why),
            // Rolled back: another try starts afresh. Or refused before anything began.
            &SqlState::T_R_SERIALIZATION_FAILURE
            | &SqlState::T_R_DEADLOCK_DETECTED
            | &SqlState::READ_ONLY_SQL_TRANSACTION
            | &SqlState::CANNOT_CONNECT_NOW
            | &SqlState::TOO_MANY_CONNECTIONS
            | &SqlState::QUERY_CANCELED
            | &SqlState::IDLE_IN_TRANSACTION_SESSION_TIMEOUT
            | &SqlState::IDLE_SESSION_TIMEOUT
            | &SqlState::OUT_OF_MEMORY
            | &SqlState::DISK_FULL => StatementError::Unreached(why),
            // The server went, and did not say what became of what it was doing.
            &SqlState::ADMIN_SHUTDOWN | &SqlState::CRASH_SHUTDOWN => StatementError::Unclear(why),
            code if code.code().starts_with("08") || code.code().starts_with("58") => {
                StatementError::Unclear(why)
            }
            &SqlState::UNDEFINED_FUNCTION | &SqlState::UNDEFINED_TABLE | &SqlState::UNDEFINED_COLUMN => {
                StatementError::Refused(format!(
                    "{why}; the schema is not the one that this program knows: see `fencehold store status`"
                ))
            }
            &SqlState::INSUFFICIENT_PRIVILEGE => StatementError::Refused(format!(
                "{why}; grant this user the role {} (or {}, for what needs it); if it has that role, the owner of the schema gives the role \
                 its rights again with `fencehold store migrate`",
                role(schema, "worker"),
                role(schema, "admin")
            )),
            _ => StatementError::Refused(why),
        }
    }

    /// What became of trying to connect: whatever it was, nothing was done.
    pub(super) fn of_connecting(error: &tokio_postgres::Error, schema: &str) -> Self {
        match StatementError::of(error, schema) {
            StatementError::Unclear(why) | StatementError::Locked(why) => StatementError::Unreached(why),
            fault => fault,
        }
    }
}

impl From<StatementError> for AttemptError {
    fn from(fault: StatementError) -> Self {
        match fault {
            StatementError::Unreached(why) | StatementError::Locked(why) => AttemptError::NotDone(why),
            StatementError::Unclear(why) => AttemptError::Unknown(why),
            StatementError::Refused(why) => AttemptError::Unusable(why),
        }
    }
}

/// The name of a role of this schema, as `role_named` has it in the database.
fn role(schema: &str, rank: &str) -> String {
    match schema {
        "fencehold" => format!("fencehold_{rank}"),
        schema => format!("fencehold_{}_{rank}", schema.get(..46).unwrap_or(schema)),
    }
}

/// An error with what caused it: its own text alone often says only that something failed.
fn whole(error: &tokio_postgres::Error) -> String {
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(deeper) = cause {
        let said = deeper.to_string();
        if !text.contains(&said) {
            text = format!("{text}: {said}");
        }
        cause = deeper.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What may have been done is never said not to have been, and what was rolled back is tried again.
    #[test]
    fn each_sqlstate_says_what_has_become_of_the_statement() {
        let of = |code: &str| StatementError::said(&SqlState::from_code(code), "fencehold", code.to_owned());
        let unreached =
            ["40001", "40P01", "25006", "57P03", "53300", "57014", "25P03", "57P05", "53200", "53100"];
        for code in unreached {
            assert_eq!(of(code), StatementError::Unreached(code.to_owned()));
        }
        for code in ["57P01", "57P02", "08000", "08003", "08006", "08P01", "58000", "58030"] {
            assert_eq!(of(code), StatementError::Unclear(code.to_owned()));
        }
        assert_eq!(of("55P03"), StatementError::Locked("55P03".to_owned()));
        for code in ["42883", "42P01", "42501", "0A000", "23505", "XX000", "FH001"] {
            assert!(matches!(of(code), StatementError::Refused(_)), "{code}");
        }
    }
}
