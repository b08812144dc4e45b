//! Every bound of the rules, in one place. Errors name the bound that was crossed.

/// Longest key, in bytes of UTF-8.
pub const KEY_BYTES_MAX: usize = 512;
/// Longest owner name, in bytes of UTF-8.
pub const OWNER_BYTES_MAX: usize = 256;
/// Longest task name, in bytes of UTF-8.
pub const TASK_BYTES_MAX: usize = 256;
/// Longest namespace name, in bytes.
pub const NAMESPACE_BYTES_MAX: usize = 64;
/// Longest reason of a revocation, in bytes of UTF-8.
pub const REASON_BYTES_MAX: usize = 512;
/// Longest cron line, in bytes.
pub const CRON_BYTES_MAX: usize = 256;
/// Longest name of a time zone, in bytes.
pub const ZONE_BYTES_MAX: usize = 64;
/// Longest retry policy as people write it, in bytes.
pub const RETRY_BYTES_MAX: usize = 64;

/// Shortest ttl that any store accepts. A store may ask for more (see its capabilities).
pub const TTL_MS_MIN: u64 = 100;
/// Longest ttl: a day. Long work is many renewals of a short lease, never one long ttl.
pub const TTL_MS_MAX: u64 = 24 * 60 * 60 * 1000;
/// Longest `max_age`: a year.
pub const MAX_AGE_MS_MAX: u64 = 366 * 24 * 60 * 60 * 1000;
/// Longest time that one request may wait in line. The library waits longer by asking again.
pub const WAIT_MS_MAX: u64 = 60 * 60 * 1000;
/// Longest notice that a preempting contender may give.
pub const YIELD_MS_MAX: u64 = 24 * 60 * 60 * 1000;

/// The greatest age of a hold id that an acquire may carry. Twice the longest wait, so that a request that
/// waited to the end can still be repeated.
pub const HOLD_AGE_MS_MAX: u64 = 2 * WAIT_MS_MAX;
/// How long a key must have been free before its record may be collected: longer than the greatest age
/// accepted, so that no hold id that ended on it can come back afterwards.
pub const COLLECT_AFTER_FREE_MS: u64 = HOLD_AGE_MS_MAX + 60 * 1000;

/// The largest token that can ever exist: 2^53 − 1, so that JSON numbers carry it.
pub const TOKEN_MAX: u64 = (1 << 53) - 1;
/// By how much `store advance` lifts every counter unless told otherwise.
pub const ADVANCE_BY: u64 = 1 << 32;

/// How many endings a record remembers.
pub const HISTORY_MAX: usize = 8;
/// How many events a store keeps.
pub const EVENTS_KEPT: usize = 16_384;
/// How far back endings of leases are counted.
pub const STATS_MS_MAX: u64 = 24 * 60 * 60 * 1000;

/// The shortest step in which they are counted.
pub const STATS_STEP_MS_MIN: u64 = 60 * 1000;

/// Of how many keys of a namespace contention is remembered: those that were contended for last.
pub const CONTENDED_KEYS_MAX: usize = 1_000;
/// Of how many keys of all namespaces together one process remembers it.
pub const CONTENTION_TOTAL_MAX: usize = 16_384;
/// For how long it is remembered after a key was last contended for.
pub const CONTENTION_KEPT_MS: u64 = 60 * 60 * 1000;

/// How many may wait in line for one key.
pub const WAITERS_PER_KEY_MAX: usize = 16_384;
/// How many keys one acquire may name.
pub const KEYS_PER_ACQUIRE_MAX: usize = 256;
/// How many renewals or releases one call may carry.
pub const BATCH_MAX: usize = 10_000;
/// How many rows one page of a list or of events may have.
pub const PAGE_MAX: usize = 1_000;

