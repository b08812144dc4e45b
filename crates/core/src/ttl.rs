//! How a ttl is spent: when to renew, when to stop, when to end what runs under it. All whole milliseconds; the time and
//! randomness are arguments. Every holder, in the library and in the command line, gets its deadlines from here.

use crate::error::BadInput;
use crate::limits::{MAX_AGE_MS_MAX, TTL_MS_MAX};

/// Checks a ttl against a store's least and the greatest of all.
pub fn check(ttl_ms: u64, ttl_ms_min: u64) -> Result<(), BadInput> {
    if ttl_ms < ttl_ms_min {
        return Err(BadInput::new("ttl", format!("is {ttl_ms} ms; this store's least is {ttl_ms_min} ms")));
    }
    if ttl_ms > TTL_MS_MAX {
        let limit = format!("the limit is {TTL_MS_MAX} ms (a day): renew a shorter lease instead");
        return Err(BadInput::new("ttl", format!("is {ttl_ms} ms; {limit}")));
    }
    Ok(())
}

/// Checks a `max_age`.
pub fn check_max_age(max_age_ms: u64) -> Result<(), BadInput> {
    if max_age_ms == 0 || max_age_ms > MAX_AGE_MS_MAX {
        let problem = format!("is {max_age_ms} ms; it takes 1 to {MAX_AGE_MS_MAX} ms");
        return Err(BadInput::new("max_age", problem));
    }
    Ok(())
}

/// When to renew after the last renewal: a third of what remains, ± 15 %, so that holders who started together
/// do not renew together. `random` is any 64 random bits.
pub fn renew_after_ms(remaining_ms: u64, random: u64) -> u64 {
    let third = remaining_ms / 3;
    let spread = third * 15 / 100;
    // 0 ..= 2·spread, less the spread.
    (third + random % (2 * spread + 1)).saturating_sub(spread).max(1)
}

/// How far into a term of `remaining_ms` its holder must take itself for lost: nine tenths.
pub fn lost_after_ms(remaining_ms: u64) -> u64 {
    remaining_ms - remaining_ms / 10
}

/// One term that a store has granted, on its holder's own clock. It counts from the moment before the answered request
/// left, plus the time that the request stood in line. The store measured that time by its own clock, which may have
/// been set meanwhile: a term never begins later than its answer came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GrantedTerm {
    from_ms: u64,
    remaining_ms: u64,
}

impl GrantedTerm {
    /// The term of an answer. `sent_ms` and `answered_ms` are on the holder's clock, `waited_ms` and `remaining_ms` are
    /// what the store said.
    pub fn new(sent_ms: u64, waited_ms: u64, answered_ms: u64, remaining_ms: u64) -> Self {
        GrantedTerm { from_ms: sent_ms.saturating_add(waited_ms).min(answered_ms), remaining_ms }
    }

    /// When it began.
    pub fn from_ms(self) -> u64 {
        self.from_ms
    }

    /// How long it lasts.
    pub fn remaining_ms(self) -> u64 {
        self.remaining_ms
    }

    /// When it ends.
    pub fn deadline_ms(self) -> u64 {
        self.from_ms.saturating_add(self.remaining_ms)
    }

    /// When its holder takes it for lost.
    pub fn lost_at_ms(self) -> u64 {
        self.from_ms.saturating_add(lost_after_ms(self.remaining_ms))
    }

    /// When to renew it. `random` is any 64 random bits.
    pub fn renew_at_ms(self, random: u64) -> u64 {
        self.from_ms.saturating_add(renew_after_ms(self.remaining_ms, random))
    }
}

/// How long a holder may rely on its lease or claim, over all renewals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deadlines {
    deadline_ms: u64,
    lost_at_ms: u64,
}

impl Deadlines {
    /// Those of the grant.
    pub fn new(term: GrantedTerm) -> Self {
        Deadlines { deadline_ms: term.deadline_ms(), lost_at_ms: term.lost_at_ms() }
    }

