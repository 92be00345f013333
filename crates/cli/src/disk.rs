//! `parda disk`: disks that are added and removed while the agent runs.

use clap::{Args, Subcommand};
use parda_api::{DiskDone, ValueFrom};
use parda_terminal::{Failure, output};
use serde_json::{Map, Value};

use crate::agent::api::{Agent, segment};
use crate::set::{once, temporarily};

#[derive(Subcommand)]
pub(crate) enum Disk {
    /// Serve one more disk
    Add(Add),
    /// Stop serving a disk; its data stays as it is
    Remove(Remove),
}

#[derive(Args)]
#[command(after_help = "\
Examples:
  parda disk add vm9 path=/mnt/array-a/vm9.img listen=unix:/run/parda/array-a.sock shares=500
  parda disk add vm9 path=/dev/vg/vm9 listen=tcp:127.0.0.1:10809 read_only=true --temporary
  parda disk add vm1                                 a disk of the configuration that was removed

The disk is checked as those of the configuration are, and opened at once. If it cannot be opened, it is not added. Over TCP it
takes a token with the role admin, as a disk names a file of the host.")]
pub(crate) struct Add {
    /// Name of the disk
    #[arg(value_name = "NAME")]
    disk: String,
    /// Keys of [[volume.disk]]: path, listen, and any other of its keys
    #[arg(value_name = "KEY=VALUE")]
    settings: Vec<String>,
    #[command(flatten)]
    common: Common,
}

#[derive(Args)]
#[command(after_help = "\
Examples:
  parda disk remove vm9
  parda drain vm9 --wait 60s && parda disk remove vm9

Requests in flight are answered, then its connections close. The data stays as it is.")]
pub(crate) struct Remove {
    /// Name of the disk
    #[arg(value_name = "NAME")]
    disk: String,
    #[command(flatten)]
    common: Common,
}

#[derive(Args)]
struct Common {
    /// Name of the volume, if there are several
    #[arg(long, value_name = "NAME")]
    volume: Option<String>,
    /// Until the agent ends, and not kept in its state file
    #[arg(long)]
    temporary: bool,
    /// Write the answer as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    agent: Agent,
}

impl Disk {
    pub(crate) fn run(&self) -> Result<(), Failure> {
        match self {
            Disk::Add(add) => add.run(),
            Disk::Remove(remove) => remove.run(),
        }
    }
}

impl Add {
    fn run(&self) -> Result<(), Failure> {
        let body = self.body()?;
        let volume = self.common.agent.volume_of(self.common.volume.as_deref(), None, None)?;
        let path = format!("volumes/{}/disks", segment(&volume));
        let done: DiskDone = self.common.agent.ask("POST", &path, Some(&Value::Object(body)))?;
        let how = match done.from {
            ValueFrom::Live | ValueFrom::State => done.from.words(),
            _ => "as the configuration says",
        };
        self.common.tell(&done, how)
    }

    /// The disk as the API takes it.
    fn body(&self) -> Result<Map<String, Value>, Failure> {
        let mut body = once(self.settings.iter().map(String::as_str))?;
        if let Some(name) = body.insert("name".to_owned(), self.disk.as_str().into()) {
            return Err(Failure::usage(format!(
                "name = {name}: the first argument, {:?}, is the disk's name: leave one out",
                self.disk
            )));
        }
        if self.common.temporary {
            temporarily(&mut body)?;
        }
        Ok(body)
    }
}

impl Remove {
    fn run(&self) -> Result<(), Failure> {
        let Common { volume, agent, temporary, .. } = &self.common;
        let volume = agent.volume_of(volume.as_deref(), Some(&self.disk), None)?;
        let keep = if *temporary { "?keep=until_restart" } else { "" };
        let path = format!("volumes/{}/disks/{}{keep}", segment(&volume), segment(&self.disk));
        let done: DiskDone = agent.ask("DELETE", &path, None)?;
        // For disks of the same name, the key contains the listener.
        let key = self.disk.strip_prefix(&*done.disk).and_then(|key| key.strip_prefix('@'));
        let listen = key.map_or_else(String::new, |listen| format!(" listen={listen}"));
        let again = |whose| {
            format!(
                "{}; parda disk add {}{listen} serves {whose} again",
                done.from.words(),
                done.disk
            )
        };
        // A disk that replaced another differs from the one that returns.
        let how = match done.from {
            ValueFrom::Live => again("that of the state file or the configuration"),
            ValueFrom::State => again("that of the configuration"),
            _ => "as it was added: the configuration has no such disk".to_owned(),
        };
        self.common.tell(&done, &how)
    }
}

impl Common {
    /// Prints the result. `how`: its duration, and the way back.
    fn tell(&self, done: &DiskDone, how: &str) -> Result<(), Failure> {
        output::tell_as(self.json, done, |done| {
            let state = done.state.as_deref().unwrap_or("removed");
            let told = format!("volume {}, disk {}: {state}, {how}", done.volume, done.disk);
            output::line(&told)
        })
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Command {
        #[command(flatten)]
        add: Add,
    }

    fn body(arguments: &str) -> Result<Value, String> {
        let command = Command::parse_from(arguments.split(' '));
        command.add.body().map(Value::Object).map_err(|failure| {
            assert_eq!(failure.code, 2);
            failure.message
        })
    }

    #[test]
    fn no_argument_of_a_new_disk_is_left_out() {
        assert_eq!(
            body("add vm9 shares=5 keep=state").unwrap(),
            serde_json::json!({ "name": "vm9", "shares": 5, "keep": "state" })
        );
        assert_eq!(body("add vm9 --temporary").unwrap()["keep"], "until_restart");
        assert_eq!(
            body("add vm9 name=vm8 shares=5").unwrap_err(),
            "name = \"vm8\": the first argument, \"vm9\", is the disk's name: leave one out"
        );
        assert_eq!(
            body("add vm9 keep=state --temporary").unwrap_err(),
            "keep: is set by --temporary as well: leave one out"
        );
    }
}
