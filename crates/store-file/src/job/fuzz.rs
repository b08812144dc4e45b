//! Whatever lies in the database as a job is read or refused, and nothing panics.

use fencehold_conformance::golden::samples;
use fencehold_core::job::JobRecord;
use fencehold_engine::JobSummary;
use fencehold_test_servers::{Edit, edited};

use super::codec::{decode_job, encode_job};

/// Jobs as they are kept, in every state.
fn jobs() -> Vec<Vec<u8>> {
    let about = JobSummary { bytes: 200, yield_within_ms: 1_000, undoes: true };
    let encoded = |record: &JobRecord| {
        let mut bytes = Vec::new();
        encode_job(about, record, &mut bytes);
        bytes
    };
    samples::jobs().iter().map(encoded).collect()
}

/// A job that is read is written as it was, and read again as the same.
#[test]
fn a_job_is_read_or_refused_and_read_again_as_the_same() {
    let jobs = jobs();
    let samples: Vec<&[u8]> = jobs.iter().map(Vec::as_slice).collect();
    bolero::check!().with_type::<(u8, Vec<Edit>)>().for_each(|(which, edits)| {
        let Ok((about, record)) = decode_job(&edited(&samples, *which, edits)) else { return };
        let mut again = Vec::new();
        encode_job(about, &record, &mut again);
        assert_eq!(decode_job(&again), Ok((about, record)));
    });
}
