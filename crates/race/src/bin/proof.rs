//! The chores of proof: `proof model`.

#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a tool for the terminal: what it prints is what it is for"
)]

use std::process::ExitCode;

use fencehold_race::model;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    let went_well = match words.as_slice() {
        ["model"] => model::suite::run(model::suite::SMALL),
        ["model", "--large"] => model::suite::run(model::suite::LARGE),
        _ => {
            eprintln!("proof model [--large]");
            return ExitCode::from(2);
        }
    };
    if went_well { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
