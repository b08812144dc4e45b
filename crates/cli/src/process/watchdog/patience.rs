//! When the watchdog acts: pure, so that every order of events can be tried.

use super::words::Moments;

/// How far it has gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Stage {
    Waiting,
    Terminated,
    Killed,
}

/// What to do to the group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Act {
    Terminate,
    Kill,
}

/// The watchdog's patience with one command.
#[derive(Clone, Copy, Debug)]
pub(super) struct Patience {
    grace_ms: u64,
    moments: Moments,
    stage: Stage,
}

impl Patience {
    pub(super) fn new(grace_ms: u64, moments: Moments) -> Self {
        Patience { grace_ms, moments, stage: Stage::Waiting }
    }

    /// News from `run`. A command that was asked to end is not asked back: from then on its end can only come sooner.
    pub(super) fn hear(&mut self, moments: Moments) {
        if self.stage == Stage::Waiting {
            self.moments = moments;
        } else {
            self.moments.kill_at_ms = self.moments.kill_at_ms.min(moments.kill_at_ms);
        }
    }

    /// `run` is gone: the command must end now, after its grace, but never later than planned.
    pub(super) fn run_is_gone(&mut self, now_ms: u64) {
        let kill_at_ms = self.moments.kill_at_ms.min(now_ms.saturating_add(self.grace_ms));
        self.moments = Moments { term_at_ms: now_ms.min(self.moments.term_at_ms), kill_at_ms };
    }

    /// When there is something to do next, if ever.
    pub(super) fn due_ms(&self) -> Option<u64> {
        match self.stage {
            Stage::Waiting => Some(self.moments.term_at_ms.min(self.moments.kill_at_ms)),
            Stage::Terminated => Some(self.moments.kill_at_ms),
            Stage::Killed => None,
        }
    }

    /// What to do now, once. Too late for SIGTERM, it sends none.
    pub(super) fn act(&mut self, now_ms: u64) -> Option<Act> {
        if self.stage < Stage::Killed && now_ms >= self.moments.kill_at_ms {
            self.stage = Stage::Killed;
            return Some(Act::Kill);
        }
        if self.stage < Stage::Terminated && now_ms >= self.moments.term_at_ms {
            self.stage = Stage::Terminated;
            return Some(Act::Terminate);
        }
        None
    }

    pub(super) fn has_killed(&self) -> bool {
        self.stage == Stage::Killed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn patience() -> Patience {
        Patience::new(300, Moments { term_at_ms: 1_000, kill_at_ms: 1_300 })
    }

    #[test]
    fn without_news_it_asks_and_then_ends() {
        let mut patience = patience();
        assert_eq!((patience.due_ms(), patience.act(999)), (Some(1_000), None));
        assert_eq!(patience.act(1_000), Some(Act::Terminate));
        assert_eq!((patience.due_ms(), patience.act(1_299)), (Some(1_300), None));
        assert_eq!(patience.act(1_300), Some(Act::Kill));
        assert_eq!((patience.due_ms(), patience.act(9_999)), (None, None), "once is enough");
    }

    #[test]
    fn news_in_time_move_the_end() {
        let mut patience = patience();
        patience.hear(Moments { term_at_ms: 5_000, kill_at_ms: 5_300 });
        assert_eq!((patience.due_ms(), patience.act(4_999)), (Some(5_000), None));
    }

    #[test]
    fn news_after_the_request_can_only_bring_the_end_nearer() {
        let mut patience = patience();
        assert_eq!(patience.act(1_100), Some(Act::Terminate));
        patience.hear(Moments { term_at_ms: 5_000, kill_at_ms: 5_300 });
        assert_eq!(patience.due_ms(), Some(1_300));
        patience.hear(Moments { term_at_ms: 1_150, kill_at_ms: 1_200 });
        assert_eq!(patience.act(1_200), Some(Act::Kill));
    }

    #[test]
    fn when_run_is_gone_the_command_gets_its_grace_but_no_more_than_the_lease_has() {
        let mut early = patience();
        early.run_is_gone(500);
        assert_eq!(early.act(500), Some(Act::Terminate));
        assert_eq!(early.due_ms(), Some(800));

        let mut late = patience();
        late.run_is_gone(1_250);
        assert_eq!(late.act(1_250), Some(Act::Terminate));
        assert_eq!(late.due_ms(), Some(1_300));

        let mut asked = patience();
        assert_eq!(asked.act(1_000), Some(Act::Terminate));
        asked.run_is_gone(1_100);
        assert_eq!((asked.act(1_100), asked.due_ms()), (None, Some(1_300)), "not asked twice");
    }

    #[test]
    fn too_late_for_asking_means_ending() {
        let mut patience = patience();
        assert_eq!(patience.act(7_000), Some(Act::Kill));
        assert!(patience.has_killed());
    }
}
