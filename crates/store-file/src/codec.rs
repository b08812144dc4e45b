//! The bytes of what is kept in tables: a version first, so that a later one can be distinguished, then a type of
//! [`fencehold_contract::stored`]. Never change a version: add one.
//!
//! Rows of events begin without a version, as they always have. No row begins with 0, neither the number of events in a batch nor that
//! of an event: a later version begins with 0 and its number.

use fencehold_contract::stored::{EventV1, LeaseV1};
use fencehold_core::lease::LeaseRecord;
use fencehold_core::{Event, Token};
use serde::Serialize;
use serde::de::DeserializeOwned;

const LEASE: u8 = 1;
const LATER_EVENTS: u8 = 0;

/// Anything that is kept, in its bytes.
pub(super) fn encode(version: u8, value: &impl Serialize, into: &mut Vec<u8>) {
    into.clear();
    into.push(version);
    append(value, into);
}

fn append(value: &impl Serialize, into: &mut Vec<u8>) {
    // Serialising plain data into a growing vector cannot fail.
    if let Ok(bytes) = postcard::to_extend(value, std::mem::take(into)) {
        *into = bytes;
    }
}

/// Reads it back, or says what is wrong with it.
pub(super) fn decode<T: DeserializeOwned>(what: &str, version: u8, bytes: &[u8]) -> Result<T, String> {
    match bytes.split_first() {
        None => Err(format!("the {what} is empty")),
        Some((found, body)) if *found == version => {
            postcard::from_bytes(body).map_err(|error| format!("the {what} is damaged: {error}"))
        }
        Some((found, _)) => Err(format!("the {what} has the unknown version {found}")),
    }
}

/// A record's bytes. Its counter is a column of its own: should the bytes be damaged, the token survives.
pub(super) fn encode_lease(record: &LeaseRecord, into: &mut Vec<u8>) {
    encode(LEASE, &LeaseV1::from(record), into);
}

pub(super) fn decode_lease(counter: Token, bytes: &[u8]) -> Result<LeaseRecord, String> {
    decode::<LeaseV1>("record", LEASE, bytes).map(|stored| stored.into_record(counter))
}

/// The events of one batch.
pub(super) fn encode_events(events: &[&Event], into: &mut Vec<u8>) {
    into.clear();
    let stored: Vec<EventV1> = events.iter().map(|event| Event::clone(event).into()).collect();
    append(&stored, into);
}

/// `None`: they cannot be read.
pub(super) fn decode_events(bytes: &[u8]) -> Option<Vec<Event>> {
    let stored: Vec<EventV1> = decode_unversioned(bytes)?;
    Some(stored.into_iter().map(Event::from).collect())
}

pub(super) fn encode_event(event: &Event, into: &mut Vec<u8>) {
    into.clear();
    append(&EventV1::from(event.clone()), into);
}

pub(super) fn decode_event(bytes: &[u8]) -> Option<Event> {
    decode_unversioned::<EventV1>(bytes).map(Event::from)
}

fn decode_unversioned<T: DeserializeOwned>(bytes: &[u8]) -> Option<T> {
    let known = bytes.first().is_some_and(|first| *first != LATER_EVENTS);
    known.then(|| postcard::from_bytes(bytes).ok()).flatten()
}

#[cfg(test)]
mod tests {
    use fencehold_conformance::golden::{self, samples};

    use super::*;

    const HERE: &str = env!("CARGO_MANIFEST_DIR");

    fn written(write: impl Fn(&mut Vec<u8>)) -> Vec<u8> {
        let mut bytes = Vec::new();
        write(&mut bytes);
        bytes
    }

    fn bytes_of(record: &LeaseRecord) -> Vec<u8> {
        written(|into| encode_lease(record, into))
    }

    #[test]
    fn the_bytes_of_every_version_of_leases_are_known() {
        // The counter is not among them.
        let records = samples::leases().map(|record| LeaseRecord { counter: Token::new(9), ..record });
        golden::current(HERE, "lease.v1.hex", &records, bytes_of, |bytes| decode_lease(Token::new(9), bytes));
    }

    #[test]
    fn the_bytes_of_every_version_of_events_are_known() {
        let events = samples::events();
        let encode =
            |events: &Vec<Event>| written(|into| encode_events(&events.iter().collect::<Vec<_>>(), into));
        let unread = || "it cannot be read".to_owned();
        golden::current(HERE, "events.v1.hex", &[events[..1].to_vec(), events.clone()], encode, |bytes| {
            decode_events(bytes).ok_or_else(unread)
        });
        let encode = |event: &Event| written(|into| encode_event(event, into));
        golden::current(HERE, "old-event.v1.hex", &events, encode, |bytes| {
            decode_event(bytes).ok_or_else(unread)
        });
        golden::current(HERE, "later-event.v1.hex", &samples::later_events(), encode, |bytes| {
            decode_event(bytes).ok_or_else(unread)
        });
    }

    #[test]
    fn a_later_version_is_never_taken_for_this_one() {
        let events = encode_of_one();
        assert!(decode_events(&events).is_some());
        for later in [[&[0, 2], &events[..]].concat(), vec![0], Vec::new()] {
            assert_eq!((decode_events(&later), decode_event(&later)), (None, None));
        }
        assert!(
            decode_lease(Token::new(9), &[2, 0, 0, 0])
                .unwrap_err()
                .contains("unknown version 2")
        );
    }

    fn encode_of_one() -> Vec<u8> {
        written(|into| encode_events(&[&samples::events()[0]], into))
    }

    #[test]
    fn damaged_bytes_give_an_error_and_never_a_panic() {
        let good = bytes_of(&samples::leases()[2]);
        for cut in 0..good.len() {
            assert!(decode_lease(Token::new(9), &good[..cut]).is_err());
        }
        for at in 0..good.len() {
            let mut bad = good.clone();
            bad[at] ^= 0xff;
            let _ = decode_lease(Token::new(9), &bad);
        }
    }
}
