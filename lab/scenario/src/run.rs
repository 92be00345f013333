//! A run of a study, and the names that it has for paths of metrics.

use crate::scenario::{Phase, Scenario, Vm};
use crate::variant_name::phase_name;

/// One run of a study.
#[derive(Clone, Debug)]
pub struct Run {
    /// Name of the variant. `None` if the file has no variants.
    pub variant: Option<String>,
    /// Differences from the file: keys and values as text, in the order in which they are set.
    pub settings: Vec<(String, String)>,
    /// Location of each setting in the document, as keys.
    pub(crate) places: Vec<Vec<String>>,
    /// The scenario with the variant's settings.
    pub scenario: Scenario,
}

impl Run {
    /// Whether the run belongs to the variant of this name, swept or not.
    pub(crate) fn is(&self, variant: &str) -> bool {
        self.variant.as_deref().is_some_and(|own| {
            own.strip_prefix(variant).is_some_and(|rest| rest.is_empty() || rest.starts_with(','))
        })
    }

    /// Location in the document, as keys, of the setting of the variant that gives the value at a path.
    #[must_use]
    pub fn place_of(&self, path: &str) -> Option<Vec<&str>> {
        let is = |key: &str| {
            let mut keys = key.split('.').zip(path.split('.'));
            key.split('.').count() == path.split('.').count()
                && keys.all(|(key, part)| key == "*" || key == part)
        };
        // The last setting of a value is the one in force.
        let at = self.settings.iter().rposition(|(key, _)| is(key))?;
        Some(self.places[at].iter().map(String::as_str).collect())
    }

    /// Names of the hosts that are present.
    pub(crate) fn host_names(&self) -> Vec<&str> {
        self.scenario.hosts.iter().filter(|h| h.present).map(|h| h.name.as_str()).collect()
    }

    /// Names of the VMs of all present hosts.
    pub(crate) fn vm_names(&self) -> Vec<&str> {
        let hosts = self.scenario.hosts.iter().filter(|h| h.present);
        hosts.flat_map(|h| &h.vms).map(|vm| vm.name.as_str()).collect()
    }

    /// Names of all tenants.
    pub(crate) fn tenant_names(&self) -> Vec<&str> {
        self.scenario.tenants.iter().map(|tenant| &*tenant.name).collect()
    }

    /// Names of the VMs of a tenant. `None` if there is no such tenant.
    pub(crate) fn vms_of(&self, tenant: &str) -> Option<Vec<String>> {
        let Scenario { tenants, hosts, .. } = &self.scenario;
        let tenant = tenants.iter().find(|known| *known.name == *tenant)?.name;
        let of = |vm: &&Vm| vm.settings.tenant == Some(tenant);
        let vms = hosts.iter().flat_map(|host| &host.vms).filter(of);
        Some(vms.map(|vm| vm.name.clone()).collect())
    }

    /// Name of the run among several: the variant's, or else the scenario's.
    #[must_use]
    pub fn name(&self) -> &str {
        self.variant.as_deref().unwrap_or(&self.scenario.name)
    }
}

/// A phase of a run, as paths of metrics name it.
pub(crate) struct RunPhase<'a> {
    /// Name in the answer, with the variant's.
    pub(crate) name: String,
    pub(crate) phase: &'a Phase,
    pub(crate) run: &'a Run,
}

/// All phases of these runs.
pub(crate) fn phases(runs: &[Run]) -> Vec<RunPhase<'_>> {
    let pairs = runs.iter().flat_map(|run| run.scenario.phases.iter().map(move |p| (run, p)));
    pairs
        .map(|(run, phase)| {
            let name = phase_name(run.variant.as_deref(), &phase.name);
            RunPhase { name, phase, run }
        })
        .collect()
}
