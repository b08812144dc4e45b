//! What a holder shows at a fence.

use std::sync::{Arc, Weak};

use fencehold_contract::BlockedWrite;
use fencehold_core::job::JobId;
use fencehold_core::limits::TOKEN_MAX;
use fencehold_core::{BadInput, BlockedAction, Key, Namespace, Owner, Token};

use super::error::FenceError;
use crate::blocking;
use crate::election::Leader;
use crate::guard::Lease;
use crate::job::Job;
use crate::operation::Operation;
use crate::renewal::RenewalHandle;

/// What a holder shows at a fence: which key it holds, and under which token. A job shows its id as the key, `job/ID`.
///
/// A lease, a leader, a job or an operation can be shown as it is (`fence.raise(&lease)`). Code that was only handed a key and a token, such as a command
/// under `fencehold run`, makes its own:
///
/// ```
/// use fencehold::fence::KeyToken;
/// use fencehold::{Key, Token};
///
/// # fn main() -> Result<(), fencehold::Error> {
/// let pass = KeyToken::new(Key::new("reports/daily")?, Token::new(33));
/// assert_eq!(pass.to_string(), "reports/daily under token 33");
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyToken {
    pub(crate) namespace: Namespace,
    pub(crate) key: Key,
    pub(crate) token: Token,
    pub(super) owner: Option<Owner>,
    /// The schema of the store, where it was named.
    pub(crate) schema: Option<Box<str>>,
    /// Where a refusal is recorded, where the holder itself shows the pass.
    pub(super) store: HoldersStore,
}

/// The store of the holder that shows a pass, while the holder has it. It says nothing of what the pass is.
#[derive(Clone, Default)]
pub(super) struct HoldersStore(Weak<RenewalHandle>);

impl PartialEq for HoldersStore {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for HoldersStore {}

impl std::fmt::Debug for HoldersStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(if self.0.strong_count() > 0 { "known" } else { "unknown" })
    }
}

/// How long a refusal may take to be recorded. The refusal stands whatever becomes of that.
const RECORD_WITHIN_MS: u64 = 2_000;

impl KeyToken {
    /// A pass in the namespace `default`, without an owner.
    pub fn new(key: Key, token: Token) -> Self {
        KeyToken {
            namespace: Namespace::default(),
            key,
            token,
            owner: None,
            schema: None,
            store: HoldersStore::default(),
        }
    }

    /// The pass of one attempt at a job.
    #[expect(clippy::missing_panics_doc, reason = "it cannot, as the message says")]
    pub fn for_job(job: JobId, token: Token) -> Self {
        let key = Key::new(format!("job/{job}")).expect("an id is 36 digits and hyphens, which a key may be");
        KeyToken::new(key, token)
    }

    /// The namespace that the key lives in. The same key in two namespaces is two keys.
    pub fn in_namespace(self, namespace: Namespace) -> Self {
        KeyToken { namespace, ..self }
    }

    /// The schema of the PostgreSQL store that gave the token, for [`fence_in`](KeyToken::fence_in). Default: that of the holder's store,
    /// or `fencehold` where there is no holder.
    pub fn in_schema(self, schema: impl Into<Box<str>>) -> Self {
        KeyToken { schema: Some(schema.into()), ..self }
    }

    /// Who shows it, so that a caller that is refused later learns who raised the fence.
    pub fn with_owner(self, owner: Owner) -> Self {
        KeyToken { owner: Some(owner), ..self }
    }

    /// The store that the holder has its lease from.
    pub(crate) fn with_store(self, handle: &Arc<RenewalHandle>) -> Self {
        KeyToken { store: HoldersStore(Arc::downgrade(handle)), ..self }
    }

    /// The handle of the holder that shows it.
    pub(crate) fn holder(&self) -> Option<Arc<RenewalHandle>> {
        self.store.0.upgrade()
    }

    /// Has the holder's store record that this was refused as stale: on a connection of its own, for the transaction or the service that
    /// refused it keeps no trace. Where the store cannot be reached, or keeps no events, there is none.
    pub(crate) async fn record_refusal(&self, action: BlockedAction) {
        let Some(handle) = self.holder() else { return };
        let connection = &handle.connection;
        let report = BlockedWrite { key: self.key.clone(), token: self.token, action };
        let call = connection.call(RECORD_WITHIN_MS);
        let reported = connection.store.report_blocked_write(&call, report);
        if let Err(error) = connection.answer(0, RECORD_WITHIN_MS, reported).await {
            tracing::debug!(key = %self.key, %error, "a refused write could not be recorded in the store");
        }
    }

    /// The same, if this result is such a refusal.
    pub(crate) async fn recorded<T>(&self, result: Result<T, FenceError>) -> Result<T, FenceError> {
        if let Err(FenceError::Stale { .. } | FenceError::Ended { .. }) = &result {
            self.record_refusal(BlockedAction::Write).await;
        }
        result
    }

    /// The namespace.
    pub fn namespace(&self) -> &Namespace {
        &self.namespace
    }

    /// The key.
    pub fn key(&self) -> &Key {
        &self.key
    }

    /// The token.
    pub fn token(&self) -> Token {
        self.token
    }

    /// Who shows it, where that is known.
    pub fn owner(&self) -> Option<&Owner> {
        self.owner.as_ref()
    }

    /// A token that no store ever gave would shut every holder out, for ever.
    pub(crate) fn check(&self) -> Result<(), BadInput> {
        match self.token.get() {
            1..=TOKEN_MAX => Ok(()),
            0 => Err(BadInput::new("token", "is 0, the token of a key that was never held")),
            _ => Err(BadInput::new(
                "token",
                format!("is {}; the largest there can be is {TOKEN_MAX}", self.token),
            )),
        }
    }
}

impl std::fmt::Display for KeyToken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} under token {}", self.key, self.token)
    }
}

impl From<&KeyToken> for KeyToken {
    fn from(pass: &KeyToken) -> Self {
        pass.clone()
    }
}

/// A holder can show its token.
macro_rules! from_holders {
    ($($holder:ty),*) => {
        $(
            impl From<&$holder> for KeyToken {
                fn from(holder: &$holder) -> Self {
                    holder.key_token()
                }
            }
        )*
    };
}

from_holders!(
    Lease,
    Arc<Lease>,
    Leader,
    Arc<Leader>,
    Job,
    Operation,
    Arc<Operation>,
    blocking::Lease,
    Arc<blocking::Lease>,
    blocking::Leader,
    Arc<blocking::Leader>,
    blocking::Job
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_shows_its_id_as_the_key() {
        let pass = KeyToken::for_job(JobId::from_bytes([0xff; 16]), Token::new(3));
        assert_eq!(pass.to_string(), "job/ffffffff-ffff-ffff-ffff-ffffffffffff under token 3");
    }
}
