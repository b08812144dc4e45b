//! Looking leaves no trace: only what is taken in a namespace makes one.

use fencehold_core::{HoldId, Namespace, Owner, Reason, Token};

use super::{Answer, Ask, Rig, key, request};
use crate::lease::{EventsRequest, HoldRef, ListRequest, RevokeRequest, Which};

#[test]
fn whoever_only_looks_makes_no_namespace() {
    let mut rig = Rig::new();
    rig.take(request("k", 1));
    let events = EventsRequest { limit: 1, wait_ms: 50, ..EventsRequest::default() };
    let list = ListRequest { limit: 1, ..ListRequest::default() };
    for nth in 0..10 {
        let nobodys = Namespace::new(format!("nobodys-{nth}")).unwrap();
        for ask in [Ask::Get(key("k")), Ask::List(list.clone()), Ask::Events(events.clone()), Ask::Status] {
            rig.engine.ask(rig.now, 1_000 + nth, &nobodys, ask, &mut rig.archive);
        }
    }
    rig.pass(50);
    rig.sweep(10);
    let (_, answers) = rig.engine.take_batch(true);
    assert_eq!(answers.len(), 40, "each was answered all the same");
    assert_eq!(rig.engine.table.spaces.len(), 1);
}

/// Whoever can reach the store could otherwise fill its memory with names.
#[test]
fn whoever_speaks_for_no_lease_makes_no_namespace() {
    let mut rig = Rig::new();
    rig.take(request("k", 1));
    let hold = HoldRef { key: key("k"), hold: HoldId::from_random([7; 16]), token: Token::new(3) };
    let (by, reason) = (Owner::new("P").unwrap(), Reason::new("because").unwrap());
    let revoke = |which| Ask::Revoke {
        request: RevokeRequest { which, by: by.clone(), reason: reason.clone() },
        from: 0,
    };
    for nth in 0..10 {
        let nobodys = Namespace::new(format!("nobodys-{nth}")).unwrap();
        let asks = [
            Ask::Renew(vec![hold.clone()]),
            Ask::Release(vec![hold.clone()]),
            revoke(Which::Key { key: key("k"), only_token: None }),
            revoke(Which::Prefix(String::new())),
        ];
        for ask in asks {
            rig.engine.ask(rig.now, 1_000 + nth, &nobodys, ask, &mut rig.archive);
        }
    }
    let (_, answers) = rig.engine.take_batch(true);
    assert_eq!(answers.len(), 40, "each was answered all the same");
    assert_eq!(rig.engine.table.spaces.len(), 1);
    assert_eq!(rig.held(), 1, "and the same key elsewhere was left alone");

    let nobodys = Namespace::new("nobodys-0").unwrap();
    let events = EventsRequest { limit: 10, ..EventsRequest::default() };
    rig.engine.ask(rig.now, 2_000, &nobodys, Ask::Events(events), &mut rig.archive);
    let (_, mut answers) = rig.engine.take_batch(true);
    match answers.pop().unwrap().result.said() {
        Ok(Answer::Events(page)) => {
            assert_eq!(page.events.len(), 2, "a token that was never given is an alarm: {page:?}");
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_namespace_is_found_again_among_many() {
    let mut rig = Rig::new();
    let names: Vec<Namespace> = (0..500).map(|nth| Namespace::new(format!("team-{nth}")).unwrap()).collect();
    let numbers: Vec<u32> = names.iter().map(|name| rig.engine.table.space(name)).collect();
    let again: Vec<Option<u32>> = names.iter().map(|name| rig.engine.table.find_space(name)).collect();
    assert_eq!(again, numbers.into_iter().map(Some).collect::<Vec<_>>());
    assert_eq!(rig.engine.table.spaces.len(), 500);
}
