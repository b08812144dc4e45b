//! Keeping holds and giving them back, many in one call.

use fencehold_contract::stored::NoticeV1;
use fencehold_contract::{HoldRef, ReleasedLease, StoreError};
use fencehold_core::lease::LeaseRenewal;
use fencehold_core::{Key, Refusal, Token};
use serde::de::DeserializeOwned;

use super::ResendPolicy;
use super::fenced::FencedAction;
use super::pool::PoolLane;
use super::response::{RefusalRow, RenewalRow, completed, unanswered, yield_request};
use super::statement::{Call, Parameter, query, query_one};
use super::value::{from_sql, to_sql};

impl Call<'_> {
    /// One statement for those that are live; a second for those that are not, which must learn why.
    pub(super) async fn renew(
        &mut self,
        holds: &[HoldRef],
    ) -> Result<Vec<Result<LeaseRenewal, Refusal>>, StoreError> {
        let mut answers: Vec<Option<Result<LeaseRenewal, Refusal>>> = vec![None; holds.len()];
        self.lane = PoolLane::Renewals;
        let sql = self.sql("SELECT * FROM fencehold.lease_renew($1, $2, $3, $4, $5)");
        let asked = HoldColumns::of(self, holds);
        let before_ms = self.clock.now().store_ms;
        let rows: Vec<RenewedRow> = self
            .run(ResendPolicy::Safe, async |client, lock_ms| {
                query(client, &sql, &asked.parameters(&lock_ms)).await
            })
            .await?;
        // What is renewed is renewed, whatever comes after.
        self.budget.outcome_unknown |= rows.iter().any(|(nth, ..)| *nth > 0);
        if let Some((.., at_ms)) = rows.first() {
            self.saw_the_clock(before_ms, *at_ms).await?;
        }
        for (nth, remaining_ms, notice, yield_in_ms, _) in rows {
            let Some(at) = usize::try_from(nth).ok().and_then(|nth| nth.checked_sub(1)) else { continue };
            let notice = notice.map(|notice| self.read::<NoticeV1>(&notice)).transpose()?;
            answers[at] = Some(Ok(LeaseRenewal {
                token: holds[at].token,
                remaining_ms: from_sql(remaining_ms),
                yield_request: yield_request(notice, yield_in_ms.map(from_sql)),
            }));
        }
        let rest = unanswered(holds, &answers);
        self.lane = PoolLane::Checks;
        let checked = self.ask_each::<RenewalRow, _>(&rest, "lease_renew_checked").await?;
        completed(answers, checked)
    }

    pub(super) async fn release(
        &mut self,
        holds: &[HoldRef],
    ) -> Result<Vec<Result<ReleasedLease, Refusal>>, StoreError> {
        let released: Vec<Result<Token, Refusal>> = self.ask_each::<Token, _>(holds, "lease_release").await?;
        let of = |(hold, released): (&HoldRef, Result<Token, Refusal>)| {
            released.map(|token| ReleasedLease { key: hold.key.clone(), token })
        };
        Ok(holds.iter().zip(released).map(of).collect())
    }

    /// Asks a function that answers for each hold in order.
    async fn ask_each<Row: DeserializeOwned, T: From<Row>>(
        &mut self,
        holds: &[HoldRef],
        function: &str,
    ) -> Result<Vec<Result<T, Refusal>>, StoreError> {
        if holds.is_empty() {
            return Ok(Vec::new());
        }
        let sql = self.sql(&format!("SELECT fencehold.{function}($1, $2, $3, $4, $5)::text[]"));
        let asked = HoldColumns::of(self, holds);
        let wanted = FencedAction::Keys(&asked.keys);
        let (answers,): (Vec<String>,) = self
            .run_past_fences(ResendPolicy::Safe, wanted, async |client, lock_ms| {
                query_one(client, &sql, &asked.parameters(&lock_ms)).await
            })
            .await?;
        let read = |answer: &String| self.read::<Result<Row, RefusalRow>>(answer);
        answers
            .iter()
            .map(|answer| Ok(read(answer)?.map(T::from).map_err(Refusal::from)))
            .collect()
    }
}

/// A renewal: its number, what remains, the notice, in how much time to yield, and the moment.
type RenewedRow = (i64, i64, Option<String>, Option<i64>, i64);

/// Holds, as the functions take them.
struct HoldColumns<'a> {
    namespace: &'a str,
    keys: Vec<&'a str>,
    hashes: Vec<Vec<u8>>,
    tokens: Vec<i64>,
}

impl<'a> HoldColumns<'a> {
    fn of(call: &Call<'a>, holds: &'a [HoldRef]) -> Self {
        HoldColumns {
            namespace: call.namespace(),
            keys: holds.iter().map(|hold| Key::as_str(&hold.key)).collect(),
            hashes: holds.iter().map(|hold| hold.hold_id.hash().as_bytes().to_vec()).collect(),
            tokens: holds.iter().map(|hold| to_sql(hold.token.get())).collect(),
        }
    }

    fn parameters<'b>(&'b self, lock_ms: &'b i64) -> [&'b dyn Parameter; 5] {
        [&self.namespace, &self.keys, &self.hashes, &self.tokens, lock_ms]
    }
}
