//! What a model does with a closed loop, without any of the probe's code: the array, a queue of what
//! is due, a clock. Shared by the test and by the example that sweeps every depth.

use std::collections::VecDeque;

use parda_array::{Array, ArrayIo, Bytes, IoKind, IoTag, LunId, Nanos, Preset};

/// Throughput and mean latency.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Truth {
    pub(crate) iops: f64,
    pub(crate) mean_ms: f64,
    pub(crate) max_ms: f64,
}

/// Random reads of 4 KiB anywhere on the first LUN, so many at a time, until `ios` have come back after the first `warm`.
pub(crate) fn run(preset: Preset, outstanding: u32, warm: u64, ios: u64, seed: u64) -> Truth {
    let len = Bytes::kib(4);
    let mut array = Array::new(preset.params()).expect("presets are possible");
    let places = array.params().layout.luns[0].0 / len.0;
    let mut random = fastrand::Rng::with_seed(seed);
    let mut begun = vec![Nanos::ZERO; outstanding as usize];
    let mut due: VecDeque<(Nanos, usize)> =
        (0..begun.len()).map(|slot| (Nanos::ZERO, slot)).collect();
    let (mut done, mut sum, mut max, mut from) = (0, 0_u128, Nanos::ZERO, Nanos::ZERO);
    loop {
        while let Some((now, slot)) = due.pop_front() {
            begun[slot] = now;
            let offset = Bytes(random.u64(0..places) * len.0);
            let io = ArrayIo { lun: LunId(0), kind: IoKind::Read, offset, len };
            array.submit(now, IoTag(slot as u64), io).expect("the IO lies on its LUN");
        }
        let next = array.next_event().expect("something is outstanding");
        array.advance(next);
        while let Some((at, id)) = array.pop_completion() {
            let slot = id.0 as usize;
            done += 1;
            if done == warm {
                from = at;
            } else if done > warm {
                let latency = at - begun[slot];
                sum += u128::from(latency.0);
                max = max.max(latency);
            }
            if done == warm + ios {
                let mean_ms = sum as f64 / ios as f64 / 1e6;
                let iops = ios as f64 / (at - from).secs();
                return Truth { iops, mean_ms, max_ms: max.secs() * 1e3 };
            }
            due.push_back((at, slot));
        }
    }
}
