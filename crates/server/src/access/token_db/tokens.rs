//! Tokens in the book: made, revoked, and when they were last used.

use fencehold_contract::http::access::AccessTokenView;
use fencehold_contract::http::{HttpOperation as _, op};
use fencehold_core::Namespace;
use fencehold_core::wire::Moment;
use rusqlite::{OptionalExtension, Row, params};

use super::audit::append;
use super::{TokenDb, TokenDbError, from_sql, to_sql};
use crate::access::scope::Scopes;
use crate::access::secret::{Bearer, SecretHash, TokenId};
use crate::audit::{AuditOutcome, AuditRecord};

/// A token as it is kept: everything but its secret.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ApiToken {
    /// Its public name.
    pub id: TokenId,
    /// What people call it.
    pub name: String,
    /// The namespace it opens; `None`: every one.
    pub namespace: Option<Namespace>,
    /// What it may be used for.
    pub scopes: Scopes,
    /// When it was made, in wall time.
    pub created_wall_ms: u64,
    /// By whom.
    pub created_by: String,
    /// When it ends, in wall time.
    pub expires_wall_ms: Option<u64>,
    /// When it was last used, in wall time, to within some seconds.
    pub last_used_wall_ms: Option<u64>,
    /// When it was revoked, in wall time.
    pub revoked_wall_ms: Option<u64>,
    pub(crate) hash: SecretHash,
}

/// As people may see it.
impl From<ApiToken> for AccessTokenView {
    fn from(token: ApiToken) -> Self {
        let moment = |wall_ms: u64| Moment { wall_ms };
        AccessTokenView {
            id: token.id.to_string(),
            name: token.name,
            namespace: token.namespace,
            scopes: token.scopes.iter().collect(),
            created_at: moment(token.created_wall_ms),
            created_by: token.created_by,
            expires_at: token.expires_wall_ms.map(moment),
            last_used_at: token.last_used_wall_ms.map(moment),
            revoked_at: token.revoked_wall_ms.map(moment),
        }
    }
}

/// What a new token is to be.
#[derive(Clone, Debug)]
pub struct NewToken {
    /// What people call it.
    pub name: String,
    /// The namespace it opens; `None`: every one.
    pub namespace: Option<Namespace>,
    /// What it may be used for.
    pub scopes: Scopes,
    /// By whom.
    pub created_by: String,
    /// When it ends, in wall time.
    pub expires_wall_ms: Option<u64>,
}

impl TokenDb {
    /// Enters a new token, and the fact that it was made.
    pub fn create(
        &mut self,
        bearer: &Bearer,
        new: &NewToken,
        from: &str,
        now_wall_ms: u64,
    ) -> Result<(), TokenDbError> {
        self.create_hashed(bearer.id, &bearer.hash(), new, from, now_wall_ms)
    }

    /// The same of a secret that only its maker knows. The same token entered again changes nothing.
    pub fn create_hashed(
        &mut self,
        id: TokenId,
        hash: &SecretHash,
        new: &NewToken,
        from: &str,
        now_wall_ms: u64,
    ) -> Result<(), TokenDbError> {
        if let Some(there) = self.token(id)? {
            let is_same =
                there.hash.is(hash) && there.scopes == new.scopes && there.namespace == new.namespace;
            return if is_same { Ok(()) } else { Err(TokenDbError::IdTaken(id)) };
        }
        let entry = AuditRecord {
            who: new.created_by.clone(),
            from: from.to_owned(),
            namespace: shown(new.namespace.as_ref()).to_owned(),
            act: op::CreateAccessToken::SPEC.name,
            target: format!("{id} {} ({})", new.name, new.scopes),
            reason: None,
        };
        self.change(|connection| {
            connection.execute(
                "INSERT INTO tokens (id, hash, name, namespace, scopes, created_wall_ms, created_by, expires_wall_ms)
                 VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                params![
                    id.to_string(),
                    hash.as_bytes(),
                    new.name,
                    new.namespace.as_ref().map(Namespace::as_str),
                    new.scopes.to_string(),
                    to_sql(now_wall_ms),
                    new.created_by,
                    new.expires_wall_ms.map(to_sql),
                ],
            )?;
            append(connection, &entry, AuditOutcome::Done, now_wall_ms).map(drop)
        })
    }

