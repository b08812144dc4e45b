//! What comes of keys, of time and of data: the state alone.

use fencehold_contract::ListLeasesRequest;
use fencehold_contract::job::QueueMode;
use fencehold_core::{Reason, Timestamp, Token};

use super::action::Action;
use super::keyboard::Key;
use super::query::{Found, Page, Query, ROWS_MAX, Trouble};
use super::samples::{self, answer};
use super::state::{Command, Detail, Input, Overlay, State, Tab};

fn press(state: &mut State, keys: &str) -> Vec<Command> {
    let key = |c| match c {
        '\n' => Key::Enter,
        '\u{1b}' => Key::Escape,
        '\t' => Key::Tab,
        c => Key::Char(c),
    };
    keys.chars().flat_map(|c| state.update(Input::Key(key(c)))).collect()
}

fn after(ms: u64) -> Timestamp {
    let now = samples::now();
    Timestamp { store_ms: now.store_ms + ms, wall_ms: now.wall_ms + ms }
}

/// Top with leases on its screen.
fn leases() -> State {
    let mut state = samples::state(80, 24);
    let commands = state.update(Input::Time(samples::now()));
    answer(&mut state, commands, Found::Leases(samples::leases()));
    state
}

fn fetched(commands: &[Command]) -> &Query {
    match commands {
        [Command::Fetch { query, .. }] => query,
        other => panic!("{other:?}"),
    }
}

#[test]
fn it_looks_at_once_and_then_again_when_it_is_time() {
    let mut state = leases();
    assert_eq!(state.update(Input::Time(after(1_999))), []);
    let commands = state.update(Input::Time(after(2_000)));
    assert!(matches!(fetched(&commands), Query::Leases(_)));
    assert_eq!(state.update(Input::Time(after(60_000))), [], "one look at a time, however long it takes");
    answer(&mut state, commands, Found::Leases(samples::leases()));
    assert_eq!(state.update(Input::Time(after(61_999))), [], "counted from the answer");
    assert_eq!(state.update(Input::Time(after(62_000))).len(), 1);
}

#[test]
fn a_pause_stops_the_looks_and_its_end_looks_at_once() {
    for key in ["p", " "] {
        let mut state = leases();
        assert_eq!(press(&mut state, key), []);
        assert_eq!(state.update(Input::Time(after(100_000))), []);
        assert_eq!(press(&mut state, "r").len(), 1, "but a person can look");
        assert_eq!(press(&mut state, key).len(), 1);
    }
}

#[test]
fn what_another_view_asked_for_is_not_shown_in_this_one() {
    let mut state = leases();
    let old = press(&mut state, "r");
    let new = press(&mut state, "2");
    let [Command::Fetch { serial, .. }] = old[..] else { panic!("{old:?}") };
    let result = Ok(Found::Leases(Page::default()));
    state.update(Input::Found { serial, result });
    assert_eq!(state.leases.rows.len(), samples::leases().rows.len(), "a late answer changes nothing");
    answer(&mut state, new, Found::Queues(samples::queues()));
    assert_eq!(state.queues.len(), 3);
}

#[test]
fn the_chosen_row_stays_the_same_thing_while_others_come_and_go() {
    let mut state = leases();
    press(&mut state, "jj");
    let chosen = |state: &State| state.selected().map(|row| row.id());
    assert_eq!(chosen(&state).as_deref(), Some("reports/daily"));
    let mut fewer = samples::leases();
    fewer.rows.remove(0);
    let commands = press(&mut state, "r");
    answer(&mut state, commands, Found::Leases(fewer.clone()));
    assert_eq!(chosen(&state).as_deref(), Some("reports/daily"));
    // Once it is gone, its place is taken.
    fewer.rows.remove(1);
    let commands = press(&mut state, "r");
    answer(&mut state, commands, Found::Leases(fewer));
    assert!(chosen(&state).is_some_and(|key| key.starts_with("tenant/")));
    let commands = press(&mut state, "r");
    answer(&mut state, commands, Found::Leases(Page::default()));
    assert_eq!(chosen(&state), None);
    assert_eq!(press(&mut state, "jk\nx"), [], "keys on an empty list do nothing");
}

