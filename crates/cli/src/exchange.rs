//! `parda exchange`.

use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use bytesize::ByteSize;
use clap::{Args, Subcommand};
use parda_api::{Changed, State};
use parda_control::Bytes;
use parda_exchange::region::SlotCount;
use parda_exchange::{Content, Header, Location, Made, Site, VolumeName, init, look};
use parda_terminal::output::plain;
use parda_terminal::{Failure, output, quantity};
use serde::Serialize;

use crate::agent::api::{Agent, segment};
use crate::set::temporarily;

/// Time limit of one call to an NBD server.
const LIMIT: Duration = Duration::from_secs(30);

#[derive(Subcommand)]
pub(crate) enum Exchange {
    /// Make an exchange, once, where the hosts of a volume will meet
    Init(Init),
    /// Show the header of an exchange, and its slots that are not empty
    Show(Show),
    /// Leave a host out on this host, whose reports are wrong
    Ignore(Ignore),
    /// Listen to a host again that was left out
    Heed(Ignore),
}

#[derive(Args)]
#[command(after_help = "\
Examples:
  parda exchange ignore host-7               what host-7 says counts for nothing here, at once
  parda exchange ignore host-7 --temporary   until the agent ends
  parda exchange heed host-7                 it counts again

On all hosts: ignore = \"host-7\" in a policy (parda policy apply) or in each [volume.control].")]
pub(crate) struct Ignore {
    /// Name of the host, as parda peers has it
    #[arg(value_name = "HOST")]
    host: String,
    /// Name of the volume, if there are several
    #[arg(long, value_name = "NAME")]
    volume: Option<String>,
    /// Keep it until the agent ends, not in its state file
    #[arg(long)]
    temporary: bool,
    #[command(flatten)]
    agent: Agent,
}

impl Ignore {
    /// Leaves the host out, or listens to it again.
    fn run(&self, leave_out: bool) -> Result<(), Failure> {
        let volume = self.agent.volume_of(self.volume.as_deref(), None, None)?;
        let state: State = self.agent.get("state")?;
        let of = state.volumes.iter().find(|of| of.name == volume);
        let of = of.ok_or_else(|| Failure::usage(format!("--volume {volume}: there is none")))?;
        let known = of.hosts.iter().filter(|host| !host.own).map(|host| &host.name);
        let known: Vec<&String> = known.chain(&of.ignored).collect();
        if !known.contains(&&self.host) {
            let known: Vec<&str> = known.into_iter().map(String::as_str).collect();
            let known = output::line(&known.join(", "));
            return Err(Failure::usage(format!("{}: is no other host here: {known}", self.host)));
        }
        let mut hosts: Vec<&str> = of.ignored.iter().map(String::as_str).collect();
        hosts.retain(|host| *host != self.host);
        if leave_out {
            hosts.push(&self.host);
        }
        let mut body = serde_json::Map::new();
        body.insert("ignore".to_owned(), hosts.join(",").into());
        if self.temporary {
            temporarily(&mut body)?;
        }
        let path = format!("volumes/{}", segment(&volume));
        let _: Changed = self.agent.ask("PATCH", &path, Some(&body.into()))?;
        let host = output::line(&self.host);
        output::print(&match leave_out {
            true => format!("volume {volume}: {host} counts for nothing on this host"),
            false => format!("volume {volume}: {host} counts again on this host"),
        })
    }
}

#[derive(Args)]
#[command(after_help = "\
Nothing is changed unless the place is new or empty, or holds nothing but zeros; this cannot be
overridden. Of a device or an export, the first 64 MiB and the last 1 MiB must be zeros. With --offset
only the region must be zeros, and blkid (of util-linux) must find no signature on the whole device or
file. A place that already is such an exchange is left as it is.

Examples:
  parda exchange init /mnt/array-a/parda.exchange --volume array-a
  parda exchange init /dev/mapper/exchange --slots 128 --volume san
  parda exchange init 'nbd://array.example/exchange' --volume array-b
  parda exchange init /dev/vg/scratch --offset 1GiB --volume array-c")]
pub(crate) struct Init {
    #[command(flatten)]
    place: ExchangeArg,
    /// Number of slots, one for each host that may ever join: 1 to 1024, each of 4 KiB
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=i64::from(SlotCount::MAX)))]
    slots: u32,
    /// Name of the volume in parda.toml that the exchange is for; any volume if not given
    #[arg(long, value_name = "NAME")]
    volume: Option<String>,
}

/// Place of an exchange on the command line.
#[derive(Args)]
struct ExchangeArg {
    /// A file, a block device or an NBD URI
    #[arg(value_name = "PLACE")]
    place: String,
    /// Offset of the exchange in a larger device, export or file, a multiple of 4KiB
    #[arg(long, value_name = "SIZE", value_parser = quantity::size)]
    offset: Option<ByteSize>,
}

impl ExchangeArg {
    fn site(&self) -> Result<Site, Failure> {
        let wrong = |e: String| Failure::usage(format!("{}: {e}", self.place));
        if self.place.is_empty() {
            return Err(Failure::usage("the place of an exchange must not be empty"));
        }
        let location: Location =
            self.place.parse().map_err(|e: parda_address::UriError| wrong(e.to_string()))?;
        let offset = self.offset.map(|offset| Bytes(offset.as_u64()));
        Site::new(location, offset).map_err(|e| wrong(e.to_string()))
    }
}

