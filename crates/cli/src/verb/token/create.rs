//! `fencehold token create`: somebody more may use the server.

use fencehold_server::access::{Bearer, NewToken, Scope, Scopes};
use fencehold_store::clock::{Clock as _, SystemClock};
use serde::Serialize;

use crate::context::Context;
use crate::duration::parse_ms;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::show::utc;
use crate::verb::{DONE, Outcome};
use crate::whereabouts::{Whereabouts, unusable};

/// Longest name of a token, in bytes.
const NAME_BYTES_MAX: usize = 128;

const EXAMPLES: &str = "\
Examples:
  # For a worker in the namespace team-a, for 90 days
  fencehold --namespace team-a token create worker-7 --scope job:work,lease:write --expires 90d

  # For an operator, and for Prometheus: everything, everywhere
  fencehold token create ops --scope admin --all-namespaces
";

/// Make a token. It is printed once, and only its hash is kept
#[derive(Debug, clap::Args)]
#[command(before_help = EXAMPLES)]
pub(crate) struct Args {
    /// What people call it
    name: String,
    /// What it may be used for: lease:read, lease:write, lease:revoke, job:enqueue, job:work, job:admin, admin
    #[arg(long = "scope", value_name = "SCOPE", value_delimiter = ',', required = true)]
    scopes: Vec<Scope>,
    /// For every namespace, not for one
    #[arg(long)]
    all_namespaces: bool,
    /// When it ends, from now: 12h, 90d
    #[arg(long, value_name = "TIME", value_parser = parse_ms)]
    expires: Option<u64>,
    #[command(flatten)]
    whereabouts: Whereabouts,
}

#[derive(Serialize)]
struct Created<'a> {
    id: String,
    token: String,
    name: &'a str,
    namespace: Option<&'a str>,
    scopes: String,
    expires_wall_ms: Option<u64>,
}

impl Args {
    #[expect(clippy::unused_async, reason = "every verb is called alike")]
    pub(crate) async fn run(self, context: &Context) -> Outcome {
        let odd = self.name.is_empty()
            || self.name.len() > NAME_BYTES_MAX
            || self.name.chars().any(char::is_control);
        if odd {
            let what = format!("the name must have 1 to {NAME_BYTES_MAX} bytes, and no control characters");
            return Err(Failure::new(Exit::Usage, what));
        }
        let scopes: Scopes = self.scopes.into_iter().collect();
        let now_wall_ms = SystemClock.now().wall_ms;
        let new = NewToken {
            name: self.name,
            namespace: (!self.all_namespaces).then(|| context.namespace.clone()),
            scopes,
            created_by: crate::identity::person()?.to_string(),
            expires_wall_ms: self.expires.map(|ms| now_wall_ms.saturating_add(ms)),
        };
        let mut bits = [0; 38];
        getrandom::fill(&mut bits)
            .map_err(|error| Failure::new(Exit::Failed, format!("no randomness can be had: {error}")))?;
        let bearer = Bearer::from_random(bits);
        let mut book = self.whereabouts.book(context)?;
        book.create(&bearer, &new, "this machine", now_wall_ms)
            .map_err(|error| unusable(&error))?;
        let namespace = new.namespace.as_ref().map(fencehold_core::Namespace::as_str);
        let created = Created {
            id: bearer.id.to_string(),
            token: bearer.reveal(),
            name: &new.name,
            namespace,
            scopes: new.scopes.to_string(),
            expires_wall_ms: new.expires_wall_ms,
        };
        context.output.one(&created, |_| created.token.clone())?;
        let ends = new
            .expires_wall_ms
            .map_or_else(|| "has no end".to_owned(), |end| format!("ends {}", utc(end)));
        let whose =
            namespace.map_or_else(|| "every namespace".to_owned(), |name| format!("the namespace {name}"));
        crate::output::note(&format!(
            "token {} ({}) is for {whose}, may {}, and {ends}; it is not shown again",
            bearer.id, new.name, new.scopes
        ));
        Ok(DONE)
    }
}
