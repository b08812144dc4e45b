//! The terminal, where there is one: the group in its foreground may read it and gets its keys' signals.
//!
//! The command has a group of its own, so it must be put there for as long as it runs. Where stdout or stderr is a
//! pipe, another program of the same shell line (a pager) may need the terminal: then the command gets it only when
//! it asks, by reading.

use std::io::{IsTerminal, stderr, stdin, stdout};
use std::os::fd::AsFd;

use nix::sys::signal::{SigSet, SigmaskHow, Signal};
use rustix::fs::FileType;
use rustix::process::{Pid, getpgrp};
use rustix::termios::{tcgetpgrp, tcsetpgrp};

use super::group::ProcessGroup;

/// The terminal that is our stdin.
#[derive(Debug)]
pub(super) struct Terminal {
    ours: Pid,
    shared: bool,
}

impl Terminal {
    /// `None`: stdin is no terminal, or not our session's.
    pub(super) fn of_stdin() -> Option<Self> {
        let stdin = stdin();
        if !stdin.is_terminal() || tcgetpgrp(&stdin).is_err() {
            return None;
        }
        Some(Terminal { ours: getpgrp(), shared: is_pipe(stdout()) || is_pipe(stderr()) })
    }

    /// Whether the command gets it at its start: not if another program may need it, nor if it is not ours to give.
    pub(super) fn is_offered(&self) -> bool {
        !self.shared && tcgetpgrp(stdin()) == Ok(self.ours)
    }

    /// Gives it to the command, if it is ours to give.
    pub(super) fn give(&self, group: ProcessGroup) -> bool {
        tcgetpgrp(stdin()) == Ok(self.ours)
            && from_the_background(|| tcsetpgrp(stdin(), group.leader()).is_ok())
    }

    /// Takes it back, if the command has it.
    pub(super) fn take_back(&self, group: ProcessGroup) {
        if tcgetpgrp(stdin()) == Ok(group.leader()) {
            let _ = from_the_background(|| tcsetpgrp(stdin(), self.ours));
        }
    }
}

/// Does something to the terminal although another group may have it. The kernel stops a background process that does
/// so, unless it blocks the signal; and only meanwhile, as children inherit what is blocked.
pub(crate) fn from_the_background<T>(act: impl FnOnce() -> T) -> T {
    let mut tty_output = SigSet::empty();
    tty_output.add(Signal::SIGTTOU);
    let before = tty_output.thread_swap_mask(SigmaskHow::SIG_BLOCK);
    let done = act();
    if let Ok(before) = before {
        let _ = before.thread_set_mask();
    }
    done
}

fn is_pipe(stream: impl AsFd) -> bool {
    rustix::fs::fstat(stream).is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Fifo)
}
