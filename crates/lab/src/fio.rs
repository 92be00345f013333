//! A VM's client: one fio that keeps so many IOs under way on one export, always.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use parda_scenario::{Vm, VmId, Workload};

use crate::error::LabError;

/// Checks that there is a fio that speaks NBD.
///
/// # Errors
/// There is none.
pub fn check() -> Result<(), LabError> {
    let engines = Command::new("fio").arg("--enghelp").output().map_err(LabError::NoFio)?;
    let speaks_nbd = String::from_utf8_lossy(&engines.stdout).lines().any(|l| l.trim() == "nbd");
    if speaks_nbd { Ok(()) } else { Err(LabError::NoNbdEngine) }
}

/// The client of a VM whose disk is exported at a unix socket.
///
/// `seed` is the scenario's: every VM draws other numbers, every run of a scenario the same.
/// `at_most` bounds how long it runs if nobody stops it.
#[must_use]
pub fn command(vm: &Vm, id: VmId, socket: &Path, seed: u64, at_most: Duration) -> Command {
    let Workload { size, read_percent, random_percent, outstanding } = vm.workload;
    let mut fio = Command::new("fio");
    let mut set = |key: &str, value: String| {
        fio.arg(format!("--{key}={value}"));
    };
    set("name", vm.name.clone());
    set("ioengine", "nbd".to_owned());
    set("uri", format!("nbd+unix:///{}?socket={}", vm.name, socket.display()));
    set("rw", "randrw".to_owned());
    set("rwmixread", format!("{read_percent:.0}"));
    set("percentage_random", format!("{random_percent:.0}"));
    set("bs", size.0.to_string());
    set("size", vm.disk.0.to_string());
    set("iodepth", outstanding.to_string());
    set("time_based", "1".to_owned());
    set("runtime", at_most.as_secs().max(1).to_string());
    // A map of the blocks that were used would cost memory and, late in a run, time.
    set("norandommap", "1".to_owned());
    set("random_generator", "tausworthe64".to_owned());
    set("randseed", client_seed(seed, id).to_string());
    // One process, so that killing it leaves nothing behind.
    set("thread", "1".to_owned());
    set("eta", "never".to_owned());
    fio
}

/// A seed of its own for each client.
fn client_seed(seed: u64, id: VmId) -> u64 {
    // Any mixing will do that tells (seed, host, VM) apart; 32 bits are what fio takes.
    let mixed = [seed, id.host.0 as u64, id.index as u64]
        .iter()
        .fold(0x9e37_79b9_7f4a_7c15_u64, |h, &x| (h ^ x).wrapping_mul(0x0100_0000_01b3));
    (mixed >> 32 ^ mixed) & 0xffff_ffff
}

#[cfg(test)]
mod tests {
    use super::*;
    use parda_control::{Bytes, Shares};
    use parda_scenario::HostId;

    #[test]
    fn the_command_says_what_the_workload_says() {
        let workload = Workload {
            size: Bytes::kib(16),
            read_percent: 67.0,
            random_percent: 70.0,
            outstanding: 24,
        };
        let vm = Vm {
            name: "db".to_owned(),
            shares: Shares(1),
            burst: 0.0,
            disk: Bytes(1 << 30),
            workload,
        };
        let id = |index| VmId { host: HostId(1), index };
        let of = |id| {
            let command = command(&vm, id, Path::new("/run/h1"), 7, Duration::from_secs(90));
            command.get_args().map(|a| a.to_string_lossy().into_owned()).collect::<Vec<_>>()
        };
        let args = of(id(0));
        for want in [
            "--uri=nbd+unix:///db?socket=/run/h1",
            "--rwmixread=67",
            "--percentage_random=70",
            "--bs=16384",
            "--size=1073741824",
            "--iodepth=24",
            "--runtime=90",
        ] {
            assert!(args.iter().any(|a| a == want), "{want}: {args:?}");
        }
        assert_eq!(args, of(id(0)));
        assert_ne!(args, of(id(1)), "another VM draws other numbers");
    }
}
