//! Findings of an explanation as sentences and tables.

use parda_agent::status::{SteerStatus, VolumeStatus};
use parda_api::Limit;
use parda_explain::{
    Capacity, Cause, ExplainedVolume, Explanation, Holding, Other, Prediction, Unknown, Unmet,
    Unpredicted, WhatIf, Who,
};
use parda_terminal::output::numbers;
use parda_terminal::quantity::mib;
use parda_terminal::{Failure, output};

use crate::limits;

/// A time in milliseconds, with three significant digits.
pub(super) fn ms(ms: f64) -> String {
    match ms {
        ms if ms >= 99.95 => format!("{ms:.0} ms"),
        ms if ms >= 9.995 => format!("{ms:.1} ms"),
        ms => format!("{ms:.2} ms"),
    }
}

fn percent(part: f64) -> String {
    format!("{:.0} %", 100.0 * part)
}

/// A change of throughput, such as −31 %.
fn change(ratio: f64) -> String {
    let percent = (100.0 * (ratio - 1.0)).round();
    let sign = if percent < 0.0 { "−" } else { "+" };
    format!("{sign}{:.0} %", percent.abs())
}

/// Parts of the latency below this fraction are left out.
const LEAST: f64 = 0.005;

/// The answer as text: a sentence, then times, entitlement, others and predictions.
pub(super) fn of(
    volume: &str,
    view: &ExplainedVolume,
    found: &Explanation,
    asked: Vec<WhatIf>,
    capacity: &Capacity,
) -> String {
    let vm = &found.vm;
    let limit = match (found.limit, &vm.limit) {
        (Limit::Nothing, _) => "no IO".to_owned(),
        (Limit::Configured, Some(limit)) => format!("limited by {}", limit.words),
        (limit, _) => format!("limited by {limit}"),
    };
    let mut text = format!(
        "VM {} of volume {volume}, over the last {:.1} s: {limit}\n",
        vm.name, view.seconds
    );
    text += &format!(
        "  {:.0} IO/s, {:.1} MiB/s, {} an IO, {:.1} IOs pending at a time\n",
        vm.iops,
        mib(vm.bytes_per_s),
        ms(vm.latency_ms()),
        found.pending,
    );
    text += &format!("\n{}\n", sentence(view, found));
    if !found.spent.is_empty() {
        text += "\nwhere the time of an IO went\n";
    }
    for spent in &found.spent {
        let part = spent.ms / vm.latency_ms();
        if part < LEAST {
            continue;
        }
        text += &format!(
            "{:>12} {:>5}  {}\n",
            ms(spent.ms),
            percent(part),
            cause(spent.cause, view.threshold_ms)
        );
    }
    if let Some(entitled) = &found.entitled {
        text += &format!(
            "\nentitled to {:.1} IOs outstanding{}: {} of all shares. It had {:.1}: {} of what all had.\n",
            entitled.slots,
            entitled.iops.map_or(String::new(), |iops| format!(" ({iops:.0} IO/s)")),
            percent(entitled.part),
            found.outstanding,
            percent(found.part),
        );
    }
    if !found.others.is_empty() {
        text += &format!("\n{}", rest(&found.others, &view.host));
    }
    if !found.predictions.is_empty() {
        text += &format!("\n{}", predictions(found, &asked));
    }
    for none in &found.unpredicted {
        text += &unpredicted(view, none, &asked, capacity);
    }
    let unknown = found.unknown.iter().map(|what| unknown(*what, capacity));
    text + &unknown.map(|line| format!("{line}\n")).collect::<String>()
}

fn cause(cause: Cause, threshold_ms: f64) -> String {
    match cause {
        Cause::HeldBySlice => "held on this host: it wants more than its slice".to_owned(),
        Cause::HeldByWindowMax => {
            "held on this host: the host has all that its window allows".to_owned()
        }
        Cause::HeldForTurn => "on this host, until it was its turn".to_owned(),
        Cause::HeldByLimit => "on this host, by its limit".to_owned(),
        Cause::Service => {
            "at the array, service time: as long as an IO takes that is alone".to_owned()
        }
        Cause::WithinThreshold => {
            format!("at the array, within the threshold of {}", ms(threshold_ms))
        }
        Cause::BeyondThreshold => "at the array, beyond the threshold".to_owned(),
    }
}

