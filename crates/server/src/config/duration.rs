//! A stretch of time as people write it: `500ms`, `10s`, `1m30s`.

use fencehold_core::duration::{parse_ms, show_exact_ms};
use serde::{Deserialize, Deserializer, de};

/// A stretch of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConfigDuration(u64);

impl ConfigDuration {
    /// So many milliseconds.
    pub const fn from_ms(ms: u64) -> Self {
        ConfigDuration(ms)
    }

    /// How many milliseconds it is.
    pub const fn ms(self) -> u64 {
        self.0
    }
}

impl std::fmt::Display for ConfigDuration {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&show_exact_ms(self.0))
    }
}

impl<'de> Deserialize<'de> for ConfigDuration {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        parse_ms(&text).map(ConfigDuration).map_err(de::Error::custom)
    }
}
