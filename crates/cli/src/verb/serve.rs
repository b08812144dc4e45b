//! `fencehold serve`: the store behind HTTP, from its settings to the last request.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use fencehold_contract::clock::{Clock as _, SystemClock};
use fencehold_server::access::{Access, AccessCache, has_had_tokens};
use fencehold_server::config::{ListenAddress, ListenAddresses, LogFormat, Settings};
use fencehold_server::event_log::{EventLog, EventLogError, EventLogOptions};
use fencehold_server::limit::ServerLimits;
use fencehold_server::{Listeners, Server, ServerOptions, systemd};
use rustix::process::{Resource, getrlimit, setrlimit};
use tokio::signal::unix::{SignalKind, signal};

use crate::context::{Context, CreateStore, OpenStore};
use crate::failure::Failure;
use crate::output::note;
use crate::server_files::{ServerFileArgs, access_file, bad_setting, unusable};
use crate::verb::VerbResult;

/// Descriptors that are needed for other things than connections: the store, the book, logs, farewells.
const DESCRIPTORS_APART: u64 = 512;

/// Serve the store over HTTP, to clients of every language
#[derive(Debug, clap::Args)]
#[command(before_help = "\
# For programs on this machine, without access tokens
fencehold serve

# For other machines: create the store and an access token first
export FENCEHOLD_STORE=file:/var/lib/fencehold
fencehold store create
fencehold access-token create ops --scope admin --all-namespaces
fencehold serve --listen 0.0.0.0:7117 --tls-cert cert.pem --tls-key key.pem

curl http://localhost:7117/v1/openapi.json")]
#[command(after_help = "\
Every setting can also stand in a TOML file (--config) or in the environment (FENCEHOLD_SERVE_LISTEN, \
FENCEHOLD_SERVE_LIMITS_CONNECTIONS); a flag comes before the environment, and that before the file. `fencehold config \
check` lists them all.")]
pub(crate) struct Args {
    /// The address to listen on, or a name for it [default: localhost:7117]
    #[arg(long, value_name = "HOST:PORT")]
    listen: Option<ListenAddress>,
    /// Ask for no access token, even where other machines can reach the server
    #[arg(long)]
    insecure: bool,
    /// The certificate and those above it, as PEM; read again when it changes
    #[arg(long, value_name = "FILE")]
    tls_cert: Option<PathBuf>,
    /// The certificate's key, as PEM
    #[arg(long, value_name = "FILE")]
    tls_key: Option<PathBuf>,
    /// Send traces to this collector, by OTLP over HTTP
    #[arg(long, value_name = "URL")]
    otlp: Option<String>,
    /// How lines of the log look: text or json
    #[arg(long, value_name = "FORMAT")]
    log_format: Option<String>,
    /// Append every event and every act of force to files in this directory
    #[arg(long, value_name = "DIR")]
    event_log: Option<PathBuf>,
    /// The size at which the event log begins another file [default: 67108864]
    #[arg(long, value_name = "BYTES", requires = "event_log", allow_hyphen_values = true)]
    event_log_file_bytes: Option<u64>,
    /// The age at which the event log begins another file [default: 1d]
    #[arg(long, value_name = "DURATION", requires = "event_log", allow_hyphen_values = true)]
    event_log_file_age: Option<String>,
    /// How long files of the event log are kept [default: for ever]
    #[arg(long, value_name = "DURATION", requires = "event_log", allow_hyphen_values = true)]
    event_log_keep: Option<String>,
    /// Log this namespace, also if no caller of this server uses it (repeatable)
    #[arg(long, value_name = "NAMESPACE", requires = "event_log")]
    event_log_namespace: Vec<String>,
    /// Any setting by its name, as in limits.connections=20000
    #[arg(long = "set", value_name = "KEY=VALUE")]
    set: Vec<String>,
    #[command(flatten)]
    create: CreateStore,
    #[command(flatten)]
    server_files: ServerFileArgs,
}

