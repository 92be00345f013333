//! Every figure of the source documents that closed loops without control answer: the workload, the
//! window in which it was measured, what the paper says and what the model says. Shared by the test
//! that holds them and the example that prints them.

use super::closed_loop::{Access, Client, Seen, Window, run};
use parda_array::{Array, ArrayParams, Bytes, LunId, Nanos, Preset};

/// One number of a figure.
#[derive(Clone, Debug)]
pub(crate) struct Value {
    pub(crate) what: String,
    pub(crate) unit: &'static str,
    pub(crate) paper: f64,
    pub(crate) model: f64,
    /// By how much, as a fraction of the paper's, the model may be off. `None`: it is further off
    /// than anyone would accept, for a reason that docs/array-model.md gives.
    pub(crate) tolerance: Option<f64>,
}

impl Value {
    pub(crate) fn error(&self) -> f64 {
        self.model / self.paper - 1.0
    }
}

/// A figure or table.
#[derive(Clone, Debug)]
pub(crate) struct Figure {
    pub(crate) name: &'static str,
    pub(crate) workload: &'static str,
    pub(crate) values: Vec<Value>,
}

impl Figure {
    fn new(name: &'static str, workload: &'static str) -> Figure {
        Figure { name, workload, values: Vec::new() }
    }

    fn value(
        &mut self,
        what: impl Into<String>,
        unit: &'static str,
        (paper, model): (f64, f64),
        tolerance: impl Into<Option<f64>>,
    ) {
        let tolerance = tolerance.into();
        self.values.push(Value { what: what.into(), unit, paper, model, tolerance });
    }
}

pub(crate) fn seconds(warm: u64, measure: u64) -> Window {
    let window = [warm, measure].map(|s| Nanos::from_millis(1_000 * s));
    Window { warm: window[0], measure: window[1] }
}

pub(crate) fn measure(
    params: ArrayParams,
    clients: &[Client],
    window: Window,
) -> (Seen, Vec<Seen>) {
    run(&mut Array::new(params).expect("a possible array"), clients, window, 1)
}

/// Ten drives with VM disks in order on them, and a client for each.
fn vms(clients: &[Client], window: Window) -> (Seen, Vec<Seen>) {
    let mut params = Preset::Cx340Raid0Vms.params();
    params.layout.luns = vec![Bytes::gib(16); clients.len()];
    measure(params, clients, window)
}

fn client(lun: usize, outstanding: usize, kib: u64, read_percent: u32, random: u32) -> Client {
    Client {
        lun: LunId(lun as u32),
        outstanding,
        len: Bytes::kib(kib),
        read_percent,
        access: Access::Mixed { random_percent: random },
    }
}

/// All of them, in the order of docs/array-model.md.
pub(crate) fn all() -> Vec<Figure> {
    vec![
        elling(),
        speed_2(),
        speed_3ab(),
        speed_3cd(),
        parda_7(),
        parda_6(),
        table_2(),
        table_4(),
        section_4_figure_3(),
        section_4_figure_4(),
    ]
}

fn elling() -> Figure {
    let mut figure = Figure::new(
        "Elling'12",
        "one drive, 4 KiB over all of it; writes once the drive's cache is full, from 300 s on",
    );
    let at = |outstanding, read_percent, window| {
        let client = client(0, outstanding, 4, read_percent, 100);
        measure(Preset::Drive7200.params(), &[client], window).0
    };
    let (one, ten) = (at(1, 100, seconds(10, 600)), at(10, 100, seconds(10, 600)));
    figure.value("reads, 1 outstanding", "IOPS", (80.0, one.iops), 0.05);
    figure.value("reads, 1 outstanding", "ms", (12.5, one.mean_ms), 0.05);
    figure.value("reads, 10 outstanding", "IOPS", (137.0, ten.iops), 0.03);
    figure.value("reads, 10 outstanding", "ms", (73.0, ten.mean_ms), 0.03);
    figure.value("reads, 10 outstanding, the longest", "ms", (900.0, ten.max_ms), 0.20);
    for outstanding in [1, 2, 4, 6, 8, 10] {
        let seen = at(outstanding, 0, seconds(300, 600));
        let paper = (185.0, seen.iops);
        figure.value(format!("writes, {outstanding} outstanding"), "IOPS", paper, 0.06);
        match outstanding {
            1 => figure.value("writes, 1 outstanding", "ms", (5.5, seen.mean_ms), 0.06),
            10 => figure.value("writes, 10 outstanding", "ms", (55.0, seen.mean_ms), 0.06),
            _ => {}
        }
    }
    figure
}

