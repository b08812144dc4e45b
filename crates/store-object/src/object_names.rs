//! What objects are called.
//!
//! A key may be any text; an object's name may not: slashes at the ends, dots and doubled slashes mean something to one
//! cloud or another. So letters, digits, `-` and `.` stand for themselves, and every other byte is `_` and two
//! hexadecimal digits: names sort as their keys begin, and a prefix of a key is a prefix of its name.

use fencehold_core::{BadInput, Key, Namespace};

/// Where leases are.
pub(super) const LEASES: &str = "leases/";
/// What `store advance` leaves for keys that it has never heard of.
pub(super) const FLOOR: &str = "floor.json";
/// What `quota set` has set.
pub(super) const LIMITS: &str = "limits.json";
/// Where probes leave their scratch objects, until they remove them.
pub(super) const PROBES: &str = "probe/";

const SUFFIX: &str = ".json";
/// S3 and Google Cloud Storage take names of 1024 bytes; the rest is for the prefix and the namespace.
const NAME_BYTES_MAX: usize = 800;

/// The object of a key.
pub(super) fn of(namespace: &Namespace, key: &Key) -> Result<String, BadInput> {
    let name = escape(key.as_str());
    if name.len() > NAME_BYTES_MAX {
        let problem = format!(
            "takes {} bytes in an object's name, where all but letters, digits, - and . take three; the limit is {NAME_BYTES_MAX}",
            name.len()
        );
        return Err(BadInput::new("key", problem));
    }
    Ok(format!("{}{name}{SUFFIX}", folder(namespace)))
}

/// Where a namespace's leases are.
pub(super) fn folder(namespace: &Namespace) -> String {
    format!("{LEASES}{}/", escape(namespace.as_str()))
}

/// Whether this is the object of a key that starts with a text.
pub(super) fn has_prefix(name: &str, namespace: &Namespace, prefix: &str) -> bool {
    name.strip_prefix(&folder(namespace))
        .is_some_and(|rest| rest.ends_with(SUFFIX) && rest.starts_with(&escape(prefix)))
}

fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' => escaped.push(char::from(byte)),
            _ => {
                escaped.push('_');
                for nibble in [byte >> 4, byte & 15] {
                    escaped.push(char::from_digit(u32::from(nibble), 16).unwrap_or('0'));
                }
            }
        }
    }
    escaped
}

/// A place in the order in which lists are given: by a hash of the name, so that a page goes on where the one before
/// ended whatever was added meanwhile.
pub(super) fn place(name: &str) -> u64 {
    // FNV-1a.
    name.bytes().fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(key: &str) -> String {
        of(&Namespace::default(), &Key::new(key).unwrap()).unwrap()
    }

    #[test]
    fn every_key_has_a_name_of_its_own_without_anything_special() {
        assert_eq!(name("reports/daily-2.x"), "leases/default/reports_2fdaily-2.x.json");
        assert_eq!(name(".."), "leases/default/...json");
        assert_eq!(name("a_2fb"), "leases/default/a_5f2fb.json");
        assert_ne!(name("a_2fb"), name("a/b"));
        assert_eq!(name("//ä b/"), "leases/default/_2f_2f_c3_a4_20b_2f.json");
    }

    #[test]
    fn a_prefix_of_a_key_is_a_prefix_of_its_name() {
        let space = Namespace::default();
        assert!(has_prefix(&name("gpu/10"), &space, "gpu/1"));
        assert!(has_prefix(&name("gpu/10"), &space, ""));
        assert!(!has_prefix(&name("gpu/2"), &space, "gpu/1"));
        assert!(!has_prefix(&name("k"), &Namespace::new("elsewhere").unwrap(), "k"));
    }

    #[test]
    fn a_name_too_long_for_a_cloud_is_refused_with_the_limit() {
        let key = Key::new("ä".repeat(256)).unwrap();
        let error = of(&Namespace::default(), &key).unwrap_err().to_string();
        assert!(error.starts_with("key takes 1536 bytes") && error.contains("800"), "{error}");
    }
}
