//! A kernel's queue of one device, and the agent that steers it: first come, first served, and a
//! depth in whole IOs that changes at ticks, or at slices of a period where that is cheap.
//!
//! What the law is told and how its window becomes a depth is what `parda serve` does to a steered
//! volume. How VMs of one host share its queue is not modelled: they come as they come.

use std::collections::VecDeque;

use parda_control::integral::Integral;
use parda_control::latency::Meter;
use parda_control::{
    Completed, Config, ConfigError, Depth, Dispatch, Governor, Instant, Io, IoId, Measured, Report,
    Shares, Span, View, VmConfig, VmDemand, VmId, Window,
};
use parda_scenario::{GuestDisk, GuestSettings};
use slab::Slab;

/// How often in a period a depth changes that may change that often, as the agent does it.
const SLICES: u64 = 20;

/// Not oftener than this.
const SHORTEST_SLICE: Span = Span::from_millis(20);

/// What a disk's queue can be set to.
#[derive(Clone, Copy, Debug)]
struct Bounds {
    least: u32,
    most: u32,
    /// Whether it may change several times in a period.
    cheap: bool,
    /// What it is when nobody sets it.
    untouched: u32,
    /// How many IOs the other side has under way at the array; the others wait there.
    beyond: usize,
}

/// What the laboratory has under way of an export that is a file there.
const OF_A_FILE: usize = 10;

fn bounds(disk: GuestDisk) -> Bounds {
    match disk {
        GuestDisk::Scsi => {
            Bounds { least: 1, most: 128, cheap: true, untouched: 128, beyond: OF_A_FILE }
        }
        GuestDisk::Iscsi => {
            Bounds { least: 1, most: 113, cheap: true, untouched: 32, beyond: OF_A_FILE }
        }
        GuestDisk::Nbd => {
            Bounds { least: 4, most: 128, cheap: false, untouched: 128, beyond: usize::MAX }
        }
    }
}

#[derive(Debug)]
struct Pending {
    vm: VmId,
    token: u64,
    io: Io,
    submitted: Instant,
    /// Since when it counts as outstanding for the kernel.
    issued: Instant,
    /// Since when it is at the array.
    sent: Instant,
}

#[derive(Debug)]
struct Vm {
    shares: Shares,
    pending: Integral,
}

/// See the module's documentation.
#[derive(Debug)]
pub(crate) struct Kernel {
    governor: Governor,
    meter: Meter,
    bounds: Bounds,
    /// What its depth is where the law sets none.
    by_hand: u32,
    turns: Depth,
    depth: u32,
    period: Span,
    ticked: Instant,
    /// When the depth turns next between two ticks.
    turn: Option<Instant>,
    vms: Vec<Vm>,
    queue: VecDeque<Pending>,
    /// Issued, and waiting on the other side.
    beyond: VecDeque<Pending>,
    at_array: Slab<Pending>,
    outstanding: Integral,
}

impl Kernel {
    pub(crate) fn new(
        now: Instant,
        config: Config,
        period: Span,
        guest: &GuestSettings,
        vms: &[VmConfig],
    ) -> Result<Kernel, ConfigError> {
        let bounds = bounds(guest.disk);
        let vm = |vm: &VmConfig| Vm { shares: vm.shares, pending: Integral::new(now) };
        let by_hand = guest.queue_depth.unwrap_or(bounds.untouched);
        let mut kernel = Kernel {
            meter: Meter::new(config.size_model, config.reference_size),
            governor: {
                let mut governor = Governor::new(config)?;
                governor.count_ios();
                governor
            },
            bounds,
            by_hand,
            turns: Depth::default(),
            depth: by_hand,
            period,
            ticked: now,
            turn: None,
            vms: vms.iter().map(vm).collect(),
            queue: VecDeque::new(),
            beyond: VecDeque::new(),
            at_array: Slab::new(),
            outstanding: Integral::new(now),
        };
        kernel.set();
        Ok(kernel)
    }

