//! What a command under a lease or a claim does not inherit: the token of access that this process uses. The command may be
//! anybody's, and its output goes into logs and results.

use std::ffi::OsString;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::store_choice::STORE_VARIABLE;

/// The variable with the token of access.
pub(crate) const ACCESS_TOKEN_VARIABLE: &str = "FENCEHOLD_ACCESS_TOKEN";
/// The flag that passes it on.
pub(crate) const PASS_TOKEN: &str = "--pass-access-token";

static PASSED: AtomicBool = AtomicBool::new(false);

/// Has the commands of this process inherit its token of access.
pub(crate) fn pass_token() {
    PASSED.store(true, Ordering::Relaxed);
}

/// What is taken out of a command's environment.
pub(super) fn withheld() -> Vec<(&'static str, Option<OsString>)> {
    if PASSED.load(Ordering::Relaxed) {
        return Vec::new();
    }
    let mut withheld = vec![(ACCESS_TOKEN_VARIABLE, None)];
    let url = std::env::var(STORE_VARIABLE).ok().and_then(|url| without_token(&url));
    withheld.extend(url.map(|url| (STORE_VARIABLE, Some(url.into()))));
    withheld
}

/// The URL of a server without the token in it; `None`: there is none in it.
fn without_token(url: &str) -> Option<String> {
    let (scheme, rest) = url.split_once("://").filter(|(scheme, _)| ["http", "https"].contains(scheme))?;
    let (authority, path) = rest.find('/').map_or((rest, ""), |at| rest.split_at(at));
    let (_, hosts) = authority.rsplit_once('@')?;
    Some(format!("{scheme}://{hosts}{path}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_in_the_url_of_a_server_is_taken_out_and_nothing_else_is() {
        assert_eq!(without_token("https://s3cr3t@a,b:1/p?ca=x@y").as_deref(), Some("https://a,b:1/p?ca=x@y"));
        assert_eq!(without_token("http://a:1/p@q"), None);
        assert_eq!(without_token("postgres://u:p@h/db"), None);
    }
}
