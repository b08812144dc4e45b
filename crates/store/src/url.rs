//! Store URLs: which store, and where.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;

use fencehold_core::BadInput;

use crate::clock::Clock;
use crate::error::StoreError;
use crate::etcd_url::EtcdUrl;
use crate::lease::LeaseStore;
use crate::postgres_url::PostgresUrl;
use crate::remote_url::RemoteUrl;

/// Which store, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StoreUrl {
    /// `memory:`: in this process.
    Memory,
    /// `file:DIR`: in a directory on this machine.
    File(PathBuf),
    /// `etcd://HOST,HOST/PREFIX`: in an etcd cluster.
    Etcd(EtcdUrl),
    /// `postgres://USER@HOST/DATABASE`: in a PostgreSQL database.
    Postgres(Box<PostgresUrl>),
    /// `http://HOST`, `https://HOST`: behind a Fencehold server.
    Remote(RemoteUrl),
    /// `s3://`, `gs://`, `az://`: in object storage.
    #[cfg(feature = "object")]
    Object(Box<crate::object::ObjectPlace>),
}

/// What a store URL can begin with.
const SCHEMES: &str = "file:DIR, memory:, s3://, gs://, az://, etcd://, postgres:// and http(s)://";

impl FromStr for StoreUrl {
    type Err = BadInput;

    fn from_str(text: &str) -> Result<Self, BadInput> {
        let bad = |problem: String| BadInput::new("store URL", problem);
        let Some((scheme, rest)) = text.split_once(':') else {
            return Err(bad(format!("{text:?} has no scheme; it looks like file:DIR or memory:")));
        };
        let (place, options) = match rest.split_once('?') {
            Some((place, options)) => (place, Some(options)),
            None => (rest, None),
        };
        // An option that is not understood may have been meant as a safeguard: it is refused, not ignored.
        let no_options = || match options.map(|options| options.split(['=', '&']).next().unwrap_or_default())
        {
            None => Ok(()),
            Some(option) => Err(bad(format!("has an option {option:?}, and {scheme}: takes none"))),
        };
        match scheme {
            "memory" if place.is_empty() => no_options().map(|()| StoreUrl::Memory),
            "memory" => Err(bad(format!("names {place:?}, and memory: takes no place"))),
            "file" => {
                no_options()?;
                let path = place.strip_prefix("//").unwrap_or(place);
                if path.is_empty() {
                    return Err(bad("names no directory; it looks like file:DIR".to_owned()));
                }
                if path.contains('\0') {
                    return Err(bad("has a NUL character in its directory".to_owned()));
                }
                Ok(StoreUrl::File(path.into()))
            }
            "http" | "https" => RemoteUrl::parse(scheme == "https", place, options).map(StoreUrl::Remote),
            "etcd" => EtcdUrl::parse(place, options).map(StoreUrl::Etcd),
            "postgres" | "postgresql" => {
                PostgresUrl::parse(place, options).map(|url| StoreUrl::Postgres(Box::new(url)))
            }
            #[cfg(feature = "object")]
            "s3" | "gs" | "az" => {
                use crate::object::{ObjectPlace, Scheme};
                let spoken = match scheme {
                    "s3" => Scheme::S3,
                    "gs" => Scheme::Gs,
                    _ => Scheme::Az,
                };
                ObjectPlace::parse(spoken, place, options).map(|place| StoreUrl::Object(Box::new(place)))
            }
            #[cfg(not(feature = "object"))]
            "s3" | "gs" | "az" => {
                Err(bad(format!("has the scheme {scheme}:, and this build lacks the feature `object`")))
            }
            // Nothing after the scheme is repeated: it may contain a password.
            _ => Err(bad(format!("has the unknown scheme {:?}; there are {SCHEMES}", clip(scheme)))),
        }
    }
}

/// Enough of a text to recognise it in an error.
fn clip(text: &str) -> String {
    text.chars().take(20).collect()
}

impl fmt::Display for StoreUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StoreUrl::Memory => f.write_str("memory:"),
            StoreUrl::File(path) => write!(f, "file:{}", path.display()),
            StoreUrl::Etcd(url) => url.fmt(f),
            StoreUrl::Postgres(url) => url.fmt(f),
            StoreUrl::Remote(url) => url.fmt(f),
            #[cfg(feature = "object")]
            StoreUrl::Object(place) => place.fmt(f),
        }
    }
}

/// Opens the store that a URL names.
pub fn open(url: &StoreUrl, clock: Arc<dyn Clock>) -> Result<Arc<dyn LeaseStore>, StoreError> {
    match url {
        StoreUrl::Memory => Ok(Arc::new(crate::memory::MemoryStore::open(clock)?)),
        #[cfg(feature = "file")]
        StoreUrl::File(path) => Ok(Arc::new(crate::file::FileStore::open(path, clock)?)),
        #[cfg(not(feature = "file"))]
        StoreUrl::File(_) => Err(StoreError::Unsupported {
            store: "file:".to_owned(),
            what: "be used: this build lacks the feature `file`".to_owned(),
        }),
        #[cfg(feature = "etcd")]
        StoreUrl::Etcd(url) => Ok(Arc::new(crate::etcd::EtcdStore::open(url, clock)?)),
        #[cfg(not(feature = "etcd"))]
        StoreUrl::Etcd(_) => Err(StoreError::Unsupported {
            store: "etcd:".to_owned(),
            what: "be used: this build lacks the feature `etcd`".to_owned(),
        }),
        #[cfg(feature = "postgres")]
        StoreUrl::Postgres(url) => Ok(Arc::new(crate::postgres::PostgresStore::open(url, clock)?)),
        #[cfg(not(feature = "postgres"))]
        StoreUrl::Postgres(_) => Err(StoreError::Unsupported {
            store: "postgres:".to_owned(),
            what: "be used: this build lacks the feature `postgres`".to_owned(),
        }),
        #[cfg(feature = "remote")]
        StoreUrl::Remote(url) => Ok(Arc::new(crate::remote::RemoteStore::open(url, clock)?)),
        #[cfg(not(feature = "remote"))]
        StoreUrl::Remote(_) => Err(StoreError::Unsupported {
            store: "http:".to_owned(),
            what: "be used: this build lacks the feature `remote`".to_owned(),
        }),
        #[cfg(feature = "object")]
        StoreUrl::Object(place) => {
            Ok(Arc::new(crate::object::ObjectStore::open(place, clock, crate::object::Seed::draw()?)?))
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
        assert_eq!("memory:".parse(), Ok(StoreUrl::Memory));
        assert_eq!("file:state/x".parse(), Ok(StoreUrl::File("state/x".into())));
        assert_eq!("file:///var/lib/x".parse(), Ok(StoreUrl::File("/var/lib/x".into())));
    }

    #[test]
    fn what_is_not_understood_is_refused_and_named() {
        assert_eq!(error("/var/x"), "store URL \"/var/x\" has no scheme; it looks like file:DIR or memory:");
        assert_eq!(error("file:"), "store URL names no directory; it looks like file:DIR");
        assert_eq!(error("file:x?sync=off"), "store URL has an option \"sync\", and file: takes none");
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
