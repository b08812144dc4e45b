//! The commands: one file each, and one line each in the registry.

#[cfg(feature = "server")]
mod access_token;
#[cfg(feature = "server")]
mod audit;
mod bench;
mod completions;
#[cfg(feature = "server")]
mod config;
mod doctor;
mod effect;
mod event;
mod explain;
mod help;
mod job;
mod lease;
mod man;
mod queue;
mod quota;
#[cfg(feature = "race")]
mod race;
mod run;
mod schedule;
#[cfg(feature = "server")]
mod serve;
mod store;
mod version;
mod work;

use crate::failure::Failure;

/// An exit code, or why there is none.
pub(crate) type VerbResult = Result<u8, Failure>;
/// All is well.
pub(crate) const DONE: u8 = 0;

/// Makes a registry of verbs. Each is a file with `Args` and their `run`.
macro_rules! verbs {
    ($registry:ident: $($(#[$when:meta])? $name:ident = $module:ident,)+) => {
        #[derive(Debug, clap::Subcommand)]
        pub(crate) enum $registry {
            $($(#[$when])? $name($module::Args),)+
        }

        impl $registry {
            pub(crate) async fn run(self, context: &$crate::context::Context) -> $crate::verb::VerbResult {
                match self {
                    // Boxed, so that one verb's needs do not make every other's state larger.
                    $($(#[$when])? $registry::$name(args) => Box::pin(args.run(context)).await,)+
                }
            }
        }
    };
}
pub(crate) use verbs;

/// Makes a verb that is a group of verbs: what its help says, with its examples, and the registry of what is in it.
macro_rules! group {
    ($(#[doc = $about:literal])+ $examples:ident: $($verbs:tt)+) => {
        $(#[doc = $about])+
        #[derive(Debug, clap::Args)]
        #[command(before_help = $examples, subcommand_value_name = "COMMAND", subcommand_help_heading = "Commands")]
        pub(crate) struct Args {
            #[command(subcommand)]
            verb: Verb,
        }

        impl Args {
            pub(crate) async fn run(self, context: &$crate::context::Context) -> $crate::verb::VerbResult {
                self.verb.run(context).await
            }
        }

        $crate::verb::verbs! { Verb: $($verbs)+ }
    };
}
pub(crate) use group;

verbs! { Verb:
    #[cfg(feature = "server")]
    Serve = serve,
    Run = run,
    Work = work,
    Lease = lease,
    Job = job,
    Queue = queue,
    Schedule = schedule,
    Effect = effect,
    Event = event,
    Explain = explain,
    Store = store,
    Quota = quota,
    #[cfg(feature = "server")]
    AccessToken = access_token,
    #[cfg(feature = "server")]
    Audit = audit,
    #[cfg(feature = "server")]
    Config = config,
    Doctor = doctor,
    Bench = bench,
    #[cfg(feature = "race")]
    Race = race,
    Completions = completions,
    Man = man,
    Help = help,
    Version = version,
}

impl Verb {
    /// Whether it is a server: it goes on for long, for many at once.
    pub(crate) fn serves(&self) -> bool {
        #[cfg(feature = "server")]
        let serves = matches!(self, Verb::Serve(_));
        #[cfg(not(feature = "server"))]
        let serves = false;
        serves
    }
}
