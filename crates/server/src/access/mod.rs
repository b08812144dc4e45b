//! Who asks, and what they may do. The one place where that is decided: before anything else of a request is looked at.

use fencehold_api::{Kind, NAMESPACE_HEADER, Problem, Scope, Spec};
use fencehold_core::Namespace;
use http::request::Parts;

/// Whoever asks: in which namespace, and what it may do there.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Caller {
    /// Whose world.
    pub namespace: Namespace,
    /// What it may do.
    pub scopes: Vec<Scope>,
}

/// How callers are told apart.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub enum Access {
    /// Everybody who can reach the server may do everything, in whatever namespace they name.
    #[default]
    Open,
}

impl Access {
    /// The caller of a request, if it may ask for this.
    pub(crate) fn admit(&self, parts: &Parts, spec: &Spec) -> Result<Caller, Problem> {
        let namespace = namespace_of(parts)?;
        let Access::Open = self;
        let caller = Caller { namespace, scopes: vec![Scope::Admin] };
        if caller.scopes.contains(&Scope::Admin) || caller.scopes.contains(&spec.scope) {
            return Ok(caller);
        }
        let detail =
            format!("this needs the scope {}; ask whoever made the token for one that has it", spec.scope);
        Err(Problem::new(Kind::Forbidden, detail))
    }
}

/// The namespace that a request names; `default` if it names none.
fn namespace_of(parts: &Parts) -> Result<Namespace, Problem> {
    let Some(value) = parts.headers.get(NAMESPACE_HEADER) else { return Ok(Namespace::default()) };
    let bad = |why: String| {
        let mut problem = Problem::new(Kind::BadInput, format!("namespace {why}"));
        (problem.what, problem.why) = (Some("namespace".to_owned()), Some(why));
        problem
    };
    let text = value.to_str().map_err(|_| bad("is not plain text".to_owned()))?;
    Namespace::new(text).map_err(|error| bad(error.problem))
}
