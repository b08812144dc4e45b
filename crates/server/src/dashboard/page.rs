//! A browser's request, and what it is answered with.
//!
//! The one place where pages get data: [`PageRequest::call`] and [`PageRequest::context`] carry out operations of the HTTP API as the
//! caller, in the namespace that the URL names.

use std::sync::Arc;

use axum::body::Body;
use fencehold_contract::http::{
    HttpOperation, NAMESPACE_HEADER, OperationSpec, SingleOperation, StoreOperation, op,
};
use fencehold_contract::problem::{ErrorKind, Problem};
use fencehold_core::{BadInput, Namespace, Owner};
use http::HeaderValue;
use http::request::Parts;
use maud::{Markup, html};

use super::session::{self, Theme};
use super::shared::PageKey;
use crate::ServerInner;
use crate::access::{Caller, CallerIdentity};
use crate::http::dispatch::{RequestContext, call, has_content_type, read_body};
use crate::limit::MemoryShare;

/// How many rows a table of a page has.
pub(super) const ROWS_MAX: usize = 50;

/// A request that was let in.
pub(super) struct PageRequest {
    pub(super) server: Arc<ServerInner>,
    pub(super) caller: Caller,
    pub(super) namespace: Namespace,
    pub(super) theme: Theme,
    /// The moment of the request in wall time.
    pub(super) now_ms: u64,
    /// Of a view its query, of an action its form.
    pub(super) fields: Fields,
    /// What a form of this session carries.
    form_token: String,
    /// Whether the URL names the namespace; then links do, too.
    names_namespace: bool,
    parts: Parts,
    /// The memory of its form, until it is answered.
    share: Option<MemoryShare>,
}

/// What a page is answered with.
pub(super) enum PageResponse {
    /// This page.
    Page(Page),
    /// Go to this page, as it is after an action.
    Goto(String),
}

/// A page.
pub(super) struct Page {
    /// What it is called.
    pub(super) title: String,
    /// The entry of the navigation that it belongs to.
    pub(super) section: &'static str,
    /// Which events change it: those of keys that begin with this. `None`: it is not live.
    pub(super) live_prefix: Option<String>,
    pub(super) main: Markup,
}

impl From<Page> for PageResponse {
    fn from(page: Page) -> Self {
        PageResponse::Page(page)
    }
}

/// Names and values, as a query or a form has them. An empty value counts as missing: that is how a form sends a field that was left empty.
#[derive(Clone, Debug, Default)]
pub(super) struct Fields(Vec<(String, String)>);

impl Fields {
    pub(super) fn parse(text: &str) -> Self {
        let pairs: Vec<(String, String)> = serde_html_form::from_str(text).unwrap_or_default();
        Fields(pairs.into_iter().filter(|(_, value)| !value.is_empty()).collect())
    }

    pub(super) fn get(&self, name: &str) -> Option<&str> {
        self.all(name).next()
    }

    pub(super) fn all<'a>(&'a self, name: &str) -> impl Iterator<Item = &'a str> {
        self.0
            .iter()
            .filter(move |(known, _)| known == name)
            .map(|(_, value)| value.as_str())
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.get(name).is_some()
    }

    /// A value that is checked by its type. `Err` names the field.
    pub(super) fn read<T: std::str::FromStr>(&self, name: &'static str) -> Result<Option<T>, Problem>
    where
        T::Err: ToString,
    {
        let read = |text: &str| {
            text.parse()
                .map_err(|error: T::Err| Problem::from(BadInput::new(name, error.to_string())))
        };
        self.get(name).map(read).transpose()
    }

    /// The same where it must be there.
    pub(super) fn need<T: std::str::FromStr>(&self, name: &'static str) -> Result<T, Problem>
    where
        T::Err: ToString,
    {
        self.read(name)?.ok_or_else(|| BadInput::new(name, "is missing").into())
    }

    /// The pairs of these names.
    pub(super) fn only<'a>(&'a self, names: &[&str]) -> impl Iterator<Item = (&'a str, &'a str)> {
        let pairs = self.0.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        pairs.filter(move |(known, _)| names.contains(known))
    }

    /// Every pair but those of this name.
    pub(super) fn without<'a>(&'a self, name: &str) -> impl Iterator<Item = (&'a str, &'a str)> {
        let pairs = self.0.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        pairs.filter(move |(known, _)| *known != name)
    }
}

impl PageRequest {
    /// Lets a browser in: by its session, or by an access token in the usual header.
    pub(super) fn admit(server: Arc<ServerInner>, mut parts: Parts) -> Result<PageRequest, Problem> {
        session::apply(&mut parts);
        let fields = Fields::parse(parts.uri.query().unwrap_or_default());
        parts.headers.remove(NAMESPACE_HEADER);
        let named = fields.get("namespace");
        let names_namespace = named.is_some();
        if let Some(named) = named {
            let namespace = Namespace::new(named)?;
            let value = HeaderValue::from_str(namespace.as_str());
            let value = value.map_err(|_| BadInput::new("namespace", "is not plain text"))?;
            parts.headers.insert(NAMESPACE_HEADER, value);
        }
        let (caller, namespace) = server.admit(&parts, &op::GetStoreStatus::SPEC)?;
        let form_token = session::form_token(&server, &caller, &parts)?;
        let theme = Theme::of(&parts.headers);
        let now_ms = server.clock.now().wall_ms;
        Ok(PageRequest {
            server,
            caller,
            namespace,
            theme,
            now_ms,
            fields,
            form_token,
            names_namespace,
            parts,
            share: None,
        })
    }

