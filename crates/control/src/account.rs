//! The account of a queue whose order and gate are not ours: a kernel's, or those of QEMU's throttles. It makes the measurement of a
//! period, and keeps the decision that follows.
//!
//! Among the VMs the enforcer divides the window, by the shares and limits that [`Account::grants`] has for them. It carries windows to
//! the queue, as depths ([`crate::depth`]) or as rates, and tells the account what completed.

use alloc::vec::Vec;

use crate::decision::{Decision, Measurement, TenantPeriod};
use crate::governor::VmDemand;
use crate::latency::{Direction, Meter};
use crate::limit::Limit;
use crate::tenant::{TenantId, TenantPart, part, wish};
use crate::units::{Bytes, Shares, Span, Window};

/// Factor on what a VM did of its tenant's limit while its cap did not hold it. A cap holds a VM from nine tenths on, and reads alone have
/// ten elevenths of it: with less room a steady VM would seem to be held.
const ROOM: f64 = 1.25;

/// IOs and demand of a VM in a period.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct VmPeriod {
    /// Shares of the VM itself.
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

/// Shares and limit of a VM in the next period.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct VmGrant {
    /// Shares that it counts with among the VMs of its host.
    pub shares: f64,
    /// Its part of the tenant's limit.
    pub limit: Limit,
}

/// See the module's documentation.
#[derive(Debug)]
pub struct Account {
    meter: Meter,
    decision: Decision,
    /// The last measurement has no decision yet.
    measured: bool,
    /// Whether IOs were outstanding in the last period.
    in_use: bool,
    elapsed: Span,
    vms: Vec<VmPeriod>,
    grants: Vec<VmGrant>,
}

impl Account {
    /// An account in which nothing was measured.
    #[must_use]
    pub fn new(decision: &Decision) -> Account {
        Account {
            meter: Meter::new(decision.size_model, decision.reference_size),
            decision: decision.clone(),
            measured: false,
            in_use: false,
            elapsed: Span::ZERO,
            vms: Vec::new(),
            grants: Vec::new(),
        }
    }

    /// Decision by which the enforcer works.
    #[must_use]
    pub fn decision(&self) -> &Decision {
        &self.decision
    }

    /// Grants of the last measurement's VMs until the next one, in their order.
    #[must_use]
    pub fn grants(&self) -> &[VmGrant] {
        &self.grants
    }

    /// Whether IOs were outstanding in the last period. The depth of an unused queue is left as it is.
    #[must_use]
    pub fn in_use(&self) -> bool {
        self.in_use
    }

    /// Records `ios` completed IOs of about one size, by their sums of bytes and latencies.
    pub fn record(&mut self, direction: Direction, ios: u64, bytes: Bytes, latency: Span) {
        self.meter.add_many(direction, ios, bytes, latency);
    }

    /// Ends a period. `outstanding`: mean of the IOs outstanding. `full`: see [`Measurement::full`].
    pub fn measure(
        &mut self,
        elapsed: Span,
        outstanding: f64,
        vms: Vec<VmPeriod>,
        full: Option<Window>,
    ) -> Measurement {
        let interval = self.meter.roll();
        (self.measured, self.in_use, self.elapsed) = (true, outstanding > 0.0, elapsed);
        self.vms = vms;
        let per_share = self.decision.window_per_share;
        let demand = |vm: &VmPeriod| VmDemand {
            own: vm.shares,
            tenant: vm.tenant,
            active: is_active(vm),
            ..VmDemand::of_mean(self.decision.weigh(vm.tenant, vm.shares), vm.pending, per_share)
        };
        let ios = (interval.reads.ios + interval.writes.ios).max(1) as f64;
        let latency = outstanding * elapsed.secs() / ios;
        Measurement {
            elapsed,
            interval,
            outstanding,
            vms: self.vms.iter().map(demand).collect(),
            tenants: self.tenants(latency),
            full,
            ..Measurement::default()
        }
    }