impl Args {
    pub(crate) async fn run(self, context: &Context) -> VerbResult {
        let settings = self.server_files.told(self.flags()?)?.settings().map_err(bad_setting)?;
        crate::logging::start_server(context.verbose, &settings.log)?;
        let place = context.place_or(settings.store.as_deref())?.for_acting(self.create.create)?;
        // First of all: no access file is made where there is no store.
        let store = context.open_at(&place)?;
        let addresses = settings.listen.resolve().map_err(bad_setting)?;
        let access_cache = AccessCache::start(access_file(&settings, &place)?, Arc::new(SystemClock));
        let access_cache = Arc::new(access_cache.map_err(unusable)?);
        let mut options = options(&settings)?;
        // Before anything is served: what cannot be logged is not to happen.
        let event_log = options.event_log.take().map(open_event_log).transpose()?;
        self.warn(&settings, &addresses);
        store
            .closing(async |store| {
                let access = access(&settings, &addresses, &access_cache, store).await?;
                serve(&settings, &addresses, store, access, options, event_log).await
            })
            .await?;
        access_cache.close();
        Ok(())
    }

    /// What is dangerous, and starts all the same.
    fn warn(&self, settings: &Settings, addresses: &ListenAddresses) {
        let plain = settings.tls.cert.is_none();
        if plain && !addresses.are_loopback() && !settings.insecure {
            say(
                settings,
                "WARNING: access tokens are sent unencrypted to an address that other machines can reach; use --tls-cert and \
                 --tls-key, or a proxy with TLS on this machine",
            );
        }
        let others = |path: &Path| std::fs::metadata(path).is_ok_and(|file| file.mode() & 0o006 != 0);
        let files =
            [("the key", settings.tls.key.clone()), ("the settings", self.server_files.config_file())];
        for (what, path) in files {
            if let Some(path) = path.filter(|path| others(path)) {
                let path = path.display();
                let text =
                    format!("WARNING: {what} {path} can be read or written by every user; chmod o-rw {path}");
                say(settings, &text);
            }
        }
    }

    fn flags(&self) -> Result<Vec<(&str, String)>, Failure> {
        let path = |path: &PathBuf| path.display().to_string();
        let mut flags: Vec<(&str, String)> = Vec::new();
        flags.extend(self.listen.as_ref().map(|address| ("listen", address.to_string())));
        flags.extend(self.insecure.then(|| ("insecure", "true".to_owned())));
        flags.extend(self.tls_cert.as_ref().map(|file| ("tls.cert", path(file))));
        flags.extend(self.tls_key.as_ref().map(|file| ("tls.key", path(file))));
        flags.extend(self.otlp.clone().map(|url| ("traces.otlp", url)));
        flags.extend(self.log_format.clone().map(|format| ("log.format", format)));
        flags.extend(self.event_log.as_ref().map(|directory| ("event_log.dir", path(directory))));
        flags.extend(
            self.event_log_file_bytes
                .map(|bytes| ("event_log.file_bytes", bytes.to_string())),
        );
        flags.extend(self.event_log_file_age.clone().map(|age| ("event_log.file_age", age)));
        flags.extend(self.event_log_keep.clone().map(|keep| ("event_log.keep", keep)));
        if !self.event_log_namespace.is_empty() {
            flags.push(("event_log.namespaces", self.event_log_namespace.join(",")));
        }
        for pair in &self.set {
            let (key, value) = pair.split_once('=').ok_or_else(|| {
                Failure::usage("--set takes KEY=VALUE, as in --set limits.connections=20000")
            })?;
            flags.push((key, value.to_owned()));
        }
        Ok(flags)
    }
}

/// Who is let in: callers with a token, once there is any; before that every program of this machine, and no other.
async fn access(
    settings: &Settings,
    addresses: &ListenAddresses,
    access_cache: &Arc<AccessCache>,
    store: &OpenStore,
) -> Result<Access, Failure> {
    if settings.insecure {
        say(settings, "INSECURE: everybody who can reach the server may do everything");
        return Ok(Access::open(Some(Arc::clone(access_cache))));
    }
    if access_cache.has_tokens() {
        return Ok(Access::by_token(Arc::clone(access_cache)));
    }
    if settings.require_access_tokens == Some(true) {
        say(
            settings,
            "no access token exists yet, so every request is refused; `fencehold access-token create` makes one",
        );
        return Ok(Access::by_token(Arc::clone(access_cache)));
    }
    let had = has_had_tokens(&*store.leases).await.map_err(|error| store.explain(error))?;
    if had && settings.require_access_tokens.is_none() {
        let what = format!(
            "{} was served with tokens before, and the access file has none: it was lost, or another one is used",
            store.name
        );
        return Err(Failure::usage(what).with_next(
            "Put the access file back (--access-file FILE), or make a token with `fencehold access-token create`. To let every program of \
             this machine in without one, say --set require_access_tokens=false.",
        ));
    }
    if addresses.are_loopback() {
        say(settings, "open to every program on this machine: no token was made yet, so none is asked for");
        return Ok(Access::until_tokens(Arc::clone(access_cache)));
    }
    let what = format!("{} can be reached from other machines, and no token was made yet", settings.listen);
    Err(Failure::usage(what).with_next(
        "Make one with `fencehold access-token create NAME --scope …`, or listen at localhost, or let everybody in with \
         --insecure.",
    ))
}