fn speed_2() -> Figure {
    let mut figure = Figure::new(
        "SPEED'08 figure 2",
        "one host, 32 outstanding, 124 GB; from 60 s on, when the write cache has filled",
    );
    let mut cells = Vec::new();
    for kib in [4, 32, 64, 128] {
        for read in [0, 20, 40, 60, 80, 100] {
            for random in [0, 20, 40, 60, 80, 100] {
                let client = client(0, 32, kib, read, random);
                let seen = measure(Preset::Cx340Raid0.params(), &[client], seconds(60, 20)).0;
                cells.push((kib, read, random, seen));
            }
        }
    }
    let cell = |k, r, s| cells.iter().find(|c| (c.0, c.1, c.2) == (k, r, s)).expect("measured").3;
    let bandwidth = |c: &(u64, u32, u32, Seen)| c.3.iops * (c.0 * 1_024) as f64 / 1e6;
    let of = |pick: fn(f64, f64) -> f64, values: &mut dyn Iterator<Item = f64>| {
        values.reduce(pick).expect("cells")
    };
    let least = of(f64::min, &mut cells.iter().map(|c| c.3.mean_ms));
    let most = of(f64::max, &mut cells.iter().map(|c| c.3.mean_ms));
    let (fast, slow) = (cell(4, 100, 0).mean_ms, cell(128, 0, 100).mean_ms);
    figure.value("4 KB sequential reads", "ms", (1.14, fast), 0.05);
    figure.value("128 KB random writes", "ms", (42.0, slow), 0.10);
    figure.value("the least of 144 cells", "ms", (1.14, least), 0.05);
    figure.value("the most of 144 cells", "ms", (42.0, most), 0.10);
    let reads = cell(4, 100, 100).iops * 0.004_096;
    figure.value("4 KB random reads", "MB/s", (8.0, reads), 0.10);
    figure.value(
        "the least bandwidth of 144 cells",
        "MB/s",
        (8.0, of(f64::min, &mut cells.iter().map(bandwidth))),
        0.10,
    );
    figure.value(
        "the most bandwidth of 144 cells",
        "MB/s",
        (177.0, of(f64::max, &mut cells.iter().map(bandwidth))),
        0.05,
    );
    figure
}

fn speed_3ab() -> Figure {
    let mut figure = Figure::new(
        "SPEED'08 figure 3 a, b",
        "32 KB, 67 % reads, 70 % random, 64 outstanding each; before destaging starts (5 to 25 s)",
    );
    let seen: Vec<Seen> = (1..=4)
        .map(|hosts| {
            let clients: Vec<_> = (0..hosts).map(|lun| client(lun, 64, 32, 67, 70)).collect();
            vms(&clients, seconds(5, 20)).0
        })
        .collect();
    for hosts in [3, 4] {
        let flat = seen[hosts - 1].iops / seen[1].iops;
        figure.value(format!("throughput, {hosts} hosts to 2"), "", (1.0, flat), 0.05);
        let linear = seen[hosts - 1].mean_ms / seen[1].mean_ms;
        let paper = hosts as f64 / 2.0;
        figure.value(format!("latency, {hosts} hosts to 2"), "", (paper, linear), 0.05);
    }
    figure
}

fn speed_3cd() -> Figure {
    let mut figure = Figure::new(
        "SPEED'08 figure 3 c, d",
        "16 KB, 67 % reads, 70 % random, 2 hosts: windows 32 and 2 to 32; before destaging (5 to 65 s)",
    );
    for window in [2, 4, 8, 16, 24, 32] {
        let clients = [client(0, 32, 16, 67, 70), client(1, window, 16, 67, 70)];
        let (_, hosts) = vms(&clients, seconds(5, 60));
        let ratio = (window as f64 / 32.0, hosts[1].iops / hosts[0].iops);
        figure.value(format!("throughput, window {window} to 32"), "", ratio, 0.17);
    }
    figure
}

fn parda_7() -> Figure {
    let mut figure = Figure::new(
        "SPEED'08 figure 4, PARDA figure 7",
        "5-disk RAID-5, 7 hosts, 32 KB, 67 % reads, 70 % random; with the write cache full (600 to 1200 s)",
    );
    let with = |window_of_5_to_7| {
        let clients: Vec<_> = (0..7)
            .map(|lun| client(lun, if lun < 4 { 32 } else { window_of_5_to_7 }, 32, 67, 70))
            .collect();
        measure(Preset::Cx340Raid5Vms.params(), &clients, seconds(600, 600))
    };
    let (all, hosts) = with(32);
    figure.value("all at 32: device latency", "ms", (470.0, all.mean_ms), 0.08);
    for (host, seen) in hosts.iter().enumerate() {
        let mean = all.iops / 7.0;
        figure.value(
            format!("all at 32: host {} to the mean", host + 1),
            "",
            (1.0, seen.iops / mean),
            0.05,
        );
    }
    let (all, hosts) = with(16);
    let mean = |hosts: &[Seen]| hosts.iter().map(|h| h.iops).sum::<f64>() / hosts.len() as f64;
    let (wide, narrow) = (mean(&hosts[..4]), mean(&hosts[4..]));
    figure.value("hosts 1 to 4 at 32", "IOPS", (85.0, wide), 0.08);
    figure.value("hosts 5 to 7 at 16", "IOPS", (42.0, narrow), 0.08);
    figure.value("the one to the other", "", (2.0, wide / narrow), 0.05);
    figure.value("device latency", "ms", (375.0, all.mean_ms), 0.08);
    // A VM keeps 32 pending whatever the window of its host.
    figure.value("VM latency, hosts 1 to 4", "ms", (360.0, 32_000.0 / wide), 0.08);
    figure.value("VM latency, hosts 5 to 7", "ms", (780.0, 32_000.0 / narrow), 0.08);
    figure
}

