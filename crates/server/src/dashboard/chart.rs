//! A chart of how leases ended over time: stacked columns, drawn as SVG. A table beside it has the totals.

use fencehold_contract::LeaseStatsStep;
use fencehold_core::lease::LeaseOutcome;
use maud::{Markup, html};

use super::text;

const WIDTH: u64 = 600;
const HEIGHT: u64 = 96;
/// Room for the names of times below the columns.
const AXIS_HEIGHT: u64 = 22;
const GAP: u64 = 6;

/// The colours of how leases ended.
pub(super) const CLASSES: [&str; 4] = ["released", "expired", "revoked", "quiet"];

/// How many leases ended in the way that each colour stands for.
pub(super) type Counts = [u64; CLASSES.len()];

/// Adds what is counted in a step.
pub(super) fn add(counts: &mut Counts, step: &LeaseStatsStep) {
    let [released, expired, revoked, other] = counts;
    for (outcome, count) in &step.ended_counts {
        let class = match outcome {
            LeaseOutcome::Released => &mut *released,
            LeaseOutcome::Expired | LeaseOutcome::AgedOut => &mut *expired,
            LeaseOutcome::Revoked | LeaseOutcome::Advanced => &mut *revoked,
            _ => &mut *other,
        };
        *class += count;
    }
}

/// A column: how many leases ended which way in a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Column {
    from_ms: u64,
    until_ms: u64,
    counts: Counts,
}

/// The last so many columns of a length until now, the newest last. They begin at multiples of their length, so they stay as they are while time
/// goes on.
pub(super) fn columns(steps: &[LeaseStatsStep], length_ms: u64, count: usize, now_ms: u64) -> Vec<Column> {
    let newest = now_ms / length_ms;
    let oldest = newest.saturating_sub(count as u64 - 1);
    let mut columns: Vec<Column> = (oldest..=newest)
        .map(|nth| Column { from_ms: nth * length_ms, until_ms: (nth + 1) * length_ms, counts: [0; 4] })
        .collect();
    for step in steps {
        let at = (step.begins_at_ms / length_ms).checked_sub(oldest);
        if let Some(column) = at.and_then(|at| columns.get_mut(usize::try_from(at).ok()?)) {
            add(&mut column.counts, step);
        }
    }
    columns
}

/// Draws the columns.
pub(super) fn draw(columns: &[Column], length_ms: u64) -> Markup {
    let total = |column: &Column| column.counts.iter().sum::<u64>();
    let most = columns.iter().map(total).max().unwrap_or_default().max(1);
    let slot = WIDTH / (columns.len() as u64).max(1);
    let says = |column: &Column| {
        let ended = CLASSES.iter().zip(column.counts).filter(|(_, count)| *count > 0);
        let ended: Vec<String> = ended
            .map(|(class, count)| format!("{} {}", text::number(count), name_of(class)))
            .collect();
        let ended = if ended.is_empty() { "none ended".to_owned() } else { ended.join(", ") };
        format!("{} to {} UTC: {ended}", time_of_day(column.from_ms), time_of_day(column.until_ms))
    };
    html! {
        svg class="chart" viewBox={ "0 0 " (WIDTH) " " (HEIGHT + AXIS_HEIGHT) } role="img"
            aria-label={ "How leases ended in each " (text::duration(length_ms)) "; at most " (text::number(most)) " in one" } {
            line class="tick" x1="0" x2=(WIDTH) y1=(HEIGHT) y2=(HEIGHT) {}
            line class="tick" x1="0" x2=(WIDTH) y1="14" y2="14" {}
            text class="axis" x="0" y="10" { (text::number(most)) }
            @for (nth, column) in columns.iter().enumerate() {
                @let left = slot * nth as u64;
                g {
                    title { (says(column)) }
                    rect class="hover" x=(left) y="14" width=(slot) height=(HEIGHT - 14) {}
                    @for (class, top, height) in stack(&column.counts, most) {
                        rect class=(class) x=(left + GAP / 2) y=(top) width=(slot - GAP) height=(height) {}
                    }
                }
                @if nth % 2 == 0 {
                    text class="axis" x=(left) y=(HEIGHT + 14) { (time_of_day(column.from_ms)) }
                }
            }
            text class="axis" x=(WIDTH) y="10" text-anchor="end" { "UTC" }
        }
    }
}

/// What a colour stands for.
pub(super) fn name_of(class: &str) -> &str {
    if class == "quiet" { "other" } else { class }
}

/// The time of day, in UTC.
fn time_of_day(at_ms: u64) -> String {
    let minutes = at_ms / 60_000 % 1_440;
    format!("{:02}:{:02}", minutes / 60, minutes % 60)
}

/// The pieces of a column from below: colour, top and height. What there is of is seen, however little.
fn stack(counts: &Counts, most: u64) -> Vec<(&'static str, u64, u64)> {
    let mut top = HEIGHT;
    let mut pieces = Vec::new();
    for (class, count) in CLASSES.into_iter().zip(counts).filter(|(_, count)| **count > 0) {
        let exact = u128::from(*count) * u128::from(HEIGHT - 14) / u128::from(most);
        let height = u64::try_from(exact).unwrap_or(HEIGHT).max(2).min(top);
        top -= height;
        pieces.push((class, top, height));
    }
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_column_has_what_ended_in_its_own_time() {
        let step = |begins_at_ms, outcome, count| LeaseStatsStep {
            begins_at_ms,
            ended_counts: [(outcome, count)].into(),
        };
        let steps = [
            step(199, LeaseOutcome::Released, 100),
            step(200, LeaseOutcome::Released, 1),
            step(299, LeaseOutcome::AgedOut, 2),
            step(400, LeaseOutcome::Advanced, 3),
            step(410, LeaseOutcome::Yielded, 4),
        ];
        let columns = columns(&steps, 100, 3, 450);
        let of = |from_ms, counts| Column { from_ms, until_ms: from_ms + 100, counts };
        assert_eq!(columns, [of(200, [1, 2, 0, 0]), of(300, [0; 4]), of(400, [0, 0, 3, 4])]);
        assert_eq!(time_of_day(1_800_000 * 31), "15:30");
    }

    #[test]
    fn a_column_fits_and_hides_nothing() {
        for counts in [[1, 0, 0, 0], [1_000_000, 1, 1, 1], [u64::MAX / 4; 4]] {
            let pieces = stack(&counts, counts.iter().sum());
            assert_eq!(pieces.len(), counts.iter().filter(|count| **count > 0).count());
            assert!(pieces.iter().all(|(_, top, height)| *height > 0 && top + height <= HEIGHT));
        }
    }
}
