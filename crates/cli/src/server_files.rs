//! Where a server's settings and its access file are, for all verbs that need to know.

use std::path::PathBuf;
use std::sync::Arc;

use fencehold_contract::StoreUrl;
use fencehold_contract::clock::SystemClock;
use fencehold_server::access::{TokenDb, TokenDbError};
use fencehold_server::config::{ConfigError, ConfigValues, Settings};
use fencehold_store_remote::RemoteStore;

use crate::access_tokens::{TokenServer, TokenSource};
use crate::context::{Context, variable};
use crate::exit_code::ExitStatus;
use crate::failure::Failure;
use crate::store_choice::StoreChoice;

const ACCESS_FILE: &str = "access.db";

/// What is said of it on the command line.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct ServerFileArgs {
    /// The server's settings, as TOML
    #[arg(long, value_name = "FILE", help = "The server's settings, as TOML [env: FENCEHOLD_CONFIG]")]
    pub(crate) config: Option<PathBuf>,
    /// The file with the access tokens and the audit [default: beside the store]
    #[arg(long, value_name = "FILE")]
    pub(crate) access_file: Option<PathBuf>,
}

impl ServerFileArgs {
    /// A server's settings: from these pairs of the command line, then the environment, then the file.
    pub(crate) fn told(&self, flags: Vec<(&str, String)>) -> Result<ConfigValues, Failure> {
        let mut told = ConfigValues::default();
        let access = self.access_file.iter().map(|path| ("access_file", path.display().to_string()));
        told.flags(access.chain(flags)).map_err(bad_setting)?;
        // What is not UTF-8 is no setting of ours.
        let variables = std::env::vars_os();
        let variables =
            variables.filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
        told.variables(variables).map_err(bad_setting)?;
        if let Some(path) = self.config_file() {
            told.file(&path).map_err(bad_setting)?;
        }
        Ok(told)
    }

    /// The file with the settings, if one was named.
    pub(crate) fn config_file(&self) -> Option<PathBuf> {
        self.config.clone().or(variable("FENCEHOLD_CONFIG").map(PathBuf::from))
    }

    /// The tokens of the server that the store is; else the access file that a server of these settings would use.
    pub(crate) fn tokens(&self, context: &Context) -> Result<TokenSource, Failure> {
        context.output.refuse_env()?;
        let settings = self.told(Vec::new())?.settings().map_err(bad_setting)?;
        let place = context.place_or(settings.store.as_deref())?;
        if let (StoreUrl::Remote(url), None) = (&place.url, &settings.access_file) {
            let name = url.to_string();
            let server = RemoteStore::open(url, Arc::new(SystemClock));
            let server = server.map_err(|error| Failure::of_store(error, &name))?;
            return Ok(TokenSource::Server(Box::new(TokenServer { server, call: context.call(), name })));
        }
        let place = place.for_acting(false)?;
        #[cfg(feature = "file")]
        if let (StoreUrl::File(url), None) = (&place.url, &settings.access_file)
            && !url.create
        {
            // Beside a store that is not there, no server would find them.
            let found = fencehold_store_file::FileStore::find(url.clone());
            found.map_err(|error| Failure::of_store(error, &place.url.to_string()))?;
        }
        let token_db = TokenDb::open(&access_file(&settings, &place)?).map_err(unusable)?;
        Ok(TokenSource::File(Box::new(token_db)))
    }
}

#[expect(clippy::needless_pass_by_value, reason = "as `map_err` gives it")]
pub(crate) fn bad_setting(error: ConfigError) -> Failure {
    Failure::usage(error.to_string())
}

/// The access file: the one that was named, else in the directory of the store, else in one of the user's own.
pub(crate) fn access_file(settings: &Settings, place: &StoreChoice) -> Result<PathBuf, Failure> {
    if let Some(path) = &settings.access_file {
        return Ok(path.clone());
    }
    if let StoreUrl::File(url) = &place.url {
        return Ok(url.directory.join(ACCESS_FILE));
    }
    // systemd names the directory of a service, with colons between several.
    let of_service = variable("STATE_DIRECTORY").and_then(|paths| std::env::split_paths(&paths).next());
    let directory = of_service.or_else(crate::store_choice::state_directory);
    directory.map(|directory| directory.join(ACCESS_FILE)).ok_or_else(|| {
        Failure::usage("no access file was named, and without HOME there is no default")
            .with_next("Name one with --access-file FILE.")
    })
}

#[expect(clippy::needless_pass_by_value, reason = "as `map_err` gives it")]
pub(crate) fn unusable(error: TokenDbError) -> Failure {
    Failure::new(ExitStatus::Unusable, error.to_string())
}
