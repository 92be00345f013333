//! State of a served volume's disks and listeners, for the status.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use parda_api::Tenant;
use parda_awake::Instant;
use parda_block::{DiskId, Handle, VmStats};
use parda_config::TenantSettings;
use parda_control::law::Mode;
use parda_control::{Decision, TenantState};

use super::member::{DiskMember, ListenerMember, State};
use crate::api::values::of;
use crate::config;
use crate::history::rounded;
use crate::locked::locked;
use crate::status::{
    Detail, DiskStatus, LateStatus, ListenerStatus, PastFailure, SettingsFrom, VolumeStatus,
};

#[derive(Clone, Default)]
pub(super) struct Shown {
    pub(super) disks: Vec<DiskMember>,
    pub(super) listeners: Vec<ListenerMember>,
    /// Reason and time of the ring's end, while there is no ring.
    pub(super) fault: Option<(String, Instant)>,
    /// The same, of a ring that was started again.
    pub(super) last_failure: Option<(String, Instant)>,
    pub(super) restarts: u64,
}

impl Shown {
    /// Names and shares of disks, in this order.
    fn named(&self, disks: &[DiskId]) -> Vec<(String, u32)> {
        let of =
            |disk: &DiskMember| (disk.config.name.to_string(), disk.config.settings.shares().0);
        let open: HashMap<_, _> =
            self.disks.iter().filter_map(|disk| Some((disk.id()?, of(disk)))).collect();
        disks.iter().map(|id| open.get(id).cloned().unwrap_or_default()).collect()
    }
}

/// A ring, and the decision by which it works.
struct Ruled {
    /// `None` while its restart is due.
    ring: Option<Arc<Handle>>,
    decision: Decision,
}

/// State that the keeper and the control thread write and other threads read.
#[derive(Clone)]
pub(crate) struct Board {
    ruled: Arc<Mutex<Ruled>>,
    shown: Arc<Mutex<Arc<Shown>>>,
}

impl Board {
    pub(super) fn new(decision: &Decision) -> Board {
        let ruled = Ruled { ring: None, decision: decision.clone() };
        Board { ruled: Arc::new(Mutex::new(ruled)), shown: Arc::default() }
    }

    /// The last decision of the law: that of a ring which is started.
    pub(super) fn decision(&self) -> Decision {
        locked(&self.ruled).decision.clone()
    }

    /// Has the ring work by another decision, or the next one.
    pub(super) fn apply(&self, decision: &Decision) {
        let ruled = &mut *locked(&self.ruled);
        ruled.decision.clone_from(decision);
        ruled.tell();
    }

    /// The ring; `None` while its restart is due.
    pub(crate) fn ring(&self) -> Option<Arc<Handle>> {
        locked(&self.ruled).ring.clone()
    }

    pub(super) fn set_ring(&self, ring: Option<Arc<Handle>>) {
        let ruled = &mut *locked(&self.ruled);
        ruled.ring = ring;
        // The law may have decided anew while the ring was started.
        ruled.tell();
    }

    pub(super) fn show(&self, shown: Shown) {
        *locked(&self.shown) = Arc::new(shown);
    }

