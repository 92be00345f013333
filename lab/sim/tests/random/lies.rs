//! Hosts that lie: one of a cluster publishes something else than it measured, for a minute, and dies.

use std::collections::VecDeque;
use std::fmt::Write as _;

use fastrand::Rng;
use parda_control::latency::{Sample, Signal};
use parda_control::{Bounded, Bytes, Costs, Governed, Instant, Settings, Shares, Span, Tuning};
use parda_exchange::Publication;
use parda_scenario::{PhaseAnswer, RunAnswer, Scenario};
use parda_sim::{KeptRuns, Liar, run_beside};

use crate::common::parse;

/// The lie begins and ends, and the liar dies, in seconds; the others are judged again from then on.
const LIES: u64 = 50;
const DIES: u64 = 150;
const AFTER: u64 = 165;
const END: u64 = 195;

/// What a record can carry.
const MOST: f64 = (1_u64 << 52) as f64;

/// A cluster of 4 to 64 hosts, of which one lies.
pub(crate) struct Lied {
    scenario: Scenario,
    liar: usize,
    lies: Vec<Lie>,
    seed: u64,
}

/// How a value is changed.
#[derive(Clone, Copy, Debug)]
enum How {
    /// The same value each time.
    Is(f64),
    /// So many times the value.
    Times(f64),
    /// The same, more so with each publication.
    Drifts(f64),
    /// Another one each time.
    Random,
}

#[derive(Clone, Copy, Debug)]
enum Lie {
    Field(Field, How),
    /// What it said so many publications ago, again and again.
    Replays(usize),
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Field {
    Period,
    Elapsed,
    Ios,
    Bytes,
    Latency,
    Scaled,
    Moments,
    Outstanding,
    Window,
    Beta,
    Active,
    Shares,
    Threshold,
    Wants,
    Saturated,
    SaturatedShares,
    Reserved,
    Governed,
    Tuning,
    Bounded,
    Settings,
    Leaving,
}

const FIELDS: [Field; 22] = [
    Field::Period,
    Field::Elapsed,
    Field::Ios,
    Field::Bytes,
    Field::Latency,
    Field::Scaled,
    Field::Moments,
    Field::Outstanding,
    Field::Window,
    Field::Beta,
    Field::Active,
    Field::Shares,
    Field::Threshold,
    Field::Wants,
    Field::Saturated,
    Field::SaturatedShares,
    Field::Reserved,
    Field::Governed,
    Field::Tuning,
    Field::Bounded,
    Field::Settings,
    Field::Leaving,
];

impl How {
    fn draw(rng: &mut Rng) -> How {
        let factor = [0.01, 0.1, 0.3, 0.5, 0.8, 1.25, 2.0, 3.0, 10.0, 100.0];
        match rng.u32(..4) {
            0 => How::Is([0.0, 1e-6, 1.0, 1e3, 1e6, 1e9, MOST][rng.usize(..7)]),
            1 => How::Times(factor[rng.usize(..10)]),
            2 => How::Drifts([0.9, 0.97, 0.99, 1.01, 1.03, 1.1][rng.usize(..6)]),
            _ => How::Random,
        }
    }

    fn of(self, value: f64, n: i32, rng: &mut Rng) -> f64 {
        let lie = match self {
            How::Is(value) => value,
            How::Times(factor) => value * factor,
            How::Drifts(factor) => value * factor.powi(n),
            How::Random => 10_f64.powf(rng.f64() * 18.0 - 3.0),
        };
        lie.clamp(0.0, MOST)
    }
}

impl Lie {
    fn draw(rng: &mut Rng, at: usize) -> Lie {
        match rng.u32(..12) {
            0 => Lie::Replays(rng.usize(1..40)),
            _ => Lie::Field(FIELDS[at % FIELDS.len()], How::draw(rng)),
        }
    }

