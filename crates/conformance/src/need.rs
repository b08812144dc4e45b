//! What a case needs of a store, or of its test store. Where that is missing, the case is not applicable.

use fencehold_contract::{QuotaRequest, StoreError};

use super::fixture::Fixture;
pub(super) use StoreFeature::*;
pub(super) use fencehold_test_store::TestCapability::{self, *};

/// Something that the lists of cases name as needed.
pub(super) trait Need {
    /// What is missing, in words; none where the need is met.
    fn lacking(&self, g: &Fixture) -> Option<&'static str>;
}

impl Need for TestCapability {
    fn lacking(&self, g: &Fixture) -> Option<&'static str> {
        (!g.has(*self)).then(|| TestCapability::lacking(*self))
    }
}

/// What the store itself says that it supports.
pub(super) enum StoreFeature {
    /// Jobs live there.
    Jobs,
    /// There is a line to wait in.
    WaitQueue,
    /// The line is fair.
    FairQueue,
    /// Holders can be asked to yield.
    Preemption,
    /// A namespace can have limits.
    Limits,
    /// What an advance has closed can be opened before its time.
    OpensEarly,
    /// The handle counts what happens.
    Counts,
}

impl Need for StoreFeature {
    fn lacking(&self, g: &Fixture) -> Option<&'static str> {
        let (earlier, supported, lacking) = match self {
            Jobs => (None, g.test_store.store().jobs().is_some(), "no jobs live there"),
            WaitQueue => (None, g.capabilities().supports_waiting, "waiting there is polling"),
            FairQueue => (Some(WaitQueue), g.capabilities().supports_fair_waiting, "its line is not fair"),
            Preemption => (Some(FairQueue), g.capabilities().supports_preemption, "it cannot preempt"),
            Limits => {
                let request = QuotaRequest { quota: None, all_namespaces: false, by: None };
                let answer = g.drive(g.test_store.other().quota(&g.call, request));
                (None, !is_unsupported(answer), "it limits no namespace")
            }
            Counts => {
                let before = g.counted();
                g.churn("counted", 1);
                (None, g.counted() != before, "another process counts")
            }
            OpensEarly => (None, !is_unsupported(g.open_now()), "it cannot be opened before its time"),
        };
        let earlier = earlier.and_then(|feature| feature.lacking(g));
        earlier.or_else(|| (!supported).then_some(lacking))
    }
}

fn is_unsupported<T>(answer: Result<T, StoreError>) -> bool {
    matches!(answer, Err(StoreError::Unsupported { .. }))
}
