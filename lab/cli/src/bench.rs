//! `parda-lab bench`.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bytesize::ByteSize;
use clap::{Args, Subcommand, ValueEnum};
use parda_address::Uri;
use parda_bench::{BenchError, BenchPlan, BenchSummary, LoadMeasured, Operation};
use parda_config::quantity::exact_size;
use parda_probe_tools::{TargetError, Writes, writable_export};
use parda_terminal::quantity::{bytes, percent};
use parda_terminal::{Failure, output, quantity};
use serde::Serialize;

#[derive(Subcommand)]
pub(crate) enum Bench {
    /// Load NBD exports with a client that takes little CPU time itself
    Nbd(Nbd),
    /// Load a server of vhost-user-blk with the reads of a guest
    VhostUser(VhostUser),
}

impl Bench {
    pub(crate) fn run(&self) -> Result<(), Failure> {
        match self {
            Self::Nbd(nbd) => nbd.run(),
            Self::VhostUser(guest) => guest.run(),
        }
    }
}

const EXAMPLES: &str = "\
URI is nbd://HOST[:PORT]/EXPORT or nbd+unix:///EXPORT?socket=PATH; with TLS nbds:// or nbds+unix://, and
tls-certificates=DIRECTORY (ca-cert.pem, client-cert.pem, client-key.pem) as a parameter. With TLS each connection has
a thread that encrypts. Several URIs share the client's threads; each gets all of --connections.

Each connection keeps --depth requests outstanding: after each receive, the client sends as many new requests at once
as replies came. Latency runs from before that send to the end of the reply. fio's nbd engine takes several
times the CPU, which on a machine that runs client and server is CPU that the server does not get.

The client only reads, unless --allow-writes=URI names the export again; then the rules of `parda probe` hold: the
export may hold no known signature, and its first and last MiB, which are left alone, must be zeroes or the mark of
an earlier run.

Exit status: 1 if the server failed, 2 if the load does not fit the export.

Examples:
  parda-lab bench nbd 'nbd+unix:///vm1?socket=/run/parda/a.sock'
  parda-lab bench nbd nbd://array/lun0 --op randread --bs 64k --depth 16 --connections 4 --time 10s
  parda-lab bench nbd nbd://array/scratch --op randwrite --depth 64 --allow-writes=nbd://array/scratch
  parda-lab bench nbd 'nbds://array/lun0?tls-certificates=/etc/pki/parda' --depth 16
  parda-lab bench nbd nbd://array/lun0 --op read --bs 1m --depth 4 --offset 10g --range 1g
  parda-lab bench nbd nbd://localhost/vm1 --depth 16 --server-pid \"$(pidof parda)\" --json - | jq .server_cpu_us_per_io";

/// Shortest time that is measured or waited.
const SHORTEST: Duration = Duration::from_millis(10);

/// How a server is measured, by whatever protocol.
#[derive(Args)]
struct Run {
    /// How long to measure
    #[arg(long, value_name = "TIME", default_value = "3s", value_parser = quantity::within(SHORTEST.., "must be 10ms at least"))]
    time: Duration,
    /// How long to load the server before the measurement begins
    #[arg(long, value_name = "TIME", default_value = "500ms", value_parser = quantity::duration)]
    warmup: Duration,
    /// How long a server may be silent before the run fails
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = quantity::within(SHORTEST.., "must be 10ms at least"))]
    patience: Duration,
    /// The seed that offsets follow from
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Measure the CPU time of this process as well, if the server runs here; may be given more than once
    #[arg(long, value_name = "PID")]
    server_pid: Vec<u32>,
}

impl Run {
    /// One request of 4 KiB outstanding on one connection.
    fn plan(&self, operation: Operation) -> BenchPlan {
        BenchPlan {
            warmup: self.warmup,
            time: self.time,
            seed: self.seed,
            patience: self.patience,
            server: self.server_pid.clone(),
            ..BenchPlan::new(Vec::new(), operation)
        }
    }
}

