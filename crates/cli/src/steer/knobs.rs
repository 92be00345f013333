//! `parda steer show` and `restore`.

use std::path::PathBuf;

use clap::Args;
use parda_steer::journal::{JournalError, Original, Restored};
use parda_steer::qemu::{SocketId, journal_name};
use parda_steer::show::{QueueSettings, show};
use parda_steer::{Device, Journal};
use parda_terminal::{Failure, output};
use serde::Serialize;

use super::arguments::{DeviceArg, MethodArg, StateArg, steer_failed};

#[derive(Args)]
#[command(after_help = "\
Examples:
  parda steer show /dev/sdb
  parda steer show /dev/vg/data --json - | jq '.queues[0].least'")]
pub(crate) struct Show {
    #[command(flatten)]
    device: DeviceArg,
    #[command(flatten)]
    method: MethodArg,
    #[command(flatten)]
    state: StateArg,
    /// Write the answer as JSON to a file, - for standard output
    #[arg(long, value_name = "OUT")]
    json: Option<PathBuf>,
}

#[derive(Args)]
#[command(after_help = "\
A running agent puts back its own settings when it ends; this command is for an agent that was killed,
and for `parda steer set`. A device that an agent holds is left alone, with a message.")]
pub(crate) struct Restore {
    /// One device or QMP socket only: its path, or a device's name in the kernel if it is gone
    #[arg(value_name = "DEVICE")]
    device: Option<PathBuf>,
    #[command(flatten)]
    state: StateArg,
}

/// A device as JSON.
#[derive(Serialize)]
struct Answer {
    device: String,
    through: Vec<String>,
    multipath: Option<String>,
    queues: Vec<QueueSettings>,
    /// Process that steers the device now.
    steered_by: Option<String>,
    /// Original values that will be put back.
    originals: Vec<Original>,
}

impl Show {
    fn answer(&self) -> Result<Answer, Failure> {
        let device = self.device.resolve()?;
        let journal = self.state.journal();
        let originals = journal.read(&device.name).map_err(failed)?;
        let queues = show(&device, self.method.get(), &originals).map_err(steer_failed)?;
        Ok(Answer {
            queues,
            steered_by: journal.holder(&device.name),
            originals,
            device: device.name,
            through: device.through,
            multipath: device.multipath,
        })
    }

    pub(crate) fn run(&self) -> Result<(), Failure> {
        output::check([&self.json])?;
        output::either(self.json.as_deref(), &self.answer()?, text)
    }
}

fn text(answer: &Answer) -> String {
    let mut text = answer.through.iter().fold(String::new(), |text, on| text + on + " on ");
    text += &answer.device;
    if let Some(name) = &answer.multipath {
        text += &format!(" (multipath {name})");
    }
    text += "\n";
    for queue in &answer.queues {
        let path =
            if answer.multipath.is_some() { format!(", {}", queue.state) } else { String::new() };
        text += &format!(
            "\n{}: {}{path}, elevator {}, {}\n  {} = {}: in flight at most {}; \
             can be set from {} to {}\n",
            queue.name,
            queue.kind,
            queue.scheduler,
            output::count(queue.hardware_queues.into(), "hardware queue"),
            queue.file.display(),
            queue.now,
            queue.depth,
            queue.least,
            queue.most,
        );
    }
    let by = match &answer.steered_by {
        Some(process) => format!("steered by process {process}, which will put back"),
        None => "set, and nobody holds it: `parda steer restore` puts back".to_owned(),
    };
    for original in &answer.originals {
        text += &format!("\n{by} {} = {}", original.file.display(), original.value);
    }
    text
}

impl Restore {
    pub(crate) fn run(&self) -> Result<(), Failure> {
        let journal = self.state.journal();
        let results = match &self.device {
            None => journal.restore_all().map_err(failed)?,
            Some(path) => of_device(&journal, &name(path)).map_err(failed)?,
        };
        if results.is_empty() {
            return output::print("nothing is set that could be put back");
        }
        let mut whole = true;
        for result in results {
            match result {
                Ok(restored) => output::print(&told(&restored))?,
                // A device that an agent holds is an error only where it was named.
                Err(error @ JournalError::Held { .. }) if self.device.is_none() => {
                    eprintln!("parda: {error}");
                }
                Err(error) => {
                    whole = false;
                    eprintln!("parda: {error}");
                }
            }
        }
        if whole { Ok(()) } else { Err(Failure::silent()) }
    }
}

/// A device's journal, and those of what is set beside it, such as `sda.weights`.
fn of_device(
    journal: &Journal,
    device: &str,
) -> Result<Vec<Result<Restored, JournalError>>, JournalError> {
    let names = journal.names()?.into_iter();
    let its = names.filter(|name| name == device || name.split('.').next() == Some(device));
    Ok(its.filter_map(|name| journal.restore(&name).transpose()).collect())
}

/// Name of a device, or of a QMP socket, in the journal. For a missing device, the argument itself.
fn name(path: &std::path::Path) -> String {
    if SocketId::of(path).is_ok() {
        return journal_name(&std::path::absolute(path).unwrap_or_else(|_| path.to_owned()));
    }
    Device::resolve("/".as_ref(), path)
        .map(|device| device.name)
        .unwrap_or_else(|_| path.file_name().unwrap_or_default().to_string_lossy().into_owned())
}

fn told(restored: &Restored) -> String {
    let back = restored.back.iter().map(|o| format!("{} = {}", o.file.display(), o.value));
    let gone = restored.gone.iter().map(|o| format!("{}: gone with its device", o.file.display()));
    back.chain(gone).map(|line| format!("{}: {line}\n", restored.name)).collect()
}

fn failed(error: JournalError) -> Failure {
    Failure::new(error.to_string())
}
