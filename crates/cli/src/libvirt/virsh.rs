//! libvirt as `virsh` shows it.
//!
//! Domains are asked for by UUID: `virsh` takes a name that is a number for the ID of a domain that runs.

use std::io::Write as _;
use std::process::{Command, Stdio};

use parda_terminal::Failure;

use super::domain::Domain;

/// A connection to libvirt.
pub(super) struct Virsh<'a> {
    pub(super) uri: &'a str,
}

/// A domain of the list.
pub(super) struct Listed {
    pub(super) uuid: String,
    name: String,
}

impl Virsh<'_> {
    /// All domains: those that are defined, and those that run without a definition.
    pub(super) fn domains(&self) -> Result<Vec<Listed>, Failure> {
        let text = self.run(&["list", "--all", "--uuid", "--name"])?;
        // A name may hold all but a line feed, also a carriage return.
        let rows = text.split('\n').filter_map(|row| row.split_once(' '));
        Ok(rows
            .map(|(uuid, name)| Listed { uuid: uuid.to_owned(), name: name.to_owned() })
            .collect())
    }

    /// UUIDs of domains that would start from a saved state, which has its own definition.
    pub(super) fn saved(&self) -> Result<Vec<String>, Failure> {
        self.uuids("--with-managed-save")
    }

    /// UUIDs of domains whose definition outlives them.
    pub(super) fn persistent(&self) -> Result<Vec<String>, Failure> {
        self.uuids("--persistent")
    }

    fn uuids(&self, which: &str) -> Result<Vec<String>, Failure> {
        let text = self.run(&["list", "--uuid", "--all", which])?;
        Ok(text.lines().filter(|uuid| !uuid.is_empty()).map(str::to_owned).collect())
    }

    /// Whether a domain is shut off.
    pub(super) fn is_off(&self, uuid: &str) -> Result<bool, Failure> {
        Ok(self.run(&["domstate", "--domain", uuid])?.trim() == "shut off")
    }

    /// The domain of that name, with its definition.
    pub(super) fn named(&self, name: &str, of: &[Listed]) -> Result<(Domain, String), Failure> {
        // virsh may fill names up with spaces.
        let alike =
            |listed: &&Listed| listed.name.trim_end_matches(' ') == name.trim_end_matches(' ');
        for listed in of.iter().filter(alike) {
            let (domain, xml) = self.read(&listed.uuid)?;
            if domain.name == name {
                return Ok((domain, xml));
            }
        }
        Err(Failure::usage(format!("domain {name}: no domain has this name: see virsh list --all")))
    }

    /// A domain with its definition.
    pub(super) fn read(&self, uuid: &str) -> Result<(Domain, String), Failure> {
        let xml = self.definition(uuid)?;
        let wrong = |why: String| Failure::new(format!("domain {uuid}: {why}"));
        let domain = Domain::parse(&xml).map_err(wrong)?;
        if domain.uuid != uuid {
            return Err(wrong(format!("libvirt gives the definition of {}", domain.uuid)));
        }
        Ok((domain, xml))
    }

    /// All of these domains.
    pub(super) fn read_all(&self, listed: &[Listed]) -> Result<Vec<Domain>, Failure> {
        listed.iter().map(|each| Ok(self.read(&each.uuid)?.0)).collect()
    }

    /// The definition from which a domain starts next, with its passwords: without them it would lose these.
    pub(super) fn definition(&self, uuid: &str) -> Result<String, Failure> {
        self.run(&["dumpxml", "--inactive", "--security-info", "--domain", uuid])
    }

    /// Defines a domain. Its definition goes there by a pipe: a file could be another one by the time that it is read.
    pub(super) fn define(&self, xml: &str) -> Result<(), Failure> {
        self.tell(&["define", "--file", "/dev/stdin"], xml).map(drop)
    }

    fn run(&self, arguments: &[&str]) -> Result<String, Failure> {
        self.tell(arguments, "")
    }

    fn tell(&self, arguments: &[&str], input: &str) -> Result<String, Failure> {
        let command = format!("virsh -c {} {}", self.uri, arguments.join(" "));
        let mut virsh = Command::new("virsh");
        virsh.env("LC_ALL", "C").args(["--quiet", "--connect", self.uri]).args(arguments);
        virsh.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut running = virsh.spawn().map_err(|error| {
            Failure::new(format!(
                "virsh: {error}: install libvirt's clients (Debian: libvirt-clients)"
            ))
        })?;
        // virsh reads all of it before it says anything.
        let told = running.stdin.take().map_or(Ok(()), |mut pipe| pipe.write_all(input.as_bytes()));
        let failed = |error: std::io::Error| Failure::new(format!("{command}: {error}"));
        let done = running.wait_with_output().map_err(failed)?;
        if !done.status.success() {
            let error = String::from_utf8_lossy(&done.stderr);
            return Err(Failure::new(format!("{command}: {}", error.trim())));
        }
        told.map_err(failed)?;
        String::from_utf8(done.stdout)
            .map_err(|_| Failure::new(format!("{command}: the answer is not UTF-8")))
    }
}
