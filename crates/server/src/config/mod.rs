//! The settings of a server: by flags, by the environment, by a TOML file, in that order.
//!
//! Every key can be given in every way: `limits.connections` in the file is `FENCEHOLD_SERVE_LIMITS_CONNECTIONS` in the
//! environment and `--set limits.connections=…` on the command line. A key that is not known is an error that names it,
//! wherever it stands: it may have been meant as a safeguard.

mod listen;
mod options;
mod settings;

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use thiserror::Error;
use toml::{Table, Value};

pub use listen::{ListenAddress, ListenAddresses};
pub(crate) use settings::ms;
pub use settings::{
    DashboardSettings, EventLogSettings, KEYS, LogFormat, LogSettings, Settings, TlsSettings, TraceSettings,
};

/// How variables of the environment begin that tell a server something.
pub const VARIABLE_PREFIX: &str = "FENCEHOLD_SERVE_";

/// Where a value came from.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Origin {
    /// A flag of the command line.
    Flag,
    /// This variable.
    Variable(String),
    /// This file.
    File(PathBuf),
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::Flag => f.write_str("the command line"),
            Origin::Variable(name) => f.write_str(name),
            Origin::File(path) => path.display().fmt(f),
        }
    }
}

/// Why it cannot be understood.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{origin}: {problem}")]
pub struct ConfigError {
    /// Where it stands.
    pub origin: String,
    /// What is wrong.
    pub problem: String,
}

/// What was said, key by key, and by what. What is said later does not replace what was said before.
#[derive(Clone, Debug, Default)]
pub struct ConfigValues {
    values: BTreeMap<&'static str, (Value, Origin)>,
}

impl ConfigValues {
    /// Takes `key=value` pairs of the command line.
    pub fn flags<'a>(
        &mut self,
        pairs: impl IntoIterator<Item = (&'a str, String)>,
    ) -> Result<(), ConfigError> {
        pairs
            .into_iter()
            .try_for_each(|(key, text)| self.tell(key, plain(&text), Origin::Flag))
    }

    /// Takes the variables of the environment that begin with [`VARIABLE_PREFIX`].
    pub fn variables(
        &mut self,
        variables: impl IntoIterator<Item = (String, String)>,
    ) -> Result<(), ConfigError> {
        for (name, text) in variables {
            let Some(rest) = name.strip_prefix(VARIABLE_PREFIX) else { continue };
            let origin = Origin::Variable(name.clone());
            let key = KEYS.iter().find(|(key, _)| variable(key) == rest).map(|(key, _)| *key);
            let key = key.ok_or_else(|| unknown(&origin, &name))?;
            self.tell(key, plain(&text), origin)?;
        }
        Ok(())
    }

    /// Takes a TOML file.
    pub fn file(&mut self, path: &Path) -> Result<(), ConfigError> {
        let fault = |problem: String| ConfigError { origin: path.display().to_string(), problem };
        let text = std::fs::read_to_string(path).map_err(|error| fault(error.to_string()))?;
        self.toml(&text, path)
    }

    fn toml(&mut self, text: &str, path: &Path) -> Result<(), ConfigError> {
        let fault = |problem: String| ConfigError { origin: path.display().to_string(), problem };
        let table: Table = text
            .parse()
            .map_err(|error: toml::de::Error| fault(error.to_string().trim_end().to_owned()))?;
        for (name, value) in table {
            match value {
                Value::Table(inner) => {
                    for (last, value) in inner {
                        self.tell(&format!("{name}.{last}"), value, Origin::File(path.to_owned()))?;
                    }
                }
                value => self.tell(&name, value, Origin::File(path.to_owned()))?,
            }
        }
        Ok(())
    }

    fn tell(&mut self, key: &str, value: Value, origin: Origin) -> Result<(), ConfigError> {
        let known = KEYS
            .iter()
            .find(|(known, _)| *known == key)
            .ok_or_else(|| unknown(&origin, key))?
            .0;
        // By itself first, so that what is wrong with it is said of the place where it stands.
        read(std::iter::once((known, &value))).map_err(|problem| ConfigError {
            origin: origin.to_string(),
            problem: format!("{key}: {problem}"),
        })?;
        self.values.entry(known).or_insert((value, origin));
        Ok(())
    }

