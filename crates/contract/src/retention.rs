//! How long finished jobs are kept: one option, spelt the same in the URL of every store that has jobs.

use std::fmt;

use fencehold_core::BadInput;
use fencehold_core::duration::{parse_ms, show_exact_ms};
use fencehold_core::limits::{FINISHED_KEPT_MS, FINISHED_KEPT_MS_MAX, FINISHED_KEPT_MS_MIN};

use crate::url::each_option;

/// `keep_finished=30d`: for how long jobs that were completed, failed or cancelled are kept. The default names no time, and
/// leaves it at what the store says: seven days, unless it was set otherwise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KeepFinished(Option<u64>);

impl KeepFinished {
    /// The option's name in a URL.
    pub const OPTION: &'static str = "keep_finished";

    /// For so long, in milliseconds: from an hour to ten years.
    pub fn for_ms(ms: u64) -> Result<Self, BadInput> {
        if (FINISHED_KEPT_MS_MIN..=FINISHED_KEPT_MS_MAX).contains(&ms) {
            return Ok(KeepFinished(Some(ms)));
        }
        let [least, most] = [FINISHED_KEPT_MS_MIN, FINISHED_KEPT_MS_MAX].map(show_exact_ms);
        Err(BadInput::new(Self::OPTION, format!("is {}; it must be {least} to {most}", show_exact_ms(ms))))
    }

    /// Reads the option's value.
    pub fn parse(value: &str) -> Result<Self, BadInput> {
        let ms =
            parse_ms(value).map_err(|problem| BadInput::new(Self::OPTION, format!("is wrong: {problem}")))?;
        Self::for_ms(ms)
    }

    /// Reads the options of a URL that takes no others. What is not understood may have been meant as a safeguard: it is
    /// refused, not ignored.
    pub fn of_options(scheme: &str, options: Option<&str>) -> Result<Self, BadInput> {
        let mut kept = KeepFinished::default();
        for (name, value) in each_option(options) {
            if name != Self::OPTION {
                let problem = format!("has an option {name:?}; {scheme}: takes {}", Self::OPTION);
                return Err(BadInput::new("store URL", problem));
            }
            kept = Self::parse(value)?;
        }
        Ok(kept)
    }

    /// The time that was named, if any.
    pub fn named_ms(self) -> Option<u64> {
        self.0
    }

    /// The time that counts where nothing else names one.
    pub fn ms(self) -> u64 {
        self.0.unwrap_or(FINISHED_KEPT_MS)
    }
}

/// As it stands at the end of a URL.
impl fmt::Display for KeepFinished {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            None => Ok(()),
            Some(ms) => write!(f, "?{}={}", Self::OPTION, show_exact_ms(ms)),
        }
    }
}
