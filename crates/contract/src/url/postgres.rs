//! The URL of a PostgreSQL database: hosts, database, user, schema and TLS.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use fencehold_core::BadInput;

use super::{bad, each_option, escaped, host_and_port, unescaped, unknown, user_and_hosts};
use crate::KeepFinished;

/// PostgreSQL's own port.
const PORT: u16 = 5432;
/// Where everything lives unless the URL says otherwise.
const SCHEMA: &str = "fencehold";
/// Longest name of a schema: names of channels are made from it, and PostgreSQL cuts off what is longer than 63 bytes.
const SCHEMA_BYTES_MAX: usize = 48;
/// How many connections one handle opens at most unless the URL says otherwise.
const CONNECTIONS: usize = 10;
const CONNECTIONS_MAX: usize = 1_000;
const OPTIONS: &str = "schema, schema_owner, migrate, max_connections, completed_jobs, keep_finished, and of PostgreSQL's own host, port, user, \
                       password, sslmode, sslrootcert, channel_binding, application_name, connect_timeout, options, keepalives, \
                       keepalives_idle and target_session_attrs";
const SSL_MODES: &str = "disable, allow, prefer, require, verify-ca, verify-full";

/// `postgres://[USER[:PASSWORD]@]HOST[:PORT][,HOST[:PORT]…]/DATABASE[?schema=NAME&schema_owner=ROLE&migrate=…&max_connections=N&completed_jobs=…&keep_finished=…&host=DIR&sslmode=…&sslrootcert=FILE]`
///
/// Of the options of PostgreSQL's own programs it takes the usual ones: `application_name`, `connect_timeout`, `options`, ….
///
/// Prints without its password.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct PostgresUrl {
    /// The servers, the first that can be written to is used. A name that starts with `/` is the directory of a socket.
    pub hosts: Vec<(String, u16)>,
    /// The database.
    pub database: String,
    /// Who asks; `None`: the user that this process runs as.
    pub user: Option<String>,
    /// Their password. Never printed.
    pub password: Option<String>,
    /// The schema that everything lives in. Two schemas are two stores.
    pub schema: String,
    /// The role that owns the schema, where that is not the user, a superuser or the owner of the database.
    pub owner: Option<String>,
    /// When a schema that is older than this program is brought up to date.
    pub migrate: MigrateSchema,
    /// How many connections a handle opens at most, beside one to listen on.
    pub connections: usize,
    /// What becomes of jobs that this handle completes.
    pub completed: CompletedJobs,
    /// For how long this handle's sweep keeps finished jobs.
    pub keep_finished: KeepFinished,
    /// What is asked of the connection's secrecy.
    pub tls: PostgresTls,
    /// The authority that signed the server's certificate, in PEM; `None`: those that the system trusts.
    pub ca: Option<PathBuf>,
    /// How sessions are named in `pg_stat_activity`.
    pub application_name: Option<String>,
    /// How long a connection may take to come about.
    pub connect_timeout: Option<Duration>,
    /// Settings for the session, as `-c NAME=VALUE`.
    pub session_options: Option<String>,
    /// Whether a connection without traffic is checked.
    pub keepalives: bool,
    /// After how long without traffic.
    pub keepalives_idle: Option<Duration>,
}

/// When a schema that is older than the program is brought up to date. One that is not there is always made on first use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MigrateSchema {
    /// `manual`, the default: by `fencehold store migrate`.
    #[default]
    Manual,
    /// `auto`: by the first program that connects.
    Auto,
}

/// What becomes of jobs that were completed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CompletedJobs {
    /// `keep`, the default: for people to see, and for callers that ask for the result, until they are pruned.
    #[default]
    Keep,
    /// `drop`: forgotten in the step that completes them, with their results, unless more is kept of them.
    Drop,
}

