//! What a handler may be: a function of up to four arguments, each of which is the [`Job`], the payload or a [`State`].
//!
//! ```
//! use fencehold::{Fencehold, Job, JobError, State};
//!
//! #[derive(Clone)]
//! struct App { sender: String }
//!
//! #[derive(serde::Serialize, serde::Deserialize)]
//! struct Email { to: String }
//!
//! async fn send(job: Job, email: Email, State(app): State<App>) -> Result<String, JobError> {
//!     Ok(format!("attempt {}: from {} to {}", job.attempt(), app.sender, email.to))
//! }
//!
//! async fn clean_up(State(_app): State<App>) {} // neither job nor payload; nothing that could fail
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), fencehold::Error> {
//! # let fh = Fencehold::connect("memory:").await?;
//! # let sent = fh.queue("emails").job("send", &Email { to: "a@example.org".to_owned() }).enqueue().await?;
//! # fh.queue("emails").job("clean-up", &()).enqueue().await?;
//! let worker = fh.worker()
//!     .queue("emails")
//!     .state(App { sender: "b@example.org".to_owned() })
//!     .handle("send", send)
//!     .handle("clean-up", clean_up);
//! # assert_eq!(worker.until_empty().run().await?.finished, 2);
//! # let result: String = fh.jobs().result(sent.job_id, std::time::Duration::ZERO).await?;
//! # assert_eq!(result, "attempt 1: from b@example.org to a@example.org");
//! # Ok(())
//! # }
//! ```
//!
//! A handler returns a `Result`, an [`Outcome`] or nothing. Its error may be a [`JobError`], a [`std::error::Error`] that is `Send`, `Sync`
//! and `'static`, an `anyhow::Error`, an `eyre::Report`, a boxed error or a text. For any other type that implements `Display`, use
//! [`map_err(JobError::new)`](JobError::new). Within a handler that returns a [`JobError`], `?` takes a [`std::error::Error`]; for the others use
//! [`map_err(JobError::from_error)`](JobError::from_error)`?`.
//!
//! A closure names the types of its arguments, and its error where it ends in `Ok(…)`, as in `Ok::<_, JobError>(…)`. An async closure
//! cannot borrow what it has captured: pass that in as a [`State`].
//!
//! Deliberately absent: extractors of your own. What a handler needs beside its job is state.

use std::any::{Any, TypeId, type_name};
use std::borrow::Cow;
use std::collections::HashMap;
use std::ops::Deref;
use std::sync::Arc;

use fencehold_core::BadInput;
use serde::de::DeserializeOwned;

use crate::blocking;
use crate::job::{IntoOutcome, Job, JobError, Outcome};
use crate::json;
pub use crate::typed::{BlockingTypedJobHandler, FromTypedJob, TypedJobHandler, TypedResult};
#[cfg(feature = "tower")]
pub use crate::worker::{AttemptRequest, HandlerService};

/// A value of your program that a handler takes as an argument: [`Worker::state`](crate::Worker::state) gives it.
///
/// It is cloned for each attempt, so it is usually an [`Arc`], a connection pool or a struct of such.
#[derive(Clone, Copy, Debug)]
pub struct State<T>(pub T);

/// How handlers run: as tasks.
#[derive(Debug)]
pub enum Async {}

/// How handlers run: on threads.
#[derive(Debug)]
pub enum Blocking {}

/// What a handler can take as an argument: the job, a [`State`], or any type that its payload can be read as.
#[diagnostic::on_unimplemented(
    message = "a handler cannot take `{Self}` as an argument",
    label = "neither the job, nor a `State`, nor a payload",
    note = "a payload implements `serde::de::DeserializeOwned`; a blocking handler takes `fencehold::blocking::Job`, an async one `fencehold::Job`"
)]
pub trait FromJob<Mode>: Sized {
    #[doc(hidden)]
    fn from_job(input: &HandlerInput<'_>) -> Result<Self, JobError>;

    #[doc(hidden)]
    fn argument() -> Argument;
}

impl FromJob<Async> for Job {
    fn from_job(input: &HandlerInput<'_>) -> Result<Self, JobError> {
        Ok(input.job.clone())
    }

    fn argument() -> Argument {
        Argument::Job
    }
}

impl FromJob<Blocking> for blocking::Job {
    fn from_job(input: &HandlerInput<'_>) -> Result<Self, JobError> {
        Ok(input.job.clone().into())
    }

