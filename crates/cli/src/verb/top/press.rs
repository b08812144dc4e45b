//! What keys do.

use super::action::{Action, Confirmation, Confirmed, TextField};
use super::keyboard::Key;
use super::rows::Row;
use super::state::{Command, Detail, JobFound, Overlay, State, Tab};
use crate::show::Colour;

/// Every key and what it does, for the help.
pub(super) const KEYS: [(&str, &str); 19] = [
    ("1 … 5", "leases, queues, jobs, workers, events"),
    ("Tab, Shift-Tab", "the next list, the one before"),
    ("j k, arrows", "down, up"),
    ("PgDn, PgUp", "a page further, a page back"),
    ("Home End, g G", "the first, the last"),
    ("Enter", "open: a lease with who held it when,"),
    ("", "a job with its attempts, a queue's jobs"),
    ("Esc", "back; all of it again, without a filter"),
    ("/", "filter: how keys begin, owner=, task=;"),
    ("", "jobs: queue=, kind=, state=, owner=, text;"),
    ("", "other lists: text"),
    ("f", "leases: free keys, too"),
    ("x", "revoke the lease; cancel the job"),
    ("t", "retry the job"),
    ("s", "pause the queue, or resume it"),
    ("p, Space", "stop refreshing, go on"),
    ("r", "refresh now"),
    ("Ctrl-L", "draw the screen anew"),
    ("q, Ctrl-C", "quit"),
];

impl State {
    /// What comes of a key.
    pub(super) fn press(&mut self, key: Key) -> Vec<Command> {
        match key {
            Key::Control('c') => return vec![Command::Quit],
            Key::Control('l') => return vec![Command::Redraw],
            _ => {}
        }
        match std::mem::replace(&mut self.overlay, Overlay::Nothing) {
            Overlay::Nothing => self.press_plain(&key),
            // Any key takes it away.
            Overlay::Help => Vec::new(),
            Overlay::Filter(field) => self.press_filter(field, &key),
            Overlay::Confirm(confirmation) => self.press_confirmation(confirmation, &key),
        }
    }

    fn press_filter(&mut self, mut field: TextField, key: &Key) -> Vec<Command> {
        match key {
            Key::Escape => Vec::new(),
            Key::Enter => {
                self.set_filter(self.tab, field.text.trim().to_owned());
                self.fetch()
            }
            key => {
                field.press(key);
                self.overlay = Overlay::Filter(field);
                Vec::new()
            }
        }
    }

    fn press_confirmation(&mut self, mut confirmation: Confirmation, key: &Key) -> Vec<Command> {
        match confirmation.press(key) {
            Confirmed::No => self.notify("nothing was done", Colour::Plain),
            Confirmed::NotYet => self.overlay = Overlay::Confirm(confirmation),
            Confirmed::Yes(reason) => {
                self.is_acting = true;
                return vec![Command::Act(confirmation.action, reason)];
            }
        }
        Vec::new()
    }

    fn press_plain(&mut self, key: &Key) -> Vec<Command> {
        match key {
            Key::Char('q') => return vec![Command::Quit],
            Key::Char('?') => self.overlay = Overlay::Help,
            Key::Char('r') => return self.fetch(),
            Key::Char('p' | ' ') => {
                self.is_paused = !self.is_paused;
                return if self.is_paused { Vec::new() } else { self.fetch() };
            }
            Key::Char(digit @ '1'..='5') => {
                let at = usize::from(*digit as u8 - b'1');
                return self.show(Tab::ALL[at]);
            }
            Key::Tab | Key::Right => return self.show(self.neighbour(1)),
            Key::BackTab | Key::Left => return self.show(self.neighbour(Tab::ALL.len() - 1)),
            Key::Char('x' | 't' | 's') => self.begin_action(key),
            key if self.detail.is_some() => return self.press_in_detail(key),
            key => return self.press_in_list(key),
        }
        Vec::new()
    }

