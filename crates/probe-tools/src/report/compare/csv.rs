//! A comparison as CSV, one row for each load.

use super::word;
use crate::report::comparison::Comparison;
use crate::report::csv::{cell, load};

const COLUMNS: &str = "purpose,size_bytes,read_percent,random_percent,outstanding,a_iops_per_s,b_iops_per_s,iops_ratio,\
                       iops_ratio_low,iops_ratio_high,a_mean_ms,b_mean_ms,mean_ratio,a_p99_ms,b_p99_ms,p99_ratio,\
                       a_settled,b_settled,verdict";

/// All loads that both probes ran, as comma-separated values: a line with the names of the columns and their
/// units, then a line for each load. Ratios are B over A. Unknown values are empty.
#[must_use]
pub fn csv(comparison: &Comparison) -> String {
    let mut out = format!("{COLUMNS}\n");
    for pair in &comparison.loads {
        let (a, b) = (&pair.a, &pair.b);
        let bound = |of: usize| pair.iops_ratio_95.map_or(String::new(), |ends| cell(ends[of]));
        let numbers = [a.iops, b.iops, pair.iops_ratio].map(cell).into_iter();
        let numbers = numbers.chain([bound(0), bound(1)]);
        let latencies =
            [a.mean_ms, b.mean_ms, pair.latency_ratio, a.p99_ms, b.p99_ms, pair.p99_ratio];
        let settled = [a.settled, b.settled].map(|settled| settled.to_string());
        let cells = load(pair.purpose, &pair.load)
            .chain(numbers)
            .chain(latencies.map(cell))
            .chain(settled)
            .chain([word(pair.verdict).to_owned()]);
        out.push_str(&cells.collect::<Vec<_>>().join(","));
        out.push('\n');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::example::{document, slower};

    #[test]
    fn each_load_is_a_row_with_as_many_cells_as_there_are_columns() {
        let comparison = Comparison::new(&document(), &slower(1.2));
        let csv = csv(&comparison);
        let columns = COLUMNS.split(',').count();
        assert_eq!(csv.lines().count(), comparison.loads.len() + 1);
        assert!(csv.lines().all(|line| line.split(',').count() == columns), "{csv}");
        assert!(csv.contains(",worse\n") && csv.contains(",unsure\n"));
    }
}
