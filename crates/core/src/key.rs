//! Names: keys, namespaces, owners, tasks and reasons, each checked once, when it is made.

use crate::error::BadInput;
use crate::job::JobId;
use crate::limits::{KEY_BYTES_MAX, NAMESPACE_BYTES_MAX, OWNER_BYTES_MAX, REASON_BYTES_MAX, TASK_BYTES_MAX};

/// Checks a text of people's making: not empty, not too long, nothing that could rewrite a terminal or a log.
pub(crate) fn check_text(field: &'static str, text: &str, bytes_max: usize) -> Result<(), BadInput> {
    if text.is_empty() {
        return Err(BadInput::new(field, "must not be empty"));
    }
    if text.len() > bytes_max {
        return Err(BadInput::new(field, format!("has {} bytes; the limit is {bytes_max}", text.len())));
    }
    // Most texts are plain ASCII, of which this is quickly told.
    if text.bytes().all(|byte| matches!(byte, b' '..=b'~')) {
        return Ok(());
    }
    if let Some(at) = text.char_indices().find_map(|(at, c)| c.is_control().then_some(at)) {
        return Err(BadInput::new(field, format!("has a control character at byte {at}")));
    }
    Ok(())
}

/// A kind of name: a checked text.
macro_rules! text {
    ($(#[$doc:meta])* $name:ident, $field:literal, $max:expr $(, $extra:expr)?) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
        // Shared: a name travels with every record, event and answer, and is copied far more often than it is made.
        pub struct $name(std::sync::Arc<str>);

        impl $name {
            #[doc = concat!("Checks a text and makes it a ", $field, ".")]
            pub fn new(text: impl AsRef<str>) -> Result<Self, $crate::BadInput> {
                let text = text.as_ref();
                $crate::key::check_text($field, text, $max)?;
                $($extra(text)?;)?
                Ok(Self(text.into()))
            }

            /// The text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        said_by_its_text!($name, new);
        inline_schema!($name, stringify!($name), {
            "type": "string",
            "minLength": 1,
            "maxLength": $max,
            "pattern": r"^[^\x00-\x1f\x7f-\x9f]+$",
        });

        impl TryFrom<String> for $name {
            type Error = $crate::BadInput;
            fn try_from(text: String) -> Result<Self, $crate::BadInput> {
                Self::new(text)
            }
        }

        impl TryFrom<&str> for $name {
            type Error = $crate::BadInput;
            fn try_from(text: &str) -> Result<Self, $crate::BadInput> {
                Self::new(text)
            }
        }

        impl From<$name> for String {
            fn from(name: $name) -> String {
                name.as_str().to_owned()
            }
        }

        impl AsRef<str> for $name {
            fn as_ref(&self) -> &str {
                &self.0
            }
        }
    };
}

pub(crate) use text;

fn simple_name(text: &str) -> Result<(), BadInput> {
    let fine = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '-' | '_' | '.');
    match text.chars().find(|c| !fine(*c)) {
        None => Ok(()),
        Some(c) => {
            let problem = format!("has {c:?}; it takes lower-case letters, digits, '-', '_' and '.'");
            Err(BadInput::new("namespace", problem))
        }
    }
}

text! {
    /// The name of the thing that is held: `reports/daily`, `gpu/3`.
    Key, "key", KEY_BYTES_MAX
}
text! {
    /// The identity that may renew: `host/pid/…`, a pod, an agent's run.
    Owner, "owner", OWNER_BYTES_MAX
}
text! {
    /// What a hold serves: answers 'what was interrupted?'.
    Task, "task", TASK_BYTES_MAX
}
text! {
    /// Why someone used force.
    Reason, "reason", REASON_BYTES_MAX
}
text! {
    /// A tenant: keys live in one.
    Namespace, "namespace", NAMESPACE_BYTES_MAX, simple_name
}

impl Key {
    /// The name under which events about a job are recorded: `job/` and its id. Every change of every job has one.
    #[doc(hidden)]
    pub fn of_job(id: JobId) -> Self {
        const PREFIX: &[u8; 4] = b"job/";
        let mut name = [0; 40];
        name[..PREFIX.len()].copy_from_slice(PREFIX);
        name[PREFIX.len()..].copy_from_slice(&id.text());
        Key(std::str::from_utf8(&name).unwrap_or_default().into())
    }
}

impl Task {
    /// Whether another task is this one or below it: `run-42` covers `run-42` and `run-42/a/b`, and not `run-420`. One that ends with a
    /// slash covers only what is below it.
    pub fn covers(&self, other: &Task) -> bool {
        let rest = other.as_str().strip_prefix(self.as_str());
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/') || self.as_str().ends_with('/'))
    }
}

impl Default for Namespace {
    fn default() -> Self {
        Namespace("default".into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(result: Result<Key, BadInput>) -> String {
        result.unwrap_err().to_string()
    }

    #[test]
    fn a_bad_key_is_refused_with_its_field_and_its_limit() {
        assert_eq!(error(Key::new("")), "key must not be empty");
        assert_eq!(error(Key::new("k".repeat(513))), "key has 513 bytes; the limit is 512");
        assert_eq!(error(Key::new("a\u{7}b")), "key has a control character at byte 1");
        assert!(Key::new("k".repeat(512)).is_ok());
        assert!(Key::new("ключ/日本").is_ok());
    }

    #[test]
    fn the_name_of_a_jobs_events_is_a_key() {
        let id = JobId::parse("01936f3e-7c2a-7b1d-9f00-0123456789ab").unwrap();
        assert_eq!(Key::of_job(id), Key::new(format!("job/{id}")).unwrap());
        assert_eq!(Key::of_job(id).as_str(), "job/01936f3e-7c2a-7b1d-9f00-0123456789ab");
    }

    #[test]
    fn a_namespace_is_a_simple_name() {
        assert!(Namespace::new("team-a.prod_1").is_ok());
        assert!(Namespace::new("Team A").is_err());
    }

    #[test]
    fn a_task_covers_itself_and_what_is_below_it_and_no_neighbour() {
        let covers = |one: &str, other: &str| Task::new(one).unwrap().covers(&Task::new(other).unwrap());
        for below in ["run-42", "run-42/", "run-42/a", "run-42/a/b", "run-42//b"] {
            assert!(covers("run-42", below), "{below}");
        }
        for other in ["run-4", "run-420", "run-420/a", "run-4/2", "Run-42/a", "a/run-42", "run-42.a"] {
            assert!(!covers("run-42", other), "{other}");
        }
        assert!(covers("run-42/", "run-42/a") && covers("run-42/", "run-42/a/b"));
        assert!(!covers("run-42/", "run-42") && !covers("run-42/a", "run-42"));
        assert!(!covers("run%", "run-42") && !covers("run_42", "run-42/a") && covers("100%", "100%/a_b"));
        assert!(covers("лист", "лист/日本") && !covers("лист", "листок"));
    }

    #[test]
    fn a_name_is_checked_when_it_is_read_back() {
        assert!(serde_json::from_str::<Key>("\"a\\u0007\"").is_err());
        assert_eq!(serde_json::from_str::<Key>("\"a\"").unwrap().as_str(), "a");
    }
}
