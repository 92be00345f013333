//! A host's agent: the configuration it is given, and what it says of itself.

use std::io::{self, Read};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use parda_agent::file::{Direct, Disk, Exchange, File, Volume};
use parda_agent::status::Status;
use parda_scenario::scenario::{EXCHANGE, EXCHANGE_SLOTS, HostState};
use parda_scenario::{Host, HostId};

use crate::cluster::Place;

/// The name of the one volume that all hosts of a scenario share.
pub const VOLUME: &str = "array";

/// An agent that does not answer within this time is taken to be ill.
const ANSWER_WITHIN: Duration = Duration::from_secs(2);

/// The configuration of a host as it stands.
#[must_use]
pub fn configuration(host: &Host, id: HostId, state: &HostState, place: &Place) -> File {
    let on_array =
        |export: &str| format!("nbd+unix:///{export}?socket={}", place.array().display());
    let disks = host.vms.iter().zip(&state.vms).map(|(vm, state)| Disk {
        name: vm.name.clone(),
        path: on_array(&vm.name),
        listen: format!("unix:{}", place.disks(id).display()),
        shares: state.shares.0,
        burst: vm.burst,
        read_only: false,
        direct: Direct::Auto,
        offset: None,
        size: None,
    });
    let volume = Volume {
        name: VOLUME.to_owned(),
        control: state.control.clone(),
        exchange: Some(Exchange {
            file: on_array(EXCHANGE),
            slots: EXCHANGE_SLOTS,
            slot: None,
            offset: None,
        }),
        disk: disks.collect(),
    };
    File {
        host: host.name.clone(),
        status: Some(format!("unix:{}", place.status(id).display())),
        volume: vec![volume],
    }
}

/// Asks an agent how it stands.
///
/// # Errors
/// It does not answer, or not in time, or not with a status.
pub fn ask(socket: &Path) -> io::Result<Status> {
    let mut stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(ANSWER_WITHIN))?;
    stream.shutdown(Shutdown::Write)?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    Ok(serde_json::from_slice(&answer)?)
}

/// Whether an agent's status is what its configuration says: it has taken up a change.
#[must_use]
pub fn follows(status: &Status, file: &File) -> bool {
    let in_force = |volume: &Volume| {
        let Some(status) = status.volumes.iter().find(|v| v.name == volume.name) else {
            return false;
        };
        let shares = |disk: &Disk| {
            status.disks.iter().any(|d| d.name == disk.name && d.shares == disk.shares)
        };
        let Ok(law) = volume.control.resolve() else { return false };
        let threshold = law.control.law.threshold.secs() * 1e3;
        (status.latency_threshold_ms - threshold).abs() < 1e-6
            && status.mode == mode_name(&law)
            && volume.disk.iter().all(shares)
    };
    file.volume.iter().all(in_force)
}

fn mode_name(law: &parda_config::Resolved) -> &'static str {
    use parda_control::law::Mode;
    match law.control.law.mode {
        Mode::Off => "off",
        Mode::Static => "static",
        Mode::Published { .. } => "published",
        Mode::Normalised { .. } => "parda",
    }
}
