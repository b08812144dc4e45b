//! Where a store in object storage is: `s3://BUCKET/PREFIX?OPTIONS`, and the like.

use std::fmt;

use fencehold_core::BadInput;

use super::{bad, each_option};

/// Which cloud's language is spoken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheme {
    /// `s3://`: Amazon S3 and what is like it.
    S3,
    /// `gs://`: Google Cloud Storage.
    Gs,
    /// `az://`: Azure Blob Storage.
    Az,
}

impl Scheme {
    /// Every one.
    pub const ALL: [Scheme; 3] = [Scheme::S3, Scheme::Gs, Scheme::Az];

    /// Its name, as in a URL.
    pub fn name(self) -> &'static str {
        match self {
            Scheme::S3 => "s3:",
            Scheme::Gs => "gs:",
            Scheme::Az => "az:",
        }
    }
}

/// A bucket (on Azure: a container), a prefix in it, and how it is used.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ObjectUrl {
    /// Which cloud's language is spoken.
    pub scheme: Scheme,
    /// The bucket or container.
    pub bucket: String,
    /// What the names of all objects start with; empty, or without slashes at its ends.
    pub prefix: String,
    /// Where, if not at the cloud's own address.
    pub endpoint: Option<String>,
    /// The region, for S3.
    pub region: Option<String>,
    /// How it is used.
    pub options: ObjectOptions,
    /// Instead of what the environment says.
    keys: Option<Keys>,
}

/// A name and a secret: an access key of S3, an account and its key on Azure.
#[derive(Clone, PartialEq, Eq)]
pub struct Keys {
    /// The access key, or the account.
    pub name: String,
    /// Never printed.
    pub secret: String,
}

impl fmt::Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Keys(…)")
    }
}

impl ObjectUrl {
    /// A place in a bucket, used as usual.
    pub fn new(scheme: Scheme, bucket: impl Into<String>, prefix: impl AsRef<str>) -> Self {
        ObjectUrl {
            scheme,
            bucket: bucket.into(),
            prefix: prefix.as_ref().trim_matches('/').to_owned(),
            endpoint: None,
            region: None,
            options: ObjectOptions::default(),
            keys: None,
        }
    }

    /// The same place with credentials of its own: an access key and its secret on S3, an account and its key on Azure.
    /// Otherwise they are looked for where that cloud's own tools look for them.
    pub fn with_keys(mut self, name: impl Into<String>, secret: impl Into<String>) -> Self {
        self.keys = Some(Keys { name: name.into(), secret: secret.into() });
        self
    }

    /// Credentials of its own, if it was given some.
    pub fn keys(&self) -> Option<&Keys> {
        self.keys.as_ref()
    }

    /// Reads what stands behind the scheme of a URL. No part of it is repeated in an error: someone may have written
    /// a password there.
    pub fn parse(scheme: Scheme, rest: &str, options: Option<&str>) -> Result<Self, BadInput> {
        let name = scheme.name();
        let shape = || bad(format!("names no bucket; it looks like {name}//BUCKET/PREFIX"));
        let rest = rest.strip_prefix("//").ok_or_else(shape)?;
        let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
        if bucket.is_empty() {
            return Err(shape());
        }
        if bucket.contains('@') {
            return Err(bad(format!(
                "has credentials in it; give them as {name} tools take them, in the environment"
            )));
        }
        let plain = |text: &str| text.chars().all(|c| !c.is_control() && !c.is_whitespace() && c != '\\');
        if !plain(bucket) || !plain(prefix) || prefix.split('/').any(|part| part == "." || part == "..") {
            return Err(bad("has a bucket or a prefix with blanks, dots alone or control characters"));
        }
        let mut place = ObjectUrl::new(scheme, bucket, prefix);
        for (name, value) in each_option(options) {
            place.set(name, value)?;
        }
        Ok(place)
    }

    fn set(&mut self, name: &str, value: &str) -> Result<(), BadInput> {
        match name {
            "endpoint" if value.starts_with("http://") || value.starts_with("https://") => {
                if value.contains('@') {
                    return Err(bad("has credentials in its endpoint; give them in the environment"));
                }
                let endpoint = value.trim_end_matches('/');
                if endpoint.ends_with(':') {
                    return Err(bad("has an endpoint without a host"));
                }
                self.endpoint = Some(endpoint.to_owned());
            }
            "endpoint" => return Err(bad("has an endpoint that is not http://… or https://…")),
            "region" if self.scheme == Scheme::S3 && !value.is_empty() => {
                self.region = Some(value.to_owned());
            }
            "min_ttl_ms" => {
                self.options.ttl_ms_min = number(name, value)?.max(fencehold_core::limits::TTL_MS_MIN);
            }
            "min_write_interval_ms" => self.options.min_write_interval_ms = number(name, value)?,
            "probe" if value == "off" => self.options.probe = false,
            "probe" if value == "on" => self.options.probe = true,
            "probe" => return Err(bad("has an option probe that is neither on nor off")),
            _ => {
                let name: String = name.chars().take(20).collect();
                let known = "endpoint, region (s3), min_ttl_ms, min_write_interval_ms and probe";
                return Err(bad(format!("has an option {name:?}; there are {known}")));
            }
        }
        Ok(())
    }

    /// What is probed once a process: the storage, whatever is kept in it.
    pub fn storage(&self) -> (Scheme, String, Option<String>) {
        (self.scheme, self.bucket.clone(), self.endpoint.clone())
    }
}

fn number(name: &str, value: &str) -> Result<u64, BadInput> {
    let problem = |_| bad(format!("has an option {name} that is not a number of milliseconds"));
    value.parse().map_err(problem)
}

impl fmt::Display for ObjectUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}//{}", self.scheme.name(), self.bucket)?;
        if !self.prefix.is_empty() {
            write!(f, "/{}", self.prefix)?;
        }
        if let Some(endpoint) = &self.endpoint {
            write!(f, "?endpoint={endpoint}")?;
        }
        Ok(())
    }
}

/// How a store in object storage is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ObjectOptions {
    /// The shortest ttl. Lower it only for tests and for storage of your own close by.
    pub ttl_ms_min: u64,
    /// How long an object is left alone after this handle has written it. Google Cloud Storage takes about one write a
    /// second of one object.
    pub min_write_interval_ms: u64,
    /// Whether opening proves that the storage keeps its conditions.
    pub probe: bool,
}

impl Default for ObjectOptions {
    fn default() -> Self {
        ObjectOptions { ttl_ms_min: 15_000, min_write_interval_ms: 1_000, probe: true }
    }
}
