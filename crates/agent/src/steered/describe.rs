//! Status of a steered volume.

use parda_steer::measure::Method;

use super::Steered;
use crate::status::{MeasuredBy, PathStatus, SteerStatus};

impl Steered {
    /// Status of the device.
    pub(super) fn device_status(&self) -> SteerStatus {
        let device = self.device.as_ref();
        let bounds = device.and_then(|d| d.bounds());
        let in_force = device.and_then(|d| d.in_force());
        let window = self.host.governor().window();
        SteerStatus {
            device: self.steer.device.display().to_string(),
            steered: device.map(|d| d.device().name.clone()),
            fault: self.fault.as_deref().or(self.vms.fault()).map(str::to_owned),
            vms_share_by: self.vms.means(),
            measured_by: self.done.method.map(|method| match method {
                Method::Ebpf => MeasuredBy::Ebpf,
                Method::Little { .. } => MeasuredBy::Little,
            }),
            why_not_ebpf: device.and_then(|d| d.why_not_ebpf()).map(str::to_owned),
            latency_error: match self.done.method {
                Some(Method::Little { error }) => Some(error),
                _ => None,
            },
            depth: in_force.as_ref().map(|f| f.depth),
            least: bounds.map(|b| b.least),
            most: bounds.map(|b| b.most),
            cannot_go_lower: device.is_some_and(|d| d.cannot_hold(window))
                && !self.vms.hold_below_least(),
            drops: device.map_or(0, |d| d.drops()),
            requeues: self.done.requeues,
            pending: self.done.pending,
            paths: in_force.map_or(Vec::new(), |f| f.paths.iter().map(path).collect()),
            reads: self.done.reads,
            writes: self.done.writes,
            read_latency: self.done.read_latency.clone(),
            write_latency: self.done.write_latency.clone(),
            vms: self.vms.status(&self.steer),
            ..SteerStatus::default()
        }
    }
}

fn path(path: &parda_steer::steering::PathInForce) -> PathStatus {
    PathStatus {
        name: path.name.clone(),
        method: path.method,
        depth: path.depth,
        state: path.state,
    }
}
