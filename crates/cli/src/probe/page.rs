//! `parda probe page`.

use std::path::PathBuf;

use clap::Args;
use parda_probe_tools::report;

use crate::{Failure, output};

#[derive(Args)]
pub(crate) struct Page {
    /// A document of `parda probe --json`
    #[arg(value_name = "A.json")]
    probe: PathBuf,
    /// File to write the page to; - for standard output
    #[arg(long, value_name = "FILE", default_value = "-")]
    out: PathBuf,
}

impl Page {
    pub(crate) fn run(&self) -> Result<(), Failure> {
        output::check([&Some(self.out.clone())])?;
        let page = report::page(&super::stored::stored(&self.probe)?);
        output::write(&self.out, &page).map(|_| ())
    }
}