/// Sentence on the VM's limit and on the change that would help.
fn sentence(view: &ExplainedVolume, found: &Explanation) -> String {
    let (vm, slots) = (&found.vm, found.entitled.map(|entitled| entitled.slots));
    let of_slice = slots.map_or(String::new(), |slots| format!(" of a slice of {slots:.1}"));
    match found.limit {
        Limit::Nothing => {
            "It had no IO in this time, done or waiting: nothing limits it.".to_owned()
        }
        Limit::Slice if vm.iops == 0.0 => format!(
            "None of its reads and writes was done in this time, and {:.0} are held on this host. More shares help. For the times of \
             its IOs look longer: --over 60s.",
            vm.held_now
        ),
        Limit::Others => format!(
            "It did {:.0} flushes, trims or other requests a second, and no reads or writes: shares do not divide these.",
            vm.others_per_s
        ),
        Limit::Depth if view.holding == Holding::Nothing => {
            "Nothing is held on this host: its latency is the array's.".to_owned()
        }
        Limit::Depth if found.varies => format!(
            "It has what it asks for: it sends IOs at times of its own, and its {:.1} IOs outstanding{of_slice} are all. \
             More shares change nothing. {}",
            found.outstanding,
            match view.is_contended() {
                true => "A lower threshold makes its IOs faster.".to_owned(),
                false => unbounded(view),
            }
        ),
        Limit::Depth => format!(
            "Latency-bound: it keeps {:.1} IOs outstanding{of_slice}, and each takes as long as the array \
             takes. More shares change nothing. {}",
            found.outstanding,
            match halved(found) {
                none if none.is_empty() && !view.is_contended() => unbounded(view),
                helps => helps,
            }
        ),
        Limit::Slice => format!(
            "Share-bound: it wants {:.1} IOs at a time, and its shares give it {:.1}. {}",
            found.pending,
            found.outstanding,
            doubled(found)
        ),
        Limit::Configured if vm.iops == 0.0 => format!(
            "None of its reads and writes was done in this time, and {:.0} are held by {}. Look longer: --over 60s.",
            vm.limited_now,
            limit_of(found)
        ),
        Limit::Configured => format!(
            "It has all that {} allows, and wants {:.1} IOs at a time. More shares change nothing. {}",
            limit_of(found),
            found.pending,
            raised(found)
        ),
        Limit::WindowMax => format!(
            "Its host has all that window_max allows: more shares take only from other VMs of this host. It wants {:.1} \
             IOs at a time and has {:.1}.",
            found.pending, found.outstanding
        ),
    }
}

/// The limit that holds a VM, in words.
fn limit_of(found: &Explanation) -> String {
    found.vm.limit.as_ref().map_or("its limit".to_owned(), |limit| limit.words.clone())
}

/// Sentence on the lowest predicted limit that gives the VM more IO/s.
fn raised(found: &Explanation) -> String {
    let more = found.predictions.iter().filter_map(|p| match p.change {
        WhatIf::LimitIops(limit) if p.vm.iops > found.vm.iops => Some((limit, "a limit", p)),
        WhatIf::TenantLimitIops(limit) if p.vm.iops > found.vm.iops => {
            Some((limit, "a limit of its tenant", p))
        }
        _ => None,
    });
    let least = more.min_by(|a, b| a.0.total_cmp(&b.0));
    least.map_or_else(String::new, |(limit, of, prediction)| {
        with(&format!("{of} of {limit:.0} IO/s"), prediction)
    })
}

/// Sentence on a predicted change.
fn with(what: &str, prediction: &Prediction) -> String {
    let at =
        prediction.vm.latency_ms.map_or_else(String::new, |latency| format!(" at {}", ms(latency)));
    format!("With {what}: about {:.0} IO/s{at}.", prediction.vm.iops)
}

/// Sentence on a threshold that bounds no VM.
fn unbounded(view: &ExplainedVolume) -> String {
    let latency = view.latency_ms.map_or(String::new(), |latency| format!(" of {}", ms(latency)));
    format!(
        "Nobody is held: the threshold of {} bounds nobody, and only one below the array's latency{latency} would change anything.",
        ms(view.threshold_ms)
    )
}

/// Sentence on the highest predicted threshold that gives the VM more IO/s.
fn halved(found: &Explanation) -> String {
    let thresholds = found.predictions.iter().filter_map(|p| match p.change {
        WhatIf::ThresholdMs(ms) if p.vm.iops > found.vm.iops => Some((ms, p)),
        _ => None,
    });
    let Some((to, prediction)) = thresholds.min_by(|a, b| b.0.total_cmp(&a.0)) else {
        return String::new();
    };
    let others = prediction
        .others
        .map_or(String::new(), |ratio| format!(", and all others {}", change(ratio)));
    format!(
        "A threshold of {} would give it about {:.1} times its IO/s{others}.",
        ms(to),
        prediction.vm.iops / found.vm.iops
    )
}

