//! `fencehold job enqueue`: one job, or a file of them.

use std::fs::File;
use std::io::{BufRead, BufReader, stdin};
use std::path::PathBuf;

use clap::ArgGroup;
use fencehold_contract::clock::{Clock as _, SystemClock};
use fencehold_contract::http::EnqueueJobBatchResponse;
use fencehold_contract::job::{EnqueuedJob, NewJob, Unique, When};
use fencehold_contract::json;
use fencehold_core::BadInput;
use fencehold_core::job::{JobId, JobKind, JobOptions, JobRefusal, QueueName, UniqueKey};
use fencehold_core::limits::{PAYLOAD_BYTES_MAX, RUN_AT_WALL_MS_MAX};

use super::lines::{self, InputLine};
use super::options::{JobArgs, Label, Payload, parse_label};
use crate::context::{Context, CreateStore, OpenStore};
use crate::duration::parse_ms;
use crate::exit_code::ExitStatus;
use crate::failure::{Failure, only_answer};
use crate::hold_id;
use crate::output::{Format, complain, note};
use crate::show::Progress;
use crate::verb::VerbResult;

/// How many jobs, and how many bytes of payload, go into one call.
const BATCH_JOBS: usize = 1_000;
const BATCH_BYTES: usize = 4 << 20;

/// Enqueue a job, or one for each line of a file
#[derive(Debug, clap::Args)]
#[command(before_help = "\
fencehold job enqueue --queue emails --kind welcome --payload '{\"to\":7}'

# In ten minutes, at most three times, and only once for this invoice
fencehold job enqueue --queue invoices --kind send --payload 42 \\
  --delay 10m --max-failures 3 --unique-key invoice-42

# One job for each line of a file, or of stdin
fencehold job enqueue --queue images --kind resize --jsonl images.jsonl")]
#[command(after_help = "\
Prints the id of each job. The same unique key with the same payload gives the id of the first job; with another \
payload it is an error that names the first job. With --jsonl every line is one payload: a line that is refused is \
reported on stderr with its number, the others are enqueued, and the exit code is 1.")]
#[command(override_usage = "\
fencehold job enqueue [OPTIONS] --queue <QUEUE> --kind <KIND>
         <--payload <JSON>|--jsonl <FILE>>")]
#[command(group = ArgGroup::new("what").required(true).args(["payload", "jsonl"]))]
pub(crate) struct Args {
    /// Its queue
    #[arg(long)]
    queue: QueueName,
    /// Its kind: names the handler
    #[arg(long)]
    kind: JobKind,
    /// Its payload
    #[arg(long, value_name = "JSON", allow_hyphen_values = true)]
    payload: Option<Payload>,
    /// A file with one payload a line; - is stdin
    #[arg(long, value_name = "FILE")]
    jsonl: Option<PathBuf>,
    /// Run it after this time
    #[arg(long, value_name = "DURATION", value_parser = parse_ms, allow_hyphen_values = true, conflicts_with = "run_at")]
    delay: Option<u64>,
    /// Run it not before this: 2026-12-24T18:00:00Z, or with an offset
    #[arg(long, value_name = "TIME", value_parser = parse_moment, allow_hyphen_values = true)]
    run_at: Option<u64>,
    /// Jobs with the same key are the same job
    #[arg(long, value_name = "KEY", conflicts_with = "jsonl")]
    unique_key: Option<UniqueKey>,
    /// For how long the unique key is remembered
    #[arg(long, value_name = "DURATION", default_value = "1d", value_parser = parse_ms, requires = "unique_key")]
    unique_window: u64,
    /// Label, to find it by (repeatable)
    #[arg(long, value_name = "NAME=VALUE", value_parser = parse_label)]
    label: Vec<Label>,
    /// Its W3C trace context
    #[arg(long, value_name = "TRACEPARENT")]
    traceparent: Option<String>,
    /// While it waits, ask a running job of lower priority to yield within this time
    #[arg(long, value_name = "DURATION", value_parser = parse_ms, allow_hyphen_values = true)]
    preempt_within: Option<u64>,
    #[command(flatten)]
    options: JobArgs,
    #[command(flatten)]
    create: CreateStore,
}

