//! Client of a VM: one fio on one export.

use std::time::Duration;

use parda_scenario::{Scenario, Vm, VmIndex, client_seed};
use parda_workload::fio::{Job, JobTarget, UnsupportedByFio, has_engine};
use parda_workload::{ClientLoad, Workload};

use crate::error::{LabError, LabRefusal};

/// Checks that fio is installed and has an NBD engine.
///
/// # Errors
/// fio is missing, or was built without its NBD engine.
pub fn check() -> Result<(), LabError> {
    match has_engine("nbd") {
        Ok(true) => Ok(()),
        Ok(false) => Err(LabError::failed(
            "this fio was built without its nbd engine: install one with it (Debian's has it)",
        )),
        Err(error) => Err(LabError::failed(format!(
            "fio, which plays the VMs, cannot be run: {error}. Install it (Debian, Ubuntu: apt install fio)"
        ))),
    }
}

/// Checks that fio supports the workloads of all VMs of a scenario.
///
/// # Errors
/// The first VM whose workload fio does not support.
pub fn can_do(scenario: &Scenario) -> Result<(), LabRefusal> {
    scenario.vm_ids().try_for_each(|(id, vm)| {
        let path = format!("{}.vm.{}.workload", scenario.host(id.host).path, id.index);
        load(&mut Job::new(&vm.name), vm).map_err(|what| LabRefusal { paths: vec![path], what })
    })
}

/// Sets the workload of a VM.
fn load(job: &mut Job, vm: &Vm) -> Result<(), String> {
    let unsupported = |key: &str| format!("`{key}`, of {},", vm.name);
    let ClientLoad::Drawn(workload) = &vm.load else { return Err(unsupported("trace")) };
    // The laboratory stops and resumes the client between bursts.
    let workload = Workload { bursts: None, ..workload.clone() };
    job.load(&workload, vm.disk).map_err(|UnsupportedByFio(key)| unsupported(key))
}

/// Arguments of the fio that is a VM's client.
///
/// `seed` is the scenario's. Each VM draws other numbers, and each run of the scenario draws the
/// same. `at_most` bounds the run time of a client that is not stopped.
///
/// # Errors
/// A part of the workload that fio does not support; none after [`can_do`].
pub fn arguments(
    vm: &Vm,
    id: VmIndex,
    target: JobTarget<'_>,
    seed: u64,
    at_most: Duration,
) -> Result<Vec<String>, String> {
    let mut job = Job::new(&vm.name);
    job.target(target);
    load(&mut job, vm)?;
    job.bound(at_most, client_seed(seed, id));
    job.set("eta", "never");
    Ok(job.arguments())
}

#[cfg(test)]
mod tests {
    use super::*;
    use parda_config::Document;
    use parda_control::Bytes;
    use parda_scenario::HostIndex;
    use parda_workload::{ArrivalRule, Bursts, SizePart};

    fn closed(outstanding: u32) -> Workload {
        Workload {
            sizes: vec![SizePart { size: Bytes::kib(16), percent: 100 }],
            read_percent: 67.0,
            random_percent: 70.0,
            hot: None,
            demand: ArrivalRule::Closed { outstanding },
            one_stream: false,
            trim_percent: 0.0,
            bursts: None,
        }
    }

    fn told(workload: Workload, id: VmIndex) -> Vec<String> {
        let (name, disk, load) = ("db".to_owned(), Bytes(1 << 30), workload.into());
        let vm = Vm { name, settings: Default::default(), disk, lun: 0, load };
        let target = JobTarget::Nbd("nbd+unix:///db?socket=/run/h1");
        arguments(&vm, id, target, 7, Duration::from_secs(90)).unwrap()
    }

    const fn id(index: usize) -> VmIndex {
        VmIndex { host: HostIndex(1), index }
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
                "--iodepth=24",
                "--runtime=90",
            ],
        );
        assert_eq!(args, told(closed(24), id(0)));
        assert_ne!(args, told(closed(24), id(1)), "another VM draws other numbers");
        let bursts = Some(Bursts { on: Duration::from_secs(2), off: Duration::from_secs(8) });
        let stopped = told(Workload { bursts, ..closed(24) }, id(0));
        assert_eq!(stopped, args, "between bursts it is stopped, and thinks no time");
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
        assert!(error.to_string().starts_with("`one_stream`, of web, is beyond"), "{error}");
        let error = can_do(&scenario("rate = 500")).unwrap_err().to_string();
        assert!(error.starts_with("`rate`, of web, is beyond"), "{error}");
    }

    #[test]
    fn a_trace_is_refused_by_name() {
        let folder = tempfile::tempdir().unwrap();
        let log = "fio version 3 iolog\n0 d read 0 512\n9 d read 512 512\n";
        std::fs::write(folder.path().join("t.log"), log).unwrap();
        let text = "name = \"t\"\nduration = \"3s\"\n[array]\npreset = \"cx3-40-raid0\"\n\
                    [[host]]\nname = \"a\"\n[[host.vm]]\nname = \"web\"\nshares = 1\n\
                    workload = { trace = \"t.log\" }\n\
                    [[phase]]\nname = \"p\"\nfrom = \"1s\"\nto = \"2s\"\n";
        let name = folder.path().join("t.toml").display().to_string();
        let scenario = Scenario::parse(&Document::new(name, text)).unwrap();
        let error = can_do(&scenario).unwrap_err().to_string();
        assert!(error.starts_with("`trace`, of web, is beyond the laboratory"), "{error}");
    }
}
