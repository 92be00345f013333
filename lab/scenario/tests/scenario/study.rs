//! Variants and sweeps: their expansion, where errors point, and the common answer.
use parda_config::{Document, ThresholdSetting};
use parda_scenario::plot::{self, ChartView, Draw, Plot};
use parda_scenario::study::Sweep;
use parda_scenario::{Action, Engine, PhaseAnswer, Scenario, Study};

const BASE: &str = r#"name = "s"
duration = "20s"
[array]
preset = "cx3-40-raid0-vms"
layout = "contiguous"
gap = "4GiB"

[[host]]
name = "a"
  [[host.vm]]
  name = "va"
  shares = 1000
  disk = "16GiB"
  workload = { size = "16KiB", read = 100, random = 100, outstanding = 32 }

[[host]]
name = "b"
  [[host.vm]]
  name = "vb"
  shares = 1000
  disk = "16GiB"
  workload = { size = "16KiB", read = 100, random = 100, outstanding = 32 }

[[event]]
at = "5s"
host = "b"
control = { gamma = 0.5 }

[[phase]]
name = "steady"
from = "5s"
to = "15s"
"#;

const VARIANTS: &str = r#"
[[variant]]
name = "alone"
hosts = ["b"]

[[variant]]
name = "both"
set = { "control.latency_threshold" = "25ms", "host.*.vm.0.workload.size" = "8KiB", array = { raid = { drives = 5 } } }

[[expect]]
what = "both.steady/total/iops"
of = "alone.steady/total/iops"
at_least = 1
source = "more is more"

[[expect]]
what = "largest.steady/total/iops"
of = "largest/total/iops"
expected = 1
tolerance = 0
source = "there is one phase in each"
"#;

fn parse(text: &str) -> Result<Study, parda_config::Error> {
    Study::parse(&Document::new("s.toml", text))
}

fn study() -> Study {
    parse(&format!("{BASE}{VARIANTS}")).unwrap()
}

#[test]
fn without_variants_a_study_is_its_scenario() {
    let expect = "[[expect]]\nwhat = \"steady/total/iops\"\nat_least = 1\nsource = \"x\"\n";
    let text = format!("{BASE}{expect}");
    let study = parse(&text).unwrap();
    assert_eq!((study.runs.len(), &study.runs[0].variant), (1, &None));
    let scenario = Scenario::parse(&Document::new("s.toml", text)).unwrap();
    assert_eq!(scenario.expectations, study.expectations);
}

#[test]
fn several_scenarios_are_not_one() {
    let text = format!("{BASE}{VARIANTS}");
    let error = Scenario::parse(&Document::new("s.toml", text)).unwrap_err().to_string();
    assert_eq!(error, "s.toml:1:8: name = \"s\": has variants: name one of them");
}

#[test]
fn a_variant_is_the_scenario_with_its_values() {
    let study = study();
    let [alone, both] = study.runs.as_slice() else { panic!("two runs") };
    assert_eq!((alone.name(), both.name()), ("alone", "both"));
    let threshold =
        |run: &parda_scenario::Run| run.scenario.hosts[0].control.latency_threshold.clone();
    assert_eq!(threshold(alone), None);
    assert_eq!(
        threshold(both),
        Some(ThresholdSetting::Fixed(std::time::Duration::from_millis(25)))
    );
    assert!(both.scenario.vm_ids().all(|(_, vm)| vm.load.drawn().unwrap().grain().0 == 8 << 10));
    assert_eq!(both.scenario.array_params().unwrap().raid.drives, 5);
    let set: Vec<_> = both.settings.iter().map(|(k, v)| format!("{k}={v}")).collect();
    assert!(set.contains(&"host.*.vm.0.workload.size=8KiB".to_owned()), "{set:?}");
}

#[test]
fn who_is_left_out_does_nothing_and_keeps_its_disks() {
    let study = study();
    let [alone, both] = study.runs.as_slice() else { panic!("two runs") };
    let (alone, both) = (&alone.scenario, &both.scenario);
    assert_eq!(alone.hosts.iter().map(|h| h.present).collect::<Vec<_>>(), [false, true]);
    let luns = |scenario: &Scenario| scenario.array_params().unwrap().layout;
    assert_eq!(luns(alone), luns(both));
    let touched: Vec<usize> =
        alone.timeline.iter().filter_map(|e| e.action.host()).map(|host| host.0).collect();
    assert_eq!(touched, [1, 1], "its VM starts, its settings change");
    assert!(matches!(alone.timeline[1].action, Action::SetControl(..)));
    assert!(!alone.state_at(std::time::Duration::ZERO).host(parda_scenario::HostIndex(0)).alive);
}