    /// Ends a token, and notes who did. False: it was revoked before.
    pub fn revoke(
        &mut self,
        id: TokenId,
        by: &str,
        from: &str,
        reason: Option<&str>,
        now_wall_ms: u64,
    ) -> Result<bool, TokenDbError> {
        let Some(token) = self.token(id)? else { return Err(TokenDbError::NoSuchToken(id)) };
        let entry = AuditRecord {
            who: by.to_owned(),
            from: from.to_owned(),
            namespace: shown(token.namespace.as_ref()).to_owned(),
            act: op::RevokeAccessToken::SPEC.name,
            target: format!("{id} {}", token.name),
            reason: reason.map(ToOwned::to_owned),
        };
        self.change(|connection| {
            let ended = connection.execute(
                "UPDATE tokens SET revoked_wall_ms = ? WHERE id = ? AND revoked_wall_ms IS NULL",
                params![to_sql(now_wall_ms), id.to_string()],
            )?;
            if ended > 0 {
                append(connection, &entry, AuditOutcome::Done, now_wall_ms)?;
            }
            Ok(ended > 0)
        })
    }

    /// Every token that there is or was, oldest first.
    pub fn tokens(&self) -> Result<Vec<ApiToken>, TokenDbError> {
        let read = || {
            let mut statement = self
                .connection
                .prepare_cached("SELECT * FROM tokens ORDER BY created_wall_ms, id")?;
            statement.query_map([], read_token)?.collect::<rusqlite::Result<_>>()
        };
        read().map_err(|error| self.sorry(&error))
    }

    /// One token.
    pub fn token(&self, id: TokenId) -> Result<Option<ApiToken>, TokenDbError> {
        self.connection
            .query_row("SELECT * FROM tokens WHERE id = ?", [id.to_string()], read_token)
            .optional()
            .map_err(|error| self.sorry(&error))
    }

    /// Notes when tokens were last used.
    pub(crate) fn note_uses(&mut self, uses: &[(TokenId, u64)]) -> Result<(), TokenDbError> {
        self.change(|connection| {
            let mut statement = connection.prepare_cached(
                "UPDATE tokens SET last_used_wall_ms = max(coalesce(last_used_wall_ms, 0), ?) WHERE id = ?",
            )?;
            uses.iter()
                .try_for_each(|(id, at)| statement.execute(params![to_sql(*at), id.to_string()]).map(drop))
        })
    }
}

fn read_token(row: &Row<'_>) -> rusqlite::Result<ApiToken> {
    let text = |name: &str| row.get::<_, String>(name);
    let time = |name: &str| row.get::<_, Option<i64>>(name).map(|time| time.map(from_sql));
    let bad = |problem: String| {
        rusqlite::Error::FromSqlConversionFailure(0, rusqlite::types::Type::Text, problem.into())
    };
    Ok(ApiToken {
        id: TokenId::parse(&text("id")?).map_err(|error| bad(error.to_string()))?,
        name: text("name")?,
        namespace: row
            .get::<_, Option<String>>("namespace")?
            .map(Namespace::new)
            .transpose()
            .map_err(|error| bad(error.to_string()))?,
        scopes: text("scopes")?.parse().map_err(bad)?,
        created_wall_ms: time("created_wall_ms")?.unwrap_or(0),
        created_by: text("created_by")?,
        expires_wall_ms: time("expires_wall_ms")?,
        last_used_wall_ms: time("last_used_wall_ms")?,
        revoked_wall_ms: time("revoked_wall_ms")?,
        hash: SecretHash::from_bytes(row.get("hash")?),
    })
}

/// A namespace, or all of them, for people.
fn shown(namespace: Option<&Namespace>) -> &str {
    namespace.map_or("*", Namespace::as_str)
}
