//! Summary of an answer in sentences.

use std::fmt::Write as _;

use parda_scenario::answer::{PhaseAnswer, RunAnswer};
use parda_scenario::shares::vm_parts;

/// Largest share error that the summary calls fair, as a fraction.
const KEPT: f64 = 0.1;

/// One line for each phase: the parts of their shares that VMs got, and the device latency. Later
/// phases add their throughput relative to the first.
#[must_use]
pub fn words(answer: &RunAnswer) -> String {
    let mut text = String::new();
    for (i, phase) in answer.phases.iter().enumerate() {
        // Writing to a String cannot fail.
        let _ = write!(text, "{}: {}", phase.name, shares(phase));
        if let Some(latency) = phase.total.device_latency_ms {
            let _ = write!(text, " An IO takes {latency:.0} ms at the array.");
        }
        if let (Some(first), true) = (answer.phases.first(), i > 0 && phase.total.iops > 0.0) {
            let part = 100.0 * phase.total.iops / first.total.iops;
            let _ = write!(text, " Throughput: {part:.0} % of {}.", first.name);
        }
        text.push('\n');
    }
    text
}

fn shares(phase: &PhaseAnswer) -> String {
    let parts = vm_parts(&phase.hosts, None);
    let by_part = |a: &(&&str, &f64), b: &(&&str, &f64)| a.1.total_cmp(b.1);
    let (least, most) = (parts.iter().min_by(by_part), parts.iter().max_by(by_part));
    let (Some((poor, least)), Some((rich, most))) = (least, most) else {
        return "no VM wants more than it gets.".to_owned();
    };
    let off = (most - 1.0).max(1.0 - least);
    if off <= KEPT {
        return format!("shares are kept, every VM within {:.0} %.", (off * 100.0).ceil());
    }
    let percent = |part: &f64| format!("{:.0} %", part * 100.0);
    format!(
        "shares are not kept, {rich} gets {} of its share and {poor} {}.",
        percent(most),
        percent(least)
    )
}