/// Sentence on the smallest predicted increase of shares.
fn doubled(found: &Explanation) -> String {
    let more = found.predictions.iter().filter_map(|p| match p.change {
        WhatIf::Shares(shares) if shares > found.vm.shares => Some((shares, p)),
        _ => None,
    });
    let Some((shares, prediction)) = more.min_by(|a, b| a.0.total_cmp(&b.0)) else {
        return String::new();
    };
    with(&format!("{shares:.0} shares"), prediction)
}

/// Table of the other VMs and hosts. In a pool, each volume of this host is a host of its own there.
fn rest(others: &[Other], host: &str) -> String {
    let volume = |name: &str| Some(name.strip_prefix(host)?.strip_prefix('/')?.to_owned());
    let rows = others.iter().map(|other| {
        [
            match &other.who {
                Who::Vm(name) => format!("VM {name}"),
                Who::Host(name) => volume(name).map_or_else(
                    || format!("host {name}"),
                    |volume| format!("volume {volume} of this host"),
                ),
            },
            format!("{:.0}", other.shares),
            format!("{:.1}", other.outstanding),
            percent(other.part),
            format!("{:.0}", other.iops),
        ]
    });
    format!("{}\n", numbers("who had the rest|shares|outstanding|part|IO/s", rows))
}

fn predictions(found: &Explanation, asked: &[WhatIf]) -> String {
    let rows = found.predictions.iter().map(|prediction| {
        let Prediction { change: what, vm, others, range, limit } = prediction;
        let range = range
            .map_or(String::new(), |(low, high)| format!(" ({} to {})", change(low), change(high)));
        [
            named(*what, asked),
            format!("about {:.0}", vm.iops),
            vm.latency_ms.map_or("unknown".to_owned(), ms),
            others.map_or("-".to_owned(), |ratio| change(ratio) + &range),
            limit.to_string(),
        ]
    });
    let head = "what would change|IO/s|an IO takes|IO/s of all others|limited by";
    format!("{}\n", numbers(head, rows))
}

fn named(what: WhatIf, asked: &[WhatIf]) -> String {
    let mark = if asked.contains(&what) { " (asked)" } else { "" };
    match what {
        WhatIf::Shares(shares) => format!("{shares:.0} shares{mark}"),
        WhatIf::LimitIops(iops) => format!("limit {iops:.0} IO/s{mark}"),
        WhatIf::TenantLimitIops(iops) => format!("tenant's limit {iops:.0} IO/s{mark}"),
        WhatIf::ThresholdMs(to) => format!("threshold {}{mark}", ms(to)),
    }
}

/// Line on a change that has no prediction, and why.
fn unpredicted(
    view: &ExplainedVolume,
    none: &Unpredicted,
    asked: &[WhatIf],
    capacity: &Capacity,
) -> String {
    let why = match none.why {
        Unmet::LatencyFarAbove => format!(
            "the array's latency of {} is more than twice the threshold of {}, which does not bound it now",
            ms(view.latency_ms.unwrap_or_default()),
            ms(view.threshold_ms)
        ),
        Unmet::ServiceTime => format!(
            "the array's service time, {} {}, is too near to one of the thresholds, or above it",
            match capacity {
                Capacity::Assumed { .. } => "assumed as",
                Capacity::Probed { .. } => "probed as",
            },
            ms(capacity.service_ms())
        ),
    };
    format!("No prediction for {}: {why}.\n", named(none.change, asked))
}

fn unknown(what: Unknown, capacity: &Capacity) -> String {
    match what {
        Unknown::NoControl => {
            "Nothing is predicted: no window is in force on this host, so shares and thresholds change nothing.".to_owned()
        }
        Unknown::DepthVaries => {
            "Its number of IOs pending varies: it sends IOs at times of its own, so no gain in IO/s is predicted."
                .to_owned()
        }
        Unknown::Capacity => format!(
            "Thresholds: the array's throughput at other latencies is assumed, from a service time of {}; ranges are for half \
             of that more or less. A probe measures it: --probe FILE.",
            ms(capacity.service_ms())
        ),
        Unknown::Peers => {
            "A host does not say what bounds it: it is taken to want more than it has.".to_owned()
        }
        Unknown::FewShares => {
            "Its slice is a small part of an IO: window_min and hold_max serve it as well, so more shares may change little."
                .to_owned()
        }
        Unknown::FewIos => "Few IOs: means are off by chance. Look longer: --over 60s.".to_owned(),
    }
}

