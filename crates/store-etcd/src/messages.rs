//! The part of etcd's v3 API that is spoken here, written by hand: field numbers are etcd's and never change.
//!
//! Deliberately absent: fields that are never set and never read. A decoder skips what it does not know.

use prost::{Message, Oneof};

/// Messages, each field with its type here and what it is in etcd's `.proto` files.
macro_rules! messages {
    ($($(#[$about:meta])* $name:ident { $($(#[$note:meta])* $field:ident: $type:ty [$($proto:tt)+]),* $(,)? })*) => {
        $($(#[$about])*
        #[derive(Clone, PartialEq, Message)]
        pub(super) struct $name {
            $($(#[$note])* #[prost($($proto)+)] pub(super) $field: $type,)*
        })*
    };
}

messages! {
    Header {
        revision: i64 [int64, tag = "3"],
        raft_term: u64 [uint64, tag = "4"],
    }

    KeyValue {
        key: Vec<u8> [bytes = "vec", tag = "1"],
        create_revision: i64 [int64, tag = "2"],
        mod_revision: i64 [int64, tag = "3"],
        value: Vec<u8> [bytes = "vec", tag = "5"],
        lease: i64 [int64, tag = "6"],
    }

    RangeRequest {
        key: Vec<u8> [bytes = "vec", tag = "1"],
        range_end: Vec<u8> [bytes = "vec", tag = "2"],
        limit: i64 [int64, tag = "3"],
        /// 1: ascending, 2: descending.
        sort_order: i32 [int32, tag = "5"],
        /// 0: by key, 2: by the revision that created it.
        sort_target: i32 [int32, tag = "6"],
        keys_only: bool [bool, tag = "8"],
        count_only: bool [bool, tag = "9"],
        min_create_revision: i64 [int64, tag = "12"],
        max_create_revision: i64 [int64, tag = "13"],
    }

    RangeResponse {
        kvs: Vec<KeyValue> [message, repeated, tag = "2"],
        more: bool [bool, tag = "3"],
        count: i64 [int64, tag = "4"],
    }

    PutRequest {
        key: Vec<u8> [bytes = "vec", tag = "1"],
        value: Vec<u8> [bytes = "vec", tag = "2"],
        lease: i64 [int64, tag = "3"],
    }

    DeleteRangeRequest { key: Vec<u8> [bytes = "vec", tag = "1"] }

    /// What a put or a delete gives back, of which nothing is needed.
    EmptyResponse {}

    RequestOp { request: Option<Op> [oneof = "Op", tags = "1, 2, 3"] }

    ResponseOp { response: Option<OpResponse> [oneof = "OpResponse", tags = "1, 2, 3"] }

    Compare {
        /// 0: equal, 1: greater.
        result: i32 [int32, tag = "1"],
        /// What is compared: 1: the revision that created the key, 2: the one that changed it last, 4: its lease.
        target: i32 [int32, tag = "2"],
        key: Vec<u8> [bytes = "vec", tag = "3"],
        against: Option<CompareTarget> [oneof = "CompareTarget", tags = "5, 6, 8"],
        range_end: Vec<u8> [bytes = "vec", tag = "64"],
    }

    TxnRequest {
        compare: Vec<Compare> [message, repeated, tag = "1"],
        success: Vec<RequestOp> [message, repeated, tag = "2"],
        failure: Vec<RequestOp> [message, repeated, tag = "3"],
    }

    TxnResponse {
        header: Option<Header> [message, optional, tag = "1"],
        succeeded: bool [bool, tag = "2"],
        responses: Vec<ResponseOp> [message, repeated, tag = "3"],
    }

    WatchRequest { request: Option<WatchOp> [oneof = "WatchOp", tags = "1"] }

    WatchCreateRequest {
        key: Vec<u8> [bytes = "vec", tag = "1"],
        range_end: Vec<u8> [bytes = "vec", tag = "2"],
        start_revision: i64 [int64, tag = "3"],
    }

    WatchResponse {
        canceled: bool [bool, tag = "4"],
        events: Vec<WatchEvent> [message, repeated, tag = "11"],
    }

    /// Something was put or deleted.
    WatchEvent { kv: Option<KeyValue> [message, optional, tag = "2"] }

    LeaseGrantRequest { ttl: i64 [int64, tag = "1"] }

    LeaseGrantResponse {
        id: i64 [int64, tag = "2"],
        ttl: i64 [int64, tag = "3"],
    }

    /// Names a lease: to revoke it, to keep it alive, or to ask how long it has left.
    LeaseId { id: i64 [int64, tag = "1"] }

    /// How long a lease lasts: the answer to a keep-alive and to the question.
    LeaseTtl {
        header: Option<Header> [message, optional, tag = "1"],
        id: i64 [int64, tag = "2"],
        /// In seconds; 0 or less: there is no such lease.
        ttl: i64 [int64, tag = "3"],
    }

    StatusResponse { version: String [string, tag = "2"] }

    AuthenticateRequest {
        name: String [string, tag = "1"],
        password: String [string, tag = "2"],
    }

    AuthenticateResponse { token: String [string, tag = "2"] }
}

pub(super) const ASCENDING: i32 = 1;
pub(super) const DESCENDING: i32 = 2;
pub(super) const BY_CREATION: i32 = 2;

#[derive(Clone, PartialEq, Oneof)]
pub(super) enum Op {
    #[prost(message, tag = "1")]
    Range(RangeRequest),
    #[prost(message, tag = "2")]
    Put(PutRequest),
    #[prost(message, tag = "3")]
    Delete(DeleteRangeRequest),
}

#[derive(Clone, PartialEq, Oneof)]
pub(super) enum OpResponse {
    #[prost(message, tag = "1")]
    Range(RangeResponse),
    #[prost(message, tag = "2")]
    Put(EmptyResponse),
    #[prost(message, tag = "3")]
    Delete(EmptyResponse),
}

#[derive(Clone, PartialEq, Oneof)]
pub(super) enum CompareTarget {
    #[prost(int64, tag = "5")]
    CreateRevision(i64),
    #[prost(int64, tag = "6")]
    ModRevision(i64),
    #[prost(int64, tag = "8")]
    Lease(i64),
}

#[derive(Clone, PartialEq, Oneof)]
pub(super) enum WatchOp {
    #[prost(message, tag = "1")]
    Create(WatchCreateRequest),
}

impl TxnResponse {
    /// The revision that it was carried out at.
    pub(super) fn revision(&self) -> i64 {
        self.header.as_ref().map_or(0, |header| header.revision)
    }

    /// What was read, in the order of its reads.
    pub(super) fn into_ranges(self) -> impl Iterator<Item = RangeResponse> {
        self.responses.into_iter().filter_map(|op| match op.response {
            Some(OpResponse::Range(range)) => Some(range),
            _ => None,
        })
    }
}

impl RangeResponse {
    pub(super) fn into_first(self) -> Option<KeyValue> {
        self.kvs.into_iter().next()
    }

    /// How many there are.
    pub(super) fn total(&self) -> u64 {
        u64::try_from(self.count).unwrap_or(0)
    }
}
