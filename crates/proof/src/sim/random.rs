//! All the chance there is in a simulation: one seed, one sequence.

/// A small generator (`SplitMix64`): every draw is a function of the seed and of the draws before it.
#[derive(Clone, Debug)]
pub(super) struct SimRandom(u64);

impl SimRandom {
    pub(super) fn new(seed: u64) -> Self {
        SimRandom(seed)
    }

    pub(super) fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ (bits >> 31)
    }

    /// A number from `low` to `high`, both included.
    pub(super) fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.draw() % (high - low + 1)
    }

    /// True this often in a thousand.
    pub(super) fn per_mille(&mut self, often: u64) -> bool {
        self.draw() % 1_000 < often
    }

    /// One of some.
    pub(super) fn one_of<T: Copy>(&mut self, some: &[T]) -> T {
        some[usize::try_from(self.draw() % some.len() as u64).unwrap_or(0)]
    }
}
