//! The names that an open server answers to.
//!
//! A server that asks for no token trusts every program on its machine, and a browser is one of them. A page of another
//! site reaches the server in two ways: by a name of its own that DNS suddenly gives the address of this machine (the
//! request's `Host` is that name), or by a request across origins (its `Origin` is another one). An address as the host
//! is no such name: the page itself would have to come from there.

use std::net::{Ipv4Addr, Ipv6Addr};

use http::request::Parts;
use http::uri::Authority;
use http::{HeaderMap, header};

/// Whether a request to an open server came under a name of this machine, and from no other site. `Err` says what is
/// foreign about it.
pub(super) fn check(parts: &Parts, configured: &[String]) -> Result<(), String> {
    let host = match parts.uri.authority() {
        Some(authority) => Some(authority.as_str()),
        None => only(&parts.headers, header::HOST)?,
    };
    let is_configured = |name: &str| configured.iter().any(|known| known.eq_ignore_ascii_case(name));
    let Some(host) = host else {
        // No browser leaves it out.
        return Ok(());
    };
    let name = name_of(host).ok_or_else(|| format!("the host {host:?} is no name"))?;
    if !is_local(&name) && !is_configured(&name) {
        return Err(format!("the host {name} is not a name of this machine"));
    }
    let Some(origin) = only(&parts.headers, header::ORIGIN)? else { return Ok(()) };
    let from = origin.split_once("://").map_or("", |(_, authority)| authority);
    let is_same = from.eq_ignore_ascii_case(host);
    if is_same || name_of(from).is_some_and(|name| is_configured(&name)) {
        return Ok(());
    }
    Err(format!("a page of another origin ({origin:?}) sent it"))
}

/// The value of a header that may be there once.
fn only(headers: &HeaderMap, name: header::HeaderName) -> Result<Option<&str>, String> {
    let mut values = headers.get_all(&name).iter();
    let Some(value) = values.next() else { return Ok(None) };
    let odd = || format!("its header {name} is not one plain text");
    if values.next().is_some() {
        return Err(odd());
    }
    value.to_str().map(Some).map_err(|_| odd())
}

/// The name or address in `HOST[:PORT]`.
fn name_of(host: &str) -> Option<String> {
    let authority: Authority = host.parse().ok()?;
    let name = authority.host().trim_end_matches('.');
    (!name.is_empty()).then(|| name.to_owned())
}

/// Whether DNS can give this name to no other host: it is an address, or `localhost`, or below it (RFC 6761).
fn is_local(name: &str) -> bool {
    let is_v6 = name
        .strip_prefix('[')
        .and_then(|name| name.strip_suffix(']'))
        .is_some_and(|name| name.parse::<Ipv6Addr>().is_ok());
    let lower = name.to_ascii_lowercase();
    is_v6 || name.parse::<Ipv4Addr>().is_ok() || lower == "localhost" || lower.ends_with(".localhost")
}