    /// Activity of the VMs of each tenant. `latency`: mean time of an IO at the array, in seconds.
    fn tenants(&self, latency: f64) -> Vec<TenantPeriod> {
        let each = self.decision.tenants.iter().map(|terms| {
            let vms = || self.vms.iter().filter(|vm| vm.tenant == Some(terms.id));
            let ios = |vm: &VmPeriod| vm.ios.iter().sum::<u64>();
            TenantPeriod {
                id: terms.id,
                ios: vms().map(ios).sum(),
                load: vms().fold(0.0, |sum, vm| sum + latency * ios(vm) as f64),
                done: ROOM * used(&terms.limit, vms(), self.elapsed),
                held: f64::from(u8::from(vms().any(|vm| vm.held))),
            }
        });
        each.collect()
    }

    /// Works by another decision. Returns whether it ends a period that was measured: then the grants are new. Latencies of the present
    /// period are dropped if their size model has changed.
    pub fn apply(&mut self, decision: &Decision) -> bool {
        self.decision.clone_from(decision);
        self.meter.scale(decision.size_model, decision.reference_size);
        self.meter.learn(decision.lines);
        let ends = core::mem::take(&mut self.measured);
        if ends {
            self.grant();
        }
        ends
    }

    /// Finds what each VM has in the next period. Inside the host a tenant's limit is divided among VMs as it is among hosts.
    fn grant(&mut self) {
        let Account { decision, vms, elapsed, .. } = self;
        let weighed = vms.iter().map(|vm| {
            let (shares, _) = decision.weigh(vm.tenant, vm.shares);
            VmGrant { shares, limit: Limit::default() }
        });
        self.grants = weighed.collect();
        for terms in decision.tenants.iter().filter(|terms| !terms.limit.is_none()) {
            let limit = terms.limit.times(terms.part);
            let of_tenant = vms.iter().enumerate().filter(|(_, vm)| vm.tenant == Some(terms.id));
            let (places, mut parts): (Vec<usize>, Vec<TenantPart>) = of_tenant
                .map(|(at, vm)| {
                    let shares = f64::from(vm.shares.0);
                    let active = if is_active(vm) { shares } else { 0.0 };
                    let done = ROOM * used(&limit, [vm].into_iter(), *elapsed);
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

    use crate::depth::{DepthBounds, DepthSchedule};
    use crate::law::{LawConfig, Mode};
    use crate::size::SizeModel;
    use crate::{Config, Instant, Period, Rate, Rates, Tenant, Totals, View};

    const SECOND: Span = Span::from_millis(1000);
    const BOUNDS: DepthBounds = DepthBounds { least: 1, most: 64, cheap: true };

    fn config(mode: Mode) -> Config {
        let law = LawConfig { mode, window_max: Window(4.5), ..LawConfig::default() };
        Config { law, ..Config::default() }
    }

    /// A law and the account of its queue.
    struct Governed {
        period: Period,
        account: Account,
    }

    impl Governed {
        fn new(config: Config) -> Governed {
            let period = Period::counting_ios(config).unwrap();
            Governed { account: Account::new(period.decision()), period }
        }

        fn tick(&mut self, outstanding: f64, vms: Vec<VmPeriod>, heard: Option<Vec<TenantPart>>) {
            let mut measured = self.account.measure(SECOND, outstanding, vms, None);
            self.period.tick(&mut measured, View::Peers(Totals::default()), heard);
            assert!(self.account.apply(self.period.decision()));
        }
    }

    fn ticked(mode: Mode, outstanding: f64) -> Governed {
        let mut governed = Governed::new(config(mode));
        governed.tick(outstanding, Vec::new(), None);
        governed
    }

    /// The next depth of a queue that follows a law.
    fn turn(
        schedule: &mut DepthSchedule,
        now: Instant,
        governed: &Governed,
        bounds: DepthBounds,
    ) -> Option<u32> {
        let Governed { account, .. } = governed;
        schedule.turn(now, account.decision().window, bounds, account.in_use())
    }

    #[test]
    fn a_depth_changes_within_a_period_where_it_is_cheap_used_and_set() {
        let next = |mode, outstanding, bounds| {
            let mut schedule = DepthSchedule::new(SECOND);
            let set = turn(&mut schedule, Instant(0), &ticked(mode, outstanding), bounds);
            (set.is_some(), schedule.next())
        };
        let slice = Instant(0) + Span::from_millis(50);
        assert_eq!(next(Mode::Static, 3.0, BOUNDS), (true, Some(slice)));
        assert_eq!(next(Mode::Static, 0.0, BOUNDS), (true, None), "nobody uses it");
        let dear = DepthBounds { cheap: false, ..BOUNDS };
        assert_eq!(next(Mode::Static, 3.0, dear), (true, None));
        for mode in [Mode::Off, Mode::Observe] {
            assert_eq!(next(mode, 3.0, BOUNDS), (false, None));
        }
    }

    #[test]
    fn the_mean_depth_of_a_period_is_the_window() {
        let governed = ticked(Mode::Static, 3.0);
        let mut schedule = DepthSchedule::new(SECOND);
        turn(&mut schedule, Instant(0), &governed, BOUNDS);
        let (mut sum, mut changes) = (0, 0);
        while let Some(now) = schedule.next().filter(|now| *now <= Instant(0) + SECOND) {
            assert!(schedule.is_due(now));
            sum += turn(&mut schedule, now, &governed, BOUNDS).unwrap();
            changes += 1;
        }
        assert_eq!((changes, sum), (20, 90), "20 slices of 4.5 IOs");
    }

    #[test]
    fn another_decision_is_in_force_at_once_and_ends_no_period() {
        let mut governed = ticked(Mode::Static, 3.0);
        let law = LawConfig { window_max: Window(9.0), ..config(Mode::Static).law };
        governed.period.set_config(Config { law, ..Config::default() }).unwrap();
        assert!(!governed.account.apply(governed.period.decision()));
        assert_eq!(governed.account.decision().window, Window(9.0));
    }

    /// A host of VMs, each with its tenant's name and the IO/s of 4 KiB that it would do.
    struct Tried {
        governed: Governed,
        vms: Vec<(&'static str, f64)>,
    }

    impl Tried {
        fn new(tenants: &[(&str, Option<u32>, Option<f64>)], vms: &[(&'static str, f64)]) -> Tried {
            let law = LawConfig { mode: Mode::Parda, ..LawConfig::default() };
            let mut governed = Governed::new(Config { law, ..Config::default() });
            let tenants: Vec<_> = tenants
                .iter()
                .map(|(name, shares, total)| {
                    let iops = Rates { total: total.map(Rate::from), ..Rates::default() };
                    let limit = Limit { iops, ..Limit::default() };
                    let shares = shares.map(Shares);
                    (TenantId::of(name), Tenant { shares, limit, reservation: 0.0 })
                })
                .collect();
            governed.period.set_tenants(&tenants);
            governed.account.apply(governed.period.decision());
            Tried { governed, vms: vms.to_vec() }
        }

        /// A second in which each does what it would, up to its part of the limit. Answers the IO/s of each.
        fn second(&mut self, heard: Option<Vec<TenantPart>>) -> Vec<f64> {
            let account = &mut self.governed.account;
            let grants = account.grants().iter().map(|grant| grant.limit.iops.total);
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
            account.record(Direction::Read, ios, Bytes(4096 * ios), Span::from_millis(10 * ios));
            self.governed.tick(ios as f64 / 100.0, vms, heard);
            did
        }

        fn shares(&mut self) -> Vec<f64> {
            for _ in 0..20 {
                self.second(Some(Vec::new()));
            }
            self.governed.account.grants().iter().map(|grant| grant.shares).collect()
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
        let state = tried.governed.period.tenants().next().unwrap();
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
            let Governed { mut period, mut account } = ticked(Mode::Static, 3.0);
            account.record(Direction::Read, 7, Bytes::kib(28), Span::from_millis(70));
            period.set_config(Config { size_model, ..config(Mode::Static) }).unwrap();
            account.apply(period.decision());
            account.measure(SECOND, 3.0, Vec::new(), None).interval.reads.ios
        };
        let usual = Config::default().size_model;
        let other = if usual == SizeModel::Off { SizeModel::Learned } else { SizeModel::Off };
        assert_eq!((ios(usual), ios(other)), (7, 0));
    }
}