#[test]
fn sweeps_make_all_combinations_with_all_variants() {
    let sweeps = "[[sweep]]\nkey = \"control.gamma\"\nvalues = [0.25, 0.5]\n\
                  [[sweep]]\nkey = \"host.0.vm.0.workload.size\"\nvalues = [\"4KiB\", \"8KiB\"]\n";
    let names = |study: &Study| study.runs.iter().map(|r| r.name().to_owned()).collect::<Vec<_>>();
    let study = parse(&format!("{BASE}{sweeps}")).unwrap();
    let four = ["0.25,size=4KiB", "0.25,size=8KiB", "0.5,size=4KiB", "0.5,size=8KiB"];
    assert_eq!(names(&study), four.map(|name| format!("gamma={name}")));
    let sizes: Vec<u64> = study
        .runs
        .iter()
        .map(|r| r.scenario.hosts[0].vms[0].load.drawn().unwrap().grain().0 >> 10)
        .collect();
    assert_eq!(sizes, [4, 8, 4, 8]);

    let seeds = Sweep { key: "seed".to_owned(), values: vec![1.into(), 2.into()] };
    let document =
        Document::new("s.toml", format!("{BASE}{VARIANTS}").split("[[expect").next().unwrap());
    let study = Study::parse_swept(&document, &[seeds]).unwrap();
    assert_eq!(names(&study), ["alone,seed=1", "alone,seed=2", "both,seed=1", "both,seed=2"]);
    assert_eq!(study.runs[3].scenario.seed, 2);
}

#[test]
fn each_error_points_at_its_place_and_says_what_is_wrong() {
    // Text of the variants, its replacement, and the text whose line and column the error names.
    let cases = [
        ("[\"b\"]", "[\"a\", \"c\"]", "\"c\"", "there is no host of this name"),
        ("[\"b\"]", "[]", "[]", "must name at least one host"),
        ("name = \"both\"", "name = \"alone\"", "\"alone\"\nset", "another variant of this name"),
        ("name = \"both\"", "name = \"bo th\"", "\"bo th\"", "letters, digits"),
        ("name = \"both\"", "name = \"largest\"", "\"largest\"", "stands for an extreme"),
        ("host.*.vm.0", "host.2.vm.0", "\"8KiB\"", "there is no host.2: host has 2"),
        ("latency_threshold\" = \"25ms", "gamma\" = 7, \"name\" = \"z", "7", "gamma must be"),
        ("latency_threshold\"", "latency\"", "\"25ms\"", "unknown field `latency`"),
        ("drives = 5", "drives = 0", "0 } }", "drives = 0"),
        ("both.steady", "bath.steady", "\"bath.steady", "no phase `bath.steady`; there is alone"),
        ("\"alone.steady/total", "\"alone.steady/host/a", "\"alone.steady/host", "no host `a`"),
        (
            "largest.steady",
            "largest.stead",
            "\"largest.stead/",
            "no phase `stead`; there is steady",
        ),
    ];
    for (from, to, at, says) in cases {
        assert!(VARIANTS.contains(from), "{from}");
        let text = format!("{BASE}{}", VARIANTS.replacen(from, to, 1));
        let error = parse(&text).expect_err(to).to_string();
        let before = &text[..text.find(at).expect(at)];
        let line = before.matches('\n').count() + 1;
        let column = before.len() - before.rfind('\n').unwrap();
        assert!(error.starts_with(&format!("s.toml:{line}:{column}: ")), "{to}: {error}");
        assert!(error.contains(says), "{to}: {error}");
    }
    for (values, says) in
        [("[]", "at least one"), ("[{ a = 1 }]", "a single"), ("[\"a/b\"]", "no `/`")]
    {
        let text = format!("{BASE}[[sweep]]\nkey = \"seed\"\nvalues = {values}\n");
        let error = parse(&text).unwrap_err().to_string();
        assert!(error.starts_with("s.toml:35:") && error.contains(says), "{error}");
    }
}

/// A phase in which these hosts do 100 IOPS each.
fn measured(study: &Study, run: usize) -> Vec<PhaseAnswer> {
    let scenario = &study.runs[run].scenario;
    let phase = &scenario.phases[0];
    let count = parda_scenario::count::HostCount {
        seconds: 10.0,
        windows: Vec::new(),
        beta: 0.0,
        device_latency_ms: None,
        vms: vec![parda_scenario::count::VmCount { ios: 1000, ..Default::default() }],
    };
    let state = scenario.state_at(phase.from);
    let hosts = scenario.present().map(|(id, _)| count.answer(scenario, id, phase, &state));
    vec![PhaseAnswer::new(phase, hosts.collect())]
}