#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Nbd {
    /// The exports to load
    #[arg(value_name = "URI", required = true)]
    uris: Vec<String>,
    /// What the requests do: read or write, in order or at random offsets
    #[arg(long, value_enum, default_value = "randread")]
    op: Op,
    /// How many requests of --op mixed are reads, in percent
    #[arg(long, value_name = "PERCENT", default_value = "70", value_parser = percent)]
    reads: u32,
    /// Bytes of a request
    #[arg(long, value_name = "BYTES", default_value = "4k", value_parser = block)]
    bs: u32,
    /// Requests that each connection keeps outstanding
    #[arg(long, value_name = "N", default_value = "1", value_parser = clap::value_parser!(u32).range(1..=4096))]
    depth: u32,
    /// Connections to each export
    #[arg(long, value_name = "N", default_value = "1", value_parser = clap::value_parser!(u32).range(1..=1024))]
    connections: u32,
    /// Threads that drive the connections
    #[arg(long, value_name = "N", default_value = "1", value_parser = clap::value_parser!(u32).range(1..=256))]
    threads: u32,
    #[command(flatten)]
    run: Run,
    /// Offset of the range that requests touch
    #[arg(long, value_name = "BYTES", value_parser = bytes)]
    offset: Option<u64>,
    /// Length of that range; to the end of the export if not given
    #[arg(long, value_name = "BYTES", value_parser = bytes)]
    range: Option<u64>,
    /// Allow writes to this export, given by its URI once more, if nothing known is on it
    #[arg(long, value_name = "URI", require_equals = true)]
    allow_writes: Vec<String>,
    /// Write the answer as JSON to a file, - for standard output in place of the table
    #[arg(long, value_name = "OUT")]
    json: Option<PathBuf>,
}

const GUEST_EXAMPLES: &str = "\
The client is front end and guest in one: it shares memory of its own with the server, and has one queue of it with --depth
requests. It only reads. It sleeps when it has nothing to do, and is woken as a guest is.

Exit status: 1 if the server failed.

Examples:
  parda-lab bench vhost-user /run/parda/vm1.vhost --depth 16
  parda-lab bench vhost-user /run/parda/vm1.vhost --depth 64 --server-pid \"$(pidof parda)\" --json -";

#[derive(Args)]
#[command(after_help = GUEST_EXAMPLES)]
pub(crate) struct VhostUser {
    /// The socket of the server, which has no front end yet
    socket: PathBuf,
    /// What the requests do
    #[arg(long, value_enum, default_value = "randread")]
    op: GuestOp,
    /// Bytes of a request, a multiple of 512
    #[arg(long, value_name = "BYTES", default_value = "4k", value_parser = sectors)]
    bs: u32,
    /// Requests outstanding
    #[arg(long, value_name = "N", default_value = "1", value_parser = clap::value_parser!(u16).range(1..=128))]
    depth: u16,
    #[command(flatten)]
    run: Run,
    /// Write the answer as JSON to a file, - for standard output in place of the table
    #[arg(long, value_name = "OUT")]
    json: Option<PathBuf>,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum GuestOp {
    /// Reads, one after the other
    Read,
    /// Reads at random offsets
    Randread,
}

/// Bytes of a guest's request.
fn sectors(text: &str) -> Result<u32, String> {
    block(text)
        .ok()
        .filter(|bytes| bytes.is_multiple_of(512))
        .ok_or_else(|| "must be a multiple of 512 bytes up to 32m, such as 4k".to_owned())
}

impl VhostUser {
    fn run(&self) -> Result<(), Failure> {
        output::check([&self.json])?;
        let operation = match self.op {
            GuestOp::Read => Operation::Read,
            GuestOp::Randread => Operation::RandomRead,
        };
        let plan =
            BenchPlan { block: self.bs, depth: self.depth.into(), ..self.run.plan(operation) };
        let socket = self.socket.display();
        let hint = "; is it the socket of a server of vhost-user-blk, with no guest at it?";
        let failed = |error| Failure::new(format!("{socket}: {error}{hint}"));
        let measured = parda_bench::run_guest(&self.socket, &plan).map_err(failed)?;
        let uris = [format!("vhost-user:{socket}")];
        tell(self.json.as_deref(), &uris, name_of(self.op), &plan, &measured)
    }
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Op {
    /// Reads, one after the other
    Read,
    /// Writes, one after the other
    Write,
    /// Reads at random offsets
    Randread,
    /// Writes at random offsets
    Randwrite,
    /// Reads and writes anywhere, as --reads says
    Mixed,
}

/// An operation as it is named on the command line.
fn name_of(op: impl ValueEnum) -> String {
    op.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
}

/// The answer as JSON.
#[derive(Serialize)]
struct Answer<'a> {
    uris: &'a [String],
    op: String,
    bs: u32,
    depth: u32,
    connections: u32,
    threads: u32,
    #[serde(flatten)]
    summary: BenchSummary,
}

/// Writes the measurements of a load, as JSON or as a table.
fn tell(
    json: Option<&Path>,
    uris: &[String],
    op: String,
    plan: &BenchPlan,
    measured: &LoadMeasured,
) -> Result<(), Failure> {
    let BenchPlan { block: bs, depth, connections, threads, .. } = *plan;
    let answer = Answer { uris, op, bs, depth, connections, threads, summary: measured.summary() };
    output::either(json, &answer, table)
}

/// As fio has it: `4k` is 4096 bytes.
fn block(text: &str) -> Result<u32, String> {
    let block = bytes(text).ok().and_then(|b| u32::try_from(b).ok());
    block
        .filter(|b| (1..=32 << 20).contains(b))
        .ok_or_else(|| "must be a size from 1 byte to 32m, such as 4k".to_owned())
}

impl Nbd {
    fn run(&self) -> Result<(), Failure> {
        let plan = self.plan()?;
        output::check([&self.json])?;
        let measured = parda_bench::run(&plan).map_err(|error| match error {
            BenchError::Plan(error) => Failure::usage(error.to_string()),
            error => Failure::new(error.to_string()),
        })?;
        tell(self.json.as_deref(), &self.uris, name_of(self.op), &plan, &measured)
    }

