//! Whatever lies in the database as a job is read or refused, and nothing panics.

use super::codec::decode_job;
use crate::file::fuzz::edited::{Edit, edited};

#[test]
fn a_job_is_read_or_refused() {
    let samples: &[&[u8]] = &[&[1; 60], &[1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0], &[1, 255, 255, 255, 255, 15]];
    bolero::check!().with_type::<(u8, Vec<Edit>)>().for_each(|(which, edits)| {
        let _ = decode_job(&edited(samples, *which, edits));
    });
}
