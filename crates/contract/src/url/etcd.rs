//! The URL of an etcd cluster: members, prefix, user and TLS.

use std::fmt;
use std::path::PathBuf;

use fencehold_core::BadInput;

use super::{bad, each_option, host_and_port, unknown, user_and_hosts};

/// etcd's own port for clients.
const PORT: u16 = 2379;
/// Where the keys live unless the URL says otherwise.
const PREFIX: &str = "fencehold";

/// `etcd://[USER:PASSWORD@]HOST[:PORT][,HOST[:PORT]…][/PREFIX][?tls=on&ca=FILE&cert=FILE&key=FILE]`
///
/// Prints without its password.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct EtcdUrl {
    /// The members, as `HOST:PORT`: any one that has a quorum will do.
    pub members: Vec<String>,
    /// What every key starts with. Two prefixes are two stores.
    pub prefix: String,
    /// Who asks, where the cluster wants to know.
    pub user: Option<String>,
    /// Their password. Never printed.
    pub password: Option<String>,
    /// How the members prove who they are, and how we do; `None`: in plain text.
    pub tls: Option<EtcdTls>,
}

/// Files in PEM format.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct EtcdTls {
    /// The authority that signed the members' certificates; `None`: those that the system trusts.
    pub ca: Option<PathBuf>,
    /// Our own certificate and its key, where the cluster asks for one.
    pub identity: Option<(PathBuf, PathBuf)>,
}

impl EtcdUrl {
    /// Reads what follows `etcd:`. Errors repeat nothing of it that could be a password.
    pub fn parse(place: &str, options: Option<&str>) -> Result<Self, BadInput> {
        let Some(place) = place.strip_prefix("//") else {
            return Err(bad("names no member; it looks like etcd://HOST:2379,HOST:2379/PREFIX"));
        };
        let (authority, prefix) = place.split_once('/').unwrap_or((place, ""));
        let (user, hosts) = user_and_hosts(authority);
        let members: Option<Vec<String>> = hosts.split(',').map(member).collect();
        let members = members
            .ok_or_else(|| bad("names a member that is not HOST or HOST:PORT, separated by commas"))?;
        let (user, password) = match user.map(|user| user.split_once(':')) {
            None => (None, None),
            Some(Some((user, password))) if !user.is_empty() => {
                let broken = || bad("has a user or a password with a broken %-escape");
                let (user, password) = unescaped(user).zip(unescaped(password)).ok_or_else(broken)?;
                (Some(user), Some(password))
            }
            Some(_) => return Err(bad("has a user without a password; it looks like USER:PASSWORD@")),
        };
        // It is shown to people, and would be the rest of a password with a slash in it.
        if prefix.contains('@') {
            return Err(bad("has an '@' in its prefix (in a user or a password, '/' is written %2F)"));
        }
        let prefix = prefix.trim_end_matches('/');
        if prefix.chars().any(char::is_control) {
            return Err(bad("has a control character in its prefix"));
        }
        Ok(EtcdUrl {
            members,
            prefix: if prefix.is_empty() { PREFIX.to_owned() } else { prefix.to_owned() },
            user,
            password,
            tls: tls(options)?,
        })
    }
}

/// `HOST:PORT`, with etcd's own port where none is given.
fn member(text: &str) -> Option<String> {
    let (host, port) = host_and_port(text, PORT)?;
    let fine = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_' | ':' | '[' | ']');
    (!host.is_empty() && host.chars().all(fine)).then(|| format!("{host}:{port}"))
}

/// What stands behind `%40` and the like.
pub fn unescaped(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let mut digit = || char::from(rest.next()?).to_digit(16);
        let (high, low) = (digit()?, digit()?);
        bytes.push(u8::try_from(high << 4 | low).ok()?);
    }
    String::from_utf8(bytes).ok()
}

/// A text as it stands in a URL: whatever could be taken for something else there is written as `%40` and the like.
pub fn escaped(text: &str) -> String {
    use std::fmt::Write as _;
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_control() || c.is_whitespace() || "%/@:?#&".contains(c) {
            for byte in c.encode_utf8(&mut [0; 4]).bytes() {
                let _ = write!(shown, "%{byte:02X}");
            }
        } else {
            shown.push(c);
        }
    }
    shown
}

