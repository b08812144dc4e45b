//! What is drawn, of a store that is the same each time, held against files that are kept. `FENCEHOLD_WRITE_GOLDENS=1 cargo test --workspace
//! --all-features --bin fencehold snapshots::` writes them anew.

use std::path::Path;

use ratatui_core::backend::TestBackend;
use ratatui_core::style::{Color, Modifier};
use ratatui_core::terminal::Terminal;

use super::draw::draw;
use super::keyboard::Key;
use super::query::{Found, Page, Trouble};
use super::samples::{self, answer};
use super::state::{Input, State};

const SIZES: [(u16, u16); 2] = [(80, 24), (120, 40)];

fn terminal(state: &State) -> Terminal<TestBackend> {
    let mut terminal = Terminal::new(TestBackend::new(state.columns, state.rows)).unwrap();
    terminal.draw(|frame| draw(frame, state)).unwrap();
    terminal
}

/// The lines of the screen, without what trails.
fn screen(state: &State) -> String {
    let terminal = terminal(state);
    let buffer = terminal.backend().buffer();
    let mut text = String::new();
    for y in 0..buffer.area.height {
        let mut line = String::new();
        let mut hidden = 0;
        for x in 0..buffer.area.width {
            let cell = &buffer[(x, y)];
            if hidden > 0 {
                hidden -= 1;
                continue;
            }
            hidden = ratatui_core::text::Span::raw(cell.symbol()).width().saturating_sub(1);
            line.push_str(cell.symbol());
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

/// Holds a screen against the one that is kept.
#[track_caller]
fn assert_golden(name: &str, state: &State) {
    let now = screen(state);
    let file = format!("{name}-{}x{}.txt", state.columns, state.rows);
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/top").join(&file);
    if std::env::var_os("FENCEHOLD_WRITE_GOLDENS").is_some() {
        std::fs::write(&path, now).unwrap();
        return;
    }
    let kept = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(kept == now, "{file} was\n{kept}\nand is\n{now}");
}

fn press(state: &mut State, keys: &[Key]) -> Vec<super::state::Command> {
    keys.iter().flat_map(|key| state.update(Input::Key(key.clone()))).collect()
}

fn type_text(state: &mut State, text: &str) {
    for c in text.chars() {
        state.update(Input::Key(Key::Char(c)));
    }
}

/// A list that was shown and filled.
fn list(size: (u16, u16), digit: char, found: Found) -> State {
    let mut state = samples::state(size.0, size.1);
    state.update(Input::Time(samples::now()));
    let commands = press(&mut state, &[Key::Char(digit)]);
    answer(&mut state, commands, found);
    state
}

fn leases(size: (u16, u16)) -> State {
    list(size, '1', Found::Leases(samples::leases()))
}

#[test]
fn every_list() {
    for size in SIZES {
        let mut state = leases(size);
        press(&mut state, &[Key::Down]);
        assert_golden("leases", &state);
        assert_golden("queues", &list(size, '2', Found::Queues(samples::queues())));
        assert_golden("jobs", &list(size, '3', Found::Jobs(samples::jobs())));
        assert_golden("workers", &list(size, '4', samples::workers()));
        assert_golden("events", &list(size, '5', Found::Events(Some(samples::events()))));
    }
}

#[test]
fn the_timeline_of_a_lease_and_the_attempts_of_a_job() {
    for size in SIZES {
        let mut state = leases(size);
        let commands = press(&mut state, &[Key::Down, Key::Down, Key::Enter]);
        answer(&mut state, commands, Found::Lease(Box::new(samples::lease())));
        assert_golden("lease", &state);
        let mut state = list(size, '3', Found::Jobs(samples::jobs()));
        let commands = press(&mut state, &[Key::Down, Key::Enter]);
        answer(&mut state, commands, Found::Job(Some(Box::new(samples::job_detail()))));
        assert_golden("job", &state);
    }
}

#[test]
fn what_lies_above_the_lists() {
    for size in SIZES {
        let mut state = leases(size);
        press(&mut state, &[Key::Char('?')]);
        assert_golden("help", &state);
        let mut state = leases(size);
        press(&mut state, &[Key::Char('x')]);
        type_text(&mut state, "wrong input");
        assert_golden("revoke", &state);
        let mut state = leases(size);
        press(&mut state, &[Key::Char('/')]);
        type_text(&mut state, "reports/ owner=ada");
        assert_golden("filter", &state);
    }
}

#[test]
fn a_store_that_does_not_answer_leaves_the_last_picture_and_says_how_old_it_is() {
    for size in SIZES {
        let mut state = leases(size);
        let mut later = samples::now();
        (later.store_ms, later.wall_ms) = (later.store_ms + 14_000, later.wall_ms + 14_000);
        let commands = state.update(Input::Time(later));
        let [super::state::Command::Fetch { serial, .. }] = commands[..] else { panic!("{commands:?}") };
        let says = "the store http://localhost:7117 is unavailable: connection refused".to_owned();
        let trouble = Trouble { says, passes: true };
        state.update(Input::Found { serial, result: Err(trouble) });
        assert_golden("old", &state);
    }
}

#[test]
fn what_came_of_an_act_is_said_in_full() {
    for size in SIZES {
        let mut state = leases(size);
        let says = "http://localhost:7117 does not allow it: this access token has lease:read, and lease:revoke is \
                    needed to end the leases of others";
        state.update(Input::Acted(Err(Trouble { says: says.to_owned(), passes: false })));
        assert_golden("refused", &state);
    }
}

#[test]
fn an_empty_list_says_how_to_fill_it_and_a_refusal_is_said_in_full() {
    let mut state = samples::state(80, 24);
    let commands = state.update(Input::Time(samples::now()));
    answer(&mut state, commands, Found::Leases(Page::default()));
    assert!(screen(&state).contains("fencehold run --key demo"));
    let mut state = samples::state(80, 24);
    assert!(screen(&state).contains("looking…"));
    let commands = state.update(Input::Time(samples::now()));
    let [super::state::Command::Fetch { serial, .. }] = commands[..] else { panic!("{commands:?}") };
    let says = format!("http://h does not allow it: {} needs lease:read", "a token ".repeat(12));
    state.update(Input::Found { serial, result: Err(Trouble { says, passes: false }) });
    let shown = screen(&state);
    assert!(shown.contains("needs lease:read") && shown.contains("nothing to see"), "{shown}");
}

#[test]
fn nothing_that_others_wrote_moves_a_cursor_or_turns_text() {
    let mut state = leases((120, 40));
    press(&mut state, &[Key::End, Key::Up]);
    let shown = screen(&state);
    assert!(shown.contains("tenant/\\u{202e}gnol/日本語") && shown.contains("ann\\u{200b}@host"), "{shown}");
    assert!(!shown.contains(['\u{202e}', '\u{200b}', '\u{1b}']));
    // Nor what an attempt said, nor an error.
    let commands = press(&mut state, &[Key::Char('3')]);
    answer(&mut state, commands, Found::Jobs(samples::jobs()));
    let commands = press(&mut state, &[Key::Enter]);
    answer(&mut state, commands, Found::Job(Some(Box::new(samples::job_detail()))));
    assert!(screen(&state).contains("smtp: 451 try\\u{a}again"));
}

#[test]
fn the_chosen_row_is_seen_without_colours_and_colours_are_not_forced_on_anyone() {
    let mut state = leases((80, 24));
    let reversed = |state: &State| -> Vec<u16> {
        let terminal = terminal(state);
        let buffer = terminal.backend().buffer();
        let is_reversed = |y: &u16| buffer[(79, *y)].modifier.contains(Modifier::REVERSED);
        (0..24).filter(is_reversed).collect()
    };
    assert_eq!(reversed(&state), [4]);
    press(&mut state, &[Key::Char('j')]);
    assert_eq!(reversed(&state), [5]);
    let colours = |state: &State| {
        let terminal = terminal(state);
        let cells = terminal.backend().buffer().content.iter();
        cells.filter(|cell| cell.fg != Color::Reset || cell.bg != Color::Reset).count()
    };
    assert_eq!(colours(&state), 0);
    state.has_colours = true;
    assert!(colours(&state) > 0);
}

#[test]
fn any_size_can_be_drawn_and_one_that_is_too_small_says_so() {
    let mut every = vec![leases((80, 24)), list((80, 24), '4', samples::workers())];
    let mut state = leases((80, 24));
    let commands = press(&mut state, &[Key::Enter]);
    answer(&mut state, commands, Found::Lease(Box::new(samples::lease())));
    every.push(state);
    for keys in [[Key::Char('?')], [Key::Char('x')], [Key::Char('/')]] {
        let mut state = leases((80, 24));
        press(&mut state, &keys);
        every.push(state);
    }
    for mut state in every {
        for columns in [1, 20, 59, 60, 61, 79, 99, 100, 400] {
            for rows in [1, 2, 11, 12, 13, 60] {
                state.update(Input::Size { columns, rows });
                let shown = screen(&state);
                let is_small = columns < 60 || rows < 12;
                assert_eq!(shown.contains("is too") || columns < 20, is_small, "{columns}×{rows}: {shown}");
            }
        }
    }
}
