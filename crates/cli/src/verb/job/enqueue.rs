//! `fencehold job enqueue`: one job, or a file of them.

use std::fs::File;
use std::io::{BufRead, BufReader, stdin};
use std::path::PathBuf;

use clap::ArgGroup;
use fencehold_contract::clock::{Clock as _, SystemClock};
use fencehold_contract::job::{EnqueuedJob, NewJob, Unique, When};
use fencehold_core::job::{JobId, JobKind, JobOptions, QueueName, UniqueKey};
use fencehold_core::limits::{PAYLOAD_BYTES_MAX, RUN_AT_WALL_MS_MAX};
use serde::Serialize;

use super::lines::{self, Line};
use super::terms::{Label, Payload, TermsArgs, parse_label};
use crate::context::{Context, Create, Store};
use crate::duration::parse_ms;
use crate::exit::Exit;
use crate::failure::{Failure, only_answer};
use crate::output::{Format, note};
use crate::show::Progress;
use crate::verb::{DONE, Outcome};

const EXAMPLES: &str = "\
Examples:
  fencehold job enqueue --queue emails --kind welcome --payload '{\"to\":\"a@example.org\"}'

  # In ten minutes, at most three times, and only once for this invoice
  fencehold job enqueue --queue invoices --kind send --payload 42 --delay 10m --max-attempts 3 --unique invoice-42

  # One job for each line of a file, or of stdin
  fencehold job enqueue --queue images --kind resize --jsonl images.jsonl
";

const MORE: &str = "\
Prints the id of each job. The same unique key with the same payload gives the id of the first job; with another \
payload it is an error that names the first job. With --jsonl every line is one payload: a line that is refused is told \
on stderr with its number, the others go through, and the exit code is 1.";

/// How many jobs, and how many bytes of payload, go into one call.
const BATCH_JOBS: usize = 1_000;
const BATCH_BYTES: usize = 4 << 20;

/// Put jobs into a queue
#[derive(Debug, clap::Args)]
#[command(before_help = EXAMPLES, after_help = MORE)]
#[command(group = ArgGroup::new("what").required(true).args(["payload", "jsonl"]))]
pub(crate) struct Args {
    /// Where they stand in line
    #[arg(long)]
    queue: QueueName,
    /// What they are: tells whoever works on them what to do
    #[arg(long)]
    kind: JobKind,
    /// What the job is about
    #[arg(long, value_name = "JSON", allow_hyphen_values = true)]
    payload: Option<Payload>,
    /// A file with one payload a line; - is stdin
    #[arg(long, value_name = "FILE")]
    jsonl: Option<PathBuf>,
    /// Not before this time has passed
    #[arg(long, value_name = "DURATION", value_parser = parse_ms, allow_hyphen_values = true, conflicts_with = "run_at")]
    delay: Option<u64>,
    /// Not before this moment: 2026-12-24T18:00:00Z, or with an offset
    #[arg(long, value_name = "TIME", value_parser = parse_moment, allow_hyphen_values = true)]
    run_at: Option<u64>,
    /// Jobs with the same key are the same job
    #[arg(long, value_name = "KEY", conflicts_with = "jsonl")]
    unique: Option<UniqueKey>,
    /// For how long the unique key is remembered
    #[arg(long, value_name = "DURATION", default_value = "1d", value_parser = parse_ms, requires = "unique")]
    unique_for: u64,
    /// For finding it again (repeatable)
    #[arg(long, value_name = "NAME=VALUE", value_parser = parse_label)]
    label: Vec<Label>,
    /// The W3C trace context (traceparent) that the work belongs to
    #[arg(long, value_name = "TRACEPARENT")]
    trace: Option<String>,
    /// While it waits, ask a running job of lower priority to yield within this time
    #[arg(long, value_name = "DURATION", value_parser = parse_ms, allow_hyphen_values = true)]
    preempt: Option<u64>,
    #[command(flatten)]
    terms: TermsArgs,
    #[command(flatten)]
    create: Create,
}

/// What became of one payload.
#[derive(Debug, Serialize)]
struct Placed {
    #[serde(skip_serializing_if = "Option::is_none")]
    line: Option<u64>,
    id: JobId,
    /// Whether it was there already.
    existed: bool,
}

