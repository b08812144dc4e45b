//! The URL of a Fencehold server, or of several that serve the same store.

use std::fmt;
use std::path::PathBuf;

use fencehold_core::BadInput;

use super::{bad, user_and_hosts};

/// `http(s)://[TOKEN@]HOST[:PORT][,HOST[:PORT]…][/PATH][?ca=FILE]`
///
/// Several hosts are servers of one store: a request goes to one of them, and to the next where that one cannot answer.
/// Without a token here, that of the environment is shown to the server (`FENCEHOLD_ACCESS_TOKEN`), if there is one. Prints
/// without its token.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct RemoteUrl {
    /// Scheme, hosts and path, without a slash at the end: what people are shown.
    pub base: String,
    /// Scheme, host and path of every server, without a slash at the end: what every request's path follows.
    pub servers: Vec<String>,
    /// The token that is shown to it. Never printed.
    pub token: Option<String>,
    /// The authority that signed the server's certificate, in PEM format; `None`: those that the system trusts.
    pub ca: Option<PathBuf>,
}

impl RemoteUrl {
    /// Reads what follows the scheme. Errors repeat nothing of it that could be a token.
    pub fn parse(secure: bool, place: &str, options: Option<&str>) -> Result<Self, BadInput> {
        let place = place.strip_prefix("//").unwrap_or_default();
        let (authority, path) = place.split_once('/').unwrap_or((place, ""));
        let (token, hosts) = user_and_hosts(authority);
        let token = token.map(|token| token.trim_start_matches(':'));
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_' | ':' | '[' | ']');
        if !hosts.split(',').all(|host| !host.is_empty() && host.chars().all(plain)) {
            return Err(bad("names no host; it looks like http://HOST:7117, or http://HOST:7117,HOST:7117"));
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
        let at = |host: &str| format!("{scheme}://{host}/{path}").trim_end_matches('/').to_owned();
        let servers = hosts.split(',').map(at).collect();
        Ok(RemoteUrl { base: at(hosts), servers, token: token.map(str::to_owned), ca })
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
        assert_eq!(url.servers, std::slice::from_ref(&url.base));
        assert_eq!(url.token.as_deref(), Some("s3cr3t"));
        assert_eq!(url.ca.as_deref(), Some("ca.pem".as_ref()));
        assert!(!format!("{url} {url:?}").contains("s3cr3t"));
        assert_eq!(parsed("http://[::1]:7117/").unwrap().base, "http://[::1]:7117");
    }

    #[test]
    fn a_url_can_name_several_servers_of_one_store() {
        let url = parsed("https://s3cr3t@a:7117,b/fh").unwrap();
        assert_eq!(url.base, "https://a:7117,b/fh");
        assert_eq!(url.servers, ["https://a:7117/fh", "https://b/fh"]);
        assert_eq!(url.token.as_deref(), Some("s3cr3t"));
    }

    #[test]
    fn what_is_not_understood_is_refused_without_repeating_a_token() {
        for bad in [
            "http:",
            "http://",
            "http://s3cr3t@",
            "http://@h",
            "http://h,",
            "http://s3cr3t@h,,g",
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
