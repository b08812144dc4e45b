//! `fencehold job …`: enqueuing, working from scripts, looking, acting; and every bad input with its own message.
#![cfg(feature = "file")]

mod admin;
mod attempt;
mod enqueue;
mod force;
mod history;

use crate::support::{CommandOutput, TestDirectory, Words, said};

/// A claim, as a script keeps it.
struct Claim {
    id: String,
    token: u64,
    hold: String,
}

fn claim(dir: &TestDirectory, options: &str) -> Claim {
    let taken = dir.json(&format!("job claim --queue q {options}"));
    Claim {
        id: taken["id"].as_str().unwrap().to_owned(),
        token: taken["token"].as_u64().unwrap(),
        hold: taken["hold_id"].as_str().unwrap().to_owned(),
    }
}

/// Speaks for an attempt.
fn speak(dir: &TestDirectory, words: impl Words, id: &str, token: u64, hold: &str) -> CommandOutput {
    said(
        dir.command(words)
            .env("FENCEHOLD_JOB_ID", id)
            .env("FENCEHOLD_TOKEN", token.to_string())
            .env("FENCEHOLD_HOLD_ID", hold),
    )
}

impl Claim {
    fn say(&self, dir: &TestDirectory, words: impl Words) -> CommandOutput {
        speak(dir, words, &self.id, self.token, &self.hold)
    }
}
