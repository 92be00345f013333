//! The file of kept predictions (`--keep`), and their comparison with later measurements (`--score`).

use std::io::Write as _;
use std::path::Path;
use std::time::SystemTime;

use parda_explain::{Capacity, ExplainedVolume, Explanation, Record, WhatIf, score};
use parda_input::Pipe;
use parda_terminal::{Failure, output};

use super::words;

/// Most bytes of the file.
const MOST: u64 = 64 << 20;

/// Appends a line of JSON with the view and the predictions.
pub(super) fn append(
    file: &Path,
    volume: &str,
    vm: &str,
    view: &ExplainedVolume,
    capacity: &Capacity,
    found: &Explanation,
) -> Result<(), Failure> {
    let wrong = |error: std::io::Error| Failure::new(format!("{}: {error}", file.display()));
    let record = Record {
        at: humantime::format_rfc3339_seconds(SystemTime::now()).to_string(),
        volume: volume.to_owned(),
        vm: vm.to_owned(),
        view: view.clone(),
        capacity: capacity.clone(),
        predictions: found.predictions.clone(),
    };
    let mut line = serde_json::to_vec(&record).map_err(|error| wrong(error.into()))?;
    line.push(b'\n');
    // One write: two commands that append at the same time leave whole lines.
    let mut log =
        std::fs::OpenOptions::new().create(true).append(true).open(file).map_err(wrong)?;
    log.write_all(&line).map_err(wrong)
}

/// The last record of a VM in a file.
pub(super) fn last(file: &Path, vm: &str) -> Result<Record, Failure> {
    let wrong = |why: String| Failure::usage(format!("{}: {why}", file.display()));
    let text = parda_input::read_text(file, MOST, Pipe::Taken)
        .map_err(|fault| wrong(fault.to_string()))?;
    let (mut found, mut torn) = (None, None);
    for (number, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        match serde_json::from_str::<Record>(line) {
            Ok(record) => found = Some(record).filter(|record| record.vm == vm).or(found),
            // A line that a full disk cut short does not hide the others.
            Err(error) => torn = Some((number + 1, error)),
        }
    }
    let file = file.display();
    found.ok_or_else(|| match torn {
        Some((number, error)) => {
            Failure::usage(format!("{file}:{number}: not a line that --keep writes: {error}"))
        }
        None => {
            Failure::new(format!("{file}: no prediction for {vm}: make one with --keep {file}"))
        }
    })
}

/// Compares a record with the measurements of now.
pub(super) fn tell_score(then: &Record, now: &ExplainedVolume, json: bool) -> Result<(), Failure> {
    let Some(scored) = score(then, now) else {
        return Err(Failure::new(format!(
            "the prediction of {} cannot be scored: the VM does nothing, more than one of its shares, its limit, its tenant's and the threshold were changed \
             since, or the measurements kept then allow no prediction for the threshold of now \
             (/usr/share/doc/parda/docs/explain.md)",
            then.at
        )));
    };
    if json {
        return output::json("-".as_ref(), &scored);
    }
    let before = then.view.vm(&then.vm).map_or(0.0, |vm| vm.iops);
    let predicted = &scored.prediction;
    let what = match predicted.change {
        WhatIf::Shares(shares) => format!("{shares:.0} shares"),
        WhatIf::LimitIops(iops) => format!("a limit of {iops:.0} IO/s"),
        WhatIf::TenantLimitIops(iops) => format!("a tenant's limit of {iops:.0} IO/s"),
        WhatIf::ThresholdMs(ms) => format!("a threshold of {}", words::ms(ms)),
    };
    let latency = predicted.vm.latency_ms.map_or("unknown".to_owned(), words::ms);
    let mut text = format!(
        "prediction of {} for {} with {what}{}\n  before:    {before:.0} IO/s\n  predicted: {:.0} IO/s at {latency} an IO\n  \
         now:       {:.0} IO/s at {} an IO\n  off by {:+.1} %\n",
        then.at,
        then.vm,
        if scored.logged { "" } else { ", made now from the measurements kept then" },
        predicted.vm.iops,
        scored.iops,
        words::ms(scored.latency_ms),
        100.0 * scored.error,
    );
    if !scored.changed.is_empty() {
        text += &format!(
            "  others changed their shares, came or went since: {}\n",
            scored.changed.join(", ")
        );
    }
    output::print(&text)
}
