//! A cluster in virtual time, small enough to check by eye: hosts under control, closed-loop VMs,
//! and an array of independent drives that each serve one IO at a time in order of arrival.

#![allow(clippy::unwrap_used)] // Clippy knows tests by #[test], and this is their stage.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::ops::{Deref, DerefMut};

use parda_control::{
    Bytes, Config, ConfigError, Dispatch, Estimate, Governor, Host, Instant, Io, IoId, IoKind,
    Measurement, Outcome, Outlook, Part, Period, Report, Shares, Span, Tenant, TenantId,
    TenantPart, Totals, View, VmConfig, VmId,
};

/// A host with its law.
#[derive(Debug)]
pub(crate) struct GovernedHost {
    host: Host,
    pub(crate) period: Period,
    measured: Measurement,
    heard: Option<Vec<TenantPart>>,
}

impl Deref for GovernedHost {
    type Target = Host;

    fn deref(&self) -> &Host {
        &self.host
    }
}

impl DerefMut for GovernedHost {
    fn deref_mut(&mut self) -> &mut Host {
        &mut self.host
    }
}

impl GovernedHost {
    pub(crate) fn new(now: Instant, config: Config) -> Result<GovernedHost, ConfigError> {
        let period = Period::new(config)?;
        let host = Host::new(now, period.decision());
        Ok(GovernedHost { host, period, measured: Measurement::default(), heard: None })
    }

    pub(crate) fn set_config(&mut self, now: Instant, config: Config) -> Result<(), ConfigError> {
        self.period.set_config(config)?;
        self.host.apply(now, self.period.decision());
        Ok(())
    }

    pub(crate) fn set_tenants(&mut self, now: Instant, tenants: &[(TenantId, Tenant)]) {
        self.period.set_tenants(tenants);
        self.host.apply(now, self.period.decision());
    }

    pub(crate) fn hear_tenants(&mut self, heard: Option<Vec<TenantPart>>) {
        self.heard = heard;
    }

    pub(crate) fn governor(&self) -> &Governor {
        self.period.governor()
    }

    pub(crate) fn tick(&mut self, now: Instant, view: View) -> Report {
        self.host.measure(now, &mut self.measured);
        let report = self.period.tick(&mut self.measured, view, self.heard.take());
        self.host.apply(now, self.period.decision());
        report
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Done { host: usize, io: usize, drive: usize },
    Wake { host: usize },
    Tick { host: usize },
    Arrive { host: usize, vm: usize, every: Span },
}

pub(crate) struct VmSpec {
    pub(crate) shares: u32,
    pub(crate) outstanding: usize,
}

struct VmState {
    id: VmId,
    want: usize,
    pending: usize,
    done: u64,
}

struct HostState {
    host: GovernedHost,
    vms: Vec<VmState>,
    report: Option<Report>,
    alive: bool,
    silent: bool,
    over_window: f64,
    device: Span,
    completed: u64,
    period: Span,
    /// The earliest time at which it is going to be woken up.
    wakes: Option<Instant>,
}

pub(crate) struct Cluster {
    now: Instant,
    events: BinaryHeap<Reverse<(Instant, u64, Event)>>,
    order: u64,
    hosts: Vec<HostState>,
    drives: Vec<VecDeque<(usize, usize)>>,
    service: Span,
    period: Span,
    random: u64,
    pub(crate) latency_trace: Vec<(Instant, f64)>,
}

impl Cluster {
    /// `drives` drives that take `service` on average for each IO, evenly spread over 0.5 to 1.5.
    pub(crate) fn new(seed: u64, drives: usize, service: Span, period: Span) -> Cluster {
        Cluster {
            now: Instant(0),
            events: BinaryHeap::new(),
            order: 0,
            hosts: Vec::new(),
            drives: (0..drives).map(|_| VecDeque::new()).collect(),
            service,
            period,
            random: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1,
            latency_trace: Vec::new(),
        }
    }