#[test]
fn one_answer_has_the_phases_of_all_variants() {
    let study = study();
    let answer = study.answer(Engine::Sim, vec![measured(&study, 0), measured(&study, 1)]);
    let names: Vec<&str> = answer.phases.iter().map(|p| p.name.as_str()).collect();
    assert_eq!(names, ["alone.steady", "both.steady"]);
    assert!(answer.phases.iter().all(|p| p.own_name() == "steady"));
    assert_eq!(answer.phases.iter().map(|p| p.total.iops).collect::<Vec<_>>(), [100.0, 200.0]);
    let found: Vec<_> = answer.expectations.iter().map(|v| (v.measured, v.ok)).collect();
    assert_eq!(found, [(Some(2.0), true), (Some(1.0), true)]);
}

#[test]
fn a_variant_alone_is_judged_by_what_is_expected_of_it_alone() {
    let text = format!(
        "{BASE}{VARIANTS}[[expect]]\nwhat = \"alone.steady/total/iops\"\nexpected = 100\n\
         tolerance = 1\nsource = \"x\"\n"
    );
    let study = parse(&text).unwrap().pick(&["alone".to_owned()]).unwrap();
    assert_eq!((study.runs.len(), study.expectations.len()), (1, 1));
    assert!(study.answer(Engine::Sim, vec![measured(&study, 0)]).ok());
    let error = parse(&text).unwrap().pick(&["none".to_owned()]).unwrap_err().to_string();
    assert_eq!(error, "there is no variant `none`; there is alone, both");
    let error = parse(BASE).unwrap().pick(&["none".to_owned()]).unwrap_err().to_string();
    assert_eq!(error, "there is no variant `none`; the scenario has no variants");
}

#[test]
fn what_is_exempt_is_not_judged() {
    let expect = |exempt: &str| {
        format!(
            "{BASE}[[expect]]\nwhat = \"steady/total/iops\"\nexpected = 100\ntolerance = 1\n\
             source = \"x\"\n{exempt}"
        )
    };
    let of = |text: &str| {
        let study = parse(text).unwrap();
        study.answer(Engine::Sim, vec![measured(&study, 0)])
    };
    assert!(!of(&expect("")).ok());
    let answer = of(&expect("exempt = \"the paper's own sum differs\"\n"));
    assert!(answer.ok() && !answer.expectations[0].ok);
}

fn swept(text: &str, sweep: &str) -> Study {
    let sweep: Sweep = sweep.parse().unwrap();
    Study::parse_swept(&Document::new("s.toml", text), &[sweep]).unwrap()
}

fn expected(study: &Study) -> Vec<String> {
    let of = |of: &parda_scenario::metric::Metric| format!(" of {of}");
    let path = |e: &parda_scenario::expectation::Expectation| {
        format!("{}{}", e.what, e.of.as_ref().map_or(String::new(), of))
    };
    study.expectations.iter().map(path).collect()
}

#[test]
fn what_a_file_expects_is_expected_of_each_value_that_it_is_swept_over() {
    let expect = "[[expect]]\nwhat = \"steady/total/iops\"\nat_least = 1\nsource = \"x\"\n";
    let study = swept(&format!("{BASE}{expect}"), "control.gamma=0.5,0.8");
    assert_eq!(expected(&study), ["gamma=0.5.steady/total/iops", "gamma=0.8.steady/total/iops"]);
}

#[test]
fn a_sweep_of_variants_holds_those_of_one_value_against_one_another() {
    let study = swept(&format!("{BASE}{VARIANTS}"), "control.gamma=0.5,0.8");
    let names: Vec<&str> = study.runs.iter().map(|run| run.name()).collect();
    assert_eq!(names, ["alone,gamma=0.5", "alone,gamma=0.8", "both,gamma=0.5", "both,gamma=0.8"]);
    assert_eq!(
        expected(&study),
        [
            "both,gamma=0.5.steady/total/iops of alone,gamma=0.5.steady/total/iops",
            "largest.steady (gamma=0.5)/total/iops of largest (gamma=0.5)/total/iops",
            "both,gamma=0.8.steady/total/iops of alone,gamma=0.8.steady/total/iops",
            "largest.steady (gamma=0.8)/total/iops of largest (gamma=0.8)/total/iops",
        ]
    );
    // Each run is twice as fast as the one before. Extremes are taken over the runs of one value.
    let phase = |(i, run): (usize, &parda_scenario::Run)| {
        let mut phase = PhaseAnswer::new(&run.scenario.phases[0], Vec::new());
        phase.total.iops = f64::from(1 << i);
        vec![phase]
    };
    let answer = study.answer(Engine::Sim, study.runs.iter().enumerate().map(phase).collect());
    let measured: Vec<Option<f64>> = answer.expectations.iter().map(|v| v.measured).collect();
    assert_eq!(measured, [Some(4.0), Some(1.0), Some(4.0), Some(1.0)]);
    let study = study.pick(&["both,gamma=0.8".to_owned()]).unwrap();
    assert!(study.expectations.is_empty(), "nothing is expected of it alone");
}

