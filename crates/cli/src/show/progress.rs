//! How far something long has come, on stderr: on a terminal one line that is drawn anew and is gone when it is over, elsewhere a
//! line now and then, with `-q` nothing.
//!
//! A thread draws, so that also what makes no step for long shows that it goes on. Everything else that is written to a terminal
//! makes room first.

use std::io::{IsTerminal, Write, stderr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::duration::show_ms;
use crate::output::{is_quiet, note};
use crate::process::from_the_background;

/// What is over sooner than this needs no bar, and so long it is away after something else was written.
const APPEARS_AFTER: Duration = Duration::from_millis(400);
const DRAWN_EVERY: Duration = Duration::from_millis(100);
/// In a log a line is there to stay.
const WRITTEN_EVERY: Duration = Duration::from_secs(10);
const BAR_WIDTH: usize = 24;

/// What is drawn on the terminal at the moment.
static SCREEN: Mutex<Screen> = Mutex::new(Screen { is_drawn: false, not_before: None });

struct Screen {
    is_drawn: bool,
    not_before: Option<Instant>,
}

/// Something long under way, until it is dropped.
#[derive(Debug)]
pub(crate) struct Progress {
    state: Arc<ProgressState>,
    /// Dropped first: the thread ends.
    thread: Option<(SyncSender<()>, JoinHandle<()>)>,
}

#[derive(Debug)]
struct ProgressState {
    what: &'static str,
    /// What is counted; nothing, where only time passes.
    unit: Option<&'static str>,
    whole: Whole,
    part: AtomicU64,
    count: AtomicU64,
    began: Instant,
}

/// What there is to do in all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Whole {
    Unknown,
    /// So much, in any unit.
    Parts(u64),
    /// It takes so long.
    Ms(u64),
}

/// Where it is shown, and how often.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Display {
    Bar,
    Lines,
}

impl Display {
    fn choose(is_quiet: bool, is_terminal: bool, is_dumb: bool) -> Option<Self> {
        match (is_quiet, is_terminal && !is_dumb) {
            (true, _) => None,
            (false, true) => Some(Display::Bar),
            (false, false) => Some(Display::Lines),
        }
    }

    fn every(self) -> Duration {
        match self {
            Display::Bar => DRAWN_EVERY,
            Display::Lines => WRITTEN_EVERY,
        }
    }
}

impl Progress {
    /// Of jobs that are counted; how much there is to do, where that is known, can be in another unit.
    pub(crate) fn jobs(what: &'static str, total: Option<u64>) -> Self {
        let whole = total.filter(|total| *total > 0).map_or(Whole::Unknown, Whole::Parts);
        Progress::start(what, Some("jobs"), whole)
    }

    /// Of so many things.
    #[cfg(feature = "race")]
    pub(crate) fn counted(what: &'static str, unit: &'static str, total: u64) -> Self {
        Progress::start(what, Some(unit), Whole::Parts(total))
    }

    /// Of what takes so long.
    pub(crate) fn timed(what: &'static str, ms: u64) -> Self {
        Progress::start(what, None, Whole::Ms(ms))
    }

    /// Of what is one step.
    #[cfg(feature = "file")]
    pub(crate) fn of(what: &'static str) -> Self {
        Progress::start(what, None, Whole::Unknown)
    }

    fn start(what: &'static str, unit: Option<&'static str>, whole: Whole) -> Self {
        let (part, count, began) = (AtomicU64::new(0), AtomicU64::new(0), Instant::now());
        let state = Arc::new(ProgressState { what, unit, whole, part, count, began });
        let is_dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        let display = Display::choose(is_quiet(), stderr().is_terminal(), is_dumb);
        let thread = display.and_then(|display| {
            let (sender, ended) = sync_channel::<()>(0);
            let shown = Arc::clone(&state);
            let draw = move || {
                while ended.recv_timeout(display.every()) == Err(RecvTimeoutError::Timeout) {
                    shown.show(display);
                }
            };
            // Without a thread it is not seen, and goes on all the same.
            let thread = std::thread::Builder::new().name("progress".to_owned()).spawn(draw).ok()?;
            Some((sender, thread))
        });
        Progress { state, thread }
    }

    /// So many more, and so much of the whole.
    pub(crate) fn add(&self, count: u64, part: u64) {
        self.state.count.fetch_add(count, Ordering::Relaxed);
        self.state.part.fetch_add(part, Ordering::Relaxed);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some((sender, thread)) = self.thread.take() {
            drop(sender);
            let _ = thread.join();
            make_room();
        }
    }
}