impl Args {
    pub(crate) async fn run(mut self, context: &Context) -> VerbResult {
        // Validate before creating the store.
        let options = self.options.options()?;
        self.queue.check_open()?;
        let store = context.open(self.create)?;
        store
            .closing(async |store| match (self.payload.take(), self.jsonl.take()) {
                (Some(payload), _) => self.one(context, store, options, payload).await,
                (None, Some(file)) => Bulk::new(&self, context, store, options).run(file).await,
                (None, None) => Err(Failure::usage("give --payload or --jsonl")),
            })
            .await
    }

    async fn one(
        &self,
        context: &Context,
        store: &OpenStore,
        options: JobOptions,
        payload: Payload,
    ) -> VerbResult {
        let job = self.job(options, payload)?;
        let id = job.id;
        let answers = store
            .ask(async |jobs, call| jobs.enqueue(call, vec![job.clone()]).await)
            .await?;
        let enqueued = only_answer(answers, |refusal| Failure::refused_job(id, refusal))?;
        context.output.one(&enqueued, |_| enqueued.job_id.to_string())?;
        if enqueued.existed && context.output.format == Format::Table {
            note("this job existed: it has the same unique key");
        }
        Ok(())
    }

    fn job(&self, options: JobOptions, payload: Payload) -> Result<NewJob, Failure> {
        let when = match (self.delay, self.run_at) {
            (Some(delay_ms), _) => When::After { delay_ms },
            (None, Some(wall_ms)) => When::At { wall_ms },
            (None, None) => When::Now,
        };
        let unique = self.unique_key.clone().map(|key| Unique { key, window_ms: self.unique_window });
        Ok(NewJob {
            options,
            when,
            unique,
            labels: self.label.clone(),
            traceparent: self.traceparent.as_deref().map(Into::into),
            preempt_within_ms: self.preempt_within,
            ..NewJob::new(fresh_id()?, self.queue.clone(), self.kind.clone(), payload.0)
        })
    }
}

/// An id for a new job.
fn fresh_id() -> Result<JobId, Failure> {
    Ok(JobId::from_random(SystemClock.now().wall_ms, hold_id::random()?))
}

/// Reads a moment as RFC 3339 writes it.
pub(crate) fn parse_moment(text: &str) -> Result<u64, String> {
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
    store: &'a OpenStore,
    options: JobOptions,
    progress: Progress,
    /// Each line by its number: a job, or why it is none.
    batch: Vec<(u64, Result<NewJob, String>)>,
    batch_bytes: usize,
    /// For `-o json` only, which is one document.
    results: Vec<Result<EnqueuedJob, JobRefusal>>,
    good: u64,
    bad: u64,
}

impl<'a> Bulk<'a> {
    fn new(args: &'a Args, context: &'a Context, store: &'a OpenStore, options: JobOptions) -> Self {
        Bulk {
            args,
            context,
            store,
            options,
            progress: Progress::jobs("enqueued", None),
            batch: Vec::new(),
            batch_bytes: 0,
            results: Vec::new(),
            good: 0,
            bad: 0,
        }
    }

    async fn run(mut self, path: PathBuf) -> VerbResult {
        let unreadable = |error| Failure::usage(format!("{}: {error}", path.display()));
        if path.as_os_str() == "-" {
            self.read(stdin().lock()).await?;
        } else {
            let file = File::open(&path).map_err(unreadable)?;
            let bytes = file.metadata().ok().map(|metadata| metadata.len());
            self.progress = Progress::jobs("enqueued", bytes);
            self.read(BufReader::new(file)).await?;
        }
        if self.context.output.format == Format::Json {
            let response = EnqueueJobBatchResponse { results: std::mem::take(&mut self.results) };
            self.context.output.one(&response, |_| String::new())?;
        }
        if self.bad > 0 {
            let all = self.good + self.bad;
            return Err(Failure::failed(format!("{} of {all} lines were refused", self.bad))
                .with_next("The others are enqueued: fix and send only the lines that are named above."));
        }
        Ok(())
    }

