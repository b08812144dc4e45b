//! The URL of a `file:` store.

use std::fmt;
use std::path::{Path, PathBuf};

use fencehold_core::BadInput;

use super::{bad, each_option};
use crate::KeepFinished;

const CREATE: &str = "create";
const GROUP: &str = "group";
/// As long as the name of a group can be on any system.
const GROUP_BYTES_MAX: usize = 256;

/// `file:DIR?create=true&keep_finished=30d&group=NAME`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct FileUrl {
    /// The store's directory.
    pub directory: PathBuf,
    /// For how long finished jobs are kept.
    pub keep_finished: KeepFinished,
    /// Whether a store is created where there is none. Otherwise that is an error: a mistyped path must not become a second
    /// store, in which every key is free.
    pub create: bool,
    /// The group whose members share the directory: its name, or its number. `None`: it is one user's alone.
    pub group: Option<String>,
}

impl FileUrl {
    /// A directory with default options.
    pub fn new(directory: impl Into<PathBuf>) -> Self {
        FileUrl {
            directory: directory.into(),
            keep_finished: KeepFinished::default(),
            create: false,
            group: None,
        }
    }

    /// Reads what stands behind the scheme of a URL.
    pub fn parse(place: &str, options: Option<&str>) -> Result<Self, BadInput> {
        let path = place.strip_prefix("//").unwrap_or(place);
        let mut url = FileUrl::new(path);
        for (name, value) in each_option(options) {
            match name {
                KeepFinished::OPTION => url.keep_finished = KeepFinished::parse(value)?,
                CREATE => {
                    url.create = match value {
                        "true" => true,
                        "false" => false,
                        _ => return Err(bad(format!("has {CREATE}={value:?}; it is true or false"))),
                    }
                }
                GROUP => {
                    let known = |c: char| c.is_alphanumeric() || "_-.$@\\ ".contains(c);
                    if value.is_empty() || value.len() > GROUP_BYTES_MAX || !value.chars().all(known) {
                        let problem =
                            format!("has {GROUP}={value:?}; it is the name or the number of a group");
                        return Err(bad(problem));
                    }
                    url.group = Some(value.to_owned());
                }
                // It may have been meant as a safeguard: it is refused, not ignored.
                _ => {
                    let known = format!("{CREATE}, {GROUP} and {}", KeepFinished::OPTION);
                    return Err(bad(format!("has an option {name:?}; file: takes {known}")));
                }
            }
        }
        if path.is_empty() {
            return Err(bad("names no directory; it looks like file:DIR"));
        }
        if path.contains('\0') {
            return Err(bad("has a NUL character in its directory"));
        }
        Ok(url)
    }
}

impl fmt::Display for FileUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The first two slashes of what follows the scheme belong to the URL.
        let slashes =
            if self.directory.as_os_str().as_encoded_bytes().starts_with(b"//") { "//" } else { "" };
        write!(f, "file:{slashes}{}{}", self.directory.display(), self.keep_finished)?;
        let mut mark = if self.keep_finished == KeepFinished::default() { '?' } else { '&' };
        if let Some(group) = &self.group {
            write!(f, "{mark}{GROUP}={group}")?;
            mark = '&';
        }
        if self.create {
            write!(f, "{mark}{CREATE}=true")?;
        }
        Ok(())
    }
}

impl<P: AsRef<Path> + ?Sized> From<&P> for FileUrl {
    fn from(directory: &P) -> Self {
        FileUrl::new(directory.as_ref())
    }
}
