//! Moments: milliseconds since 1970 in memory, RFC 3339 in JSON.

use std::fmt;
use std::str::FromStr;

use jiff::civil::DateTime;
use jiff::{SignedDuration, Timestamp};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A moment in wall time. RFC 3339, to the millisecond: `2026-11-15T09:20:00.125Z`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Moment {
    /// Milliseconds since 1970.
    pub wall_ms: u64,
}

const EPOCH: DateTime = DateTime::constant(1970, 1, 1, 0, 0, 0, 0);

impl fmt::Display for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A broken clock is no reason to fail: beyond the year 9999 it is the last moment there is.
        let since = SignedDuration::from_millis(i64::try_from(self.wall_ms).unwrap_or(i64::MAX));
        let shown = EPOCH.checked_add(since).unwrap_or(DateTime::MAX);
        write!(f, "{}T{}.{:03}Z", shown.date(), shown.strftime("%H:%M:%S"), shown.millisecond())
    }
}

impl FromStr for Moment {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wall_ms = match text.parse::<Timestamp>() {
            Ok(moment) => moment.as_millisecond(),
            Err(error) => {
                // The last hours of the year 9999 are moments of the calendar that a `Timestamp` does not reach.
                let civil = text.strip_suffix('Z').and_then(|text| text.parse::<DateTime>().ok());
                let civil = civil.ok_or_else(|| format!("{error}; it looks like 2026-11-15T09:20:00Z"))?;
                i64::try_from(EPOCH.duration_until(civil).as_millis()).unwrap_or(i64::MAX)
            }
        };
        let wall_ms = u64::try_from(wall_ms).map_err(|_| "is before 1970".to_owned())?;
        Ok(Moment { wall_ms })
    }
}

impl Serialize for Moment {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if serializer.is_human_readable() {
            serializer.collect_str(self)
        } else {
            self.wall_ms.serialize(serializer)
        }
    }
}

impl<'de> Deserialize<'de> for Moment {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        if !deserializer.is_human_readable() {
            return u64::deserialize(deserializer).map(|wall_ms| Moment { wall_ms });
        }
        let text = String::deserialize(deserializer)?;
        text.parse()
            .map_err(|problem| D::Error::custom(format!("not a moment: {problem}")))
    }
}

/// The JSON form of a field of milliseconds since 1970.
pub struct AsMoment;

impl AsMoment {
    /// Writes a moment.
    pub fn serialize<S: Serializer>(wall_ms: &u64, serializer: S) -> Result<S::Ok, S::Error> {
        Moment { wall_ms: *wall_ms }.serialize(serializer)
    }

    /// Reads a moment.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
        Moment::deserialize(deserializer).map(|moment| moment.wall_ms)
    }
}

/// The same where there may be none.
pub struct AsOptionalMoment;

impl AsOptionalMoment {
    /// Writes a moment, if there is one.
    pub fn serialize<S: Serializer>(wall_ms: &Option<u64>, serializer: S) -> Result<S::Ok, S::Error> {
        wall_ms.map(|wall_ms| Moment { wall_ms }).serialize(serializer)
    }

    /// Reads a moment, if there is one.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
        Option::<Moment>::deserialize(deserializer).map(|moment| moment.map(|moment| moment.wall_ms))
    }
}

inline_schema!(Moment, "Moment", { "type": "string", "format": "date-time" });
#[cfg(feature = "schema")]
crate::schema_as! { AsMoment = Moment, AsOptionalMoment = Option<Moment> }

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_reads_as_it_is_written() {
        for (wall_ms, text) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (1_794_626_583_120, "2026-11-14T03:23:03.120Z"),
            (253_402_300_799_999, "9999-12-31T23:59:59.999Z"),
        ] {
            let moment = Moment { wall_ms };
            assert_eq!(moment.to_string(), text);
            assert_eq!(text.parse(), Ok(moment));
        }
        assert_eq!("1970-01-01T02:00:00+02:00".parse(), Ok(Moment { wall_ms: 0 }));
        assert!(Moment { wall_ms: u64::MAX }.to_string().starts_with("9999-12-31"));
        for bad in ["", "now", "2026-13-01T00:00:00Z", "1969-12-31T23:59:59Z"] {
            assert!(bad.parse::<Moment>().is_err(), "{bad}");
        }
    }
}
