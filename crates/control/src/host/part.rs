//! A VM's part in its host, as callers give it and see it.

use crate::limit::Limit;
use crate::tenant::TenantId;
use crate::units::{Shares, Span};

/// A VM of this host. The id of one that was removed is used again, as soon as none of its IOs is
/// held or outstanding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct VmId(pub usize);

/// A VM's part in its host.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct VmConfig {
    /// Its weight against all other VMs at the volume, on any host. 1 to [`VmConfig::MAX_SHARES`].
    pub shares: Shares,
    /// Slots it may gather while idle and spend ahead of its neighbours as one batch.
    pub burst: f64,
    /// What its IOs are to take at the array at most, in the mean
    /// ([`crate::objective`]).
    pub target: Option<Span>,
    /// The most that it does ([`crate::limit`]).
    pub limit: Limit,
    /// IO/s that it has whatever its shares ([`crate::reservation`]); 0 for none.
    pub reservation: f64,
    /// The tenant whose VM it is ([`crate::tenant`]).
    pub tenant: Option<TenantId>,
}

/// What a VM may take now.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct VmPart {
    /// Shares in force of the VM.
    pub shares: Shares,
    /// Slots that it may have outstanding. `None` where nothing bounds each VM.
    pub slice: Option<f64>,
    /// Its IOs that are held.
    pub held: usize,
    /// Those of them that its limit or its tenant's held back when an IO of the host was done last.
    pub limited: usize,
}

impl VmConfig {
    /// More shares than this would leave the smallest VM nothing to count with.
    pub const MAX_SHARES: u32 = 1_000_000;

    /// A VM of these shares, with nothing else set.
    #[must_use]
    pub fn of(shares: Shares) -> VmConfig {
        VmConfig { shares, ..VmConfig::default() }
    }
}