fn parda_6() -> Figure {
    let mut figure = Figure::new(
        "PARDA figure 6",
        "16 KB, 67 % reads, 70 % random, 32 outstanding each; before destaging starts (5 to 45 s)",
    );
    let seen: Vec<Seen> = (1..=5)
        .map(|hosts| {
            let clients: Vec<_> = (0..hosts).map(|lun| client(lun, 32, 16, 67, 70)).collect();
            vms(&clients, seconds(5, 40)).0
        })
        .collect();
    let peak = (0..5).max_by(|a, b| seen[*a].iops.total_cmp(&seen[*b].iops)).expect("five");
    figure.value("throughput peaks", "hosts", (3.0, (peak + 1) as f64), 0.34);
    for hosts in 2..=5 {
        let rises = seen[hosts - 1].mean_ms > seen[hosts - 2].mean_ms;
        figure.value(format!("latency rises to {hosts} hosts"), "", (1.0, f64::from(rises)), 0.0);
    }
    figure
}

fn table_2() -> Figure {
    let mut figure = Figure::new(
        "PARDA table 2",
        "4 hosts, windows 32, then 16 at hosts 1 and 3; before destaging starts (5 to 65 s)",
    );
    let with = |throttled| {
        let clients = [
            client(0, throttled, 16, 70, 60),
            client(1, 32, 16, 100, 100),
            client(2, throttled, 8, 75, 0),
            client(3, 32, 8, 90, 100),
        ];
        vms(&clients, seconds(5, 60)).1
    };
    let names = ["16K 70/60", "16K 100/100", "8K 75/0", "8K 90/100"];
    let phases = [
        (32, [(1160.0, 26.0), (880.0, 35.0), (1280.0, 25.0), (900.0, 36.0)]),
        (16, [(640.0, 24.0), (1190.0, 27.0), (890.0, 17.0), (1240.0, 26.0)]),
    ];
    for (phase, (throttled, papers)) in phases.into_iter().enumerate() {
        for (host, (seen, (iops, ms))) in with(throttled).iter().zip(papers).enumerate() {
            let what = format!("phase {}: {}", phase + 1, names[host]);
            figure.value(what.clone(), "IOPS", (iops, seen.iops), 0.15);
            figure.value(what, "ms", (ms, seen.mean_ms), 0.15);
        }
    }
    figure
}

fn random_reads(hosts: usize) -> Vec<Client> {
    (0..hosts).map(|lun| client(lun, 32, 16, 100, 100)).collect()
}

fn table_4() -> Figure {
    let mut figure =
        Figure::new("PARDA table 4", "6 hosts, 16 KB random reads, 32 outstanding each");
    let (all, hosts) = vms(&random_reads(6), seconds(10, 600));
    figure.value("all", "IOPS", (3130.0, all.iops), 0.05);
    figure.value("all", "ms", (60.0, all.mean_ms), 0.05);
    let papers =
        [(525.0, 59.0), (570.0, 55.0), (570.0, 55.0), (560.0, 57.0), (430.0, 77.0), (500.0, 62.0)];
    for (host, (seen, (iops, ms))) in hosts.iter().zip(papers).enumerate() {
        let tolerance = (host != 4).then_some(0.10);
        let what = format!("host {}", host + 1);
        figure.value(what.clone(), "IOPS", (iops, seen.iops), tolerance);
        figure.value(what, "ms", (ms, seen.mean_ms), tolerance);
    }
    figure
}

fn section_4_figure_3() -> Figure {
    let mut figure = Figure::new(
        "PARDA §4, figure 3, no control",
        "4 hosts, 16 KB random reads, 32 outstanding each, disks in order",
    );
    let (_, hosts) = vms(&random_reads(4), seconds(10, 600));
    let papers = [(780.0, 40.0), (910.0, 34.5), (920.0, 35.0), (800.0, 39.5)];
    for (host, (seen, (iops, ms))) in hosts.iter().zip(papers).enumerate() {
        let what = format!("host {}", host + 1);
        figure.value(what.clone(), "IOPS", (iops, seen.iops), 0.10);
        figure.value(what, "ms", (ms, seen.mean_ms), 0.10);
    }
    figure
}

fn section_4_figure_4() -> Figure {
    let mut figure =
        Figure::new("PARDA §4, figure 4, no control", "the same on one shared 60 GB disk");
    let mut params = Preset::Cx340Raid0Vms.params();
    params.layout.luns = vec![Bytes::gib(60)];
    let clients = vec![client(0, 32, 16, 100, 100); 4];
    let (_, hosts) = measure(params, &clients, seconds(10, 600));
    for (host, seen) in hosts.iter().enumerate() {
        let what = format!("host {}", host + 1);
        figure.value(what.clone(), "IOPS", (790.0, seen.iops), 0.08);
        figure.value(what, "ms", (39.0, seen.mean_ms), 0.08);
    }
    figure
}
