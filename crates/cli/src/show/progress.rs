//! How far a long bulk action has come: one line on stderr, on a terminal only, gone when it is over.

use std::io::{IsTerminal, Write, stderr};
use std::time::{Duration, Instant};

use crate::duration::show_ms;
use crate::process::from_the_background;

/// What is over sooner than this needs no bar.
const APPEARS_AFTER: Duration = Duration::from_millis(400);
const DRAWN_EVERY: Duration = Duration::from_millis(100);
const BAR_WIDTH: usize = 24;

/// A bulk action under way.
#[derive(Debug)]
pub(crate) struct Progress {
    what: &'static str,
    /// How much there is to do, where that is known, in any unit.
    total: Option<u64>,
    part: u64,
    jobs: u64,
    began: Instant,
    drawn: Option<Instant>,
    on_terminal: bool,
}

impl Progress {
    pub(crate) fn new(what: &'static str, total: Option<u64>) -> Self {
        let dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        Progress {
            what,
            total: total.filter(|total| *total > 0),
            part: 0,
            jobs: 0,
            began: Instant::now(),
            drawn: None,
            on_terminal: stderr().is_terminal() && !dumb,
        }
    }

    /// So many jobs more, and so much of the whole.
    pub(crate) fn add(&mut self, jobs: u64, part: u64) {
        self.jobs += jobs;
        self.part += part;
        let due = self.drawn.map_or(self.began + APPEARS_AFTER, |at| at + DRAWN_EVERY);
        if self.on_terminal && Instant::now() >= due {
            self.drawn = Some(Instant::now());
            write(&format!("\r\u{1b}[K{}", self.line()));
        }
    }

    /// Makes room for a line of something else.
    pub(crate) fn clear(&mut self) {
        if self.drawn.take().is_some() {
            // It comes back a moment after, not at once.
            self.began = Instant::now();
            write("\r\u{1b}[K");
        }
    }

    fn line(&self) -> String {
        let time = show_ms(u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX));
        let bar = self.total.map(|total| bar(self.part, total)).unwrap_or_default();
        format!("{bar}{} {} jobs, {time}", self.what, self.jobs)
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.clear();
    }
}

fn bar(part: u64, total: u64) -> String {
    let part = part.min(total);
    let percent = part.saturating_mul(100) / total.max(1);
    let full = usize::try_from(percent).unwrap_or(0) * BAR_WIDTH / 100;
    format!("[{}{}] {percent:>3} %  ", "#".repeat(full), "-".repeat(BAR_WIDTH - full))
}

fn write(text: &str) {
    // Even while another group has the terminal; and if no one can see it, nothing is lost.
    let _ = from_the_background(|| stderr().lock().write_all(text.as_bytes()));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_fills_and_never_overflows() {
        assert_eq!(bar(0, 10), format!("[{}]   0 %  ", "-".repeat(24)));
        assert_eq!(bar(5, 10), format!("[{}{}]  50 %  ", "#".repeat(12), "-".repeat(12)));
        assert_eq!(bar(u64::MAX, 10), format!("[{}] 100 %  ", "#".repeat(24)));
        assert!(bar(1, u64::MAX).contains("0 %"));
    }
}
