//! Fences, for code without an executor.

use std::path::Path;

use fencehold_core::{Key, Namespace};

use crate::fence::file::{Appended, FencedFileOptions};
use crate::fence::{FenceError, KeyToken, Mark};
use crate::wake::block_on;

/// A file that lets no stale holder write. See [`crate::fence::FencedFile`].
///
/// ```
/// use fencehold::blocking::{FencedFile, Fencehold};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let folder = tempfile::tempdir()?;
/// # let path = folder.path().join("report.txt");
/// let fh = Fencehold::connect("memory:")?;
/// let file = FencedFile::open(&path)?;
/// let lease = fh.lease("reports/daily").acquire()?;
/// file.raise(&lease)?;
/// file.replace(&lease, "the report\n")?;
/// lease.release()?;
/// # assert_eq!(std::fs::read_to_string(&path)?, "the report\n");
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct FencedFile {
    inner: crate::fence::FencedFile,
}

impl FencedFile {
    /// Opens the fence of a file. See [`crate::fence::FencedFile::open`].
    pub fn open(path: impl AsRef<Path>) -> Result<Self, FenceError> {
        FencedFile::open_with(crate::fence::FencedFile::options(), path)
    }

    /// Opens with options.
    pub fn open_with(options: FencedFileOptions, path: impl AsRef<Path>) -> Result<Self, FenceError> {
        block_on(options.open(path)).map(FencedFile::from)
    }

    blocking_calls! {
        /// Raises the fence. See [`crate::fence::FencedFile::raise`].
        raise(pass: impl Into<KeyToken>) -> Result<(), FenceError>;
        /// Adds bytes to the end of the file, once. See [`crate::fence::FencedFile::append`].
        append(pass: impl Into<KeyToken>, idempotency_key: &str, bytes: impl Into<Vec<u8>>)
            -> Result<Appended, FenceError>;
        /// Puts another content in the place of the file. See [`crate::fence::FencedFile::replace`].
        replace(pass: impl Into<KeyToken>, content: impl Into<Vec<u8>>) -> Result<(), FenceError>;
        /// How high the fence stands for a key.
        mark(namespace: &Namespace, key: &Key) -> Result<Option<Mark>, FenceError>;
        /// Forgets a key. See [`crate::fence::FencedFile::forget`].
        forget(namespace: &Namespace, key: &Key) -> Result<(), FenceError>;
    }

    /// The file.
    pub fn path(&self) -> &Path {
        self.inner.path()
    }

    /// The same file for async code.
    pub fn as_async(&self) -> &crate::fence::FencedFile {
        &self.inner
    }
}

impl From<crate::fence::FencedFile> for FencedFile {
    fn from(inner: crate::fence::FencedFile) -> Self {
        FencedFile { inner }
    }
}
