//! The law of one host at one volume. It alone ends periods, whatever enforces its decisions: the ring of a volume that is served
//! ([`crate::host`]), a kernel's queue, QEMU's throttles ([`crate::account`]), or a simulated one.
//!
//! Once per period its driver has the enforcer measure, calls [`Period::tick`], and gives [`Period::decision`] to the enforcer. Between
//! two ticks the enforcer works by the last decision.

use alloc::vec::Vec;

use crate::cluster::{Report, View};
use crate::config::{Config, ConfigError};
use crate::decision::{Decision, Measurement, TenantPeriod};
use crate::governor::{Governor, Measured, reweighed};
use crate::host::VmId;
use crate::mechanism::{Mechanism, on};
use crate::objective::{Objective, Wants, strictest};
use crate::tenant::{Member, Tenant, TenantId, TenantPart, TenantState, Tenants};
use crate::units::{Span, Window};

/// See the module's documentation.
#[derive(Debug)]
pub struct Period {
    governor: Governor,
    tenants: Tenants,
    decision: Decision,
}

impl Period {
    /// A law that has seen nothing.
    ///
    /// # Errors
    /// A parameter that cannot work.
    pub fn new(config: Config) -> Result<Period, ConfigError> {
        Ok(Period::of(Governor::new(config)?))
    }

    /// The same for an enforcer that can count nothing but IOs: slots are IOs whatever the hosts vote for.
    ///
    /// # Errors
    /// A parameter that cannot work.
    pub fn counting_ios(config: Config) -> Result<Period, ConfigError> {
        let mut governor = Governor::new(config)?;
        governor.count_ios();
        Ok(Period::of(governor))
    }

    fn of(governor: Governor) -> Period {
        let decision = first(&governor);
        let mut period = Period { governor, tenants: Tenants::default(), decision };
        period.decide();
        period
    }

    /// Changes the parameters. The decision follows at once.
    ///
    /// # Errors
    /// A parameter that cannot work; nothing is changed then.
    pub fn set_config(&mut self, config: Config) -> Result<(), ConfigError> {
        self.governor.set_config(config)?;
        self.decide();
        Ok(())
    }

    /// Changes the tenants that this host knows, and what they have. The decision follows at once.
    pub fn set_tenants(&mut self, tenants: &[(TenantId, Tenant)]) {
        self.tenants.set(tenants);
        self.decide();
    }

    /// Lowers the window, if it is larger: the array itself said that it is full (QUEUE_FULL).
    pub fn lower_to(&mut self, window: Window) {
        self.governor.lower_to(window);
        self.decide();
    }

    /// The law, for what it knows.
    #[must_use]
    pub fn governor(&self) -> &Governor {
        &self.governor
    }

    /// Terms by which the enforcer is to work.
    #[must_use]
    pub fn decision(&self) -> &Decision {
        &self.decision
    }

    /// Parts of tenants to publish after a tick.
    pub fn tenant_parts(&self) -> impl Iterator<Item = TenantPart> {
        self.tenants.parts()
    }

    /// State of the tenants after the last tick.
    pub fn tenants(&self) -> impl Iterator<Item = TenantState> {
        self.tenants.states()
    }

    /// Ends a period: decides from what was measured and heard, and returns the report to publish. `heard`: what the other hosts say of
    /// tenants; `None` while nothing can be said of them. Objectives are taken from the measurement.
    pub fn tick(
        &mut self,
        measured: &mut Measurement,
        view: View,
        heard: Option<Vec<TenantPart>>,
    ) -> Report {
        if measured.vms_changed {
            self.governor.vms_changed();
        }
        if let Some(full) = measured.full {
            self.governor.lower_to(full);
        }
        let Measurement { elapsed, interval, outstanding, .. } = *measured;
        let reserved = self.account(measured);
        let vms = &measured.vms;
        let mut report =
            self.governor.tick(Measured { elapsed, interval, outstanding, vms, reserved }, view);
        let of = |id| measured.tenants.iter().find(|tenant| tenant.id == id);
        self.tenants.end(elapsed, report.source, heard, |id| {
            of(id).map_or((0.0, 0.0), |tenant| (tenant.done, tenant.held))
        });
        report.wants = self.wants(&mut measured.objectives);
        core::mem::swap(&mut self.decision.objectives, &mut measured.objectives);
        self.decide();
        let now = vms.iter().map(|vm| self.decision.weigh(vm.tenant, vm.own).0);
        report.active *= reweighed(vms, now);
        report
    }

    /// Adds what the VMs did to the accounts of their tenants. Returns what all reservations would have outstanding if none were short,
    /// in slots.
    fn account(&mut self, measured: &Measurement) -> f64 {
        let (room, window_per_share) = (self.governor.room(), self.governor.window_per_share());
        let mut reserved = self.tenants.reserved(&room);
        self.tenants.begin();
        for vm in &measured.vms {
            reserved += vm.reserved;
            let Some(place) = vm.tenant.and_then(|id| self.tenants.place(id)) else { continue };
            self.tenants.account(
                place,
                &Member {
                    shares: f64::from(vm.own.0),
                    used: vm.used / window_per_share,
                    asked: vm.limited_part(window_per_share),
                    active: vm.active,
                },
            );
        }
        for TenantPeriod { id, ios, load, .. } in &measured.tenants {
            if let Some(place) = self.tenants.place(*id) {
                self.tenants.add(place, *ios, *load);
            }
        }
        reserved
    }

    /// Ends the period of each objective. Returns the lowest threshold that is asked for, and the IOs of the VMs that have objectives.
    fn wants(&mut self, objectives: &mut [(VmId, Objective)]) -> Wants {
        let (latency, least) = (self.governor.latency(), self.governor.config().law.min_ios);
        let (own, in_force) = (self.governor.own_threshold(), self.governor.threshold());
        let mut wants = Wants::default();
        for (_, objective) in objectives {
            let Some(ios) = objective.roll(latency, least, own, in_force) else { continue };
            wants.ios += ios;
            wants.asks = strictest(wants.asks, objective.asks(own));
        }
        self.governor.want(wants)
    }

    /// Brings the decision up to what governor and tenants say now.
    fn decide(&mut self) {
        let governor = &self.governor;
        self.tenants.share_out(governor.window_per_share(), &governor.room());
        let mut tenants = core::mem::take(&mut self.decision.tenants);
        tenants.clear();
        tenants.extend(self.tenants.terms());
        let objectives = core::mem::take(&mut self.decision.objectives);
        self.decision = Decision { tenants, objectives, ..first(governor) };
    }
}

/// The decision of a governor, without tenants and objectives.
fn first(governor: &Governor) -> Decision {
    let config = governor.config();
    let hold_max = config.law.hold_max;
    let (weight, per_share) = governor.per_share();
    Decision {
        window: governor.window(),
        bounds: governor.bounds(),
        bind: governor.binds(),
        weight,
        per_share,
        window_per_share: governor.window_per_share(),
        room: governor.room(),
        threshold: governor.threshold(),
        costs: governor.settings().costs,
        acts: !governor.observes(),
        hold_max: if on(Mechanism::HoldMax) { hold_max } else { Span::from_secs(1e6) },
        period: config.law.period,
        size_model: config.size_model,
        reference_size: config.reference_size,
        lines: governor.lines(),
        tenants: Vec::new(),
        objectives: Vec::new(),
    }
}