fn tls(options: Option<&str>) -> Result<Option<EtcdTls>, BadInput> {
    let (mut on, mut ca, mut cert, mut key) = (false, None, None, None);
    for (name, value) in each_option(options) {
        match name {
            "tls" if value == "on" => on = true,
            "tls" => return Err(bad("has an option \"tls\" that is not tls=on")),
            "ca" => ca = Some(value),
            "cert" => cert = Some(value),
            "key" => key = Some(value),
            // An option that is not understood may have been meant as a safeguard: it is refused, not ignored.
            _ => return Err(unknown(name, "etcd: takes tls, ca, cert and key")),
        }
    }
    if [ca, cert, key].contains(&Some("")) {
        return Err(bad("has an option ca, cert or key without a file"));
    }
    let identity = match (cert, key) {
        (Some(cert), Some(key)) => Some((cert.into(), key.into())),
        (None, None) => None,
        _ => return Err(bad("has one of cert and key; it takes both or none")),
    };
    let on = on || ca.is_some() || identity.is_some();
    Ok(on.then(|| EtcdTls { ca: ca.map(Into::into), identity }))
}

impl fmt::Display for EtcdUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("etcd://")?;
        if let Some(user) = &self.user {
            write!(f, "{}@", escaped(user))?;
        }
        write!(f, "{}/{}", self.members.join(","), self.prefix)?;
        f.write_str(if self.tls.is_some() { "?tls=on" } else { "" })
    }
}

impl fmt::Debug for EtcdUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "EtcdUrl({self})")
    }
}

#[cfg(test)]
mod tests {
    use crate::StoreUrl;

    fn parsed(text: &str) -> super::EtcdUrl {
        match text.parse() {
            Ok(StoreUrl::Etcd(url)) => url,
            other => panic!("{other:?}"),
        }
    }

    fn error(text: &str) -> String {
        text.parse::<StoreUrl>().unwrap_err().to_string()
    }

    #[test]
    fn a_cluster_has_members_a_prefix_a_user_and_tls() {
        let url = parsed("etcd://me:p%40ss:w@a,b:1,[::1],[::1]:7/team/leases/?ca=/ca.pem&cert=/c&key=/k");
        assert_eq!(url.members, ["a:2379", "b:1", "[::1]:2379", "[::1]:7"]);
        assert_eq!(url.prefix, "team/leases");
        assert_eq!((url.user.as_deref(), url.password.as_deref()), (Some("me"), Some("p@ss:w")));
        let tls = url.tls.unwrap();
        assert_eq!((tls.ca, tls.identity), (Some("/ca.pem".into()), Some(("/c".into(), "/k".into()))));
        assert_eq!((parsed("etcd://a").prefix.as_str(), parsed("etcd://a").tls), ("fencehold", None));
    }

    #[test]
    fn what_is_not_understood_is_refused_and_named() {
        assert!(error("etcd:a:2379").contains("names no member"));
        assert!(error("etcd://").contains("names a member that is not HOST"));
        assert!(error("etcd://a,,b").contains("names a member that is not HOST"));
        assert!(error("etcd://a:b").contains("names a member that is not HOST"));
        assert!(error("etcd://me@a").contains("user without a password"));
        assert!(error("etcd://a?sync=off").contains("option \"sync\"; etcd: takes tls"));
        assert!(error("etcd://a?tls=off").contains("not tls=on"));
        assert!(error("etcd://a?cert=/c").contains("both or none"));
    }

    #[test]
    fn a_password_is_never_printed() {
        let url = "etcd://me:secret@a?tls=on".parse::<StoreUrl>().unwrap();
        assert_eq!(url.to_string(), "etcd://me@a:2379/fencehold?tls=on");
        assert!(!format!("{url:?}").contains("secret"));
        assert!(!error("etcd://me:secret@a:x").contains("secret"));
        assert!(!error("etcd://me:secret%4@a").contains("secret"));
        assert!(!error("etcd://me:1?secret@a").contains("secret"));
    }
}