    fn tell(self, said: &VecDeque<Publication>, n: i32, rng: &mut Rng, body: &mut Publication) {
        let (field, how) = match self {
            Lie::Replays(ago) => {
                *body = said[said.len().saturating_sub(1 + ago)].clone();
                return;
            }
            Lie::Field(field, how) => (field, how),
        };
        let period = body.period;
        let report = &mut body.report;
        let mut lie = |value: f64| how.of(value, n, rng);
        let span = |value: f64| Span(value as u64);
        #[allow(clippy::type_complexity, reason = "a change of a sample, by a lie about a number")]
        let mut sample = |change: &dyn Fn(&mut Sample, &mut dyn FnMut(f64) -> f64)| {
            change(&mut report.interval.reads, &mut lie);
            change(&mut report.interval.writes, &mut lie);
        };
        match field {
            Field::Ios => sample(&|s, lie| s.ios = lie(s.ios as f64) as u64),
            Field::Bytes => sample(&|s, lie| s.bytes = Bytes(lie(s.bytes.0 as f64) as u64)),
            Field::Latency => sample(&|s, lie| {
                s.latency = span(lie(s.latency.0 as f64));
                s.scaled = s.latency;
            }),
            Field::Scaled => sample(&|s, lie| s.scaled = span(lie(s.scaled.0 as f64))),
            Field::Moments => sample(&|s, lie| {
                s.moments.squares = lie(s.moments.squares);
                s.moments.products = lie(s.moments.products);
            }),
            // None is longer than an hour, as it is read.
            Field::Period => body.period = span(lie(period.0 as f64).min(3.6e12)),
            Field::Elapsed => report.elapsed = span(lie(report.elapsed.0 as f64)),
            Field::Outstanding => report.outstanding = lie(report.outstanding),
            Field::Window => report.window.0 = lie(report.window.0),
            Field::Beta => report.beta = lie(report.beta),
            Field::Active => report.active = lie(report.active),
            Field::Shares => report.shares = Shares(lie(report.shares.0.into()) as u32),
            Field::Threshold => report.threshold = span(lie(report.threshold.0 as f64)),
            Field::Wants => {
                report.wants.asks = Some(Span::from_micros(1));
                report.wants.floor = Span(1);
                report.wants.ios = lie(report.wants.ios as f64) as u64;
            }
            Field::Saturated => report.saturated.rate = lie(report.saturated.rate),
            Field::SaturatedShares => report.saturated.shares = lie(report.saturated.shares),
            Field::Reserved => report.reserved = lie(report.reserved),
            Field::Governed => {
                report.governed =
                    if how.of(1.0, n, rng) < 1.0 { Governed::No } else { Governed::Observes };
            }
            Field::Tuning => report.tuning = [Tuning::Unsaid, Tuning::Auto][rng.usize(..2)],
            Field::Bounded => {
                report.bounded =
                    [Bounded::Unsaid, Bounded::Nothing, Bounded::Window][rng.usize(..3)];
            }
            Field::Settings => {
                report.settings =
                    [None, Some(Settings { costs: Some(Costs::BYTES), signal: Signal::Writes })]
                        [rng.usize(..2)];
            }
            Field::Leaving => body.leaving = true,
        }
    }
}

impl Lied {
    pub(crate) fn new(seed: u64) -> Lied {
        let mut rng = Rng::with_seed(seed);
        let hosts = [4, 5, 6, 8, 12, 16, 32, 64][seed as usize % 8];
        let preset = ["cx3-40-raid0", "flash-sata"][usize::from(rng.u32(..8) == 0)];
        let threshold = if preset == "flash-sata" { 2 } else { [30, 50][rng.usize(..2)] };
        let fairness = ["", "", "fairness = \"iops\"\n"][rng.usize(..3)];
        let mut text = format!(
            "name = \"lies\"\nseed = {seed}\nduration = \"{END}s\"\n\
             [array]\npreset = \"{preset}\"\n[exchange]\ntransport = \"udp\"\n\
             [control]\nlatency_threshold = \"{threshold}ms\"\n{fairness}\
             [[phase]]\nname = \"lied\"\nfrom = \"{LIES}s\"\nto = \"{DIES}s\"\n\
             [[phase]]\nname = \"after\"\nfrom = \"{AFTER}s\"\nto = \"{END}s\"\n"
        );
        let light = rng.bool();
        for host in 0..hosts {
            let shares = [500, 1000, 1000, 2000][rng.usize(..4)];
            let outstanding = if light && host % 3 == 2 { 1 } else { 32 };
            write!(
                text,
                "[[host]]\nname = \"h{host}\"\n[[host.vm]]\nname = \"v{host}\"\nshares = {shares}\n\
                 disk = \"4GiB\"\nworkload = {{ size = \"8KiB\", read = 70, random = 100, outstanding = {outstanding} }}\n"
            )
            .unwrap();
        }
        // One that wants more than it has.
        let liar = rng.usize(..hosts) / 3 * 3;
        write!(text, "[[event]]\nat = \"{DIES}s\"\nhost = \"h{liar}\"\ndo = \"kill\"\n").unwrap();
        if preset != "flash-sata" {
            text += "[[event]]\nat = \"0s\"\narray = { write_cache = false }\n";
        }
        let mixed = [1, 1, 1, 2, 3, 6][rng.usize(..6)];
        let at = (seed / 8) as usize * 8 + seed as usize % 8;
        let lies = (0..mixed).map(|i| Lie::draw(&mut rng, at + i * 7)).collect();
        Lied { scenario: parse(&text), liar, lies, seed }
    }

