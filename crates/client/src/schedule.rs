//! Schedules: when to enqueue what.

use fencehold_contract::job::{ScheduleSpec, ScheduleView};
use fencehold_core::BadInput;
use fencehold_core::job::{JobKind, JobOptions, QueueName, ScheduleName};
use serde::Serialize;

use crate::connect::Fencehold;
use crate::error::Error;
use crate::json;

impl Fencehold {
    /// A schedule, by its name.
    ///
    /// ```
    /// # async fn example(fh: fencehold::Fencehold) -> Result<(), fencehold::Error> {
    /// fh.schedule("nightly-report")
    ///     .cron("30 3 * * *")
    ///     .time_zone("Europe/Berlin")
    ///     .job("reports", "build", &"all")
    ///     .set()
    ///     .await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn schedule(&self, name: impl AsRef<str>) -> Schedule {
        Schedule {
            fencehold: self.clone(),
            name: ScheduleName::new(name.as_ref()),
            cron: String::new(),
            time_zone: "UTC".to_owned(),
            job: Err(BadInput::new("schedule", "does not say which job to enqueue")),
            options: JobOptions::default(),
            labels: Vec::new(),
        }
    }
}

/// A schedule to be set or deleted.
#[derive(Clone, Debug)]
#[must_use = "nothing happens until `set` or `delete` is awaited"]
pub struct Schedule {
    fencehold: Fencehold,
    name: Result<ScheduleName, BadInput>,
    cron: String,
    time_zone: String,
    job: Result<(QueueName, JobKind, Box<str>), BadInput>,
    options: JobOptions,
    labels: Vec<(Box<str>, Box<str>)>,
}

impl Schedule {
    /// When: a cron line of five fields.
    pub fn cron(self, line: impl Into<String>) -> Self {
        Schedule { cron: line.into(), ..self }
    }

    /// The time zone in which the line is read, by its IANA name. Default: UTC.
    pub fn time_zone(self, time_zone: impl Into<String>) -> Self {
        Schedule { time_zone: time_zone.into(), ..self }
    }

    /// What: a job of this kind with this payload in this queue.
    pub fn job(
        self,
        queue: impl AsRef<str>,
        kind: impl AsRef<str>,
        payload: &(impl Serialize + ?Sized),
    ) -> Self {
        let made = || {
            let payload = json::written("payload", payload)?;
            Ok((QueueName::new(queue.as_ref())?, JobKind::new(kind.as_ref())?, payload))
        };
        Schedule { job: made(), ..self }
    }

    /// The options of its jobs.
    pub fn options(self, options: JobOptions) -> Self {
        Schedule { options, ..self }
    }

    /// A label of its jobs.
    pub fn label(mut self, name: impl Into<Box<str>>, value: impl Into<Box<str>>) -> Self {
        self.labels.push((name.into(), value.into()));
        self
    }

    /// Makes the schedule, or changes it. The answer says when it fires next.
    pub async fn set(self) -> Result<ScheduleView, Error> {
        let (queue, kind, payload) = self.job?;
        let spec = ScheduleSpec {
            name: self.name?,
            cron: self.cron,
            time_zone: self.time_zone,
            queue,
            kind,
            payload,
            options: self.options,
            labels: self.labels,
            by: self.fencehold.owner().clone(),
        };
        self.fencehold.ask(|jobs, call| jobs.set_schedule(call, spec.clone())).await
    }

    /// Deletes the schedule. False: there was none.
    pub async fn delete(self) -> Result<bool, Error> {
        let (name, by) = (self.name?, self.fencehold.owner());
        let deleted = self
            .fencehold
            .ask(|jobs, call| jobs.delete_schedule(call, name.clone(), by.clone()));
        deleted.await
    }
}
