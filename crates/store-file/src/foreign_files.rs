//! What lies in a directory and is not ours to open: recognised by its first bytes, and left untouched.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use fencehold_contract::StoreError;
use rustix::fs::OFlags;

use super::directory::unusable;
use super::schema::{APPLICATION_ID, SCHEMA_VERSION, newer};
use super::test_points;

/// A foreign file, or one of a newer version, is recognised by its header before anything is opened.
pub(super) fn refuse_foreign(path: &Path) -> Result<(), StoreError> {
    let header = match header_of(path) {
        Ok(header) => header,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return refuse_lone_log(path),
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            let why = format!("this user may not read and write it: use the store as its owner ({error})");
            return Err(unusable(path, why));
        }
        Err(error) => return Err(unusable(path, error)),
    };
    if header.is_empty() {
        return refuse_lone_log(path);
    }
    let number = |at: usize| header.get(at..at + 4).map(|b| u32::from_be_bytes([b[0], b[1], b[2], b[3]]));
    let (Some(cookie), Some(version), Some(application)) = (number(40), number(60), number(68)) else {
        return Err(unusable(path, "it is too short for a database; it was left untouched"));
    };
    if !header.starts_with(b"SQLite format 3\0") || (application != APPLICATION_ID && application != 0) {
        return Err(unusable(path, "it is not a Fencehold database; it was left untouched"));
    }
    // Without our mark it can only be ours if it is still empty: its tables may be in the log beside it.
    if application == 0 && (version != 0 || cookie != 0) {
        return Err(unusable(path, "it is a foreign database; it was left untouched"));
    }
    if version > SCHEMA_VERSION {
        return Err(newer(path, version));
    }
    Ok(())
}

/// To SQLite a database that is empty or not there is a new one, and it removes the log beside it, with all that was
/// acknowledged in it.
fn refuse_lone_log(path: &Path) -> Result<(), StoreError> {
    test_points::pass_in(path.parent().unwrap_or(path), "look");
    let mut log = path.as_os_str().to_owned();
    log.push("-wal");
    if std::fs::metadata(&log).is_ok_and(|log| log.len() > 0) {
        // SQLite fills the database before its log. Where both are filled by now, another process has just made the store.
        if header_of(path).is_ok_and(|header| !header.is_empty()) {
            return refuse_foreign(path);
        }
        return Err(unusable(
            path,
            "it is empty or gone, and the log beside it is not; that was left untouched: put the database that it belongs to back, or move \
             the log away and put a backup back (fencehold store restore)",
        ));
    }
    Ok(())
}

/// The first bytes of a file, as many as there are.
fn header_of(path: &Path) -> io::Result<Vec<u8>> {
    static LOOKED_AT: Mutex<CheckedDatabases> = Mutex::new(CheckedDatabases(Vec::new()));
    LOOKED_AT.lock().unwrap_or_else(PoisonError::into_inner).header_of(path)
}

/// Databases that this process has looked at.
///
/// Their descriptors stay open for as long as the files are there: closing any descriptor of a file drops every lock that
/// the process has on it, also those of SQLite, and an owner without its locks can be served past.
#[derive(Debug)]
struct CheckedDatabases(Vec<((u64, u64), File)>);

impl CheckedDatabases {
    fn header_of(&mut self, path: &Path) -> io::Result<Vec<u8>> {
        let metadata = fs::metadata(path)?;
        let known = self.0.iter().position(|(id, _)| *id == (metadata.dev(), metadata.ino()));
        let at = if let Some(at) = known {
            at
        } else {
            // No process finds those that were removed: their locks keep none out.
            self.0.retain(|(_, file)| file.metadata().map_or(true, |file| file.nlink() > 0));
            let nofollow = OFlags::NOFOLLOW.bits().cast_signed();
            let file = OpenOptions::new().read(true).custom_flags(nofollow).open(path)?;
            let metadata = file.metadata()?;
            self.0.push(((metadata.dev(), metadata.ino()), file));
            self.0.len() - 1
        };
        let mut header = vec![0; 100];
        let read = self.0[at].1.read_at(&mut header, 0)?;
        header.truncate(read);
        Ok(header)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_database_is_kept_open_until_it_is_removed() {
        let room = tempfile::tempdir().unwrap();
        let file = |nth: u32| room.path().join(nth.to_string());
        let mut looked_at = CheckedDatabases(Vec::new());
        for nth in 0..10 {
            fs::write(file(nth), format!("{nth}")).unwrap();
            assert_eq!(looked_at.header_of(&file(nth)).unwrap(), format!("{nth}").as_bytes());
        }
        looked_at.header_of(&file(3)).unwrap();
        assert_eq!(looked_at.0.len(), 10, "once each, and all of them are there");
        (0..9).for_each(|nth| fs::remove_file(file(nth)).unwrap());
        fs::write(file(10), "new").unwrap();
        assert_eq!(looked_at.header_of(&file(10)).unwrap(), b"new");
        assert_eq!(looked_at.0.len(), 2);
    }
}
