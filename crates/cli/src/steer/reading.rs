//! A reading of a device as a table and as JSON.

use comfy_table::{CellAlignment, Table};
use parda_control::Span;
use parda_control::latency::Direction;
use parda_steer::measure::{Class, DeviceReading, Histogram, Method};
use parda_terminal::output::{number, numbers};
use parda_terminal::quantity::mib;
use serde::Serialize;

/// Length of the longest bar of the histogram, in characters.
const BAR: usize = 40;

/// A reading, in the units that people use.
#[derive(Serialize)]
pub(crate) struct Shown {
    elapsed_s: f64,
    /// Method of the latency measurement: `ebpf` or `little`.
    method: &'static str,
    /// Standard error of the latency by Little's law, as a fraction of the latency.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<f64>,
    /// Reason for the fallback method, if the user did not choose it.
    #[serde(skip_serializing_if = "Option::is_none")]
    because: Option<String>,
    reads: Way,
    writes: Way,
    outstanding: f64,
    pending: f64,
    requeues: u64,
    /// By direction and powers of two of bytes.
    sizes: Vec<Size>,
    /// By octaves of the latency.
    latencies: Vec<Octave>,
    /// By the inode numbers of their directories.
    cgroups: Vec<Cgroup>,
}

#[derive(Serialize)]
struct Way {
    ios: u64,
    iops: f64,
    bytes_per_s: f64,
    mean_ms: Option<f64>,
    p50_ms: Option<f64>,
    p90_ms: Option<f64>,
    p99_ms: Option<f64>,
}

#[derive(Serialize)]
struct Size {
    direction: &'static str,
    from_bytes: u64,
    ios: u64,
    bytes: u64,
    mean_ms: f64,
}

#[derive(Serialize)]
struct Octave {
    from_ms: f64,
    to_ms: f64,
    reads: u64,
    writes: u64,
}

#[derive(Serialize)]
struct Cgroup {
    id: u64,
    ios: u64,
    bytes: u64,
    pending: f64,
}

impl Way {
    fn of(reading: &DeviceReading, direction: Direction, spread: &Histogram) -> Way {
        let classes = || reading.classes.iter().filter(|c| c.direction == direction);
        let ios: u64 = classes().map(|c| c.ios).sum();
        let bytes: u64 = classes().map(|c| c.bytes).sum();
        let latency: f64 = classes().map(|c| ms(c.latency)).sum();
        let seconds = reading.elapsed.secs();
        let rate = |n: u64| if seconds > 0.0 { n as f64 / seconds } else { 0.0 };
        let quantile = |q| spread.quantile(q).map(ms);
        Way {
            ios,
            iops: rate(ios),
            bytes_per_s: rate(bytes),
            mean_ms: (ios > 0).then(|| latency / ios as f64),
            p50_ms: quantile(0.5),
            p90_ms: quantile(0.9),
            p99_ms: quantile(0.99),
        }
    }

    fn row(&self, name: &str) -> [String; 8] {
        let each = if self.ios > 0 { self.bytes_per_s / self.iops } else { 0.0 };
        [
            name.to_owned(),
            format!("{:.0}", self.iops),
            format!("{:.1}", mib(self.bytes_per_s)),
            format!("{:.1}", each / 1024.0),
            number(self.mean_ms, 2),
            number(self.p50_ms, 2),
            number(self.p90_ms, 2),
            number(self.p99_ms, 2),
        ]
    }
}

