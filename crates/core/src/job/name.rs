//! The names that jobs carry, each checked once, when it is made.

use crate::error::BadInput;
use crate::key::text;
use crate::limits::{
    EFFECT_BYTES_MAX, KIND_BYTES_MAX, QUEUE_BYTES_MAX, SCHEDULE_BYTES_MAX, UNIQUE_KEY_BYTES_MAX,
};

text! {
    /// Where jobs stand in line: `emails`, `reports/nightly`.
    QueueName, "queue", QUEUE_BYTES_MAX
}
text! {
    /// What a job is: chooses the handler.
    JobKind, "kind", KIND_BYTES_MAX
}
text! {
    /// The name of a side effect within its job.
    EffectName, "effect", EFFECT_BYTES_MAX
}
text! {
    /// What makes a job the same as another: `invoice-42`.
    UniqueKey, "unique key", UNIQUE_KEY_BYTES_MAX
}
text! {
    /// The name of a schedule.
    ScheduleName, "schedule", SCHEDULE_BYTES_MAX
}

/// Names of queues that start so are not for workers.
const RESERVED: &str = "fencehold/";

impl QueueName {
    /// Where operations of request handlers live. No worker can claim from it by name.
    pub fn operations() -> Self {
        QueueName("fencehold/operations".into())
    }

    /// Whether users may enqueue here and claim from here.
    pub fn check_open(&self) -> Result<(), BadInput> {
        if self.as_str().starts_with(RESERVED) {
            let problem = format!("{self} is reserved: names that start with {RESERVED} are");
            return Err(BadInput::new("queue", problem));
        }
        Ok(())
    }
}

impl EffectName {
    /// What an operation is in its own ledger: begun, and not known to have been carried out.
    pub fn operation() -> Self {
        EffectName("operation".into())
    }
}

impl Default for QueueName {
    fn default() -> Self {
        QueueName("default".into())
    }
}