    pub(crate) fn set_shares(&mut self, vm: VmId, shares: Shares) {
        self.vms[vm.0].shares = shares;
    }

    /// The depth follows with the next tick.
    pub(crate) fn set_config(&mut self, config: Config, period: Span) -> Result<(), ConfigError> {
        let sizes = |config: &Config| (config.size_model, config.reference_size);
        let before = sizes(self.governor.config());
        self.governor.set_config(config)?;
        let (model, reference) = sizes(self.governor.config());
        if (model, reference) != before {
            self.meter = Meter::new(model, reference);
        }
        self.period = period;
        Ok(())
    }

    pub(crate) fn submit(&mut self, now: Instant, vm: VmId, io: Io, token: u64) {
        self.vms[vm.0].pending.add(now, 1.0);
        let (submitted, issued, sent) = (now, now, now);
        self.queue.push_back(Pending { vm, token, io, submitted, issued, sent });
    }

    pub(crate) fn next_dispatch(&mut self, now: Instant) -> Option<Dispatch> {
        if self.turn.is_some_and(|turn| turn <= now) {
            self.set();
            self.turn = Some(now + self.slice());
        }
        while self.issued() < self.depth as usize {
            let Some(pending) = self.queue.pop_front() else { break };
            self.outstanding.add(now, 1.0);
            self.beyond.push_back(Pending { issued: now, ..pending });
        }
        if self.at_array.len() >= self.bounds.beyond {
            return None;
        }
        let pending = Pending { sent: now, ..self.beyond.pop_front()? };
        let (vm, token) = (pending.vm, pending.token);
        let id = IoId(self.at_array.insert(pending));
        Some(Dispatch { id, vm, token, overdue: false })
    }

    pub(crate) fn complete(&mut self, now: Instant, id: IoId) -> Option<Completed> {
        let Pending { vm, token, io, submitted, issued, sent } = self.at_array.try_remove(id.0)?;
        self.outstanding.add(now, -1.0);
        self.vms[vm.0].pending.add(now, -1.0);
        if let Some(direction) = io.kind.direction() {
            self.meter.add(direction, io.bytes, now.since(issued));
        }
        let (held, device) = (sent.since(submitted), now.since(sent));
        Some(Completed { vm, token, io, held, device })
    }

    pub(crate) fn next_wakeup(&self) -> Option<Instant> {
        self.turn
    }

    pub(crate) fn tick(&mut self, now: Instant, view: View) -> Report {
        let elapsed = now.since(self.ticked);
        self.ticked = now;
        let per_share = self.governor.window_per_share();
        let demand =
            |vm: &mut Vm| VmDemand::of_mean(vm.shares, vm.pending.mean(now, elapsed), per_share);
        let vms: Vec<VmDemand> = self.vms.iter_mut().map(demand).collect();
        let outstanding = self.outstanding.mean(now, elapsed);
        let measured = Measured { elapsed, interval: self.meter.roll(), outstanding, vms: &vms };
        let report = self.governor.tick(measured, view);
        self.meter.learn(self.governor.lines());
        self.set();
        // What nobody uses may be what it is.
        let turns = self.bounds.cheap && outstanding > 0.0 && self.window().0.is_finite();
        self.turn = turns.then(|| now + self.slice());
        report
    }

    fn set(&mut self) {
        let Bounds { least, most, .. } = self.bounds;
        let window = self.window();
        self.depth =
            if window.0.is_finite() { self.turns.next(window, least, most) } else { self.by_hand };
    }

    fn slice(&self) -> Span {
        Span(self.period.0 / SLICES).max(SHORTEST_SLICE)
    }

    pub(crate) fn threshold(&self) -> Span {
        self.governor.threshold()
    }

    pub(crate) fn window(&self) -> Window {
        self.governor.window()
    }

    /// What bounds an IO that goes to the array now. What it let go under a larger depth may still
    /// wait on the other side.
    pub(crate) fn bound(&self) -> Window {
        Window(self.bounds.beyond.min(self.bounds.most.max(self.by_hand) as usize) as f64)
    }