fn plots(text: &str) -> Vec<Plot> {
    parse(text).unwrap().plots
}

/// Names of a plot's lines, with their positions on the axis.
fn lines(plot: &Plot) -> Vec<(String, Vec<String>)> {
    let ChartView::Points { panels, .. } = &plot.view else { panic!("over time: {plot:?}") };
    let line = |line: &plot::PlotLine| {
        (line.name.clone(), line.points.iter().map(|(at, _)| at.clone()).collect())
    };
    panels[0].lines.iter().map(line).collect()
}

fn pair(name: &str, at: &[&str]) -> (String, Vec<String>) {
    (name.to_owned(), at.iter().map(|at| (*at).to_owned()).collect())
}

#[test]
fn without_plots_a_scenario_is_drawn_over_time_and_variants_beside_one_another() {
    let [plot] = plots(BASE).try_into().unwrap();
    let panels = ["window", "device_latency_ms", "iops"].map(str::to_owned).into();
    assert_eq!(plot.view, ChartView::Time { variant: None, phase: None, panels });
    let [plot] = plots(&format!("{BASE}{VARIANTS}")).try_into().unwrap();
    assert_eq!(lines(&plot), [pair("", &["alone", "both"])]);
    assert!(matches!(plot.view, ChartView::Points { draw: Draw::Bars, .. }));
    let sweep = "[[sweep]]\nkey = \"control.gamma\"\nvalues = [0.5, 0.8]\n";
    let (variants, _) = VARIANTS.split_once("[[expect]]").unwrap();
    let [plot] = plots(&format!("{BASE}{variants}{sweep}")).try_into().unwrap();
    assert_eq!(lines(&plot), [pair("alone", &["0.5", "0.8"]), pair("both", &["0.5", "0.8"])]);
}

#[test]
fn a_plot_over_time_is_one_picture_for_each_variant() {
    let plot = "[[plot]]\nover = \"time\"\ntitle = \"T\"\n";
    let all = plots(&format!("{BASE}{VARIANTS}{plot}"));
    let titles: Vec<&str> = all.iter().map(|plot| plot.title.as_str()).collect();
    assert_eq!(titles, ["T: alone", "T: both"]);
    let one = plots(&format!("{BASE}{VARIANTS}{plot}variant = \"both\"\n"));
    assert_eq!((one.len(), one[0].title.as_str()), (1, "T"));
    let study = parse(&format!("{BASE}{VARIANTS}{plot}variant = \"both\"\n")).unwrap();
    let kept: Vec<bool> = study.runs.iter().map(|run| study.plots_over_time(run)).collect();
    assert_eq!(kept, [false, true], "only what is drawn need be kept");
}

#[test]
fn lines_are_told_apart_by_host_and_by_what_else_varies() {
    let plot = "[[plot]]\nover = \"variants\"\nx = \"hosts\"\npanels = [\"host/*/iops\"]\n";
    let [plot] = plots(&format!("{BASE}{VARIANTS}{plot}")).try_into().unwrap();
    assert_eq!(lines(&plot), [pair("b", &["1", "2"]), pair("a", &["2"])]);
    let ChartView::Points { panels, label, .. } = &plot.view else { panic!() };
    assert_eq!((label.as_str(), panels[0].label.as_str()), ("hosts", "Throughput of each host"));
    let plot = "[[plot]]\nover = \"hosts\"\n";
    let [plot] = plots(&format!("{BASE}{VARIANTS}{plot}")).try_into().unwrap();
    assert_eq!(lines(&plot), [pair("alone", &["b"]), pair("both", &["a", "b"])]);
}

#[test]
fn a_sweep_that_the_file_does_not_know_is_drawn_over_what_is_swept() {
    let plot = "[[plot]]\nover = \"time\"\n";
    let [plot] = swept(&format!("{BASE}{plot}"), "control.gamma=0.5,0.8").plots.try_into().unwrap();
    assert_eq!(lines(&plot), [pair("", &["0.5", "0.8"])]);
    assert!(
        matches!(&plot.view, ChartView::Points { label, draw: Draw::Lines, .. } if label == "gamma")
    );
}

#[test]
fn of_variants_that_are_not_run_nothing_is_drawn() {
    let plot = "[[plot]]\nover = \"time\"\n[[plot]]\nover = \"variants\"\n";
    let study = parse(&format!("{BASE}{VARIANTS}{plot}")).unwrap();
    let study = study.pick(&["both".to_owned()]).unwrap();
    let [time, points] = study.plots.try_into().unwrap();
    assert!(matches!(time.view, ChartView::Time { variant: Some(v), .. } if v == "both"));
    assert_eq!(lines(&points), [pair("", &["both"])]);
}