#[test]
fn the_newest_event_stays_chosen_until_another_one_is() {
    let mut state = samples::state(80, 24);
    let commands = press(&mut state, "5");
    assert_eq!(*fetched(&commands), Query::Events { cursor: None });
    let mut all = samples::events();
    let newest = all.events.pop().unwrap();
    let cursor = all.events.last().unwrap().seq;
    all.cursor = cursor;
    answer(&mut state, commands, Found::Events(Some(all.clone())));
    let chosen = |state: &State| state.selected().unwrap().id();
    assert_eq!(chosen(&state), cursor.to_string());
    let commands = press(&mut state, "r");
    assert_eq!(*fetched(&commands), Query::Events { cursor: Some(cursor) }, "only what is new is read");
    (all.events, all.cursor, all.follows) = (vec![newest.clone()], newest.seq, true);
    answer(&mut state, commands, Found::Events(Some(all)));
    assert_eq!(chosen(&state), newest.seq.to_string());
    assert_eq!(state.events.events.len(), samples::events().events.len());
}

#[test]
fn the_chosen_row_is_always_in_sight() {
    let mut state = samples::state(80, 24);
    let commands = state.update(Input::Time(samples::now()));
    answer(&mut state, commands, Found::Leases(samples::many_leases()));
    let place = |state: &State| (state.cursors[0].offset, state.cursors[0].selected);
    let rows = state.page_rows();
    assert_eq!(rows, 18);
    for (key, expected) in [
        (Key::Down, (0, 1)),
        (Key::PageDown, (2, 19)),
        (Key::End, (182, 199)),
        (Key::Down, (182, 199)),
        (Key::PageUp, (181, 181)),
        (Key::Home, (0, 0)),
        (Key::Up, (0, 0)),
    ] {
        state.update(Input::Key(key.clone()));
        assert_eq!(place(&state), expected, "{key:?}");
    }
    state.update(Input::Key(Key::End));
    state.update(Input::Size { columns: 80, rows: 12 });
    assert_eq!(place(&state), (194, 199), "also on a smaller screen");
}

#[test]
fn a_filter_is_asked_of_the_store_and_escape_takes_it_away() {
    let mut state = leases();
    assert_eq!(press(&mut state, "/reports/ owner=ada"), [], "not before it is whole");
    let commands = press(&mut state, "\n");
    let expected = ListLeasesRequest {
        prefix: Some("reports/".to_owned()),
        owner: Some("ada".parse().unwrap()),
        limit: ROWS_MAX,
        ..ListLeasesRequest::default()
    };
    assert_eq!(*fetched(&commands), Query::Leases(expected));
    assert!(state.list().is_empty(), "what another filter found is not shown");
    let commands = press(&mut state, "\u{1b}");
    assert!(matches!(fetched(&commands), Query::Leases(request) if request.prefix.is_none()));
    // A bad one is said, and asks nothing.
    let commands = press(&mut state, &format!("/owner={}\n", "x".repeat(300)));
    assert_eq!(commands, []);
    assert!(
        state
            .freshness()
            .trouble
            .as_ref()
            .is_some_and(|trouble| trouble.says.contains("owner"))
    );
    assert!(matches!(press(&mut state, "/nonsense\u{1b}")[..], []), "escape leaves the old one");
    assert!(state.filter().starts_with("owner=x"));
}

