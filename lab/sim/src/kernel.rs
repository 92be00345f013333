//! A kernel's queue of one device, and the agent that steers it. The queue is first come, first served; its depth is whole IOs, and changes
//! at ticks, or at slices of a period where that is cheap.
//!
//! As in the agent, [`KernelHost`] prepares the law's input and turns its window into a depth. Fairness among the VMs of one host in its
//! queue is not modelled: IOs go in order of arrival.

use std::collections::VecDeque;

use parda_control::depth::DepthSchedule;
use parda_control::integral::Integral;
use parda_control::{
    Account, Completed, Decision, DepthBounds, Dispatch, HeldBy, Instant, Io, IoId, Measurement,
    Shares, VmConfig, VmId, VmPeriod, Window,
};
use parda_scenario::{GuestDisk, GuestSettings};
use slab::Slab;

use crate::enforcer::Enforcer;

/// Depths of a disk's queue.
#[derive(Clone, Copy, Debug)]
struct Queue {
    /// Depths that can be set.
    bounds: DepthBounds,
    /// Depth until a depth is set.
    untouched: u32,
    /// IOs that the server behind the queue has under way at the array. Further ones wait in the server.
    beyond: usize,
}

/// Most IOs that the laboratory has under way on an export that is a file.
const OF_A_FILE: usize = 10;

fn queue(disk: GuestDisk) -> Queue {
    let (least, most, cheap, untouched, beyond) = match disk {
        GuestDisk::Scsi => (1, 128, true, 128, OF_A_FILE),
        GuestDisk::Iscsi => (1, 113, true, 32, OF_A_FILE),
        GuestDisk::Nbd => (4, 128, false, 128, usize::MAX),
    };
    Queue { bounds: DepthBounds { least, most, cheap }, untouched, beyond }
}

#[derive(Debug)]
struct Pending {
    vm: VmId,
    token: u64,
    io: Io,
    submitted: Instant,
    /// Time since which the kernel counts it as outstanding.
    issued: Instant,
    /// Time since which it is at the array.
    sent: Instant,
}

#[derive(Debug)]
struct Vm {
    shares: Shares,
    pending: Integral,
}

/// A steered kernel queue; see the module's documentation.
#[derive(Debug)]
pub(crate) struct Kernel {
    account: Account,
    schedule: DepthSchedule,
    disk: Queue,
    /// Depth where the law sets none.
    by_hand: u32,
    depth: u32,
    ticked: Instant,
    vms: Vec<Vm>,
    queue: VecDeque<Pending>,
    /// Issued IOs that wait in the server.
    beyond: VecDeque<Pending>,
    at_array: Slab<Pending>,
    outstanding: Integral,
}

impl Kernel {
    pub(crate) fn new(
        now: Instant,
        decision: &Decision,
        guest: &GuestSettings,
        vms: &[VmConfig],
    ) -> Kernel {
        let disk = queue(guest.disk);
        let vm = |vm: &VmConfig| Vm { shares: vm.shares, pending: Integral::new(now) };
        let by_hand = guest.queue_depth.unwrap_or(disk.untouched);
        let mut kernel = Kernel {
            account: Account::new(decision),
            schedule: DepthSchedule::new(decision.period),
            disk,
            by_hand,
            depth: by_hand,
            ticked: now,
            vms: vms.iter().map(vm).collect(),
            queue: VecDeque::new(),
            beyond: VecDeque::new(),
            at_array: Slab::new(),
            outstanding: Integral::new(now),
        };
        kernel.set(now);
        kernel
    }

    fn set(&mut self, now: Instant) {
        let (window, in_use) = (self.account.decision().window, self.account.in_use());
        let set = self.schedule.turn(now, window, self.disk.bounds, in_use);
        self.depth = set.unwrap_or(self.by_hand);
    }

    fn issued(&self) -> usize {
        self.beyond.len() + self.at_array.len()
    }
}

impl Enforcer for Kernel {
    fn set_vm(&mut self, _: Instant, vm: VmId, config: VmConfig) {
        self.vms[vm.0].shares = config.shares;
    }

    fn submit(&mut self, now: Instant, vm: VmId, io: Io, token: u64) {
        self.vms[vm.0].pending.add(now, 1.0);
        let (submitted, issued, sent) = (now, now, now);
        self.queue.push_back(Pending { vm, token, io, submitted, issued, sent });
    }

    fn next_dispatch(&mut self, now: Instant) -> Option<Dispatch> {
        if self.schedule.is_due(now) {
            self.set(now);
        }
        while self.issued() < self.depth as usize {
            let Some(pending) = self.queue.pop_front() else { break };
            self.outstanding.add(now, 1.0);
            self.beyond.push_back(Pending { issued: now, ..pending });
        }
        if self.at_array.len() >= self.disk.beyond {
            return None;
        }
        let pending = Pending { sent: now, ..self.beyond.pop_front()? };
        let (vm, token) = (pending.vm, pending.token);
        let id = IoId(self.at_array.insert(pending));
        Some(Dispatch { id, vm, token, overdue: false })
    }

    fn complete(&mut self, now: Instant, id: IoId) -> Option<Completed> {
        let Pending { vm, token, io, submitted, issued, sent } = self.at_array.try_remove(id.0)?;
        self.outstanding.add(now, -1.0);
        self.vms[vm.0].pending.add(now, -1.0);
        if let Some(direction) = io.kind.direction() {
            self.account.record(direction, 1, io.bytes, now.since(issued));
        }
        let (held, device) = (sent.since(submitted), now.since(sent));
        let held_by = HeldBy::Turn;
        Some(Completed { vm, token, io, held, held_by, device })
    }

