//! What attempts say of their jobs, and what they are answered.

use fencehold_contract::job::{LedgerEntry, LedgerResponse, Report};
use fencehold_core::job::{AttemptRenewal, JobRefusal, JobState, ReportedAttempt};
use fencehold_core::ledger::InDoubtPolicy;

use super::job::{AttemptEnd, AttemptStatus, AuditedEffect, AuditedJob};
use super::{Audit, DurationRange};

impl AuditedJob {
    pub(super) fn renewed(
        &mut self,
        now_ms: u64,
        hold: [u8; 16],
        token: u64,
        answer: &Result<AttemptRenewal, JobRefusal>,
    ) -> Audit {
        let speaker = self.speaker(now_ms, hold, token);
        let cancel_asked = self.cancel_asked;
        match (answer, &mut self.claim) {
            (Err(refusal), _) if speaker == AttemptStatus::Live => {
                Err(format!("P4: the live claim under token {token} got: {refusal}"))
            }
            (Err(_), _) => Ok(()),
            (Ok(renewal), Some(claim))
                if matches!(speaker, AttemptStatus::Live | AttemptStatus::MaybeLive) =>
            {
                if renewal.remaining_ms != claim.ttl_ms || renewal.token.get() != token {
                    let ms = renewal.remaining_ms;
                    return Err(format!("P3: the claim under token {token} was renewed for {ms} ms"));
                }
                if renewal.cancel_requested != cancel_asked {
                    let told = if cancel_asked { "did not learn" } else { "learned" };
                    return Err(format!("P9: token {token} {told} that its job was called off"));
                }
                claim.span = DurationRange::until(now_ms + renewal.remaining_ms);
                Ok(())
            }
            (Ok(_), _) => Err(format!("P3: the claim under token {token} was renewed although it is over")),
        }
    }

    pub(super) fn reported(
        &mut self,
        now_ms: u64,
        hold: [u8; 16],
        token: u64,
        word: &Report,
        answer: &Result<ReportedAttempt, JobRefusal>,
    ) -> Audit {
        let speaker = self.speaker(now_ms, hold, token);
        match (word, answer) {
            (_, Err(refusal)) => self.refused(speaker, token, word, refusal),
            (Report::Checkpoint { checkpoint: bytes }, Ok(_)) => {
                self.may_write(speaker, token, true)?;
                self.checkpoint = Some(bytes.clone());
                Ok(())
            }
            (Report::Progress { .. }, Ok(_)) => self.may_write(speaker, token, false),
            (word, Ok(reported)) => self.ends(now_ms, speaker, token, word, *reported),
        }
    }

    /// An attempt's last word was accepted.
    fn ends(
        &mut self,
        now_ms: u64,
        speaker: AttemptStatus,
        token: u64,
        word: &Report,
        reported: ReportedAttempt,
    ) -> Audit {
        let ReportedAttempt { state, retry_in_ms: again_in_ms, late } = reported;
        let Some(said) = said(word) else { return Ok(()) };
        match speaker {
            // The same word again.
            AttemptStatus::Said(before) if before == said => return Ok(()),
            AttemptStatus::SaidEarlier { said: before, .. } if before == said => return Ok(()),
            AttemptStatus::Said(before) | AttemptStatus::SaidEarlier { said: before, .. } => {
                return Err(format!("P5: token {token} had ended ({before:?}) and ended again ({said:?})"));
            }
            AttemptStatus::Stale => {
                return Err(format!("P5: token {token} is stale, and its word was taken ({said:?})"));
            }
            AttemptStatus::RunOut if !matches!(said, AttemptEnd::Complete | AttemptEnd::Fail) => {
                return Err(format!("P5: token {token} had run out, and put its job off"));
            }
            AttemptStatus::Live if late => {
                return Err(format!("P4: token {token} is live, and its answer was that it is late"));
            }
            AttemptStatus::RunOut if !late => {
                return Err(format!("P3: token {token} had run out, and was not told that it is late"));
            }
            AttemptStatus::Live | AttemptStatus::MaybeLive | AttemptStatus::RunOut => {}
        }
        if let Some(ended) = self.ended {
            return Err(format!("P5: a job that is {ended} was ended again by token {token} ({said:?})"));
        }
        let expected = match word {
            Report::Complete { .. } => JobState::Completed,
            _ if self.cancel_asked => JobState::Cancelled,
            Report::Fail { permanent: for_good, .. } => {
                self.failures += 1;
                if *for_good || self.failures >= self.max_attempts {
                    JobState::Failed
                } else {
                    JobState::Scheduled
                }
            }
            Report::Snooze { .. } => JobState::Scheduled,
            _ => JobState::Queued,
        };
        let due_at_once =
            expected == JobState::Scheduled && state == JobState::Queued && again_in_ms == Some(0);
        if state != expected && !due_at_once {
            return Err(format!("P7: after {said:?} by token {token} the job is {state}, not {expected}"));
        }
        self.ends_claim(said, now_ms);
        if state.is_final() {
            self.ended = Some(state);
        }
        self.waits_until(now_ms + again_in_ms.unwrap_or(0));
        Ok(())
    }

