//! `parda-lab array`.

use std::path::PathBuf;

use clap::Args;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use parda_address::Address;
use parda_array::{Preset, RaidLevel};
use parda_config::Document;
use parda_lab::array_server::ArrayError;
use parda_lab::{ArrayData, ArrayOptions, run_array};
use parda_scenario::{Scenario, Study};
use parda_terminal::output::count;
use parda_terminal::{Failure, output, quantity};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::sim::variants;

#[derive(Args)]
#[command(after_help = "\
The data is real: what is written is read back, from memory or a sparse file. The timing is that of
modelled drives (docs/array-model.md), so the array congests as a real one does. A preset exports its LUNs as
lun0, lun1, ...; a scenario exports each VM's disk by the VM's name. Both export `exchange`, room
for 64 hosts to exchange latencies on the same drives, once `parda exchange init` has been run on it.

At the socket of --control the array answers one line of JSON for each of \"status\", {\"fail_drive\":2},
\"rebuild\", {\"write_cache\":false} and {\"slow\":2}: docs/array-model.md.

Examples:
  parda-lab array --preset cx3-40-raid5-vms --listen unix:/tmp/array.sock
  parda-lab array --scenario scenarios/demo.toml --listen tcp:127.0.0.1:10809 --data file:/var/tmp/array
  nbdinfo --list 'nbd+unix://?socket=/tmp/array.sock'")]
pub(crate) struct Array {
    /// A modelled array by name
    #[arg(
        long,
        value_name = "NAME",
        conflicts_with = "scenario",
        required_unless_present = "scenario",
        value_parser = preset()
    )]
    preset: Option<Preset>,
    /// The array of a scenario
    #[arg(long, value_name = "FILE")]
    scenario: Option<PathBuf>,
    /// The variant of the scenario, if it has several
    #[arg(long, value_name = "NAME", requires = "scenario")]
    variant: Option<String>,
    /// Change the preset's number of drives
    #[arg(long, value_name = "N", requires = "preset")]
    drives: Option<u32>,
    /// Change the preset's RAID level
    #[arg(long, value_name = "LEVEL", requires = "preset", value_parser = raid())]
    raid: Option<RaidLevel>,
    /// Change the depth of each drive's own queue
    #[arg(long, value_name = "IOS", requires = "preset")]
    queue_depth: Option<u32>,
    /// Where clients connect: unix:PATH or tcp:ADDRESS:PORT; may be given more than once
    #[arg(long, value_name = "ADDRESS", required = true)]
    listen: Vec<Address>,
    /// Listen at TCP addresses that other hosts can reach, where anybody may then read and write
    #[arg(long)]
    plain: bool,
    /// Where the data is: memory, or file:PATH for a sparse file
    #[arg(long, value_name = "WHERE", default_value = "memory", value_parser = data)]
    data: ArrayData,
    /// A unix socket for queries of the array's state and commands such as the failure of a drive
    #[arg(long, value_name = "PATH")]
    control: Option<PathBuf>,
}

fn preset() -> impl TypedValueParser<Value = Preset> {
    let value = |preset: Preset| PossibleValue::new(preset.name()).help(parts(preset));
    PossibleValuesParser::new(Preset::ALL.map(value)).try_map(|name| name.parse::<Preset>())
}

fn raid() -> impl TypedValueParser<Value = RaidLevel> {
    let parser = PossibleValuesParser::new(["raid0", "raid5", "raid10"]);
    parser.try_map(|name| quantity::named::<RaidLevel>(&name))
}

/// LUNs and drives of a preset.
fn parts(preset: Preset) -> String {
    let params = preset.params();
    let luns = params.layout.luns;
    let gib = luns.first().map_or(0, |lun| lun.0 >> 30);
    let raid = format!("{:?}", params.raid.level).replace("Raid", "RAID-");
    let luns = count(luns.len() as u64, "LUN");
    match params.raid.drives {
        1 => format!("{luns} of {gib} GiB on one drive"),
        drives => format!("{luns} of {gib} GiB on a {raid} of {drives} drives"),
    }
}

fn data(text: &str) -> Result<ArrayData, String> {
    match text.strip_prefix("file:") {
        Some(path) if !path.is_empty() => Ok(ArrayData::File(PathBuf::from(path))),
        None if text == "memory" => Ok(ArrayData::Memory),
        _ => Err("must be memory or file:PATH".to_owned()),
    }
}

impl Array {
    pub(crate) fn run(&self) -> Result<(), Failure> {
        // Caught from here on, so that a signal during the start is not lost.
        let mut signals = Signals::new([SIGINT, SIGTERM])
            .map_err(|e| Failure::new(format!("cannot catch signals: {e}")))?;
        if let Some(exposed) = self.listen.iter().find(|a| !a.is_local() && !self.plain) {
            return Err(Failure::usage(format!(
                "--listen {exposed}: not a loopback address, and anybody who reaches it could read \
                 and write: add --plain if that is meant"
            )));
        }
        let options = ArrayOptions { control: self.control.clone(), ..self.options()? };
        let names = options.exports.join(", ");
        let mut said = Ok(());
        run_array(options, |handle| {
            let places: Vec<String> = handle.addresses().iter().map(Address::to_string).collect();
            said = output::print(&format!("serving {names} at {}", places.join(", ")));
            signals.forever().next();
        })
        .map_err(|e| match e {
            ArrayError::Impossible(why) => Failure::usage(why),
            ArrayError::Failed(why) => Failure::new(why),
        })?;
        said
    }

    fn options(&self) -> Result<ArrayOptions, Failure> {
        let (listen, data) = (self.listen.clone(), self.data.clone());
        match (&self.scenario, self.preset) {
            (Some(file), _) => {
                let document = Document::read(file)?;
                let scenario = match &self.variant {
                    None => Scenario::parse(&document)?,
                    Some(variant) => {
                        let one = std::slice::from_ref(variant);
                        variants(Study::parse(&document)?, file, one)?.runs.swap_remove(0).scenario
                    }
                };
                ArrayOptions::of_scenario(&scenario, listen, data)
                    .map_err(|e| Failure::usage(format!("{}: {e}", file.display())))
            }
            (None, Some(preset)) => {
                let mut params = preset.params();
                params.raid.drives = self.drives.unwrap_or(params.raid.drives);
                params.raid.level = self.raid.unwrap_or(params.raid.level);
                let depth = params.drive.queue_depth_mut();
                *depth = self.queue_depth.unwrap_or(*depth);
                Ok(ArrayOptions::of_preset(params, listen, data))
            }
            (None, None) => Err(Failure::usage("name a preset or a scenario")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_preset_tells_its_luns() {
        let told = |name: &str| parts(name.parse().unwrap());
        assert_eq!(told("drive-7200"), "1 LUN of 478 GiB on one drive");
        assert_eq!(told("cx3-40-raid5-vms"), "7 LUNs of 8 GiB on a RAID-5 of 5 drives");
    }
}
