//! Metrics that are checked against the runs of a study.

use super::{Kind, Metric, SHAPE, Subject, Which, list};
use crate::run::{Run, RunPhase};
use crate::variant_name::{phase_name, swept_name};

impl Metric {
    /// The metric that a path names.
    ///
    /// # Errors
    /// The path names no metric of a study with these phases.
    pub(crate) fn parse(path: &str, known: &[RunPhase<'_>]) -> Result<Metric, String> {
        let (phase, rest) = path.split_once('/').ok_or(SHAPE)?;
        Metric::checked(Which::parse(phase), Subject::parse(rest), known)
    }

    pub(super) fn checked(
        phase: Which,
        subject: Result<(Subject, String), String>,
        all: &[RunPhase<'_>],
    ) -> Result<Metric, String> {
        let is = |p: &&RunPhase<'_>| phase.is(&p.name, &p.phase.name);
        let runs: Vec<&Run> = all.iter().filter(is).map(|p| p.run).collect();
        if runs.is_empty() {
            let (name, own): (&str, bool) = match &phase {
                Which::Phase(name) => (name, false),
                Which::Extreme(_, own, _) => (own.as_deref().unwrap_or_default(), true),
            };
            let all = all.iter().map(|p| if own { &*p.phase.name } else { &*p.name });
            return Err(unknown("phase", name, &list(all)));
        }
        let (mut subject, quantity) = subject?;
        // Not every phase of an extreme needs to have the subject.
        let among = |kind: &str, names: fn(&Run) -> Vec<&str>| {
            known(kind, &subject.name, &runs.iter().flat_map(|run| names(run)).collect::<Vec<_>>())
        };
        match subject.kind {
            Kind::Tenant => {
                among("tenant", Run::tenant_names)?;
                subject.vms =
                    runs.iter().find_map(|run| run.vms_of(&subject.name)).unwrap_or_default();
            }
            Kind::Host => among("host", Run::host_names)?,
            Kind::Vm => among("VM", Run::vm_names)?,
            _ => {}
        }
        let all = subject.kind.quantities();
        known("quantity", &quantity, &all.iter().map(String::as_str).collect::<Vec<_>>())?;
        Ok(Metric { phase, subject, quantity })
    }

    /// The same metric in one combination of a sweep: see
    /// [`Study::parse_swept`](crate::Study::parse_swept).
    pub(crate) fn swept(&self, combination: &str, known: &[RunPhase<'_>]) -> Metric {
        let phase = match &self.phase {
            Which::Phase(name) => {
                let own = known.iter().find(|p| p.name == *name).map_or(name, |p| &p.phase.name);
                let variant = name.strip_suffix(own.as_str()).and_then(|v| v.strip_suffix('.'));
                Which::Phase(phase_name(Some(&swept_name(variant, combination)), own))
            }
            Which::Extreme(extreme, own, _) => {
                Which::Extreme(*extreme, own.clone(), Some(combination.to_owned()))
            }
        };
        Metric { phase, subject: self.subject.clone(), quantity: self.quantity.clone() }
    }

    /// Whether the metric is of a single phase, and that phase is among these.
    pub(crate) fn is_of_one_of(&self, phases: &[RunPhase<'_>]) -> bool {
        match &self.phase {
            Which::Phase(name) => phases.iter().any(|p| p.name == *name),
            Which::Extreme(..) => false,
        }
    }
}

fn known(kind: &str, name: &str, known: &[&str]) -> Result<(), String> {
    if known.contains(&name) {
        return Ok(());
    }
    Err(unknown(kind, name, &list(known.iter().copied())))
}

fn unknown(kind: &str, name: &str, known: &str) -> String {
    format!("there is no {kind} `{name}`; there is {known}")
}
