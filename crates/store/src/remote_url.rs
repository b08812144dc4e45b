//! The URL of a Fencehold server.

use std::fmt;
use std::path::PathBuf;

use fencehold_core::BadInput;

/// `http(s)://[TOKEN@]HOST[:PORT][/PATH][?ca=FILE]`
///
/// Without a token here, that of the environment is shown to the server (`FENCEHOLD_API_TOKEN`), if there is one. Prints
/// without its token.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct RemoteUrl {
    /// Scheme, host and path, without a slash at the end: what every request's path follows.
    pub base: String,
    pub(crate) token: Option<String>,
    /// The authority that signed the server's certificate, in PEM format; `None`: those that the system trusts.
    pub ca: Option<PathBuf>,
}

impl RemoteUrl {
    /// Reads what follows the scheme. Errors repeat nothing of it that could be a token.
    pub(crate) fn parse(secure: bool, place: &str, options: Option<&str>) -> Result<Self, BadInput> {
        let bad = |problem: &str| BadInput::new("store URL", problem);
        let place = place.strip_prefix("//").unwrap_or_default();
        let (authority, path) = place.split_once('/').unwrap_or((place, ""));
        let (token, host) = match authority.rsplit_once('@') {
            Some((token, host)) => (Some(token.trim_start_matches(':')), host),
            None => (None, authority),
        };
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_' | ':' | '[' | ']');
        if host.is_empty() || !host.chars().all(plain) {
            return Err(bad("names no host; it looks like http://HOST:7117"));
        }
        if token.is_some_and(|token| token.is_empty() || !token.chars().all(|c| c.is_ascii_graphic())) {
            return Err(bad(
                "has a token that is empty or not plain text; it looks like http://TOKEN@HOST:7117",
            ));
        }
        if !path.chars().all(|c| c.is_ascii_graphic() && c != '#') {
            return Err(bad("has a path that is not plain text"));
        }
        let ca = match options {
            None => None,
            Some(options) => match options.strip_prefix("ca=") {
                Some(file) if secure && !file.is_empty() && !file.contains('&') => Some(PathBuf::from(file)),
                _ => return Err(bad("has an option that is not ca=FILE (of https:)")),
            },
        };
        let scheme = if secure { "https" } else { "http" };
        let base = format!("{scheme}://{host}/{path}").trim_end_matches('/').to_owned();
        Ok(RemoteUrl { base, token: token.map(str::to_owned), ca })
    }
}

impl fmt::Display for RemoteUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.base)
    }
}

impl fmt::Debug for RemoteUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RemoteUrl")
            .field("base", &self.base)
            .field("ca", &self.ca)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use crate::StoreUrl;

    fn parsed(text: &str) -> Result<super::RemoteUrl, String> {
        match text.parse::<StoreUrl>() {
            Ok(StoreUrl::Remote(url)) => Ok(url),
            other => Err(format!("{other:?}")),
        }
    }

    #[test]
    fn a_url_names_a_server_and_never_shows_its_token() {
        let url = parsed("https://s3cr3t@leases.example.org:7117/fh/?ca=ca.pem").unwrap();
        assert_eq!(url.base, "https://leases.example.org:7117/fh");
        assert_eq!(url.token.as_deref(), Some("s3cr3t"));
        assert_eq!(url.ca.as_deref(), Some("ca.pem".as_ref()));
        assert!(!format!("{url} {url:?}").contains("s3cr3t"));
        assert_eq!(parsed("http://[::1]:7117/").unwrap().base, "http://[::1]:7117");
    }

    #[test]
    fn what_is_not_understood_is_refused_without_repeating_a_token() {
        for bad in [
            "http:",
            "http://",
            "http://s3cr3t@",
            "http://@h",
            "http://s3cr3t@h i",
            "http://s3cr3t@h?x=1",
            "http://s3cr3t@h?ca=f",
            "https://s3cr3t@h?ca=",
            "https://s3cr3t@h?ca=a&x=1",
            "http://é@h",
            "http://h/a b",
        ] {
            let error = parsed(bad).unwrap_err();
            assert!(error.contains("store URL") && !error.contains("s3cr3t"), "{bad}: {error}");
        }
    }
}
