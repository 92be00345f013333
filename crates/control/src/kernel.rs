//! A host at a volume whose queue and gate are the kernel's: the law, the meter that feeds it, and the times at which
//! the kernel's queue gets another depth.
//!
//! Among its VMs the driver divides the depth, by the shares and limits that [`KernelHost::grants`] has for them.
//!
//! What carries a depth to a queue and measures what completes is the driver's: the agent with a device, the simulator
//! with its model of one. The driver calls [`KernelHost::tick`] once per period, sets [`KernelHost::depth`] after it,
//! and again whenever [`KernelHost::next_change`] has come.

use alloc::vec::Vec;

use crate::cluster::{Report, View};
use crate::config::{Config, ConfigError};
use crate::depth::{DepthBounds, DepthSchedule};
use crate::governor::{Governor, Measured, VmDemand, reweighed};
use crate::latency::{Direction, Interval, Meter};
use crate::limit::Limit;
use crate::tenant::{Member, Tenant, TenantId, TenantPart, TenantState, Tenants, part, wish};
use crate::units::{Bytes, Instant, Shares, Span, Window};

/// Factor on what a VM did of its tenant's limit while its cap did not hold it. A cap holds a VM from nine tenths on, and reads alone have
/// ten elevenths of it: with less room a steady VM would seem to be held.
const ROOM: f64 = 1.25;

/// What a VM did in a period.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct VmPeriod {
    /// Its own shares.
    pub shares: Shares,
    /// Tenant whose VM it is.
    pub tenant: Option<TenantId>,
    /// Mean of its pending IOs, held and outstanding.
    pub pending: f64,
    /// IOs of reads and of writes.
    pub ios: [u64; 2],
    /// Bytes of reads and of writes.
    pub bytes: [u64; 2],
    /// Whether its part of the tenant's limit held it back.
    pub held: bool,
}

/// What a VM has in the next period.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct VmGrant {
    /// Shares that it counts with among the VMs of its host.
    pub shares: f64,
    /// Its part of the tenant's limit.
    pub limit: Limit,
}

/// Means over a period of what a kernel's queue did, and what each VM did.
#[derive(Clone, Copy, Debug)]
pub struct QueueMeans<'a> {
    /// Length of the period.
    pub elapsed: Span,
    /// Mean of the IOs outstanding.
    pub outstanding: f64,
    /// The VMs of the host.
    pub vms: &'a [VmPeriod],
}

/// State machine of such a host.
#[derive(Debug)]
pub struct KernelHost {
    governor: Governor,
    meter: Meter,
    schedule: DepthSchedule,
    /// Whether IOs were outstanding in the last period. The depth of an unused queue is left as it is.
    in_use: bool,
    tenants: Tenants,
    grants: Vec<VmGrant>,
}

impl KernelHost {
    /// A host that has not measured anything yet. Fails if the parameters cannot work.
    pub fn new(config: Config) -> Result<KernelHost, ConfigError> {
        let meter = Meter::new(config.size_model, config.reference_size);
        let schedule = DepthSchedule::new(config.law.period);
        let mut governor = Governor::new(config)?;
        governor.count_ios();
        Ok(KernelHost {
            governor,
            meter,
            schedule,
            in_use: false,
            tenants: Tenants::default(),
            grants: Vec::new(),
        })
    }

    /// Changes parameters. The depth follows with the next tick. Latencies of the present period are
    /// dropped if their size model has changed.
    pub fn set_config(&mut self, config: Config) -> Result<(), ConfigError> {
        let (model, reference) = (config.size_model, config.reference_size);
        let period = config.law.period;
        self.governor.set_config(config)?;
        self.meter.scale(model, reference);
        self.schedule.set_period(period);
        Ok(())
    }

    /// The law, for what it knows.
    #[must_use]
    pub fn governor(&self) -> &Governor {
        &self.governor
    }

    /// Lowers the window to a depth that the kernel has set by itself, as the array reported that it is full.
    pub fn lowered(&mut self, depth: u32) {
        self.governor.lower_to(Window(f64::from(depth)));
    }

