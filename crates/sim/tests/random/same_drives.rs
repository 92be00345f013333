//! Two volumes on the same drives are found to be so, and two on drives of their own are not, though their loads may come and go together.
//!
//! A pair is two LUNs of one to three hosts each, with loads of all kinds. On the same drives they are two sides of one simulated array; apart, each
//! is a simulated array of its own. What a host knows of each volume is what its hosts report: IO/s and latency.

use fastrand::Rng;
use parda_control::same_drives::{Follows, Look, compare};
use parda_scenario::Scenario;
use parda_sim::{HostSeries, Keep, SimOptions, run};

use crate::common::parse;

/// Length of a run, in seconds: what an agent knows after that time.
const LONG: u64 = 600;

/// Seeds of pairs in each run of the tests.
const SOME: [u64; 1] = [1];

/// Two volumes, with the hosts of each.
struct Pair {
    seed: u64,
    array: String,
    /// The hosts of each.
    hosts: [String; 2],
    /// The loads of both come and go at the same times.
    together: bool,
}

impl Pair {
    fn new(seed: u64) -> Pair {
        let mut rng = Rng::with_seed(seed ^ 0x5a3e_d21f);
        let drives = 2 + rng.u32(..3);
        let threshold = [15, 30, 60][rng.usize(..3)];
        let array = format!(
            "[array]\npreset = \"cx3-40-raid0\"\nraid = {{ drives = {drives} }}\n[control]\nlatency_threshold = \"{threshold}ms\"\n"
        );
        let together = rng.u32(..3) == 0;
        let bursts = bursts(&mut rng);
        let hosts = ["a", "b"].map(|lun| {
            let hosts = 1 + rng.u32(..3);
            let host = |host| {
                let own = self::bursts(&mut rng);
                let bursts = if together { &bursts } else { &own };
                let workload = workload(&mut rng, drives);
                format!(
                    "[[host]]\nname = \"{lun}{host}\"\nexchange = {{ side = \"{lun}\" }}\n[[host.vm]]\nname = \"{lun}{host}\"\n\
                     shares = {}\ndisk = \"8GiB\"\nworkload = {{ {workload}{bursts} }}\n",
                    [500, 1000, 2000][rng.usize(..3)]
                )
            };
            (0..hosts).map(host).collect()
        });
        Pair { seed, array, hosts, together }
    }

    fn scenario(&self, seed: u64, hosts: &str) -> Scenario {
        parse(&format!(
            "name = \"pair\"\nseed = {seed}\nduration = \"{LONG}s\"\n{}{hosts}[[phase]]\nname = \"all\"\nfrom = \"0s\"\nto = \"{LONG}s\"\n",
            self.array
        ))
    }

    /// What is found on the same drives.
    fn on_the_same(&self) -> [Option<Follows>; 2] {
        let hosts = series(&self.scenario(self.seed, &self.hosts.concat()));
        let [a, b] =
            ["a", "b"].map(|lun| looks(hosts.iter().filter(|host| host.name.starts_with(lun))));
        compare(&a, &b)
    }

    /// What is found on drives of their own.
    fn apart(&self) -> [Option<Follows>; 2] {
        let [a, b] = [0, 1].map(|at| {
            looks(series(&self.scenario(self.seed + 7919 * at, &self.hosts[at as usize])).iter())
        });
        compare(&a, &b)
    }
}

/// When a VM does IO: always, or by turns.
fn bursts(rng: &mut Rng) -> String {
    let [on, off] = [0, 0].map(|_: i32| 2 + rng.u32(..60));
    if rng.u32(..4) == 0 { String::new() } else { format!(", on = \"{on}s\", off = \"{off}s\"") }
}

fn workload(rng: &mut Rng, drives: u32) -> String {
    let (size, read) = ([4, 8, 16, 64][rng.usize(..4)], [67, 100, 100][rng.usize(..3)]);
    let random = [50, 100, 100, 100][rng.usize(..4)];
    let demand = match rng.u32(..3) {
        0 => format!("rate = {}", drives * [20, 60, 150][rng.usize(..3)]),
        _ => format!("outstanding = {}", [2, 4, 8, 16, 32, 64][rng.usize(..6)]),
    };
    format!("size = \"{size}KiB\", read = {read}, random = {random}, {demand}")
}

fn series(scenario: &Scenario) -> Vec<HostSeries> {
    let options = SimOptions { series: Keep::All, ..SimOptions::default() };
    run(scenario, &options, |_| ()).unwrap().series.unwrap().hosts
}

/// What the hosts of a volume know of it.
fn looks<'a>(hosts: impl Iterator<Item = &'a HostSeries> + Clone) -> Vec<Look> {
    let look = |at| {
        let of = hosts.clone().filter_map(|host| {
            let ios = host.iops[at];
            Some((ios, ios * host.device_latency_ms[at]? / 1e3, host.bytes_per_s[at]))
        });
        let (ios, waits, bytes) = of.fold((0.0, 0.0, 0.0), |(ios, waits, bytes), (i, w, b)| {
            (ios + i, waits + w, bytes + b)
        });
        let of_an_io = |sum: f64| (ios > 0.0).then(|| sum / ios);
        Look { latency: of_an_io(waits), outstanding: waits, size: of_an_io(bytes) }
    };
    (0..LONG as usize).map(look).collect()
}

fn sure(found: [Option<Follows>; 2]) -> bool {
    found.into_iter().flatten().any(|follows| follows.is_sure())
}

#[test]
fn two_volumes_on_the_same_drives_are_told_from_two_apart() {
    for seed in SOME {
        let pair = Pair::new(seed);
        let found = pair.on_the_same();
        assert!(sure(found), "seed {seed}: {found:?}");
        let found = pair.apart();
        assert!(!sure(found), "seed {seed}: {found:?}");
    }
}

#[test]
#[ignore = "nightly: PARDA_PAIRS pairs, 100 if not said"]
fn a_hundred_pairs_on_the_same_drives_and_apart() {
    let many = crate::seed_of("PARDA_PAIRS").unwrap_or(100);
    let first = crate::first_seed();
    let [mut right, mut wrong] = [0_u64; 2];
    for seed in first..first + many {
        let pair = Pair::new(seed);
        let (same, apart) = (pair.on_the_same(), pair.apart());
        right += u64::from(sure(same));
        wrong += u64::from(sure(apart));
        let show = |found: [Option<Follows>; 2]| {
            found.map(|f| {
                f.map_or("-".to_owned(), |f| {
                    format!("{:.2} of {}: {:.1}", f.correlation, f.compared, f.errors)
                })
            })
        };
        println!(
            "seed {seed}, together {}: same {:?}, apart {:?}",
            pair.together,
            show(same),
            show(apart)
        );
    }
    println!("on the same drives: {right} of {many} found; apart: {wrong} of {many} wrong");
    assert_eq!(wrong, 0, "a pool that is none");
    assert!(right * 3 > many, "{right} of {many} found");
}