#[test]
fn a_row_leads_to_what_it_is_about_and_escape_leads_back() {
    let mut state = leases();
    let commands = press(&mut state, "jj\n");
    assert!(
        matches!(fetched(&commands), Query::Lease { key, cursor: None } if key.as_str() == "reports/daily")
    );
    answer(&mut state, commands, Found::Lease(Box::new(samples::lease())));
    let commands = press(&mut state, "r");
    assert!(matches!(fetched(&commands), Query::Lease { cursor: Some(109), .. }), "only what is new is read");
    assert!(matches!(fetched(&press(&mut state, "\u{1b}")), Query::Leases(_)));
    assert_eq!(state.selected().unwrap().id(), "reports/daily");

    let commands = press(&mut state, "2");
    answer(&mut state, commands, Found::Queues(samples::queues()));
    let commands = press(&mut state, "j\n");
    assert!(
        matches!(fetched(&commands), Query::Jobs(filter) if filter.queue.as_ref().unwrap().as_str() == "invoices")
    );
    let commands = press(&mut state, "4");
    answer(&mut state, commands, samples::workers());
    let worker = state.selected().unwrap().id();
    let commands = press(&mut state, "\n");
    assert!(
        matches!(fetched(&commands), Query::Leases(request) if request.owner.as_ref().unwrap().as_str() == worker)
    );
    let commands = press(&mut state, "5");
    answer(&mut state, commands, Found::Events(Some(samples::events())));
    assert!(matches!(fetched(&press(&mut state, "\n")), Query::Jobs(_)), "a queue that was paused");
    press(&mut state, "5j");
    assert!(matches!(fetched(&press(&mut state, "\n")), Query::Lease { .. }));
}

#[test]
fn a_revocation_is_of_the_token_that_was_shown_whatever_came_since() {
    let mut state = leases();
    assert_eq!(press(&mut state, "jjx"), []);
    // The key has another holder before the reason is typed.
    let mut newer = samples::leases();
    newer.rows[2].token = Token::new(38);
    let commands = state.update(Input::Time(after(2_000)));
    answer(&mut state, commands, Found::Leases(newer));
    let commands = press(&mut state, "gone\n");
    let [Command::Act(Action::Revoke { key, token, .. }, Some(reason))] = &commands[..] else {
        panic!("{commands:?}")
    };
    assert_eq!((key.as_str(), token.get()), ("reports/daily", 37));
    assert_eq!(*reason, Reason::new("gone").unwrap());
    // One at a time.
    assert_eq!(press(&mut state, "x"), []);
    assert!(matches!(state.overlay, Overlay::Nothing));
    let refused = Trouble { says: "reports/daily is not held under token 37".to_owned(), passes: false };
    let commands = state.update(Input::Acted(Err(refused)));
    assert!(matches!(fetched(&commands), Query::Leases(_)), "what is shown is looked at again");
    assert!(state.notice.as_ref().is_some_and(|notice| notice.says.contains("token 37")));
    state.update(Input::Time(after(60_000)));
    assert!(state.notice.is_none(), "after a while it was read");
}

#[test]
fn a_key_does_nothing_without_a_confirmation() {
    for keys in ["x\n", "xgone\u{1b}", "x?q", "t", "s", "jjjjx\n"] {
        let mut state = leases();
        let commands = press(&mut state, keys);
        assert!(
            !commands
                .iter()
                .any(|command| matches!(command, Command::Act(..) | Command::Quit)),
            "{keys:?}"
        );
    }
}

#[test]
fn queues_and_jobs_have_their_own_actions() {
    let mut state = leases();
    let commands = press(&mut state, "2");
    answer(&mut state, commands, Found::Queues(samples::queues()));
    for (keys, wanted) in [("s\n", QueueMode::Paused), ("js\n", QueueMode::Open)] {
        let commands = press(&mut state, keys);
        let [Command::Act(Action::SetMode { mode, .. }, None)] = commands[..] else { panic!("{commands:?}") };
        assert_eq!(mode, wanted);
        state.update(Input::Acted(Ok("done".to_owned())));
    }
    let commands = press(&mut state, "3");
    answer(&mut state, commands, Found::Jobs(samples::jobs()));
    let commands = press(&mut state, "t\n");
    assert!(matches!(commands[..], [Command::Act(Action::Retry { .. }, None)]), "{commands:?}");
    state.update(Input::Acted(Ok("done".to_owned())));
    let commands = press(&mut state, "x\n");
    assert!(matches!(commands[..], [Command::Act(Action::Cancel { .. }, None)]), "{commands:?}");
    state.update(Input::Acted(Ok("done".to_owned())));
    let commands = press(&mut state, "xtypo\n");
    assert!(matches!(&commands[..], [Command::Act(_, Some(reason))] if reason.as_str() == "typo"));
}

