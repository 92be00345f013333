//! The devices that a configuration steers, looked at for `parda check`.

use parda_config::{Document, Error};
use parda_steer::refusal::Why;

use crate::config::{Config, Steer, Volume, Work};
use crate::patience::{self, Question};
use crate::steered::{self, SteerError};

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
        Work::Serve(_) | Work::Qemu(_) => None,
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

/// Looks whether the devices of a configuration can be steered. Returns notes on those that are not there, or do not answer: their volumes
/// start later.
///
/// # Errors
/// A device cannot be steered, or no volume starts without those that are not there.
pub fn examine(doc: &Document, config: &Config) -> Result<Vec<String>, Error> {
    let faults = faults(&config.volumes);
    let nothing_starts = faults.len() == config.volumes.len();
    if let Some((i, _, fault)) =
        faults.iter().find(|(.., fault)| nothing_starts || !fault.is_missing)
    {
        return Err(doc.error(&format!("volume.{i}.steer.device"), &fault.message));
    }
    let note = |(i, steer, fault): (usize, &Steer, Fault)| {
        let (name, device) = (&config.volumes[i].name, steer.device.display());
        format!("{name}: {device}: {}: the volume does not start before", fault.message)
    };
    Ok(faults.into_iter().map(note).collect())
}
