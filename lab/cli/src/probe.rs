//! `parda-lab probe`: the probe, with the array model among its targets.

use parda_array::Preset;
use parda_probe_tools::{Target, TargetError, Writes};

const TARGETS: &str = "\
TARGET is the array model, model:NAME, of its first LUN, or model:NAME/lun2, driven in virtual time; or what
parda probe takes. NAME is one of {presets}.";

const EXAMPLES: &str = "  parda-lab probe model:drive-7200
  parda-lab probe model:flash-nvme --quick
  parda-lab probe model:drive-7200 --experiment elling --page elling.html
  parda-lab probe model:cx3-40-raid5-vms --mix 8k,67,70 --mix 4k,100,100 --depths 1-64 --only depth
  parda-lab probe model:cx3-40-raid0 --json - | jq '.points[] | [.outstanding, .all.iops, .all.mean_ms]'";

/// Help of the command, with the names of the model's presets.
pub(crate) fn help() -> String {
    parda_terminal::probe::help(&TARGETS.replace("{presets}", &presets()), EXAMPLES)
}

/// Names of the model's presets: `a, b and c`.
fn presets() -> String {
    let names = Preset::ALL.map(Preset::name).join(", ");
    names.rsplit_once(", ").map_or(names.clone(), |(most, last)| format!("{most} and {last}"))
}

/// Finds the target of a name: a model, or one of `parda probe`.
pub(crate) fn open(
    name: &str,
    writes: &Writes,
    create: Option<u64>,
) -> Result<Target, TargetError> {
    match name.strip_prefix("model:") {
        Some(model) if create.is_none() => parda_sim::probe::target(model),
        _ => Target::open(name, writes, create),
    }
}
