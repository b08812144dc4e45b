//! How long to wait before trying again. Randomness is an argument.
//!
//! [`full_jitter_ms`] is for a client that asks a store again; a [`RetryPolicy`] is what a job carries, and says when
//! its next attempt may start after a failure. How many attempts there are is not its business.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::duration::{parse_digits, parse_ms, show_exact_ms};
use crate::error::BadInput;
use crate::key::check_text;
use crate::limits::RETRY_BYTES_MAX;

/// Full-jitter exponential backoff: anything from nothing to `base · 2^attempt`, never more than `cap`.
/// `random` is any 64 random bits.
pub fn full_jitter_ms(base_ms: u64, cap_ms: u64, attempt: u32, random: u64) -> u64 {
    let ceiling = base_ms
        .saturating_mul(1_u64.checked_shl(attempt).unwrap_or(u64::MAX))
        .min(cap_ms);
    random % ceiling.saturating_add(1).max(1)
}

worded! {
    /// How the delay grows from one failure to the next.
    pub enum Backoff {
        /// Not at all: the base, every time.
        Fixed = "fixed",
        /// By the base: once, twice, three times the base.
        Linear = "linear",
        /// Twofold: the base, 2, 4, 8 times the base.
        Exponential = "exponential",
    }
}

/// When a job that failed is tried again. Written `exponential:1s..1h`, `linear:5s..10m` or `fixed:10s`, each
/// with an optional jitter: `exponential:1s..1h~20%` takes off up to a fifth of every delay.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct RetryPolicy {
    /// How the delay grows.
    pub backoff: Backoff,
    /// The delay after the first failure.
    pub base_delay_ms: u32,
    /// The longest delay. Of a fixed one: the base itself.
    pub max_delay_ms: u32,
    /// How much of each delay chance may take off, so that jobs that failed together do not come back together.
    pub jitter_percent: u8,
}

impl Default for RetryPolicy {
    /// `exponential:1s..1h~20%`: soon enough for a hiccup, patient with an outage.
    fn default() -> Self {
        RetryPolicy {
            backoff: Backoff::Exponential,
            base_delay_ms: 1_000,
            max_delay_ms: 3_600_000,
            jitter_percent: 20,
        }
    }
}

impl RetryPolicy {
    /// The same delay after each failure, without jitter.
    pub fn fixed(delay: Duration) -> Self {
        RetryPolicy::new(Backoff::Fixed, delay, delay)
    }

    /// A policy without jitter: the delay after the first failure, and the longest, in whole milliseconds. Not judged yet: see
    /// [`RetryPolicy::check`].
    pub fn new(backoff: Backoff, base_delay: Duration, max_delay: Duration) -> Self {
        let ms = |delay: Duration| u32::try_from(delay.as_millis()).unwrap_or(u32::MAX);
        RetryPolicy { backoff, base_delay_ms: ms(base_delay), max_delay_ms: ms(max_delay), jitter_percent: 0 }
    }

    /// The same with jitter.
    pub fn jitter_percent(mut self, percent: u8) -> Self {
        self.jitter_percent = percent;
        self
    }

    /// How long after the failure numbered `failures`, counted from 1, the job may start again. `random` is any
    /// 64 random bits.
    #[doc(hidden)]
    pub fn delay_ms(&self, failures: u32, random: u64) -> u64 {
        let failures = failures.max(1);
        let base = u64::from(self.base_delay_ms);
        let grown = match self.backoff {
            Backoff::Fixed => base,
            Backoff::Linear => base * u64::from(failures),
            Backoff::Exponential => base.saturating_mul(1_u64.checked_shl(failures - 1).unwrap_or(u64::MAX)),
        };
        let delay = grown.min(u64::from(self.max_delay_ms));
        let jitter = delay * u64::from(self.jitter_percent.min(100)) / 100;
        delay - random % (jitter + 1)
    }

    /// Whether the policy makes sense; the error says what does not, and what would.
    pub fn check(&self) -> Result<(), BadInput> {
        // Nearly every policy makes sense: nothing is written for those.
        let base = || show_exact_ms(self.base_delay_ms.into());
        let cap = || show_exact_ms(self.max_delay_ms.into());
        let problem = if self.base_delay_ms == 0 {
            "has a base of 0s; the least is 1ms".to_owned()
        } else if self.max_delay_ms < self.base_delay_ms {
            format!(
                "has a cap of {}, below its base of {}: the base comes first, as in 1s..1h",
                cap(),
                base()
            )
        } else if self.backoff == Backoff::Fixed && self.max_delay_ms != self.base_delay_ms {
            format!("is fixed at {} and has a cap of {}: a fixed delay has none", base(), cap())
        } else if self.jitter_percent > 100 {
            format!("has a jitter of {}%; it takes 0% to 100%", self.jitter_percent)
        } else {
            return Ok(());
        };
        Err(BadInput::new("retry", problem))
    }

