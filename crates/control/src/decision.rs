//! The two messages of a period between the law of a host and what enforces it at one volume: a [`Measurement`] goes to the law
//! ([`Period`](crate::period::Period)), a [`Decision`] comes back. Both are values, so that law and enforcer may be on two threads.

use alloc::vec::Vec;

use crate::governor::VmDemand;
use crate::host::VmId;
use crate::io::Costs;
use crate::latency::Interval;
use crate::law::PerShare;
use crate::objective::Objective;
use crate::reservation::Room;
use crate::size::{Line, SizeModel};
use crate::slices::SliceBounds;
use crate::tenant::{TenantId, TenantTerms};
use crate::units::{Bytes, Shares, Span, Window};

/// Measurements of an enforcer over a period.
#[derive(Clone, Debug, Default)]
pub struct Measurement {
    /// Length of the period.
    pub elapsed: Span,
    /// Completed IOs and their latencies at the array.
    pub interval: Interval,
    /// Mean outstanding slots at the array.
    pub outstanding: f64,
    /// Demand of each of the host's VMs.
    pub vms: Vec<VmDemand>,
    /// Whether VMs came or went in the period.
    pub vms_changed: bool,
    /// Joint activity of the VMs of each tenant.
    pub tenants: Vec<TenantPeriod>,
    /// Latency objectives, with the IOs of the period.
    pub objectives: Vec<(VmId, Objective)>,
    /// Depth to which the kernel lowered its queue by itself, as the array reported that it is full.
    pub full: Option<Window>,
}

/// Activity of the VMs of a tenant in a period on one host.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct TenantPeriod {
    /// Tenant whose VMs they are.
    pub id: TenantId,
    /// Number of completed IOs.
    pub ios: u64,
    /// Σ slots · time at the array, in seconds.
    pub load: f64,
    /// Largest part of the rates of the tenant's whole limit that was used.
    pub done: f64,
    /// Part of the period in which the limit held IOs back.
    pub held: f64,
}

/// Terms by which an enforcer works until the next decision.
#[derive(Clone, Debug, PartialEq)]
pub struct Decision {
    /// Window in force, in slots. Infinite where there is none.
    pub window: Window,
    /// The least and the largest window, in slots.
    pub bounds: (f64, f64),
    /// Window per share by which demand is measured until the next tick, in slots.
    pub window_per_share: f64,
    /// Capacity of the cluster for reservations.
    pub room: Room,
    /// Latency threshold in force.
    pub threshold: Span,
    /// Costs of IOs in slots. `None`: each takes a slot.
    pub costs: Option<Costs>,
    /// Whether limits hold IOs back. In observe mode nothing does.
    pub acts: bool,
    /// Held time from which an IO goes without its turn.
    pub hold_max: Span,
    /// Time between two ticks as configured.
    pub period: Span,
    /// Model that scales latencies to one size.
    pub size_model: SizeModel,
    /// Size to which latencies are scaled.
    pub reference_size: Bytes,
    /// Latency of reads and of writes against size, where that is learned.
    pub lines: [Option<Line>; 2],
    /// Tenants, and what each has on this host.
    pub tenants: Vec<TenantTerms>,
    /// Latency objectives of the last measurement, after its period.
    pub objectives: Vec<(VmId, Objective)>,
    /// Whether slices bound what VMs have outstanding.
    pub(crate) bind: bool,
    /// How much more than its shares the host weighs.
    pub(crate) weight: f64,
    pub(crate) per_share: PerShare,
}

impl Decision {
    /// Bounds of VMs' slices. `shares`: the sum over the host's VMs of now.
    #[must_use]
    pub fn slice_bounds(&self, shares: f64) -> SliceBounds {
        let window_per_share = self.weight * self.per_share.of((self.weight * shares).max(1.0));
        SliceBounds { window_per_share, bind: self.bind }
    }

    /// Shares that a VM counts with: now, and while all VMs want theirs.
    #[must_use]
    pub fn weigh(&self, tenant: Option<TenantId>, shares: Shares) -> (f64, f64) {
        let own = f64::from(shares.0);
        let terms = tenant.and_then(|id| self.tenants.iter().find(|terms| terms.id == id));
        terms.map_or((own, own), |terms| terms.weigh(own))
    }

    /// Whether there is a window to enforce.
    #[must_use]
    pub fn has_window(&self) -> bool {
        self.window.0.is_finite()
    }
}
