//! Store URLs: which store, and where.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use fencehold_core::BadInput;

use crate::retention::KeepFinished;

mod etcd;
mod file;
mod object;
mod postgres;
mod remote;

pub use etcd::{EtcdTls, EtcdUrl, escaped, unescaped};
pub use file::FileUrl;
pub use object::{Keys, ObjectOptions, ObjectUrl, Scheme};
pub use postgres::{CompletedJobs, MigrateSchema, PostgresTls, PostgresUrl, quoted};
pub use remote::RemoteUrl;

/// Which store, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StoreUrl {
    /// `memory:`: in this process.
    Memory(KeepFinished),
    /// `file:DIR`: in a directory on this machine.
    File(FileUrl),
    /// `etcd://HOST,HOST/PREFIX`: in an etcd cluster.
    Etcd(EtcdUrl),
    /// `postgres://USER@HOST/DATABASE`: in a PostgreSQL database.
    Postgres(Box<PostgresUrl>),
    /// `http://HOST`, `https://HOST`: behind a Fencehold server.
    Remote(RemoteUrl),
    /// `s3://`, `gs://`, `az://`: in object storage.
    Object(Box<ObjectUrl>),
}

/// What a store URL can begin with.
const SCHEMES: &str = "file:DIR, memory:, s3://, gs://, az://, etcd://, postgres:// and http(s)://";

impl FromStr for StoreUrl {
    type Err = BadInput;

    fn from_str(text: &str) -> Result<Self, BadInput> {
        let Some((scheme, rest)) = text.split_once(':') else {
            return Err(bad(format!("{text:?} has no scheme; it looks like file:DIR or memory:")));
        };
        let (place, options) = rest
            .split_once('?')
            .map_or((rest, None), |(place, options)| (place, Some(options)));
        match scheme {
            "memory" if place.is_empty() => KeepFinished::of_options(scheme, options).map(StoreUrl::Memory),
            "memory" => Err(bad(format!("names {place:?}, and memory: takes no place"))),
            "file" => FileUrl::parse(place, options).map(StoreUrl::File),
            "http" | "https" => RemoteUrl::parse(scheme == "https", place, options).map(StoreUrl::Remote),
            "etcd" => EtcdUrl::parse(place, options).map(StoreUrl::Etcd),
            "postgres" | "postgresql" => {
                PostgresUrl::parse(place, options).map(|url| StoreUrl::Postgres(Box::new(url)))
            }
            _ => match Scheme::ALL
                .into_iter()
                .find(|known| known.name().strip_suffix(':') == Some(scheme))
            {
                Some(scheme) => {
                    ObjectUrl::parse(scheme, place, options).map(|url| StoreUrl::Object(Box::new(url)))
                }
                // Nothing after the scheme is repeated: it may contain a password.
                None => Err(bad(format!("has the unknown scheme {:?}; there are {SCHEMES}", clip(scheme)))),
            },
        }
    }
}

impl StoreUrl {
    /// `memory:`, with nothing more said about it.
    pub fn memory() -> Self {
        StoreUrl::Memory(KeepFinished::default())
    }

    /// `file:DIR`, with nothing more said about it.
    pub fn file(directory: impl Into<PathBuf>) -> Self {
        StoreUrl::File(FileUrl::new(directory))
    }

    /// The same store, created if there is none. Of the stores that a URL can name only `file:` asks for that: `postgres:` makes its
    /// schema on first use, and the others have nothing to create.
    #[must_use]
    pub fn creating(self) -> Self {
        self.with_create(true)
    }

    /// The same store, whose absence is an error.
    #[must_use]
    pub fn existing(self) -> Self {
        self.with_create(false)
    }

    fn with_create(self, create: bool) -> Self {
        match self {
            StoreUrl::File(url) => StoreUrl::File(FileUrl { create, ..url }),
            other => other,
        }
    }
}

fn bad(problem: impl Into<String>) -> BadInput {
    BadInput::new("store URL", problem)
}

/// The options of a URL, each a name and a value.
pub(crate) fn each_option(options: Option<&str>) -> impl Iterator<Item = (&str, &str)> {
    let options = options.unwrap_or_default().split('&').filter(|option| !option.is_empty());
    options.map(|option| option.split_once('=').unwrap_or((option, "")))
}

/// What stands before the last '@', if there is one, and the rest.
fn user_and_hosts(authority: &str) -> (Option<&str>, &str) {
    authority
        .rsplit_once('@')
        .map_or((None, authority), |(user, hosts)| (Some(user), hosts))
}

