//! Status of a steered volume.

use parda_control::KernelHost;
use parda_steer::measure::Method;

use super::State;
use crate::config;
use crate::outlook::OutlookStatus;
use crate::served::tenant;
use crate::settings::SettingsStatus;
use crate::status::{MeasuredBy, ObjectiveStatus, PathStatus, SteerStatus, VolumeStatus};
use crate::threshold::ThresholdStatus;

impl State {
    pub(super) fn describe(&self, status: &mut VolumeStatus, config: &config::Volume) {
        let governor = self.host.governor();
        let device = self.device.as_ref();
        let bounds = device.and_then(|d| d.bounds());
        let in_force = device.and_then(|d| d.in_force());
        let window = governor.window();
        law(status, config, &self.host, &self.vms.names());
        status.shares = self.vms.shares().0;
        status.held = (self.done.pending - status.outstanding).max(0.0) as u64;
        status.steer = Some(SteerStatus {
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
        });
    }
}

/// Part of the status that the law has.
pub(crate) fn law(
    status: &mut VolumeStatus,
    config: &config::Volume,
    host: &KernelHost,
    names: &[(String, u32)],
) {
    let governor = host.governor();
    let tenants = config.tenants.iter().zip(host.tenants());
    status.tenants = tenants.map(|(settings, state)| tenant(settings, &state)).collect();
    status.cluster_latency_ms = governor.latency().map(|l| l * 1e3);
    status.window = Some(governor.window().0).filter(|w| w.is_finite());
    status.outlook = governor.outlook().and_then(|o| OutlookStatus::new(o, names));
    status.threshold =
        governor.estimate().map(|e| ThresholdStatus::new(&e, config.probed.as_ref()));
    status.latency_threshold_ms = governor.threshold().secs() * 1e3;
    let peers = status.exchange.as_ref().map_or(&[][..], |exchange| &exchange.peers);
    let cost = governor.objective_price();
    status.objective = cost.map(|cost| ObjectiveStatus::new(&cost, &[], peers));
    let settings = governor.settings();
    status.settings =
        status.settings.take().map(|shown| SettingsStatus::new(settings, shown.differ));
}

fn path(path: &parda_steer::steering::PathInForce) -> PathStatus {
    PathStatus {
        name: path.name.clone(),
        method: path.method,
        depth: path.depth,
        state: path.state,
    }
}
