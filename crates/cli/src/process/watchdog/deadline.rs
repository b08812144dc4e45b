//! When the watchdog acts: pure, so that every order of events can be tried.

use super::messages::Deadlines;

/// How far it has gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum KillPhase {
    Waiting,
    Terminated,
    Killed,
}

/// What to do to the group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum GroupAction {
    Terminate,
    Kill,
}

/// The watchdog's patience with one command.
#[derive(Clone, Copy, Debug)]
pub(super) struct WatchdogDeadline {
    grace_ms: u64,
    moments: Deadlines,
    stage: KillPhase,
}

impl WatchdogDeadline {
    pub(super) fn new(grace_ms: u64, moments: Deadlines) -> Self {
        WatchdogDeadline { grace_ms, moments, stage: KillPhase::Waiting }
    }

    /// News from `run`. A command that was asked to end is not asked back: from then on its end can only come sooner.
    pub(super) fn hear(&mut self, moments: Deadlines) {
        if self.stage == KillPhase::Waiting {
            self.moments = moments;
        } else {
            self.moments.kill_at_ms = self.moments.kill_at_ms.min(moments.kill_at_ms);
        }
    }

    /// `run` is gone: the command must end now, after its grace, but never later than planned.
    pub(super) fn run_is_gone(&mut self, now_ms: u64) {
        let kill_at_ms = self.moments.kill_at_ms.min(now_ms.saturating_add(self.grace_ms));
        self.moments = Deadlines { term_at_ms: now_ms.min(self.moments.term_at_ms), kill_at_ms };
    }

    /// When there is something to do next, if ever.
    pub(super) fn due_ms(&self) -> Option<u64> {
        match self.stage {
            KillPhase::Waiting => Some(self.moments.term_at_ms.min(self.moments.kill_at_ms)),
            KillPhase::Terminated => Some(self.moments.kill_at_ms),
            KillPhase::Killed => None,
        }
    }

    /// What to do now, once. Too late for SIGTERM, it sends none.
    pub(super) fn act(&mut self, now_ms: u64) -> Option<GroupAction> {
        if self.stage < KillPhase::Killed && now_ms >= self.moments.kill_at_ms {
            self.stage = KillPhase::Killed;
            return Some(GroupAction::Kill);
        }
        if self.stage < KillPhase::Terminated && now_ms >= self.moments.term_at_ms {
            self.stage = KillPhase::Terminated;
            return Some(GroupAction::Terminate);
        }
        None
    }

    pub(super) fn has_killed(&self) -> bool {
        self.stage == KillPhase::Killed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn deadline() -> WatchdogDeadline {
        WatchdogDeadline::new(300, Deadlines { term_at_ms: 1_000, kill_at_ms: 1_300 })
    }

    #[test]
    fn without_news_it_asks_and_then_ends() {
        let mut deadline = deadline();
        assert_eq!((deadline.due_ms(), deadline.act(999)), (Some(1_000), None));
        assert_eq!(deadline.act(1_000), Some(GroupAction::Terminate));
        assert_eq!((deadline.due_ms(), deadline.act(1_299)), (Some(1_300), None));
        assert_eq!(deadline.act(1_300), Some(GroupAction::Kill));
        assert_eq!((deadline.due_ms(), deadline.act(9_999)), (None, None), "once is enough");
    }

    #[test]
    fn news_in_time_move_the_end() {
        let mut deadline = deadline();
        deadline.hear(Deadlines { term_at_ms: 5_000, kill_at_ms: 5_300 });
        assert_eq!((deadline.due_ms(), deadline.act(4_999)), (Some(5_000), None));
    }

    #[test]
    fn news_after_the_request_can_only_bring_the_end_nearer() {
        let mut deadline = deadline();
        assert_eq!(deadline.act(1_100), Some(GroupAction::Terminate));
        deadline.hear(Deadlines { term_at_ms: 5_000, kill_at_ms: 5_300 });
        assert_eq!(deadline.due_ms(), Some(1_300));
        deadline.hear(Deadlines { term_at_ms: 1_150, kill_at_ms: 1_200 });
        assert_eq!(deadline.act(1_200), Some(GroupAction::Kill));
    }

    #[test]
    fn when_run_is_gone_the_command_gets_its_grace_but_no_more_than_the_lease_has() {
        let mut early = deadline();
        early.run_is_gone(500);
        assert_eq!(early.act(500), Some(GroupAction::Terminate));
        assert_eq!(early.due_ms(), Some(800));

        let mut late = deadline();
        late.run_is_gone(1_250);
        assert_eq!(late.act(1_250), Some(GroupAction::Terminate));
        assert_eq!(late.due_ms(), Some(1_300));

        let mut asked = deadline();
        assert_eq!(asked.act(1_000), Some(GroupAction::Terminate));
        asked.run_is_gone(1_100);
        assert_eq!((asked.act(1_100), asked.due_ms()), (None, Some(1_300)), "not asked twice");
    }

    #[test]
    fn too_late_for_asking_means_ending() {
        let mut deadline = deadline();
        assert_eq!(deadline.act(7_000), Some(GroupAction::Kill));
        assert!(deadline.has_killed());
    }
}
