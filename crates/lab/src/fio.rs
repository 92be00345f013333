//! A VM's client: one fio on one export.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use parda_scenario::workload::{Hot, SizePart};
use parda_scenario::{Demand, Scenario, Vm, VmId};

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

/// Checks that fio can do what all VMs of a scenario do.
///
/// # Errors
/// It cannot, for the VM that is named.
pub fn can_do(scenario: &Scenario) -> Result<(), LabError> {
    let open = |vm: &Vm| matches!(vm.workload.demand, Demand::Open { .. });
    if let Some((_, vm)) = scenario.vm_ids().find(|(_, vm)| open(vm)) {
        return Err(LabError::OpenLoop { vm: vm.name.clone() });
    }
    match scenario.vm_ids().find(|(_, vm)| vm.workload.one_stream) {
        Some((_, vm)) => Err(LabError::OnlySimulated(format!(
            "`one_stream`, of {}, which fio cannot do,",
            vm.name
        ))),
        None => Ok(()),
    }
}

/// Where a VM finds its disk.
#[derive(Clone, Copy, Debug)]
pub enum Target<'a> {
    /// Exported by its name at a unix socket.
    Nbd(&'a Path),
    /// A block device.
    Device(&'a str),
}

/// What the client of a VM is told.
///
/// `seed` is the scenario's: every VM draws other numbers, every run of a scenario the same.
/// `at_most` bounds how long it runs if nobody stops it.
#[must_use]
pub fn arguments(
    vm: &Vm,
    id: VmId,
    target: Target<'_>,
    seed: u64,
    at_most: Duration,
) -> Vec<String> {
    let workload = &vm.workload;
    let mut arguments = Vec::new();
    let mut set = |key: &str, value: String| arguments.push(format!("--{key}={value}"));
    set("name", vm.name.clone());
    match target {
        Target::Nbd(socket) => {
            set("ioengine", "nbd".to_owned());
            set("uri", format!("nbd+unix:///{}?socket={}", vm.name, socket.display()));
        }
        Target::Device(path) => {
            set("ioengine", "libaio".to_owned());
            set("direct", "1".to_owned());
            set("filename", path.to_owned());
        }
    }
    set("rw", "randrw".to_owned());
    set("rwmixread", format!("{:.0}", workload.read_percent));
    set("percentage_random", format!("{:.0}", workload.random_percent));
    match workload.sizes.as_slice() {
        [only] => set("bs", only.size.0.to_string()),
        several => {
            let part = |part: &SizePart| format!("{}/{}", part.size.0, part.percent);
            set("bssplit", several.iter().map(part).collect::<Vec<_>>().join(":"));
        }
    }
    if let Some(Hot { part_percent: part, hits_percent: hits }) = workload.hot {
        let (rest, misses) = (100.0 - part, 100.0 - hits);
        set("random_distribution", format!("zoned:{hits:.0}/{part:.0}:{misses:.0}/{rest:.0}"));
    }
    set("size", vm.disk.0.to_string());
    // No other demand comes here: `can_do`.
    if let Demand::Closed { outstanding } = workload.demand {
        set("iodepth", outstanding.to_string());
    }
    set("time_based", "1".to_owned());
    set("runtime", at_most.as_secs().max(1).to_string());
    // A map of the blocks that were used would cost memory and, late in a run, time.
    set("norandommap", "1".to_owned());
    set("random_generator", "tausworthe64".to_owned());
    set("randseed", client_seed(seed, id).to_string());
    // One process, so that killing it leaves nothing behind.
    set("thread", "1".to_owned());
    set("eta", "never".to_owned());
    arguments
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
    use parda_config::Document;
    use parda_control::{Bytes, Shares};
    use parda_scenario::{HostId, Workload};

    fn closed(outstanding: u32) -> Workload {
        Workload {
            sizes: vec![SizePart { size: Bytes::kib(16), percent: 100 }],
            read_percent: 67.0,
            random_percent: 70.0,
            hot: None,
            demand: Demand::Closed { outstanding },
            one_stream: false,
            bursts: None,
        }
    }

    fn told(workload: Workload, id: VmId) -> Vec<String> {
        let (name, shares, disk) = ("db".to_owned(), Shares(1), Bytes(1 << 30));
        let vm = Vm { name, shares, burst: 0.0, disk, lun: 0, workload };
        arguments(&vm, id, Target::Nbd(Path::new("/run/h1")), 7, Duration::from_secs(90))
    }

    const fn id(index: usize) -> VmId {
        VmId { host: HostId(1), index }
    }

    fn has(args: &[String], wanted: &[&str]) {
        for want in wanted {
            assert!(args.iter().any(|a| a == want), "{want}: {args:?}");
        }
    }

    #[test]
    fn the_command_says_what_the_workload_says() {
        let args = told(closed(24), id(0));
        has(
            &args,
            &[
                "--uri=nbd+unix:///db?socket=/run/h1",
                "--rwmixread=67",
                "--percentage_random=70",
                "--bs=16384",
                "--size=1073741824",
                "--iodepth=24",
                "--runtime=90",
            ],
        );
        assert_eq!(args, told(closed(24), id(0)));
        assert_ne!(args, told(closed(24), id(1)), "another VM draws other numbers");
        let more = ["bssplit", "random_distribution"];
        assert!(!args.iter().any(|a| more.iter().any(|key| a.contains(key))), "{args:?}");
    }

    #[test]
    fn sizes_and_the_hot_part_are_said_in_fios_words() {
        let part = |kib, percent| SizePart { size: Bytes::kib(kib), percent };
        let workload = Workload {
            sizes: vec![part(4, 70), part(64, 30)],
            hot: Some(Hot { part_percent: 10.0, hits_percent: 85.0 }),
            ..closed(24)
        };
        let args = told(workload, id(0));
        has(
            &args,
            &[
                "--bssplit=4096/70:65536/30",
                "--random_distribution=zoned:85/10:15/90",
                "--iodepth=24",
            ],
        );
        assert!(!args.iter().any(|a| a.starts_with("--bs=")), "{args:?}");
    }

    #[test]
    fn an_open_loop_is_refused_by_name() {
        let text = |demand: &str| {
            format!(
                "name = \"t\"\nduration = \"3s\"\n[array]\npreset = \"cx3-40-raid0\"\n\
                 [[host]]\nname = \"a\"\n[[host.vm]]\nname = \"web\"\nshares = 1\n\
                 disk = \"1GiB\"\n\
                 workload = {{ size = \"4KiB\", read = 100, random = 100, {demand} }}\n\
                 [[phase]]\nname = \"p\"\nfrom = \"1s\"\nto = \"2s\"\n"
            )
        };
        let scenario =
            |demand: &str| Scenario::parse(&Document::new("t.toml", text(demand))).unwrap();
        assert!(can_do(&scenario("outstanding = 8")).is_ok());
        let error = can_do(&scenario("outstanding = 8, one_stream = true")).unwrap_err();
        assert!(error.to_string().starts_with("`one_stream`, of web, which"), "{error}");
        let error = can_do(&scenario("rate = 500")).unwrap_err().to_string();
        assert!(error.starts_with("web is an open loop"), "{error}");
    }
}