#[test]
fn every_key_of_the_help_is_one() {
    let mut state = leases();
    assert_eq!(press(&mut state, "?q"), [], "any key closes the help, and does no more");
    assert_eq!(press(&mut state, "q"), [Command::Quit]);
    assert_eq!(state.update(Input::Key(Key::Control('c'))), [Command::Quit]);
    assert_eq!(state.update(Input::Key(Key::Control('l'))), [Command::Redraw]);
    for (key, tab) in [('1', Tab::Leases), ('3', Tab::Jobs), ('5', Tab::Events), ('\t', Tab::Leases)] {
        press(&mut state, &key.to_string());
        assert_eq!(state.tab, tab);
    }
    state.update(Input::Key(Key::BackTab));
    assert_eq!(state.tab, Tab::Events);
    let commands = press(&mut state, "1f");
    assert!(
        matches!(commands.last(), Some(Command::Fetch { query: Query::Leases(request), .. }) if request.include_free)
    );
}

#[test]
fn a_store_that_does_not_answer_is_tried_again_and_what_was_seen_stays() {
    let mut state = leases();
    let commands = state.update(Input::Time(after(2_000)));
    let [Command::Fetch { serial, .. }] = commands[..] else { panic!("{commands:?}") };
    let trouble = Trouble { says: "unavailable".to_owned(), passes: true };
    state.update(Input::Found { serial, result: Err(trouble) });
    assert_eq!(state.list().len(), 5);
    assert!(state.freshness().trouble.is_some());
    let commands = state.update(Input::Time(after(4_000)));
    answer(&mut state, commands, Found::Leases(samples::leases()));
    assert!(state.freshness().trouble.is_none());
}

#[test]
fn any_keys_in_any_order_are_survived() {
    // A sequence that is always the same and has all pairs of keys many times.
    let keys = [
        Key::Char('j'),
        Key::Char('k'),
        Key::Enter,
        Key::Escape,
        Key::Tab,
        Key::BackTab,
        Key::Char('/'),
        Key::Char('x'),
        Key::Char('t'),
        Key::Char('s'),
        Key::Char('?'),
        Key::Char('p'),
        Key::Char('f'),
        Key::PageDown,
        Key::PageUp,
        Key::Home,
        Key::End,
        Key::Backspace,
        Key::Control('u'),
        Key::Left,
        Key::Paste("owner=a\u{7}\n".to_owned()),
        Key::Char('é'),
        Key::Char('='),
        Key::Up,
        Key::Down,
    ];
    let mut state = leases();
    let mut number = 1_u64;
    for nth in 0..20_000_u64 {
        number = number
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        let key = keys[usize::try_from(number >> 33).unwrap() % keys.len()].clone();
        for command in state.update(Input::Key(key)) {
            match command {
                Command::Fetch { serial, query } => {
                    let found = match query {
                        _ if nth % 7 == 0 => Err(Trouble { says: "x".to_owned(), passes: false }),
                        Query::Leases(_) if nth % 2 == 0 => Ok(Found::Leases(samples::many_leases())),
                        Query::Leases(_) => Ok(Found::Leases(samples::leases())),
                        Query::Queues => Ok(Found::Queues(samples::queues())),
                        Query::Jobs(_) => Ok(Found::Jobs(samples::jobs())),
                        Query::Workers { .. } => Ok(samples::workers()),
                        Query::Events { .. } => Ok(Found::Events(Some(samples::events()))),
                        Query::Lease { .. } => Ok(Found::Lease(Box::new(samples::lease()))),
                        Query::Job(_) => {
                            Ok(Found::Job((nth % 3 == 0).then(|| Box::new(samples::job_detail()))))
                        }
                    };
                    state.update(Input::Found { serial, result: found });
                }
                Command::Act(..) => _ = state.update(Input::Acted(Ok("done".to_owned()))),
                Command::Redraw => {}
                Command::Quit => panic!("no key of these quits"),
            }
        }
        let count = state.list().len();
        assert!(state.cursors[state.tab.at()].selected < count.max(1));
        assert!(state.detail.is_none() || matches!(state.detail, Some(Detail::Lease(_) | Detail::Job(_))));
    }
}
