//! A VM as a client that other programs run.

use std::time::Duration;

use parda_workload::fio::ExportedClient;

use crate::scenario::{Action, Scenario, VmId};

/// Seed of a VM's client, derived from the scenario's seed so that each VM has another one. Below 2³²,
/// as fio takes it.
#[must_use]
pub fn client_seed(seed: u64, id: VmId) -> u64 {
    // Any mixing serves that separates seed, host and VM.
    let mixed = [seed, id.host.0 as u64, id.index as u64]
        .iter()
        .fold(0x9e37_79b9_7f4a_7c15_u64, |h, &x| (h ^ x).wrapping_mul(0x0100_0000_01b3));
    (mixed >> 32 ^ mixed) & 0xffff_ffff
}

impl Scenario {
    /// A VM as a client to export. It runs from its first start to its first stop; other events of the
    /// scenario are not part of it.
    #[must_use]
    pub fn client(&self, id: VmId) -> ExportedClient<'_> {
        let vm = self.vm(id);
        let (start, stop) = self.first_run(id);
        let seed = client_seed(self.seed, id);
        ExportedClient { name: &vm.name, disk: vm.disk, load: &vm.load, seed, start, stop }
    }

    /// Times of the first start and the first stop of a VM's client.
    fn first_run(&self, id: VmId) -> (Duration, Duration) {
        let mut events = self.timeline.iter();
        let mut next = |action: Action| events.find(|event| event.action == action).map(|e| e.at);
        let start = next(Action::StartVm(id)).unwrap_or_default();
        (start, next(Action::StopVm(id)).unwrap_or(self.duration))
    }
}
