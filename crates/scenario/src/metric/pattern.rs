//! Metrics of a chart's panel: a quantity of one subject, or of each host or VM, in any phase.

use super::{Metric, MetricError, Names, Subject, Which};
use crate::run::Run;

/// A metric without its phase, of one subject or of each host or VM: what a panel of a chart shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Pattern {
    subject: PatternSubject,
    quantity: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum PatternSubject {
    One(Subject),
    EachHost,
    EachVm,
}

impl Pattern {
    /// A quantity of each host.
    pub(crate) fn of_each_host(quantity: &str) -> Pattern {
        Pattern { subject: PatternSubject::EachHost, quantity: quantity.to_owned() }
    }

    /// A quantity of each VM.
    pub(crate) fn of_each_vm(quantity: &str) -> Pattern {
        Pattern { subject: PatternSubject::EachVm, quantity: quantity.to_owned() }
    }

    /// The pattern of a path without its phase, whose host or VM may be `*`.
    pub(crate) fn parse(path: &str) -> Result<Pattern, MetricError> {
        let (subject, quantity) = Subject::parse(path)?;
        let subject = match subject {
            Subject::Host(name) if name == "*" => PatternSubject::EachHost,
            Subject::Vm(name) if name == "*" => PatternSubject::EachVm,
            one => PatternSubject::One(one),
        };
        Ok(Pattern { subject, quantity })
    }

    /// Names of the hosts or VMs of a run that it stands for; one empty name for a single subject.
    pub(crate) fn each<'r>(&self, run: &'r Run) -> Vec<&'r str> {
        match self.subject {
            PatternSubject::EachHost => run.host_names(),
            PatternSubject::EachVm => run.vm_names(),
            PatternSubject::One(_) => vec![""],
        }
    }

    /// The metric of a phase, for one of the names of [`Pattern::each`].
    pub(crate) fn metric(
        &self,
        phase: String,
        name: &str,
        names: &Names,
    ) -> Result<Metric, MetricError> {
        let subject = match &self.subject {
            PatternSubject::One(subject) => subject.clone(),
            PatternSubject::EachHost => Subject::Host(name.to_owned()),
            PatternSubject::EachVm => Subject::Vm(name.to_owned()),
        };
        Metric::checked(Which::Phase(phase), Ok((subject, self.quantity.clone())), names)
    }

    /// Owner of the metric for a label: ` of each host`, ` of kvm-01`.
    pub(crate) fn whose(&self) -> String {
        match &self.subject {
            PatternSubject::EachHost => " of each host".to_owned(),
            PatternSubject::EachVm => " of each vm".to_owned(),
            PatternSubject::One(
                Subject::Host(name) | Subject::Vm(name) | Subject::Tenant(name, _),
            ) => format!(" of {name}"),
            PatternSubject::One(_) => String::new(),
        }
    }
}
