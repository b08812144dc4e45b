//! Every bound of the lease rules, in one place. Errors name the bound that was crossed.

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

/// How many may wait in line for one key.
pub const WAITERS_PER_KEY_MAX: usize = 16_384;
/// How many keys one acquire may name.
pub const KEYS_PER_ACQUIRE_MAX: usize = 256;
/// How many renewals or releases one call may carry.
pub const BATCH_MAX: usize = 10_000;
/// How many rows one page of a list or of events may have.
pub const PAGE_MAX: usize = 1_000;
