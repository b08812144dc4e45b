//! The closing table: minutes a stage, and of all together, which is less than their sum where some ran beside others.

use std::time::Duration;

pub(crate) struct StageRow {
    pub(crate) stage: &'static str,
    pub(crate) outcome: StageOutcome,
}

pub(crate) enum StageOutcome {
    Passed(Duration),
    Failed(Duration),
    NotRun,
}

pub(crate) fn table(rows: &[StageRow], total: Duration) -> String {
    let mut lines = vec![format!("{:<10} {:>7}", "stage", "minutes")];
    for StageRow { stage, outcome } in rows {
        let (took, verdict) = match *outcome {
            StageOutcome::Passed(took) => (took, "ok"),
            StageOutcome::Failed(took) => (took, "FAILED"),
            StageOutcome::NotRun => {
                lines.push(format!("{stage:<10} {:>7}  not run", "-"));
                continue;
            }
        };
        lines.push(format!("{stage:<10} {:>7.2}  {verdict}", minutes(took)));
    }
    lines.push(format!("{:<10} {:>7.2}\n", "total", minutes(total)));
    lines.join("\n")
}

fn minutes(took: Duration) -> f64 {
    took.as_secs_f64() / 60.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_shows_minutes_verdicts_and_how_long_all_took() {
        let rows = [
            StageRow { stage: "format", outcome: StageOutcome::Passed(Duration::from_secs(3)) },
            StageRow { stage: "clippy", outcome: StageOutcome::Failed(Duration::from_secs(90)) },
            StageRow { stage: "tests", outcome: StageOutcome::NotRun },
        ];
        let expected = "\
stage      minutes
format        0.05  ok
clippy        1.50  FAILED
tests            -  not run
total         1.50
";
        assert_eq!(table(&rows, Duration::from_secs(90)), expected);
    }
}
