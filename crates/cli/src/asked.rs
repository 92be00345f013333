//! The agent that a command asks for its status.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use clap::Args;
use parda_agent::config::Config;
use parda_agent::status::{AskError, Status, disk_keys};
use parda_config::Document;
use serde_json::Value;

use crate::{Failure, output};

/// Arguments that name the agent.
#[derive(Args)]
pub(crate) struct Asked {
    /// The agent's status socket
    #[arg(value_name = "SOCKET")]
    socket: Option<PathBuf>,
    /// The agent's configuration, which names the socket
    #[arg(
        short,
        long,
        value_name = "FILE",
        conflicts_with = "socket",
        default_value = "/etc/parda.toml"
    )]
    config: PathBuf,
}

impl Asked {
    /// The agent's status socket.
    pub(crate) fn socket(&self) -> Result<PathBuf, Failure> {
        socket(self.socket.as_deref(), &self.config)
    }
}

/// The status socket: `named`, or otherwise the `status` of a configuration.
pub(crate) fn socket(named: Option<&Path>, config: &Path) -> Result<PathBuf, Failure> {
    if let Some(socket) = named {
        if std::fs::metadata(socket).is_ok_and(|about| about.is_file()) {
            let name = socket.display();
            return Err(Failure::usage(format!(
                "{name}: is no socket; a configuration is named by -c {name}"
            )));
        }
        return Ok(socket.to_owned());
    }
    configuration(config)?.status.ok_or_else(|| {
        Failure::usage(format!(
            "{}: status: is missing: set status = \"unix:PATH\" and reload the agent",
            config.display()
        ))
    })
}

/// The agent's configuration. If there is none, the command says how to name one.
pub(crate) fn configuration(path: &Path) -> Result<Config, Failure> {
    is_there(path)?;
    let document = Document::read(path)?;
    is_no_scenario(&document)?;
    Ok(Config::check(&document)?)
}

/// Checks that a file is there that -c names, or its default.
pub(crate) fn is_there(path: &Path) -> Result<(), Failure> {
    match std::fs::metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => Err(Failure::usage(format!(
            "{}: there is no such file: name the agent's configuration by -c FILE",
            path.display()
        ))),
        _ => Ok(()),
    }
}

/// What to do about an agent that cannot be asked.
pub(crate) fn unanswered(error: &std::io::Error) -> &'static str {
    match error.kind() {
        ErrorKind::PermissionDenied => {
            ". The agent answers its own user and root: ask as one of them (sudo, or sudo -u USER)"
        }
        _ => ". Is the agent running?",
    }
}

/// Refuses a scenario in the place of an agent's configuration.
pub(crate) fn is_no_scenario(document: &Document) -> Result<(), Failure> {
    if !(document.has("array") && document.has("duration")) {
        return Ok(());
    }
    let name = document.name();
    Err(Failure::usage(format!(
        "{name}: is a scenario and no agent's configuration: parda sim {name} runs it"
    )))
}

/// Refuses an agent's configuration in the place of a scenario.
pub(crate) fn is_no_configuration(document: &Document) -> Result<(), Failure> {
    if !(document.has("host") && document.has("volume")) {
        return Ok(());
    }
    let name = document.name();
    Err(Failure::usage(format!(
        "{name}: is an agent's configuration and no scenario: parda check {name} checks it, parda serve -c {name} \
         serves by it"
    )))
}

/// Asks an agent for its status.
pub(crate) fn ask(socket: &Path) -> Result<Status, Failure> {
    parda_agent::status::ask(socket).map_err(|e| {
        let hint = match &e {
            AskError::Connect(error) => unanswered(error),
            AskError::Silent | AskError::Answer(_) => "",
        };
        Failure::new(format!("{}: {e}{hint}", socket.display()))
    })
}

/// The status with control characters escaped in all texts: names of disks and of other hosts may contain line breaks and
/// commands to a terminal.
pub(crate) fn escaped(status: Status) -> Result<Status, Failure> {
    let wrong = |e: serde_json::Error| Failure::new(format!("cannot show the status: {e}"));
    // Most have none, and to take ten thousand disks apart would take longer than all else. JSON escapes some of them.
    let text = serde_json::to_string(&status).map_err(wrong)?;
    if !text.contains('\\') && !text.contains(char::is_control) {
        return Ok(status);
    }
    let mut value = serde_json::to_value(status).map_err(wrong)?;
    escape(&mut value);
    serde_json::from_value(value).map_err(wrong)
}

/// The status with each disk's key in place of its name, as two disks of a volume may have one name.
pub(crate) fn by_key(mut status: Status) -> Status {
    for volume in &mut status.volumes {
        let keys = disk_keys(&volume.disks);
        volume.disks.iter_mut().zip(keys).for_each(|(disk, key)| disk.name = key);
    }
    status
}

fn escape(value: &mut Value) {
    match value {
        Value::String(text) if text.contains(char::is_control) => {
            *text = output::line(text);
        }
        Value::Array(values) => values.iter_mut().for_each(escape),
        Value::Object(values) => values.values_mut().for_each(escape),
        _ => {}
    }
}