fn options(settings: &Settings) -> Result<ServerOptions, Failure> {
    let mut seed = [0; 16];
    getrandom::fill(&mut seed)
        .map_err(|error| Failure::failed(format!("no randomness can be had: {error}")))?;
    let mut options = settings.options(seed).map_err(bad_setting)?;
    make_room(settings, &mut options.limits);
    Ok(options)
}

fn open_event_log(options: EventLogOptions) -> Result<EventLog, Failure> {
    EventLog::open(options, SystemClock.now().wall_ms).map_err(|error| {
        let next = match &error {
            EventLogError::InUse(_) => "Give each server a directory of its own.",
            EventLogError::Damaged { .. } => {
                "Move the file away, and keep it: the log goes on from the file before it, and repeats what that one lacks."
            }
            _ => "The server does not start without its event log.",
        };
        Failure::failed(error.to_string()).with_next(next)
    })
}

/// Every connection needs a descriptor: takes as many as the system lets us, and promises no more than that.
fn make_room(settings: &Settings, limits: &mut ServerLimits) {
    let wanted = limits.connections as u64 + DESCRIPTORS_APART;
    let mut now = getrlimit(Resource::Nofile);
    if now.current.is_some_and(|current| current < wanted) {
        now.current = Some(now.maximum.map_or(wanted, |maximum| maximum.min(wanted)));
        let _ = setrlimit(Resource::Nofile, now);
    }
    if let Some(current) = getrlimit(Resource::Nofile).current.filter(|current| *current < wanted) {
        limits.connections = usize::try_from(current.saturating_sub(DESCRIPTORS_APART).max(1)).unwrap_or(1);
        let so_many = limits.connections;
        let less = format!(
            "the system allows {current} open files, so {so_many} connections are taken at once; raise LimitNOFILE for more"
        );
        say(settings, &less);
    }
}

async fn serve(
    settings: &Settings,
    addresses: &ListenAddresses,
    store: &OpenStore,
    access: Access,
    options: ServerOptions,
    event_log: Option<EventLog>,
) -> Result<(), Failure> {
    let failed = |error: std::io::Error| Failure::failed(format!("cannot listen at {error}"));
    let listeners = Listeners::bind(addresses).await.map_err(failed)?;
    let scheme = if options.tls.is_some() { "https" } else { "http" };
    let urls = listeners.addresses().map_err(failed)?;
    let urls: Vec<String> = urls.iter().map(|address| format!("{scheme}://{address}")).collect();
    let stop = told_to_stop()?;
    let server = Server::with_options(Arc::clone(&store.leases), Arc::new(SystemClock), access, options);
    let marking = tokio::spawn({
        let server = server.clone();
        async move { server.mark_tokens().await }
    });
    let logging = event_log.map(|log| server.write_event_log(log));
    let what = format!("serving {} at {}", store.name, urls.join(" and "));
    say(settings, &what);
    systemd::tell(systemd::SystemdState::Ready, &what);
    let stop = async {
        stop.await;
        say(settings, "stopping: nothing new is given, what is under way is finished");
        systemd::tell(systemd::SystemdState::Stopping, "finishing what is under way");
    };
    let outcome = server.serve(listeners, stop).await.map_err(failed);
    marking.abort();
    if let Some(logging) = logging {
        logging.finish().await;
    }
    outcome
}

/// Tells people on stderr; or, where every line is an object for programs, the log.
fn say(settings: &Settings, text: &str) {
    match settings.log.format {
        LogFormat::Json => tracing::info!("{text}"),
        _ => note(text),
    }
}

/// Ends with SIGTERM or SIGINT.
fn told_to_stop() -> Result<impl Future<Output = ()>, Failure> {
    let heed =
        |kind| signal(kind).map_err(|error| Failure::failed(format!("signals cannot be heeded: {error}")));
    let (mut terminate, mut interrupt) = (heed(SignalKind::terminate())?, heed(SignalKind::interrupt())?);
    Ok(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    })
}