impl Args {
    pub(crate) async fn run(mut self, context: &Context) -> Outcome {
        // What no store accepts makes no store either.
        let terms = self.terms.terms()?;
        self.queue.check_open()?;
        let store = context.open(self.create)?;
        store
            .closing(async |store| match (self.payload.take(), self.jsonl.take()) {
                (Some(payload), _) => self.one(context, store, terms, payload).await,
                (None, Some(file)) => Bulk::new(&self, context, store, terms).run(file).await,
                (None, None) => Err(Failure::new(Exit::Usage, "give --payload or --jsonl")),
            })
            .await
    }

    async fn one(&self, context: &Context, store: &Store, terms: JobOptions, payload: Payload) -> Outcome {
        let job = self.job(terms, payload)?;
        let id = job.id;
        let answers = store
            .ask(async |jobs, call| jobs.enqueue(call, vec![job.clone()]).await)
            .await?;
        let EnqueuedJob { job_id: id, existed } =
            only_answer(answers, |refusal| Failure::refused_job(id, refusal))?;
        let placed = Placed { line: None, id, existed };
        context.output.one(&placed, |_| id.to_string())?;
        if existed && context.output.format == Format::Table {
            note("it was there already: the unique key is that of this job");
        }
        Ok(DONE)
    }

    fn job(&self, terms: JobOptions, payload: Payload) -> Result<NewJob, Failure> {
        let when = match (self.delay, self.run_at) {
            (Some(delay_ms), _) => When::After { delay_ms },
            (None, Some(wall_ms)) => When::At { wall_ms },
            (None, None) => When::Now,
        };
        let unique = self.unique.clone().map(|key| Unique { key, window_ms: self.unique_for });
        Ok(NewJob {
            options: terms,
            when,
            unique,
            labels: self.label.clone(),
            traceparent: self.trace.as_deref().map(Into::into),
            preempt_within_ms: self.preempt,
            ..NewJob::new(fresh_id()?, self.queue.clone(), self.kind.clone(), payload.0)
        })
    }
}

/// An id for a new job.
fn fresh_id() -> Result<JobId, Failure> {
    let mut bits = [0; 10];
    getrandom::fill(&mut bits)
        .map_err(|error| Failure::new(Exit::Failed, format!("the system gives no randomness: {error}")))?;
    Ok(JobId::from_random(SystemClock.now().wall_ms, bits))
}

/// Reads a moment as RFC 3339 writes it.
fn parse_moment(text: &str) -> Result<u64, String> {
    let example = "write it as 2026-12-24T18:00:00Z or 2026-12-24T18:00:00+01:00";
    let year = text.trim_start_matches(['+', '-']).split('-').next().unwrap_or_default();
    if year.len() > 4 && year.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(format!("the moment is after the year 9999; {example}"));
    }
    let moment: jiff::Timestamp = text
        .trim()
        .parse()
        .map_err(|_| format!("not a moment with its offset; {example}"))?;
    match u64::try_from(moment.as_millisecond()) {
        Ok(wall_ms) if wall_ms <= RUN_AT_WALL_MS_MAX => Ok(wall_ms),
        Ok(_) => Err(format!("the moment is after the year 9999; {example}")),
        Err(_) => Err(format!("the moment is before 1970; {example}")),
    }
}

/// Many jobs from one file, batch by batch.
struct Bulk<'a> {
    args: &'a Args,
    context: &'a Context,
    store: &'a Store,
    terms: JobOptions,
    progress: Progress,
    batch: Vec<(u64, NewJob)>,
    batch_bytes: usize,
    /// For `-o json` only, which is one document.
    placed: Vec<Placed>,
    good: u64,
    bad: u64,
}

impl<'a> Bulk<'a> {
    fn new(args: &'a Args, context: &'a Context, store: &'a Store, terms: JobOptions) -> Self {
        Bulk {
            args,
            context,
            store,
            terms,
            progress: Progress::new("enqueued", None),
            batch: Vec::new(),
            batch_bytes: 0,
            placed: Vec::new(),
            good: 0,
            bad: 0,
        }
    }

    async fn run(mut self, path: PathBuf) -> Outcome {
        let unreadable = |error| Failure::new(Exit::Usage, format!("{}: {error}", path.display()));
        if path.as_os_str() == "-" {
            self.read(stdin().lock()).await?;
        } else {
            let file = File::open(&path).map_err(unreadable)?;
            let bytes = file.metadata().ok().map(|metadata| metadata.len());
            self.progress = Progress::new("enqueued", bytes);
            self.read(BufReader::new(file)).await?;
        }
        self.progress.clear();
        if self.context.output.format == Format::Json {
            self.context.output.one(&self.placed, |_| String::new())?;
        }
        if self.bad > 0 {
            let all = self.good + self.bad;
            return Err(Failure::new(Exit::Failed, format!("{} of {all} lines were refused", self.bad))
                .with_next("The others are enqueued: mend and send only the lines that are named above."));
        }
        Ok(DONE)
    }

