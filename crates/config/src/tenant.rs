//! Tenants as documents write them.

use arrayvec::ArrayString;
use parda_control::{Shares, Tenant, TenantId};
use serde::{Deserialize, Serialize};

use crate::limit::LimitSetting;
use crate::vm::{DISK_SETTINGS, Holder, VmSettings};

/// The name of a tenant, up to 63 bytes.
pub type TenantName = ArrayString<63>;

/// What a tenant has at a volume, on all hosts together.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TenantSettings {
    /// Name of the tenant, the same on all hosts.
    pub name: TenantName,
    /// Shares of all of its VMs together. `None`: each VM counts with its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shares: Option<u32>,
    /// The most IOs and bytes per second that its VMs do together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<LimitSetting>,
    /// IO/s that its VMs have together whenever they ask for them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reservation: Option<f64>,
}

impl TenantSettings {
    /// Keys beside the name.
    pub fn keys() -> impl Iterator<Item = &'static str> {
        let own = DISK_SETTINGS.iter().filter(|setting| setting.also.contains(&Holder::Tenant));
        own.map(|setting| setting.key)
    }

    /// The first setting that is out of bounds: its key and its fault.
    #[must_use]
    pub fn fault(&self) -> Option<(&'static str, String)> {
        let TenantSettings { name, shares, limit, reservation } = *self;
        if let Some(fault) = wrong_name(name) {
            return Some(("name", fault));
        }
        let shared = VmSettings { shares, limit, reservation, ..VmSettings::default() };
        shared.fault()
    }

    /// The tenant as hosts call it.
    #[must_use]
    pub fn id(&self) -> TenantId {
        TenantId::of(&self.name)
    }
}

/// The fault of a tenant's name, if it has one.
pub(crate) fn wrong_name(name: TenantName) -> Option<String> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    // In a URL of the API the last two are directories.
    let good = name.chars().all(plain) && !matches!(&*name, "" | "." | "..");
    (!good).then(|| {
        "must be 1 to 63 letters, digits, `-`, `_` or `.`, and neither `.` nor `..`".to_owned()
    })
}

impl From<&TenantSettings> for Tenant {
    fn from(settings: &TenantSettings) -> Tenant {
        Tenant {
            shares: settings.shares.map(Shares),
            limit: settings.limit.as_ref().map_or_else(Default::default, Into::into),
            reservation: settings.reservation.unwrap_or_default(),
        }
    }
}

/// The tenants of a volume as the law takes them.
#[must_use]
pub fn tenants(settings: &[TenantSettings]) -> Vec<(TenantId, Tenant)> {
    settings.iter().map(|tenant| (tenant.id(), tenant.into())).collect()
}

/// The first fault among the tenants of a volume: its place, its key and its text.
#[must_use]
pub fn wrong_tenants(tenants: &[TenantSettings]) -> Option<(usize, &'static str, String)> {
    tenants.iter().enumerate().find_map(|(at, tenant)| {
        let other = tenants[..at].iter().find(|other| other.id() == tenant.id());
        let same = other.map(|other| match other.name == tenant.name {
            true => ("name", "is the name of another tenant".to_owned()),
            false => ("name", format!("has the hash of `{}`: choose another name", other.name)),
        });
        tenant.fault().or(same).map(|(key, fault)| (at, key, fault))
    })
}
