//! The picture of who held what, when: lanes with bars on one axis of time, drawn as SVG.
//!
//! Nouns: a *lane* is a row with a name, a *bar* lasted from a moment to another or lasts still, a *mark* is a moment. A picture says
//! nothing that a table beside it does not say too: screen readers and small screens read that one.

use std::fmt::Write as _;

use maud::{Markup, html};

use super::text;

const WIDTH: u64 = 1_000;
const LABEL_WIDTH: u64 = 190;
const LANE_HEIGHT: u64 = 30;
const BAR_HEIGHT: u64 = 18;
const AXIS_HEIGHT: u64 = 24;
/// And more where idle times are named below it.
const IDLE_HEIGHT: u64 = 18;
/// A bar is never narrower: what lasted a moment is still seen.
const BAR_WIDTH_MIN: u64 = 3;
/// A bar of this width has room for its label, for each character of it.
const CHAR_WIDTH: u64 = 8;
const LABEL_CHARS_MAX: usize = 24;
/// How much room a moment needs that is named on the axis.
const TICK_WIDTH: u64 = 110;
/// An idle time that is longer than one part in so many of the whole is cut short.
const IDLE_PART: u64 = 5;
const IDLE_WIDTH: u64 = 56;
const RIGHT_WIDTH: u64 = 12;
/// The steps of the axis.
const STEPS_MS: [u64; 24] = [
    10,
    50,
    100,
    500,
    1_000,
    2_000,
    5_000,
    10_000,
    15_000,
    30_000,
    60_000,
    120_000,
    300_000,
    600_000,
    900_000,
    1_800_000,
    3_600_000,
    7_200_000,
    14_400_000,
    28_800_000,
    86_400_000,
    172_800_000,
    604_800_000,
    2_592_000_000,
];

/// A row of a picture.
pub(super) struct Lane {
    pub(super) name: String,
    pub(super) bars: Vec<Bar>,
    pub(super) marks: Vec<Mark>,
}

/// Something that lasted.
pub(super) struct Bar {
    /// `None`: from before the picture.
    pub(super) from_ms: Option<u64>,
    /// `None`: it lasts still.
    pub(super) to_ms: Option<u64>,
    pub(super) class: &'static str,
    pub(super) label: String,
    pub(super) title: String,
}

/// Something that happened at a moment.
pub(super) struct Mark {
    pub(super) at_ms: u64,
    pub(super) class: &'static str,
    pub(super) title: String,
}

/// The axis: what happened lies in stretches of time, each as wide as it is long. The idle times between them are short, however long they
/// were: otherwise one of them leaves no room for the rest.
struct Axis {
    /// From when to when, and from where to where.
    stretches: Vec<(u64, u64, u64, u64)>,
}

impl Axis {
    /// An axis for these times, in order of their beginnings.
    fn new(times: &[(u64, u64)]) -> Axis {
        let first = times.first().map_or(0, |(from, _)| *from);
        let last = times.iter().map(|(_, to)| *to).max().unwrap_or(first);
        let mut busy: Vec<(u64, u64)> = Vec::new();
        for (from, to) in times.iter().copied() {
            match busy.last_mut() {
                Some((_, end)) if from.saturating_sub(*end) <= (last - first) / IDLE_PART => {
                    *end = (*end).max(to);
                }
                _ => busy.push((from, to)),
            }
        }
        let room = WIDTH - LABEL_WIDTH - RIGHT_WIDTH;
        let idle_width = IDLE_WIDTH.min(room / 2 / (busy.len() as u64).max(1));
        let room = room - idle_width * (busy.len() as u64).saturating_sub(1);
        // A stretch of no length has a width too.
        let lasted: u128 = busy.iter().map(|(from, to)| u128::from(to - from)).sum();
        let padding = lasted / 50 + 1;
        let length = |(from, to): &(u64, u64)| u128::from(to - from) + padding;
        let total = busy.iter().map(length).sum::<u128>().max(1);
        let mut x = LABEL_WIDTH;
        let stretches = busy.iter().map(|stretch| {
            let width = length(stretch) * u128::from(room) / total;
            let begins = x;
            let ends = begins + u64::try_from(width).unwrap_or(room);
            x = ends + idle_width;
            (stretch.0, stretch.1, begins, ends)
        });
        Axis { stretches: stretches.collect() }
    }

