//! Whatever lies in the database or comes through the socket is read or refused, and nothing panics.

use fencehold_contract::operation::StoreRequest;
use fencehold_core::lease::{Hold, LeaseRecord, PendingYield};
use fencehold_core::{HoldId, Key, Namespace, Owner, Timestamp, Token};
use fencehold_test_servers::{Edit, edited};
use fencehold_test_store::block_on;

use super::codec;
use super::frame::{Frames, FromOwner, ToOwner, bytes_of};

/// Records as they are kept: of a free key, and of one that is held.
fn records() -> [Vec<u8>; 2] {
    let owner = |name: &str| Owner::new(name).unwrap();
    let notice = PendingYield { contender: owner("eve"), task: None, priority: 2, yield_at_ms: 70 };
    let hold = Hold {
        hash: HoldId::from_random([7; 16]).hash(),
        owner: owner("ada"),
        task: None,
        ttl_ms: 30_000,
        max_age_ms: None,
        since: Timestamp { store_ms: 5, wall_ms: 1_800_000_000_000 },
        priority: 1,
        yield_request: Some(Box::new(notice)),
    };
    let taken = LeaseRecord { counter: Token::new(3), hold: Some(hold), history: None };
    [LeaseRecord::default(), taken].map(|record| {
        let mut bytes = Vec::new();
        codec::encode_lease(&record, &mut bytes);
        bytes
    })
}

/// A record that is read is written as it was, and read again as the same.
#[test]
fn a_record_is_read_or_refused_and_read_again_as_the_same() {
    let records = records();
    let samples: Vec<&[u8]> = records.iter().map(Vec::as_slice).collect();
    bolero::check!()
        .with_type::<(u8, Vec<Edit>, u64)>()
        .for_each(|(which, edits, counter)| {
            let counter = Token::new(*counter >> 11);
            let Ok(record) = codec::decode_lease(counter, &edited(&samples, *which, edits)) else { return };
            let mut again = Vec::new();
            codec::encode_lease(&record, &mut again);
            assert_eq!(codec::decode_lease(counter, &again), Ok(record));
        });
}

/// What comes through the socket is a frame, or the end of the connection.
#[test]
fn bytes_from_the_socket_are_frames_or_refused() {
    let ask = Box::new(StoreRequest::Get(Key::new("reports/daily").unwrap()));
    let asks = ToOwner::Ask { id: 7, namespace: Namespace::default(), ask, timeout_ms: 10_000 };
    let hello = ToOwner::Hello { protocol: 3, schema: 2, pid: 77 };
    let refuse = FromOwner::Refuse { why: "another version".to_owned() };
    let welcome = FromOwner::Welcome { protocol: 3, pid: 77, epoch: 9 };
    let frames =
        [bytes_of(&asks), bytes_of(&hello), bytes_of(&refuse), bytes_of(&welcome)].map(Result::unwrap);
    let samples: Vec<&[u8]> = frames.iter().map(Vec::as_slice).collect();
    bolero::check!().with_type::<(u8, Vec<Edit>)>().for_each(|(which, edits)| {
        let bytes = edited(&samples, *which, edits);
        while_there_are_frames::<ToOwner>(&bytes);
        while_there_are_frames::<FromOwner>(&bytes);
    });
}

fn while_there_are_frames<T: serde::de::DeserializeOwned>(bytes: &[u8]) {
    let mut frames = Frames::new(bytes);
    block_on(async { while let Ok(Some(_)) = frames.next::<T>().await {} });
}