    fn argument() -> Argument {
        Argument::Job
    }
}

impl<T: Clone + Send + Sync + 'static, Mode> FromJob<Mode> for State<T> {
    fn from_job(input: &HandlerInput<'_>) -> Result<Self, JobError> {
        // No handler begins without it.
        input
            .states
            .get()
            .map(State)
            .ok_or_else(|| JobError::new("the state of this type is missing"))
    }

    fn argument() -> Argument {
        Argument::State(TypeId::of::<T>(), type_name::<T>())
    }
}

impl<P: DeserializeOwned, Mode> FromJob<Mode> for P {
    /// One that does not fit may yet fit the handler of another worker: it is a failure like any other.
    fn from_job(input: &HandlerInput<'_>) -> Result<Self, JobError> {
        json::read("payload", input.payload).map_err(|bad| {
            JobError::new(format!("the handler of kind {} cannot read this job: its {bad}", input.job.kind()))
        })
    }

    fn argument() -> Argument {
        Argument::Payload(type_name::<P>())
    }
}

pub(crate) use sealed::{Argument, HandlerInput, States, check_arguments};

/// What has no name outside: so no other crate can implement the traits that speak of it.
mod sealed {
    use super::{Any, Arc, BadInput, HashMap, Job, TypeId, type_name};

    /// What the arguments of a handler are made of.
    #[derive(Debug)]
    pub struct HandlerInput<'a> {
        pub(crate) job: &'a Job,
        pub(crate) payload: &'a str,
        pub(crate) states: &'a States,
    }

    /// What an argument of a handler is, and its type.
    #[derive(Clone, Copy, Debug)]
    pub enum Argument {
        Job,
        State(TypeId, &'static str),
        Payload(&'static str),
    }

    /// The states of a worker, by their types.
    #[derive(Clone, Debug, Default)]
    pub(crate) struct States(HashMap<TypeId, Arc<dyn Any + Send + Sync>>);

    impl States {
        pub(crate) fn add<T: Send + Sync + 'static>(&mut self, state: T) -> Result<(), BadInput> {
            match self.0.insert(TypeId::of::<T>(), Arc::new(state)) {
                None => Ok(()),
                Some(_) => {
                    Err(BadInput::new("state", format!("of type {} was given twice", type_name::<T>())))
                }
            }
        }

        pub(super) fn get<T: Clone + 'static>(&self) -> Option<T> {
            self.0.get(&TypeId::of::<T>())?.downcast_ref().cloned()
        }
    }

    /// Whether a handler can have these arguments. `which` names it.
    pub(crate) fn check_arguments(
        arguments: &[Argument],
        states: &States,
        which: &str,
    ) -> Result<(), BadInput> {
        let mut payload = None;
        for argument in arguments {
            let problem = match *argument {
                Argument::Job => continue,
                Argument::State(id, _) if states.0.contains_key(&id) => continue,
                Argument::State(_, name) => {
                    format!("takes State<{name}>, and no state of this type was given: call `state` with one")
                }
                Argument::Payload(name) => match payload.replace(name) {
                    None => continue,
                    Some(first) => format!(
                        "takes two payloads, {first} and {name}, and a job has one: is one of them meant to be a State?"
                    ),
                },
            };
            return Err(BadInput::new("handler", format!("{which} {problem}")));
        }
        Ok(())
    }
}

