//! The audit: who did what with force, from where, and why.
//!
//! An act is entered before it is done and settled after: one that a crash cut short stays pending. What cannot be
//! entered is not done.

use fencehold_core::Namespace;

/// What a caller is about to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditRecord {
    /// Who: the token, or the person at the command line.
    pub who: String,
    /// From where: an address, or the machine itself.
    pub from: String,
    /// The namespace; `*`: all.
    pub namespace: String,
    /// What: the id of the operation.
    pub act: &'static str,
    /// To what.
    pub target: String,
    /// Why, as far as they said.
    pub reason: Option<String>,
}

/// What came of an act.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AuditOutcome {
    /// Nothing is known yet.
    Pending,
    /// It was done.
    Done,
    /// To some of what was named it was done, and to some it was refused.
    Partial,
    /// The rules refused it, or it could not be done.
    Failed,
    /// The caller had no right to.
    Denied,
}

impl AuditOutcome {
    /// The name by which it is kept.
    pub const fn name(self) -> &'static str {
        match self {
            AuditOutcome::Pending => "pending",
            AuditOutcome::Done => "done",
            AuditOutcome::Partial => "partial",
            AuditOutcome::Failed => "failed",
            AuditOutcome::Denied => "denied",
        }
    }
}

/// Which lines.
#[derive(Clone, Debug, Default)]
pub struct AuditFilter {
    /// After this number.
    pub after: Option<u64>,
    /// Not before this moment, in wall time.
    pub since_wall_ms: Option<u64>,
    /// Of one namespace.
    pub namespace: Option<Namespace>,
    /// The latest so many.
    pub limit: Option<u64>,
}
