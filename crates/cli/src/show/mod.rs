//! How things look to people.

mod facts;
mod moment;
mod progress;
mod safe;
mod style;
mod table;

pub(crate) use facts::facts;
pub(crate) use moment::{utc, utc_ms};
pub(crate) use progress::Progress;
pub(crate) use safe::{safe, safe_json};
pub(crate) use style::{Colour, Style};
pub(crate) use table::{Cell, Table, or_dash};
