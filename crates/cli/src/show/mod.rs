//! How things look to people.

mod colour;
mod facts;
mod moment;
mod progress;
mod safe;
mod table;

pub(crate) use colour::{Colour, Palette};
pub(crate) use facts::facts;
pub(crate) use moment::{utc, utc_ms};
pub(crate) use progress::Progress;
pub(crate) use safe::{safe, safe_json};
pub(crate) use table::{Cell, Table, or_dash};