    /// Records `ios` completed IOs of about one size, by their sums of bytes and latencies.
    pub fn record(&mut self, direction: Direction, ios: u64, bytes: Bytes, latency: Span) {
        self.meter.add_many(direction, ios, bytes, latency);
    }

    /// Changes the tenants that this host knows, and what they have. A reservation is not kept: the kernel orders the IOs.
    pub fn set_tenants(&mut self, tenants: &[(TenantId, Tenant)]) {
        self.tenants.set(tenants, |_, _, _| None);
    }

    /// Takes in what the other hosts say of tenants, `None` while nothing can be said of them: before each [`KernelHost::tick`].
    pub fn hear_tenants(&mut self, parts: Option<Vec<TenantPart>>) {
        self.tenants.hear(parts);
    }

    /// What to publish of tenants after a tick.
    pub fn tenant_parts(&self) -> impl Iterator<Item = TenantPart> {
        self.tenants.parts()
    }

    /// How the tenants stand after the last tick.
    pub fn tenants(&self) -> impl Iterator<Item = TenantState> {
        self.tenants.states()
    }

    /// Shares that a VM counts with: while all VMs want theirs, and now.
    #[must_use]
    pub fn weigh(&self, tenant: Option<TenantId>, shares: Shares) -> (f64, f64) {
        let own = f64::from(shares.0);
        let place = tenant.and_then(|tenant| self.tenants.place(tenant));
        let (counts, awake) = place.map_or((own, own), |place| self.tenants.weigh(place, own));
        (awake, counts)
    }

    /// What the VMs of the last tick have until the next one, in their order.
    #[must_use]
    pub fn grants(&self) -> &[VmGrant] {
        &self.grants
    }

    /// Ends a period: finds the new window, and returns the report to publish.
    pub fn tick(&mut self, means: QueueMeans<'_>, view: View) -> Report {
        let QueueMeans { elapsed, outstanding, vms } = means;
        let interval = self.meter.roll();
        let per_share = self.governor.window_per_share();
        let demand = |vm: &VmPeriod| {
            VmDemand::of_mean(self.weigh(vm.tenant, vm.shares), vm.pending, per_share)
        };
        let demands: Vec<VmDemand> = vms.iter().map(demand).collect();
        self.account(&means, &demands, &interval);
        let measured = Measured { elapsed, interval, outstanding, vms: &demands, reserved: 0.0 };
        let mut report = self.governor.tick(measured, view);
        self.tenants.end(elapsed, report.source, |id, limit, _| {
            let vms = || vms.iter().filter(|vm| vm.tenant == Some(id));
            let held = vms().any(|vm| vm.held);
            (ROOM * used(limit, vms(), elapsed), f64::from(u8::from(held)))
        });
        self.tenants.share_out(self.governor.window_per_share(), &self.governor.room());
        self.grant(&means);
        report.active *= reweighed(&demands, self.grants.iter().map(|grant| grant.shares));
        self.meter.learn(self.governor.lines());
        self.in_use = outstanding > 0.0;
        report
    }

    /// Adds what the VMs did to the accounts of their tenants.
    fn account(&mut self, means: &QueueMeans<'_>, demands: &[VmDemand], interval: &Interval) {
        let per_share = self.governor.window_per_share();
        let ios = (interval.reads.ios + interval.writes.ios).max(1) as f64;
        let latency = means.outstanding * means.elapsed.secs() / ios;
        self.tenants.begin();
        for (vm, demand) in means.vms.iter().zip(demands) {
            let Some(place) = vm.tenant.and_then(|tenant| self.tenants.place(tenant)) else {
                continue;
            };
            let ios = vm.ios.iter().sum();
            self.tenants.account(
                place,
                &Member {
                    shares: f64::from(vm.shares.0),
                    used: demand.used / per_share,
                    asked: demand.limited_part(per_share),
                    active: is_active(vm),
                },
            );
            self.tenants.add(place, ios, latency * ios as f64);
        }
    }

