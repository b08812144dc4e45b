//! Seeded bugs: each deliberate mistake is turned on in turn, and the layers of checks are run against it. A mistake that
//! nothing notices is a failure: of the checks, not of the product.
//!
//! Nouns: a *bug* is a mistake that the product makes on demand; a *layer* is a set of checks that was not written
//! for it; the *control* is a layer with no bug on, which must pass, or its word is worth nothing. Every layer runs in a
//! process of its own, because a mistake is chosen once for a process. The *usual* layers are run against every bug. Those
//! that take long are a *last resort*: they are run, one after the other, against what no usual layer has noticed.

#![allow(clippy::print_stdout, reason = "a tool for the terminal: what it prints is what it is for")]

mod layer;

use fencehold_core::bugs::Bug;

use self::layer::{LAST_RESORTS, Layer, Outcome, USUAL};

/// Runs the layers against every bug, or those that are named, and prints the table. False: one was not noticed, or a
/// layer cannot be trusted.
pub fn run(names: &[&str]) -> bool {
    match table(names) {
        Ok(all_noticed) => all_noticed,
        Err(problem) => {
            println!("there is no table: {problem}");
            false
        }
    }
}

fn table(names: &[&str]) -> Result<bool, String> {
    if let Some(unknown) = names.iter().find(|name| !is_known(name)) {
        return Err(format!("there is no bug `{unknown}`"));
    }
    for layer in USUAL.iter().chain(LAST_RESORTS) {
        layer.builds()?;
        control(layer.shown, layer.run(None)?)?;
    }
    println!("| bug | promise | what is done wrong | noticed by |");
    println!("|---|---|---|---|");
    let chosen = |bug: &&Bug| names.is_empty() || names.contains(&format!("{bug:?}").as_str());
    let (mut all, mut noticed) = (0, 0);
    for bug in Bug::ALL.iter().filter(chosen) {
        let by = noticed_by(*bug)?;
        all += 1;
        noticed += usize::from(!by.is_empty());
        let by = if by.is_empty() { "**nothing**".to_owned() } else { by.join(", ") };
        println!("| {bug:?} | {} | {} | {by} |", bug.promise(), bug.what());
    }
    println!("\n{noticed} of {all} noticed");
    Ok(noticed == all)
}

/// What a layer says with no bug on.
fn control(layer: &str, outcome: Outcome) -> Result<(), String> {
    match outcome {
        Outcome::Passed => Ok(()),
        Outcome::Failed => Err(format!("with no bug on, `{layer}` fails")),
        Outcome::Hung => Err(format!("with no bug on, `{layer}` does not come to its end")),
    }
}

fn noticed_by(bug: Bug) -> Result<Vec<String>, String> {
    let mut by = Vec::new();
    for layer in USUAL {
        by.extend(says(layer, bug)?);
    }
    for layer in LAST_RESORTS {
        if by.is_empty() {
            by.extend(says(layer, bug)?);
        }
    }
    Ok(by)
}

/// The layer's name, if it notices the bug.
fn says(layer: &Layer, bug: Bug) -> Result<Option<String>, String> {
    Ok(match layer.run(Some(bug))? {
        Outcome::Passed => None,
        Outcome::Failed => Some(layer.shown.to_owned()),
        // The control came to its end in the same time.
        Outcome::Hung => Some(format!("{} (hung)", layer.shown)),
    })
}

/// Whether there is a mistake of this name.
pub fn is_known(name: &str) -> bool {
    Bug::ALL.iter().any(|bug| format!("{bug:?}") == name)
}

/// Runs one layer in this process. False, or a panic: it has noticed something. `None`: there is no such layer.
pub fn layer(name: &str) -> Option<bool> {
    layer::here(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_layer_that_fails_or_hangs_with_no_bug_on_gives_no_table() {
        assert_eq!(control("sim", Outcome::Passed), Ok(()));
        assert!(control("sim", Outcome::Failed).unwrap_err().contains("`sim` fails"));
        assert!(control("sim", Outcome::Hung).unwrap_err().contains("does not come to its end"));
    }

    #[test]
    fn a_bug_that_is_none_gives_no_table() {
        assert_eq!(table(&["TwoHolder"]), Err("there is no bug `TwoHolder`".to_owned()));
    }
}