    /// A renewal of a lease of `ttl_ms` came through. What the store has acknowledged stays acknowledged: a shorter term
    /// takes nothing away.
    pub fn renew(&mut self, term: GrantedTerm, ttl_ms: u64) {
        // Where an end is set, every renewal brings a shorter term, and a tenth of it ever less time to stop in. The
        // first tenth stays.
        let tenth_ms = ttl_ms - lost_after_ms(ttl_ms);
        let lost_at_ms = term.lost_at_ms().min(term.deadline_ms().saturating_sub(tenth_ms));
        self.deadline_ms = self.deadline_ms.max(term.deadline_ms());
        self.lost_at_ms = self.lost_at_ms.max(lost_at_ms);
    }

    /// When it ends at the latest unless it is renewed.
    pub fn deadline_ms(self) -> u64 {
        self.deadline_ms
    }

    /// When its holder takes it for lost unless it is renewed.
    pub fn lost_at_ms(self) -> u64 {
        self.lost_at_ms
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_term_never_begins_after_its_answer() {
        let ordinary = GrantedTerm::new(1_000, 500, 1_600, 30_000);
        assert_eq!(ordinary.from_ms(), 1_500);
        // R20, R43: the store's clock was set ten minutes forward while the request stood in line.
        let stepped = GrantedTerm::new(1_000, 600_500, 1_600, 30_000);
        assert_eq!((stepped.from_ms(), stepped.deadline_ms()), (1_600, 31_600));
    }

    #[test]
    fn a_renewal_takes_away_nothing_that_was_acknowledged_and_keeps_the_first_tenth() {
        let mut deadlines = Deadlines::new(GrantedTerm::new(0, 0, 0, 30_000));
        assert_eq!((deadlines.deadline_ms(), deadlines.lost_at_ms()), (30_000, 27_000));
        deadlines.renew(GrantedTerm::new(10_000, 0, 10_000, 5_000), 30_000);
        assert_eq!((deadlines.deadline_ms(), deadlines.lost_at_ms()), (30_000, 27_000));
        deadlines.renew(GrantedTerm::new(26_000, 0, 26_000, 8_000), 30_000);
        assert_eq!((deadlines.deadline_ms(), deadlines.lost_at_ms()), (34_000, 31_000), "3 s, not 0.8 s");
    }

    #[test]
    fn a_renewal_comes_at_a_third_give_or_take_15_percent() {
        for random in [0, 1, 7, 1499, 2999, 3000, u64::MAX] {
            let after = renew_after_ms(30_000, random);
            assert!((8_500..=11_500).contains(&after), "{after}");
        }
        assert_eq!(renew_after_ms(30_000, 0), 8_500);
        assert_eq!(renew_after_ms(30_000, 3_000), 11_500);
        assert_eq!(renew_after_ms(0, 9), 1, "never a busy loop");
    }

    #[test]
    fn a_holder_stops_itself_before_the_end() {
        assert_eq!(lost_after_ms(30_000), 27_000);
        assert_eq!(lost_after_ms(5), 5);
    }

    #[test]
    fn a_max_age_is_taken_up_to_its_limit_and_not_beyond() {
        assert!(check_max_age(1).is_ok() && check_max_age(MAX_AGE_MS_MAX).is_ok());
        for bad in [0, MAX_AGE_MS_MAX + 1, u64::MAX] {
            let said = check_max_age(bad).unwrap_err().to_string();
            assert!(said.contains(&MAX_AGE_MS_MAX.to_string()), "{said}");
        }
    }

    #[test]
    fn a_bad_ttl_is_refused_with_the_limit() {
        assert_eq!(check(0, 100).unwrap_err().to_string(), "ttl is 0 ms; this store's least is 100 ms");
        assert!(check(TTL_MS_MAX + 1, 100).unwrap_err().to_string().contains("86400000"));
        assert!(check(100, 100).is_ok() && check(TTL_MS_MAX, 100).is_ok());
        assert!(check_max_age(0).is_err() && check_max_age(1).is_ok());
    }
}