/// What is asked of a connection's secrecy: `sslmode`, as PostgreSQL's own programs understand it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PostgresTls {
    /// `disable`: in plain text.
    Disable,
    /// `prefer`, the default: encrypted if the server can, and its certificate is not looked at.
    Prefer,
    /// `require`: encrypted. The certificate is looked at only where `sslrootcert` names its authority.
    Require,
    /// `verify-full`: encrypted, with a certificate of a trusted authority for this very host.
    VerifyFull,
}

impl PostgresUrl {
    /// Reads what follows `postgres:`. Errors repeat nothing of it that could be a password.
    pub fn parse(place: &str, options: Option<&str>) -> Result<Self, BadInput> {
        let Some(place) = place.strip_prefix("//") else {
            return Err(bad("names no server; it looks like postgres://USER@HOST:5432/DATABASE"));
        };
        let (authority, database) = place.split_once('/').unwrap_or((place, ""));
        let (user, hosts) = user_and_hosts(authority);
        let broken = || bad("has a user, a password or a database with a broken %-escape");
        let (user, password) = match user.map(|user| user.split_once(':').unwrap_or((user, ""))) {
            None => (None, None),
            Some(("", _)) => return Err(bad("has no user before the '@'; it looks like USER:PASSWORD@HOST")),
            Some((user, password)) => {
                let password = unescaped(password).ok_or_else(broken)?;
                (Some(unescaped(user).ok_or_else(broken)?), Some(password).filter(|text| !text.is_empty()))
            }
        };
        // A slash too many, and user and password would be the name of a database, which is shown to people.
        if database.contains(['@', '/']) {
            return Err(bad(
                "has a '/' or an '@' in the name of its database (%2F and %40 stand for them); it looks like postgres://USER@HOST:5432/DATABASE",
            ));
        }
        let database = unescaped(database).ok_or_else(broken)?;
        if database.is_empty() {
            return Err(bad("names no database; it looks like postgres://USER@HOST:5432/DATABASE"));
        }
        let mut url = PostgresUrl {
            hosts: Vec::new(),
            database,
            user,
            password,
            schema: SCHEMA.to_owned(),
            owner: None,
            migrate: MigrateSchema::default(),
            connections: CONNECTIONS,
            completed: CompletedJobs::default(),
            keep_finished: KeepFinished::default(),
            tls: PostgresTls::Prefer,
            ca: None,
            application_name: None,
            connect_timeout: None,
            session_options: None,
            keepalives: true,
            keepalives_idle: None,
        };
        let (directory, port) = url.read_options(options)?;
        let named = |host: &str| host.rsplit(']').next().is_some_and(|end| end.contains(':'));
        if port.is_some() && hosts.split(',').any(named) {
            return Err(bad("names a port twice: before the database and as the option port"));
        }
        let default_port = port.unwrap_or(PORT);
        url.hosts = match (directory, hosts) {
            (Some(directory), "") => vec![(directory, default_port)],
            (Some(directory), port) if port.starts_with(':') => {
                vec![(directory, port[1..].parse().map_err(|_| bad("has a port that is not a number"))?)]
            }
            (Some(_), _) => {
                return Err(bad("names a host twice: before the database and as the option host"));
            }
            (None, "") => vec![("localhost".to_owned(), default_port)],
            (None, hosts) => {
                let servers = hosts.split(',').map(|text| server(text, default_port));
                servers
                    .collect::<Option<_>>()
                    .ok_or_else(|| bad("names a server that is not HOST or HOST:PORT, separated by commas"))?
            }
        };
        Ok(url)
    }

    /// Whether a text can name a schema: one that needs no quoting anywhere, so that users can write it in their SQL as it
    /// is.
    pub fn is_schema(text: &str) -> bool {
        let fine = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
        text.len() <= SCHEMA_BYTES_MAX
            && text.starts_with(|c: char| c.is_ascii_lowercase())
            && text.chars().all(fine)
            && !text.starts_with("pg_")
    }

