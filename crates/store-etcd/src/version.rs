//! Which etcd it is, and what is wrong with that.

use fencehold_contract::{CallContext, StoreError};
use fencehold_net::CallBudget;

use super::{EtcdInner, EtcdStore};

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
    /// The members that answer, with a warning for each whose version has a fault that touches leases.
    pub async fn members(&self, call: &CallContext) -> Result<Vec<EtcdMember>, StoreError> {
        self.ask(call, async |core, budget| core.members(budget).await).await
    }
}

impl EtcdInner {
    async fn members(&self, budget: &mut CallBudget) -> Result<Vec<EtcdMember>, StoreError> {
        loop {
            match self.wire.versions().await {
                Ok(members) => {
                    let member = |(name, version): (String, String)| {
                        let warning = warning(&version);
                        EtcdMember { name, version, warning }
                    };
                    return Ok(members.into_iter().map(member).collect());
                }
                Err(fault) => budget.retry_or_fail(fault).await?,
            }
        }
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