    fn plan(&self) -> Result<BenchPlan, Failure> {
        let parse =
            |name: &String| name.parse::<Uri>().map_err(|e| Failure::usage(format!("{name}: {e}")));
        let uris = self.uris.iter().map(parse).collect::<Result<_, _>>()?;
        let operation = match self.op {
            Op::Read => Operation::Read,
            Op::Write => Operation::Write,
            Op::Randread => Operation::RandomRead,
            Op::Randwrite => Operation::RandomWrite,
            Op::Mixed => Operation::Mixed { reads: self.reads as u8 },
        };
        let start = self.offset.unwrap_or(0);
        let end = self.range.map_or(u64::MAX, |len| start.saturating_add(len));
        let mut range = start..end;
        if operation.writes() {
            for name in &self.uris {
                let writable = self.writable(name)?;
                range = range.start.max(writable.start)..range.end.min(writable.end);
            }
        } else if let Some(name) = self.allow_writes.first() {
            let op = name_of(self.op);
            return Err(Failure::usage(format!("--allow-writes={name}: --op {op} only reads")));
        }
        Ok(BenchPlan {
            uris,
            block: self.bs,
            depth: self.depth,
            connections: self.connections,
            threads: self.threads,
            range: Some(range),
            ..self.run.plan(operation)
        })
    }

    /// The part of an export that may be written to.
    fn writable(&self, name: &str) -> Result<std::ops::Range<u64>, Failure> {
        let named = self.allow_writes.iter().find(|named| *named == name);
        let named = named.or(self.allow_writes.first());
        let writes = named.map_or(Writes::Allowed, |named| Writes::To(named.clone()));
        writable_export(name, &writes).map_err(|error| match error {
            TargetError::Failed(_) => Failure::new(error.to_string()),
            error => Failure::usage(error.to_string()),
        })
    }
}

fn table(answer: &Answer<'_>) -> String {
    let BenchSummary { seconds, iops, bytes_per_s, .. } = answer.summary;
    let s = &answer.summary;
    let mut text = String::new();
    let mut line = |what: &str, value: String| {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{what:<16}{value}");
    };
    line(
        "load",
        format!(
            "{} of {}, {} outstanding on each of {}, {seconds:.1} s",
            answer.op,
            exact_size(answer.bs.into()),
            answer.depth,
            output::count(u64::from(answer.connections) * answer.uris.len() as u64, "connection"),
        ),
    );
    line("IOPS", format!("{iops:.0}"));
    line("bandwidth", format!("{}/s", ByteSize(bytes_per_s as u64)));
    line(
        "latency, µs",
        format!(
            "mean {:.1}, p50 {:.1}, p99 {:.1}, p99.9 {:.1}, max {:.1}",
            s.mean_us, s.p50_us, s.p99_us, s.p999_us, s.max_us
        ),
    );
    let cpu = |per_io: f64, cores: f64| format!("{per_io:.2} µs/IO, {cores:.2} cores");
    line("client's CPU", cpu(s.client_cpu_us_per_io, s.client_cores));
    if let (Some(per_io), Some(cores)) = (s.server_cpu_us_per_io, s.server_cores) {
        line("server's CPU", cpu(per_io, cores));
    }
    text
}
