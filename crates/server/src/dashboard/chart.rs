//! A chart of how leases ended over time: stacked columns, drawn as SVG. A table beside it has the totals.

use fencehold_contract::LeaseStats;
use maud::{Markup, html};

use super::{overview, text};

const WIDTH: u64 = 600;
const HEIGHT: u64 = 96;
/// Room for the names of times below the columns.
const AXIS_HEIGHT: u64 = 22;
const GAP: u64 = 6;

/// A column: how many leases ended which way in a time.
#[derive(Clone, Debug)]
pub(super) struct Column {
    /// How long ago the time began.
    pub(super) from_ms: u64,
    pub(super) counts: [(&'static str, u64); 4],
}

/// The columns of counts that each begin earlier and reach until now: the newest last.
pub(super) fn columns(since: &[(u64, LeaseStats)]) -> Vec<Column> {
    let mut columns = Vec::with_capacity(since.len());
    let mut later = overview::kinds(&LeaseStats::default());
    for (from_ms, stats) in since {
        let all = overview::kinds(stats);
        let mut counts = all;
        for ((_, count), (_, later)) in counts.iter_mut().zip(later) {
            *count = count.saturating_sub(later);
        }
        columns.push(Column { from_ms: *from_ms, counts });
        later = all;
    }
    columns.reverse();
    columns
}

/// Draws the columns, each of which lasts so long.
pub(super) fn draw(columns: &[Column], step_ms: u64) -> Markup {
    let total = |column: &Column| column.counts.iter().map(|(_, count)| count).sum::<u64>();
    let most = columns.iter().map(total).max().unwrap_or_default().max(1);
    let slot = WIDTH / (columns.len() as u64).max(1);
    let says = |column: &Column| {
        let until = column.from_ms.saturating_sub(step_ms);
        let ended = column.counts.iter().filter(|(_, count)| *count > 0);
        let ended: Vec<String> = ended
            .map(|(class, count)| format!("{} {}", text::number(*count), name_of(class)))
            .collect();
        let ended = if ended.is_empty() { "none ended".to_owned() } else { ended.join(", ") };
        format!("{} to {} ago: {ended}", text::duration(column.from_ms), text::duration(until))
    };
    html! {
        svg class="chart" viewBox={ "0 0 " (WIDTH) " " (HEIGHT + AXIS_HEIGHT) } role="img"
            aria-label={ "How leases ended in each " (text::duration(step_ms)) "; at most " (text::number(most)) " in one" } {
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
                    text class="axis" x=(left) y=(HEIGHT + 14) { "−" (text::duration(column.from_ms)) }
                }
            }
            text class="axis" x=(WIDTH) y=(HEIGHT + 14) text-anchor="end" { "now" }
        }
    }
}

/// What a colour stands for.
pub(super) fn name_of(class: &str) -> &str {
    if class == "quiet" { "other" } else { class }
}

/// The pieces of a column from below: colour, top and height. What there is of is seen, however little.
fn stack(counts: &[(&'static str, u64); 4], most: u64) -> Vec<(&'static str, u64, u64)> {
    let mut top = HEIGHT;
    let mut pieces = Vec::new();
    for (class, count) in counts.iter().filter(|(_, count)| *count > 0) {
        let exact = u128::from(*count) * u128::from(HEIGHT - 14) / u128::from(most);
        let height = u64::try_from(exact).unwrap_or(HEIGHT).max(2).min(top);
        top -= height;
        pieces.push((*class, top, height));
    }
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_column_has_what_ended_in_its_own_time() {
        let of = |released_count, expired_count| LeaseStats {
            released_count,
            expired_count,
            ..LeaseStats::default()
        };
        let columns = columns(&[(10, of(1, 0)), (20, of(3, 1)), (30, of(3, 1))]);
        let counted: Vec<_> = columns
            .iter()
            .map(|column| (column.from_ms, column.counts[0].1, column.counts[1].1))
            .collect();
        assert_eq!(counted, [(30, 0, 0), (20, 2, 1), (10, 1, 0)]);
    }

    #[test]
    fn a_column_fits_and_hides_nothing() {
        for counts in [[1, 0, 0, 0], [1_000_000, 1, 1, 1], [u64::MAX / 4; 4]] {
            let classes = ["released", "expired", "revoked", "quiet"];
            let counts = [0, 1, 2, 3].map(|at| (classes[at], counts[at]));
            let most = counts.iter().map(|(_, count)| count).sum();
            let pieces = stack(&counts, most);
            assert_eq!(pieces.len(), counts.iter().filter(|(_, count)| *count > 0).count());
            assert!(pieces.iter().all(|(_, top, height)| *height > 0 && top + height <= HEIGHT));
        }
    }
}