    /// Everything together.
    pub fn settings(&self) -> Result<Settings, ConfigError> {
        let fault = |problem: String| ConfigError { origin: "the configuration".to_owned(), problem };
        let settings = read(self.values.iter().map(|(key, (value, _))| (*key, value))).map_err(fault)?;
        if settings.tls.cert.is_some() != settings.tls.key.is_some() {
            return Err(fault("tls.cert and tls.key belong together: give both or neither".to_owned()));
        }
        settings.event_log().map_err(fault)?;
        if settings.limits.connections == 0 || settings.limits.body_bytes == 0 {
            return Err(fault("limits.connections and limits.body_bytes must be more than 0".to_owned()));
        }
        Ok(settings)
    }

    /// Every key, what it is, and where that comes from; `None`: it was not said, and is as by default.
    pub fn lines(&self) -> impl Iterator<Item = (&'static str, String, Option<&Origin>)> {
        KEYS.iter().map(|(key, default)| match self.values.get(key) {
            Some((value, origin)) => (*key, shown(value), Some(origin)),
            None => (*key, (*default).to_owned(), None),
        })
    }
}

/// The part of a variable's name after the prefix.
fn variable(key: &str) -> String {
    key.replace('.', "_").to_uppercase()
}

fn unknown(origin: &Origin, name: &str) -> ConfigError {
    let origin = origin.to_string();
    let known: Vec<&str> = KEYS.iter().map(|(key, _)| *key).collect();
    ConfigError { origin, problem: format!("{name} is not a setting; there are {}", known.join(", ")) }
}

/// A value that came as a plain text: a number or a truth where it looks like one.
fn plain(text: &str) -> Value {
    if let Ok(number) = text.parse() {
        return Value::Integer(number);
    }
    match text {
        "true" => Value::Boolean(true),
        "false" => Value::Boolean(false),
        text => Value::String(text.to_owned()),
    }
}

fn shown(value: &Value) -> String {
    match value {
        Value::String(text) => without_secret(text),
        Value::Integer(number) => number.to_string(),
        Value::Boolean(truth) => truth.to_string(),
        // No setting takes anything else.
        other => format!("{other:?}"),
    }
}

/// What stands before the @ of a URL may be a password.
fn without_secret(text: &str) -> String {
    let secret = text
        .split_once("://")
        .and_then(|(scheme, rest)| Some((scheme, rest.rsplit_once('@')?.1)));
    secret.map_or_else(|| text.to_owned(), |(scheme, rest)| format!("{scheme}://…@{rest}"))
}

