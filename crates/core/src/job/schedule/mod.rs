//! When something is due again: a [`Cron`] line read by the clock of a [`Zone`].
//!
//! A *firing* is a moment at which a line is due. A line says what a clock on the wall shows then, so what matters
//! is how that clock runs. Where it is put forward there is a *gap*: times that are never shown. Where it is put
//! back there is a *repeat*: times that are shown twice. Much as in Vixie's cron, there are two kinds of lines,
//! told apart by the hour field:
//!
//! - **A line that names its hours** (`30 2 * * *`, `*/5 9-17 * * MON-FRI`) fires once for each time that it names.
//!   What falls into a gap fires at the moment when the clock jumps: once, however many of its times were
//!   skipped. A time that is shown twice fires when it is shown first.
//! - **A line with a `*` in its hour field** (`*/15 * * * *`, `0 */2 * * *`) goes by elapsed time: it fires whenever
//!   the clock shows a time that matches, so twice in a repeat, and nothing of a gap is made up for.
//!
//! A firing is a whole minute of the zone's clock. Where the offset itself is not one (Liberia until 1972), neither is
//! the moment.
//!
//! The zones are part of the program, so two machines with the same release agree on every firing, whatever
//! is installed on them; a country that changes its rules needs a new release.
//!
//! Deliberately absent: the present. `next_after` is given a moment and answers with one. Nor is there memory of what
//! has fired: the code that fires keeps the last moment and asks for the next.

mod calendar;
mod cron;
mod field;
mod zone;

pub use cron::Cron;
pub use zone::Zone;
