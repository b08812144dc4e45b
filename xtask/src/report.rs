//! The closing table: minutes a stage, and their sum.

use std::time::Duration;

pub(crate) struct Row {
    pub(crate) stage: &'static str,
    pub(crate) outcome: Outcome,
}

pub(crate) enum Outcome {
    Passed(Duration),
    Failed(Duration),
    NotRun,
}

pub(crate) fn table(rows: &[Row]) -> String {
    let mut total = Duration::ZERO;
    let mut lines = vec![format!("{:<10} {:>7}", "stage", "minutes")];
    for Row { stage, outcome } in rows {
        let (took, verdict) = match *outcome {
            Outcome::Passed(took) => (took, "ok"),
            Outcome::Failed(took) => (took, "FAILED"),
            Outcome::NotRun => {
                lines.push(format!("{stage:<10} {:>7}  not run", "-"));
                continue;
            }
        };
        total += took;
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
    fn the_table_shows_minutes_verdicts_and_the_sum() {
        let rows = [
            Row { stage: "format", outcome: Outcome::Passed(Duration::from_secs(3)) },
            Row { stage: "clippy", outcome: Outcome::Failed(Duration::from_secs(90)) },
            Row { stage: "tests", outcome: Outcome::NotRun },
        ];
        let expected = "\
stage      minutes
format        0.05  ok
clippy        1.50  FAILED
tests            -  not run
total         1.55
";
        assert_eq!(table(&rows), expected);
    }
}
