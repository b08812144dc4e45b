//! What stores keep, byte for byte, held against files that were written when each version was new.
//!
//! A store's crate has a folder `golden`. A file there is called after what is kept and its version: `lease.v1.hex`. Files that end in
//! `.hex` hold a value a line; in others an empty line stands between two values. A file is never written anew: what is on people's disks
//! does not change either. To change a form, add a version: a new file for [`current`], and [`earlier`] for the one before.
//!
//! [`samples`] are values in which everything is there that can be kept.

#![allow(clippy::missing_panics_doc, reason = "a check says by a panic what is wrong")]

pub mod samples;

use std::fmt::Debug;
use std::fs;
use std::path::{Path, PathBuf};

/// With this variable, a file that is missing is made.
const WRITE: &str = "FENCEHOLD_WRITE_GOLDENS";

/// The values of the version that is written now: encoded they are the bytes of the file, and decoded the bytes are those values.
///
/// `folder` is the crate's own, `file` the name in its folder `golden`.
#[track_caller]
pub fn current<T: PartialEq + Debug>(
    folder: &str,
    file: &str,
    values: &[T],
    encode: impl Fn(&T) -> Vec<u8>,
    decode: impl Fn(&[u8]) -> Result<T, String>,
) {
    let path = path(folder, file);
    let encoded: Vec<Vec<u8>> = values.iter().map(encode).collect();
    if std::env::var_os(WRITE).is_some() && !path.exists() {
        fs::create_dir_all(path.parent().unwrap_or(&path)).expect("the folder can be made");
        fs::write(&path, text_of(file, &encoded)).expect("the file can be written");
    }
    let kept = kept(&path);
    assert!(
        kept == text_of(file, &encoded),
        "{file}: what is written is not what it was, so what is on disks cannot be read for certain. Add a version; never change this \
         one.\n- {kept}\n+ {}",
        text_of(file, &encoded)
    );
    earlier(folder, file, values, decode);
}

/// The values of a version that is only read any more.
#[track_caller]
pub fn earlier<T: PartialEq + Debug>(
    folder: &str,
    file: &str,
    values: &[T],
    decode: impl Fn(&[u8]) -> Result<T, String>,
) {
    let kept = bytes_of(file, &kept(&path(folder, file)));
    assert_eq!(kept.len(), values.len(), "{file}: how many values there are");
    for (nth, (bytes, value)) in kept.iter().zip(values).enumerate() {
        let read = decode(bytes).unwrap_or_else(|why| panic!("{file}, value {nth}, cannot be read: {why}"));
        assert_eq!(read, *value, "{file}, value {nth}");
    }
}

fn path(folder: &str, file: &str) -> PathBuf {
    Path::new(folder).join("golden").join(file)
}

#[track_caller]
fn kept(path: &Path) -> String {
    fs::read_to_string(path)
        .unwrap_or_else(|error| panic!("{}: {error}; if it is new, set {WRITE}=1 once", path.display()))
}

fn is_hex(file: &str) -> bool {
    Path::new(file).extension().is_some_and(|extension| extension == "hex")
}

fn text_of(file: &str, values: &[Vec<u8>]) -> String {
    let text = |bytes: &Vec<u8>| {
        if is_hex(file) {
            bytes.iter().fold(String::new(), |text, byte| text + &format!("{byte:02x}"))
        } else {
            String::from_utf8_lossy(bytes).into_owned()
        }
    };
    let values: Vec<String> = values.iter().map(text).collect();
    values.join(between(file)) + "\n"
}

fn bytes_of(file: &str, text: &str) -> Vec<Vec<u8>> {
    let text = text.strip_suffix('\n').unwrap_or(text);
    let values = text.split(between(file));
    if !is_hex(file) {
        return values.map(|value| value.as_bytes().to_vec()).collect();
    }
    let byte = |pair: &[u8]| {
        let pair = std::str::from_utf8(pair).unwrap_or_default();
        u8::from_str_radix(pair, 16).expect("two hexadecimal digits")
    };
    values.map(|line| line.as_bytes().chunks(2).map(byte).collect()).collect()
}

fn between(file: &str) -> &'static str {
    if is_hex(file) { "\n" } else { "\n\n" }
}