impl Shown {
    pub(crate) fn of(reading: &DeviceReading, because: Option<&str>) -> Shown {
        let (method, error) = match reading.method {
            Method::Ebpf => ("ebpf", None),
            Method::Little { error } => ("little", Some(error)),
        };
        let in_octave = |spread: &Histogram, from: Span| {
            spread.octaves().iter().find(|o| o.0 == from).map_or(0, |o| o.2)
        };
        Shown {
            elapsed_s: reading.elapsed.secs(),
            method,
            error,
            because: because.map(str::to_owned),
            reads: Way::of(reading, Direction::Read, &reading.reads),
            writes: Way::of(reading, Direction::Write, &reading.writes),
            outstanding: reading.outstanding,
            pending: reading.pending,
            requeues: reading.requeues,
            sizes: reading.classes.iter().map(Size::of).collect(),
            latencies: reading
                .reads
                .plus(&reading.writes)
                .octaves()
                .into_iter()
                .map(|(from, to, _)| Octave {
                    from_ms: ms(from),
                    to_ms: ms(to),
                    reads: in_octave(&reading.reads, from),
                    writes: in_octave(&reading.writes, from),
                })
                .collect(),
            cgroups: reading
                .groups
                .iter()
                .map(|g| Cgroup { id: g.cgroup, ios: g.ios, bytes: g.bytes, pending: g.pending })
                .collect(),
        }
    }

    /// Method of the measurement, for people.
    pub(crate) fn method(&self) -> String {
        let Some(error) = self.error else { return "measured with eBPF".to_owned() };
        let because = self.because.as_ref().map_or(String::new(), |why| format!(" ({why})"));
        format!("by Little's law, ± {:.1} %{because}", error * 100.0)
    }

    pub(crate) fn table(&self) -> String {
        let rates = [self.reads.row("reads"), self.writes.row("writes")];
        let mut text = format!(
            "{}\n\noutstanding {:.2}, pending {:.2}, given back undone {}\n",
            numbers("|IOPS|MiB/s|KiB/IO|mean ms|p50|p90|p99", rates),
            self.outstanding,
            self.pending,
            self.requeues
        );
        // One size is in the first table already; by Little's law there is only the mean.
        if self.error.is_none() && !self.sizes.is_empty() {
            let sizes = self.sizes.iter().map(|size| size.row(self.elapsed_s));
            text += &format!("\n{}\n", numbers("sizes from||IOPS|MiB/s|mean ms", sizes));
        }
        if !self.latencies.is_empty() {
            text += &format!("\n{}\n", self.histogram());
        }
        text
    }

    fn histogram(&self) -> Table {
        let most = self.latencies.iter().map(|o| o.reads + o.writes).max().unwrap_or(0).max(1);
        let rows = self.latencies.iter().map(|octave| {
            let part = (octave.reads + octave.writes) as f64 / most as f64;
            [
                format!("{:.3}", octave.from_ms),
                octave.reads.to_string(),
                octave.writes.to_string(),
                "#".repeat((part * BAR as f64).ceil() as usize),
            ]
        });
        let mut table = numbers("ms|reads|writes|", rows);
        if let Some(bars) = table.column_mut(3) {
            bars.set_cell_alignment(CellAlignment::Left);
        }
        table
    }
}

impl Size {
    fn of(class: &Class) -> Size {
        Size {
            direction: match class.direction {
                Direction::Read => "read",
                Direction::Write => "write",
            },
            from_bytes: 1 << class.bytes_log2,
            ios: class.ios,
            bytes: class.bytes,
            mean_ms: ms(class.latency) / class.ios.max(1) as f64,
        }
    }

    fn row(&self, seconds: f64) -> [String; 5] {
        let from = match self.from_bytes {
            bytes if bytes >= 1 << 20 => format!("{} MiB", bytes >> 20),
            bytes if bytes >= 1 << 10 => format!("{} KiB", bytes >> 10),
            bytes => format!("{bytes} B"),
        };
        let rate = |n: f64| if seconds > 0.0 { n / seconds } else { 0.0 };
        [
            from,
            format!("{}s", self.direction),
            format!("{:.0}", rate(self.ios as f64)),
            format!("{:.1}", mib(rate(self.bytes as f64))),
            format!("{:.2}", self.mean_ms),
        ]
    }
}

fn ms(span: Span) -> f64 {
    span.secs() * 1e3
}
