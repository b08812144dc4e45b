//! Random commands about jobs by several workers, on `memory:` and on PostgreSQL at the same controlled time: the same answers,
//! and the same jobs, queues, effects and stories in the end.
//!
//! A sequence is made from its number alone, so that one that fails can be run again: `FENCEHOLD_ALIKE=17` runs the
//! seventeenth only, `FENCEHOLD_ALIKE_SEQUENCES=20000` more of them, `FENCEHOLD_ALIKE_FROM=8000` only those from there on.
//!
//! Deliberately absent: lines and requests to yield. Who is served when there depends on the moment; the conformance suite has
//! them.

mod command;

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::Arc;

use fencehold_contract::clock::ManualClock;
use fencehold_contract::job::{JobFilter, JobStore, JobView, ListEffectsRequest, ListJobsRequest};
use fencehold_contract::{CallContext, LeaseStore, ListEventsRequest};
use fencehold_core::job::JobId;
use fencehold_core::{EventData, Namespace};
use fencehold_engine::MemoryStore;
use fencehold_test_store::{TestStore as _, block_on};

use self::command::{Choices, Command, KnownIds};
use crate::alike::play_sequences;
use crate::session::until;
use crate::test_store::PostgresTestStore;

const COMMANDS: u64 = 40;
/// How many sequences are played on one pair of stores: other namespaces are not in the way, but take their time.
const PLAYED_TOGETHER: usize = 60;

#[test]
fn postgres_treats_jobs_as_memory_does() {
    play_sequences(|numbers| {
        for together in numbers.chunks(PLAYED_TOGETHER) {
            let pair = JobStorePair::new();
            for number in together {
                pair.play(*number);
            }
        }
    });
}

/// Two stores that should not differ. Every sequence has a namespace of its own in both.
struct JobStorePair {
    clock: ManualClock,
    memory: MemoryStore,
    postgres: Arc<dyn LeaseStore>,
    test_store: PostgresTestStore,
}

impl JobStorePair {
    fn new() -> Self {
        let clock = ManualClock::new();
        let test_store = PostgresTestStore::comparing_counts();
        let memory = MemoryStore::open(Arc::new(clock.clone())).unwrap();
        JobStorePair { clock, memory, postgres: test_store.store(), test_store }
    }

    fn play(&self, number: u64) {
        let mut choices = Choices::new(number);
        let call =
            CallContext::new(Namespace::new(format!("sequence-{number}")).unwrap()).with_timeout_ms(60_000);
        let mut known = KnownIds::new(number);
        for queue in KnownIds::queues() {
            self.both(&Command::SetQueue(queue), &call, &mut known, number, 0);
        }
        for step in 1..=COMMANDS {
            let command = Command::draw(&mut choices, &mut known);
            if let Command::Pass(ms) = command {
                self.pass(ms, &call);
            } else {
                self.both(&command, &call, &mut known, number, step);
            }
        }
        self.compare(&call, &known, number);
    }

    fn both(&self, command: &Command, call: &CallContext, known: &mut KnownIds, number: u64, step: u64) {
        let memory = block_on(command.carry_out(&self.memory, call));
        let postgres = block_on(command.carry_out(self.postgres.jobs().unwrap(), call));
        assert_eq!(
            postgres, memory,
            "sequence {number}, command {step}: {command:?}; on the left PostgreSQL, on the right memory"
        );
        known.learn(command, &memory);
    }

    /// Lets time pass at both, and returns when what ran out by it is on record at both.
    fn pass(&self, ms: u64, call: &CallContext) {
        self.clock.advance_ms(ms);
        self.test_store.pass(ms);
        let sql = format!(
            "SELECT count(*) FROM {0}.job_running WHERE deadline_ms <= {0}.now_ms()",
            self.test_store.schema
        );
        until("claims that ran out are swept", || self.test_store.value(&sql) == "0");
        let noted = ended_attempts(&*self.postgres, call);
        until("`memory:` has noted them, too", || ended_attempts(&self.memory, call) >= noted);
    }

    fn compare(&self, call: &CallContext, known: &KnownIds, number: u64) {
        self.same("jobs", number, |store| block_on(all_jobs(store.jobs().unwrap(), call)));
        let ids = known.ids();
        self.same("details", number, |store| {
            let look = |id: &JobId| block_on(store.jobs().unwrap().get_job(call, *id)).unwrap();
            ids.iter().map(look).collect::<Vec<_>>()
        });
        self.same("queues", number, |store| block_on(store.jobs().unwrap().list_queues(call)));
        self.same("findings", number, |store| block_on(all_findings(store.jobs().unwrap(), call)));
        self.same("stories of the jobs", number, |store| stories(store, call));
    }

    fn same<T: Debug + PartialEq>(&self, what: &str, number: u64, look: impl Fn(&dyn LeaseStore) -> T) {
        let (postgres, memory) = (look(&*self.postgres), look(&self.memory));
        assert_eq!(
            postgres, memory,
            "sequence {number}, the {what}; on the left PostgreSQL, on the right memory"
        );
    }
}

/// In the order of their arrival; but claims that ran out while time passed are noted in any order, and so are their undo jobs.
async fn all_jobs(store: &dyn JobStore, call: &CallContext) -> Vec<JobView> {
    let mut request = ListJobsRequest { filter: JobFilter::default(), cursor: None, limit: 1_000 };
    let mut jobs = Vec::new();
    loop {
        let page = store.list_jobs(call, request.clone()).await.unwrap();
        jobs.extend(page.jobs);
        request.cursor = page.next_cursor;
        if request.cursor.is_none() {
            break;
        }
    }
    let given_at = |job: &JobView| job.compensates.is_some().then_some(job.enqueued_at_ms);
    for together in jobs.chunk_by_mut(|one, next| given_at(one).is_some() && given_at(one) == given_at(next))
    {
        together.sort_by_key(|job| job.id);
    }
    jobs
}

async fn all_findings(store: &dyn JobStore, call: &CallContext) -> Vec<fencehold_contract::job::EffectView> {
    let mut request = ListEffectsRequest { cursor: None, limit: 1_000 };
    let mut findings = Vec::new();
    loop {
        let page = store.list_effects(call, request).await.unwrap();
        findings.extend(page.effects);
        if page.next_cursor.is_none() {
            return findings;
        }
        request = ListEffectsRequest { cursor: page.next_cursor, limit: 1_000 };
    }
}

fn ended_attempts(store: &dyn LeaseStore, call: &CallContext) -> usize {
    let ended = |(_, data): &(u64, EventData)| matches!(data, EventData::JobAttemptEnded { .. });
    let stories = stories(store, call).into_values();
    stories.map(|story| story.iter().filter(|event| ended(event)).count()).sum()
}

/// What is on record about each job, oldest first. In which order things happened to different jobs of one call does not matter.
fn stories(store: &dyn LeaseStore, call: &CallContext) -> BTreeMap<String, Vec<(u64, EventData)>> {
    let request = ListEventsRequest { prefix: Some("job/".to_owned()), limit: 1_000, ..Default::default() };
    let page = block_on(store.list_events(call, request)).unwrap();
    let mut stories: BTreeMap<String, Vec<(u64, EventData)>> = BTreeMap::new();
    for event in page.events {
        stories
            .entry(event.key.to_string())
            .or_default()
            .push((event.at_ms, event.data));
    }
    stories
}