    /// Finds what each VM has in the next period. Inside the host a tenant's limit is divided among VMs as it is among hosts.
    fn grant(&mut self, means: &QueueMeans<'_>) {
        let QueueMeans { elapsed, vms, .. } = *means;
        let weighed = vms.iter().map(|vm| {
            let (_, shares) = self.weigh(vm.tenant, vm.shares);
            VmGrant { shares, limit: Limit::default() }
        });
        self.grants = weighed.collect();
        for (id, limit) in self.tenants.limits() {
            let of_tenant = vms.iter().enumerate().filter(|(_, vm)| vm.tenant == Some(id));
            let (places, mut parts): (Vec<usize>, Vec<TenantPart>) = of_tenant
                .map(|(at, vm)| {
                    let shares = f64::from(vm.shares.0);
                    let active = if is_active(vm) { shares } else { 0.0 };
                    let done = ROOM * used(&limit, [vm].into_iter(), elapsed);
                    let wish = wish(done, f64::from(u8::from(vm.held)));
                    (at, TenantPart { shares, active, wish, ..TenantPart::default() })
                })
                .unzip();
            for (n, at) in places.into_iter().enumerate() {
                parts.swap(0, n);
                self.grants[at].limit = limit.times(part(&parts[0], &parts[1..]));
                parts.swap(0, n);
            }
        }
    }

    /// Whether the law sets depths. Else the queue has the depth that it has without parda.
    #[must_use]
    pub fn sets_depths(&self) -> bool {
        self.governor.window().0.is_finite()
    }

    /// The depth to set now, of those that the queue can have, or `None` if the law sets none. Plans the next change.
    pub fn depth(&mut self, now: Instant, bounds: DepthBounds) -> Option<u32> {
        let sets = self.sets_depths();
        self.schedule.changed(now, sets && bounds.cheap && self.in_use);
        sets.then(|| self.schedule.depth(self.governor.window(), bounds))
    }

    /// No depth is set until the next tick, as there is no queue to set it at.
    pub fn pause(&mut self, now: Instant) {
        self.schedule.changed(now, false);
    }

    /// Time at which the depth is to change before the next tick.
    #[must_use]
    pub fn next_change(&self) -> Option<Instant> {
        self.schedule.next()
    }

    /// Whether the depth is to change.
    #[must_use]
    pub fn change_is_due(&self, now: Instant) -> bool {
        self.schedule.is_due(now)
    }
}

/// Whether a VM did IO, or wants to.
fn is_active(vm: &VmPeriod) -> bool {
    vm.pending > 0.0 || vm.held || vm.ios != [0; 2]
}

