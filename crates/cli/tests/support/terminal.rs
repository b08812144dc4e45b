//! A terminal of its own for a command line.

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::process::Command;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Termios, Winsize, tcgetattr, tcsetwinsize};

use super::{RunningProcess, TestDirectory, path_with_fencehold};

/// A terminal with a shell on it, in a session of its own.
pub struct TestTerminal {
    keys: File,
    seen: String,
    _shell: RunningProcess,
}

impl TestTerminal {
    pub fn new(dir: &TestDirectory, shell: &[&str]) -> Self {
        let keys = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
        grantpt(&keys).unwrap();
        unlockpt(&keys).unwrap();
        let name = ptsname(&keys, Vec::new()).unwrap();
        let screen = OpenOptions::new().read(true).write(true).open(name.to_str().unwrap()).unwrap();
        let mut command = Command::new("setsid");
        command
            .args(["--ctty", "--wait"])
            .args(shell)
            .current_dir(dir.path(""))
            .envs([("FENCEHOLD_STORE", dir.store().as_str()), ("PS1", "ready> "), ("NO_COLOR", "1")])
            .stdin(screen.try_clone().unwrap())
            .stdout(screen.try_clone().unwrap())
            .stderr(screen)
            .env("PATH", path_with_fencehold());
        let child = command.spawn().unwrap();
        TestTerminal { keys: File::from(keys), seen: String::new(), _shell: RunningProcess::adopt(child) }
    }

    pub fn press(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).unwrap();
    }

    /// Says how large it is from now on.
    pub fn resize(&self, columns: u16, rows: u16) {
        let size = Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
        tcsetwinsize(&self.keys, size).unwrap();
    }

    pub fn modes(&self) -> Termios {
        tcgetattr(&self.keys).unwrap()
    }

    /// What comes next on the screen. `None`: nothing came.
    pub fn read(&mut self) -> Option<Vec<u8>> {
        let limit = Timespec::try_from(Duration::from_secs(30)).unwrap();
        let ready = poll(&mut [PollFd::new(&self.keys, PollFlags::IN)], Some(&limit)).unwrap();
        let mut bytes = vec![0; 4_096];
        let count = if ready == 0 { 0 } else { self.keys.read(&mut bytes).unwrap_or(0) };
        bytes.truncate(count);
        (count > 0).then_some(bytes)
    }

    /// Reads the screen until this is on it, and forgets what came before.
    pub fn expect(&mut self, text: &str) -> String {
        loop {
            if let Some(at) = self.seen.find(text) {
                let end = at + text.len();
                return self.seen.drain(..end).collect();
            }
            let bytes = self.read();
            let bytes = bytes.unwrap_or_else(|| panic!("{text:?} never came: {:?}", self.seen));
            self.seen.push_str(&String::from_utf8_lossy(&bytes));
        }
    }
}
