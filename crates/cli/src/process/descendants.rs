//! Every process below this one, also those whose parent has ended.

use std::fs;
use std::io;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitOptions, getpid, kill_process, set_child_subreaper, wait};

use super::group::ProcessStat;

/// How long the kernel gets to end what was killed, before it is looked at again.
const PAUSE: Duration = Duration::from_millis(5);

/// From now on a process below this one whose parent ends becomes a child of this one.
pub(crate) fn adopt_orphans() -> io::Result<()> {
    set_child_subreaper(Some(getpid())).map_err(io::Error::from)
}

/// A child that has ended, if there is one.
pub(crate) fn ended_child() -> Option<Pid> {
    loop {
        match wait(WaitOptions::NOHANG) {
            Ok(ended) => return ended.map(|(pid, _)| pid),
            Err(Errno::INTR) => {}
            Err(_) => return None,
        }
    }
}

/// Kills every child, and those that this process inherits from them, until there is none. False: some were still there when the time
/// was over.
pub(crate) fn end_descendants(within: Duration) -> bool {
    let began = Instant::now();
    loop {
        while ended_child().is_some() {}
        let children = children();
        if children.is_empty() {
            return true;
        }
        if began.elapsed() >= within {
            return false;
        }
        for child in children {
            let _ = kill_process(child, Signal::KILL);
        }
        std::thread::sleep(PAUSE);
    }
}

/// Those that have ended and were not waited for are among them.
fn children() -> Vec<Pid> {
    let ours = getpid().as_raw_nonzero().get();
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    entries
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<i32>().ok())
        .filter(|pid| ProcessStat::of(*pid).is_some_and(|stat| stat.parent == ours))
        .filter_map(Pid::from_raw)
        .collect()
}
