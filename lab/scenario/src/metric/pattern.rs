//! Metrics of a chart's panel: a quantity of one subject, or of each host or VM, in any phase.

use super::{Kind, Metric, Subject, Which};
use crate::run::{Run, RunPhase};

/// Name that stands for each host or VM.
const EACH: &str = "*";

/// Metric of a chart's panel, without its phase: of one subject, or of each host or VM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Pattern {
    subject: Subject,
    quantity: String,
}

impl Pattern {
    /// The pattern of a path without its phase, whose host or VM may be `*`.
    pub(crate) fn parse(path: &str) -> Result<Pattern, String> {
        Subject::parse(path).map(|(subject, quantity)| Pattern { subject, quantity })
    }

    /// Names of the hosts or VMs of a run that it stands for; one empty name for a single subject.
    pub(crate) fn each<'r>(&self, run: &'r Run) -> Vec<&'r str> {
        match (self.subject.kind, self.subject.name.as_str()) {
            (Kind::Host, EACH) => run.host_names(),
            (Kind::Vm, EACH) => run.vm_names(),
            _ => vec![""],
        }
    }

    /// The metric of a phase, for one of the names of [`Pattern::each`].
    pub(crate) fn metric(
        &self,
        phase: String,
        name: &str,
        known: &[RunPhase<'_>],
    ) -> Result<Metric, String> {
        let subject = match name {
            "" => self.subject.clone(),
            name => Subject::new(self.subject.kind, name),
        };
        Metric::checked(Which::Phase(phase), Ok((subject, self.quantity.clone())), known)
    }

    /// Owner of the metric for a label: ` of each host`, ` of kvm-01`.
    pub(crate) fn whose(&self) -> String {
        match (self.subject.kind, self.subject.name.as_str()) {
            (_, "") => String::new(),
            (kind @ (Kind::Host | Kind::Vm), EACH) => format!(" of each {kind}"),
            (_, name) => format!(" of {name}"),
        }
    }
}
