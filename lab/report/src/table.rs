//! Text table of an answer: phases side by side, or one per row with variants. Then one line for each
//! expectation.

use std::collections::BTreeMap;

use comfy_table::{Attribute, Cell, CellAlignment, Color, Table, presets};
use parda_scenario::Engine;
use parda_scenario::answer::{Distribution, HostAnswer, PhaseAnswer, RunAnswer, VmAnswer};
use parda_scenario::expectation::{Tally, Verdict};
use parda_scenario::shares::{host_parts, vm_parts};

use crate::words::words;

/// A phase, and the parts of their shares that its hosts and VMs got.
type Phase<'a> = (&'a PhaseAnswer, BTreeMap<&'a str, f64>, BTreeMap<&'a str, f64>);

/// Number of expectations up to which all are listed. Beyond, only the failed ones are.
const MANY: usize = 40;

/// The answer as a text table. With `color`, it has ANSI colours.
#[must_use]
pub fn table(answer: &RunAnswer, color: bool) -> String {
    let mut text = format!("{}\n\n", heading(answer));
    let variants = answer.phases.iter().any(|phase| phase.variant.is_some());
    if variants {
        text += &format!("{}\n", crate::variants::table(answer, plain(color)).trim_fmt());
    } else {
        text += &format!("{}\n", measured(answer, color).trim_fmt());
        text += "\nof share: IOPS (or bytes, if these are shared) over what the shares entitle to, among those\n\
                 that want more or have more than their share.\n\
                 latency: mean / 99th percentile; of hosts the device's, of VMs with the time held.\n";
        text += &format!("\n{}", words(answer));
    }
    if !answer.expectations.is_empty() {
        // With many variants the table above counts the expectations that hold, so only the others are
        // listed.
        let brief = variants && answer.expectations.len() > MANY;
        let shown: Vec<&Verdict> =
            answer.expectations.iter().filter(|verdict| !brief || verdict.missed()).collect();
        if !shown.is_empty() {
            text += &format!("\n{}\n", verdicts(&shown, color).trim_fmt());
        }
        text += &format!("\n{}\n", Tally::of(&answer.expectations));
    }
    text
}

fn heading(answer: &RunAnswer) -> String {
    let engine = match answer.engine {
        Engine::Lab => "real processes in real time",
        Engine::Sim => "virtual time",
    };
    format!("{}: {engine}, seed {}", answer.scenario, answer.seed)
}

/// The phases side by side: a row for each host, and for each VM of a host with several.
fn measured(answer: &RunAnswer, color: bool) -> Table {
    let mut table = plain(color);
    let mut header = vec![Cell::new("\n"), right("\nshares")];
    for phase in &answer.phases {
        let strong = right(format!("{}\nIOPS", phase.name)).add_attribute(Attribute::Bold);
        let time = format!("{}-{} s", phase.from, phase.to);
        header.extend([strong, right(format!("{time}\nof share")), right("\nlatency, ms")]);
    }
    table.set_header(header);
    let Some(first) = answer.phases.first() else { return table };
    let parts =
        answer.phases.iter().map(|p| (p, host_parts(&p.hosts, None), vm_parts(&p.hosts, None)));
    let phases: Vec<Phase> = parts.collect();
    let mut row = |name: &str, shares: String, cells: &dyn Fn(&Phase) -> [String; 3]| {
        let cells = phases.iter().flat_map(cells).map(right);
        table.add_row([Cell::new(name), right(shares)].into_iter().chain(cells));
    };
    let iops = |iops: f64| format!("{iops:.0}");
    let part = |part: Option<&f64>| part.map_or("-".to_owned(), |p| format!("{:.0}%", p * 100.0));
    let latency = |d: Option<&Distribution>| {
        d.map_or("-".to_owned(), |d| format!("{:.1} / {:.0}", d.mean, d.p99))
    };
    for (h, HostAnswer { name, vms, shares, outside, .. }) in first.hosts.iter().enumerate() {
        // Hosts outside control have no shares.
        let of = |shares: &u32| if *outside { "outside".to_owned() } else { shares.to_string() };
        let only = if let [vm] = vms.as_slice() { format!(" {}", vm.name) } else { String::new() };
        row(&format!("{name}{only}"), of(shares), &|(phase, hosts, _)| {
            let host = &phase.hosts[h];
            [
                iops(host.iops),
                part(hosts.get(name.as_str())),
                latency(host.device_latency_ms.as_ref()),
            ]
        });
        for (v, VmAnswer { name, shares, .. }) in vms.iter().enumerate().filter(|_| vms.len() > 1) {
            row(&format!("  {name}"), of(shares), &|(phase, _, vms)| {
                let vm = &phase.hosts[h].vms[v];
                [iops(vm.iops), part(vms.get(name.as_str())), latency(vm.latency_ms.as_ref())]
            });
        }
    }
    row("all", String::new(), &|(phase, ..)| {
        let mean = phase.total.device_latency_ms;
        let mean = mean.map_or("-".to_owned(), |mean| format!("mean {mean:.1}"));
        [iops(phase.total.iops), String::new(), mean]
    });
    row("fairness (1 is perfect)", String::new(), &|(phase, ..)| {
        let fairness = phase.total.fairness.map_or("-".to_owned(), |f| format!("{f:.3}"));
        [String::new(), fairness, String::new()]
    });
    table
}

fn verdicts(expectations: &[&Verdict], color: bool) -> Table {
    let mut table = plain(color);
    for Verdict { what, source, expected, measured, tolerance, ok, exempt } in expectations {
        let verdict = if exempt.is_some() {
            Cell::new("exempt").fg(Color::Yellow)
        } else if *ok {
            Cell::new("ok").fg(Color::Green)
        } else {
            Cell::new("FAIL").fg(Color::Red).add_attribute(Attribute::Bold)
        };
        let wanted = if tolerance.starts_with("at ") {
            format!("{tolerance} {expected}")
        } else {
            format!("{expected} {}{tolerance}", if tolerance.ends_with('%') { "±" } else { "" })
        };
        let measured = measured.map_or("nothing".to_owned(), short);
        table.add_row([
            verdict,
            Cell::new(what),
            right(measured),
            Cell::new(wanted),
            Cell::new(match exempt {
                Some(why) => format!("{source}; {why}"),
                None => source.clone(),
            }),
        ]);
    }
    table
}

/// A number for people, to about four digits.
#[must_use]
pub fn short(x: f64) -> String {
    match x.abs() {
        a if a >= 1000.0 => format!("{x:.0}"),
        a if a >= 10.0 => format!("{x:.1}"),
        _ => format!("{x:.3}"),
    }
}

pub(crate) fn right(text: impl ToString) -> Cell {
    Cell::new(text).set_alignment(CellAlignment::Right)
}

pub(crate) fn plain(color: bool) -> Table {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING);
    if color {
        table.enforce_styling();
    } else {
        table.force_no_tty();
    }
    table
}

/// Missed expectations, one a line, and the number that passed: for a terminal, when a file takes the
/// answer.
#[must_use]
pub fn missed(answer: &RunAnswer, color: bool) -> String {
    let missed: Vec<&Verdict> = answer.expectations.iter().filter(|v| v.missed()).collect();
    let list = if missed.is_empty() {
        String::new()
    } else {
        format!("{}\n\n", verdicts(&missed, color).trim_fmt())
    };
    format!("{list}{}: {}\n", answer.scenario, Tally::of(&answer.expectations))
}