    pub(crate) fn held(&self) -> usize {
        self.queue.len()
    }

    pub(crate) fn issued(&self) -> usize {
        self.beyond.len() + self.at_array.len()
    }
}

#[cfg(test)]
mod tests {
    use parda_control::law::{LawConfig, Mode};
    use parda_control::{Bytes, IoKind, Totals};

    use super::*;

    const READ: Io = Io { kind: IoKind::Read, bytes: Bytes::kib(4) };

    fn kernel(mode: Mode, window: f64, disk: GuestDisk, queue_depth: Option<u32>) -> Kernel {
        let law = LawConfig { mode, window_max: Window(window), ..LawConfig::default() };
        let config = Config { law, ..Config::default() };
        let guest = GuestSettings { disk, memory: Bytes(0), queue_depth };
        let vms = [1000, 500].map(|n| VmConfig { shares: Shares(n), burst: 0.0, target: None });
        Kernel::new(Instant(0), config, Span::from_millis(1000), &guest, &vms).unwrap()
    }

    /// Two VMs with 64 IOs each, at an array that takes 10 ms for any number of them. The mean of
    /// what is issued over a minute, the most of it, and the IOs of both VMs.
    fn minute(kernel: &mut Kernel) -> (f64, usize, [u64; 2]) {
        let mut at_array: VecDeque<(Instant, IoId)> = VecDeque::new();
        let (mut sum, mut most, mut done) = (0.0, 0, [0; 2]);
        for token in 0..128 {
            kernel.submit(Instant(0), VmId(token % 2), READ, token as u64);
        }
        for ms in 0..60_000 {
            let now = Instant(0) + Span::from_millis(ms);
            if ms % 1000 == 999 {
                kernel.tick(now, View::Peers(Totals::default()));
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
            assert_eq!(kernel.held() + kernel.issued(), 128);
            most = most.max(at_array.len());
            sum += kernel.issued() as f64;
        }
        (sum / 60_000.0, most, done)
    }

    #[test]
    fn the_mean_of_what_is_issued_is_the_window() {
        for window in [1.0, 1.3, 4.5, 7.9] {
            let (mean, most, [a, b]) =
                minute(&mut kernel(Mode::Static, window, GuestDisk::Scsi, None));
            assert!((mean / window - 1.0).abs() < 0.05, "{mean} for {window}");
            assert!(most as f64 <= window.ceil());
            assert!((a as f64 / b as f64 - 1.0).abs() < 0.02, "first come, first served");
        }
    }

    #[test]
    fn a_queue_that_changes_at_ticks_only_keeps_the_mean_too() {
        let (mean, most, _) = minute(&mut kernel(Mode::Static, 4.5, GuestDisk::Nbd, None));
        assert!((mean / 4.5 - 1.0).abs() < 0.05, "{mean}");
        assert_eq!(most, 5);
    }

    #[test]
    fn a_window_below_the_least_depth_stays_at_that() {
        let (mean, most, _) = minute(&mut kernel(Mode::Static, 0.3, GuestDisk::Scsi, None));
        assert_eq!((mean, most), (1.0, 1));
        let (mean, most, _) = minute(&mut kernel(Mode::Static, 0.3, GuestDisk::Nbd, None));
        assert_eq!((mean, most), (4.0, 4));
    }

    #[test]
    fn what_no_law_sets_is_what_it_was() {
        for mode in [Mode::Off, Mode::Observe] {
            let issued_and_there = |disk, depth| {
                let (mean, most, _) = minute(&mut kernel(mode, 2.0, disk, depth));
                (mean, most)
            };
            assert_eq!(issued_and_there(GuestDisk::Scsi, None), (128.0, OF_A_FILE));
            assert_eq!(issued_and_there(GuestDisk::Iscsi, None), (32.0, OF_A_FILE));
            assert_eq!(issued_and_there(GuestDisk::Nbd, Some(60)), (60.0, 60));
        }
    }
}
