//! `parda probe compare`.

use std::path::PathBuf;

use clap::Args;
use parda_probe_tools::report::{self, Comparison};

use crate::{Failure, output};

#[derive(Args)]
#[command(after_help = "\
A is the baseline: a ratio of 0.9 means that B has nine tenths of A's throughput. A difference counts if it
exceeds the uncertainty of both probes together.

Exit status: 0 whatever differs; 2 if a file is no probe.

Examples:
  parda probe /dev/sdb --json before.json
  parda probe /dev/sdb --json after.json
  parda probe compare before.json after.json
  parda probe compare before.json after.json --page compared.html")]
pub(crate) struct Compare {
    /// The baseline, a document of `parda probe --json`
    #[arg(value_name = "A.json")]
    a: PathBuf,
    /// The document to compare with the baseline
    #[arg(value_name = "B.json")]
    b: PathBuf,
    /// Write the comparison as JSON to a file, - for standard output in place of the table
    #[arg(long, value_name = "OUT")]
    json: Option<PathBuf>,
    /// Write a row for each load that both ran to a file, - for standard output in place of the table
    #[arg(long, value_name = "OUT")]
    csv: Option<PathBuf>,
    /// Write a page with both in the same plots, for a browser
    #[arg(long, value_name = "FILE")]
    page: Option<PathBuf>,
}

impl Compare {
    pub(crate) fn run(&self) -> Result<(), Failure> {
        output::check([&self.json, &self.csv, &self.page])?;
        let (a, b) = (super::stored(&self.a)?, super::stored(&self.b)?);
        let comparison = Comparison::new(&a, &b);
        let mut said = false;
        if let Some(to) = &self.json {
            output::json(to, &comparison)?;
            said = to.as_os_str() == "-";
        }
        if let Some(to) = &self.csv {
            said |= output::write(to, &report::compare::csv(&comparison))?;
        }
        if let Some(to) = &self.page {
            said |= output::write(to, &report::compare::page(&a, &b))?;
        }
        if said { Ok(()) } else { output::print(&report::compare::table(&comparison)) }
    }
}
