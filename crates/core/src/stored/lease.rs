//! The stored record of a lease key.
#![allow(missing_docs, reason = "the types that these stand for say what their fields mean")]

use std::num::NonZeroU64;

use serde::ser::SerializeStruct as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::lease::{Ending, Hold, HoldHistory, LeaseOutcome, LeaseRecord, PendingYield};
use crate::{HoldHash, Owner, Reason, Task, Timestamp, Token};

/// What is stored of one key, but for its counter: a store keeps that where damage to the rest does not reach it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeaseV1 {
    pub hold: Option<HoldV1>,
    pub endings: Vec<EndingV1>,
    pub forgotten_at_ms: Option<u64>,
}

/// A hold.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct HoldV1 {
    pub hash: HoldHash,
    pub owner: Owner,
    pub task: Option<Task>,
    pub ttl_ms: u64,
    #[serde(default, deserialize_with = "none_if_zero")]
    pub max_age_ms: Option<NonZeroU64>,
    pub since: Timestamp,
    pub priority: i16,
    #[serde(default)]
    pub notice: Option<NoticeV1>,
}

stored_struct! {
    /// A request that the holder yield.
    NoticeV1 of PendingYield { contender: Owner, task: Option<Task>, priority: i16, yield_at_ms: u64 }
}

stored_struct! {
    /// How a hold ended.
    EndingV1 of Ending {
        token: Token, hash: HoldHash, owner: Owner, task: Option<Task>, how as outcome: HowV1, at: Timestamp,
        by: Option<Owner>, reason: Option<Reason>,
    }
}

stored_enum! {
    /// The ways in which a hold can end.
    HowV1 of LeaseOutcome { Released, Expired, Revoked, AgedOut, Yielded, Abandoned, Advanced }
}

impl Serialize for HoldV1 {
    /// Bytes go by order: a hold without a maximum age has 0 there, and whether it was asked to yield is always said. In text the
    /// latter is left out where it was not.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let is_text = serializer.is_human_readable();
        let mut fields = serializer.serialize_struct("HoldV1", 8)?;
        fields.serialize_field("hash", &self.hash)?;
        fields.serialize_field("owner", &self.owner)?;
        fields.serialize_field("task", &self.task)?;
        fields.serialize_field("ttl_ms", &self.ttl_ms)?;
        if is_text {
            fields.serialize_field("max_age_ms", &self.max_age_ms)?;
        } else {
            fields.serialize_field("max_age_ms", &self.max_age_ms.map_or(0, NonZeroU64::get))?;
        }
        fields.serialize_field("since", &self.since)?;
        fields.serialize_field("priority", &self.priority)?;
        if !is_text || self.notice.is_some() {
            fields.serialize_field("notice", &self.notice)?;
        }
        fields.end()
    }
}

fn none_if_zero<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<NonZeroU64>, D::Error> {
    if deserializer.is_human_readable() {
        Deserialize::deserialize(deserializer)
    } else {
        u64::deserialize(deserializer).map(NonZeroU64::new)
    }
}

impl From<&LeaseRecord> for LeaseV1 {
    fn from(record: &LeaseRecord) -> Self {
        let LeaseRecord { counter: _, hold, history } = record;
        let forgotten_at_ms = history.as_ref().and_then(|history| history.forgotten_at_ms);
        let endings = record.endings().iter().cloned().map(EndingV1::from).collect();
        LeaseV1 { hold: hold.clone().map(HoldV1::from), endings, forgotten_at_ms }
    }
}

impl LeaseV1 {
    /// The record of the key with this counter.
    pub fn into_record(self, counter: Token) -> LeaseRecord {
        let LeaseV1 { hold, endings, forgotten_at_ms } = self;
        let endings: Vec<Ending> = endings.into_iter().map(Ending::from).collect();
        let history = (!endings.is_empty() || forgotten_at_ms.is_some())
            .then(|| Box::new(HoldHistory { endings, forgotten_at_ms }));
        LeaseRecord { counter, hold: hold.map(Hold::from), history }
    }
}

impl From<Hold> for HoldV1 {
    fn from(hold: Hold) -> Self {
        let Hold { hash, owner, task, ttl_ms, max_age_ms, since, priority, yield_request: notice } = hold;
        let notice = notice.map(|notice| NoticeV1::from(*notice));
        HoldV1 { hash, owner, task, ttl_ms, max_age_ms, since, priority, notice }
    }
}

impl From<HoldV1> for Hold {
    fn from(stored: HoldV1) -> Self {
        let HoldV1 { hash, owner, task, ttl_ms, max_age_ms, since, priority, notice } = stored;
        let notice = notice.map(|notice| Box::new(notice.into()));
        Hold { hash, owner, task, ttl_ms, max_age_ms, since, priority, yield_request: notice }
    }
}