    async fn read(&mut self, mut source: impl BufRead) -> Result<(), Failure> {
        let mut number = 0;
        loop {
            let next = lines::next(&mut source, PAYLOAD_BYTES_MAX)
                .map_err(|error| Failure::failed(format!("line {}: {error}", number + 1)));
            let (line, bytes) = match next {
                Ok(Some(next)) => next,
                Ok(None) => return self.send().await,
                // What was read goes through all the same.
                Err(failure) => return self.send().await.and(Err(failure)),
            };
            number += 1;
            let payload = match line {
                InputLine::Text(text) if text.trim().is_empty() => continue,
                InputLine::Text(text) => text.parse::<Payload>(),
                InputLine::TooLong { bytes } => {
                    Err(format!("the payload has {bytes} bytes; the limit is {PAYLOAD_BYTES_MAX} (1 MiB)"))
                }
                InputLine::NotUtf8 => Err("the payload is not UTF-8".to_owned()),
            };
            self.progress.add(0, bytes);
            let job = match payload {
                Ok(payload) => {
                    self.batch_bytes += payload.0.len();
                    Ok(self.args.job(self.options, payload)?)
                }
                Err(problem) => Err(problem),
            };
            self.batch.push((number, job));
            if self.batch.len() >= BATCH_JOBS || self.batch_bytes >= BATCH_BYTES {
                self.send().await?;
            }
        }
    }

    async fn send(&mut self) -> Result<(), Failure> {
        let batch = std::mem::take(&mut self.batch);
        self.batch_bytes = 0;
        let jobs: Vec<NewJob> = batch.iter().filter_map(|(_, job)| job.as_ref().ok().cloned()).collect();
        let mut results = Vec::new().into_iter();
        if let (Some((first, _)), Some((last, _)), false) = (batch.first(), batch.last(), jobs.is_empty()) {
            let sent = self
                .store
                .ask(async |store, call| store.enqueue(call, jobs.clone()).await)
                .await;
            let sent = sent.inspect_err(|_| {
                complain(&format!("lines {first} to {last} may not be enqueued, nor any after them"));
            })?;
            results = sent.into_iter();
        }
        let mut ids = String::new();
        for (line, job) in batch {
            let result = match job {
                Ok(job) => match results.next() {
                    Some(Ok(enqueued)) => Ok(enqueued),
                    Some(Err(refusal)) => {
                        if let Failure::Said { what, .. } = Failure::refused_job(job.id, refusal.clone()) {
                            self.refuse(line, &what);
                        }
                        Err(refusal)
                    }
                    None => {
                        return Err(Failure::new(ExitStatus::Unavailable, "the store gave too few answers"));
                    }
                },
                Err(problem) => {
                    self.refuse(line, &problem);
                    Err(JobRefusal::BadInput(BadInput::new("payload", problem)))
                }
            };
            if let Ok(enqueued) = &result {
                self.good += 1;
                self.progress.add(1, 0);
                if self.context.output.format == Format::Table {
                    ids.extend([enqueued.job_id.to_string().as_str(), "\n"]);
                }
            }
            match self.context.output.format {
                Format::Json => self.results.push(result),
                Format::Jsonl => {
                    self.context.output.line(&json::ItemResult::from(result))?;
                }
                Format::Table | Format::Env => {}
            }
        }
        if !ids.is_empty() {
            self.context.output.text(&ids)?;
        }
        Ok(())
    }

    fn refuse(&mut self, line: u64, problem: &str) {
        self.bad += 1;
        complain(&format!("line {line}: {problem}"));
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