impl Init {
    fn run(&self) -> Result<(), Failure> {
        let site = self.place.site()?;
        let slots = SlotCount::new(self.slots)
            .ok_or_else(|| Failure::usage(format!("--slots {}: must be 1 to 1024", self.slots)))?;
        let volume = self.volume.as_deref().map(VolumeName::new).transpose();
        let volume = volume.map_err(|e| Failure::usage(format!("--volume: {e}")))?;
        let place = &site.location;
        match init(&site, slots, volume, LIMIT).map_err(|e| Failure::new(e.to_string()))? {
            Made::New(header) => output::print(&format!("{place}: made an exchange {header}")),
            Made::Already(header) => {
                output::print(&format!("{place}: is an exchange {header} already, nothing changed"))
            }
        }
    }
}

#[derive(Args)]
#[command(after_help = "\
Examples:
  parda exchange show /mnt/array-a/parda.exchange
  parda exchange show 'nbd://array.example/exchange' --json -")]
pub(crate) struct Show {
    #[command(flatten)]
    place: ExchangeArg,
    /// Write the answer as JSON to a file, - for standard output
    #[arg(long, value_name = "OUT")]
    json: Option<PathBuf>,
}

/// An exchange as JSON.
#[derive(Serialize)]
struct Shown {
    header: Head,
    slots: Vec<Row>,
}

/// The header of an exchange as JSON.
#[derive(Serialize)]
struct Head {
    place: String,
    made: String,
    slots: u32,
    volume: Option<String>,
}

/// One slot as JSON, and a row of the table.
#[derive(Default, Serialize)]
struct Row {
    slot: u32,
    host: Option<String>,
    volume: Option<String>,
    sequence: Option<u64>,
    period_s: Option<f64>,
    window: Option<f64>,
    would_be: Option<f64>,
    beta: Option<f64>,
    shares: Option<u32>,
    active_shares: Option<f64>,
    iops: Option<f64>,
    latency_ms: Option<f64>,
    leaving: Option<bool>,
    fault: Option<String>,
}

impl Exchange {
    pub(crate) fn run(&self) -> Result<(), Failure> {
        match self {
            Exchange::Init(init) => init.run(),
            Exchange::Show(show) => show.run(),
            Exchange::Ignore(ignore) => ignore.run(true),
            Exchange::Heed(ignore) => ignore.run(false),
        }
    }
}

impl Show {
    fn run(&self) -> Result<(), Failure> {
        let site = self.place.site()?;
        output::check([&self.json])?;
        let found = look(&site, LIMIT).map_err(|e| Failure::new(e.to_string()))?;
        let found = found.map_err(|e| Failure::new(format!("{}: {e}", site.location)))?;
        let header = head(&found.header);
        let slots =
            (0..).zip(found.slots).filter_map(|(slot, content)| row(slot, content)).collect();
        output::either(self.json.as_deref(), &Shown { header, slots }, |Shown { header, slots }| {
            let used = if slots.is_empty() { "every slot is empty".into() } else { table(slots) };
            let Head { place, made, .. } = header;
            format!("exchange {}\nplace {place}, made {made}\n{used}", found.header)
        })
    }
}

fn head(header: &Header) -> Head {
    let made = SystemTime::UNIX_EPOCH + Duration::from_nanos(header.made_ns);
    Head {
        place: header.place.to_string(),
        made: humantime::format_rfc3339_seconds(made).to_string(),
        slots: header.slots.get(),
        volume: header.volume.as_ref().map(|volume| volume.as_str().to_owned()),
    }
}

fn row(slot: u32, content: Content) -> Option<Row> {
    let record = match content {
        Content::Empty => return None,
        Content::Fault(fault) => {
            return Some(Row { slot, fault: Some(fault.to_string()), ..Row::default() });
        }
        Content::Record(record) => record,
    };
    let body = &record.message.body;
    let all = body.report.interval.reads.plus(body.report.interval.writes);
    let elapsed = body.report.elapsed.secs();
    Some(Row {
        slot,
        host: Some(record.message.from.host.to_string()),
        volume: Some(record.volume.to_string()),
        sequence: Some(record.message.sequence.0),
        period_s: Some(body.period.secs()),
        window: body.report.in_force().map(|w| w.0),
        would_be: body.report.would_be().map(|w| w.0),
        beta: Some(body.report.beta),
        shares: Some(body.report.shares.0),
        active_shares: Some(body.report.active),
        iops: (elapsed > 0.0).then(|| all.ios as f64 / elapsed),
        latency_ms: all.mean().map(|s| s * 1e3),
        leaving: Some(body.leaving),
        fault: None,
    })
}

fn table(rows: &[Row]) -> String {
    let number = |v: Option<f64>| v.map_or(String::new(), |v| format!("{v:.2}"));
    let rows = rows.iter().map(|row| {
        let note = match (&row.fault, row.leaving) {
            (Some(fault), _) => fault.clone(),
            (None, Some(true)) => "has left".to_owned(),
            _ => String::new(),
        };
        [
            row.slot.to_string(),
            row.host.clone().unwrap_or_default(),
            row.sequence.map_or(String::new(), |s| s.to_string()),
            number(row.window),
            number(row.would_be),
            row.shares.map_or(String::new(), |s| s.to_string()),
            number(row.active_shares),
            number(row.iops),
            number(row.latency_ms),
            note,
        ]
    });
    plain("slot|host|sequence|window|would be|shares|active|IOPS|latency ms|", rows).to_string()
}
