//! Tokens of access and the audit, through the server that they are for.

use fencehold_core::Namespace;

use super::{Scope, http_requests, http_types};
use fencehold_core::wire::Moment;

use crate::json::{AsCursor, AsOptionalCursor};

http_requests! {
    /// A token that is to be made. Its caller makes the secret and keeps it: only its hash is sent, and the same request
    /// sent again makes no second token.
    pub struct CreateAccessTokenRequest {
        /// Its public id: 12 hexadecimal digits of random bits, made by the caller.
        #[schemars(regex(pattern = "^[0-9a-f]{12}$"))]
        pub id: String,
        /// The SHA-256 of the 32 random bytes of its secret, as 64 hexadecimal digits.
        #[schemars(regex(pattern = "^[0-9a-f]{64}$"))]
        pub secret_sha256: String,
        /// What people call it.
        #[schemars(length(min = 1, max = TOKEN_NAME_BYTES_MAX))]
        pub name: String,
        /// The namespace that it is for; missing: every one.
        pub namespace: Option<Namespace> = None,
        /// What it allows.
        #[schemars(length(min = 1))]
        pub scopes: Vec<Scope>,
        /// When it ends, from now; missing: never.
        pub expires_in_ms: Option<u64> = None,
        /// Who makes it, for the record; the audit also names the token that was shown.
        pub by: Option<String> = None,
    }

    /// Which token to revoke, and why.
    pub struct RevokeAccessTokenRequest {
        /// Its public id.
        #[schemars(regex(pattern = "^[0-9a-f]{12}$"))]
        pub access_token_id: String,
        /// Who revokes it, for the record.
        pub by: Option<String> = None,
        /// Why.
        pub reason: Option<String> = None,
    }

    /// Which lines of the audit.
    pub struct AuditRequest {
        /// Where the page before ended.
        #[serde(with = "AsOptionalCursor")]
        pub cursor: Option<u64> = None,
        /// Not older than this.
        pub since_ms: Option<u64> = None,
        /// Only those of the request's namespace. A token for one namespace sees no others in any case.
        #[serde(default)]
        pub only_namespace: bool,
        /// The latest so many.
        #[serde(default = "audit_lines")]
        #[schemars(range(min = 1, max = AUDIT_LINES_MAX))]
        pub limit: u64,
    }
}

http_types! {
    /// A token: everything but its secret.
    pub struct AccessTokenView {
        /// Its public id.
        pub id: String,
        /// What people call it.
        pub name: String,
        /// The namespace that it is for; missing: every one.
        pub namespace: Option<Namespace> = None,
        /// What it allows.
        pub scopes: Vec<Scope>,
        /// When it was made.
        pub created_at: Moment,
        /// Who made it.
        pub created_by: String,
        /// When it ends.
        pub expires_at: Option<Moment> = None,
        /// When it was last used, to within some seconds.
        pub last_used_at: Option<Moment> = None,
        /// When it was revoked.
        pub revoked_at: Option<Moment> = None,
    }

    /// Tokens, oldest first.
    pub struct AccessTokenList {
        /// The tokens.
        pub access_tokens: Vec<AccessTokenView>,
    }

    /// What became of a revocation.
    pub struct RevokedAccessToken {
        /// False: it was revoked before.
        pub revoked: bool,
    }

    /// Lines of the audit, oldest first.
    pub struct AuditPage {
        /// The lines.
        pub entries: Vec<AuditEntry>,
        /// Where to go on from.
        #[serde(with = "AsCursor")]
        pub next_cursor: u64,
    }

    /// A line of the audit.
    pub struct AuditEntry {
        /// Its number; it grows.
        pub seq: u64,
        /// When.
        pub at: Moment,
        /// Who: a token, or a person at a command line.
        pub actor: String,
        /// From which address.
        pub address: String,
        /// In which namespace; `*`: in all.
        pub namespace: String,
        /// Which operation: its id in this document.
        pub action: String,
        /// To what.
        pub target: String,
        /// Why.
        pub reason: Option<String> = None,
        /// What came of it: `pending` (nothing is known yet), `done`, `partial` (some of it was refused),
        /// `failed`, `denied`.
        pub outcome: String,
    }
}

/// Longest name of a token, in bytes.
pub const TOKEN_NAME_BYTES_MAX: usize = 128;
/// Most lines of the audit in one answer.
pub const AUDIT_LINES_MAX: u64 = 10_000;

const fn audit_lines() -> u64 {
    200
}
