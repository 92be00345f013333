//! The devices that a configuration steers, looked at for `parda check`.

use parda_config::{Document, Error};
use parda_steer::refusal::{Refusal, Why};

use crate::config::{Config, Work};
use crate::patience::{self, Question};
use crate::steered::{self, SteerError};

/// Fault of a device, and whether it is not there or does not answer: then it may come later.
fn fault(examined: Option<Result<(), SteerError>>) -> Option<(String, bool)> {
    let error = match examined {
        None => return Some(("does not answer".to_owned(), true)),
        Some(examined) => examined.err()?,
    };
    Some(match error.downcast::<Refusal>() {
        // The key that is pointed at has the path.
        Ok(refusal) => (refusal.why.to_string(), matches!(refusal.why, Why::Unreadable(_))),
        Err(error) => (error.to_string(), false),
    })
}

/// Looks whether the devices of a configuration can be steered. Returns notes on those that are not there, or do not answer: their volumes
/// start later.
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
    let faults =
        steered.into_iter().zip(answers).filter_map(|(of, answer)| Some((of, fault(answer)?)));
    let faults: Vec<_> = faults.collect();
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
    Ok(notes.collect())
}