    /// Reads `exponential:1s..1h`, `linear:5s..10m` or `fixed:10s`, each with an optional `~20%`, and checks it.
    pub fn parse(text: &str) -> Result<Self, BadInput> {
        check_text("retry", text, RETRY_BYTES_MAX)?;
        let bad = |problem: String| BadInput::new("retry", problem);
        let (name, rest) = text.split_once(':').ok_or_else(|| {
            bad(format!("{text:?} has no ':'; write it as exponential:1s..1h, linear:5s..10m or fixed:10s"))
        })?;
        let backoff = Backoff::parse(name)?;
        let (delays, jitter) = match rest.split_once('~') {
            Some((delays, jitter)) => (delays, Some(jitter)),
            None => (rest, None),
        };
        let (base, cap) = match (backoff, delays.split_once("..")) {
            (Backoff::Fixed, None) => (delays, delays),
            (Backoff::Fixed, Some((base, _))) => {
                let problem = format!("{text:?} has a cap, and a fixed delay has none: write fixed:{base}");
                return Err(bad(problem));
            }
            (_, Some(ends)) => ends,
            (_, None) => return Err(bad(format!("{text:?} needs a cap: write it as {name}:{delays}..1h"))),
        };
        let jitter_percent = jitter.map(parse_percent).transpose()?.unwrap_or(0);
        let retry = RetryPolicy {
            backoff,
            base_delay_ms: parse_delay(base)?,
            max_delay_ms: parse_delay(cap)?,
            jitter_percent,
        };
        retry.check()?;
        Ok(retry)
    }
}

impl Backoff {
    fn parse(name: &str) -> Result<Self, BadInput> {
        Self::ALL.into_iter().find(|backoff| backoff.word() == name).ok_or_else(|| {
            BadInput::new("retry", format!("{name:?} is not known; it takes fixed, linear or exponential"))
        })
    }
}

fn parse_delay(text: &str) -> Result<u32, BadInput> {
    let bad = |problem: String| BadInput::new("retry", format!("delay {text:?}: {problem}"));
    let ms = parse_ms(text).map_err(bad)?;
    u32::try_from(ms).map_err(|_| bad(format!("the longest is {}", show_exact_ms(u32::MAX.into()))))
}

fn parse_percent(text: &str) -> Result<u8, BadInput> {
    text.strip_suffix('%').and_then(parse_digits).ok_or_else(|| {
        BadInput::new("retry", format!("jitter {text:?} is not a percentage; write it as ~20%"))
    })
}

impl fmt::Display for RetryPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.backoff, show_exact_ms(self.base_delay_ms.into()))?;
        if self.backoff != Backoff::Fixed {
            write!(f, "..{}", show_exact_ms(self.max_delay_ms.into()))?;
        }
        if self.jitter_percent > 0 {
            write!(f, "~{}%", self.jitter_percent)?;
        }
        Ok(())
    }
}

