//! Clusters as fleets are: many VMs that want little beside a few that want all, bursts, streams, shares that
//! are far apart, periods that differ, hosts outside control, and what may happen to hosts and arrays.

use std::fmt::Write as _;

use fastrand::Rng;
use parda_scenario::Scenario;

use crate::common::parse;

/// Times in periods. Bad things happen from here on…
pub(crate) const TROUBLE: f64 = 15.0;
/// Time at which these end, in periods.
pub(crate) const HEALED: f64 = 40.0;
/// All must be well so many of the longest periods later.
pub(crate) const RECOVERY: f64 = 10.0;
/// How long that is looked at.
const LOOKED: f64 = 60.0;
/// From the start, and from a change of shares, until a fleet has settled, in the longest of its periods.
const SETTLES: f64 = 25.0;
/// Parts of a phase that are looked at one by one.
pub(crate) const PARTS: u32 = 10;
/// The longest that a VM may wait for its next IO.
pub(crate) const HOLD_MAX: f64 = 10.0;

/// An array without its write cache, as the file says it.
const CACHE_OFF: &str = "[[event]]\nat = \"0s\"\narray = { write_cache = false }\n";

/// An array, the threshold at it, and a period that fits it, in seconds.
struct Array {
    name: &'static str,
    text: &'static str,
    threshold_ms: f64,
    period: f64,
    disk: &'static str,
    /// The outstanding IOs that saturate it.
    deep: u32,
}

const ARRAYS: [Array; 4] = [
    Array {
        name: "RAID-0, 6 drives",
        text: "preset = \"cx3-40-raid0\"\nraid = { drives = 6 }\nextent = \"256MiB\"\n",
        threshold_ms: 40.0,
        period: 1.0,
        disk: "4GiB",
        deep: 160,
    },
    Array {
        name: "RAID-0, 10 drives",
        text: "preset = \"cx3-40-raid0\"\nextent = \"256MiB\"\n",
        threshold_ms: 30.0,
        period: 1.0,
        disk: "4GiB",
        deep: 256,
    },
    Array {
        name: "RAID-5, 5 drives",
        text: "preset = \"cx3-40-raid5-vms\"\nlayout = \"interleaved\"\nextent = \"64MiB\"\n",
        threshold_ms: 40.0,
        period: 1.0,
        disk: "2GiB",
        deep: 128,
    },
    Array {
        name: "flash",
        text: "preset = \"flash-sata\"\nraid = { drives = 4 }\n",
        threshold_ms: 1.0,
        period: 0.1,
        disk: "4GiB",
        deep: 256,
    },
];

/// A cluster, and what is to be expected of it.
pub(crate) struct Fleet {
    pub(crate) text: String,
    /// Name and seed; array and law; hosts without what happens to them.
    pub(crate) title: String,
    pub(crate) settings: String,
    pub(crate) hosts: String,
    /// The longest period of a host, in periods.
    pub(crate) longest: f64,
    /// What it is an example of.
    pub(crate) classes: Vec<&'static str>,
    /// The same kind of IO everywhere: as large a share of the slots is as large a share of the IOPS.
    pub(crate) alike: bool,
    /// Everybody who is there is there all the time, and no cache hides the drives.
    pub(crate) settles: bool,
    pub(crate) threshold_ms: f64,
    /// A period, in seconds.
    pub(crate) period: f64,
    /// What each VM is.
    pub(crate) vms: Vec<Vec<Kind>>,
}

/// What a VM wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// More than it can get.
    Deep,
    /// A client that keeps this number of IOs outstanding.
    Shallow(u32),
    /// So many a second, whatever comes back.
    Light,
    /// A lot, and then nothing.
    Bursts,
    /// One place after the other.
    Stream,
}

/// A number that is as likely to be small as large.
pub(crate) fn log_uniform(rng: &mut Rng, from: f64, to: f64) -> f64 {
    from * (to / from).powf(rng.f64())
}

fn io(rng: &mut Rng, writes: bool) -> String {
    let size = [4, 8, 16, 32, 64][rng.usize(..5)];
    let read = if writes { [0, 67, 100][rng.usize(..3)] } else { 100 };
    if rng.u32(..4) > 0 {
        return format!("size = \"{size}KiB\", read = {read}");
    }
    let part = 10 * rng.u32(1..10);
    format!("sizes = {{ \"4KiB\" = {part}, \"64KiB\" = {} }}, read = {read}", 100 - part)
}

/// What happens, as the file says it.
#[derive(Default)]
struct Events(String);

impl Events {
    fn both(&mut self, [from, to]: [f64; 2], who: &str, first: &str, last: &str) {
        for (at, what) in [(from, first), (to, last)] {
            write!(self.0, "[[event]]\nat = \"{at:.2}s\"\n{who}\n{what}\n").unwrap();
        }
    }
}

fn shares(rng: &mut Rng, spread: u32) -> f64 {
    match spread {
        0 => f64::from([500, 1000, 1500, 2000][rng.usize(..4)]),
        1 => log_uniform(rng, 100.0, 10_000.0),
        _ => log_uniform(rng, 1.0, 1e6),
    }
}

