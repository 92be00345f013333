//! A threshold that is found while working, beside the array model: it follows what the array can
//! do, by its step, the same on all hosts, without going back and forth.
use crate::common;

use std::path::Path;

use parda_config::Document;
use parda_scenario::{Scenario, Study};
use parda_sim::KeptRuns;

/// Each host's threshold in ms and the throughput of all, second by second.
struct Course {
    thresholds: Vec<Vec<f64>>,
    iops: Vec<f64>,
}

impl Course {
    fn of(scenario: &Scenario) -> Course {
        let series = parda_sim::run(scenario, KeptRuns::All, |_| ()).unwrap().series.unwrap();
        let some = |host: &parda_sim::HostSeries| host.get("latency_threshold_ms");
        let of_all = |i: usize| series.hosts.iter().map(|host| host.iops[i]).sum();
        Course {
            thresholds: series.hosts.iter().map(some).collect(),
            iops: (0..series.at.len()).map(of_all).collect(),
        }
    }

    /// The first second from `from` on, counted from there, from which on the mean of the next ten
    /// seconds' thresholds is in `range`.
    fn reaches(&self, from: usize, range: std::ops::Range<f64>) -> usize {
        let mean = |i: usize| self.thresholds[0][i..i + 10].iter().sum::<f64>() / 10.0;
        (from..self.iops.len() - 10).find(|&i| range.contains(&mean(i))).unwrap() - from
    }

    fn mean(&self, range: std::ops::Range<usize>) -> f64 {
        let len = range.len() as f64;
        self.thresholds[0][range].iter().sum::<f64>() / len
    }
}

/// The largest move from one second to the next, as a part: there is a period in each.
fn largest_move(thresholds: &[f64]) -> f64 {
    thresholds.windows(2).map(|w| (w[1] / w[0]).max(w[0] / w[1]) - 1.0).fold(0.0, f64::max)
}

/// The study's run with an automatic threshold.
fn automatic() -> Scenario {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios/studies/auto.toml");
    let study = Study::parse(&Document::read(&file).unwrap()).unwrap();
    let named = |run: &parda_scenario::Run| run.variant.as_deref() == Some("auto");
    study.runs.into_iter().find(named).unwrap().scenario
}

#[test]
fn the_threshold_follows_a_capacity_that_halves_and_returns() {
    for seed in 1..=2 {
        let mut scenario = automatic();
        scenario.seed = seed;
        let course = Course::of(&scenario);
        // Looked at every second; a period is a second, and there may be two ticks between looks.
        for thresholds in &course.thresholds {
            assert!(largest_move(thresholds) < 0.45, "seed {seed}: {}", largest_move(thresholds));
        }
        let together = course.thresholds[0].iter().zip(&course.thresholds[1]);
        let apart = together.filter(|(a, b)| a != b).count();
        assert!(apart < 60, "seed {seed}: not one threshold in {apart} of 600 s");
        let before = course.mean(100..200);
        assert!((28.0..48.0).contains(&before), "seed {seed}: {before} ms");
        // As soon as the threshold has followed, it stays there, tries of one step left out.
        let (up, down) = (course.reaches(200, 55.0..110.0), course.reaches(400, 25.0..50.0));
        assert!(up <= 60 && down <= 80, "seed {seed}: after {up} s and {down} s");
        let (slow, again) = (course.mean(270..400), course.mean(490..600));
        assert!((55.0..100.0).contains(&slow), "seed {seed}: {slow} ms");
        assert!((25.0..50.0).contains(&again), "seed {seed}: {again} ms");
        let settled = |from: usize, to: usize, mean: f64| {
            let near = |t: &&f64| (0.66..1.51).contains(&(**t / mean));
            let all = &course.thresholds[0][from..to];
            all.iter().filter(near).count() as f64 / all.len() as f64
        };
        assert!(settled(270, 400, slow) > 0.97, "seed {seed}");
        assert!(settled(490, 600, again) > 0.97, "seed {seed}");
    }
}

/// Two hosts with so much outstanding each, beside a preset.
fn beside(preset: &str, outstanding: u32, duration: u32, period: &str) -> Scenario {
    let host = |name: &str| {
        format!(
            "[[host]]\nname = \"{name}\"\n[[host.vm]]\nname = \"vm-{name}\"\nshares = 1000\n\
             disk = \"8GiB\"\nworkload = {{ size = \"4KiB\", read = 100, random = 100, \
             outstanding = {outstanding} }}\n"
        )
    };
    common::parse(&format!(
        "name = \"t\"\nduration = \"{duration}s\"\n[array]\npreset = \"{preset}\"\n\
         [control]\nlatency_threshold = \"auto\"\nperiod = \"{period}\"\nwindow_max = 512\n\
         {}{}[[phase]]\nname = \"p\"\nfrom = \"0s\"\nto = \"{duration}s\"\n",
        host("a"),
        host("b")
    ))
}

#[test]
fn beside_flash_it_falls_from_milliseconds_to_what_flash_needs() {
    let course = Course::of(&beside("flash-sata", 256, 40, "100ms"));
    let last = course.mean(37..40);
    assert!(last < 0.5, "{last} ms");
    let full = course.iops[3..6].iter().sum::<f64>() / 3.0;
    let at_last = course.iops[37..40].iter().sum::<f64>() / 3.0;
    assert!(at_last > 0.94 * full, "{at_last} of {full} IOPS");
}

#[test]
fn light_load_moves_nothing() {
    let course = Course::of(&beside("cx3-40-raid0", 4, 120, "1s"));
    assert!(course.thresholds.iter().flatten().all(|t| *t == 30.0), "{:?}", course.thresholds);
}
