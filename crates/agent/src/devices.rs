//! The devices that a configuration steers, examined for `parda check`.

use parda_config::{Document, Error};
use parda_steer::refusal::{SteerRefusal, SteerRefusalReason};

use crate::config::{Config, Work};
use crate::patience::{self, Question};
use crate::steered::{self, SteerError};

/// Notes on a device, or its fault. The flag is true if the device is missing or does not answer: then it may come later.
fn notes(examined: Option<Result<Vec<String>, SteerError>>) -> Result<Vec<String>, (String, bool)> {
    let Some(examined) = examined else { return Err(("does not answer".to_owned(), true)) };
    examined.map_err(|error| match error.downcast::<SteerRefusal>() {
        // The key that is pointed at has the path.
        Ok(refusal) => {
            (refusal.why.to_string(), matches!(refusal.why, SteerRefusalReason::Unreadable(_)))
        }
        Err(error) => (error.to_string(), false),
    })
}

/// Looks whether the devices of a configuration can be steered. Returns notes on those that are not there, or do not answer: their volumes
/// start later. Others are on patterns that have no VM, and VMs that have no pattern.
///
/// # Errors
/// A device cannot be steered, or no volume starts without those that are not there.
pub fn examine(doc: &Document, config: &Config) -> Result<Vec<String>, Error> {
    let steered = config.volumes.iter().enumerate().filter_map(|(i, volume)| match &volume.work {
        Work::Steer(steer) => Some((i, volume, steer)),
        Work::Serve(_) | Work::Qemu(_) => None,
    });
    let steered: Vec<_> = steered.collect();
    let questions = steered.iter().map(|(_, volume, steer)| {
        let (control, asked) = (volume.law.clone(), (*steer).clone());
        Question::new(&steer.device, move || steered::examine(control, &asked))
    });
    let answers = patience::ask(questions.collect());
    let (mut faults, mut all) = (Vec::new(), Vec::new());
    for (of, answer) in steered.into_iter().zip(answers) {
        match notes(answer) {
            Ok(notes) => all.extend(notes.iter().map(|note| format!("{}: {note}", of.1.name))),
            Err(fault) => faults.push((of, fault)),
        }
    }
    let nothing_starts = faults.len() == config.volumes.len();
    if let Some(((i, ..), (fault, _))) =
        faults.iter().find(|(_, (_, is_missing))| nothing_starts || !is_missing)
    {
        return Err(doc.error(&format!("volume.{i}.steer.device"), fault));
    }
    let notes = faults.into_iter().map(|((_, volume, steer), (fault, _))| {
        let device = steer.device.display();
        format!("{}: {device}: {fault}: the volume does not start before", volume.name)
    });
    all.extend(notes);
    Ok(all)
}