    /// Gives the directory of a socket and a port, where they are named.
    fn read_options(&mut self, options: Option<&str>) -> Result<(Option<String>, Option<u16>), BadInput> {
        let (mut directory, mut port) = (None, None);
        for (name, value) in each_option(options) {
            match name {
                "schema" if PostgresUrl::is_schema(value) => value.clone_into(&mut self.schema),
                "schema" => {
                    return Err(bad(format!(
                        "has a schema that is not 1 to {SCHEMA_BYTES_MAX} lower-case letters, digits and '_', a letter first"
                    )));
                }
                "schema_owner" => {
                    let owner = unescaped(value).filter(|name| !name.is_empty() && name.len() <= 63);
                    let wrong = || bad("has an option schema_owner that is not the name of a role");
                    self.owner = Some(owner.ok_or_else(wrong)?);
                }
                "migrate" => {
                    self.migrate = match value {
                        "manual" => MigrateSchema::Manual,
                        "auto" => MigrateSchema::Auto,
                        _ => return Err(bad("has an option migrate that is not manual or auto")),
                    }
                }
                "max_connections" => {
                    let count = value.parse().ok().filter(|count| (1..=CONNECTIONS_MAX).contains(count));
                    let wrong =
                        || bad(format!("has an option max_connections that is not 1 to {CONNECTIONS_MAX}"));
                    self.connections = count.ok_or_else(wrong)?;
                }
                "completed_jobs" => {
                    self.completed = match value {
                        "keep" => CompletedJobs::Keep,
                        "drop" => CompletedJobs::Drop,
                        _ => return Err(bad("has an option completed_jobs that is not keep or drop")),
                    }
                }
                KeepFinished::OPTION => self.keep_finished = KeepFinished::parse(value)?,
                "host" => {
                    let wrong = || bad("has an option host that is not the directory of a socket");
                    let path = unescaped(value).filter(|path| path.starts_with('/'));
                    directory = Some(path.ok_or_else(wrong)?);
                }
                "sslmode" => {
                    self.tls = match value {
                        "disable" => PostgresTls::Disable,
                        // More than `allow` asks for: in plain text only where the server cannot do better.
                        "allow" | "prefer" => PostgresTls::Prefer,
                        "require" => PostgresTls::Require,
                        // More than `verify-ca` asks for: the certificate has to be for this host, too.
                        "verify-ca" | "verify-full" => PostgresTls::VerifyFull,
                        _ => return Err(bad(format!("has an sslmode that is not one of {SSL_MODES}"))),
                    }
                }
                "sslrootcert" => {
                    let file = unescaped(value).filter(|file| !file.is_empty());
                    self.ca =
                        Some(file.ok_or_else(|| bad("has an option sslrootcert without a file"))?.into());
                }
                "port" => {
                    let wrong = || bad("has an option port that is not a number");
                    port = Some(value.parse().map_err(|_| wrong())?);
                }
                name => self.read_session_option(name, value)?,
            }
        }
        Ok((directory, port))
    }

