//! Access tokens: list, create, revoke. A new one is shown once, on the page that made it.

use std::sync::Arc;

use fencehold_contract::http::access::{
    AccessTokenView, CreateAccessTokenRequest, RevokeAccessTokenRequest, TOKEN_NAME_BYTES_MAX,
};
use fencehold_contract::http::{Scope, op};
use fencehold_contract::problem::Problem;
use fencehold_core::duration::parse_ms;
use fencehold_core::{BadInput, Namespace};
use maud::{Markup, html};

use super::page::{Page, PageRequest, PageResponse, ROWS_MAX};
use super::{layout, text};
use crate::access::Bearer;
use crate::random;

pub(super) async fn view(page: Arc<PageRequest>) -> Result<PageResponse, Problem> {
    let context = page.context::<op::ListAccessTokens>()?;
    let mut tokens = context.store.tokens(&context.call).await?.access_tokens;
    // Those in force first, the newest above.
    tokens.sort_by_key(|token| (token.revoked_at.is_some(), std::cmp::Reverse(token.created_at)));
    let more = tokens.len().saturating_sub(2 * ROWS_MAX);
    tokens.truncate(2 * ROWS_MAX);
    let main = html! {
        h1 { "Access tokens" }
        @if page.may::<op::CreateAccessToken>() { (create_form(&page)) }
        @if tokens.is_empty() {
            (layout::empty("There are no access tokens. With the first one, the server asks every caller for one.", Some("fencehold access-token create admin --role admin --all-namespaces")))
        } @else {
            (table(&page, &tokens))
            @if more > 0 { p class="muted small" { "and " (more) " more: " code class="copy" { "fencehold access-token ls" } } }
        }
    };
    Ok(Page { title: "Access tokens".to_owned(), section: "Access tokens", live_prefix: None, main }.into())
}

fn create_form(page: &PageRequest) -> Markup {
    html! {
        details class="act" id="create" {
            summary { "Create…" }
            form action=(page.href("create-access-token", &[])) method="post" class="stack" {
                (page.form_token())
                (page.by_field())
                label { "Name" input name="name" required maxlength=(TOKEN_NAME_BYTES_MAX) placeholder="worker-7"; }
                label { "Namespace" input name="for_namespace" maxlength="64" value=(page.namespace) placeholder="empty: every namespace"; }
                label { "Expires in" input name="expires" placeholder="90d; empty: never"; }
                fieldset {
                    legend { "Scopes" }
                    div class="scopes" {
                        @for scope in Scope::ALL {
                            label class="check" { input type="checkbox" name="scope" value=(scope.name()); code { (scope.name()) } }
                        }
                    }
                }
                button class="primary" { "Create" }
            }
        }
    }
}

fn table(page: &PageRequest, tokens: &[AccessTokenView]) -> Markup {
    let moment = |at: Option<fencehold_core::wire::Moment>, without: &str| {
        html! {
            @match at {
                Some(at) => (text::moment(page.now_ms, at.wall_ms)),
                None => span class="muted" { (without) },
            }
        }
    };
    html! {
        div class="scroll" { table class="list stacked" {
            thead { tr { th { "id" } th { "name" } th { "namespace" } th { "scopes" } th { "created" } th { "last used" } th { "expires" } th { span class="visually-hidden" { "change" } } } }
            tbody {
                @for token in tokens {
                    tr {
                        td class="mono" { (token.id) }
                        td { (text::cell(&token.name)) }
                        td data-label="namespace " { @match &token.namespace { Some(namespace) => (text::cell(namespace.as_str())), None => span class="muted" { "every one" } } }
                        td class="long" { @for scope in &token.scopes { code { (scope.name()) } " " } }
                        td data-label="created " { (moment(Some(token.created_at), "")) " " span class="muted" { "by " (text::cell(&token.created_by)) } }
                        td data-label="last used " { (moment(token.last_used_at, "never")) }
                        td data-label="expires " { (moment(token.expires_at, "never")) }
                        td {
                            @if let Some(at) = token.revoked_at {
                                (text::badge("revoked", "revoked")) " " (text::moment(page.now_ms, at.wall_ms))
                            } @else if page.may::<op::RevokeAccessToken>() { (revoke_form(page, token)) }
                        }
                    }
                }
            }
        } }
    }
}

fn revoke_form(page: &PageRequest, token: &AccessTokenView) -> Markup {
    html! {
        details class="act small" id={ "revoke-" (token.id) } {
            summary { "Revoke…" }
            form action=(page.href("revoke-access-token", &[])) method="post" class="stack" {
                p { "Programs and sessions with this access token are refused at once." }
                (page.form_token())
                input type="hidden" name="id" value=(token.id);
                (page.by_field())
                label { "Reason" input name="reason" required maxlength="200"; }
                label class="check" { input type="checkbox" name="confirm" value="yes" required; "Revoke it for good" }
                button class="danger" { "Revoke" }
            }
        }
    }
}

/// Makes a token and shows it. It is in no URL, and no page shows it again.
pub(super) async fn create(page: Arc<PageRequest>) -> Result<PageResponse, Problem> {
    let fields = &page.fields;
    let scopes: Vec<Scope> = fields
        .all("scope")
        .map(|name| name.parse().map_err(|problem: String| BadInput::new("scope", problem)))
        .collect::<Result<_, _>>()?;
    let expires = fields.get("expires").map(parse_ms).transpose();
    let bearer = Bearer::from_random(random()?);
    let request = CreateAccessTokenRequest {
        id: bearer.id.to_string(),
        secret_sha256: bearer.hash().to_hex(),
        name: fields.need("name")?,
        namespace: fields.read::<Namespace>("for_namespace")?,
        scopes,
        expires_in_ms: expires.map_err(|problem| BadInput::new("expires", problem))?,
        by: fields.get("by").map(str::to_owned),
    };
    let context = page.context::<op::CreateAccessToken>()?;
    let made = context.store.create_token(&context.call, request).await?;
    let main = html! {
        h1 { "Access token " (text::text(&made.name)) }
        div class="notice good" role="status" {
            strong { "Copy it now: it is not shown again." }
            p { code class="copy" { (bearer.reveal()) } }
        }
        p { a href=(page.href("access-tokens", &[])) { "All access tokens" } }
    };
    let title = "A new access token".to_owned();
    Ok(Page { title, section: "Access tokens", live_prefix: None, main }.into())
}

pub(super) async fn revoke(page: Arc<PageRequest>) -> Result<PageResponse, Problem> {
    page.confirmed()?;
    let request = RevokeAccessTokenRequest {
        access_token_id: page.fields.need("id")?,
        by: page.fields.get("by").map(str::to_owned),
        reason: Some(page.fields.need("reason")?),
    };
    let context = page.context::<op::RevokeAccessToken>()?;
    context.store.revoke_token(&context.call, request).await?;
    Ok(PageResponse::Goto(page.href("access-tokens", &[])))
}
