//! libvirt as `virsh` shows it.

use std::process::Command;

use crate::Failure;

/// A connection to libvirt.
pub(super) struct Virsh<'a> {
    pub(super) uri: &'a str,
}

impl Virsh<'_> {
    /// Names of all domains that are defined.
    pub(super) fn domains(&self) -> Result<Vec<String>, Failure> {
        self.list(&["--all"])
    }

    /// Names of domains that would start from a saved state, which has its own definition.
    pub(super) fn saved(&self) -> Result<Vec<String>, Failure> {
        self.list(&["--all", "--with-managed-save"])
    }

    /// Names of domains whose definition outlives them.
    pub(super) fn persistent(&self) -> Result<Vec<String>, Failure> {
        self.list(&["--all", "--persistent"])
    }

    fn list(&self, which: &[&str]) -> Result<Vec<String>, Failure> {
        let names = self.run(&[&["list", "--name"], which].concat())?;
        Ok(names.lines().filter(|name| !name.is_empty()).map(str::to_owned).collect())
    }

    /// Whether a domain is shut off.
    pub(super) fn is_off(&self, domain: &str) -> Result<bool, Failure> {
        Ok(self.run(&["domstate", "--domain", domain])?.trim() == "shut off")
    }

    /// The definition from which a domain starts next, with its passwords: without them it would lose these.
    pub(super) fn definition(&self, domain: &str) -> Result<String, Failure> {
        self.run(&["dumpxml", "--inactive", "--security-info", "--domain", domain])
    }

    /// Defines a domain by a file.
    pub(super) fn define(&self, file: &str) -> Result<(), Failure> {
        self.run(&["define", "--file", file]).map(drop)
    }

    fn run(&self, arguments: &[&str]) -> Result<String, Failure> {
        let command = format!("virsh -c {} {}", self.uri, arguments.join(" "));
        let mut virsh = Command::new("virsh");
        virsh.env("LC_ALL", "C").args(["--quiet", "--connect", self.uri]).args(arguments);
        let done = virsh.output().map_err(|error| {
            Failure::new(format!(
                "virsh: {error}: install libvirt's clients (Debian: libvirt-clients)"
            ))
        })?;
        if !done.status.success() {
            let error = String::from_utf8_lossy(&done.stderr);
            return Err(Failure::new(format!("{command}: {}", error.trim())));
        }
        String::from_utf8(done.stdout)
            .map_err(|_| Failure::new(format!("{command}: the answer is not UTF-8")))
    }
}
