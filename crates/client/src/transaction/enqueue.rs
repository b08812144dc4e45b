//! Jobs that are enqueued with the caller's transaction.

use fencehold_contract::job::{EnqueuedJob, NewJob};
use fencehold_contract::operation::check_job;
use fencehold_core::job::{JobId, QueueName};
use fencehold_core::limits::{CALL_BYTES_MAX, JOBS_PER_CALL_MAX};
use fencehold_core::{BadInput, Timestamp};

use super::{PostgresTransaction, TransactionError, schema_of};
use crate::connect::Fencehold;
use crate::error::Error;
use crate::json;
use crate::queue::{JobBuilder, JobQueue};
use crate::retry::only;

impl JobBuilder {
    /// Puts it into its queue with this transaction: once that commits, the job is there; if it is rolled back, it never was.
    ///
    /// ```no_run
    /// # #[cfg(feature = "tokio-postgres")]
    /// # async fn example(fh: fencehold::Fencehold, database: &mut tokio_postgres::Client) -> Result<(), Box<dyn std::error::Error>> {
    /// let mut transaction = database.transaction().await?;
    /// transaction.execute("INSERT INTO customer (address) VALUES ('ada@example.org')", &[]).await?;
    /// fh.queue("mail").job("welcome", &"ada@example.org").max_failures(3).enqueue_in(&mut transaction).await?;
    /// transaction.commit().await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// After an error of the database the transaction has failed: roll it back. A unique key or a new queue that another open transaction
    /// uses is waited for: two seconds, or as the setting `fencehold.enqueue_wait_ms` says; then it is [`Error::Unavailable`].
    pub async fn enqueue_in<T: PostgresTransaction + ?Sized>(
        self,
        transaction: &mut T,
    ) -> Result<EnqueuedJob, Error> {
        self.send_in(transaction).await
    }
}

impl<J> JobBuilder<J> {
    pub(crate) async fn send_in<T: PostgresTransaction + ?Sized>(
        self,
        transaction: &mut T,
    ) -> Result<EnqueuedJob, Error> {
        let fencehold = self.fencehold().clone();
        only(enqueue(&fencehold, transaction, &[checked(self.finish()?)?]).await?)
    }
}

impl JobQueue {
    /// Enqueues many jobs with this transaction, in as few statements as they fit into. All of them or none: an error means that none is
    /// enqueued, once the transaction was rolled back.
    ///
    /// ```no_run
    /// # #[cfg(feature = "tokio-postgres")]
    /// # async fn example(fh: fencehold::Fencehold, database: &mut tokio_postgres::Client) -> Result<(), Box<dyn std::error::Error>> {
    /// let mail = fh.queue("mail");
    /// let mut transaction = database.transaction().await?;
    /// let jobs = ["ada@example.org", "bob@example.org"].map(|to| mail.job("welcome", to).unique(to, std::time::Duration::from_secs(3_600)));
    /// let enqueued = mail.enqueue_batch_in(&mut transaction, jobs).await?;
    /// transaction.commit().await?;
    /// assert_eq!(enqueued.len(), 2);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn enqueue_batch_in<T: PostgresTransaction + ?Sized, J>(
        &self,
        transaction: &mut T,
        jobs: impl IntoIterator<Item = JobBuilder<J>>,
    ) -> Result<Vec<EnqueuedJob>, Error> {
        let jobs = jobs.into_iter().map(|job| checked(job.finish()?));
        let jobs = jobs.collect::<Result<Vec<NewJob>, Error>>()?;
        let mut enqueued = Vec::with_capacity(jobs.len());
        let mut rest = &jobs[..];
        while !rest.is_empty() {
            let (call, later) = rest.split_at(fitting(rest));
            enqueued.extend(enqueue(self.fencehold(), transaction, call).await?);
            rest = later;
        }
        Ok(enqueued)
    }
}

/// How many of these jobs fit into one call: one at least.
fn fitting(jobs: &[NewJob]) -> usize {
    let mut bytes = 0;
    let fits = jobs.iter().take(JOBS_PER_CALL_MAX).take_while(|job| {
        bytes += job.payload.len();
        bytes <= CALL_BYTES_MAX
    });
    fits.count().max(1)
}

/// A job that the store would take: what is wrong with it is said before the transaction fails of it.
fn checked(job: NewJob) -> Result<NewJob, Error> {
    check_job(&job, Timestamp::default())?;
    Ok(job)
}

async fn enqueue<T: PostgresTransaction + ?Sized>(
    fencehold: &Fencehold,
    transaction: &mut T,
    jobs: &[NewJob],
) -> Result<Vec<EnqueuedJob>, Error> {
    let connection = fencehold.connection();
    let sql = format!(
        "SELECT json_agg(json_build_object('job_id', e.job_id, 'existed', e.existed))::text AS answer \
         FROM {}.enqueue_jobs($1::text::json, $2::text) AS e",
        schema_of(connection)?
    );
    let documents = json::written("jobs", jobs)?;
    let answer = transaction.query_text(&sql, &[&documents, connection.namespace.as_str()]).await;
    let answer = answer.map_err(|error| refused(&error))?.unwrap_or_default();
    let enqueued: Vec<EnqueuedJob> = json::read("answer of the database", &answer)?;
    if enqueued.len() == jobs.len() {
        return Ok(enqueued);
    }
    Err(Error::OutcomeUnknown { message: "the database left a job unanswered".to_owned() })
}

/// What the library says where its own call would be refused like this.
fn refused(error: &TransactionError) -> Error {
    let message = error.message().to_owned();
    match error.sqlstate() {
        Some("23505") => conflict(&message).unwrap_or_else(|| unusable(error)),
        Some("FH004") => draining(&message).unwrap_or_else(|| unusable(error)),
        Some("FH006") => limit_reached(&message).unwrap_or_else(|| unusable(error)),
        Some(sqlstate) if sqlstate.starts_with("22") => BadInput::new("job", message).into(),
        // Another transaction was in the way, or the connection is lost: the transaction has failed, and nothing was done.
        Some("55P03" | "40P01" | "40001" | "57014" | "57P01") | None => Error::Unavailable { message },
        Some(_) => unusable(error),
    }
}

fn unusable(error: &TransactionError) -> Error {
    Error::Unusable { store: "the database of the transaction".to_owned(), message: error.to_string() }
}

/// Reads 'the unique key is taken by job ID, which has another payload'.
fn conflict(message: &str) -> Option<Error> {
    let (field, rest) = message.strip_prefix("the ")?.split_once(" is taken by job ")?;
    let (job, differs) = rest.split_once(", which has another ")?;
    let (field, job_id) = (field.replace(' ', "_"), JobId::parse(job).ok()?);
    // The function names what the other has, too.
    let differs = differs.split(" (").next().unwrap_or(differs).to_owned();
    Some(Error::Conflict { field, job_id, differs })
}

fn draining(message: &str) -> Option<Error> {
    let queue = message
        .strip_prefix("queue ")?
        .strip_suffix(" is being drained and takes no new jobs")?;
    Some(Error::QueueDraining { queue: QueueName::new(queue).ok()? })
}

fn limit_reached(message: &str) -> Option<Error> {
    let (message, limit) = message.rsplit_once(": the limit of ")?;
    let limit = limit.strip_suffix(" is reached")?.parse().ok()?;
    Some(Error::LimitReached { message: message.to_owned(), limit })
}