    /// Reads an option that other programs of PostgreSQL know, too, so that the `DATABASE_URL` of an application can be used as it is.
    fn read_session_option(&mut self, name: &str, value: &str) -> Result<(), BadInput> {
        let text = || {
            let text = unescaped(value).filter(|text| !text.is_empty() && !text.contains('\0'));
            text.ok_or_else(|| bad(format!("has an option {name} that is empty, or has a broken %-escape")))
        };
        // 0: the default.
        let seconds = || {
            let wrong = |_| bad(format!("has an option {name} that is not a number of seconds"));
            Ok::<_, BadInput>(
                Some(Duration::from_secs(value.parse().map_err(wrong)?)).filter(|time| !time.is_zero()),
            )
        };
        match name {
            "user" if self.user.is_none() => self.user = Some(text()?),
            "password" if self.password.is_none() => self.password = Some(text()?),
            "user" | "password" => return Err(bad(format!("names a {name} twice"))),
            "application_name" => self.application_name = Some(text()?),
            "options" => {
                let options = text()?;
                if options.to_ascii_lowercase().replace('-', "_").contains("synchronous_commit") {
                    return Err(bad(
                        "has options that set synchronous_commit: what was granted could be lost in a crash",
                    ));
                }
                self.session_options = Some(options);
            }
            "connect_timeout" => self.connect_timeout = seconds()?,
            "keepalives_idle" => self.keepalives_idle = seconds()?,
            "keepalives" => {
                self.keepalives = match value {
                    "0" => false,
                    "1" => true,
                    _ => return Err(bad("has an option keepalives that is not 0 or 1")),
                }
            }
            // A server that takes no writes is never used: leases are written.
            "target_session_attrs" if matches!(value, "any" | "primary" | "read-write") => {}
            "target_session_attrs" => {
                return Err(bad(
                    "has target_session_attrs that are not any, primary or read-write: leases are written",
                ));
            }
            // Our side cannot bind a log-in to the encrypted connection, so nothing is lost by these two.
            "channel_binding" if matches!(value, "disable" | "prefer") => {}
            "channel_binding" => {
                return Err(bad(
                    "has a channel_binding that is not disable or prefer: it cannot be required yet",
                ));
            }
            // An option that is not understood may have been meant as a safeguard: it is refused, not ignored.
            // After a password with a bare '&', what follows may be the rest of it.
            _ if self.password.is_some() => return Err(unknown("?", &format!("postgres: takes {OPTIONS}"))),
            _ => return Err(unknown(name, &format!("postgres: takes {OPTIONS}"))),
        }
        Ok(())
    }
}

/// A name as it stands in SQL, also where it is a word of the language.
pub fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

fn server(text: &str, default_port: u16) -> Option<(String, u16)> {
    let (host, port) = host_and_port(text, default_port)?;
    let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    let fine = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_' | ':');
    (!host.is_empty() && host.chars().all(fine)).then(|| (host.to_owned(), port))
}

impl fmt::Display for PostgresUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("postgres://")?;
        if let Some(user) = &self.user {
            write!(f, "{}@", escaped(user))?;
        }
        let mut directory = None;
        for (nth, (host, port)) in self.hosts.iter().enumerate() {
            let comma = if nth > 0 { "," } else { "" };
            match host {
                socket if socket.starts_with('/') => {
                    directory = Some(socket.replace('%', "%25").replace('&', "%26"));
                    write!(f, ":{port}")?;
                }
                six if six.contains(':') => write!(f, "{comma}[{six}]:{port}")?,
                host => write!(f, "{comma}{host}:{port}")?,
            }
        }
        write!(f, "/{}", escaped(&self.database))?;
        let schema = (self.schema != SCHEMA).then(|| format!("schema={}", self.schema));
        let directory = directory.map(|directory| format!("host={directory}"));
        let options: Vec<String> = schema.into_iter().chain(directory).collect();
        if options.is_empty() { Ok(()) } else { write!(f, "?{}", options.join("&")) }
    }
}

