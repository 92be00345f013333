//! A VM as a client: the seed of its numbers.

use crate::scenario::VmIndex;

/// Seed of a VM's client, derived from the scenario's seed so that each VM has another one. Below 2³²,
/// as fio takes it.
#[must_use]
pub fn client_seed(seed: u64, id: VmIndex) -> u64 {
    // Any mixing serves that separates seed, host and VM.
    let mixed = [seed, id.host.0 as u64, id.index as u64]
        .iter()
        .fold(0x9e37_79b9_7f4a_7c15_u64, |h, &x| (h ^ x).wrapping_mul(0x0100_0000_01b3));
    (mixed >> 32 ^ mixed) & 0xffff_ffff
}
