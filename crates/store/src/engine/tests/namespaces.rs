//! Looking leaves no trace: only what is done in a namespace makes one.

use fencehold_core::Namespace;

use super::{Ask, Rig, key, request};
use crate::lease::{EventsRequest, ListRequest};

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

#[test]
fn a_namespace_is_found_again_among_many() {
    let mut rig = Rig::new();
    let names: Vec<Namespace> = (0..500).map(|nth| Namespace::new(format!("team-{nth}")).unwrap()).collect();
    let numbers: Vec<u32> = names.iter().map(|name| rig.engine.table.space(name)).collect();
    let again: Vec<Option<u32>> = names.iter().map(|name| rig.engine.table.find_space(name)).collect();
    assert_eq!(again, numbers.into_iter().map(Some).collect::<Vec<_>>());
    assert_eq!(rig.engine.table.spaces.len(), 500);
}