impl ProgressState {
    fn show(&self, display: Display) {
        let elapsed = self.began.elapsed();
        let line = self.line(elapsed);
        match display {
            Display::Lines => note(&line),
            Display::Bar if elapsed < APPEARS_AFTER => {}
            Display::Bar => {
                let mut screen = SCREEN.lock().unwrap_or_else(PoisonError::into_inner);
                if screen.not_before.is_none_or(|moment| Instant::now() >= moment) {
                    screen.is_drawn = true;
                    write(&format!("\r\u{1b}[K{}{line}", self.bar(elapsed)));
                }
            }
        }
    }

    fn line(&self, elapsed: Duration) -> String {
        let time = show_ms(ms(elapsed));
        let percent = self
            .percent(elapsed)
            .map(|percent| format!(" ({percent} %)"))
            .unwrap_or_default();
        match self.unit {
            Some(unit) => {
                format!("{} {} {unit}{percent}, {time}", self.what, self.count.load(Ordering::Relaxed))
            }
            None => format!("{}{percent}, {time}", self.what),
        }
    }

    fn percent(&self, elapsed: Duration) -> Option<u64> {
        let (part, total) = match self.whole {
            Whole::Unknown => return None,
            Whole::Parts(total) => (self.part.load(Ordering::Relaxed), total),
            Whole::Ms(total) => (ms(elapsed), total),
        };
        Some(part.min(total).saturating_mul(100) / total.max(1))
    }

    fn bar(&self, elapsed: Duration) -> String {
        let Some(percent) = self.percent(elapsed) else { return String::new() };
        let full = usize::try_from(percent).unwrap_or(0) * BAR_WIDTH / 100;
        format!("[{}{}] ", "#".repeat(full), "-".repeat(BAR_WIDTH - full))
    }
}

fn ms(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// Takes away what is drawn, for a line of something else. It comes back a moment after, not at once.
pub(crate) fn make_room() {
    let mut screen = SCREEN.lock().unwrap_or_else(PoisonError::into_inner);
    if std::mem::take(&mut screen.is_drawn) {
        screen.not_before = Some(Instant::now() + APPEARS_AFTER);
        write("\r\u{1b}[K");
    }
}

fn write(text: &str) {
    // Even while another group has the terminal; and if no one can see it, nothing is lost.
    let _ = from_the_background(|| stderr().lock().write_all(text.as_bytes()));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(whole: Whole, part: u64) -> ProgressState {
        let (part, count) = (AtomicU64::new(part), AtomicU64::new(7));
        ProgressState { what: "enqueued", unit: Some("jobs"), whole, part, count, began: Instant::now() }
    }

    #[test]
    fn a_bar_fills_and_never_overflows() {
        let shown = |whole, part| {
            let state = state(whole, part);
            state.bar(Duration::from_secs(3)) + &state.line(Duration::from_secs(3))
        };
        let empty = "-".repeat(24);
        assert_eq!(shown(Whole::Parts(10), 0), format!("[{empty}] enqueued 7 jobs (0 %), 3.0s"));
        let half = "#".repeat(12);
        assert_eq!(
            shown(Whole::Parts(10), 5),
            format!("[{half}{}] enqueued 7 jobs (50 %), 3.0s", &empty[12..])
        );
        assert!(shown(Whole::Parts(10), u64::MAX).contains("(100 %)"));
        assert!(shown(Whole::Parts(u64::MAX), 1).contains("(0 %)"));
        assert!(shown(Whole::Ms(4_000), 0).contains("(75 %)"));
        assert_eq!(shown(Whole::Unknown, 3), "enqueued 7 jobs, 3.0s");
    }

    #[test]
    fn a_bar_is_for_a_terminal_lines_are_for_a_log_and_quiet_is_quiet() {
        for (is_quiet, is_terminal, is_dumb, display) in [
            (false, true, false, Some(Display::Bar)),
            (false, true, true, Some(Display::Lines)),
            (false, false, false, Some(Display::Lines)),
            (true, true, false, None),
            (true, false, false, None),
        ] {
            assert_eq!(Display::choose(is_quiet, is_terminal, is_dumb), display);
        }
        assert!(Display::Lines.every() >= Duration::from_secs(10), "a log is not filled with them");
    }
}