impl FromStr for RetryPolicy {
    type Err = BadInput;
    fn from_str(text: &str) -> Result<Self, BadInput> {
        Self::parse(text)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn backoff_stays_between_nothing_and_its_ceiling() {
        assert_eq!(full_jitter_ms(10, 1_000, 3, 80), 80);
        assert_eq!(full_jitter_ms(10, 1_000, 3, 81), 0);
        for attempt in [0, 20, 63, 64, 1_000, u32::MAX] {
            for random in [0, 5, 12_345, u64::MAX] {
                assert!(full_jitter_ms(10, 1_000, attempt, random) <= 1_000);
            }
        }
        assert_eq!(full_jitter_ms(u64::MAX, u64::MAX, 9, 7), 7, "nothing overflows");
    }

    fn delays_s(policy: &str) -> Vec<u64> {
        let retry = RetryPolicy::parse(policy).unwrap();
        [1, 2, 3, 4, 5, 1_000, u32::MAX]
            .map(|failures| retry.delay_ms(failures, 0) / 1_000)
            .to_vec()
    }

    #[test]
    fn delays_grow_as_the_policy_says_up_to_its_cap() {
        assert_eq!(delays_s("fixed:10s"), [10, 10, 10, 10, 10, 10, 10]);
        assert_eq!(delays_s("linear:5s..10m"), [5, 10, 15, 20, 25, 600, 600]);
        assert_eq!(delays_s("exponential:1s..1h"), [1, 2, 4, 8, 16, 3_600, 3_600]);
        assert_eq!(RetryPolicy::default().delay_ms(0, 0), 1_000, "no failure yet counts as the first");
    }

    #[test]
    fn a_policy_is_read_as_it_is_shown() {
        for (retry, shown) in [
            (
                RetryPolicy::new(
                    Backoff::Linear,
                    Duration::from_millis(5_000),
                    Duration::from_millis(600_000),
                ),
                "linear:5s..10m",
            ),
            (
                RetryPolicy::new(
                    Backoff::Linear,
                    Duration::from_millis(5_000),
                    Duration::from_millis(600_000),
                )
                .jitter_percent(7),
                "linear:5s..10m~7%",
            ),
            (RetryPolicy::default(), "exponential:1s..1h~20%"),
        ] {
            assert_eq!(retry.to_string(), shown);
            assert_eq!(shown.parse(), Ok(retry));
        }
    }

    #[test]
    fn jitter_takes_off_its_percentage_at_most() {
        let retry = RetryPolicy::parse("fixed:10s~20%").unwrap();
        assert_eq!(retry.delay_ms(1, 0), 10_000);
        assert_eq!(retry.delay_ms(1, 2_000), 8_000, "all of it");
        assert_eq!(retry.delay_ms(1, 2_001), 10_000, "and never more");
        assert_eq!(RetryPolicy::parse("fixed:10s~100%").unwrap().delay_ms(1, 10_000), 0);
    }

    #[test]
    fn a_bad_policy_says_what_is_wrong_with_it() {
        for (text, says) in [
            ("", "retry must not be empty"),
            (
                "soon",
                "retry \"soon\" has no ':'; write it as exponential:1s..1h, linear:5s..10m or fixed:10s",
            ),
            ("cubic:1s..2s", "retry \"cubic\" is not known; it takes fixed, linear or exponential"),
            ("linear:5s", "retry \"linear:5s\" needs a cap: write it as linear:5s..1h"),
            ("fixed:1s..2s", "retry \"fixed:1s..2s\" has a cap, and a fixed delay has none: write fixed:1s"),
            (
                "linear:1h..1s",
                "retry has a cap of 1s, below its base of 1h: the base comes first, as in 1s..1h",
            ),
            ("fixed:0s", "retry has a base of 0s; the least is 1ms"),
            ("fixed:1s~101%", "retry has a jitter of 101%; it takes 0% to 100%"),
            ("fixed:1s~+5%", "retry jitter \"+5%\" is not a percentage; write it as ~20%"),
            ("fixed:1s~5", "retry jitter \"5\" is not a percentage; write it as ~20%"),
            ("fixed:-1s", "retry delay \"-1s\": a duration cannot be negative"),
            ("fixed:90", "retry delay \"90\": a number needs a unit"),
            ("fixed:50d", "retry delay \"50d\": the longest is 49d17h2m47s295ms"),
        ] {
            let error = RetryPolicy::parse(text).unwrap_err().to_string();
            assert!(error.starts_with(says), "{text}: {error}");
        }
        let uneven =
            RetryPolicy::new(Backoff::Fixed, Duration::from_millis(1_000), Duration::from_millis(2_000))
                .check()
                .unwrap_err()
                .to_string();
        assert_eq!(uneven, "retry is fixed at 1s and has a cap of 2s: a fixed delay has none");
    }

    #[test]
    fn a_policy_is_sent_by_the_names_of_its_fields() {
        let sent =
            r#"{"backoff":"exponential","base_delay_ms":1000,"max_delay_ms":3600000,"jitter_percent":20}"#;
        assert_eq!(serde_json::to_string(&RetryPolicy::default()).unwrap(), sent);
        assert_eq!(serde_json::from_str::<RetryPolicy>(sent).unwrap(), RetryPolicy::default());
        assert!(size_of::<RetryPolicy>() <= 12, "a million jobs carry one each");
    }

    prop_compose! {
        fn any_retry()(
            backoff in prop_oneof![Just(Backoff::Fixed), Just(Backoff::Linear), Just(Backoff::Exponential)],
            base_ms: u32, cap_ms: u32, jitter_percent: u8,
        ) -> RetryPolicy {
            RetryPolicy { backoff, base_delay_ms: base_ms, max_delay_ms: cap_ms, jitter_percent }
        }
    }

    proptest! {
        #[test]
        fn no_policy_overflows_or_passes_its_cap(retry in any_retry(), failures: u32, random: u64) {
            prop_assert!(retry.delay_ms(failures, random) <= u64::from(retry.max_delay_ms));
        }

        #[test]
        fn without_jitter_a_delay_never_shrinks(retry in any_retry(), failures in 1..u32::MAX) {
            let retry = retry.jitter_percent(0);
            prop_assert!(retry.delay_ms(failures, 7) <= retry.delay_ms(failures + 1, 7));
        }

        #[test]
        fn a_sound_policy_reads_back_as_it_is_written(retry in any_retry()) {
            let mut retry = retry.jitter_percent(retry.jitter_percent % 101);
            retry.base_delay_ms = retry.base_delay_ms.max(1);
            retry.max_delay_ms = retry.max_delay_ms.max(retry.base_delay_ms);
            if retry.backoff == Backoff::Fixed {
                retry.max_delay_ms = retry.base_delay_ms;
            }
            prop_assert_eq!(RetryPolicy::parse(&retry.to_string()), Ok(retry));
        }

        #[test]
        fn no_text_makes_reading_a_policy_panic(text in ".*", tail in "(fixed|linear|exponential):[0-9a-z.~%]{0,12}") {
            let _ = (RetryPolicy::parse(&text), RetryPolicy::parse(&tail));
        }
    }
}