/// The port at the end of `HOST:PORT`, or this one, and the host as it stands. `None`: that is no port.
fn host_and_port(text: &str, port: u16) -> Option<(&str, u16)> {
    let after_brackets = text.rsplit_once(']').map_or(text, |(_, rest)| rest);
    match after_brackets.rsplit_once(':') {
        Some((_, port)) => Some((&text[..text.len() - port.len() - 1], port.parse().ok()?)),
        None => Some((text, port)),
    }
}

/// An option that is not understood. It is not repeated where it may be the rest of a password with a '?' in it.
fn unknown(option: &str, known: &str) -> BadInput {
    if option.chars().all(|c| c.is_ascii_lowercase() || c == '_') {
        return bad(format!("has an option {option:?}; {known}"));
    }
    bad(format!("has an option that is not understood; {known}"))
}

/// Enough of a text to recognise it in an error.
fn clip(text: &str) -> String {
    text.chars().take(20).collect()
}

impl fmt::Display for StoreUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StoreUrl::Memory(kept) => write!(f, "memory:{kept}"),
            StoreUrl::File(url) => url.fmt(f),
            StoreUrl::Etcd(url) => url.fmt(f),
            StoreUrl::Postgres(url) => url.fmt(f),
            StoreUrl::Remote(url) => url.fmt(f),
            StoreUrl::Object(place) => place.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(text: &str) -> String {
        text.parse::<StoreUrl>().unwrap_err().to_string()
    }

    #[test]
    fn a_url_names_a_store_and_a_place() {
        assert_eq!("memory:".parse(), Ok(StoreUrl::memory()));
        assert_eq!("file:state/x".parse(), Ok(StoreUrl::file("state/x")));
        assert_eq!("file:///var/lib/x".parse(), Ok(StoreUrl::file("/var/lib/x")));
    }

    #[test]
    fn how_long_finished_jobs_are_kept_is_an_option_of_every_store_that_has_them() {
        let thirty_days = KeepFinished::for_ms(30 * 24 * 3_600_000).unwrap();
        let url: StoreUrl = "file:state/x?keep_finished=30d".parse().unwrap();
        assert_eq!(url, StoreUrl::File(FileUrl { keep_finished: thirty_days, ..FileUrl::new("state/x") }));
        assert_eq!(url.to_string(), "file:state/x?keep_finished=30d");
        assert_eq!(url.creating().to_string(), "file:state/x?keep_finished=30d&create=true");
        assert_eq!("memory:?keep_finished=30d".parse(), Ok(StoreUrl::Memory(thirty_days)));
        for (wrong, said) in [
            ("file:x?keep_finished=5m", "keep_finished is 5m; it must be 1h to 3650d"),
            ("memory:?keep_finished=4000d", "keep_finished is 4000d; it must be 1h to 3650d"),
            ("file:x?keep_finished=7", "keep_finished is wrong: a number needs a unit (ms, s, m, h, d)"),
            ("file:x?keep_finished", "keep_finished is wrong: the duration is empty"),
        ] {
            assert!(error(wrong).starts_with(said), "{}", error(wrong));
        }
    }

    #[test]
    fn what_is_not_understood_is_refused_and_named() {
        assert_eq!(error("/var/x"), "store URL \"/var/x\" has no scheme; it looks like file:DIR or memory:");
        assert_eq!(error("file:"), "store URL names no directory; it looks like file:DIR");
        assert_eq!(
            error("file:x?sync=off"),
            "store URL has an option \"sync\"; file: takes create, group and keep_finished"
        );
        assert_eq!(error("file:x?create=yes"), "store URL has create=\"yes\"; it is true or false");
        assert_eq!("file:x?create=true".parse(), Ok(StoreUrl::file("x").creating()));
        let shared: StoreUrl = "file:x?create=true&group=staff".parse().unwrap();
        assert_eq!(shared.to_string(), "file:x?group=staff&create=true");
        assert_eq!(shared.existing().to_string(), "file:x?group=staff");
        assert_eq!(
            error("file:x?group="),
            "store URL has group=\"\"; it is the name or the number of a group"
        );
        assert!(error("file:x?group=a/b").contains("it is the name or the number of a group"));
        assert_eq!(error("memory:x"), "store URL names \"x\", and memory: takes no place");
        assert!(error("redis://h").contains("unknown scheme \"redis\""));
    }

    #[test]
    fn a_password_in_a_url_is_never_repeated() {
        assert!(!error("mysql://me:secret@host/db").contains("secret"));
        for url in ["https://secret@host/db", "postgres://me:secret@host/db", "etcd://me:secret@host/db"] {
            let said = url
                .parse::<StoreUrl>()
                .map_or_else(|error| error.to_string(), |url| format!("{url} {url:?}"));
            assert!(!said.contains("secret"), "{said}");
        }
    }
}