    fn draw(&mut self) -> f64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        (self.random >> 11) as f64 / (1u64 << 53) as f64
    }

    fn at(&mut self, when: Instant, event: Event) {
        self.order += 1;
        self.events.push(Reverse((when, self.order, event)));
    }

    pub(crate) fn add_host(&mut self, config: Config, vms: &[VmSpec]) -> usize {
        let mut host = GovernedHost::new(self.now, config).unwrap();
        let vms = vms
            .iter()
            .map(|spec| VmState {
                id: host.add_vm(self.now, VmConfig::of(Shares(spec.shares))),
                want: spec.outstanding,
                pending: 0,
                done: 0,
            })
            .collect();
        self.hosts.push(HostState {
            host,
            vms,
            report: None,
            alive: true,
            silent: false,
            over_window: 0.0,
            device: Span::ZERO,
            completed: 0,
            period: self.period,
            wakes: None,
        });
        let index = self.hosts.len() - 1;
        // Hosts tick out of step, as real ones do.
        let first = Span::from_secs(self.period.secs() * self.draw());
        self.at(self.now + first, Event::Tick { host: index });
        self.fill(index);
        index
    }

    pub(crate) fn set_outstanding(&mut self, host: usize, vm: usize, want: usize) {
        self.hosts[host].vms[vm].want = want;
        self.fill(host);
    }

    pub(crate) fn set_period(&mut self, host: usize, period: Span) {
        self.hosts[host].period = period;
    }

    /// From now on a VM does an IO after each such time, more or less, whatever is pending.
    pub(crate) fn arrive(&mut self, host: usize, vm: usize, every: Span) {
        let next = Span::from_secs(every.secs() * 2.0 * self.draw());
        self.at(self.now + next, Event::Arrive { host, vm, every });
    }

    pub(crate) fn overdue(&self, host: usize) -> u64 {
        self.hosts[host].host.overdue()
    }

    /// A host that dies: its IOs at the array finish for nobody, its report is gone.
    pub(crate) fn kill(&mut self, host: usize) {
        let h = &mut self.hosts[host];
        h.alive = false;
        h.report = None;
        h.vms.iter_mut().for_each(|vm| vm.want = 0);
    }

    pub(crate) fn estimate(&self, host: usize) -> Option<Estimate> {
        self.hosts[host].host.governor().estimate()
    }

    pub(crate) fn threshold(&self, host: usize) -> f64 {
        self.hosts[host].host.governor().threshold().secs()
    }

    pub(crate) fn silence(&mut self, host: usize, silent: bool) {
        self.hosts[host].silent = silent;
    }

    pub(crate) fn set_config(&mut self, host: usize, config: Config) {
        self.hosts[host].host.set_config(self.now, config).unwrap();
    }

    pub(crate) fn outlook(&self, host: usize) -> Option<&Outlook> {
        self.hosts[host].host.governor().outlook()
    }

    pub(crate) fn held(&self) -> usize {
        self.hosts.iter().map(|h| h.host.held()).sum()
    }

    pub(crate) fn window(&self, host: usize) -> f64 {
        self.hosts[host].host.governor().window().0
    }

    pub(crate) fn report(&self, host: usize) -> Option<Report> {
        self.hosts[host].report
    }

    /// The most that was ever outstanding beyond the window when an IO was dispatched.
    pub(crate) fn most_over_window(&self) -> f64 {
        self.hosts.iter().map(|h| h.over_window).fold(0.0, f64::max)
    }