fn read<'a>(values: impl Iterator<Item = (&'static str, &'a Value)>) -> Result<Settings, String> {
    let mut all = Table::new();
    for (key, value) in values {
        match key.split_once('.') {
            None => drop(all.insert(key.to_owned(), value.clone())),
            Some((table, last)) => {
                let inner = all.entry(table).or_insert_with(|| Value::Table(Table::new()));
                if let Value::Table(inner) = inner {
                    inner.insert(last.to_owned(), value.clone());
                }
            }
        }
    }
    all.try_into()
        .map_err(|error: toml::de::Error| error.message().trim_end().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limit::ServerLimits;

    fn file(told: &mut ConfigValues, text: &str) -> Result<(), ConfigError> {
        told.toml(text, Path::new("server.toml"))
    }

    fn variables(told: &mut ConfigValues, pairs: &[(&str, &str)]) -> Result<(), ConfigError> {
        told.variables(pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())))
    }

    #[test]
    fn flags_come_before_variables_and_those_before_the_file() {
        let mut told = ConfigValues::default();
        told.flags([("limits.connections", "1".to_owned())]).unwrap();
        let set = [
            ("FENCEHOLD_SERVE_LIMITS_CONNECTIONS", "2"),
            ("FENCEHOLD_SERVE_SHUTDOWN_GRACE", "2s"),
            ("OTHER", "x"),
        ];
        variables(&mut told, &set).unwrap();
        let text = "shutdown_grace = '3s'\ninsecure = true\n[limits]\nconnections = 3\nheader_timeout = '3s'";
        file(&mut told, text).unwrap();
        let settings = told.settings().unwrap();
        assert_eq!((settings.limits.connections, settings.shutdown_grace_ms), (1, 2_000));
        assert_eq!((settings.limits.header_ms, settings.insecure), (3_000, true));
        assert_eq!(settings.listen.to_string(), "localhost:7117");
        let origins = told
            .lines()
            .filter_map(|(key, value, by)| Some(format!("{key} {value} {}", by?)));
        assert_eq!(origins.collect::<Vec<_>>()[1], "shutdown_grace 2s FENCEHOLD_SERVE_SHUTDOWN_GRACE");
    }

    #[test]
    fn what_is_not_known_is_named_wherever_it_stands() {
        let mut told = ConfigValues::default();
        let wrong = variables(&mut told, &[("FENCEHOLD_SERVE_LISTN", "x")]).unwrap_err().to_string();
        assert!(wrong.contains("FENCEHOLD_SERVE_LISTN is not a setting; there are listen"), "{wrong}");
        let wrong = file(&mut told, "[limits]\nconections = 3").unwrap_err().to_string();
        assert!(wrong.starts_with("server.toml: limits.conections is not a setting"), "{wrong}");
        let wrong = told.flags([("listen.port", "1".to_owned())]).unwrap_err().to_string();
        assert!(wrong.starts_with("the command line: listen.port is not a setting"), "{wrong}");
        // Names that settings had before are not known either: one that is ignored may have been a safeguard.
        for old in ["access", "require_tokens", "hosts", "grace", "traces.service", "limits.header_time"] {
            let wrong = told.flags([(old, "true".to_owned())]).unwrap_err().to_string();
            let says = format!("{old} is not a setting; there are listen, store, access_file");
            assert!(wrong.contains(&says), "{wrong}");
        }
    }

    #[test]
    fn the_file_that_is_installed_names_settings_that_there_are() {
        let shown = include_str!("../../../../deploy/server.toml").lines();
        let is_setting = |line: &&str| line.contains(" = ") || line.starts_with('[');
        let lines: Vec<&str> = shown.filter_map(|line| line.strip_prefix("# ")).filter(is_setting).collect();
        assert!(lines.len() > KEYS.len() / 2, "{lines:?}");
        file(&mut ConfigValues::default(), &lines.join("\n")).unwrap();
    }

    #[test]
    fn a_bad_value_is_blamed_on_where_it_stands() {
        let mut told = ConfigValues::default();
        let soon = variables(&mut told, &[("FENCEHOLD_SERVE_SHUTDOWN_GRACE", "soon")]);
        let wrong = soon.unwrap_err().to_string();
        assert!(wrong.starts_with("FENCEHOLD_SERVE_SHUTDOWN_GRACE: shutdown_grace: "), "{wrong}");
        let wrong = file(&mut told, "listen = 7117").unwrap_err().to_string();
        assert!(wrong.starts_with("server.toml: listen: "), "{wrong}");
        let wrong = file(&mut told, "listen = ").unwrap_err().to_string();
        assert!(wrong.contains("line 1"), "{wrong}");
        told.flags([("tls.cert", "x.pem".to_owned())]).unwrap();
        assert!(told.settings().unwrap_err().to_string().contains("tls.key"));
    }

    #[test]
    fn a_password_in_a_url_is_not_shown() {
        let mut told = ConfigValues::default();
        let url = "https://team:s3/cr@t@collector:4318/v1/traces";
        told.flags([("traces.otlp", url.to_owned())]).unwrap();
        let line = told.lines().find(|(key, ..)| *key == "traces.otlp").unwrap();
        assert_eq!(line.1, "https://…@collector:4318/v1/traces");
    }

    #[test]
    fn every_key_can_be_given_and_every_default_is_the_one_that_is_shown() {
        let samples = [
            ("store", "memory:"),
            ("access_file", "a.db"),
            ("require_access_tokens", "true"),
            ("tls.cert", "c"),
            ("tls.key", "k"),
            ("log.level", "debug"),
            ("traces.otlp", "http://c:4318"),
            ("event_log.dir", "log"),
            ("event_log.keep", "400d"),
            ("event_log.namespaces", "team-a, team-b"),
        ];
        let mut told = ConfigValues::default();
        for (key, default) in KEYS {
            let sample = samples.iter().find(|(name, _)| name == key);
            let sample = sample.map_or(*default, |(_, sample)| sample);
            told.flags([(*key, sample.to_owned())]).unwrap();
        }
        let (told, by_default) = (told.settings().unwrap(), Settings::default());
        assert_eq!(told.limits, by_default.limits, "shown as by default, but is not");
        assert_eq!(
            (told.shutdown_grace_ms, &told.listen),
            (by_default.shutdown_grace_ms, &by_default.listen)
        );
        let bounds = |settings: &EventLogSettings| (settings.file_bytes, settings.file_age_ms);
        assert_eq!(bounds(&told.event_log), bounds(&by_default.event_log));
        let log = told.event_log().unwrap().unwrap();
        assert_eq!((log.keep_ms, log.namespaces.len()), (Some(400 * 86_400_000), 2));
        assert_eq!(by_default.limits.connections, ServerLimits::default().connections);
    }
}
