//! From settings to what a server is made of: the files that they name are read here, so that a check of settings and
//! a start of a server find the same faults.

use std::sync::Arc;
use std::time::Duration;

use fencehold_core::Namespace;

use super::{ConfigError, EventLogSettings, Settings};
use crate::event_log::EventLogOptions;
use crate::tls::Tls;
use crate::{Receiver, ServerOptions};

/// The name under which spans go, unless another is given.
const SERVICE: &str = "fencehold";

impl Settings {
    /// What a server of these settings is like. The seed must be random: it keeps the ids of its spans apart from others'.
    pub fn options(&self, seed: [u8; 16]) -> Result<ServerOptions, ConfigError> {
        let fault = |problem| ConfigError { origin: "the configuration".to_owned(), problem };
        let tls = match (&self.tls.cert, &self.tls.key) {
            (Some(cert), Some(key)) => Some(Arc::new(Tls::load(cert, key).map_err(fault)?)),
            _ => None,
        };
        let traces = self.receiver(seed).map_err(fault)?;
        let grace = Duration::from_millis(self.shutdown_grace_ms);
        let names = self.allowed_hosts.iter().flat_map(|names| names.split(','));
        let allowed_hosts = names
            .map(str::trim)
            .filter(|name| !name.is_empty())
            .map(str::to_owned)
            .collect();
        let event_log = self.event_log().map_err(fault)?;
        let (limits, dashboard) = (self.limits.clone(), self.dashboard.enabled);
        Ok(ServerOptions {
            limits,
            tls,
            grace,
            traces,
            allowed_hosts,
            event_log,
            dashboard,
            ..ServerOptions::default()
        })
    }

    /// The event log, if there is to be one.
    pub(super) fn event_log(&self) -> Result<Option<EventLogOptions>, String> {
        let EventLogSettings { dir, file_bytes, file_age_ms, keep_ms, namespaces } = self.event_log.clone();
        let listed = namespaces.iter().flat_map(|names| names.split(',')).map(str::trim);
        let listed = listed.filter(|name| !name.is_empty()).map(Namespace::new);
        let namespaces: Vec<Namespace> = listed
            .collect::<Result<_, _>>()
            .map_err(|error| format!("event_log.namespaces: {error}"))?;
        if file_bytes == 0 || file_age_ms == 0 {
            return Err("event_log.file_bytes and event_log.file_age must be more than 0".to_owned());
        }
        let with = |dir| EventLogOptions {
            file_bytes,
            file_age_ms,
            keep_ms,
            namespaces,
            ..EventLogOptions::new(dir)
        };
        Ok(dir.map(with))
    }

    fn receiver(&self, seed: [u8; 16]) -> Result<Option<Receiver>, String> {
        let Some(url) = &self.traces.otlp else { return Ok(None) };
        let receiver = Receiver::new(url, self.traces.service_name.as_deref().unwrap_or(SERVICE), seed)?;
        let Some(file) = &self.traces.ca else { return Ok(Some(receiver)) };
        let pem = std::fs::read(file);
        let pem = pem.map_err(|error| format!("traces.ca: {} cannot be read: {error}", file.display()))?;
        receiver.trusting(&pem).map(Some)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_settings_name_is_read_before_anything_is_started() {
        let place = tempfile::tempdir().unwrap();
        let file = place.path().join("ca.pem");
        let wrong = |settings: &Settings| settings.options([0; 16]).unwrap_err().to_string();
        let mut settings = Settings::default();
        settings.traces.otlp = Some("collector:4318".to_owned());
        assert!(wrong(&settings).contains("traces.otlp"), "{}", wrong(&settings));
        settings.traces.otlp = Some("https://collector:4318".to_owned());
        settings.traces.ca = Some(file.clone());
        assert!(wrong(&settings).contains("ca.pem cannot be read"), "{}", wrong(&settings));
        std::fs::write(&file, "not a certificate").unwrap();
        assert!(wrong(&settings).contains("traces.ca"), "{}", wrong(&settings));
        settings.traces.ca = None;
        settings.tls.cert = Some(file.clone());
        settings.tls.key = Some(file);
        assert!(wrong(&settings).contains("ca.pem"), "{}", wrong(&settings));
    }
}
