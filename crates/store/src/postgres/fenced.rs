//! Keys that a holder's open transaction has a fence on: nobody can be granted them, and nobody can end their hold, until
//! that transaction ends. Whoever finds one in the way is told by whom it is held.

use fencehold_core::{HoldHash, Key, Namespace, Refusal};
use tokio_postgres::Client;
use tokio_postgres::types::Type;

use super::errand::Errand;
use super::fault::Fault;
use super::{Core, Repeat};
use crate::error::StoreError;

/// A fence on a key.
#[derive(Debug)]
pub(super) struct Fenced {
    pub(super) key: Key,
    /// What a contender is told.
    pub(super) refusal: Refusal,
    /// Whether the hold, or one that ended on the key, is the asker's own.
    pub(super) own: bool,
    pid: i32,
    open_ms: i64,
}

impl Fenced {
    fn says(&self) -> String {
        format!(
            "{} has a fence on it: the transaction of backend {} has been open for {} ms, and must end first \
             (SELECT pg_terminate_backend({}) ends it by force)",
            self.key, self.pid, self.open_ms, self.pid
        )
    }
}

impl Core {
    /// Which of these keys have a fence on them.
    pub(super) async fn fenced(
        &self,
        errand: &mut Errand,
        namespace: &Namespace,
        keys: &[&str],
        hash: Option<HoldHash>,
    ) -> Result<Vec<Fenced>, StoreError> {
        let sql = self.sql("SELECT key, refusal, own, pid, held_for_ms FROM fencehold.fence_on($1, $2, $3)");
        let hash = hash.map(|hash| hash.as_bytes().to_vec()).unwrap_or_default();
        let rows = self
            .run(errand, Repeat::Safe, async |client| {
                client
                    .query_typed(
                        &sql,
                        &[(&namespace.as_str(), Type::TEXT), (&keys, Type::TEXT_ARRAY), (&hash, Type::BYTEA)],
                    )
                    .await
            })
            .await?;
        let mut fenced = Vec::new();
        for row in rows {
            // None, where nothing is left of a hold: then nothing is in the way either.
            let Some(refusal) = row.get::<_, Option<String>>("refusal") else { continue };
            fenced.push(Fenced {
                key: Key::new(row.get::<_, String>("key"))?,
                refusal: self.read(&refusal)?,
                own: row.get("own"),
                pid: row.get("pid"),
                open_ms: row.get::<_, Option<i64>>("held_for_ms").unwrap_or(0),
            });
        }
        Ok(fenced)
    }

    /// Sends something that needs these keys, until it is answered or patience ends. If a fence was in the way to the end,
    /// the error says whose.
    pub(super) async fn run_on_keys<T>(
        &self,
        errand: &mut Errand,
        repeat: Repeat,
        namespace: &Namespace,
        keys: &[&str],
        work: impl AsyncFn(&mut Client) -> Result<T, tokio_postgres::Error>,
    ) -> Result<T, StoreError> {
        loop {
            match self.send(errand, &work).await {
                Ok(answer) => return Ok(answer),
                Err(Fault::Locked(why)) => {
                    let fenced = self.fenced(errand, namespace, keys, None).await?;
                    errand.bear(Fault::Locked(fenced.first().map_or(why, Fenced::says))).await?;
                }
                Err(fault) => errand.bear_with(repeat, fault).await?,
            }
        }
    }
}
