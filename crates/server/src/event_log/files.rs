//! The files of the log: `events-0000000001.jsonl` and on, of which the newest is written.
//!
//! A file begins with the cursors of all streams, so the newest one alone says where to go on. It gets its name before it is
//! whole: one without a whole first line was cut short by a crash, and is removed. Whatever cannot be written is cut off
//! again before anything else is.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, BufRead, BufReader};
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use super::lines::{Cursors, LineCursor, begin_line, cursor_of};
use super::{EventLogError, EventLogOptions, LogBatch};

const LOCK: &str = "lock";

/// The files, with the newest open.
#[derive(Debug)]
pub(super) struct LogFiles {
    options: EventLogOptions,
    newest: LogFile,
    number: u64,
    cursors: Cursors,
    /// Locked while this is open.
    _lock: File,
}

#[derive(Debug)]
struct LogFile {
    file: File,
    /// How much of it is synced.
    len: u64,
    /// When it began, in wall time.
    begun_wall_ms: u64,
    /// It has more than its first line.
    is_used: bool,
}

impl LogFiles {
    pub(super) fn open(options: EventLogOptions, now_wall_ms: u64) -> Result<Self, EventLogError> {
        let directory = &options.directory;
        let unusable = |error| EventLogError::io(directory)(error);
        if !directory.is_dir() {
            DirBuilder::new()
                .recursive(true)
                .mode(0o700)
                .create(directory)
                .map_err(unusable)?;
        }
        let lock = lock(directory)?;
        let mut numbers = numbers(directory)?;
        let (newest, number, cursors) = loop {
            let Some(number) = numbers.pop() else {
                let cursors = Cursors::new();
                let newest = LogFile::begin(directory, 1, &cursors, now_wall_ms).map_err(unusable)?;
                break (newest, 1, cursors);
            };
            let path = path(directory, number);
            match recover(&path)? {
                Some((newest, cursors)) => break (newest, number, cursors),
                None => fs::remove_file(&path).map_err(EventLogError::io(&path))?,
            }
        };
        let files = LogFiles { newest, number, cursors, _lock: lock, options };
        files.remove_old(now_wall_ms);
        Ok(files)
    }

    pub(super) fn cursors(&self) -> &Cursors {
        &self.cursors
    }

    /// Appends these batches and syncs them. If it fails, nothing of them is there.
    pub(super) fn append(&mut self, batches: &[LogBatch], now_wall_ms: u64) -> io::Result<()> {
        let mut bytes = Vec::new();
        for line in batches.iter().flat_map(|batch| &batch.lines) {
            bytes.extend_from_slice(line.as_bytes());
            bytes.push(b'\n');
        }
        // What an earlier try left behind.
        self.newest.file.set_len(self.newest.len)?;
        let newest = &self.newest;
        let is_full = newest.len + bytes.len() as u64 > self.options.file_bytes;
        let is_old = now_wall_ms.saturating_sub(newest.begun_wall_ms) >= self.options.file_age_ms;
        if newest.is_used && (is_full || is_old) {
            let (directory, number) = (&self.options.directory, self.number + 1);
            self.newest = LogFile::begin(directory, number, &self.cursors, now_wall_ms)?;
            self.number = number;
            self.remove_old(now_wall_ms);
        }
        let newest = &mut self.newest;
        newest.file.write_all_at(&bytes, newest.len)?;
        newest.file.sync_data()?;
        newest.len += bytes.len() as u64;
        newest.is_used = true;
        for batch in batches {
            self.cursors.insert(batch.stream.clone(), batch.cursor);
        }
        Ok(())
    }