    fn answer(&self, lies: bool) -> RunAnswer {
        let mut rng = Rng::with_seed(self.seed);
        let (mut said, mut told) = (VecDeque::new(), 0);
        let lie = move |now: Instant, body: &mut Publication| {
            said.push_back(body.clone());
            if said.len() > 64 {
                said.pop_front();
            }
            if now.0 >= LIES * 1_000_000_000 {
                told += 1;
                for lie in &self.lies {
                    lie.tell(&said, told, &mut rng, body);
                }
            }
        };
        let host = self.scenario.host_ids().nth(self.liar).unwrap().0;
        let liar = lies.then(|| Liar { host, lie: Box::new(lie) });
        run_beside(&self.scenario, KeptRuns::Nothing, liar, |_| ()).unwrap().answer
    }

    /// How the others are served beside the liar, and after its death, and what they lose.
    pub(crate) fn judge(&self) -> (String, bool) {
        let [honest, lied] = [false, true].map(|lies| self.answer(lies));
        let of = |phase: &PhaseAnswer| {
            let liar = phase.hosts[self.liar].iops;
            (phase.total.iops - liar, liar, phase.total.device_latency_ms.unwrap_or(0.0))
        };
        let mut text =
            format!("{} of {} hosts: {:?}:", self.seed, self.scenario.hosts.len(), self.lies);
        let mut ok = true;
        for (honest, lied) in honest.phases.iter().zip(&lied.phases) {
            let ((had, share, usual), (has, _, latency)) = (of(honest), of(lied));
            let lost = (had - has) / (had + share);
            let off = latency / usual - 1.0;
            // Any host may try an objective that cannot be met, for fifteen periods.
            let tries = self.lies.iter().any(|lie| matches!(lie, Lie::Field(Field::Wants, _)));
            let tried = if tries { 15.0 / (DIES - LIES) as f64 } else { 0.0 };
            let bound = share / (had + share) + NOISE + tried;
            let good = lost <= bound && off.abs() <= 0.1 + NOISE + tried;
            ok &= good;
            write!(
                text,
                " {}: lose {:.3} of {:.3}, latency off {:+.3}{}",
                honest.name,
                lost,
                bound - NOISE,
                off,
                if good { "" } else { " BAD" }
            )
            .unwrap();
        }
        (text, ok)
    }
}

/// What two runs of one cluster differ by.
const NOISE: f64 = 0.02;
