//! The commands: a file for each noun, or for a verb that has none, and a line for each verb in a registry.

#[cfg(feature = "server")]
mod access_token;
mod advise;
#[cfg(feature = "server")]
mod audit;
mod bench;
#[cfg(feature = "server")]
mod config;
#[cfg(all(feature = "file", feature = "server"))]
mod demo;
mod doctor;
mod effect;
mod event;
mod explain;
mod job;
mod lease;
mod man;
mod plan;
mod program;
mod queue;
mod quota;
#[cfg(feature = "race")]
mod race;
mod run;
mod schedule;
#[cfg(feature = "server")]
mod serve;
mod store;
#[cfg(feature = "top")]
mod top;
mod work;

use std::pin::Pin;

use crate::failure::Failure;

/// What a verb returns: nothing, or an exit code of its own; or why it failed.
pub(crate) type VerbResult<T = ()> = Result<T, Failure>;

/// One verb under way, boxed as any future: its state is no part of the registry's, nor is the code that drops it.
pub(crate) fn boxed<'v, T>(
    verb: impl Future<Output = VerbResult<T>> + 'v,
) -> Pin<Box<dyn Future<Output = VerbResult<T>> + 'v>> {
    Box::pin(verb)
}

/// Makes a registry of verbs. Each is named with the type of its arguments, whose `run` carries it out. Verbs with the
/// same arguments bring their own help, and the method that carries them out.
macro_rules! verbs {
    (
        $(#[doc = $about:literal])* $(#[command($($help:tt)+)])? $registry:ident: $(
            $(#[cfg($when:meta)])? $(#[doc = $verb_about:literal])* $(#[command($($verb_help:tt)+)])?
            $name:ident = $args:path $(=> $run:ident($($more:expr),*))?,
        )+
    ) => {
        $(#[doc = $about])*
        #[derive(Debug, clap::Subcommand)]
        $(#[command($($help)+)])?
        pub(crate) enum $registry {
            $($(#[cfg($when)])? $(#[doc = $verb_about])* $(#[command($($verb_help)+)])? $name($args),)+
        }

        impl $registry {
            pub(crate) async fn run(
                self,
                context: &$crate::context::Context,
            ) -> $crate::verb::VerbResult<std::process::ExitCode> {
                match self {
                    $($(#[cfg($when)])? $registry::$name(args) => {
                        $crate::verb::boxed($crate::verb::verbs!(@run args, context $(, $run($($more),*))?))
                            .await
                            .map(std::process::Termination::report)
                    })+
                }
            }
        }
    };
    (@run $args:ident, $context:ident) => {
        $args.run($context)
    };
    (@run $args:ident, $context:ident, $run:ident($($more:expr),*)) => {
        $args.$run($context, $($more),*)
    };
}
pub(crate) use verbs;

verbs! { Verb:
    #[cfg(feature = "server")]
    Serve = serve::Args,
    Run = run::Args,
    Work = work::Args,
    #[command(subcommand)]
    Lease = lease::Verb,
    #[command(subcommand)]
    Job = job::Verb,
    #[command(subcommand)]
    Queue = queue::Verb,
    #[command(subcommand)]
    Schedule = schedule::Verb,
    #[command(subcommand)]
    Effect = effect::Verb,
    #[command(subcommand)]
    Event = event::Verb,
    #[cfg(feature = "top")]
    Top = top::Args,
    Explain = explain::Args,
    Advise = advise::Args,
    Plan = plan::Args,
    #[command(subcommand)]
    Store = store::Verb,
    #[command(subcommand)]
    Quota = quota::Verb,
    #[cfg(feature = "server")]
    #[command(subcommand)]
    AccessToken = access_token::Verb,
    #[cfg(feature = "server")]
    #[command(subcommand)]
    Audit = audit::Verb,
    #[cfg(feature = "server")]
    #[command(subcommand)]
    Config = config::Verb,
    Doctor = doctor::Args,
    #[command(subcommand)]
    Bench = bench::Verb,
    #[cfg(feature = "race")]
    #[command(subcommand)]
    Race = race::Verb,
    #[cfg(all(feature = "file", feature = "server"))]
    Demo = demo::Args,
    Completions = program::CompletionsArgs,
    Man = man::Args,
    Help = program::HelpArgs,
    Version = program::VersionArgs,
}

/// The verbs that programs and shells start over and over: they are read without the definition of all others.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum FrequentVerb {
    Run(run::Args),
    #[command(subcommand)]
    Lease(lease::Verb),
    #[command(subcommand)]
    Job(job::Verb),
}

impl From<FrequentVerb> for Verb {
    fn from(verb: FrequentVerb) -> Self {
        match verb {
            FrequentVerb::Run(args) => Verb::Run(args),
            FrequentVerb::Lease(verb) => Verb::Lease(verb),
            FrequentVerb::Job(verb) => Verb::Job(verb),
        }
    }
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

    /// Whether it draws on the whole terminal, where no other line has a place.
    pub(crate) fn draws(&self) -> bool {
        #[cfg(feature = "top")]
        let draws = matches!(self, Verb::Top(_));
        #[cfg(not(feature = "top"))]
        let draws = false;
        draws
    }
}
