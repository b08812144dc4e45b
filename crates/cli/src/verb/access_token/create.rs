//! `fencehold access-token create`.

use fencehold_contract::http::Role;
use fencehold_contract::http::access::{AccessTokenView, TOKEN_NAME_BYTES_MAX};
use fencehold_server::access::{Bearer, Scope, Scopes};
use serde::Serialize;

use crate::access_tokens::NewAccessToken;
use crate::context::Context;
use crate::duration::parse_ms;
use crate::exit_code::ExitStatus;
use crate::failure::Failure;
use crate::server_files::ServerFileArgs;
use crate::show::utc;
use crate::verb::{DONE, VerbResult};

const EXAMPLES: &str = "\
Examples:
  # For a worker in the namespace team-a, for 90 days
  fencehold access-token create worker-7 --namespace team-a \\
    --scope job:work,lease:write --expires-in 90d

  # By role: reader, worker, operator or admin
  fencehold access-token create ops --role operator --all-namespaces

  # Through the server, with an access token of scope admin in
  # FENCEHOLD_ACCESS_TOKEN
  fencehold access-token create worker-8 --role worker \\
    --store https://leases.example.org
";

/// Create an access token; it is printed once, and only its hash is kept
#[derive(Debug, clap::Args)]
#[command(before_help = EXAMPLES)]
pub(crate) struct Args {
    /// Its name, for people
    name: String,
    /// What it allows: lease:read, lease:write, lease:revoke, job:enqueue, job:work, job:admin, job:read, job:payload,
    /// metrics:read, admin
    #[arg(long = "scope", value_name = "SCOPE", value_delimiter = ',', required_unless_present = "role")]
    scopes: Vec<Scope>,
    /// The scopes of a role: reader, worker, operator, admin
    #[arg(long, value_name = "ROLE")]
    role: Option<Role>,
    /// For all namespaces, not for one
    #[arg(long)]
    all_namespaces: bool,
    /// When it expires, from now: 12h, 90d [default: never]
    #[arg(long, value_name = "DURATION", value_parser = parse_ms)]
    expires_in: Option<u64>,
    #[command(flatten)]
    server_files: ServerFileArgs,
}

#[derive(Serialize)]
struct Created {
    #[serde(flatten)]
    view: AccessTokenView,
    access_token: String,
}

impl Args {
    pub(crate) async fn run(self, context: &Context) -> VerbResult {
        let odd = self.name.is_empty()
            || self.name.len() > TOKEN_NAME_BYTES_MAX
            || self.name.chars().any(char::is_control);
        if odd {
            let what =
                format!("the name must have 1 to {TOKEN_NAME_BYTES_MAX} bytes, and no control characters");
            return Err(Failure::new(ExitStatus::Usage, what));
        }
        let of_role = self.role.map(Role::scopes).unwrap_or_default();
        let scopes: Scopes = self.scopes.iter().chain(of_role).copied().collect();
        let mut bits = [0; 38];
        getrandom::fill(&mut bits).map_err(|error| {
            Failure::new(ExitStatus::Failed, format!("no randomness can be had: {error}"))
        })?;
        let bearer = Bearer::from_random(bits);
        let wanted = NewAccessToken {
            name: self.name,
            namespace: (!self.all_namespaces).then(|| context.namespace.clone()),
            scopes: scopes.iter().collect(),
            expires_in_ms: self.expires_in,
            by: crate::identity::person()?.to_string(),
        };
        let view = self.server_files.tokens(context)?.create(&bearer, wanted).await?;
        let created = Created { view, access_token: bearer.reveal() };
        context.output.one(&created, |_| created.access_token.clone())?;
        let AccessTokenView { id, name, namespace, expires_at, .. } = &created.view;
        let ends = expires_at
            .map_or_else(|| "never expires".to_owned(), |end| format!("expires {}", utc(end.wall_ms)));
        let whose = namespace
            .as_ref()
            .map_or_else(|| "all namespaces".to_owned(), |name| format!("the namespace {name}"));
        crate::output::note(&format!(
            "access token {id} ({name}): scope {scopes}, for {whose}, {ends}; shown only once"
        ));
        Ok(DONE)
    }
}
