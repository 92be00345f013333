//! Charts of a small scenario.
use parda_config::Document;
use parda_plot::SeriesData;
use parda_report::pictures::{Picture, pictures};
use parda_scenario::Study;
use parda_sim::{KeptRuns, run_all};

const TEXT: &str = r#"name = "s"
title = "Two hosts"
duration = "20s"
[array]
preset = "cx3-40-raid0"
raid = { drives = 4 }
[control]
mode = "off"
latency_threshold = "30ms"
[[host]]
name = "a"
  [[host.vm]]
  name = "va"
  shares = 1000
  disk = "8GiB"
  workload = { size = "16KiB", read = 100, random = 100, outstanding = 32 }
[[host]]
name = "b"
  [[host.vm]]
  name = "vb"
  shares = 1000
  disk = "8GiB"
  workload = { size = "16KiB", read = 100, random = 100, outstanding = 32 }
[[event]]
at = "8s"
control = { mode = "parda" }
[[event]]
at = "14s"
control = { latency_threshold = "40ms" }
[[phase]]
name = "late"
from = "16s"
to = "20s"
[[expect]]
what = "late/host/b/device_latency_ms"
expected = 40
tolerance = "50%"
source = "test"
"#;

fn drawn(text: &str, keep: KeptRuns) -> Vec<Picture> {
    let study = Study::parse(&Document::new("s.toml", text)).unwrap();
    let outcome = run_all(&study, keep, 2, |_, _| ()).unwrap();
    pictures(&study, &outcome, "paper")
}

#[test]
fn a_run_is_drawn_with_its_threshold_its_phases_and_what_the_paper_has() {
    let [Picture { name, figure }] = drawn(TEXT, KeptRuns::Plotted).try_into().unwrap();
    assert_eq!((name.as_str(), figure.title.as_str()), ("s", "Two hosts"));
    assert_eq!(figure.subtitle, "s: virtual time, seed 1");
    assert_eq!(figure.spans, [("late".to_owned(), 16.0, 20.0)]);
    let [window, latency, iops] = figure.panels.as_slice() else { panic!("three panels") };
    let levels: Vec<_> = latency.levels.iter().map(|l| (l.value, l.within.unwrap())).collect();
    assert_eq!(levels, [(30.0, (8.0, 14.0)), (40.0, (14.0, 20.0))]);
    let names: Vec<&str> = latency.series.iter().map(|s| s.name.as_str()).collect();
    assert_eq!(names, ["a", "b", "b"]);
    let SeriesData::Paper(marks) = &latency.series[2].data else { panic!("no mark of the paper") };
    assert!(marks[0].0 > 16.0 && marks[0].0 < 20.0 && marks[0].1 == 40.0, "{marks:?}");
    assert_eq!((window.series.len(), iops.series.len()), (2, 2));
    let SeriesData::Line(points) = &window.series[0].data else { panic!("no line") };
    assert!(points[6].1.is_nan() && points[9].1 > 0.0, "a window begins with control");
}

#[test]
fn a_plot_of_a_phase_shows_nothing_else() {
    let plot = "[[plot]]\nover = \"time\"\nphase = \"late\"\npanels = [\"device_latency_ms\"]\n";
    let [Picture { figure, .. }] =
        drawn(&format!("{TEXT}{plot}"), KeptRuns::Plotted).try_into().unwrap();
    let SeriesData::Line(points) = &figure.panels[0].series[0].data else { panic!("no line") };
    let at: Vec<f64> = points.iter().map(|(at, _)| *at).collect();
    assert_eq!(at, [17.0, 18.0, 19.0, 20.0]);
    assert_eq!(figure.panels[0].levels.len(), 1, "the threshold of then");
}

#[test]
fn without_control_there_is_no_panel_of_windows_and_no_threshold() {
    let (before, rest) = TEXT.split_once("[[event]]").unwrap();
    let (_, after) = rest.split_once("[[phase]]").unwrap();
    let [Picture { figure, .. }] =
        drawn(&format!("{before}[[phase]]{after}"), KeptRuns::All).try_into().unwrap();
    let labels: Vec<&str> = figure.panels.iter().map(|p| p.label.as_str()).collect();
    assert_eq!(labels, ["Device latency", "Throughput"]);
    assert!(figure.panels[0].levels.is_empty());
}

#[test]
fn many_hosts_are_a_band_and_what_was_not_kept_is_not_drawn() {
    let (_, rest) = TEXT.split_once("[[host]]\nname = \"b\"").unwrap();
    let (_, rest) = rest.split_once("[[event]]").unwrap();
    let (rest, _) = rest.split_once("[[expect]]").unwrap();
    let (before, _) = TEXT.split_once("[[host]]\nname = \"b\"").unwrap();
    let before =
        before.replace("name = \"a\"", "name = \"a\"\ncount = 20").replace("8GiB", "64MiB");
    let text = format!("{before}[[event]]{rest}");
    let [Picture { figure, .. }] = drawn(&text, KeptRuns::Plotted).try_into().unwrap();
    for panel in &figure.panels {
        let names: Vec<&str> = panel.series.iter().map(|s| s.name.as_str()).collect();
        assert_eq!(names, ["least to most", "mean of 20 hosts"]);
    }
    assert!(drawn(&text, KeptRuns::Nothing).is_empty());
}