/// Answer for a VM of a steered device, whose queue is the kernel's.
pub(super) fn steered(
    name: &str,
    volume: &VolumeStatus,
    steer: &SteerStatus,
    json: bool,
) -> Result<(), Failure> {
    let vm = steer.vms.iter().find(|vm| vm.name == name);
    let Some(vm) = vm else {
        return Err(Failure::new(format!("the VM {name} was removed meanwhile")));
    };
    let answer = serde_json::json!({
        "vm": vm, "volume": volume.name, "device": steer.device, "unknown": ["steered"],
    });
    let (by, what) = match steer.qemu {
        Some(_) => ("QEMU's throttle holds", "latency of the array"),
        None => ("The kernel's queue holds", "latency and depth of the device"),
    };
    let limit = match (vm.limited_by, limits::of_others(vm)) {
        (None, _) => String::new(),
        (Some(Limit::Nothing), _) => "It has no IO. ".to_owned(),
        (Some(_), Some(others)) => format!("It is limited by {others}. "),
        (Some(limit), None) => format!("It is limited by {limit}. "),
    };
    let others = vm.bounds_of_others.as_ref().filter(|_| !vm.held_by_others);
    let others = others.map_or(String::new(), |bounds| {
        format!("Another program has set {bounds} in io.max of its cgroup: the lower of each bound holds. ")
    });
    output::tell_as(json, &answer, |_| {
        format!(
            "VM {name} of volume {}, whose device {} is steered\n  {} shares, {:.1} IOs pending in the last period\n\n\
         {limit}{others}{by} its IOs: how long each was held and at the array is not known for a VM, so nothing is predicted. \
         `parda status` has the {what}.",
            volume.name, steer.device, vm.shares, vm.pending
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Words for a VM that keeps `pending` IOs of 5 ms each at the array. Its neighbour is held for
    /// `neighbour_held_ms`.
    fn said(pending: f64, neighbour_held_ms: f64, held_now: f64) -> String {
        let vm = |name: &str, iops: f64, held_ms: f64, held_now: f64| parda_explain::ExplainedVm {
            name: name.to_owned(),
            shares: 1000.0,
            iops,
            held_ms,
            held_now,
            device_ms: if iops > 0.0 { 5.0 } else { 0.0 },
            slots: 1.0,
            slice: Some(20.0),
            ..parda_explain::ExplainedVm::default()
        };
        let view = ExplainedVolume {
            host: "kvm-01".to_owned(),
            seconds: 10.0,
            holding: Holding::Slices { window_max: Some(64.0) },
            threshold_ms: 30.0,
            latency_ms: Some(5.0),
            vms: vec![
                vm("db", pending / 5e-3, 0.0, held_now),
                vm("batch", 1000.0, neighbour_held_ms, 0.0),
            ],
            peers: Vec::new(),
        };
        let changes = [WhatIf::ThresholdMs(15.0), WhatIf::ThresholdMs(60.0)];
        let capacity = Capacity::Assumed { service_ms: 1.0 };
        let found = Explanation::of(&view, "db", &changes, &capacity).unwrap();
        of("array", &view, &found, Vec::new(), &capacity)
    }

    #[test]
    fn where_nobody_is_held_no_threshold_is_offered() {
        let alone = said(2.0, 0.0, 0.0);
        assert!(
            alone.contains("Nobody is held: the threshold of 30.0 ms bounds nobody, and only one below the array's latency of 5.00 ms"),
            "{alone}"
        );
        assert!(!alone.contains("A lower threshold makes"), "{alone}");
        assert!(!said(2.0, 20.0, 0.0).contains("Nobody is held"), "a neighbour is held");
    }

    #[test]
    fn a_vm_whose_ios_are_all_held_did_not_ask_for_nothing() {
        let starved = said(0.0, 20.0, 8.0);
        assert!(starved.contains("limited by its slice"), "{starved}");
        assert!(starved.contains("and 8 are held"), "{starved}");
        assert!(said(0.0, 20.0, 0.0).contains("It had no IO in this time"));
    }
}
