//! What came of runs: said to the store, as often as it takes, and shown to people.

use std::sync::Arc;

use fencehold_contract::StoreError;
use fencehold_contract::job::{Report, Word};
use fencehold_core::Token;
use fencehold_core::job::{Refusal, Reported};
use fencehold_core::limits::CALL_BYTES_MAX;

use super::{News, Shift, jobs};
use crate::failure::Failure;
use crate::output::{Format, note};
use crate::work::line::{Line, said};
use crate::work::run::Ran;
use crate::work::running::{Running, Told};
use crate::work::verdict;

/// How many bytes of results go into one call.
const REPORT_BYTES: usize = CALL_BYTES_MAX / 2;

/// What came of a run, on its way to the store.
#[derive(Clone, Debug)]
pub(super) struct Handed {
    pub(super) report: Report,
    line: Line,
}

impl Shift {
    pub(super) fn ended(&mut self, token: Token, ran: Result<Ran, Failure>) {
        let Some(running) = self.running.remove(&token) else { return };
        let id = running.attempt.job;
        let ran = match ran {
            Ok(ran) => ran,
            Err(failure) => {
                // It is not the job's fault that nothing could be started here.
                if let Failure::Said { what, .. } = &failure {
                    note(&format!("job {id}: {what}; it is handed back"));
                }
                self.claims.failed();
                return self.say(&running, None, Word::HandBack);
            }
        };
        let finish = &ran.finish;
        if !finish.left.is_empty() {
            let pids: Vec<String> = finish.left.iter().map(ToString::to_string).collect();
            note(&format!(
                "job {id}: processes of its command cannot be ended ({}), so its claim is left to run out",
                pids.join(", ")
            ));
            return self.show(&running.line(finish.code, "lost"));
        }
        if finish.lost || running.told == Some(Told::Lost) {
            note(&format!("job {id}: the claim under token {token} was lost, and its command ended"));
            return self.show(&running.line(finish.code, "lost"));
        }
        let word = match (running.told, finish.unwatched, finish.code) {
            // What was told to end is not believed when it says that it is done.
            (None, false, Some(code)) => {
                verdict::word(code, &ran.stdout, ran.stderr_end.bytes(), self.plan.snooze_ms)
            }
            _ => Word::HandBack,
        };
        self.say(&running, finish.code, word);
    }

    pub(super) fn say(&mut self, running: &Running, code: Option<u8>, word: Word) {
        let line = running.line(code, said(&word));
        self.words
            .push(Handed { report: Report { attempt: running.attempt.clone(), word }, line });
    }

    /// Hands in what came of jobs, as much as one call can carry.
    pub(super) fn hand_in(&mut self) {
        let mut bytes = 0;
        let fits = |handed: &Handed| {
            bytes += weight(&handed.report.word);
            bytes <= REPORT_BYTES
        };
        let many = self.words.iter().map(fits).take_while(|fits| *fits).count().max(1);
        let words: Vec<Handed> = self.words.drain(..many).collect();
        let reports: Vec<Report> = words.iter().map(|handed| handed.report.clone()).collect();
        let (store, call) = (Arc::clone(&self.store), self.call.clone());
        self.reporting = true;
        self.tasks.spawn(async move {
            let answer = match jobs(&*store) {
                Ok(jobs) => jobs.report(&call, reports).await,
                Err(error) => Err(error),
            };
            News::Reported { words, answer }
        });
    }

    pub(super) fn reported(
        &mut self,
        words: Vec<Handed>,
        answer: Result<Vec<Result<Reported, Refusal>>, StoreError>,
    ) {
        self.reporting = false;
        self.dry = false;
        let answers = match answer {
            Ok(answers) => answers,
            Err(error) => {
                if self.reports.failures == 0 {
                    note(&format!(
                        "what came of {} jobs cannot be handed in: {error}; trying again",
                        words.len()
                    ));
                }
                self.reports.failed();
                // The same word gets the same answer, however often it is said.
                self.words.splice(..0, words);
                return;
            }
        };
        self.reports.went_well();
        for (Handed { report, mut line }, answer) in words.into_iter().zip(answers) {
            match answer {
                Ok(reported) => {
                    line.state = Some(reported.state.name());
                    line.again_in_ms = reported.again_in_ms;
                }
                Err(refusal) => {
                    note(&format!("job {}: {refusal}", report.attempt.job));
                    line.refused = Some(refusal.to_string());
                }
            }
            self.show(&line);
        }
    }

    fn show(&self, line: &Line) {
        self.voice.line(match self.output.format {
            Format::Json | Format::Jsonl => serde_json::to_string(line).unwrap_or_default(),
            Format::Table | Format::Env => line.sentence(),
        });
    }
}

fn weight(word: &Word) -> usize {
    match word {
        Word::Complete { result: Some(result) } => result.len(),
        Word::Fail { error, .. } => error.len(),
        _ => 0,
    }
}