impl fmt::Debug for PostgresUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PostgresUrl({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::StoreUrl;

    fn parsed(text: &str) -> PostgresUrl {
        match text.parse() {
            Ok(StoreUrl::Postgres(url)) => *url,
            other => panic!("{other:?}"),
        }
    }

    fn error(text: &str) -> String {
        text.parse::<StoreUrl>().unwrap_err().to_string()
    }

    #[test]
    fn completed_jobs_are_kept_unless_they_are_said_to_be_dropped() {
        assert_eq!(parsed("postgres://h/app").completed, CompletedJobs::Keep);
        assert_eq!(parsed("postgres://h/app?completed_jobs=keep").completed, CompletedJobs::Keep);
        assert_eq!(parsed("postgres://h/app?completed_jobs=drop").completed, CompletedJobs::Drop);
        assert!(error("postgres://h/app?completed_jobs=never").contains("keep or drop"));
    }

    #[test]
    fn a_schema_is_migrated_when_asked_unless_the_url_says_auto() {
        assert_eq!(parsed("postgres://h/app").migrate, MigrateSchema::Manual);
        let url = parsed("postgres://h/app?migrate=auto&schema_owner=app%40home");
        assert_eq!((url.migrate, url.owner.as_deref()), (MigrateSchema::Auto, Some("app@home")));
        assert!(error("postgres://h/app?migrate=never").contains("manual or auto"));
        assert!(error("postgres://h/app?schema_owner=").contains("not the name of a role"));
    }

    #[test]
    fn finished_jobs_are_kept_for_the_time_that_is_named() {
        assert_eq!(parsed("postgres://h/app").keep_finished.named_ms(), None);
        let month = parsed("postgres://h/app?keep_finished=30d");
        assert_eq!(month.keep_finished.named_ms(), Some(30 * 24 * 3_600_000));
        assert!(
            error("postgres://h/app?keep_finished=1s")
                .contains("keep_finished is 1s; it must be 1h to 3650d")
        );
    }

    #[test]
    fn a_database_has_servers_a_user_a_schema_and_tls() {
        let url = parsed(
            "postgres://me:p%40ss:w@a,b:1,[::1]:7/app?schema=leases&max_connections=3&sslmode=verify-full&sslrootcert=/ca.pem",
        );
        assert_eq!(url.hosts, [("a".to_owned(), 5432), ("b".to_owned(), 1), ("::1".to_owned(), 7)]);
        assert_eq!((url.database.as_str(), url.schema.as_str(), url.connections), ("app", "leases", 3));
        assert_eq!((url.user.as_deref(), url.password.as_deref()), (Some("me"), Some("p@ss:w")));
        assert_eq!((url.tls, url.ca), (PostgresTls::VerifyFull, Some("/ca.pem".into())));
        let plain = parsed("postgresql://me@h/app");
        assert_eq!(
            (plain.schema.as_str(), plain.tls, plain.password),
            ("fencehold", PostgresTls::Prefer, None)
        );
        assert_eq!(parsed("postgres:///app").hosts, [("localhost".to_owned(), 5432)]);
        assert_eq!(parsed("postgres://me@:7/app?host=/run/pg").hosts, [("/run/pg".to_owned(), 7)]);
    }

    #[test]
    fn what_is_not_understood_is_refused_and_named() {
        assert!(error("postgres:h/db").contains("names no server"));
        assert!(error("postgres://h").contains("names no database"));
        assert!(!error("postgres:///ada:secret@h/app").contains("secret"));
        assert!(error("postgres://h:x/db").contains("names a server that is not HOST"));
        assert!(error("postgres://h/db?sync=off").contains("option \"sync\"; postgres: takes schema"));
        assert!(error("postgres://h/db?schema=No").contains("schema that is not"));
        assert!(error("postgres://h/db?schema=pg_x").contains("schema that is not"));
        assert!(error("postgres://h/db?max_connections=0").contains("not 1 to 1000"));
        let said = error("postgres://h/db?sslmode=off");
        assert!(
            said.contains("not one of disable, allow, prefer, require, verify-ca, verify-full"),
            "{said}"
        );
        for old in ["owner=a", "connections=3", "completed=drop"] {
            let said = error(&format!("postgres://h/db?{old}"));
            assert!(
                said.contains(
                    "postgres: takes schema, schema_owner, migrate, max_connections, completed_jobs"
                ),
                "{said}"
            );
        }
        assert!(error("postgres://h/db?host=/run").contains("names a host twice"));
    }

    #[test]
    fn the_url_of_an_application_is_used_as_it_is() {
        let url = parsed(
            "postgresql://h/app?application_name=my%20app&connect_timeout=3&options=-c%20work_mem%3D8MB&keepalives=1\
             &keepalives_idle=30&target_session_attrs=any&channel_binding=prefer&sslmode=verify-ca&sslrootcert=%2Fca.pem&user=me&password=p%26w&port=7",
        );
        assert_eq!(url.hosts, [("h".to_owned(), 7)]);
        assert_eq!((url.user.as_deref(), url.password.as_deref()), (Some("me"), Some("p&w")));
        assert_eq!(url.application_name.as_deref(), Some("my app"));
        assert_eq!(url.session_options.as_deref(), Some("-c work_mem=8MB"));
        assert_eq!(url.connect_timeout, Some(Duration::from_secs(3)));
        assert_eq!((url.keepalives, url.keepalives_idle), (true, Some(Duration::from_secs(30))));
        assert_eq!((url.tls, url.ca), (PostgresTls::VerifyFull, Some("/ca.pem".into())));
        assert_eq!(parsed("postgres://h/app?sslmode=allow").tls, PostgresTls::Prefer);
        assert_eq!(parsed("postgres://h/app?connect_timeout=0").connect_timeout, None);
        let off = parsed("postgres://h/app?keepalives=0&keepalives_idle=0");
        assert_eq!((off.keepalives, off.keepalives_idle), (false, None));
        assert_eq!(parsed("postgres://[::1]/app?port=7").hosts, [("::1".to_owned(), 7)]);
        assert_eq!(parsed("postgres:///app?host=/run&port=7").hosts, [("/run".to_owned(), 7)]);
        for (wrong, said) in [
            ("user=b", "names a user twice"),
            ("application_name=", "application_name that is empty"),
            ("connect_timeout=soon", "connect_timeout that is not a number of seconds"),
            ("port=x", "port that is not a number"),
            ("keepalives=2", "not 0 or 1"),
            ("target_session_attrs=read-only", "leases are written"),
            ("channel_binding=require", "cannot be required yet"),
            ("options=-c%20synchronous_commit%3Doff", "could be lost in a crash"),
            ("options=--Synchronous-Commit%3Doff", "could be lost in a crash"),
        ] {
            assert!(error(&format!("postgres://a@h/db?{wrong}")).contains(said), "{wrong}");
        }
        assert!(error("postgres://a@h:1/db?port=7").contains("names a port twice"));
    }

    #[test]
    fn what_is_printed_is_read_as_the_same_place() {
        for (text, shown) in [
            ("postgres://me@:7/app?host=/run/pg", "postgres://me@:7/app?host=/run/pg"),
            ("postgres:///app?host=/r%26n&schema=x", "postgres://:5432/app?schema=x&host=/r%26n"),
            ("postgres://a%40b%3Ac@h/d%2Fb%3f", "postgres://a%40b%3Ac@h:5432/d%2Fb%3F"),
        ] {
            let url = parsed(text);
            assert_eq!(url.to_string(), shown);
            assert_eq!(parsed(shown), url, "{text}");
        }
    }

    #[test]
    fn a_password_is_never_printed() {
        let url = "postgres://me:secret@h/db?schema=x".parse::<StoreUrl>().unwrap();
        assert_eq!(url.to_string(), "postgres://me@h:5432/db?schema=x");
        assert!(!format!("{url:?}").contains("secret"));
        let url = "postgres://h/db?user=me&password=secret".parse::<StoreUrl>().unwrap();
        assert!(!format!("{url} {url:?}").contains("secret"));
        for broken in [
            "postgres://me:secret@h:x/db",
            "postgres://me:secret%4@h/db",
            "postgres://me:1?secret@h/db",
            "postgres://me:secret@h",
            "postgres://h/db?password=first&secret",
            "postgres://h/db?password=first&password=secret",
        ] {
            assert!(!error(broken).contains("secret"), "{broken}");
        }
    }
}
