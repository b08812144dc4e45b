//! Which boot of which machine this is, and how store time goes on from one boot to the next.
//!
//! Store time is the boot-time clock plus what it is *ahead* of it. It begins at what the wall clock shows, and is never set
//! again: within a boot the boot-time clock alone moves it. Over a reboot it goes on from the last moment that was noted, by
//! as much as the wall clock says has passed since, and never backwards.

use fencehold_contract::clock;
use fencehold_core::Timestamp;

/// The boot id, and the time namespace, where the offset of its boot-time clock is unknown.
pub(crate) fn identity() -> String {
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let namespace = match clock::namespace_ahead_ms() {
        Some(_) => clock::FIRST_NAMESPACE.into(),
        None => std::fs::read_link("/proc/self/ns/time").unwrap_or_default(),
    };
    format!("{} {}", boot.trim(), namespace.display())
}

/// What is noted of the clock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotedClock {
    /// Which boot, and which time namespace.
    pub identity: String,
    /// How far store time is ahead of the boot-time clock of that boot.
    pub ahead_ms: u64,
    /// The last moment that was noted.
    pub seen: Timestamp,
}

/// How the clock of now follows on what was noted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClockContinuity {
    /// It is the same clock.
    SameBoot,
    /// Another boot; store time goes on.
    Reboot,
    /// Nothing was noted: an earlier version wrote it, or it is new.
    Unknown,
}

impl NotedClock {
    /// As it is written down.
    pub fn text(&self) -> String {
        let NotedClock { identity, ahead_ms, seen } = self;
        format!("{identity}\nahead {ahead_ms} store {} wall {}", seen.store_ms, seen.wall_ms)
    }

    fn parse(text: &str) -> Option<NotedClock> {
        let (identity, numbers) = text.split_once('\n')?;
        let fields: Vec<&str> = numbers.split(' ').collect();
        let ["ahead", ahead_ms, "store", store_ms, "wall", wall_ms] = fields[..] else { return None };
        let seen = Timestamp { store_ms: store_ms.parse().ok()?, wall_ms: wall_ms.parse().ok()? };
        Some(NotedClock { identity: identity.to_owned(), ahead_ms: ahead_ms.parse().ok()?, seen })
    }

    /// What to note now. `now` is on the boot-time clock.
    pub fn followed(text: &str, identity: String, now: Timestamp) -> (NotedClock, ClockContinuity) {
        let (ahead_ms, follows) = match NotedClock::parse(text) {
            Some(noted) if noted.identity == identity => (noted.ahead_ms, ClockContinuity::SameBoot),
            Some(noted) => {
                let passed_ms = now.wall_ms.saturating_sub(noted.seen.wall_ms);
                let store_ms = noted.seen.store_ms.saturating_add(passed_ms);
                (store_ms.saturating_sub(now.store_ms), ClockContinuity::Reboot)
            }
            None => (now.wall_ms.saturating_sub(now.store_ms), ClockContinuity::Unknown),
        };
        let seen = Timestamp { store_ms: now.store_ms.saturating_add(ahead_ms), ..now };
        (NotedClock { identity, ahead_ms, seen }, follows)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(store_ms: u64, wall_ms: u64) -> Timestamp {
        Timestamp { store_ms, wall_ms }
    }

    #[test]
    fn store_time_goes_on_whatever_the_clocks_show() {
        let (first, follows) =
            NotedClock::followed("a boot of before", "one".to_owned(), at(5_000, 1_000_000));
        assert_eq!((first.seen.store_ms, follows), (1_000_000, ClockContinuity::Unknown));
        // The wall clock is set within the boot: nothing comes of it.
        let (same, follows) = NotedClock::followed(&first.text(), "one".to_owned(), at(6_000, 9_000_000));
        assert_eq!((same.seen.store_ms, follows), (1_001_000, ClockContinuity::SameBoot));
        // A reboot: by what the wall clock says, and never back.
        let seen = NotedClock { seen: at(1_001_000, 1_001_000), ..same };
        let (next, follows) = NotedClock::followed(&seen.text(), "two".to_owned(), at(10, 1_061_000));
        assert_eq!((next.seen.store_ms, follows), (1_061_000, ClockContinuity::Reboot));
        let (next, _) = NotedClock::followed(&seen.text(), "two".to_owned(), at(10, 0));
        assert_eq!(next.seen.store_ms, 1_001_000);
        assert_eq!(NotedClock::parse(&next.text()), Some(next));
    }

    #[test]
    fn what_is_no_note_is_none() {
        for text in ["", "a b", "a\nahead 1 store 2", "a\nahead x store 2 wall 3"] {
            assert_eq!(NotedClock::parse(text), None, "{text:?}");
        }
    }
}
