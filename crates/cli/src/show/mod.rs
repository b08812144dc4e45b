//! How things look to people.

mod fields;
mod moment;
mod progress;
mod sanitize;
mod style;
mod table;

pub(crate) use fields::{facts, labels, yield_lines};
pub(crate) use moment::{utc, utc_ms};
pub(crate) use progress::{Progress, make_room};
#[cfg(feature = "top")]
pub(crate) use sanitize::safe_in_line;
pub(crate) use sanitize::{safe, safe_json};
#[cfg(feature = "top")]
pub(crate) use style::wrap;
pub(crate) use style::{Colour, Style};
#[cfg(feature = "race")]
pub(crate) use table::BAR;
pub(crate) use table::{Cell, Table, or_dash};