/// An async handler. Functions and closures are, where their arguments are [`FromJob`] and what they return is
/// [`IntoHandlerResult`].
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no async handler",
    note = "a handler is an async function of up to four arguments, each the `Job`, the payload or a `State`; it returns a `Result`, an `Outcome` or nothing"
)]
pub trait JobHandler<Arguments> {
    #[doc(hidden)]
    type Output;
    #[doc(hidden)]
    type Future: Future<Output = Self::Output>;
    #[doc(hidden)]
    fn call(&self, input: &HandlerInput<'_>) -> Result<Self::Future, JobError>;
    #[doc(hidden)]
    fn result(output: Self::Output) -> Result<Outcome, JobError>;
    #[doc(hidden)]
    fn arguments() -> Vec<Argument>;
}

/// A blocking handler. Functions and closures are, as with [`JobHandler`].
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no blocking handler",
    note = "a blocking handler is a function of up to four arguments, each the `blocking::Job`, the payload or a `State`; it returns a `Result`, an `Outcome` or nothing"
)]
pub trait BlockingJobHandler<Arguments> {
    #[doc(hidden)]
    fn call(&self, input: &HandlerInput<'_>) -> Result<Outcome, JobError>;
    #[doc(hidden)]
    fn arguments() -> Vec<Argument>;
}

macro_rules! functions {
    ($($argument:ident)*) => {
        impl<F, Fut, O, Error, $($argument),*> JobHandler<(Error, $($argument,)*)> for F
        where
            F: Fn($($argument),*) -> Fut,
            Fut: Future<Output = O>,
            O: IntoHandlerResult<Error>,
            $($argument: FromJob<Async>,)*
        {
            type Output = O;
            type Future = Fut;

            fn call(&self, _input: &HandlerInput<'_>) -> Result<Fut, JobError> {
                Ok(self($($argument::from_job(_input)?),*))
            }

            fn result(output: O) -> Result<Outcome, JobError> {
                output.into_handler_result()
            }

            fn arguments() -> Vec<Argument> {
                vec![$($argument::argument()),*]
            }
        }

        impl<F, O, Error, $($argument),*> BlockingJobHandler<(Error, $($argument,)*)> for F
        where
            F: Fn($($argument),*) -> O,
            O: IntoHandlerResult<Error>,
            $($argument: FromJob<Blocking>,)*
        {
            fn call(&self, _input: &HandlerInput<'_>) -> Result<Outcome, JobError> {
                self($($argument::from_job(_input)?),*).into_handler_result()
            }

            fn arguments() -> Vec<Argument> {
                vec![$($argument::argument()),*]
            }
        }
    };
}

functions!();
functions!(A);
functions!(A B);
functions!(A B C);
functions!(A B C D);

/// What a handler may return: a `Result` of something that is [`IntoOutcome`] and [`IntoJobError`], an [`Outcome`], or
/// nothing.
#[diagnostic::on_unimplemented(
    message = "a handler cannot return `{Self}`",
    note = "it returns `Result<R, E>`, an `Outcome` or nothing; `R` is an `Outcome` or can be written as JSON, and `E` is a `JobError`, an error or a text"
)]
pub trait IntoHandlerResult<Error> {
    #[doc(hidden)]
    fn into_handler_result(self) -> Result<Outcome, JobError>;
}

impl IntoHandlerResult<()> for () {
    fn into_handler_result(self) -> Result<Outcome, JobError> {
        Outcome::complete(&())
    }
}

impl IntoHandlerResult<()> for Outcome {
    fn into_handler_result(self) -> Result<Outcome, JobError> {
        Ok(self)
    }
}

impl<R: IntoOutcome, E: IntoJobError<Form>, Form> IntoHandlerResult<Form> for Result<R, E> {
    fn into_handler_result(self) -> Result<Outcome, JobError> {
        self.map_err(E::into_job_error)?.into_outcome()
    }
}

/// An error that a handler may return. `Form` keeps the kinds of errors apart, and is inferred.
#[diagnostic::on_unimplemented(
    message = "a handler cannot fail with `{Self}`",
    note = "it fails with a `JobError`, a `std::error::Error`, an `anyhow::Error`, an `eyre::Report`, a boxed error that is `Send` and `Sync`, or a text; for any other type that implements `Display` use `.map_err(JobError::new)`"
)]
pub trait IntoJobError<Form> {
    /// The failure that it is.
    fn into_job_error(self) -> JobError;
}

/// The form of an error that is a [`JobError`].
#[derive(Debug)]
pub enum Ours {}
/// The form of an error that is a [`std::error::Error`].
#[derive(Debug)]
pub enum StandardError {}
/// The form of an error that wraps one: `anyhow::Error`, `eyre::Report`, `Box<dyn Error + Send + Sync>`.
#[derive(Debug)]
pub enum WrappedError {}
/// The form of an error that is a text.
#[derive(Debug)]
pub enum Text {}

impl IntoJobError<Ours> for JobError {
    fn into_job_error(self) -> JobError {
        self
    }
}

impl<E: std::error::Error + Send + Sync + 'static> IntoJobError<StandardError> for E {
    fn into_job_error(self) -> JobError {
        JobError::from(self)
    }
}

impl<E: Deref<Target = dyn std::error::Error + Send + Sync>> IntoJobError<WrappedError> for E {
    fn into_job_error(self) -> JobError {
        JobError::of(&*self)
    }
}

impl IntoJobError<Text> for &'static str {
    fn into_job_error(self) -> JobError {
        JobError::new(self)
    }
}

impl IntoJobError<Text> for String {
    fn into_job_error(self) -> JobError {
        JobError::new(self)
    }
}

impl IntoJobError<Text> for Box<str> {
    fn into_job_error(self) -> JobError {
        JobError::new(self)
    }
}

impl IntoJobError<Text> for Cow<'static, str> {
    fn into_job_error(self) -> JobError {
        JobError::new(self)
    }
}
