//! Queues of guests, with what is in their memory.
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod drive;
mod log;

#[test]
fn a_queue_of_any_bytes_leads_nowhere_but_to_memory() {
    let (mut random, mut found) = (fastrand::Rng::with_seed(7), 0);
    for _ in 0..20_000 {
        let mut input = vec![0; 0x900];
        // Small numbers, most of which mean something.
        for _ in 0..random.usize(..200) {
            let at = random.usize(..input.len());
            input[at] = if random.bool() { random.u8(..8) } else { random.u8(..) };
        }
        // Some requests are available, of descriptors that are somewhere in memory.
        input[1 + 0x402] = random.u8(..20);
        for descriptor in 0..16 {
            let at = 1 + descriptor * 16;
            input[at + 2..at + 8].copy_from_slice(&[random.u8(..8) / 7, 0, 0, 0, 0, 0]);
            (input[at + 8], input[at + 10], input[at + 11]) = (random.u8(..), 0, 0);
            input[at + 12] = random.u8(..8);
            (input[at + 14], input[at + 15]) = (random.u8(..17), 0);
            input[at + 13] = 0;
        }
        found += drive::queue(&input);
    }
    assert!(found > 500, "{found}");
}

/// What fuzzing has found is tried by every test run, wherever there is no fuzzer.
#[test]
fn the_seeds_of_the_fuzzer_lead_nowhere_but_to_memory() {
    let dir = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/seeds/vhost_queue");
    let mut found = 0;
    for file in std::fs::read_dir(dir).unwrap() {
        let seed = std::fs::read(file.unwrap().path()).unwrap();
        found += (0..=seed.len()).step_by(16).map(|cut| drive::queue(&seed[..cut])).sum::<usize>();
        found += drive::queue(&seed);
    }
    assert!(found > 50, "{found}");
}
