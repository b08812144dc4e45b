//! `fencehold lease acquire`: a lease for a script, which renews it itself.

use std::time::Duration;

use fencehold_contract::AcquiredLease;
use fencehold_core::lease::Grant;
use fencehold_core::limits::TTL_MS_MIN;
use fencehold_core::{Key, Owner, Task, ttl};

use crate::context::{Context, CreateStore, OpenStore};
use crate::duration::{parse_ms, show_ms};
use crate::failure::Failure;
use crate::hold_id::{HOLD_VARIABLE, KEY_VARIABLE, TOKEN_VARIABLE, WithHoldId};
use crate::output::Format;
use crate::process::boot_ms;
use crate::show::facts;
use crate::verb::VerbResult;
use crate::{identity, shell};

/// Acquire a lease and print its token and hold id
#[derive(Debug, clap::Args)]
#[command(before_help = "\
# Acquire a lease, do something, release it
vars=$(fencehold lease acquire reports/daily -o env) || exit
eval \"$vars\"
./step-one && fencehold lease renew reports/daily && ./step-two
fencehold lease release reports/daily

# Any one of three
fencehold lease acquire gpu/0 --any-of gpu/1 --any-of gpu/2 --wait 10m")]
#[command(after_help = "\
The lease ends after its ttl unless you renew it. To hold it for one command, `fencehold run` is simpler and safer. \
The hold id is a secret: it is printed once, here, and lets its bearer end the lease.")]
pub(crate) struct Args {
    /// The key to hold
    #[arg(value_name = "KEY")]
    key: Key,
    /// Another key that will do: the first free one is taken (repeatable)
    #[arg(long, value_name = "KEY")]
    any_of: Vec<Key>,
    /// How long it lasts unless it is renewed
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = parse_ms, allow_hyphen_values = true)]
    ttl: u64,
    /// How long to wait in line if it is held [default: not at all]
    #[arg(long, value_name = "DURATION", value_parser = parse_ms, allow_hyphen_values = true)]
    wait: Option<u64>,
    /// What the lease is for, as in run-42
    #[arg(long)]
    task: Option<Task>,
    /// Who holds it [default: user@host/pid of the calling process]
    #[arg(long)]
    owner: Option<Owner>,
    #[command(flatten)]
    create: CreateStore,
}

impl Args {
    pub(crate) async fn run(self, context: &Context) -> VerbResult {
        // Validate before creating the store.
        ttl::check(self.ttl, TTL_MS_MIN)?;
        let store = context.open_in_any_format(self.create)?;
        store.closing(async |store| self.acquire(context, store).await).await
    }

    async fn acquire(self, context: &Context, store: &OpenStore) -> VerbResult {
        let owner = self.owner.map_or_else(identity::caller, Ok)?;
        let library = store.library().await?;
        let explain = |error| Failure::of_library(error, &store.name);
        let mut builder = library
            .lease_any_of(std::iter::once(&self.key).chain(&self.any_of))
            .owner(owner)
            .ttl(Duration::from_millis(self.ttl));
        if let Some(task) = &self.task {
            builder = builder.task(task);
        }
        let began_ms = boot_ms();
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
        let waited_ms = self.wait.map_or(0, |_| boot_ms().saturating_sub(began_ms));
        let grant = Grant { token: hold.token, remaining_ms, resumed: false };
        let lease = AcquiredLease { key: hold.key.clone(), grant, waited_ms };
        let taken = WithHoldId { granted: lease, hold_id: hold.hold_id.reveal() };
        if let Err(failure) = print(context, &taken) {
            // Nothing has seen the hold id, so nothing could give the lease back.
            let _ = store.leases.release(&store.call, vec![hold]).await;
            return Err(failure);
        }
        Ok(())
    }
}

fn print(context: &Context, taken: &WithHoldId<AcquiredLease>) -> Result<(), Failure> {
    if context.output.format == Format::Env {
        return context.output.text(&shell_lines(taken));
    }
    let AcquiredLease { key, grant, .. } = &taken.granted;
    let lines = [
        ("key", key.to_string()),
        ("token", grant.token.to_string()),
        ("left", show_ms(grant.remaining_ms)),
        ("hold id", taken.hold_id.clone()),
    ];
    context.output.one(taken, |style| facts(style, lines))
}

/// Lines for `eval`.
fn shell_lines(taken: &WithHoldId<AcquiredLease>) -> String {
    shell::exports(&[
        (KEY_VARIABLE, taken.granted.key.as_str()),
        (TOKEN_VARIABLE, &taken.granted.grant.token.to_string()),
        (HOLD_VARIABLE, &taken.hold_id),
    ])
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use fencehold_core::Token;

    use super::*;

    #[test]
    fn no_key_makes_a_shell_do_anything_but_assign() {
        for key in ["k", "it's", "$(exit 7)`exit 8`", "a'; exit 9; '", "日本 \" \\ *"] {
            let grant = Grant { token: Token::new(7), remaining_ms: 1, resumed: false };
            let lease = AcquiredLease { key: Key::new(key).unwrap(), grant, waited_ms: 0 };
            let taken = WithHoldId { granted: lease, hold_id: "ab".repeat(16) };
            let script = format!("{}printf %s \"$FENCEHOLD_KEY $FENCEHOLD_TOKEN\"", shell_lines(&taken));
            let output = Command::new("sh").arg("-c").arg(script).output().unwrap();
            assert!(output.status.success());
            assert_eq!(String::from_utf8(output.stdout).unwrap(), format!("{key} 7"));
        }
    }
}
