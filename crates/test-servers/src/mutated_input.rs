//! Input that is nearly right: a good sample with a few bytes changed, taken out or put in. Of random bytes alone, few get
//! past the first check.

/// One change: where, how, with what.
pub type Edit = (u16, u8, u8);

/// One of the samples, changed.
pub fn edited(samples: &[&[u8]], which: u8, edits: &[Edit]) -> Vec<u8> {
    let mut bytes = samples[usize::from(which) % samples.len()].to_vec();
    for (place, how, byte) in edits.iter().take(8) {
        let at = usize::from(*place) % (bytes.len() + 1);
        match how % 4 {
            0 => bytes.insert(at, *byte),
            1 => bytes.truncate(at),
            2 if at < bytes.len() => drop(bytes.remove(at)),
            _ => {
                if let Some(there) = bytes.get_mut(at) {
                    *there = *byte;
                }
            }
        }
    }
    bytes
}
