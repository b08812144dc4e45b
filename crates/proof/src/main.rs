//! The chores of proof: the exhaustive models, and the simulation.

#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a tool for the terminal: what it prints is what it is for"
)]

use std::process::ExitCode;

use fencehold_proof::sim::SimStorage;
use fencehold_proof::{model, sim};

const USAGE: &str = "\
proof model [--large]                   every state of the models, within bounds
proof sim run [--seeds N] [--sqlite]    the engine under N seeds of trouble (1000); all of them on SQLite
proof sim replay SEED [--sqlite]        the story of one seed
proof layer NAME                        checks that `cargo xtask bugs` runs: race, sim, sqlite, model, conformance (feature `layers`)
";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let mut words: Vec<&str> = args.iter().map(String::as_str).collect();
    let under = if words.first() == Some(&"sim") { taken_out(&mut words) } else { SimStorage::Drawn };
    let went_well = match words.as_slice() {
        ["model"] => Some(model::suite::run(model::suite::SMALL)),
        ["model", "--large"] => Some(model::suite::run(model::suite::LARGE)),
        ["sim", "run"] => Some(simulate(1_000, under)),
        ["sim", "run", "--seeds", seeds] => seeds.parse().ok().map(|seeds| simulate(seeds, under)),
        ["sim", "replay", seed] => seed.parse().ok().map(|seed| replay(seed, under)),
        #[cfg(feature = "layers")]
        ["layer", name] => fencehold_proof::layer::run(name),
        _ => None,
    };
    match went_well {
        Some(true) => ExitCode::SUCCESS,
        Some(false) => ExitCode::FAILURE,
        None => {
            eprint!("{USAGE}");
            ExitCode::from(2)
        }
    }
}

/// What is to be under the store: `--sqlite` may stand anywhere.
fn taken_out(words: &mut Vec<&str>) -> SimStorage {
    let before = words.len();
    words.retain(|word| *word != "--sqlite");
    if words.len() < before { SimStorage::Sqlite } else { SimStorage::Drawn }
}

fn simulate(seeds: u64, under: SimStorage) -> bool {
    let summary = sim::run(0, seeds, under);
    print!("{summary}");
    let shortfalls = summary.shortfalls();
    if summary.broken.is_none() {
        for sentence in &shortfalls {
            println!("{sentence}");
        }
    }
    summary.broken.is_none() && shortfalls.is_empty()
}

fn replay(seed: u64, under: SimStorage) -> bool {
    let (story, outcome) = sim::replay(seed, under);
    print!("{story}");
    match outcome {
        Ok(()) => println!("seed {seed}: every promise held"),
        Err(why) => {
            println!("seed {seed} BROKEN: {why}");
            return false;
        }
    }
    true
}