    async fn read(&mut self, mut source: impl BufRead) -> Result<(), Failure> {
        let mut number = 0;
        loop {
            let next = lines::next(&mut source, PAYLOAD_BYTES_MAX)
                .map_err(|error| Failure::new(Exit::Failed, format!("line {}: {error}", number + 1)));
            let (line, bytes) = match next {
                Ok(Some(next)) => next,
                Ok(None) => return self.send().await,
                // What was read goes through all the same.
                Err(failure) => return self.send().await.and(Err(failure)),
            };
            number += 1;
            let payload = match line {
                Line::Text(text) if text.trim().is_empty() => continue,
                Line::Text(text) => text.parse::<Payload>(),
                Line::TooLong { bytes } => {
                    Err(format!("the payload has {bytes} bytes; the limit is {PAYLOAD_BYTES_MAX} (1 MiB)"))
                }
                Line::NotUtf8 => Err("the payload is not UTF-8".to_owned()),
            };
            self.progress.add(0, bytes);
            match payload {
                Ok(payload) => {
                    self.batch_bytes += payload.0.len();
                    self.batch.push((number, self.args.job(self.terms, payload)?));
                }
                Err(problem) => self.refuse(number, &problem),
            }
            if self.batch.len() >= BATCH_JOBS || self.batch_bytes >= BATCH_BYTES {
                self.send().await?;
            }
        }
    }

    async fn send(&mut self) -> Result<(), Failure> {
        let batch = std::mem::take(&mut self.batch);
        self.batch_bytes = 0;
        if batch.is_empty() {
            return Ok(());
        }
        let (first, last) = (batch[0].0, batch[batch.len() - 1].0);
        let new: Vec<NewJob> = batch.iter().map(|(_, job)| job.clone()).collect();
        let answers = self.store.ask(async |jobs, call| jobs.enqueue(call, new.clone()).await).await;
        let answers = answers.inspect_err(|_| {
            note(&format!("lines {first} to {last} may not be enqueued, nor any after them"));
        })?;
        let mut ids = String::new();
        for ((line, job), answer) in batch.into_iter().zip(answers) {
            match answer {
                Ok(EnqueuedJob { job_id: id, existed }) => {
                    self.good += 1;
                    self.progress.add(1, 0);
                    let placed = Placed { line: Some(line), id, existed };
                    match self.context.output.format {
                        Format::Json => self.placed.push(placed),
                        Format::Jsonl => {
                            self.progress.clear();
                            self.context.output.line(&placed)?;
                        }
                        Format::Table | Format::Env => ids.extend([id.to_string().as_str(), "\n"]),
                    }
                }
                Err(refusal) => match Failure::refused_job(job.id, refusal) {
                    Failure::Said { what, .. } => self.refuse(line, &what),
                    gone @ Failure::ReaderGone => return Err(gone),
                },
            }
        }
        if !ids.is_empty() {
            self.progress.clear();
            self.context.output.text(&ids)?;
        }
        Ok(())
    }

    fn refuse(&mut self, line: u64, problem: &str) {
        self.bad += 1;
        self.progress.clear();
        note(&format!("line {line}: {problem}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_is_read_with_its_offset_and_a_bad_one_says_why() {
        assert_eq!(parse_moment("1970-01-01T00:00:01Z"), Ok(1_000));
        assert_eq!(parse_moment("1970-01-01T01:00:00+01:00"), Ok(0));
        assert_eq!(parse_moment("9999-12-30T00:00:00Z"), Ok(253_402_128_000_000));
        for (text, says) in [
            ("10000-01-01T00:00:00Z", "after the year 9999"),
            ("+10000-01-01T00:00:00Z", "after the year 9999"),
            ("1969-12-31T23:59:59Z", "before 1970"),
            ("2026-12-24T18:00:00", "with its offset"),
            ("2026-02-30T00:00:00Z", "not a moment"),
            ("tomorrow", "not a moment"),
            ("-1s", "not a moment"),
            ("", "not a moment"),
        ] {
            let error = parse_moment(text).unwrap_err();
            assert!(error.contains(says), "{text}: {error}");
        }
    }
}
