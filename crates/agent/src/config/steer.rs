//! A volume whose device is steered, checked.

use std::fmt;
use std::path::PathBuf;

use parda_config::{Document, Error};
use parda_control::Shares;

use parda_steer::cgroup::{Means, Pattern, PatternError, VmPattern};
use parda_steer::knob::Method;
use parda_steer::measure::Choice;
use parda_steer::refusal::Why;

use super::volume::{Volume, Work};
use crate::file;
use crate::patience::{self, Question};
use crate::steered::{self, SteerError};

/// A volume whose VMs open its device directly.
#[derive(Clone, Debug, PartialEq)]
pub struct Steer {
    /// The device, or anything that lies on it.
    pub device: PathBuf,
    /// How its queue is held to the window; `None` for what suits the device.
    pub method: Option<Method>,
    /// How it is measured.
    pub measure: Choice,
    /// Means by which its VMs are held to their shares; `None` for those that suit the device.
    pub sharing: Option<Means>,
    /// VMs whose IOs the device does.
    pub vms: Vms,
}

/// The VMs of a steered volume.
#[derive(Clone, Debug, PartialEq)]
pub enum Vms {
    /// The whole host is one.
    Host(Shares),
    /// Each is a cgroup.
    Groups(Vec<VmPattern>),
}

impl fmt::Display for Vms {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Vms::Host(shares) => write!(f, "the host: {}", shares.0),
            Vms::Groups(vms) => {
                let each = vms.iter().map(|vm| format!("{}: {}", vm.name, vm.shares.0));
                f.write_str(&each.collect::<Vec<_>>().join(", "))
            }
        }
    }
}

/// Reason why a device cannot be steered.
struct Fault {
    message: String,
    /// It is not there, or does not answer. It may come later.
    is_missing: bool,
}

impl From<SteerError> for Fault {
    fn from(error: SteerError) -> Fault {
        let is_missing = matches!(&error, SteerError::Refused(refusal) if matches!(refusal.why, Why::Unreadable(_)));
        let message = match &error {
            // The key that is pointed at has the path.
            SteerError::Refused(refusal) => refusal.why.to_string(),
            error => error.to_string(),
        };
        Fault { message, is_missing }
    }
}

/// Faults of the devices of volumes, by the number of the volume.
fn faults(volumes: &[Volume]) -> Vec<(usize, &Steer, Fault)> {
    let steered = volumes.iter().enumerate().filter_map(|(i, volume)| match &volume.work {
        Work::Steer(steer) => Some((i, volume, steer)),
        Work::Serve(_) => None,
    });
    let steered: Vec<_> = steered.collect();
    let questions = steered.iter().map(|(_, volume, steer)| {
        let (control, period, asked) =
            (volume.law.control.clone(), volume.law.period, (*steer).clone());
        Question::new(&steer.device, move || steered::examine(control, period.into(), &asked))
    });
    let answers = patience::ask(questions.collect());
    let each = steered.into_iter().zip(answers).filter_map(|((i, _, steer), answer)| {
        let fault = match answer {
            Some(examined) => examined.err()?.into(),
            None => Fault { message: "does not answer".to_owned(), is_missing: true },
        };
        Some((i, steer, fault))
    });
    each.collect()
}

/// Checks that the devices of volumes can be steered. Only for who asks: an agent starts without. Devices that are not there are
/// [`missing`], unless no volume starts without them.
pub(super) fn devices(doc: &Document, volumes: &[Volume]) -> Result<(), Error> {
    let faults = faults(volumes);
    let nothing_starts = faults.len() == volumes.len();
    match faults.into_iter().find(|(.., fault)| nothing_starts || !fault.is_missing) {
        Some((i, _, fault)) => Err(doc.error(&format!("volume.{i}.steer.device"), fault.message)),
        None => Ok(()),
    }
}

/// Notes on devices that are not there, or do not answer.
pub(super) fn missing(volumes: &[Volume]) -> Vec<String> {
    let faults = faults(volumes).into_iter().filter(|(.., fault)| fault.is_missing);
    let note = |(i, steer, fault): (usize, &Steer, Fault)| {
        let (name, device) = (&volumes[i].name, steer.device.display());
        format!("{name}: {device}: {}: the volume does not start before", fault.message)
    };
    faults.map(note).collect()
}

pub(super) fn check(
    wrong: &dyn Fn(&str, String) -> Error,
    steer: &file::Steer,
) -> Result<Steer, Error> {
    if !steer.device.is_absolute() {
        return Err(wrong("device", "must be an absolute path".into()));
    }
    let method = match steer.method.as_deref() {
        None | Some("auto") => None,
        Some(name) => Some(name.parse::<Method>().map_err(|e| wrong("method", e.to_string()))?),
    };
    let measure = match steer.measure.as_deref() {
        None => Choice::Auto,
        Some(name) => name.parse::<Choice>().map_err(|e| wrong("measure", e.to_string()))?,
    };
    let sharing = match steer.sharing.as_deref() {
        None | Some("auto") => None,
        Some(name) => Some(name.parse::<Means>().map_err(|e| wrong("sharing", e.to_string()))?),
    };
    let vms = match (steer.shares, steer.vm.as_slice()) {
        (Some(_), [_, ..]) => {
            let message = "is for a host that is one VM: here each [[volume.steer.vm]] has its own";
            return Err(wrong("shares", message.into()));
        }
        (shares, []) => Vms::Host(check_shares(
            wrong,
            "shares",
            shares.unwrap_or(parda_config::DEFAULT_SHARES),
        )?),
        (None, vms) => Vms::Groups(check_vms(wrong, vms)?),
    };
    Ok(Steer { device: steer.device.clone(), method, measure, sharing, vms })
}

fn check_vms(
    wrong: &dyn Fn(&str, String) -> Error,
    vms: &[file::SteeredVm],
) -> Result<Vec<VmPattern>, Error> {
    let mut patterns: Vec<VmPattern> = Vec::new();
    for (i, vm) in vms.iter().enumerate() {
        let wrong = |key: &str, message: String| wrong(&format!("vm.{i}.{key}"), message);
        if vm.name.is_empty() {
            return Err(wrong("name", "must not be empty".into()));
        }
        if patterns.iter().any(|other| other.name == vm.name) {
            return Err(wrong("name", "is also the name of another VM: names must differ".into()));
        }
        patterns.push(VmPattern {
            name: vm.name.clone(),
            pattern: vm
                .cgroup
                .parse::<Pattern>()
                .map_err(|e: PatternError| wrong("cgroup", e.to_string()))?,
            shares: check_shares(&wrong, "shares", vm.shares)?,
        });
    }
    Ok(patterns)
}

fn check_shares(
    wrong: &dyn Fn(&str, String) -> Error,
    key: &str,
    shares: u32,
) -> Result<Shares, Error> {
    match parda_config::wrong_shares(shares) {
        Some(message) => Err(wrong(key, message)),
        None => Ok(Shares(shares)),
    }
}
