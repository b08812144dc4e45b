//! How a ttl is spent: when to renew, when to stop, when to end what runs under it. All relative, all whole
//! milliseconds; randomness is an argument.

use crate::error::BadInput;
use crate::limits::{MAX_AGE_MS_MAX, TTL_MS_MAX};

/// Checks a ttl against a store's least and the greatest of all.
pub fn check(ttl_ms: u64, ttl_ms_min: u64) -> Result<(), BadInput> {
    if ttl_ms < ttl_ms_min {
        return Err(BadInput::new("ttl", format!("is {ttl_ms} ms; this store's least is {ttl_ms_min} ms")));
    }
    if ttl_ms > TTL_MS_MAX {
        return Err(BadInput::new(
            "ttl",
            format!("is {ttl_ms} ms; the limit is {TTL_MS_MAX} ms (a day): renew a shorter lease instead"),
        ));
    }
    Ok(())
}

/// Checks a `max_age`.
pub fn check_max_age(max_age_ms: u64) -> Result<(), BadInput> {
    if max_age_ms == 0 || max_age_ms > MAX_AGE_MS_MAX {
        return Err(BadInput::new(
            "max_age",
            format!("is {max_age_ms} ms; it takes 1 to {MAX_AGE_MS_MAX} ms"),
        ));
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

#[cfg(test)]
mod tests {
    use super::*;

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