    /// Where a moment is.
    fn x(&self, at_ms: u64) -> u64 {
        let stretch = self.stretches.iter().find(|(_, to, ..)| at_ms <= *to).or(self.stretches.last());
        let Some((from, to, left, right)) = stretch else { return LABEL_WIDTH };
        let since = at_ms.clamp(*from, *to) - from;
        let x = u128::from(since) * u128::from(right - left) / u128::from((to - from).max(1));
        left + u64::try_from(x).unwrap_or_default()
    }

    /// Where the picture begins.
    fn left(&self) -> u64 {
        self.stretches.first().map_or(LABEL_WIDTH, |(_, _, left, _)| *left)
    }

    /// The moments that are named on the axis, with their names. Each stretch counts back from its end.
    fn ticks(&self, now_ms: u64) -> Vec<(u64, String)> {
        let mut ticks = Vec::new();
        for (from, to, left, right) in &self.stretches {
            let fit = (right - left) / TICK_WIDTH;
            let span = to - from;
            let step = STEPS_MS.iter().find(|step| span / **step <= fit);
            let step = step.copied().unwrap_or_else(|| (span / fit.max(1)).max(1));
            ticks.push((*to, text::relative(now_ms, *to)));
            for nth in 1..=span / step {
                let (at_ms, before_ms) = (to - nth * step, nth * step);
                let is_now = *to == now_ms;
                let before = tick_name(before_ms);
                let name = if is_now { format!("{before} ago") } else { format!("−{before}") };
                ticks.push((at_ms, name));
            }
        }
        ticks
    }

    /// The idle times: their middle, and how long they were.
    fn idle(&self) -> impl Iterator<Item = (u64, u64)> {
        self.stretches.windows(2).filter_map(|pair| match pair {
            [(_, end, _, right), (begin, _, left, _)] => Some((right.midpoint(*left), begin - end)),
            _ => None,
        })
    }
}

/// Draws lanes up to now. Nothing, if there is nothing to see.
pub(super) fn picture(describes: &str, lanes: &[Lane], now_ms: u64) -> Markup {
    let bars = lanes.iter().flat_map(|lane| &lane.bars);
    let marks = lanes.iter().flat_map(|lane| &lane.marks);
    let of_bars = bars.map(|bar| {
        let to_ms = bar.to_ms.unwrap_or(now_ms);
        (bar.from_ms.unwrap_or(to_ms).min(to_ms), to_ms)
    });
    let mut times: Vec<(u64, u64)> = of_bars.chain(marks.map(|mark| (mark.at_ms, mark.at_ms))).collect();
    if times.is_empty() {
        return html! {};
    }
    times.push((now_ms, now_ms));
    times.sort_unstable();
    let axis = Axis::new(&times);
    let lanes_height = LANE_HEIGHT * lanes.len() as u64;
    let idle_height = if axis.stretches.len() > 1 { IDLE_HEIGHT } else { 0 };
    let height = lanes_height + AXIS_HEIGHT + idle_height;
    html! {
        div class="timeline" tabindex="0" role="group" aria-label=(describes) {
            svg viewBox={ "0 0 " (WIDTH) " " (height) } role="img" aria-label=(describes) {
                @for (at_ms, name) in axis.ticks(now_ms) {
                    @let x = axis.x(at_ms);
                    line class=(if at_ms == now_ms { "now" } else { "tick" }) x1=(x) x2=(x) y1="0" y2=(lanes_height) {}
                    text class="axis" x=(x) y=(lanes_height + 16) text-anchor="middle" { (name) }
                }
                @for (x, idle_ms) in axis.idle() {
                    line class="idle" x1=(x) x2=(x) y1="0" y2=(lanes_height) {}
                    text class="axis" x=(x) y=(lanes_height + 34) text-anchor="middle" { (text::duration(idle_ms)) " idle" }
                }
                @for (nth, lane) in lanes.iter().enumerate() {
                    (drawn(&axis, lane, LANE_HEIGHT * nth as u64))
                }
            }
        }
    }
}