    /// Reads the form of an action. `Err`: it does not come from a page of this session.
    pub(super) async fn with_form(mut self, body: Body) -> Result<PageRequest, Problem> {
        session::check_same_origin(&self.parts.headers)?;
        let (fields, share) = read_form(&self.server, &self.parts, body).await?;
        session::check_form_token(&self.form_token, fields.get("form_token"))?;
        self.fields = fields;
        self.share = Some(share);
        Ok(self)
    }

    /// The namespace and the caller for an operation. It is checked there, where it is done.
    pub(super) fn context<O: HttpOperation>(&self) -> Result<RequestContext, Problem> {
        self.context_of(&O::SPEC)
    }

    fn context_of(&self, spec: &OperationSpec) -> Result<RequestContext, Problem> {
        let caller = (self.caller.clone(), self.namespace.clone());
        RequestContext::new(Arc::clone(&self.server), caller, (spec.name, spec.scopes), &self.parts, None)
    }

    /// Carries out an operation.
    pub(super) async fn call<O: StoreOperation>(&self, request: O::Request) -> Result<O::Response, Problem> {
        call::<O>(self.context::<O>()?, request).await
    }

    /// Carries out an operation that is a batch of one.
    pub(super) async fn call_single<O: SingleOperation>(
        &self,
        request: O::Request,
    ) -> Result<O::Response, Problem> {
        let about = O::about(&request);
        let response = call::<O::Batch>(self.context::<O>()?, O::batch(request)).await?;
        O::only(response).map_err(|problem| problem.with(about))
    }

    /// Whether the caller has a scope for an operation: what it may not do is not offered. The operation itself checks again.
    pub(super) fn may<O: HttpOperation>(&self) -> bool {
        self.caller.is_at_home_in(&self.namespace)
            && O::SPEC.scopes.iter().any(|scope| self.caller.scopes.allow(*scope))
    }

    /// The path that was asked for.
    pub(super) fn path(&self) -> &str {
        self.parts.uri.path()
    }

    /// What a request has in common with others of the same page.
    pub(super) fn key(&self) -> PageKey {
        PageKey {
            who: self.caller.who.clone(),
            namespace: self.namespace.clone(),
            theme: self.theme,
            form_token: self.form_token.clone(),
            target: self.parts.uri.path_and_query().map(ToString::to_string).unwrap_or_default(),
        }
    }

    /// Whether the store keeps jobs.
    pub(super) fn has_jobs(&self) -> bool {
        self.server.store.capabilities().supports_jobs
    }

    /// A link to a page, in the same namespace.
    pub(super) fn href(&self, path: &str, query: &[(&str, &str)]) -> String {
        self.href_of(path, query.iter().copied())
    }

    /// The same, of pairs that come from elsewhere.
    pub(super) fn href_of<'a>(
        &'a self,
        path: &str,
        query: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> String {
        let mut pairs: Vec<(&str, &str)> = Vec::new();
        pairs.extend(query.into_iter().filter(|(name, _)| *name != "namespace"));
        pairs.extend(self.names_namespace.then_some(("namespace", self.namespace.as_str())));
        let query = serde_html_form::to_string(&pairs).unwrap_or_default();
        if query.is_empty() { path.to_owned() } else { format!("{path}?{query}") }
    }

    /// This page with another cursor.
    pub(super) fn next_page(&self, path: &str, cursor: u64) -> String {
        let cursor = cursor.to_string();
        self.href_of(path, self.fields.without("cursor").chain([("cursor", cursor.as_str())]))
    }

    /// What every form that changes something carries.
    pub(super) fn form_token(&self) -> Markup {
        html! { input type="hidden" name="form_token" value=(self.form_token); }
    }

    /// The field for who acts, where the access token does not say it.
    pub(super) fn by_field(&self) -> Markup {
        html! {
            @if self.caller.who == CallerIdentity::Anyone {
                label { "Your name" input name="by" required maxlength="128" autocomplete="name"; }
            }
        }
    }

    /// Who acts: the name of the access token, or what the form says.
    pub(super) fn by(&self) -> Result<Owner, Problem> {
        match &self.caller.who {
            CallerIdentity::Token { name, .. } => Ok(Owner::new(name)?),
            CallerIdentity::Anyone => self.fields.need("by"),
        }
    }

    /// `Err`: force was asked for without the mark that confirms it.
    pub(super) fn confirmed(&self) -> Result<(), Problem> {
        if self.fields.has("confirm") {
            return Ok(());
        }
        Err(Problem::new(
            ErrorKind::BadInput,
            "force needs a confirmation: go back and mark the box; nothing was done",
        ))
    }
}

/// Reads a form, within the limits of the server.
pub(super) async fn read_form(
    server: &ServerInner,
    parts: &Parts,
    body: Body,
) -> Result<(Fields, MemoryShare), Problem> {
    if !has_content_type(&parts.headers, "application/x-www-form-urlencoded") {
        return Err(BadInput::new("body", "must be a form of a page").into());
    }
    let body = read_body(server, &parts.headers, body).await?;
    let text = str::from_utf8(&body.bytes).map_err(|_| BadInput::new("body", "is not UTF-8"))?;
    Ok((Fields::parse(text), body.share))
}