/// The largest part of a limit's rates that VMs used together.
fn used<'a>(limit: &Limit, vms: impl Iterator<Item = &'a VmPeriod>, elapsed: Span) -> f64 {
    let secs = elapsed.secs().max(1e-9);
    let [mut ios, mut bytes] = [[0.0; 2]; 2];
    for vm in vms {
        for way in 0..2 {
            ios[way] += vm.ios[way] as f64 / secs;
            bytes[way] += vm.bytes[way] as f64 / secs;
        }
    }
    limit.used(ios, bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    use crate::law::{LawConfig, Mode};
    use crate::size::SizeModel;
    use crate::{Rate, Rates, Totals};

    const SECOND: Span = Span::from_millis(1000);
    const BOUNDS: DepthBounds = DepthBounds { least: 1, most: 64, cheap: true };

    fn config(mode: Mode) -> Config {
        let law = LawConfig { mode, window_max: Window(4.5), ..LawConfig::default() };
        Config { law, ..Config::default() }
    }

    fn ticked(mode: Mode, outstanding: f64, bounds: DepthBounds) -> KernelHost {
        let mut host = KernelHost::new(config(mode)).unwrap();
        let means = QueueMeans { elapsed: SECOND, outstanding, vms: &[] };
        host.tick(means, View::Peers(Totals::default()));
        host.depth(Instant(0), bounds);
        host
    }

    #[test]
    fn a_depth_changes_within_a_period_where_it_is_cheap_used_and_set() {
        let next = |mode, outstanding, bounds| ticked(mode, outstanding, bounds).next_change();
        let slice = Instant(0) + Span::from_millis(50);
        assert_eq!(next(Mode::Static, 3.0, BOUNDS), Some(slice));
        assert_eq!(next(Mode::Static, 0.0, BOUNDS), None, "nobody uses it");
        assert_eq!(next(Mode::Static, 3.0, DepthBounds { cheap: false, ..BOUNDS }), None);
        for mode in [Mode::Off, Mode::Observe] {
            assert_eq!(next(mode, 3.0, BOUNDS), None);
            assert!(!ticked(mode, 3.0, BOUNDS).sets_depths());
        }
    }

    #[test]
    fn the_mean_depth_of_a_period_is_the_window() {
        let mut host = ticked(Mode::Static, 3.0, BOUNDS);
        let (mut sum, mut changes) = (0, 0);
        while let Some(now) = host.next_change().filter(|now| *now <= Instant(0) + SECOND) {
            assert!(host.change_is_due(now));
            sum += host.depth(now, BOUNDS).unwrap();
            changes += 1;
        }
        assert_eq!((changes, sum), (20, 90), "20 slices of 4.5 IOs");
        host.pause(Instant(0));
        assert_eq!(host.next_change(), None, "there is no queue");
    }

    /// A host of VMs, each with its tenant's name and the IO/s of 4 KiB that it would do.
    struct Tried {
        host: KernelHost,
        vms: Vec<(&'static str, f64)>,
    }

    impl Tried {
        fn new(tenants: &[(&str, Option<u32>, Option<f64>)], vms: &[(&'static str, f64)]) -> Tried {
            let law = LawConfig { mode: Mode::Parda, ..LawConfig::default() };
            let mut host = KernelHost::new(Config { law, ..Config::default() }).unwrap();
            let tenants: Vec<_> = tenants
                .iter()
                .map(|(name, shares, total)| {
                    let iops = Rates { total: total.map(Rate::from), ..Rates::default() };
                    let limit = Limit { iops, ..Limit::default() };
                    let shares = shares.map(Shares);
                    (TenantId::of(name), Tenant { shares, limit, reservation: 0.0 })
                })
                .collect();
            host.set_tenants(&tenants);
            Tried { host, vms: vms.to_vec() }
        }

        /// A second in which each does what it would, up to its part of the limit. Answers the IO/s of each.
        fn second(&mut self, heard: Option<Vec<TenantPart>>) -> Vec<f64> {
            let grants = self.host.grants().iter().map(|grant| grant.limit.iops.total);
            let mut most: Vec<_> =
                grants.map(|total| total.map_or(f64::INFINITY, |rate| rate.mean)).collect();
            most.resize(self.vms.len(), 0.0);
            let each = self.vms.iter().zip(most).map(|((tenant, wanted), most)| {
                let did = wanted.min(most);
                let period = VmPeriod {
                    shares: Shares(1000),
                    tenant: (!tenant.is_empty()).then(|| TenantId::of(tenant)),
                    pending: if did > 0.0 { 64.0 } else { 0.0 },
                    ios: [did as u64, 0],
                    bytes: [4096 * did as u64, 0],
                    held: did >= 0.9 * most,
                };
                (did, period)
            });
            let (did, vms): (Vec<_>, Vec<_>) = each.unzip();
            let ios = did.iter().sum::<f64>() as u64;
            self.host.record(Direction::Read, ios, Bytes(4096 * ios), Span::from_millis(10 * ios));
            self.host.hear_tenants(heard);
            let means = QueueMeans { elapsed: SECOND, outstanding: ios as f64 / 100.0, vms: &vms };
            self.host.tick(means, View::Peers(Totals::default()));
            did
        }

        fn shares(&mut self) -> Vec<f64> {
            for _ in 0..20 {
                self.second(Some(Vec::new()));
            }
            self.host.grants().iter().map(|grant| grant.shares).collect()
        }
    }

    #[test]
    fn a_vm_alone_in_its_tenant_has_what_the_tenant_has() {
        let mut tried = Tried::new(&[("gold", Some(4000), None)], &[("gold", 500.0), ("", 500.0)]);
        let [gold, other] = tried.shares()[..] else { panic!() };
        assert!((gold - 4000.0).abs() < 1.0 && other == 1000.0, "{gold}, {other}");
        // The other VM of the tenant sleeps, and then has half.
        let mut tried =
            Tried::new(&[("gold", Some(4000), None)], &[("gold", 500.0), ("gold", 0.0)]);
        assert!((tried.shares()[0] - 4000.0).abs() < 1.0);
        tried.vms[1].1 = 500.0;
        let both = tried.shares();
        assert!(both.iter().all(|shares| (shares - 2000.0).abs() < 1.0), "{both:?}");
    }

    #[test]
    fn twenty_vms_of_a_tenant_and_one_of_another_have_the_same() {
        let mut vms = vec![("many", 500.0); 20];
        vms.push(("one", 500.0));
        let mut tried = Tried::new(&[("many", Some(300), None), ("one", Some(300), None)], &vms);
        let shares = tried.shares();
        let many: f64 = shares[..20].iter().sum();
        assert!((many / shares[20] - 1.0).abs() < 0.01, "{many} and {}", shares[20]);
    }

    #[test]
    fn what_a_vm_leaves_of_its_tenants_limit_goes_to_the_others_and_no_more() {
        let vms = [("gold", 100.0), ("gold", 5000.0), ("gold", 5000.0), ("", 5000.0)];
        let mut tried = Tried::new(&[("gold", None, Some(1000.0))], &vms);
        for second in 0..30 {
            let did = tried.second(Some(Vec::new()));
            assert!(did[..3].iter().sum::<f64>() <= 1001.0, "{did:?}");
            if second >= 10 {
                assert_eq!((did[0], did[3]), (100.0, 5000.0), "{did:?} in second {second}");
                assert!(did[1] == did[2] && did[1] > 400.0, "{did:?} in second {second}");
            }
        }
        let state = tried.host.tenants().next().unwrap();
        assert!(state.own.rate > 900.0 && state.part == 1.0, "{state:?}");
    }

    #[test]
    fn a_host_has_its_part_of_a_limit_beside_others() {
        let mut tried = Tried::new(&[("gold", None, Some(1000.0))], &[("gold", 5000.0)]);
        let id = TenantId::of("gold");
        let other =
            TenantPart { id, shares: 3000.0, active: 3000.0, wish: 1.0, ..TenantPart::default() };
        let did: Vec<f64> = (0..10).map(|_| tried.second(Some(vec![other]))[0]).collect();
        assert!(did.iter().all(|did| *did <= 250.5) && did[9] > 249.0, "{did:?}");
        // The other one does nothing now: its part is this host's, but for a little.
        let other = TenantPart { active: 0.0, wish: 0.0, ..other };
        let did: Vec<f64> = (0..10).map(|_| tried.second(Some(vec![other]))[0]).collect();
        assert!(did[9] > 900.0 && did[9] < 1000.0, "{did:?}");
    }

    #[test]
    fn another_size_model_begins_a_new_interval_and_the_same_one_does_not() {
        let ios = |size_model| {
            let mut host = ticked(Mode::Static, 3.0, BOUNDS);
            host.record(Direction::Read, 7, Bytes::kib(28), Span::from_millis(70));
            host.set_config(Config { size_model, ..config(Mode::Static) }).unwrap();
            let means = QueueMeans { elapsed: SECOND, outstanding: 3.0, vms: &[] };
            host.tick(means, View::Silent).interval.reads.ios
        };
        let usual = Config::default().size_model;
        let other = if usual == SizeModel::Off { SizeModel::Learned } else { SizeModel::Off };
        assert_eq!((ios(usual), ios(other)), (7, 0));
    }
}
