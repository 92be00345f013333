//! A probe as CSV, one row for each point.

use super::words::in_a_row;
use parda_probe::{Load, Measured, Mix, Point, ProbeDocument, Purpose};

/// Columns on the load and on its run.
const LOAD: &str = "purpose,size_bytes,read_percent,random_percent,outstanding,settled,warmup_s,measured_s,\
                    outstanding_measured,little_error";
/// Columns that stand three times: for all IOs, for reads and for writes.
const MEASURED: [&str; 10] = [
    "ios",
    "iops_per_s",
    "bytes_per_s",
    "mean_ms",
    "stddev_ms",
    "p50_ms",
    "p90_ms",
    "p99_ms",
    "p99_9_ms",
    "max_ms",
];

/// All points as comma-separated values: a line with the names of the columns and their units, then a line for each point in
/// the order of the run. Missing values, such as writes of a load that only reads, are empty. No text in it
/// needs quotes.
#[must_use]
pub fn csv(document: &ProbeDocument) -> String {
    let mut out = LOAD.to_owned();
    for kind in ["", "reads_", "writes_"] {
        for column in MEASURED {
            out.push_str(&format!(",{kind}{column}"));
        }
    }
    out.push('\n');
    for point in &document.points {
        out.push_str(&row(point));
        out.push('\n');
    }
    out
}

fn row(point: &Point) -> String {
    let times = [point.warmup_s, point.measured_s, point.outstanding_measured, point.little_error];
    let kinds = [Some(&point.all), point.reads.as_ref(), point.writes.as_ref()];
    let cells = load(point.purpose, &point.load).chain([point.settled.to_string()]);
    let cells = cells.chain(times.map(cell)).chain(kinds.into_iter().flat_map(measured));
    cells.collect::<Vec<_>>().join(",")
}

/// The first cells of a row: purpose, size, read %, random %, outstanding.
pub(super) fn load(purpose: Purpose, load: &Load) -> impl Iterator<Item = String> {
    let purpose = match purpose {
        Purpose::Depth => "depth",
        Purpose::Size => "size",
        Purpose::Mix => "mix",
        Purpose::Repeat => "repeat",
    };
    let Load { mix: Mix { size, read_percent, random_percent }, outstanding } = load;
    [purpose.to_owned(), size.to_string()]
        .into_iter()
        .chain([read_percent, random_percent, outstanding].map(u32::to_string))
}

fn measured(of: Option<&Measured>) -> Vec<String> {
    let Some(of) = of else { return vec![String::new(); MEASURED.len()] };
    let [iops, _, times @ ..] = in_a_row(of);
    let rates = [iops, of.bytes_per_s].map(cell);
    [of.ios.to_string()].into_iter().chain(rates).chain(times.map(cell)).collect()
}

/// A number with all its digits. Empty for NaN and infinity.
pub(super) fn cell(value: f64) -> String {
    if value.is_finite() { value.to_string() } else { String::new() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::example::document;

    #[test]
    fn each_point_is_a_row_with_as_many_cells_as_there_are_columns() {
        let document = document();
        let csv = csv(&document);
        let lines: Vec<&str> = csv.lines().collect();
        assert_eq!(lines.len(), document.points.len() + 1);
        let columns = lines[0].split(',').count();
        assert_eq!(columns, 40);
        assert!(lines.iter().all(|line| line.split(',').count() == columns));
        assert!(lines[1].starts_with("depth,4096,100,100,1,true,"), "{}", lines[1]);
        assert!(lines[1].ends_with(",,,,,,,,,,"), "there were no writes: {}", lines[1]);
    }

    #[test]
    fn numbers_are_read_again_as_they_were_and_what_is_none_is_empty() {
        let mut document = document();
        document.points[0].all.mean_ms = 0.1 + 0.2;
        document.points[0].all.max_ms = f64::NAN;
        let csv = csv(&document);
        let columns: Vec<&str> = csv.lines().next().unwrap().split(',').collect();
        let cells: Vec<&str> = csv.lines().nth(1).unwrap().split(',').collect();
        let at = |name: &str| cells[columns.iter().position(|c| *c == name).unwrap()];
        assert_eq!(at("mean_ms").parse::<f64>().unwrap(), 0.1 + 0.2);
        assert_eq!(at("max_ms"), "");
    }
}