    /// Runs for `span`; gives IOPS of each VM of each host, and the mean device latency in seconds.
    pub(crate) fn run(&mut self, span: Span) -> (Vec<Vec<f64>>, f64) {
        let end = self.now + span;
        for h in &mut self.hosts {
            h.vms.iter_mut().for_each(|vm| vm.done = 0);
            (h.device, h.completed) = (Span::ZERO, 0);
        }
        while let Some(&Reverse((when, _, event))) = self.events.peek() {
            if when > end {
                break;
            }
            self.events.pop();
            self.now = when;
            match event {
                Event::Done { host, io, drive } => self.done(host, io, drive),
                Event::Wake { host } => {
                    let h = &mut self.hosts[host];
                    h.wakes = h.wakes.filter(|known| *known > when);
                    self.dispatch(host);
                }
                Event::Tick { host } => self.tick(host),
                Event::Arrive { host, vm, every } => {
                    self.hosts[host].vms[vm].pending += 1;
                    self.submit(host, vm);
                    self.dispatch(host);
                    self.arrive(host, vm, every);
                }
            }
        }
        self.now = end;
        let device: f64 = self.hosts.iter().map(|h| h.device.secs()).sum();
        let completed: u64 = self.hosts.iter().map(|h| h.completed).sum();
        let iops = |h: &HostState| h.vms.iter().map(|v| v.done as f64 / span.secs()).collect();
        (self.hosts.iter().map(iops).collect(), device / completed as f64)
    }

    fn fill(&mut self, host: usize) {
        for vm in 0..self.hosts[host].vms.len() {
            while self.hosts[host].vms[vm].pending < self.hosts[host].vms[vm].want {
                self.hosts[host].vms[vm].pending += 1;
                self.submit(host, vm);
            }
        }
        self.dispatch(host);
    }

    fn submit(&mut self, host: usize, vm: usize) {
        let h = &mut self.hosts[host];
        let io = Io { kind: IoKind::Read, bytes: Bytes::kib(16) };
        h.host.submit(self.now, h.vms[vm].id, io, vm as u64);
    }

    fn dispatch(&mut self, host: usize) {
        let now = self.now;
        while let Some(Dispatch { id, .. }) = self.hosts[host].host.next_dispatch(now) {
            let h = &mut self.hosts[host];
            let over = h.host.outstanding() as f64 - h.host.grant().0;
            h.over_window = h.over_window.max(over);
            let drive = (self.draw() * self.drives.len() as f64) as usize;
            self.drives[drive].push_back((host, id.0));
            if self.drives[drive].len() == 1 {
                self.serve(drive);
            }
        }
        let h = &mut self.hosts[host];
        let wakes = h.host.next_wakeup().map(|when| when.max(now));
        if let Some(when) = wakes.filter(|when| h.wakes.is_none_or(|known| *when < known)) {
            h.wakes = Some(when);
            self.at(when, Event::Wake { host });
        }
    }

    fn serve(&mut self, drive: usize) {
        if let Some(&(host, io)) = self.drives[drive].front() {
            let time = Span::from_secs(self.service.secs() * (0.5 + self.draw()));
            self.at(self.now + time, Event::Done { host, io, drive });
        }
    }

    fn done(&mut self, host: usize, io: usize, drive: usize) {
        self.drives[drive].pop_front();
        self.serve(drive);
        let h = &mut self.hosts[host];
        let done = h.host.complete(self.now, IoId(io), Outcome::Done).unwrap();
        h.device += done.device;
        h.completed += 1;
        let vm = &mut h.vms[done.token as usize];
        vm.done += 1;
        vm.pending -= 1;
        self.fill(host);
    }

    fn tick(&mut self, host: usize) {
        if !self.hosts[host].alive {
            return;
        }
        let mut peers = Totals::default();
        for (other, h) in self.hosts.iter().enumerate() {
            if let Some(report) = h.report.filter(|_| other != host && !h.silent) {
                peers.hear(&Part::of(&report), other as u64 + 1, other < host);
            }
        }
        let now = self.now;
        let h = &mut self.hosts[host];
        let view = if h.silent { View::Silent } else { View::Peers(peers) };
        let report = h.host.tick(now, view);
        h.report = Some(report);
        if let Some(latency) = h.host.governor().latency() {
            self.latency_trace.push((now, latency));
        }
        self.dispatch(host);
        self.at(now + self.hosts[host].period, Event::Tick { host });
    }
}