    /// Removes files whose last line is older than the log is kept. What cannot be removed now is later.
    fn remove_old(&self, now_wall_ms: u64) {
        let (Some(keep_ms), directory) = (self.options.keep_ms, &self.options.directory) else { return };
        let until = UNIX_EPOCH + Duration::from_millis(now_wall_ms.saturating_sub(keep_ms));
        let numbers = numbers(directory).unwrap_or_default();
        for path in numbers
            .into_iter()
            .filter(|number| *number < self.number)
            .map(|number| path(directory, number))
        {
            let is_old = fs::metadata(&path)
                .and_then(|file| file.modified())
                .is_ok_and(|last| last < until);
            if is_old && let Err(error) = fs::remove_file(&path) {
                tracing::warn!(%error, path = %path.display(), "a file of the event log cannot be removed");
            }
        }
    }
}

impl LogFile {
    /// A new file, with its first line.
    fn begin(directory: &Path, number: u64, cursors: &Cursors, now_wall_ms: u64) -> io::Result<Self> {
        let mut line = begin_line(cursors, now_wall_ms);
        line.push('\n');
        // One that could not be begun before may be in its place.
        let mut options = OpenOptions::new();
        let file = options
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(path(directory, number))?;
        file.write_all_at(line.as_bytes(), 0)?;
        file.sync_all()?;
        File::open(directory)?.sync_all()?;
        Ok(LogFile { file, len: line.len() as u64, begun_wall_ms: now_wall_ms, is_used: false })
    }
}

/// Locks the directory. The kernel drops the lock with the process.
fn lock(directory: &Path) -> Result<File, EventLogError> {
    let path = directory.join(LOCK);
    let mut options = OpenOptions::new();
    let file = options.write(true).create(true).truncate(false).mode(0o600).open(&path);
    let file = file.map_err(EventLogError::io(&path))?;
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(file),
        Err(Errno::AGAIN) => Err(EventLogError::InUse(directory.to_owned())),
        Err(error) => Err(EventLogError::io(&path)(error.into())),
    }
}

/// Reads a file to its end, and cuts off a last line that is not whole. `None`: it has not even a first line.
fn recover(path: &Path) -> Result<Option<(LogFile, Cursors)>, EventLogError> {
    let unusable = |error| EventLogError::io(path)(error);
    let file = OpenOptions::new().read(true).write(true).open(path).map_err(unusable)?;
    let mut found: Option<(Cursors, u64)> = None;
    let (mut len, mut end, mut lines, mut whole, mut damaged) = (0, 0, 0, 0, None);
    let mut reader = BufReader::new(&file);
    let mut line = Vec::new();
    loop {
        line.clear();
        let read = reader.read_until(b'\n', &mut line).map_err(unusable)? as u64;
        if read == 0 {
            break;
        }
        lines += 1;
        end += read;
        let cursor = line.strip_suffix(b"\n").and_then(cursor_of);
        let (Some(cursor), None) = (cursor, damaged) else {
            // A crash of the machine may leave anything after what was synced, but no lines of a log.
            if line.strip_suffix(b"\n").and_then(cursor_of).is_some() {
                return Err(EventLogError::Damaged { path: path.to_owned(), line: damaged.unwrap_or(lines) });
            }
            damaged.get_or_insert(lines);
            continue;
        };
        match (cursor, &mut found) {
            (LineCursor::All(cursors, at_ms), None) => found = Some((cursors, at_ms)),
            (LineCursor::One(stream, cursor), Some((cursors, _))) => {
                cursors.insert(stream, cursor);
            }
            _ => return Err(EventLogError::Damaged { path: path.to_owned(), line: lines }),
        }
        whole += 1;
        len = end;
    }
    let Some((cursors, begun_wall_ms)) = found else { return Ok(None) };
    if len < end {
        file.set_len(len).map_err(unusable)?;
        tracing::info!(path = %path.display(), bytes = end - len, "a line that was cut off was removed from the event log");
    }
    // What a killed process had written and not synced counts from now on.
    file.sync_all().map_err(unusable)?;
    Ok(Some((LogFile { file, len, begun_wall_ms, is_used: whole > 1 }, cursors)))
}

