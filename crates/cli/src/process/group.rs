//! The command's process group: its signals, and who is left of it.

use std::fmt::Display;
use std::fs;

use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process_group, test_kill_process_group};

/// The process group that a command leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ProcessGroup(Pid);

impl ProcessGroup {
    pub(super) fn led_by(leader: Pid) -> Self {
        ProcessGroup(leader)
    }

    pub(super) fn from_number(number: i32) -> Option<Self> {
        // 1 would be init's own, and as a target of kill(2) it means everybody.
        (number > 1).then(|| Pid::from_raw(number)).flatten().map(ProcessGroup)
    }

    pub(super) fn leader(self) -> Pid {
        self.0
    }

    pub(super) fn number(self) -> i32 {
        self.0.as_raw_nonzero().get()
    }

    /// Sends a signal to all of it. `Err`: not one of them may be signalled by us; an empty group is fine.
    pub(super) fn send(self, signal: Signal) -> Result<(), Errno> {
        match kill_process_group(self.0, signal) {
            Err(Errno::SRCH) => Ok(()),
            other => other,
        }
    }

    /// Asks it to end. A stopped process must run to hear it.
    pub(super) fn terminate(self) -> Result<(), Errno> {
        self.send(Signal::TERM)?;
        self.send(Signal::CONT)
    }

    /// Ends it.
    pub(super) fn kill(self) -> Result<(), Errno> {
        self.send(Signal::KILL)
    }

    /// Whether no process is left, not even a zombie.
    pub(super) fn is_empty(self) -> bool {
        test_kill_process_group(self.0) == Err(Errno::SRCH)
    }

    /// Those of the group who still run. Zombies do not: there is nothing left in them that could act.
    pub(super) fn running(self) -> Vec<u32> {
        let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
        entries
            .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok())
            .filter(|pid| {
                ProcessStat::of(*pid).is_some_and(|stat| stat.group == self.number() && stat.runs())
            })
            .collect()
    }
}

/// What `/proc/PID/stat` says of a process, as far as we care.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ProcessStat {
    state: char,
    pub(super) parent: i32,
    group: i32,
    threads: u64,
}

impl ProcessStat {
    /// What it says now; `None`: there is no such process.
    pub(super) fn of(pid: impl Display) -> Option<Self> {
        let stat = fs::read(format!("/proc/{pid}/stat")).ok()?;
        ProcessStat::parse(&String::from_utf8_lossy(&stat))
    }

    fn parse(line: &str) -> Option<Self> {
        // The name in brackets can hold anything, brackets and spaces too: the last bracket ends it.
        let (_, rest) = line.rsplit_once(')')?;
        let mut fields = rest.split_ascii_whitespace();
        let state = fields.next()?.chars().next()?;
        let parent = fields.next()?.parse().ok()?;
        let group = fields.next()?.parse().ok()?;
        let threads = fields.nth(14)?.parse().ok()?;
        Some(ProcessStat { state, parent, group, threads })
    }

    /// A process whose first thread has ended looks like a zombie while its other threads go on.
    fn runs(&self) -> bool {
        !matches!(self.state, 'Z' | 'X') || self.threads > 1
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::CommandExt;
    use std::process::{Command, Stdio};

    use rustix::process::{WaitId, WaitIdOptions, waitid};

    use super::*;

    #[test]
    fn the_name_of_a_process_cannot_confuse_the_reading() {
        let rest = "S 1 4242 9 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 3 0 55 66";
        let expected = ProcessStat { state: 'S', parent: 1, group: 4242, threads: 3 };
        assert_eq!(ProcessStat::parse(&format!("77 (a) Z 1 (1 2) {rest}")), Some(expected));
        assert_eq!(ProcessStat::parse("77 (cut off"), None);
        assert_eq!(ProcessStat::parse("77 (a) S 1"), None);
    }

    #[test]
    fn a_zombie_runs_only_if_it_has_other_threads() {
        assert!(!ProcessStat { state: 'Z', parent: 1, group: 1, threads: 1 }.runs());
        assert!(ProcessStat { state: 'Z', parent: 1, group: 1, threads: 2 }.runs());
        assert!(
            ProcessStat { state: 'T', parent: 1, group: 1, threads: 1 }.runs(),
            "what is stopped can go on"
        );
    }

    #[test]
    fn nobody_is_ever_everybody() {
        assert_eq!(ProcessGroup::from_number(0), None);
        assert_eq!(ProcessGroup::from_number(1), None);
        assert_eq!(ProcessGroup::from_number(-5), None);
    }

    #[test]
    fn a_group_runs_until_its_last_member_is_gone_and_is_empty_when_its_leader_is_reaped() {
        // The leader leaves a child behind and ends; the child ends when its stdin does.
        let mut leader = Command::new("sh")
            .args(["-c", "exec 3<&0; cat <&3 & exit 0"])
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let group = ProcessGroup::led_by(Pid::from_child(&leader));
        waitid(WaitId::Pid(group.leader()), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT).unwrap();
        let running = group.running();
        assert_eq!(running.len(), 1, "the leader is a zombie, its child runs");
        assert_ne!(running[0].to_string(), group.number().to_string());
        group.kill().unwrap();
        while !group.running().is_empty() {
            std::thread::yield_now();
        }
        assert!(!group.is_empty(), "the zombie holds the number");
        leader.wait().unwrap();
        while !group.is_empty() {
            std::thread::yield_now();
        }
        assert_eq!(group.terminate(), Ok(()), "ending what is gone is no error");
    }
}