    fn next_wakeup(&self) -> Option<Instant> {
        self.schedule.next()
    }

    fn measure(&mut self, now: Instant, into: &mut Measurement) {
        let elapsed = now.since(self.ticked);
        self.ticked = now;
        let did = |vm: &mut Vm| VmPeriod {
            shares: vm.shares,
            tenant: None,
            pending: vm.pending.mean(now, elapsed),
            ios: [0; 2],
            bytes: [0; 2],
            held: false,
        };
        let vms: Vec<VmPeriod> = self.vms.iter_mut().map(did).collect();
        let outstanding = self.outstanding.mean(now, elapsed);
        *into = self.account.measure(elapsed, outstanding, vms, None);
    }

    // Between two ticks the depth follows with its next change.
    fn apply(&mut self, now: Instant, decision: &Decision) {
        self.schedule.set_period(decision.period);
        if self.account.apply(decision) {
            self.set(now);
        }
    }

    // IOs issued under a larger depth may still wait in the server.
    fn bound(&self) -> Window {
        let Queue { bounds, beyond, .. } = self.disk;
        Window(beyond.min(bounds.most.max(self.by_hand) as usize) as f64)
    }

    fn under_way(&self) -> usize {
        self.queue.len() + self.issued()
    }
}

#[cfg(test)]
mod tests {
    use parda_control::law::{LawConfig, Mode};
    use parda_control::{Bytes, Config, IoKind, Period, Span, Totals, View};

    use super::*;

    const READ: Io = Io { kind: IoKind::Read, bytes: Bytes::kib(4) };

    fn kernel(
        mode: Mode,
        window: f64,
        disk: GuestDisk,
        queue_depth: Option<u32>,
    ) -> (Period, Kernel) {
        let law = LawConfig { mode, window_max: Window(window), ..LawConfig::default() };
        let config = Config { law, ..Config::default() };
        let guest = GuestSettings { disk, queue_depth };
        let vms = [1000, 500].map(|n| VmConfig::of(Shares(n)));
        let period = Period::counting_ios(config).unwrap();
        let kernel = Kernel::new(Instant(0), period.decision(), &guest, &vms);
        (period, kernel)
    }

    /// A minute of two VMs with 64 IOs each, at an array of 10 ms for any load. Returns mean and maximum of the issued IOs, and the IOs of
    /// both VMs.
    fn minute((mut period, mut kernel): (Period, Kernel)) -> (f64, usize, [u64; 2]) {
        let mut at_array: VecDeque<(Instant, IoId)> = VecDeque::new();
        let (mut sum, mut most, mut done) = (0.0, 0, [0; 2]);
        for token in 0..128 {
            kernel.submit(Instant(0), VmId(token % 2), READ, token as u64);
        }
        for ms in 0..60_000 {
            let now = Instant(0) + Span::from_millis(ms);
            if ms % 1000 == 999 {
                let mut measured = Measurement::default();
                kernel.measure(now, &mut measured);
                period.tick(&mut measured, View::Peers(Totals::default()), None);
                kernel.apply(now, period.decision());
            }
            while let Some((_, id)) = at_array.pop_front_if(|(at, _)| *at <= now) {
                let completed = kernel.complete(now, id).unwrap();
                assert_eq!(completed.device, Span::from_millis(10));
                done[completed.vm.0] += 1;
                kernel.submit(now, completed.vm, READ, completed.token);
            }
            while let Some(dispatch) = kernel.next_dispatch(now) {
                at_array.push_back((now + Span::from_millis(10), dispatch.id));
                assert!(kernel.issued() <= kernel.depth as usize);
            }
            assert_eq!(kernel.under_way(), 128);
            most = most.max(at_array.len());
            sum += kernel.issued() as f64;
        }
        (sum / 60_000.0, most, done)
    }

    #[test]
    fn the_mean_of_what_is_issued_is_the_window() {
        for window in [1.0, 1.3, 4.5, 7.9] {
            let (mean, most, [a, b]) = minute(kernel(Mode::Static, window, GuestDisk::Scsi, None));
            assert!((mean / window - 1.0).abs() < 0.05, "{mean} for {window}");
            assert!(most as f64 <= window.ceil());
            assert!((a as f64 / b as f64 - 1.0).abs() < 0.02, "first come, first served");
        }
    }

    #[test]
    fn a_queue_that_changes_at_ticks_only_keeps_the_mean_too() {
        let (mean, most, _) = minute(kernel(Mode::Static, 4.5, GuestDisk::Nbd, None));
        assert!((mean / 4.5 - 1.0).abs() < 0.05, "{mean}");
        assert_eq!(most, 5);
    }

    #[test]
    fn a_window_below_the_least_depth_stays_at_that() {
        let (mean, most, _) = minute(kernel(Mode::Static, 0.3, GuestDisk::Scsi, None));
        assert_eq!((mean, most), (1.0, 1));
        let (mean, most, _) = minute(kernel(Mode::Static, 0.3, GuestDisk::Nbd, None));
        assert_eq!((mean, most), (4.0, 4));
    }

    #[test]
    fn what_no_law_sets_is_what_it_was() {
        for mode in [Mode::Off, Mode::Observe] {
            let issued_and_there = |disk, depth| {
                let (mean, most, _) = minute(kernel(mode, 2.0, disk, depth));
                (mean, most)
            };
            assert_eq!(issued_and_there(GuestDisk::Scsi, None), (128.0, OF_A_FILE));
            assert_eq!(issued_and_there(GuestDisk::Iscsi, None), (32.0, OF_A_FILE));
            assert_eq!(issued_and_there(GuestDisk::Nbd, Some(60)), (60.0, 60));
        }
    }
}
