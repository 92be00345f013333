//! Workloads in the syntax of scenarios.

use humantime::format_duration;
use parda_control::Bytes;

use crate::drawn::{Bursts, Demand, Hot, SizePart, Workload};

/// A size in the syntax of scenarios, exact to the byte.
#[must_use]
pub fn size(size: Bytes) -> String {
    parda_config::quantity::exact_size(size.0)
}

impl Workload {
    /// The workload as the value of the key `workload`: an inline table of TOML.
    #[must_use]
    pub fn toml(&self) -> String {
        let mut keys = Vec::new();
        match self.sizes.as_slice() {
            [only] => keys.push(format!("size = \"{}\"", size(only.size))),
            several => {
                let part = |part: &SizePart| format!("\"{}\" = {}", size(part.size), part.percent);
                let parts = several.iter().map(part).collect::<Vec<_>>().join(", ");
                keys.push(format!("sizes = {{ {parts} }}"));
            }
        }
        keys.push(format!("read = {}", self.read_percent));
        if self.trim_percent > 0.0 {
            keys.push(format!("trim = {}", self.trim_percent));
        }
        keys.push(format!("random = {}", self.random_percent));
        if self.one_stream {
            keys.push("one_stream = true".to_owned());
        }
        if let Some(Hot { part_percent, hits_percent }) = self.hot {
            keys.push(format!("hot = {{ part = {part_percent}, hits = {hits_percent} }}"));
        }
        keys.push(match self.demand {
            Demand::Closed { outstanding } => format!("outstanding = {outstanding}"),
            Demand::Open { rate } => format!("rate = {rate}"),
        });
        if let Some(Bursts { on, off }) = self.bursts {
            keys.push(format!(
                "on = \"{}\", off = \"{}\"",
                format_duration(on),
                format_duration(off)
            ));
        }
        format!("{{ {} }}", keys.join(", "))
    }
}
