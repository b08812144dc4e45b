//! The settings of a server, what each is by default, and every key by its name.

use std::path::PathBuf;

use fencehold_core::duration::parse_ms;
use serde::{Deserialize, Deserializer, de};

use super::ListenAddress;
use crate::limit::ServerLimits;

/// The settings of a server.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[non_exhaustive]
pub struct Settings {
    /// Where it listens.
    pub listen: ListenAddress,
    /// Which store it serves; `None`: the same as without a server.
    pub store: Option<String>,
    /// The file with the access tokens and the audit; `None`: beside the store.
    pub access_file: Option<PathBuf>,
    /// Whether anybody who can reach it may do everything, wherever it listens.
    pub insecure: bool,
    /// Whether every request needs an access token. `None`: once there is one, or the store has been served with tokens
    /// before; false: also then it may start without any.
    pub require_access_tokens: Option<bool>,
    /// Names under which it may be reached while it asks for no access token, besides addresses and `localhost`: with
    /// commas between them.
    pub allowed_hosts: Option<String>,
    /// How long requests under way may take to end when it stops.
    #[serde(rename = "shutdown_grace", deserialize_with = "ms")]
    pub shutdown_grace_ms: u64,
    /// Encryption.
    pub tls: TlsSettings,
    /// Logs.
    pub log: LogSettings,
    /// Traces.
    pub traces: TraceSettings,
    /// The event log.
    pub event_log: EventLogSettings,
    /// The dashboard.
    pub dashboard: DashboardSettings,
    /// How much of everything.
    pub limits: ServerLimits,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            listen: ListenAddress::default(),
            store: None,
            access_file: None,
            insecure: false,
            require_access_tokens: None,
            allowed_hosts: None,
            shutdown_grace_ms: 10_000,
            tls: TlsSettings::default(),
            log: LogSettings::default(),
            traces: TraceSettings::default(),
            event_log: EventLogSettings::default(),
            dashboard: DashboardSettings::default(),
            limits: ServerLimits::default(),
        }
    }
}

/// Encryption: both files, or neither.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[non_exhaustive]
pub struct TlsSettings {
    /// The certificate and those above it, as PEM.
    pub cert: Option<PathBuf>,
    /// Its key, as PEM.
    pub key: Option<PathBuf>,
}

/// Logs.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[non_exhaustive]
pub struct LogSettings {
    /// How lines look.
    pub format: LogFormat,
    /// What is logged, as in `info` or `fencehold_server=debug,info`.
    pub level: Option<String>,
}

/// How lines of the log look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// One JSON object a line.
    Json,
}

/// Traces.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[non_exhaustive]
pub struct TraceSettings {
    /// Where spans go, by OTLP over HTTP: `http://collector:4318`, `https://…`. `None`: nowhere.
    pub otlp: Option<String>,
    /// Who vouches for the receiver's certificate, as PEM; `None`: whom the system trusts.
    pub ca: Option<PathBuf>,
    /// The name under which they go.
    pub service_name: Option<String>,
}

/// The event log.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[non_exhaustive]
pub struct EventLogSettings {
    /// Its directory; `None`: there is no log.
    pub dir: Option<PathBuf>,
    /// A file that would become larger is followed by another.
    pub file_bytes: u64,
    /// And one that is older.
    #[serde(rename = "file_age", deserialize_with = "ms")]
    pub file_age_ms: u64,
    /// Files whose last line is older are removed; `None`: none are.
    #[serde(rename = "keep", deserialize_with = "some_ms")]
    pub keep_ms: Option<u64>,
    /// Namespaces to log beside those that the server knows of: with commas between them.
    pub namespaces: Option<String>,
}

impl Default for EventLogSettings {
    fn default() -> Self {
        EventLogSettings {
            dir: None,
            file_bytes: 64 << 20,
            file_age_ms: 24 * 3_600_000,
            keep_ms: None,
            namespaces: None,
        }
    }
}

/// The dashboard.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[non_exhaustive]
pub struct DashboardSettings {
    /// Whether there is one.
    pub enabled: bool,
}

impl Default for DashboardSettings {
    fn default() -> Self {
        DashboardSettings { enabled: true }
    }
}

fn some_ms<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    ms(deserializer).map(Some)
}

/// A stretch of time as people write it, in milliseconds: `500ms`, `10s`, `1m30s`.
pub(crate) fn ms<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    parse_ms(&String::deserialize(deserializer)?).map_err(de::Error::custom)
}

/// Every key, with what it is by default, as people would write it.
pub const KEYS: &[(&str, &str)] = &[
    ("listen", "localhost:7117"),
    ("store", "file: in the user's state directory"),
    ("access_file", "beside the store"),
    ("insecure", "false"),
    ("require_access_tokens", "once there is an access token"),
    ("allowed_hosts", "addresses and localhost"),
    ("shutdown_grace", "10s"),
    ("tls.cert", "none"),
    ("tls.key", "none"),
    ("log.format", "text"),
    ("log.level", "info"),
    ("traces.otlp", "none"),
    ("traces.ca", "what the system trusts"),
    ("traces.service_name", "fencehold"),
    ("event_log.dir", "none"),
    ("event_log.file_bytes", "67108864"),
    ("event_log.file_age", "1d"),
    ("event_log.keep", "for ever"),
    ("event_log.namespaces", "those that the server knows of"),
    ("dashboard.enabled", "true"),
    ("limits.connections", "10000"),
    ("limits.header_timeout", "20s"),
    ("limits.body_timeout", "30s"),
    ("limits.body_bytes", "33554432"),
    ("limits.total_body_bytes", "268435456"),
    ("limits.waiting_per_access_token", "10000"),
    ("limits.requests_per_second", "10000"),
    ("limits.renewals_per_second", "10000"),
];