/// The numbers of the files, in order.
pub(super) fn numbers(directory: &Path) -> Result<Vec<u64>, EventLogError> {
    let unusable = |error| EventLogError::io(directory)(error);
    let mut numbers = Vec::new();
    for entry in fs::read_dir(directory).map_err(unusable)? {
        let name = entry.map_err(unusable)?.file_name();
        let number = name
            .to_str()
            .and_then(|name| name.strip_prefix("events-")?.strip_suffix(".jsonl"));
        numbers.extend(
            number
                .filter(|digits| digits.len() == 10)
                .and_then(|digits| digits.parse::<u64>().ok()),
        );
    }
    numbers.sort_unstable();
    Ok(numbers)
}

pub(super) fn path(directory: &Path, number: u64) -> PathBuf {
    directory.join(format!("events-{number:010}.jsonl"))
}

#[cfg(test)]
mod tests {
    use fencehold_core::Namespace;

    use super::super::Stream;
    use super::*;

    fn namespace() -> Namespace {
        Namespace::default()
    }

    fn batch(seqs: std::ops::RangeInclusive<u64>) -> LogBatch {
        let lines = seqs
            .clone()
            .map(|seq| format!(r#"{{"namespace":"default","seq":{seq},"type":"x"}}"#));
        LogBatch { stream: Stream::Events(namespace()), cursor: *seqs.end(), lines: lines.collect() }
    }

    fn cursor(files: &LogFiles) -> Option<u64> {
        files.cursors().get(&Stream::Events(namespace())).copied()
    }

    fn options(directory: &Path) -> EventLogOptions {
        EventLogOptions::new(directory)
    }

    /// The numbers of all events in all files, as they stand there.
    fn all(directory: &Path) -> Vec<u64> {
        let lines = super::super::read(directory).unwrap().map(|line| line.unwrap());
        lines
            .filter(|line| line.text.contains("\"x\""))
            .filter_map(|line| line.seq)
            .collect()
    }

    /// A crash can cut the file off anywhere.
    #[test]
    fn wherever_the_file_is_cut_off_the_log_goes_on_after_its_last_whole_line() {
        let place = tempfile::tempdir().unwrap();
        let mut files = LogFiles::open(options(place.path()), 1).unwrap();
        files.append(&[batch(1..=2)], 1).unwrap();
        let first = fs::read(path(place.path(), 1)).unwrap();
        let begin = first.iter().position(|byte| *byte == b'\n').unwrap() + 1;
        drop(files);
        for cut in 0..=first.len() {
            for rest in ["", "{\"namespace\":\"def", "\0\0\0\0", "\0\0\n\0"] {
                let place = tempfile::tempdir().unwrap();
                fs::write(path(place.path(), 1), [&first[..cut], rest.as_bytes()].concat()).unwrap();
                let mut files = LogFiles::open(options(place.path()), 1).unwrap();
                let whole = first[..cut].split(|byte| *byte == b'\n').count() as u64 - 1;
                assert_eq!(cursor(&files).unwrap_or(0), whole.saturating_sub(1), "cut at {cut} of {begin}");
                let next = cursor(&files).unwrap_or(0) + 1;
                files.append(&[batch(next..=3)], 1).unwrap();
                assert_eq!(all(place.path()), [1, 2, 3], "cut at {cut}, then {rest:?}");
            }
        }
    }

    #[test]
    fn a_file_is_followed_by_another_when_it_is_full_or_old_and_knows_every_cursor() {
        let place = tempfile::tempdir().unwrap();
        let limits = EventLogOptions { file_bytes: 400, file_age_ms: 1_000, ..options(place.path()) };
        let mut files = LogFiles::open(limits.clone(), 1).unwrap();
        let audit = LogBatch {
            stream: Stream::Audit,
            cursor: 7,
            lines: vec![r#"{"type":"audit","seq":7}"#.to_owned()],
        };
        files.append(&[audit], 1).unwrap();
        for seq in 1..=20 {
            files.append(&[batch(seq..=seq)], 1).unwrap();
        }
        let count = numbers(place.path()).unwrap().len();
        assert!(count > 3, "{count}");
        for number in numbers(place.path()).unwrap() {
            assert!(fs::metadata(path(place.path(), number)).unwrap().len() <= 400);
        }
        files.append(&[batch(21..=21)], 1_001).unwrap();
        assert_eq!(numbers(place.path()).unwrap().len(), count + 1, "it was old");
        drop(files);
        let files = LogFiles::open(limits, 1).unwrap();
        assert_eq!((cursor(&files), files.cursors().get(&Stream::Audit)), (Some(21), Some(&7)));
        assert_eq!(all(place.path()), (1..=21).collect::<Vec<_>>());
    }

    #[test]
    fn a_file_whose_beginning_was_cut_short_is_removed_and_the_one_before_goes_on() {
        let place = tempfile::tempdir().unwrap();
        let mut files = LogFiles::open(options(place.path()), 1).unwrap();
        files.append(&[batch(1..=5)], 1).unwrap();
        drop(files);
        fs::write(path(place.path(), 2), "{\"type\":\"beg").unwrap();
        let mut files = LogFiles::open(options(place.path()), 1).unwrap();
        assert_eq!((cursor(&files), numbers(place.path()).unwrap()), (Some(5), vec![1]));
        files.append(&[batch(6..=6)], 1).unwrap();
        assert_eq!(all(place.path()), (1..=6).collect::<Vec<_>>());
    }

    #[test]
    fn damage_that_no_crash_makes_is_an_error_and_nothing_is_cut_off() {
        let place = tempfile::tempdir().unwrap();
        let mut files = LogFiles::open(options(place.path()), 1).unwrap();
        files.append(&[batch(1..=3)], 1).unwrap();
        drop(files);
        let text = fs::read_to_string(path(place.path(), 1)).unwrap();
        let damaged = text.replacen("\"seq\":2", "\"s\0q\":2", 1);
        fs::write(path(place.path(), 1), &damaged).unwrap();
        let error = LogFiles::open(options(place.path()), 1).unwrap_err();
        assert!(matches!(error, EventLogError::Damaged { line: 3, .. }), "{error}");
        assert_eq!(fs::read_to_string(path(place.path(), 1)).unwrap(), damaged);
    }

    #[test]
    fn one_server_has_a_log_at_a_time() {
        let place = tempfile::tempdir().unwrap();
        let first = LogFiles::open(options(place.path()), 1).unwrap();
        let error = LogFiles::open(options(place.path()), 1).unwrap_err();
        assert!(matches!(error, EventLogError::InUse(_)), "{error}");
        drop(first);
        LogFiles::open(options(place.path()), 1).unwrap();
    }

    #[test]
    fn old_files_are_removed_and_never_the_newest() {
        let place = tempfile::tempdir().unwrap();
        let limits = EventLogOptions { file_bytes: 1, keep_ms: Some(1_000), ..options(place.path()) };
        let mut files = LogFiles::open(limits, 1).unwrap();
        for seq in 1..=3 {
            files.append(&[batch(seq..=seq)], 1).unwrap();
        }
        assert_eq!(numbers(place.path()).unwrap(), [1, 2, 3], "by the clock they are young");
        // Their last lines are of today.
        let tomorrow = fs::metadata(path(place.path(), 3)).unwrap().modified().unwrap();
        let tomorrow = tomorrow.duration_since(UNIX_EPOCH).unwrap().as_millis() + 86_400_000;
        files.append(&[batch(4..=4)], u64::try_from(tomorrow).unwrap()).unwrap();
        assert_eq!(numbers(place.path()).unwrap(), [4]);
        assert_eq!(cursor(&files), Some(4));
    }
}
