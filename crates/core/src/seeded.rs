//! Deliberate mistakes, to see what notices them.
//!
//! `seeded!(Name)` is true when that mistake is on. Without the feature `bugs` it is always false, and nothing of
//! this is in the build. With it, the variable `FENCEHOLD_SEEDED_BUG` names the one mistake that is made.

/// Whether a seeded mistake is on; without a name: whether any is.
#[cfg(feature = "bugs")]
#[doc(hidden)]
#[macro_export]
macro_rules! seeded {
    () => {
        $crate::bugs::any()
    };
    ($bug:ident) => {
        $crate::bugs::is_on($crate::bugs::Bug::$bug)
    };
}

/// Whether a seeded mistake is on: never, in this build.
#[cfg(not(feature = "bugs"))]
#[doc(hidden)]
#[macro_export]
macro_rules! seeded {
    ($($bug:ident)?) => {
        $crate::never()
    };
}

/// False. A function, so that lints do not take the mistakes that are not there for mistakes of reasoning; it leaves nothing
/// in an optimised build.
#[cfg(not(feature = "bugs"))]
#[doc(hidden)]
#[inline]
pub const fn never() -> bool {
    false
}

/// The mistakes.
#[cfg(feature = "bugs")]
#[doc(hidden)]
pub mod bugs {
    use std::sync::OnceLock;

    /// The variable that names the mistake to make.
    pub const VARIABLE: &str = "FENCEHOLD_SEEDED_BUG";

    macro_rules! bugs {
        ($($name:ident $promise:literal $what:literal,)+) => {
            /// A mistake.
            #[derive(Clone, Copy, Debug, PartialEq, Eq)]
            pub enum Bug {
                $(#[doc = $what] $name,)+
            }

            impl Bug {
                /// Every mistake.
                pub const ALL: &[Bug] = &[$(Bug::$name),+];

                /// The promise that it breaks.
                pub fn promise(self) -> &'static str {
                    match self {
                        $(Bug::$name => $promise,)+
                    }
                }

                /// What is done wrong.
                pub fn what(self) -> &'static str {
                    match self {
                        $(Bug::$name => $what,)+
                    }
                }
            }
        };
    }

    bugs! {
        TwoHolders "P1" "a live lease is no obstacle to an acquisition",
        SweepTrustsItsList "P4" "an expiry does not look whether the lease is live",
        EpochUncheckedByCommit "P1" "an owner commits without looking whether it still is the owner",
        EpochUncheckedByAnswer "P1" "an owner answers without looking whether it still is the owner",
        TokenNotBumped "P2" "a key that ran out is granted under its old token",
        FloorIgnored "P2" "a new token is taken from the key's counter alone",
        CollectedWithoutFloor "P2" "a key is collected and the floor stays",
        RenewalRevives "P3" "a lease that has run out can be renewed",
        EndingMisreported "P3" "a released lease is remembered as expired",
        RenewalForHalf "P3" "a renewal sets half the time that it tells",
        RepeatCountsAnew "P4" "the same request again is told a full ttl",
        WheelForgets "P4" "a renewed lease is never looked at again by the sweep",
        RebootTrustsDeadlines "P4" "deadlines of another boot are believed",
        FailedDiskTrustsDeadlines "P4" "after a failed disk no lease is lengthened",
        ReleaseByToken "P5" "a release needs the token only",
        RenewalByToken "P5" "a renewal needs the token only",
        GrantNotDurable "P6" "a grant waits for no sync",
        RenewalNotKept "P6" "a renewal is answered and not kept",
        AnsweredUnkept "P6" "a batch that could not be kept is answered all the same",
        EndedGrantedAgain "P7" "a hold id that has ended is granted again",
        OwnHoldRefused "P7" "the same request again is told that the key is held",
        WaiterGrantedLate "P7" "whoever stands in line is granted, even when its time is up",
        ForceTakesNoToken "P9" "a revocation consumes no token",
        ForceLeavesTheHold "P9" "a revocation is answered and the lease goes on",
        AbandonedGrantKept "P10" "a grant that nobody picks up stays",
        ReleaseKeepsTheHold "P10" "a release is answered and the lease goes on",
        LineForgotten "P10" "a key that comes free is passed on to nobody",
        JobTokenReissued "P2" "which tokens were given to jobs is forgotten with the process",
        ClaimRevives "P3" "a claim that has run out can be renewed",
        ClaimRepeatCountsAnew "P4" "the same claim again is told a full ttl",
        WordByName "P5" "whoever speaks for a job is taken for its holder",
        StaleCompletes "P5" "a late completion is taken although somebody has had the job since",
        CancelledCompletes "P5" "a late completion is taken although the job was called off",
        SyncSkipped "P6" "SQLite is never asked to wait for the disk",
        LogTrustedAtTakeover "P6" "whoever takes a directory over believes that what it reads of the log is on the disk",
        EnqueueNotDurable "P6" "a job that is enqueued waits for no sync",
        CheckpointNotKept "P6" "a checkpoint is answered and not kept",
        DedupInMemory "P7" "a unique key is remembered, and not kept with its job",
        EffectRecordedTwice "P8" "the second record of an effect replaces the first",
        StaleAttemptRecords "P8" "whoever records an effect is not asked for its token",
        RecordedEffectBegins "P8" "an effect that is recorded may be had again",
        UndoneInOrder "P8" "the effect that came first is undone first",
        CancelForgotten "P9" "a running job is called off, and its holder is not told",
        ForcedJobSpeaks "P9" "a job that is called off at once consumes no token, and its holder is heard",
        ClaimNeverRunsOut "P10" "a renewed claim is never looked at again by the sweep",
        AbandonedJobsKept "P10" "jobs that nobody picks up stay with nobody",
        PoisonGoesOn "P10" "a job that kills its holders is given out for ever",
        ReadyWaitsAgain "P10" "a job whose moment has come waits for it again when the wall clock is set back",
        RefusalEndsClaim "P10" "a job whose moment has come waits again when the wall clock is set back, and sends every claim away with nothing",
        ScheduleFollowsJump "P10" "a schedule keeps the next moment that a wrong wall clock gave it",
        WindowByWall "P7" "the window of a unique key is counted by the wall clock",
        DelayByWall "P4" "the delay of a job is counted by the wall clock",
        RebootEndsDelays "P4" "after a reboot every job that waits is due at once",
        RepetitionHandsBack "P7" "a repetition whose answer is not read hands back the claim that it repeats",
        UnsyncedTrusted "P4" "deadlines are believed although the file system lost renewals that were not synced",
        ClaimCountsPayloads "P10" "what one claim answers is bounded by payloads alone, and must fit into one frame",
        DepthUnchecked "P10" "JSON of any depth is stored",
        SecondResultDropped "P7" "a second completion with another result is answered like the first",
        TextTellsRequests "P7" "two requests are told apart by the text of their payload alone",
        IntentStays "P8" "an announced effect that did not happen stays in doubt",
        RestBeforeFirstLook "P10" "each owner rests for a minute before it forgets finished jobs",
        KeysFreedByTheMinute "P10" "so many unique keys are freed each minute, and no more",
    }

    fn on() -> Option<Bug> {
        static ON: OnceLock<Option<Bug>> = OnceLock::new();
        *ON.get_or_init(|| {
            let name = std::env::var(VARIABLE).ok()?;
            Bug::ALL.iter().copied().find(|bug| format!("{bug:?}") == name)
        })
    }

    /// Whether this mistake is on.
    pub fn is_on(bug: Bug) -> bool {
        on() == Some(bug)
    }

    /// Whether any is.
    pub fn any() -> bool {
        on().is_some()
    }
}
