//! The agent that a command asks: how it is named, and its status over its socket.

pub(crate) mod api;

use std::io::ErrorKind;
use std::os::unix::fs::FileTypeExt as _;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use clap::Args;
use parda_agent::status::{AskError, Status, disk_keys, vm_keys};
use parda_config::Document;
use parda_terminal::{Failure, output};
use serde_json::Value;

use crate::input::configuration;

/// Options that name the agent, the same in each command that asks one.
#[derive(Args)]
pub(crate) struct Named {
    /// The agent's configuration, which names its status socket
    #[arg(short, long, value_name = "FILE", default_value = crate::service::CONFIGURATION)]
    pub(crate) config: PathBuf,
    /// The agent's status socket, in place of its configuration
    #[arg(long, value_name = "PATH", conflicts_with = "config")]
    socket: Option<PathBuf>,
}

impl Named {
    /// The status socket that is named, if one is. The configuration's form, `unix:PATH`, is taken as well.
    pub(crate) fn named(&self) -> Result<Option<PathBuf>, Failure> {
        self.socket.as_deref().map(named).transpose()
    }

    /// The agent's status socket.
    pub(crate) fn socket(&self) -> Result<PathBuf, Failure> {
        if let Some(socket) = self.named()? {
            return Ok(socket);
        }
        match configuration(&self.config) {
            Ok(config) => config.status.ok_or_else(|| no_status(&self.config)),
            // The agent goes on after a reload that it refused, and can be asked.
            Err(wrong) => match running(&self.config) {
                Some(socket) => {
                    tracing::warn!("{}; the agent that runs is asked", wrong.message);
                    Ok(socket)
                }
                None => Err(wrong),
            },
        }
    }
}

/// The status socket of a configuration that is wrong elsewhere, if something listens there.
fn running(config: &Path) -> Option<PathBuf> {
    let path = status_of(Document::read_regular(config).ok()?.text())?;
    UnixStream::connect(&path).ok().map(|_| path.into())
}

/// The path of the status socket that a configuration names, whatever is wrong with its other lines.
fn status_of(text: &str) -> Option<String> {
    let top = text.lines().take_while(|line| !line.trim_start().starts_with('['));
    let tables = top.filter_map(|line| line.parse::<toml::Table>().ok());
    let status = tables.filter_map(|mut table| table.remove("status")).next()?;
    Some(status.as_str()?.strip_prefix("unix:")?.to_owned())
}

/// A status socket by its path.
fn named(socket: &Path) -> Result<PathBuf, Failure> {
    let path = socket.to_str().and_then(|text| text.strip_prefix("unix:"));
    let path = path.map_or(socket, Path::new);
    let name = path.display();
    match std::fs::metadata(path) {
        Ok(about) if about.is_file() => Err(Failure::usage(format!(
            "{name}: is no socket; a configuration is named by -c {name}"
        ))),
        Ok(about) if !about.file_type().is_socket() => Err(Failure::usage(format!(
            "{name}: is no socket: name the one that is `status` in the agent's configuration"
        ))),
        _ => Ok(path.to_owned()),
    }
}

/// The agent of a configuration cannot be asked.
pub(crate) fn no_status(config: &Path) -> Failure {
    Failure::usage(format!(
        "{}: status: is missing: set status = \"unix:PATH\" and reload the agent",
        config.display()
    ))
}

/// Advice for an agent that does not answer, as the end of an error message.
pub(crate) fn unanswered(error: &std::io::Error) -> &'static str {
    match error.kind() {
        ErrorKind::PermissionDenied => {
            ". The agent answers its own user and root: ask as one of them (sudo, or sudo -u USER)"
        }
        ErrorKind::InvalidInput => ". A socket's path has 1 to 107 bytes",
        _ => ". Is the agent running?",
    }
}

/// Asks an agent for its status.
pub(crate) fn ask(socket: &Path) -> Result<Status, Failure> {
    parda_agent::status::ask(socket).map_err(|e| {
        let hint = match &e {
            AskError::Connect(error) => unanswered(error),
            AskError::Silent => {
                ": the agent hangs or is very busy, or this is another socket than its `status`"
            }
            AskError::Answer(_) => "",
        };
        Failure::new(format!("{}: {e}{hint}", socket.display()))
    })
}

/// The status with control characters escaped in all texts. Names of disks and of other hosts may contain line breaks and
/// commands to a terminal.
pub(crate) fn escaped(status: Status) -> Result<Status, Failure> {
    let wrong = |e: serde_json::Error| Failure::new(format!("cannot show the status: {e}"));
    // Most statuses have none, and taking ten thousand disks apart would dominate the time. JSON escapes some of them.
    let text = serde_json::to_string(&status).map_err(wrong)?;
    if !text.contains('\\') && !text.contains(char::is_control) {
        return Ok(status);
    }
    let mut value = serde_json::to_value(status).map_err(wrong)?;
    escape(&mut value);
    serde_json::from_value(value).map_err(wrong)
}

/// The status with the key of each disk and steered VM in place of its name. Two of a volume may share a name.
pub(crate) fn by_key(mut status: Status) -> Status {
    for volume in &mut status.volumes {
        let keys = disk_keys(&volume.disks);
        volume.disks.iter_mut().zip(keys).for_each(|(disk, key)| disk.name = key);
        let vms = volume.steer.iter_mut().map(|steer| &mut steer.vms);
        for vms in vms {
            let keys = vm_keys(vms);
            vms.iter_mut().zip(keys).for_each(|(vm, key)| vm.name = key);
        }
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

#[cfg(test)]
mod tests {
    use super::status_of;

    #[test]
    fn the_status_socket_is_found_in_a_file_that_is_wrong_elsewhere() {
        let found = Some("/run/a".to_owned());
        assert_eq!(
            status_of("host = \"a\"\nstatus = \"unix:/run/a\" # here\n[[volume]]\nnonsense"),
            found
        );
        assert_eq!(status_of("nonsense\nstatus='unix:/run/a'"), found);
        assert_eq!(status_of("# status = \"unix:/run/b\"\nhost = \"a\""), None);
        assert_eq!(status_of("[volume]\nstatus = \"unix:/run/a\""), None, "another table's");
        assert_eq!(status_of("status = \"tcp:1\""), None);
    }
}
