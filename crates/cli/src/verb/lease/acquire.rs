//! `fencehold lease acquire`: a lease for a script, which renews it itself.

use std::time::Duration;

use fencehold_core::limits::TTL_MS_MIN;
use fencehold_core::{Key, Owner, Task, ttl};
use serde::Serialize;

use crate::context::{Context, Create, Store};
use crate::duration::{parse_ms, show_exact_ms, show_ms};
use crate::failure::Failure;
use crate::hold::{HOLD_VARIABLE, KEY_VARIABLE, TOKEN_VARIABLE};
use crate::output::Format;
use crate::process::boot_ms;
use crate::show::facts;
use crate::verb::{DONE, Outcome};
use crate::{identity, shell};

const EXAMPLES: &str = "\
Examples:
  # Take a lease, do something, give it back
  vars=$(fencehold lease acquire reports/daily -o env) || exit
  eval \"$vars\"
  ./step-one && fencehold lease renew reports/daily && ./step-two
  fencehold lease release reports/daily

  # Any one of three
  fencehold lease acquire gpu/0 --any gpu/1 --any gpu/2 --wait 10m
";

const MORE: &str = "\
Nobody renews this lease but you: it ends after its ttl. For one command, `fencehold run` is simpler and safer. \
The hold id is printed once, here. Whoever has it can end the lease.";

/// Take a lease and print its token and hold id
#[derive(Debug, clap::Args)]
#[command(before_help = EXAMPLES, after_help = MORE)]
pub(crate) struct Args {
    /// What to hold
    #[arg(value_name = "KEY")]
    key: Key,
    /// Or else this: the first that is free is taken (repeatable)
    #[arg(long, value_name = "KEY")]
    any: Vec<Key>,
    /// How long it lasts unless it is renewed
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = parse_ms, allow_hyphen_values = true)]
    ttl: u64,
    /// How long to stand in line if it is held; without this: not at all
    #[arg(long, value_name = "DURATION", value_parser = parse_ms, allow_hyphen_values = true)]
    wait: Option<u64>,
    /// What the lease serves: answers 'what was interrupted?'
    #[arg(long)]
    task: Option<Task>,
    /// Who holds it [default: user@host/pid of the calling process]
    #[arg(long)]
    owner: Option<Owner>,
    #[command(flatten)]
    create: Create,
}

/// What a script needs to know.
#[derive(Debug, Serialize)]
struct Taken {
    key: Key,
    token: u64,
    ttl_ms: u64,
    remaining_ms: u64,
    hold: String,
}

impl Args {
    pub(crate) async fn run(self, context: &Context) -> Outcome {
        // What no store accepts makes no store either.
        ttl::check(self.ttl, TTL_MS_MIN)?;
        let store = context.open_at(&context.place()?.for_acting(self.create.create)?)?;
        store.closing(async |store| self.acquire(context, store).await).await
    }

    async fn acquire(self, context: &Context, store: &Store) -> Outcome {
        let owner = self.owner.map_or_else(identity::caller, Ok)?;
        let library = store.library().await?;
        let explain = |error| Failure::of_library(error, &store.name);
        let mut builder = library
            .lease_any(std::iter::once(&self.key).chain(&self.any))
            .owner(owner)
            .ttl(Duration::from_millis(self.ttl));
        if let Some(task) = &self.task {
            builder = builder.task(task);
        }
        let acquired = match self.wait {
            Some(wait_ms) => builder.wait(Duration::from_millis(wait_ms)).acquire().await,
            None => builder.try_acquire().await,
        };
        let lease = match acquired {
            Ok(lease) => lease,
            Err(error) => {
                // A grant that may have come too late is given back before the store is closed.
                library.close().await;
                return Err(explain(error));
            }
        };
        let remaining_ms = lease.deadline_ms().saturating_sub(boot_ms());
        let hold = lease.detach().map_err(explain)?;
        let taken = Taken {
            key: hold.key.clone(),
            token: hold.token.get(),
            ttl_ms: self.ttl,
            remaining_ms,
            hold: hold.hold_id.reveal(),
        };
        if let Err(failure) = print(context, &taken) {
            // Nothing has seen the hold id, so nothing could give the lease back.
            let _ = store.leases.release(&store.call, vec![hold]).await;
            return Err(failure);
        }
        Ok(DONE)
    }
}

fn print(context: &Context, taken: &Taken) -> Result<(), Failure> {
    if context.output.format == Format::Env {
        return context.output.text(&shell_lines(taken));
    }
    context.output.one(taken, |palette| {
        let Taken { key, token, ttl_ms, remaining_ms, hold } = taken;
        facts(
            palette,
            [
                ("key", key.to_string()),
                ("token", token.to_string()),
                ("ttl", show_exact_ms(*ttl_ms)),
                ("remaining", show_ms(*remaining_ms)),
                ("hold id", hold.clone()),
            ],
        )
    })
}

/// Lines for `eval`.
fn shell_lines(taken: &Taken) -> String {
    shell::exports(&[
        (KEY_VARIABLE, taken.key.as_str()),
        (TOKEN_VARIABLE, &taken.token.to_string()),
        (HOLD_VARIABLE, &taken.hold),
    ])
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn no_key_makes_a_shell_do_anything_but_assign() {
        for key in ["k", "it's", "$(exit 7)`exit 8`", "a'; exit 9; '", "日本 \" \\ *"] {
            let taken = Taken {
                key: Key::new(key).unwrap(),
                token: 7,
                ttl_ms: 1,
                remaining_ms: 1,
                hold: "ab".repeat(16),
            };
            let script = format!("{}printf %s \"$FENCEHOLD_KEY $FENCEHOLD_TOKEN\"", shell_lines(&taken));
            let output = Command::new("sh").arg("-c").arg(script).output().unwrap();
            assert!(output.status.success());
            assert_eq!(String::from_utf8(output.stdout).unwrap(), format!("{key} 7"));
        }
    }
}