    fn neighbour(&self, by: usize) -> Tab {
        Tab::ALL[(self.tab.at() + by) % Tab::ALL.len()]
    }

    fn press_in_detail(&mut self, key: &Key) -> Vec<Command> {
        let page = self.page_rows();
        match key {
            Key::Escape | Key::Backspace => {
                self.detail = None;
                return self.fetch();
            }
            Key::Down | Key::Char('j') => self.detail_offset += 1,
            Key::Up | Key::Char('k') => self.detail_offset = self.detail_offset.saturating_sub(1),
            Key::PageDown => self.detail_offset += page,
            Key::PageUp => self.detail_offset = self.detail_offset.saturating_sub(page),
            Key::Home | Key::Char('g') => self.detail_offset = 0,
            Key::End | Key::Char('G') => self.detail_offset = usize::MAX / 2,
            _ => {}
        }
        self.detail_offset = self.detail_offset.min(self.detail_offset_max());
        Vec::new()
    }

    fn press_in_list(&mut self, key: &Key) -> Vec<Command> {
        let (at, page) = (self.cursors[self.tab.at()].selected, self.page_rows());
        match key {
            Key::Down | Key::Char('j') => self.select(at + 1),
            Key::Up | Key::Char('k') => self.select(at.saturating_sub(1)),
            Key::PageDown => self.select(at + page),
            Key::PageUp => self.select(at.saturating_sub(page)),
            Key::Home | Key::Char('g') => self.select(0),
            Key::End | Key::Char('G') => self.select(usize::MAX),
            Key::Enter => {
                if let Some(target) = self.selected().and_then(|row| row.target()) {
                    return self.open(target);
                }
            }
            Key::Escape if !self.filter().is_empty() => {
                self.set_filter(self.tab, String::new());
                return self.fetch();
            }
            Key::Char('/') => self.overlay = Overlay::Filter(TextField::of(self.filter())),
            Key::Char('f') if self.tab == Tab::Leases => {
                self.has_free_keys = !self.has_free_keys;
                return self.fetch();
            }
            _ => {}
        }
        Vec::new()
    }

    /// Asks whether to do to the chosen thing what the key stands for.
    fn begin_action(&mut self, key: &Key) {
        let letter = match key {
            Key::Char(letter) => *letter,
            _ => return,
        };
        if self.is_acting {
            self.notify("what was confirmed before is still under way", Colour::Warning);
            return;
        }
        match self.action(letter) {
            Ok(action) => self.overlay = Overlay::Confirm(Confirmation::of(action)),
            Err(why) => self.notify(why, Colour::Plain),
        }
    }

    fn action(&self, letter: char) -> Result<Action, &'static str> {
        const FREE: &str = "the key is free: there is nothing to revoke";
        match (letter, &self.detail) {
            ('x', Some(Detail::Lease(_))) => {
                let lease = self.lease.as_ref().and_then(|lease| lease.view.as_ref());
                return lease.and_then(Action::revoke).ok_or(FREE);
            }
            (letter, Some(Detail::Job(_))) => {
                let JobFound::Found(job) = &self.job else { return Err("there is no such job") };
                return match letter {
                    'x' => Ok(Action::cancel(&job.job)),
                    't' => Ok(Action::retry(&job.job)),
                    _ => Err("s is for queues"),
                };
            }
            (_, Some(_)) => return Err("t is for jobs, s for queues"),
            (_, None) => {}
        }
        match (letter, self.selected()) {
            ('x', Some(Row::Lease(lease))) => Action::revoke(lease).ok_or(FREE),
            ('x', Some(Row::Job(job))) => Ok(Action::cancel(job)),
            ('t', Some(Row::Job(job))) => Ok(Action::retry(job)),
            ('s', Some(Row::Queue(queue))) => Ok(Action::switch(queue)),
            ('x', _) => Err("x revokes a lease or cancels a job: none is chosen here"),
            ('t', _) => Err("t retries a job: none is chosen here"),
            _ => Err("s pauses or resumes a queue: none is chosen here"),
        }
    }
}
