//! The schedule as people draw it: one column for each actor, time downwards.

use std::fmt::Write as _;

use crate::trace::TraceEntry;

/// Draws the entries. Columns are in the order of appearance, each as wide as what it says.
pub(crate) fn draw(entries: &[TraceEntry]) -> String {
    let mut actors: Vec<&str> = Vec::new();
    for entry in entries {
        if !actors.contains(&entry.actor.as_str()) {
            actors.push(&entry.actor);
        }
    }
    let width_of = |actor: &&str| {
        let said = entries.iter().filter(|entry| entry.actor == **actor);
        let widest = said.map(|entry| entry.says.chars().count()).max().unwrap_or(0);
        widest.max(actor.chars().count())
    };
    let widths: Vec<usize> = actors.iter().map(width_of).collect();
    let mut picture = String::new();
    let mut line = |cell: &dyn Fn(usize) -> String| {
        let cells: Vec<String> = (0..actors.len())
            .map(|at| format!("{:<width$}", cell(at), width = widths[at]))
            .collect();
        let _ = writeln!(picture, "  {}", cells.join("   ").trim_end());
    };
    line(&|at| actors[at].to_owned());
    for entry in entries {
        line(&|at| if actors[at] == entry.actor { entry.says.clone() } else { "│".to_owned() });
    }
    picture
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_actor_has_a_column_and_time_runs_downwards() {
        let entry =
            |actor: &str, says: &str| TraceEntry { actor: actor.into(), says: says.into(), event: None };
        let picture =
            draw(&[entry("A", "takes it: token 1"), entry("clock", "ttl runs out"), entry("A", "renews")]);
        let expected = "  A                   clock\n  takes it: token 1   │\n  │                   ttl runs out\n  renews              │\n";
        assert_eq!(picture, expected);
    }
}
