//! Everything that can be drawn, on one page: `cargo run -p parda-plot --example page -- DIR` writes `page.html`, and an
//! SVG and a PNG of each figure. The data is made up.

use std::error::Error;
use std::path::PathBuf;

use parda_plot::{Across, Cell, Figure, Page, Panel, Table};

fn main() -> Result<(), Box<dyn Error>> {
    let dir = PathBuf::from(std::env::args().nth(1).ok_or("usage: page DIR")?);
    std::fs::create_dir_all(&dir)?;
    let figures = [
        ("time", over_time(4), "Four hosts. The threshold is a dashed line, the phases are grey."),
        (
            "many",
            over_time(100).digest(12, "hosts"),
            "A hundred hosts: a band from the least to the most.",
        ),
        ("twelve", over_time(12), "Twelve hosts, the most that are drawn one by one."),
        ("numbers", over_numbers(), "Over a number; hollow marks are the paper's."),
        ("names", over_names(), "Bars over variants, with the paper's values."),
    ];

    let mut page = Page::new("All kinds of figures");
    page.prose("This page shows what `parda-plot` draws. The data is made up.\n\nIt is one file: no scripts, nothing from elsewhere.");
    page.heading("Values");
    page.table(
        Table::new(["value", "paper", "ours", "error", "tolerance", "verdict"])
            .caption("Against the paper.")
            .row([
                Cell::text("throughput, IOPS"),
                Cell::number(3130.0, 0),
                Cell::number(3012.4, 0),
                Cell::Number("−3.8 %".to_owned()),
                Cell::Number("±5 %".to_owned()),
                Cell::verdict(true, "within"),
            ])
            .row([
                Cell::text("`total/device_latency_ms`"),
                Cell::number(60.0, 1),
                Cell::number(75.2, 1),
                Cell::Number("25.3 %".to_owned()),
                Cell::Number("±10 %".to_owned()),
                Cell::verdict(false, "beyond"),
            ]),
    );
    for (name, figure, caption) in &figures {
        std::fs::write(dir.join(format!("{name}.svg")), figure.svg())?;
        std::fs::write(dir.join(format!("{name}.png")), figure.png()?)?;
        page.heading(&figure.title);
        page.figure(figure, caption);
    }
    std::fs::write(dir.join("page.html"), page.html())?;
    Ok(())
}

/// Windows, latencies and throughput of some hosts, without control and with it.
fn over_time(hosts: usize) -> Figure {
    let mut window = Panel::new("Window", "slots");
    let mut latency = Panel::new("Device latency", "ms").level("threshold", 30.0);
    let mut iops = Panel::new("Throughput", "IOPS");
    latency.levels[0].within = Some((60.0, 350.0));
    for host in 0..hosts {
        let name = format!("kvm-{host:02}");
        let part = 1.0 + host as f64 / hosts as f64;
        let noise = |t: f64| ((t * 7.3 + host as f64 * 2.1).sin() + (t * 1.7).cos()) / 2.0;
        let settled = |t: f64| 1.0 - (-(t - 60.0).max(0.0) / 15.0).exp();
        let seconds = || (1..=350).map(f64::from);
        let controlled =
            |t: f64| (t > 60.0).then(|| 32.0 - (32.0 - 14.0 * part) * settled(t) + noise(t));
        let points = |f: &dyn Fn(f64) -> f64| seconds().map(|t| (t, f(t))).collect::<Vec<_>>();
        window = window.line(&name, points(&|t| controlled(t).unwrap_or(f64::NAN)));
        latency = latency.line(&name, points(&|t| 62.0 - 32.0 * settled(t) + 3.0 * noise(t)));
        iops = iops
            .line(&name, points(&|t| 500.0 + 200.0 * (part - 1.4) * settled(t) + 20.0 * noise(t)));
    }
    Figure::new(format!("{hosts} hosts over time"), Across::Time)
        .subtitle("made up; simulated, seed 1")
        .span("uncontrolled", 10.0, 60.0)
        .span("controlled", 145.0, 350.0)
        .panel(window)
        .panel(latency)
        .panel(iops)
}

/// Throughput and latency over the number of hosts.
fn over_numbers() -> Figure {
    let points =
        |f: fn(f64) -> f64| (1..=5).map(|n| (f64::from(n), f(f64::from(n)))).collect::<Vec<_>>();
    let hosts = Across::Numbers { label: "hosts".to_owned() };
    Figure::new("More hosts, more latency", hosts)
        .panel(
            Panel::new("Throughput", "IOPS")
                .line("total", points(|n| 1500.0 - 60.0 * (n - 3.0).powi(2)))
                .paper("total", vec![(1.0, 1230.0), (3.0, 1550.0), (5.0, 1240.0)]),
        )
        .panel(Panel::new("Device latency", "ms").line("total", points(|n| 18.0 * n)))
}

/// Throughput of two hosts over variants.
fn over_names() -> Figure {
    let names = ["16 KiB, 70 % reads", "16 KiB, reads", "8 KiB, sequential", "8 KiB, 90 % reads"];
    let at = |values: [f64; 4]| {
        values.into_iter().enumerate().map(|(i, v)| (i as f64, v)).collect::<Vec<_>>()
    };
    let across =
        Across::Names { label: "workload".to_owned(), names: names.map(str::to_owned).into() };
    Figure::new("Throughput for each workload", across).panel(
        Panel::new("Throughput", "IOPS")
            .bars("Q = 32", at([1160.0, 905.0, 1290.0, 880.0]))
            .bars("Q = 16", at([612.0, 1202.0, 871.5, 1240.0]))
            .paper("Q = 32", at([1160.0, 880.0, 1280.0, 900.0]))
            .paper("Q = 16", at([640.0, 1190.0, 890.0, 1240.0])),
    )
}
