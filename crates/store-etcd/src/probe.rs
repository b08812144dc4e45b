//! Whether the cluster keeps what leases rely on: shown on a scratch key, never believed. And which etcd it is, and what is
//! wrong with that.

use fencehold_contract::{CallContext, StoreError};
use futures_util::future::join_all;
use serde::Serialize;

use super::grpc_client::RequestError;
use super::snapshot::{changed_at, get, put};
use super::{EtcdCall, EtcdInner, EtcdStore};

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

/// One member of a cluster, as it describes itself.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct EtcdMember {
    /// `HOST:PORT`.
    pub name: String,
    /// Its version.
    pub version: String,
    /// What its version does wrong, for people; `None`: nothing that is known.
    pub warning: Option<String>,
}

impl EtcdStore {
    /// Checks that the cluster keeps its conditions and its leases, and that its versions are sound. An error says that
    /// it could not be reached, and nothing about what it keeps.
    pub async fn probe(&self, call: &CallContext) -> Result<Vec<EtcdFinding>, StoreError> {
        let probe = async |call: &mut EtcdCall<'_>| call.budget.retry(async || call.core.probe().await).await;
        let mut findings = self.ask(call, probe).await?;
        findings.extend(self.members(call).await?.into_iter().map(|member| EtcdFinding {
            check: format!("{} is etcd {}", member.name, member.version),
            verdict: member.warning.map_or(EtcdVerdict::Passed, EtcdVerdict::Warned),
        }));
        Ok(findings)
    }

    /// The members that answer, with a warning for each whose version has a fault that touches leases.
    pub async fn members(&self, call: &CallContext) -> Result<Vec<EtcdMember>, StoreError> {
        let versions =
            async |call: &mut EtcdCall<'_>| call.budget.retry(async || call.core.wire.versions().await).await;
        let member = |(name, version): (String, String)| {
            let warning = warning(&version);
            EtcdMember { name, version, warning }
        };
        Ok(self.ask(call, versions).await?.into_iter().map(member).collect())
    }
}

impl EtcdInner {
    async fn probe(&self) -> Result<Vec<EtcdFinding>, RequestError> {
        let lease = self.wire.lease_grant(SCRATCH_TTL_MS).await?;
        // The number of its etcd lease is no one else's.
        let scratch = self.names.scratch(lease);
        let swap = async |revision: i64, value: &str| {
            let success = vec![put(scratch.clone(), value.as_bytes().to_vec(), lease)];
            let compare = vec![changed_at(scratch.clone(), revision)];
            self.wire.txn(compare, success, Vec::new()).await
        };
        let mut findings = Vec::new();
        let mut found = |check: &str, holds: bool, otherwise: &str| {
            let verdict = if holds { EtcdVerdict::Passed } else { EtcdVerdict::Failed(otherwise.to_owned()) };
            findings.push(EtcdFinding { check: check.to_owned(), verdict });
        };

        let (created, again) = (swap(0, "created").await?, swap(0, "created again").await?);
        found("a key is created only once", created.succeeded && !again.succeeded, "it was created twice");
        let first_revision = created.revision();
        let (changed, stale) = (swap(first_revision, "changed").await?, swap(first_revision, "stale").await?);
        let holds = changed.succeeded && !stale.succeeded;
        found("an older revision cannot be overwritten", holds, "a stale write was accepted");
        let racing = changed.revision();
        let raced = join_all((0..RACERS).map(|_| swap(racing, "raced"))).await;
        let raced = raced.into_iter().collect::<Result<Vec<_>, _>>()?;
        let won = raced.iter().filter(|response| response.succeeded).count();
        found("of eight that overwrite at once, one wins", won == 1, &format!("{won} won"));
        self.wire.lease_revoke(lease).await?;
        let left = self.wire.read(vec![get(scratch.clone())]).await?;
        let stayed = left.iter().any(|range| !range.kvs.is_empty());
        found("a key goes with its etcd lease", !stayed, "it stayed");
        Ok(findings)
    }
}

/// Versions before 3.4.31 and 3.5.13 can end live leases after a member has stalled
/// (<https://github.com/etcd-io/etcd/issues/15247>).
fn warning(version: &str) -> Option<String> {
    let mut parts = version.split(['.', '-', '+']).map_while(|part| part.parse::<u32>().ok());
    let (major, minor, patch) = (parts.next()?, parts.next()?, parts.next()?);
    let fixed = match minor {
        _ if major != 3 || minor > 5 => return None,
        5 if patch >= 13 => return None,
        4 if patch >= 31 => return None,
        5 => "3.5.13",
        _ => "3.4.31",
    };
    Some(format!(
        "etcd {version} can end live leases after a member has stalled (etcd issue 15247); fences still refuse the old \
         holder, and {fixed} has the fault no more"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_that_end_live_leases_are_warned_of() {
        for bad in ["3.3.25", "3.4.23", "3.4.30", "3.5.0", "3.5.12", "3.5.12-rc.1"] {
            assert!(warning(bad).is_some_and(|text| text.contains(bad) && text.contains("15247")), "{bad}");
        }
        for good in ["3.4.31", "3.4.40", "3.5.13", "3.6.0", "4.0.0", "unknown"] {
            assert_eq!(warning(good), None, "{good}");
        }
    }
}
