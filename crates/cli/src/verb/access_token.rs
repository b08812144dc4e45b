//! `fencehold access-token …`: who may use a server.

use fencehold_contract::clock::{Clock as _, SystemClock};
use fencehold_contract::http::Role;
use fencehold_contract::http::access::{
    AccessTokenList, AccessTokenView, CreateAccessTokenRequest, RevokedAccessToken, TOKEN_NAME_BYTES_MAX,
};
use fencehold_core::wire::Moment;
use fencehold_server::access::{Bearer, Scope, Scopes, TokenId};
use serde::Serialize;

use crate::context::Context;
use crate::duration::{parse_ms, show_ms};
use crate::failure::Failure;
use crate::identity;
use crate::output::note;
use crate::server_files::ServerFileArgs;
use crate::show::{Cell, Colour, Table, or_dash, utc};
use crate::verb::{VerbResult, verbs};

verbs! {
    /// Create, list and revoke the access tokens of a server
    #[command(before_help = "\
fencehold access-token create worker-7 --scope job:work
fencehold access-token ls
fencehold access-token revoke 4f1d2c3b5a69")]
    Verb:
    Create = CreateArgs,
    Ls = LsArgs,
    Revoke = RevokeArgs,
}

/// Create an access token; it is printed once, and only its hash is kept
#[derive(Debug, clap::Args)]
#[command(before_help = "\
# For a worker in the namespace team-a, for 90 days
fencehold access-token create worker-7 --namespace team-a \\
  --scope job:work,lease:write --expires-in 90d

# By role: reader, worker, operator or admin
fencehold access-token create ops --role operator --all-namespaces

# Through the server, with an access token of scope admin in
# FENCEHOLD_ACCESS_TOKEN
fencehold access-token create worker-8 --role worker \\
  --store https://leases.example.org")]
pub(crate) struct CreateArgs {
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

impl CreateArgs {
    pub(crate) async fn run(self, context: &Context) -> VerbResult {
        let odd = self.name.is_empty()
            || self.name.len() > TOKEN_NAME_BYTES_MAX
            || self.name.chars().any(char::is_control);
        if odd {
            return Err(Failure::usage(format!(
                "the name must have 1 to {TOKEN_NAME_BYTES_MAX} bytes, and no control characters"
            )));
        }
        let of_role = self.role.map(Role::scopes).unwrap_or_default();
        let scopes: Scopes = self.scopes.iter().chain(of_role).copied().collect();
        let mut bits = [0; 38];
        getrandom::fill(&mut bits)
            .map_err(|error| Failure::failed(format!("no randomness can be had: {error}")))?;
        let bearer = Bearer::from_random(bits);
        let request = CreateAccessTokenRequest {
            id: bearer.id.to_string(),
            secret_sha256: bearer.hash().to_hex(),
            name: self.name,
            namespace: (!self.all_namespaces).then(|| context.namespace.clone()),
            scopes: scopes.iter().collect(),
            expires_in_ms: self.expires_in,
            by: Some(identity::person()?.to_string()),
        };
        let view = self.server_files.tokens(context)?.create(&bearer, request).await?;
        let created = Created { view, access_token: bearer.reveal() };
        context.output.one(&created, |_| created.access_token.clone())?;
        let AccessTokenView { id, name, namespace, expires_at, .. } = &created.view;
        let ends = expires_at
            .map_or_else(|| "never expires".to_owned(), |end| format!("expires {}", utc(end.wall_ms)));
        let whose = namespace
            .as_ref()
            .map_or_else(|| "all namespaces".to_owned(), |name| format!("the namespace {name}"));
        note(&format!("access token {id} ({name}): scope {scopes}, for {whose}, {ends}; shown only once"));
        Ok(())
    }
}

/// List access tokens: namespace, scopes, expiry, last use
#[derive(Debug, clap::Args)]
#[command(before_help = "\
fencehold access-token ls
fencehold access-token ls --include-inactive -o json")]
pub(crate) struct LsArgs {
    /// List revoked and expired ones too
    #[arg(long)]
    include_inactive: bool,
    #[command(flatten)]
    server_files: ServerFileArgs,
}

impl LsArgs {
    pub(crate) async fn run(self, context: &Context) -> VerbResult {
        let now_ms = SystemClock.now().wall_ms;
        let mut tokens = self.server_files.tokens(context)?.list().await?;
        tokens.retain(|token| self.include_inactive || state(token, now_ms).0 == "valid");
        let list = AccessTokenList { access_tokens: tokens };
        context
            .output
            .list(&list, &list.access_tokens, "no access tokens", |tokens| table(tokens, now_ms))
    }
}

fn table(tokens: &[AccessTokenView], now_ms: u64) -> Table {
    let header = ["ID", "NAME", "NAMESPACE", "SCOPES", "EXPIRES", "LAST USED", "STATE"];
    let ago = |moment: Moment| format!("{} ago", show_ms(now_ms.saturating_sub(moment.wall_ms)));
    Table::of(header, tokens, |token| {
        let (state, colour) = state(token, now_ms);
        let scopes: Scopes = token.scopes.iter().copied().collect();
        [
            token.id.as_str().into(),
            token.name.as_str().into(),
            token.namespace.as_ref().map_or("*", |name| name.as_str()).into(),
            scopes.to_string().replace(',', ", ").into(),
            or_dash(token.expires_at.map(|moment| utc(moment.wall_ms))),
            or_dash(token.last_used_at.map(ago)),
            Cell::from(state).in_colour(colour),
        ]
    })
}

fn state(token: &AccessTokenView, now_ms: u64) -> (&'static str, Colour) {
    if token.revoked_at.is_some() {
        ("revoked", Colour::Bad)
    } else if token.expires_at.is_some_and(|end| end.wall_ms <= now_ms) {
        ("expired", Colour::Faint)
    } else {
        ("valid", Colour::Good)
    }
}

/// Revoke an access token; running servers refuse it within a second
#[derive(Debug, clap::Args)]
#[command(before_help = "\
fencehold access-token revoke 4f1d2c3b5a69
fencehold access-token revoke 4f1d2c3b5a69 --reason 'found in a log'")]
pub(crate) struct RevokeArgs {
    /// Its id, as `access-token ls` shows it
    id: String,
    /// Why; kept in the audit
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
    #[command(flatten)]
    server_files: ServerFileArgs,
}

impl RevokeArgs {
    pub(crate) async fn run(self, context: &Context) -> VerbResult {
        let id = TokenId::parse(self.id.trim())?;
        let by = identity::person()?.to_string();
        let revoked = self.server_files.tokens(context)?.revoke(id, by, self.reason).await?;
        context.output.one(&RevokedAccessToken { revoked }, |_| String::new())?;
        note(&if revoked {
            format!("access token {id} is revoked; running servers refuse it within a second")
        } else {
            format!("access token {id} was revoked before")
        });
        Ok(())
    }
}
