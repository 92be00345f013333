//! A policy, and which of its settings a VM has.

use parda_config::{DiskSetting, TUNABLES, TenantSettings};
use serde::{Deserialize, Serialize};
use toml::Table;
use wildmatch::WildMatch;

/// A policy: settings by volume. Unknown keys are allowed, as a newer version may have written the policy.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Policy {
    /// Volumes that the policy has settings for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub volume: Vec<PolicyVolume>,
}

/// Policy of one volume.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PolicyVolume {
    /// Name of the volume, as in `parda.toml`.
    pub name: String,
    /// Settings of the law, as in `[volume.control]`.
    #[serde(default, skip_serializing_if = "Table::is_empty")]
    pub control: Table,
    /// Tenants, as in `[[volume.tenant]]`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tenant: Vec<Named>,
    /// Groups of VMs; of two that have a VM and a setting, the later one counts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub group: Vec<PolicyGroup>,
    /// Single VMs, which count over groups.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub vm: Vec<Named>,
    /// Keys that this version does not define, with their values.
    #[serde(flatten, skip_serializing_if = "Table::is_empty")]
    pub other: Table,
}

/// Settings of a tenant, over those of `parda.toml` if it has the tenant. Or settings of one VM: the disk of that name, or the VM of a
/// steered device.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Named {
    /// Name of the tenant or VM.
    pub name: String,
    /// Its settings by their keys in `parda.toml`.
    #[serde(flatten)]
    pub settings: Table,
}

/// VMs with settings in common.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PolicyGroup {
    /// Name of the group, unique in its volume.
    pub name: String,
    /// Names of its VMs, in which `*` stands for any text and `?` for one character.
    pub vms: Vec<String>,
    /// Settings of each of its VMs.
    #[serde(flatten)]
    pub settings: Table,
}

impl PolicyGroup {
    /// Whether a VM belongs to the group.
    #[must_use]
    pub fn has(&self, vm: &str) -> bool {
        self.vms.iter().any(|pattern| WildMatch::new(pattern).matches(vm))
    }
}

impl Policy {
    /// Policy of a volume, if it has one.
    #[must_use]
    pub fn of(&self, volume: &str) -> Option<&PolicyVolume> {
        self.volume.iter().find(|other| other.name == volume)
    }

    /// The policy as TOML.
    ///
    /// # Errors
    /// A value that TOML cannot hold.
    pub fn text(&self) -> Result<String, toml::ser::Error> {
        toml::to_string(self)
    }
}

impl PolicyVolume {
    /// Settings that a VM of the volume has by the policy.
    #[must_use]
    pub fn settings_of(&self, vm: &str) -> Table {
        let groups = self.group.iter().filter(|group| group.has(vm)).map(|group| &group.settings);
        let own = self.vm.iter().filter(|own| own.name == vm).map(|own| &own.settings);
        groups.chain(own).flat_map(Table::clone).collect()
    }

    /// The policy without keys that this version does not define, and a list of these keys.
    #[must_use]
    pub fn known(mut self) -> (PolicyVolume, Vec<String>) {
        let mut unknown: Vec<String> =
            std::mem::take(&mut self.other).into_iter().map(|(key, _)| key).collect();
        let mut keep = |table: &mut Table, of: &str, known: &dyn Fn(&str) -> bool| {
            table.retain(|key, _| {
                let known = known(key);
                if !known {
                    unknown.push(format!("{of}: {key}"));
                }
                known
            });
        };
        keep(&mut self.control, "control", &|key| TUNABLES.iter().any(|known| known.key == key));
        let of_tenants = |key: &str| TenantSettings::keys().any(|known| known == key);
        for tenant in &mut self.tenant {
            keep(&mut tenant.settings, &format!("tenant {}", tenant.name), &of_tenants);
        }
        let of_vms = |key: &str| DiskSetting::find(key).is_some_and(|setting| setting.of_vm);
        for group in &mut self.group {
            keep(&mut group.settings, &format!("group {}", group.name), &of_vms);
        }
        for vm in &mut self.vm {
            keep(&mut vm.settings, &format!("vm {}", vm.name), &of_vms);
        }
        (self, unknown)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "[[volume]]\nname = \"array\"\n[volume.control]\nmode = \"parda\"\nwarp = 9\n\
        [[volume.group]]\nname = \"all\"\nvms = [\"*\"]\nshares = 500\nburst = 2\n\
        [[volume.group]]\nname = \"gold\"\nvms = [\"db-?\", \"erp\"]\nshares = 4000\ncolour = \"gold\"\n\
        [[volume.vm]]\nname = \"db-1\"\nshares = 6000\n[[volume.pool]]\nname = \"p\"\n";

    fn volume() -> PolicyVolume {
        toml::from_str::<Policy>(TEXT).unwrap().volume.remove(0)
    }

    #[test]
    fn a_vm_counts_over_its_groups_and_the_later_group_over_the_earlier() {
        let (volume, _) = volume().known();
        let shares = |vm: &str| volume.settings_of(vm)["shares"].as_integer();
        assert_eq!(["db-1", "db-2", "erp", "db-10"].map(shares), [6000, 4000, 4000, 500].map(Some));
        assert_eq!(volume.settings_of("db-1")["burst"].as_integer(), Some(2), "of the group alone");
    }

    #[test]
    fn what_a_newer_version_wrote_is_named_and_the_rest_is_there() {
        let (volume, unknown) = volume().known();
        assert_eq!(unknown, ["pool", "control: warp", "group gold: colour"]);
        assert_eq!(volume.control.keys().collect::<Vec<_>>(), ["mode"]);
        assert_eq!(volume.known().1, [] as [&str; 0]);
    }

    #[test]
    fn a_policy_is_the_same_after_it_was_written() {
        let policy: Policy = toml::from_str(TEXT).unwrap();
        assert_eq!(toml::from_str::<Policy>(&policy.text().unwrap()).unwrap(), policy);
        assert_eq!(Policy::default().text().unwrap(), "");
    }
}
