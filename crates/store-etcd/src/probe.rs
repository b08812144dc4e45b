//! Whether the cluster keeps what leases rely on: shown on a scratch key, never believed.

use fencehold_contract::{CallContext, StoreError};
use fencehold_net::CallBudget;
use futures_util::future::join_all;
use serde::Serialize;

use super::grpc_client::RequestError;
use super::messages::{OpResponse, TxnRequest, TxnResponse};
use super::snapshot::{changed_at, first, get, put};
use super::{EtcdInner, EtcdStore};

/// How many write at once.
const RACERS: usize = 8;
/// Should the probe be killed, its scratch key goes with this etcd lease.
const SCRATCH_TTL_MS: u64 = 10_000;

/// One thing that was looked at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct EtcdFinding {
    /// What leases rely on.
    pub check: String,
    /// How that came out.
    pub verdict: EtcdVerdict,
}

/// How a check came out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum EtcdVerdict {
    /// It holds, as far as can be seen.
    Passed,
    /// It holds, with a warning.
    Warned(String),
    /// It does not hold: two could hold one lease.
    Failed(String),
}

impl EtcdStore {
    /// Checks that the cluster keeps its conditions and its leases, and that its versions are sound. An error says that
    /// it could not be reached, and nothing about what it keeps.
    pub async fn probe(&self, call: &CallContext) -> Result<Vec<EtcdFinding>, StoreError> {
        let mut findings = self.ask(call, async |core, budget| core.probe(budget).await).await?;
        findings.extend(self.members(call).await?.into_iter().map(|member| EtcdFinding {
            check: format!("{} is etcd {}", member.name, member.version),
            verdict: member.warning.map_or(EtcdVerdict::Passed, EtcdVerdict::Warned),
        }));
        Ok(findings)
    }
}

impl EtcdInner {
    async fn probe(&self, budget: &mut CallBudget) -> Result<Vec<EtcdFinding>, StoreError> {
        loop {
            match self.probe_once().await {
                Ok(findings) => return Ok(findings),
                Err(fault) => budget.retry_or_fail(fault).await?,
            }
        }
    }

    async fn probe_once(&self) -> Result<Vec<EtcdFinding>, RequestError> {
        let lease = self.wire.lease_grant(SCRATCH_TTL_MS).await?;
        // The number of its etcd lease is no one else's.
        let scratch = self.names.scratch(lease);
        let swap = async |revision: i64, value: &str| {
            let success = vec![put(scratch.clone(), value.as_bytes().to_vec(), lease)];
            let compare = vec![changed_at(scratch.clone(), revision)];
            self.wire.txn(TxnRequest { compare, success, failure: Vec::new() }).await
        };
        let mut findings = Vec::new();
        let mut found = |check: &str, holds: bool, otherwise: &str| {
            let verdict = if holds { EtcdVerdict::Passed } else { EtcdVerdict::Failed(otherwise.to_owned()) };
            findings.push(EtcdFinding { check: check.to_owned(), verdict });
        };

        let (created, again) = (swap(0, "created").await?, swap(0, "created again").await?);
        found("a key is created only once", created.succeeded && !again.succeeded, "it was created twice");
        let first_revision = revision(&created);
        let (changed, stale) = (swap(first_revision, "changed").await?, swap(first_revision, "stale").await?);
        let holds = changed.succeeded && !stale.succeeded;
        found("an older revision cannot be overwritten", holds, "a stale write was accepted");
        let racing = revision(&changed);
        let raced = join_all((0..RACERS).map(|_| swap(racing, "raced"))).await;
        let raced = raced.into_iter().collect::<Result<Vec<_>, _>>()?;
        let won = raced.iter().filter(|response| response.succeeded).count();
        found("of eight that overwrite at once, one wins", won == 1, &format!("{won} won"));
        self.wire.lease_revoke(lease).await?;
        let read = TxnRequest { success: vec![get(scratch.clone())], ..TxnRequest::default() };
        let left = self
            .wire
            .txn(read)
            .await?
            .responses
            .into_iter()
            .find_map(|op| match op.response {
                Some(OpResponse::Range(range)) => first(range),
                _ => None,
            });
        found("a key goes with its etcd lease", left.is_none(), "it stayed");
        Ok(findings)
    }
}

fn revision(response: &TxnResponse) -> i64 {
    response.header.as_ref().map_or(0, |header| header.revision)
}
