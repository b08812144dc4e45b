//! `fencehold token create`: somebody more may use the server.

use fencehold_contract::http::Role;
use fencehold_contract::http::access::TOKEN_NAME_BYTES_MAX;
use fencehold_server::access::{Bearer, Scope, Scopes};
use serde::Serialize;

use crate::context::Context;
use crate::duration::parse_ms;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::show::utc;
use crate::tokens::Wanted;
use crate::verb::{DONE, Outcome};
use crate::whereabouts::Whereabouts;

const EXAMPLES: &str = "\
Examples:
  # For a worker in the namespace team-a, for 90 days
  fencehold --namespace team-a token create worker-7 --scope job:work,lease:write --expires 90d

  # By role: viewer, worker, operator or admin
  fencehold token create ops --role operator --all-namespaces
  fencehold token create prometheus --scope metrics:read --all-namespaces

  # Through the server, by one who has an admin's token
  FENCEHOLD_API_TOKEN=… fencehold --store https://leases.example.org token create worker-8 --role worker
";

/// Make a token. It is printed once, and only its hash is kept
#[derive(Debug, clap::Args)]
#[command(before_help = EXAMPLES)]
pub(crate) struct Args {
    /// What people call it
    name: String,
    /// What it allows: lease:read, lease:write, lease:revoke, job:enqueue, job:work, job:admin, job:read, job:payload,
    /// metrics:read, admin
    #[arg(long = "scope", value_name = "SCOPE", value_delimiter = ',', required_unless_present = "role")]
    scopes: Vec<Scope>,
    /// The scopes of a role: viewer, worker, operator, admin
    #[arg(long, value_name = "ROLE")]
    role: Option<Role>,
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
    pub(crate) async fn run(self, context: &Context) -> Outcome {
        let odd = self.name.is_empty()
            || self.name.len() > TOKEN_NAME_BYTES_MAX
            || self.name.chars().any(char::is_control);
        if odd {
            let what =
                format!("the name must have 1 to {TOKEN_NAME_BYTES_MAX} bytes, and no control characters");
            return Err(Failure::new(Exit::Usage, what));
        }
        let of_role = self.role.map(Role::scopes).unwrap_or_default();
        let scopes: Scopes = self.scopes.iter().chain(of_role).copied().collect();
        let namespace = (!self.all_namespaces).then(|| context.namespace.clone());
        let mut bits = [0; 38];
        getrandom::fill(&mut bits)
            .map_err(|error| Failure::new(Exit::Failed, format!("no randomness can be had: {error}")))?;
        let bearer = Bearer::from_random(bits);
        let wanted = Wanted {
            name: self.name.clone(),
            namespace: namespace.clone(),
            scopes: scopes.iter().collect(),
            expires_in_ms: self.expires,
            by: crate::identity::person()?.to_string(),
        };
        let expires_wall_ms = self.whereabouts.tokens(context)?.create(&bearer, wanted).await?;
        let namespace = namespace.as_ref().map(fencehold_core::Namespace::as_str);
        let created = Created {
            id: bearer.id.to_string(),
            token: bearer.reveal(),
            name: &self.name,
            namespace,
            scopes: scopes.to_string(),
            expires_wall_ms,
        };
        context.output.one(&created, |_| created.token.clone())?;
        let ends =
            expires_wall_ms.map_or_else(|| "never expires".to_owned(), |end| format!("expires {}", utc(end)));
        let whose =
            namespace.map_or_else(|| "every namespace".to_owned(), |name| format!("the namespace {name}"));
        crate::output::note(&format!(
            "token {} ({}): scope {scopes}, for {whose}, {ends}; shown only once",
            bearer.id, self.name
        ));
        Ok(DONE)
    }
}