impl Kind {
    fn drawn(rng: &mut Rng, deep: bool, bursts: bool, streams: bool) -> Kind {
        match rng.u32(..10) {
            _ if deep => Kind::Deep,
            0..=3 => Kind::Deep,
            4..=6 => Kind::Shallow([1, 1, 2, 4, 8][rng.usize(..5)]),
            7 if bursts => Kind::Bursts,
            8 if streams => Kind::Stream,
            7 | 8 => Kind::Light,
            _ => Kind::Shallow(1),
        }
    }

    /// What a scenario says of a VM of this kind whose IOs are these.
    fn workload(&self, rng: &mut Rng, array: &Array, io: &str) -> String {
        let deep = array.deep;
        let rest = match self {
            Kind::Deep => format!("outstanding = {deep}"),
            Kind::Shallow(n) => format!("outstanding = {n}"),
            Kind::Light => format!("rate = {}", rng.u32(2..40)),
            Kind::Bursts => {
                let [on, off] = [0, 0].map(|_| log_uniform(rng, 0.1, 12.0) * array.period * 1e3);
                format!("outstanding = {deep}, on = \"{on:.0}ms\", off = \"{off:.0}ms\"")
            }
            Kind::Stream => {
                return "size = \"64KiB\", read = 100, random = 0, outstanding = 16".into();
            }
        };
        format!("{io}, random = 100, {rest}")
    }
}

impl Fleet {
    #[expect(
        clippy::too_many_lines,
        reason = "draws in the order that the seeds of known fleets rest on"
    )]
    pub(crate) fn new(seed: u64) -> Fleet {
        let mut rng = Rng::with_seed(seed ^ 0x5eed_f1ee);
        let rng = &mut rng;
        let array = &ARRAYS[rng.usize(..ARRAYS.len())];
        let mut classes = vec![array.name];
        let alike = rng.u32(..3) > 0;
        classes.push(if alike { "alike IOs" } else { "unlike IOs" });
        let cached = rng.u32(..6) == 0 && array.period == 1.0;
        let writes = cached || rng.bool();
        if cached {
            classes.push("write cache");
        }
        let same = io(rng, writes);
        let spread = rng.u32(..3);
        let wide = (spread == 2) as u32;
        if wide == 1 {
            classes.push("1 to 10^6 shares");
        }
        let many = rng.u32(..4) == 0;
        if many {
            classes.push("many VMs a host");
        }
        let unequal = rng.u32(..5) == 0;
        if unequal {
            classes.push("unequal periods");
        }
        let bursts = rng.u32(..4) == 0;
        if bursts {
            classes.push("bursts");
        }
        let streams = !alike && rng.u32(..3) == 0;
        if streams {
            classes.push("streams");
        }
        let hosts = rng.usize(2..=if many { 5 } else { 10 });
        let deep_host = rng.usize(..hosts);
        let (mut text, mut events) = (String::new(), Events::default());
        let (mut longest, mut vms): (f64, Vec<Vec<Kind>>) = (1.0, Vec::new());
        let (mut shallow, p) = (false, array.period);
        let mut periods = Vec::new();
        for _ in 0..hosts {
            let own = if unequal { [0.5, 1.0, 2.0, 4.0][rng.usize(..4)] } else { 1.0 };
            longest = longest.max(own);
            periods.push(own);
        }
        let healed = HEALED * longest;
        let wrong = |rng: &mut Rng| {
            let mut two = [0, 0].map(|_| (TROUBLE + rng.f64() * (healed - TROUBLE)) * p);
            two.sort_by(f64::total_cmp);
            [two[0], two[1] + 0.05 * p]
        };
        for (host, period) in periods.iter().enumerate() {
            write!(text, "[[host]]\nname = \"h{host}\"\n").unwrap();
            if unequal {
                let ms = 1000.0 * p * period;
                writeln!(text, "control = {{ period = \"{ms:.0}ms\" }}").unwrap();
            }
            let count = if many { rng.usize(4..=12) } else { rng.usize(1..=3) };
            let mut kinds = Vec::new();
            for vm in 0..count {
                let shares = shares(rng, spread);
                let kind = Kind::drawn(rng, host == deep_host && vm == 0, bursts, streams);
                shallow |= matches!(kind, Kind::Shallow(_));
                let other = io(rng, writes);
                let load = kind.workload(rng, array, if alike { &same } else { &other });
                write!(
                    text,
                    "[[host.vm]]\nname = \"h{host}v{vm}\"\nshares = {}\ndisk = \"{}\"\n\
                     workload = {{ {load} }}\n",
                    shares.round().max(1.0),
                    array.disk
                )
                .unwrap();
                kinds.push(kind);
            }
            let when = wrong(rng);
            trouble(rng, host, count, when, p, &mut events, &mut classes);
            vms.push(kinds);
        }
        if shallow {
            classes.push("shallow clients");
        }
        if rng.u32(..6) == 0 {
            classes.push("an outsider");
            let n = rng.u32(1..=array.deep / 16);
            write!(
                text,
                "[[host]]\nname = \"out\"\noutside = true\n[[host.vm]]\nname = \"outv\"\n\
                 disk = \"{}\"\nworkload = {{ {same}, random = 100, outstanding = {n} }}\n",
                array.disk
            )
            .unwrap();
        }
        match rng.u32(..6) {
            0 => {
                classes.push("slow drives");
                let slow = format!("array = {{ slow = {:.1} }}", 1.5 + rng.f64());
                events.both(wrong(rng), "", &slow, "array = { slow = 1 }");
            }
            1 if cached => {
                classes.push("cache off and on");
                let [off, on] =
                    ["array = { write_cache = false }", "array = { write_cache = true }"];
                events.both(wrong(rng), "", off, on);
            }
            _ => {}
        }
        let cache = if cached || array.period < 1.0 { "" } else { CACHE_OFF };
        let from = (healed + RECOVERY * longest) * p;
        let to = from + LOOKED * p;
        let title = format!("name = \"fleet\"\nseed = {}\n", seed % (1 << 31));
        let settings = format!(
            "[array]\n{}[control]\nlatency_threshold = \"{}ms\"\nperiod = \"{:.0}ms\"\nhold_max = \"{:.0}ms\"\n\
             window_max = 1024\n",
            array.text,
            array.threshold_ms,
            1e3 * p,
            HOLD_MAX * 1e3 * p,
        );
        classes.sort_unstable();
        classes.dedup();
        let hosts = text + cache;
        let well = phase("well", from, to);
        Fleet {
            text: format!("{title}duration = \"{to:.2}s\"\n{settings}{well}{hosts}{}", events.0),
            title,
            settings,
            hosts,
            longest,
            classes,
            alike,
            settles: !bursts && !cached && !streams,
            threshold_ms: array.threshold_ms,
            period: p,
            vms,
        }
    }

    pub(crate) fn scenario(&self) -> Scenario {
        parse(&self.text)
    }

    /// The same cluster with one event and nothing else that happens to it: the phase `before`, its parts `part0`, `part1`, …, and
    /// the phase `after`.
    pub(crate) fn with_event(&self, event: &str) -> Scenario {
        let settles = SETTLES * self.longest * self.period;
        let looked = LOOKED * self.period;
        let (from, to) = (settles, settles + looked);
        let step = looked / f64::from(PARTS);
        let parts = (0..PARTS).map(|i| {
            phase(&format!("part{i}"), from + f64::from(i) * step, from + f64::from(i + 1) * step)
        });
        let parts: String = parts.collect();
        let end = to + settles + looked;
        let phases = phase("before", from, to) + &parts + &phase("after", to + settles, end);
        let (title, settings, hosts) = (&self.title, &self.settings, &self.hosts);
        parse(&format!(
            "{title}duration = \"{end:.2}s\"\n{settings}{phases}{hosts}[[event]]\nat = \"{to:.2}s\"\n{event}\n"
        ))
    }
}