    /// Fields of the status. Returns as [`Enforcer::state`](crate::enforcer::Enforcer::state).
    pub(super) fn describe(
        &self,
        status: &mut VolumeStatus,
        config: &config::Volume,
        detail: Detail,
    ) -> Vec<(String, u32)> {
        let shown = Arc::clone(&locked(&self.shown));
        let stats = self.ring().and_then(|ring| ring.stats().ok());
        status.shares = config.disks().iter().map(|d| d.settings.shares().0).sum();
        status.fault = shown.fault.as_ref().map(|(why, _)| why.clone());
        status.restarts = shown.restarts;
        let now = Instant::now();
        let secs = |since: Instant| now.saturating_duration_since(since).as_secs_f64();
        let past = |(why, at): &(String, _)| PastFailure { why: why.clone(), ago_s: secs(*at) };
        status.last_failure = shown.last_failure.as_ref().map(past);
        if let Some(stats) = &stats {
            status.held = stats.held as u64;
            status.overdue = stats.overdue;
            status.late = LateStatus::new(stats.lateness);
            status.connections = stats.connections as u64;
            status.memory = Some(stats.memory);
            status.dropped = stats.dropped;
        }
        // Names are needed for a forecast alone, and there may be thousands.
        let observes = config.law.law.mode == Mode::Observe;
        let measured = stats.as_ref().filter(|stats| observes && !stats.vms_changed);
        let vms = measured.map_or_else(Vec::new, |stats| shown.named(&stats.disks));
        let mut counted: HashMap<_, _> =
            stats.into_iter().flat_map(|stats| stats.disks.into_iter().zip(stats.vms)).collect();
        status.disks = (shown.disks.iter())
            .map(|member| {
                // Zero while it is not open.
                let counted = member.id().and_then(|id| counted.remove(&id)).unwrap_or_default();
                let disk = &member.config;
                DiskStatus {
                    state: member.shown(),
                    state_s: secs(member.since),
                    fault: member.fault.clone().or_else(|| fault(&counted)),
                    listen: disk.listen.to_string(),
                    drain: disk.drain,
                    ..DiskStatus::new(disk.name.to_string(), disk.settings, counted, detail)
                }
            })
            .collect();
        let listeners = shown.listeners.iter().map(|listener| ListenerStatus {
            address: listener.config.address.to_string(),
            state_s: secs(listener.since),
            fault: listener.fault.clone(),
            is_bound: matches!(listener.state, State::Open(_)),
        });
        status.listeners = listeners.collect();
        vms
    }
}

impl Ruled {
    fn tell(&self) {
        if let Some(ring) = &self.ring {
            // A ring that has ended is started again, under the decision.
            let _ = ring.apply(self.decision.clone());
        }
    }
}

/// Reason why an open disk cannot do all IOs, if it cannot.
fn fault(disk: &VmStats) -> Option<String> {
    let away = disk.away.as_ref().map(|why| format!("the NBD server behind it was lost: {why}"));
    away.or_else(|| {
        (disk.lost > 0)
            .then(|| format!("it has shrunk by {} bytes: IOs behind its end fail", disk.lost))
    })
}

/// A tenant as people see it.
pub(crate) fn tenant(settings: &TenantSettings, state: &TenantState) -> Tenant {
    let mut set = of(settings);
    set.remove("name");
    Tenant {
        name: settings.name.to_string(),
        settings: set,
        settings_from: SettingsFrom::new(),
        iops: rounded(state.all.rate),
        own_iops: rounded(state.own.rate),
        limit_part: settings.limit.is_some().then(|| rounded(state.part)),
        short: state.short,
    }
}

#[cfg(test)]
mod tests {
    use parda_block::{AgentMemory, Limits, Volume, VolumeConfig};
    use parda_control::law::{LawConfig, Mode};
    use parda_control::{Config, Period, Window};

    use super::*;

    fn held_at(window: f64) -> Decision {
        let law =
            LawConfig { mode: Mode::Static, window_max: Window(window), ..LawConfig::default() };
        let period = Period::new(Config { law, ..Config::default() }).unwrap();
        period.decision().clone()
    }

    fn ring(decision: Decision) -> Arc<Handle> {
        let volume = VolumeConfig {
            name: "a".to_owned(),
            decision,
            disks: Vec::new(),
            listeners: Vec::new(),
            model: None,
            limits: Limits::default(),
            memory: AgentMemory::default(),
        };
        Arc::new(Volume::spawn(volume).unwrap())
    }

    #[test]
    fn a_ring_that_is_started_again_works_by_the_last_decision() {
        let board = Board::new(&held_at(4.0));
        let window = || board.ring().unwrap().stats().unwrap().window;
        board.set_ring(Some(ring(board.decision())));
        assert_eq!(window(), Window(4.0));
        board.apply(&held_at(3.0));
        assert_eq!(window(), Window(3.0));
        board.set_ring(None);
        // The law decides once more while there is no ring, and again while one is started.
        board.apply(&held_at(2.0));
        let again = ring(board.decision());
        assert_eq!(again.stats().unwrap().window, Window(2.0));
        board.apply(&held_at(1.0));
        board.set_ring(Some(again));
        assert_eq!(window(), Window(1.0));
    }
}
