//! The pictures of docs/probe.md.

use parda_probe::{Effort, Mix, Purpose, Wishes};
use parda_probe_tools::report;
use parda_probe_tools::{Target, Writes};

/// Those of them that the page walks through.
const SHOWN: [&str; 3] = ["load", "answer", "spread-1"];

/// Each with the name of its file.
pub(crate) fn pictures() -> Vec<(String, String)> {
    let mix = |size, read_percent, random_percent| Mix { size, read_percent, random_percent };
    let mut target = Target::open("model:drive-15k", &Writes::No, None).expect("it is a preset");
    let wishes = Wishes {
        mixes: vec![mix(4096, 100, 100), mix(8192, 67, 70)],
        outstanding: 1..=256,
        all: false,
        purposes: vec![Purpose::Depth],
        effort: Effort::Quick,
        experiment: None,
        writes: true,
        largest: 1 << 20,
    };
    let document = target.probe(wishes, None, 1, &mut ());
    let figures = report::figures(&document).into_iter();
    let shown = figures.filter(|(name, _)| SHOWN.contains(&name.as_str()));
    shown.map(|(name, figure)| (name, figure.svg())).collect()
}