/// A phase as a scenario says it.
pub(crate) fn phase(name: &str, from: f64, to: f64) -> String {
    format!("[[phase]]\nname = \"{name}\"\nfrom = \"{from:.3}s\"\nto = \"{to:.3}s\"\n")
}

/// What happens to one host: one thing at most, over before all is to be healed.
fn trouble(
    rng: &mut Rng,
    host: usize,
    vms: usize,
    when: [f64; 2],
    period: f64,
    events: &mut Events,
    classes: &mut Vec<&'static str>,
) {
    let vm = format!("vm = \"h{host}v{}\"", rng.usize(..vms));
    let host = format!("host = \"h{host}\"");
    let exchange = |what: &str| format!("exchange = {{ {what} }}");
    let (class, who, first, last) = match rng.u32(..18) {
        0 => {
            let [first, last] = ["reachable = false", "reachable = true"].map(exchange);
            ("exchange unreachable", host, first, last)
        }
        1 => {
            let first = exchange(&format!("loss = {}", rng.u32(10..=90)));
            ("exchange loses", host, first, exchange("loss = 0"))
        }
        2 => {
            let first = exchange(&format!("delay = \"{:.0}ms\"", rng.f64() * 6e3 * period));
            ("exchange late", host, first, exchange("delay = \"0s\""))
        }
        // Whoever draws this, too, is on the same side.
        3 | 4 => {
            let [first, last] = ["side = \"other\"", "side = \"\""].map(exchange);
            ("partition", host, first, last)
        }
        5 => ("host hangs", host, "do = \"hang\"".into(), "do = \"resume\"".into()),
        6 => ("host dies", host, "do = \"kill\"".into(), "do = \"start\"".into()),
        7 => ("VM stops", vm, "do = \"stop\"".into(), "do = \"start\"".into()),
        _ => return,
    };
    classes.push(class);
    events.both(when, &who, &first, &last);
}