fn drawn(axis: &Axis, lane: &Lane, top: u64) -> Markup {
    let bar_top = top + (LANE_HEIGHT - BAR_HEIGHT) / 2;
    let baseline = bar_top + 13;
    html! {
        line class="lane" x1="0" x2=(WIDTH) y1=(top + LANE_HEIGHT) y2=(top + LANE_HEIGHT) {}
        text class="lane-name" x="4" y=(baseline) {
            title { (text::plain_beginning(&lane.name, 200)) }
            (text::plain_beginning(&lane.name, LABEL_CHARS_MAX))
        }
        @for bar in &lane.bars {
            @let x = bar.from_ms.map_or_else(|| axis.left().saturating_sub(8), |from_ms| axis.x(from_ms));
            @let width = axis.x(bar.to_ms.unwrap_or(u64::MAX)).saturating_sub(x).max(BAR_WIDTH_MIN);
            g class={ "bar " (bar.class) } {
                title { (text::plain_beginning(&bar.title, 400)) }
                rect x=(x) y=(bar_top) width=(width) height=(BAR_HEIGHT) rx="3" {}
                @if bar.label.len() as u64 * CHAR_WIDTH + 6 <= width {
                    text x=(x + 5) y=(baseline) { (bar.label) }
                }
            }
        }
        @for mark in &lane.marks {
            @let x = axis.x(mark.at_ms);
            g class={ "mark " (mark.class) } {
                title { (text::plain_beginning(&mark.title, 400)) }
                path d=(cross(x, top + LANE_HEIGHT / 2)) {}
            }
        }
    }
}

/// Ticks may be closer than a second.
fn tick_name(ms: u64) -> String {
    match (ms / 1_000, ms / 100 % 10) {
        (seconds @ 1..10, tenths @ 1..) => format!("{seconds}.{tenths} s"),
        _ => text::duration(ms),
    }
}

/// A cross around a point, on a disc that sets it off from what is below.
fn cross(x: u64, y: u64) -> String {
    let mut path = String::new();
    let (left, right, above, below) = (x.saturating_sub(5), x + 5, y.saturating_sub(5), y + 5);
    let _ = write!(path, "M{left} {above}L{right} {below}M{right} {above}L{left} {below}");
    path
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn idle_times_leave_room_for_what_happened() {
        let (hour, day) = (3_600_000, 86_400_000);
        let axis = Axis::new(&[(0, hour), (hour, 2 * hour), (day, day + hour)]);
        assert_eq!(axis.stretches.len(), 2);
        assert_eq!(axis.idle().map(|(_, idle_ms)| idle_ms).collect::<Vec<_>>(), [22 * hour]);
        let [early, later] = [axis.x(2 * hour) - axis.x(0), axis.x(day + hour) - axis.x(day)];
        assert!(early > 400 && later > 200 && later < early, "{early} {later}");
        assert!(axis.x(day + hour) <= WIDTH);
        assert!(
            axis.ticks(day)
                .iter()
                .all(|(at_ms, _)| axis.stretches.iter().any(|(from, to, ..)| (from..=to).contains(&at_ms)))
        );
    }

    #[test]
    fn ticks_of_less_than_a_second_have_names_of_their_own() {
        let ticks = Axis::new(&[(0, 2_600)]).ticks(5_000);
        let names: BTreeSet<&String> = ticks.iter().map(|(_, name)| name).collect();
        assert!(ticks.len() > 4 && names.len() == ticks.len(), "{ticks:?}");
    }

    #[test]
    fn a_picture_of_a_moment_or_of_very_long_times_fits() {
        for times in [&[(5, 5)][..], &[(0, 0), (u64::MAX, u64::MAX)], &[(0, u64::MAX)], &[(7, 7); 40]] {
            let axis = Axis::new(times);
            assert!(
                times
                    .iter()
                    .all(|(from, to)| axis.x(*from) <= axis.x(*to) && axis.x(*to) <= WIDTH)
            );
            assert!(axis.ticks(9).len() < 40, "{times:?}");
        }
    }
}
