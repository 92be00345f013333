//! `parda steer watch`: what a device does, second by second.

use std::fs::File;
use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::{Args, ValueEnum};
use parda_steer::DevNum;
use parda_steer::measure::{self, MethodChoice, Watched};
use parda_terminal::output::unwritten;
use parda_terminal::{Failure, output};

use super::arguments::DeviceArg;
use super::reading::Shown;

const SECOND: Duration = Duration::from_secs(1);
/// To the upper left corner, and nothing below it.
const AFRESH: &str = "\x1b[H\x1b[J";

#[derive(Args)]
#[command(after_help = "\
Latency is the device's own, from the issue of an IO to its completion; an IO that waits for room in a
queue is pending, and not yet outstanding.

Examples:
  parda steer watch /dev/sdb
  parda steer watch /dev/mapper/san --seconds 10 --json - | jq .reads.mean_ms")]
pub(crate) struct Watch {
    #[command(flatten)]
    device: DeviceArg,
    /// End after so many seconds
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    seconds: Option<u64>,
    /// How to measure the device's latency
    #[arg(long, value_enum, default_value = "auto")]
    method: Method,
    /// Write each second as a line of JSON to a file, - for standard output
    #[arg(long, value_name = "OUT")]
    json: Option<PathBuf>,
}

#[derive(Clone, Copy, ValueEnum)]
enum Method {
    /// eBPF if it can be had, else Little's law
    Auto,
    /// Each IO, at the kernel's tracepoints
    Ebpf,
    /// Little's law, from the kernel's counters: no sizes, no percentiles, and a known error
    Little,
}

impl Watch {
    pub(crate) fn run(&self) -> Result<(), Failure> {
        output::check([&self.json])?;
        let name = self.device.device.display().to_string();
        let watched = Watched::find("/".as_ref(), &self.device.device)
            .map_err(|e| Failure::usage(e.to_string()))?;
        let choice = match self.method {
            Method::Auto => MethodChoice::Auto,
            Method::Ebpf => MethodChoice::Ebpf,
            Method::Little => MethodChoice::Little,
        };
        let failed = |e| Failure::new(format!("{name}: {e}"));
        let mut meter = measure::open(&watched, choice).map_err(failed)?;
        let mut out = self.json.as_deref().map(Lines::to).transpose()?;
        let begun = Instant::now();
        let mut second = 0;
        while self.seconds.is_none_or(|last| second < last) {
            second += 1;
            let next = begun + SECOND * u32::try_from(second).unwrap_or(u32::MAX);
            std::thread::sleep(next.saturating_duration_since(Instant::now()));
            let shown = Shown::of(&meter.read().map_err(failed)?, meter.because());
            let read_on = match &mut out {
                Some(lines) => lines.write(&shown)?,
                None => output::tell(&table(&name, &watched, &shown, second))?,
            };
            if !read_on {
                break;
            }
        }
        Ok(())
    }
}

/// In a terminal always in the same place; else one below the other.
fn table(name: &str, watched: &Watched, shown: &Shown, second: u64) -> String {
    let list =
        |devices: &[DevNum]| devices.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ");
    let apart = match std::io::stdout().is_terminal() {
        true => AFRESH,
        false if second > 1 => "\n",
        false => "",
    };
    let mut text = format!("{apart}{name} ({})", list(&watched.leaves));
    if watched.fronts != watched.leaves {
        text += &format!(", queued at {}", list(&watched.fronts));
    }
    text += &format!(": {}", shown.method());
    text += &format!("\n\n{}\n", shown.table());
    text
}

/// A file with one JSON object a line; `-` is standard output.
struct Lines {
    to: PathBuf,
    file: Option<File>,
}

impl Lines {
    fn to(path: &Path) -> Result<Lines, Failure> {
        let file = (path.as_os_str() != "-").then(|| File::create(path)).transpose();
        let file = file.map_err(|error| unwritten(path, &error))?;
        Ok(Lines { to: path.to_owned(), file })
    }

    /// Writes a reading. False when the reader has gone.
    fn write(&mut self, shown: &Shown) -> Result<bool, Failure> {
        let line = serde_json::to_string(shown)
            .map_err(|e| Failure::new(format!("cannot write the reading as JSON: {e}")))?;
        let Some(file) = &mut self.file else { return output::tell(&line) };
        let written = writeln!(file, "{line}").map(|()| true);
        written.map_err(|error| unwritten(&self.to, &error))
    }
}