/// Longest queue name, in bytes.
pub const QUEUE_BYTES_MAX: usize = 128;
/// Longest kind of a job, in bytes of UTF-8.
pub const KIND_BYTES_MAX: usize = 128;
/// Longest name of an effect, in bytes of UTF-8.
pub const EFFECT_BYTES_MAX: usize = 128;
/// Longest unique key, in bytes of UTF-8.
pub const UNIQUE_KEY_BYTES_MAX: usize = 512;
/// Longest name of a schedule, in bytes.
pub const SCHEDULE_BYTES_MAX: usize = 128;
/// Largest payload, and largest result: 1 MiB of JSON.
pub const PAYLOAD_BYTES_MAX: usize = 1 << 20;
/// How deeply JSON that is stored may be nested. Many parsers read no more, so one value could make a whole answer
/// unreadable.
pub const JSON_DEPTH_MAX: usize = 127;
/// Largest checkpoint.
pub const CHECKPOINT_BYTES_MAX: usize = 256 << 10;
/// Largest progress note, as JSON.
pub const PROGRESS_BYTES_MAX: usize = 4 << 10;
/// Largest stored value of an effect, as JSON.
pub const EFFECT_VALUE_BYTES_MAX: usize = 64 << 10;
/// How much of an error's text is kept. More is cut off, never refused: an error must always get through.
pub const ERROR_BYTES_KEPT: usize = 4 << 10;
/// Longest trace context.
pub const TRACE_BYTES_MAX: usize = 256;
/// How many labels a job may have.
pub const LABELS_MAX: usize = 16;
/// Longest name of a label, in bytes of UTF-8.
pub const LABEL_NAME_BYTES_MAX: usize = 64;
/// Longest value of a label, in bytes of UTF-8.
pub const LABEL_VALUE_BYTES_MAX: usize = 256;
/// How many effects one job may record.
pub const EFFECTS_PER_JOB_MAX: usize = 1_000;
/// How many bytes the values and the undo payloads of one job's effects may have together: every attempt is handed all of
/// them.
pub const EFFECTS_BYTES_MAX: usize = 16 << 20;
/// How many ended attempts a job remembers.
pub const TRAIL_MAX: usize = 16;

/// The most that `max_failures` and `max_crashes` may be.
pub const TRIES_MAX: u16 = 10_000;
/// Longest time limit of one attempt: 30 days.
pub const ATTEMPT_MS_MAX: u64 = 30 * 24 * 60 * 60 * 1000;
/// Longest delay of a snooze or a retry: 365 days.
pub const DELAY_MS_MAX: u64 = 365 * 24 * 60 * 60 * 1000;
/// The last moment that a job can be scheduled for: the end of the year 9999.
pub const RUN_AT_WALL_MS_MAX: u64 = 253_402_300_799_999;
/// Longest dedup window of a unique key: a year.
pub const UNIQUE_WINDOW_MS_MAX: u64 = 366 * 24 * 60 * 60 * 1000;
/// Of many jobs whose holders died at once, each comes back within this time, or within its ttl if that is shorter: spread, so that a mass
/// expiry does not become a herd.
pub const CRASH_SPREAD_MS: u64 = 5_000;
/// So many jobs whose holders died at once come back at once.
pub const CRASHES_AT_ONCE_MAX: usize = 16;
/// A claim that ran out is noticed within this time while the store runs. What is noticed later ran out in an outage.
pub const CRASH_NOTICED_MS: u64 = 1_250;

