//! What can happen, and how likely it is.

use fencehold_core::limits::COLLECT_AFTER_FREE_MS;
use proptest::prelude::*;

/// Most times are a multiple of this.
const GRAIN_MS: u64 = 20;
pub(crate) const KEYS: usize = 3;
pub(crate) const OWNERS: usize = 3;

#[derive(Clone, Debug)]
pub(crate) enum Step {
    /// A caller asks for one of some keys.
    Take(Terms),
    /// An earlier request is sent again: the nth, counted back from the newest.
    Again(usize),
    /// One of those in line sends its request again.
    AgainInLine(usize),
    /// The holds of some earlier requests are renewed in one call.
    Renew(Vec<usize>),
    /// The hold of an earlier request is given back.
    Release(usize),
    /// The hold on a key is ended by force.
    Revoke(usize),
    /// All holds of an owner are ended by force.
    RevokeOwner(usize),
    /// One of those in line goes away.
    Leave(usize),
    /// Store time passes.
    Pass(u64),
}

#[derive(Clone, Debug)]
pub(crate) struct Terms {
    /// Indices of keys, each once.
    pub(crate) keys: Vec<usize>,
    pub(crate) owner: usize,
    pub(crate) ttl_ms: u64,
    pub(crate) wait_ms: u64,
    pub(crate) priority: i16,
    pub(crate) yield_within_ms: Option<u64>,
    pub(crate) max_age_ms: Option<u64>,
}

pub(crate) fn any_step() -> impl Strategy<Value = Step> {
    let nth = || 0..12_usize;
    prop_oneof![
        16 => any_terms().prop_map(Step::Take),
        6 => (0..30_usize).prop_map(Step::Again),
        2 => nth().prop_map(Step::AgainInLine),
        8 => prop::collection::vec(nth(), 1..4).prop_map(Step::Renew),
        12 => nth().prop_map(Step::Release),
        2 => (0..KEYS).prop_map(Step::Revoke),
        2 => (0..OWNERS).prop_map(Step::RevokeOwner),
        2 => nth().prop_map(Step::Leave),
        12 => (1..20_u64).prop_map(|grains| Step::Pass(grains * GRAIN_MS)),
        2 => (1..GRAIN_MS).prop_map(Step::Pass),
        1 => Just(Step::Pass(COLLECT_AFTER_FREE_MS)),
    ]
}

fn any_terms() -> impl Strategy<Value = Terms> {
    let keys = prop_oneof![
        3 => (0..KEYS).prop_map(|key| vec![key]),
        1 => Just((0..KEYS).collect::<Vec<_>>()).prop_shuffle(),
        1 => Just(vec![1, 0]),
    ];
    let grains = |range: std::ops::Range<u64>| range.prop_map(|grains| grains * GRAIN_MS);
    let wait_ms = prop_oneof![2 => Just(0), 3 => grains(1..60)];
    let yield_within_ms = prop_oneof![2 => Just(None), 1 => grains(0..30).prop_map(Some)];
    let max_age_ms = prop_oneof![3 => Just(None), 1 => grains(1..60).prop_map(Some)];
    let rest = (0..OWNERS, grains(7..40), wait_ms, 0..3_i16, yield_within_ms, max_age_ms);
    (keys, rest).prop_map(|(keys, rest)| {
        let (owner, ttl_ms, wait_ms, priority, yield_within_ms, max_age_ms) = rest;
        Terms { keys, owner, ttl_ms, wait_ms, priority, yield_within_ms, max_age_ms }
    })
}
