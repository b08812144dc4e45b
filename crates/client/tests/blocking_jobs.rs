//! Jobs without an executor: enqueued, run, waited for; effects and operations once.

use std::time::Duration;

use fencehold::JobError;
use fencehold::blocking::{Fencehold, Job};
use fencehold::job::{InDoubtPolicy, JobState};
use fencehold::testing::TestJob;

const LIMIT: Duration = Duration::from_secs(60);

fn pay(job: Job, cents: u64) -> Result<String, JobError> {
    let receipt = job
        .once("charge", |key| Ok(format!("{cents} under {key}")))
        .compensate_from("refund", String::clone)
        .run()?;
    job.checkpoint(*b"charged")?;
    job.progress("charged")?;
    Ok(receipt)
}

#[test]
fn jobs_are_enqueued_run_and_waited_for_on_plain_threads() {
    let fh = Fencehold::connect("memory:").unwrap();
    let worker = fh.worker().queue("orders").concurrency(2).owner("till-7");
    let worker = worker.handle("pay", pay).start().unwrap();
    let orders = fh.queue("orders");
    let order = orders.job("pay", &990_u64).priority(3).label("shop", "a");
    let id = order.enqueue().unwrap().job_id;
    let receipt: String = fh.jobs().result(id, LIMIT).unwrap();
    assert_eq!(receipt, format!("990 under {id}/charge"));
    let detail = fh.jobs().get(id).unwrap();
    assert_eq!((detail.job.state, detail.effects.len()), (JobState::Completed, 1));
    assert_eq!(detail.attempts[0].owner.as_str(), "till-7");
    let many = orders
        .enqueue_batch((0..3_u64).map(|cents| orders.job("pay", &cents)))
        .all()
        .unwrap();
    for enqueued in many {
        fh.jobs().result::<String>(enqueued.job_id, LIMIT).unwrap();
    }
    assert_eq!((orders.counts().unwrap().completed, fh.jobs().counts().unwrap().completed), (4, 4));
    assert_eq!(worker.drain().unwrap().finished, 4);
    fh.close();
}

#[test]
fn an_operation_is_carried_out_once() {
    let fh = Fencehold::connect("memory:").unwrap();
    let work = |answer: u8| move |_: Job| Ok::<u8, String>(answer);
    assert_eq!(fh.operations().once("key", &1, work(7)), Ok(7));
    assert_eq!(fh.operations().once("key", &1, work(8)), Ok(7), "the stored answer");
    fh.close();
}

#[test]
fn a_handler_is_tried_without_a_store() {
    let run = TestJob::new("pay", &990_u64).run_blocking(pay);
    assert!(run.result::<String>().unwrap().starts_with("990 under "));
    assert_eq!((run.effects_recorded(), run.checkpoint()), (vec!["charge"], Some(b"charged".as_slice())));
    assert_eq!(run.progress(), [r#""charged""#.into()]);
    let receipt = serde_json::to_string(&run.effect::<String>("charge").unwrap()).unwrap();
    assert_eq!(&*run.compensation_of("charge").unwrap().payload, receipt);

    let again = run.next_attempt().run_blocking(pay);
    assert!(again.effects_recorded().is_empty(), "what is recorded does not happen again");

    let lost = TestJob::new("pay", &990_u64).lost().run_blocking(pay);
    assert!(lost.lost().unwrap().contains("is lost") && lost.effects_recorded().is_empty(), "{lost:?}");

    let misfit = TestJob::new("pay", "much").run_blocking(pay);
    assert!(misfit.failure().unwrap().contains("its payload does not fit"), "{misfit:?}");

    let asking =
        |job: Job, (): ()| job.once_with_intent("charge", InDoubtPolicy::Manual, |_key| Ok(())).run();
    let again = TestJob::new("pay", &()).attempt(2);
    let doubtful = again.intended_effect("charge", InDoubtPolicy::Manual).run_blocking(asking);
    assert!(doubtful.lost().unwrap().contains("it is not known whether its effect"), "{doubtful:?}");

    let stopping = |job: Job, (): ()| {
        Ok::<_, JobError>((job.is_cancelled(), job.yield_request().map(|notice| notice.priority)))
    };
    let trial = TestJob::new("stop", &()).cancelled().yield_requested("urgent", 5);
    assert_eq!(trial.run_blocking(stopping).result(), Some((true, Some(5_i16))));
}