/// How many jobs one call may enqueue, claim, report on or act upon.
pub const JOBS_PER_CALL_MAX: usize = 10_000;
/// How many bytes of payloads, results, checkpoints and values one call may carry.
pub const CALL_BYTES_MAX: usize = 16 << 20;
/// How many queues one claim may name.
pub const QUEUES_PER_CLAIM_MAX: usize = 64;
/// How many jobs may wait in all queues of a store together, before more are refused.
pub const JOBS_MAX: u64 = 100_000_000;
/// How many queues one namespace may have unless set otherwise.
pub const QUEUES_PER_NAMESPACE: u64 = 10_000;
/// How many lease keys one namespace may have unless set otherwise.
pub const KEYS_PER_NAMESPACE: u64 = 10_000_000;
/// How many jobs that have not come to their end one namespace may have unless set otherwise.
pub const JOBS_PER_NAMESPACE: u64 = 50_000_000;
/// How many bytes of payload those jobs may have unless set otherwise: 64 GiB.
pub const BYTES_PER_NAMESPACE: u64 = 64 << 30;
/// How many schedules one namespace may have unless set otherwise.
pub const SCHEDULES_PER_NAMESPACE: u64 = 10_000;
/// How long finished jobs are kept unless told otherwise: 7 days.
pub const FINISHED_KEPT_MS: u64 = 7 * 24 * 60 * 60 * 1000;
/// The least that finished jobs can be kept: an hour. A caller that missed an answer asks again, and gets the same.
pub const FINISHED_KEPT_MS_MIN: u64 = 60 * 60 * 1000;
/// The longest that finished jobs can be kept: ten years.
pub const FINISHED_KEPT_MS_MAX: u64 = 3_650 * 24 * 60 * 60 * 1000;

/// Longest idempotency key, in bytes of UTF-8.
pub const IDEMPOTENCY_KEY_BYTES_MAX: usize = 512;
/// The most that one append to a fenced file may add.
pub const APPEND_BYTES_MAX: usize = 16 * 1024 * 1024;
/// How many of its latest appends a fenced file can tell from new ones, unless told otherwise.
pub const APPENDS_REMEMBERED: usize = 1_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    /// Those that are worked out, as the numbers that people see.
    #[test]
    fn what_is_worked_out_comes_to_what_is_promised() {
        const DAY_MS: u64 = 86_400_000;
        for (name, value, promised) in [
            ("TTL_MS_MAX", TTL_MS_MAX, DAY_MS),
            ("MAX_AGE_MS_MAX", MAX_AGE_MS_MAX, 31_622_400_000),
            ("WAIT_MS_MAX", WAIT_MS_MAX, 3_600_000),
            ("YIELD_MS_MAX", YIELD_MS_MAX, DAY_MS),
            ("HOLD_AGE_MS_MAX", HOLD_AGE_MS_MAX, 7_200_000),
            ("COLLECT_AFTER_FREE_MS", COLLECT_AFTER_FREE_MS, 7_260_000),
            ("TOKEN_MAX", TOKEN_MAX, 9_007_199_254_740_991),
            ("ADVANCE_BY", ADVANCE_BY, 4_294_967_296),
            ("ATTEMPT_MS_MAX", ATTEMPT_MS_MAX, 2_592_000_000),
            ("DELAY_MS_MAX", DELAY_MS_MAX, 31_536_000_000),
            ("UNIQUE_WINDOW_MS_MAX", UNIQUE_WINDOW_MS_MAX, 31_622_400_000),
            ("FINISHED_KEPT_MS", FINISHED_KEPT_MS, 604_800_000),
            ("FINISHED_KEPT_MS_MIN", FINISHED_KEPT_MS_MIN, 3_600_000),
            ("FINISHED_KEPT_MS_MAX", FINISHED_KEPT_MS_MAX, 315_360_000_000),
        ] {
            assert_eq!(value, promised, "{name}");
        }
        for (name, value, promised) in [
            ("PAYLOAD_BYTES_MAX", PAYLOAD_BYTES_MAX, 1_048_576),
            ("CHECKPOINT_BYTES_MAX", CHECKPOINT_BYTES_MAX, 262_144),
            ("PROGRESS_BYTES_MAX", PROGRESS_BYTES_MAX, 4_096),
            ("EFFECT_VALUE_BYTES_MAX", EFFECT_VALUE_BYTES_MAX, 65_536),
            ("ERROR_BYTES_KEPT", ERROR_BYTES_KEPT, 4_096),
            ("CALL_BYTES_MAX", CALL_BYTES_MAX, 16_777_216),
            ("APPEND_BYTES_MAX", APPEND_BYTES_MAX, 16_777_216),
        ] {
            assert_eq!(value, promised, "{name}");
        }
    }
}