    /// An attempt was refused: it must have been over, or have had nothing to say any more.
    fn refused(&self, speaker: AttemptStatus, token: u64, word: &Report, refusal: &JobRefusal) -> Audit {
        if let JobRefusal::StoreRewound { .. } = refusal {
            return Err(format!("P2: token {token} was given, and the store does not know it: {refusal}"));
        }
        let again = said(word).is_some_and(|said| speaker == AttemptStatus::Said(said));
        let open = self.ended.is_none() && !self.cancel_asked;
        let may_be_late =
            matches!(word, Report::Complete { .. } | Report::Fail { .. } | Report::Checkpoint { .. });
        match speaker {
            AttemptStatus::Live => Err(format!("P4: the live holder of token {token} got: {refusal}")),
            AttemptStatus::RunOut | AttemptStatus::MaybeLive if open && may_be_late => Err(format!(
                "late completion: token {token} ran out, no other attempt has had the job since, and it got: {refusal}"
            )),
            AttemptStatus::SaidEarlier { said: before, remembered: true } if said(word) == Some(before) => {
                Err(format!("P7: the same word of token {token} again, after other attempts, got: {refusal}"))
            }
            _ if again && self.ended.is_some() && !self.was_retried => {
                Err(format!("P7: the same word of token {token} again got: {refusal}"))
            }
            _ => Ok(()),
        }
    }

    fn may_write(&self, speaker: AttemptStatus, token: u64, may_be_late: bool) -> Audit {
        match speaker {
            AttemptStatus::Live | AttemptStatus::MaybeLive => Ok(()),
            AttemptStatus::RunOut if may_be_late && self.ended.is_none() => Ok(()),
            _ => Err(format!("P5: token {token} is over ({speaker:?}), and what it wrote was taken")),
        }
    }

    pub(super) fn entered(
        &mut self,
        now_ms: u64,
        hold: [u8; 16],
        token: u64,
        act: &LedgerEntry,
        answer: &Result<LedgerResponse, JobRefusal>,
    ) -> Audit {
        let speaker = self.speaker(now_ms, hold, token);
        let name = act.effect().as_str();
        let nth = self.effects.len();
        let known = self.effects.get(name).cloned();
        match (act, answer) {
            (_, Err(refusal)) => match speaker {
                AttemptStatus::Live => Err(format!("P4: the live holder of token {token} got: {refusal}")),
                _ => Ok(()),
            },
            (LedgerEntry::Begin { in_doubt_policy: policy, .. }, Ok(LedgerResponse::Proceed {})) => {
                self.may_write(speaker, token, false)?;
                match &known {
                    Some(entry) if entry.value.is_some() => {
                        return Err(format!(
                            "P8: the effect {name} is recorded, and the answer to token {token} was to go ahead"
                        ));
                    }
                    Some(entry) if entry.token != token && entry.policy == InDoubtPolicy::Manual => {
                        return Err(format!(
                            "P8: the effect {name} is in doubt, and the answer to token {token} was to go ahead"
                        ));
                    }
                    Some(entry) if entry.token == token => return Ok(()),
                    _ => {}
                }
                let nth = known.map_or(nth, |entry| entry.nth);
                let entry = AuditedEffect {
                    token,
                    nth,
                    policy: *policy,
                    value: None,
                    can_be_undone: false,
                    undone: false,
                };
                self.effects.insert(name.to_owned(), entry);
                Ok(())
            }
            (LedgerEntry::Begin { .. }, Ok(LedgerResponse::InDoubt {})) => {
                let in_doubt = |entry: &AuditedEffect| {
                    entry.value.is_none() && entry.token != token && entry.policy == InDoubtPolicy::Manual
                };
                if !known.as_ref().is_some_and(in_doubt) {
                    return Err(format!(
                        "P8: the effect {name} is not in doubt, and token {token} was stopped"
                    ));
                }
                self.ends_claim(AttemptEnd::Silenced, now_ms);
                self.ended.get_or_insert(JobState::InDoubt);
                Ok(())
            }
            (_, Ok(LedgerResponse::Recorded { recorded_effect: told })) => {
                self.may_write(speaker, token, true)?;
                let told = (told.token.get(), told.value.clone());
                if let Some(first) = known.as_ref().filter(|entry| entry.value.is_some()) {
                    if told != (first.token, first.value.clone()) {
                        return Err(format!(
                            "P8: the effect {name} was recorded by token {}, and token {token} got another answer",
                            first.token
                        ));
                    }
                    return Ok(());
                }
                let LedgerEntry::Record { value, compensation: undo, .. } = act else {
                    return Err(format!(
                        "P8: the effect {name} was never recorded, and token {token} got the answer that it is"
                    ));
                };
                if told != (token, Some(value.clone())) {
                    return Err(format!(
                        "P8: what token {token} recorded of the effect {name} was answered otherwise"
                    ));
                }
                let nth = known.map_or(nth, |entry| entry.nth);
                self.effects.insert(
                    name.to_owned(),
                    AuditedEffect {
                        token,
                        nth,
                        policy: InDoubtPolicy::default(),
                        value: Some(value.clone()),
                        can_be_undone: undo.is_some(),
                        undone: false,
                    },
                );
                Ok(())
            }
            (act, Ok(answer)) => Err(format!("{act:?} was answered by {answer:?}")),
        }
    }
}

fn said(word: &Report) -> Option<AttemptEnd> {
    Some(match word {
        Report::Complete { .. } => AttemptEnd::Complete,
        Report::Fail { .. } => AttemptEnd::Fail,
        Report::Snooze { .. } => AttemptEnd::Snooze,
        Report::Release {} => AttemptEnd::HandBack,
        _ => return None,
    })
}
