//! Pictures are well-formed, hold what was put into them, and can be made of any data.
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use parda_plot::{Across, Figure, Level, Panel, PlotSeries, SeriesData};
use proptest::prelude::*;
use roxmltree::{Document, Node};

fn of_class<'a>(node: Node<'a, 'a>, class: &str) -> Vec<Node<'a, 'a>> {
    node.descendants().filter(|n| n.attribute("class") == Some(class)).collect()
}

fn texts(svg: &str) -> Vec<String> {
    let document = Document::parse(svg).unwrap();
    let texts = document.descendants().filter(|n| n.has_tag_name("text"));
    texts.filter_map(|n| n.text().map(|text| text.trim().to_owned())).collect()
}

/// Attributes of the elements of this name that each series has.
fn drawn(svg: &str, element: &str, attribute: &str) -> Vec<Vec<String>> {
    let document = Document::parse(svg).unwrap();
    let of = |series: Node| -> Vec<String> {
        let elements = series.descendants().filter(|n| n.has_tag_name(element));
        elements.filter_map(|n| n.attribute(attribute).map(str::to_owned)).collect()
    };
    of_class(document.root(), "series").into_iter().map(of).collect()
}

/// The points of a line.
fn places(points: &str) -> Vec<(f64, f64)> {
    let point =
        |point: &str| point.split_once(',').map(|(x, y)| (x.parse().unwrap(), y.parse().unwrap()));
    points.split_whitespace().filter_map(point).collect()
}

fn log(label: &str) -> Across {
    Across::Log(label.to_owned())
}

#[test]
fn each_series_of_each_panel_is_drawn_once_and_each_name_is_in_the_legend_once() {
    let both =
        Panel::new("Window", "slots").line("a", [(1.0, 2.0), (2.0, 3.0)]).line("b", [(1.0, 1.0)]);
    let mut one = Panel::new("Throughput", "IOPS").line("a", [(1.0, 900.0)]);
    one.levels.push(Level { name: "limit".to_owned(), value: 1000.0, within: None });
    let svg = Figure::new("t", Across::Time).panel(both).panel(one).svg();
    let document = Document::parse(&svg).unwrap();
    let panels = of_class(document.root(), "panel");
    let series: Vec<usize> = panels.iter().map(|p| of_class(*p, "series").len()).collect();
    assert_eq!(series, [2, 1]);
    let texts = texts(&svg);
    for text in ["a", "b", "limit", "Window, slots", "Throughput, IOPS", "time, s"] {
        assert_eq!(texts.iter().filter(|t| *t == text).count(), 1, "{text} in {texts:?}");
    }
}

#[test]
fn what_a_paper_says_is_hollow_and_what_we_say_is_filled() {
    let panel = Panel::new("IOPS", "").line("a", [(1.0, 2.0), (2.0, 3.0)]).paper("a", [(1.0, 2.5)]);
    let svg =
        Figure::new("t", Across::Numbers("n".to_owned())).panel(panel.clone().paper("b", [])).svg();
    let [ours, paper, _] = drawn(&svg, "circle", "fill").try_into().unwrap();
    assert!(ours.len() == 2 && !ours.contains(&"none".to_owned()));
    assert!(!paper.is_empty() && paper.iter().all(|fill| fill == "none"));
    for name in ["a", "paper (hollow)", "b (paper)"] {
        assert!(texts(&svg).contains(&name.to_owned()), "{name}");
    }
    let bars = Panel::new("IOPS", "").bars("a", [(0.0, 100.0), (1.0, 50.0)]);
    let names = Across::Names("variant".to_owned(), vec!["v0".to_owned(), "v1".to_owned()]);
    let svg = Figure::new("t", names).panel(bars).svg();
    let heights: Vec<f64> =
        drawn(&svg, "rect", "height")[0].iter().map(|h| h.parse().unwrap()).collect();
    assert!((heights[0] / heights[1] - 2.0).abs() < 0.01, "{heights:?}");
}

#[test]
fn on_a_logarithmic_scale_a_line_that_doubles_is_straight_and_what_is_not_above_zero_is_a_gap() {
    let points = [(1.0, 3.0), (2.0, 6.0), (4.0, 12.0), (8.0, 0.0), (16.0, 48.0), (-2.0, 7.0)];
    let figure =
        Figure::new("t", log("outstanding")).panel(Panel::new("p", "ms").line("a", points).log());
    let lines = drawn(&figure.svg(), "polyline", "points").remove(0);
    let line = places(&lines[0]);
    let (dx, dy) = (line[1].0 - line[0].0, line[1].1 - line[0].1);
    assert!(dx > 500.0 && dy < -100.0 && line.len() == 3, "{lines:?}");
    assert!((line[2].0 - line[1].0 - dx).abs() < 3.0 && (line[2].1 - line[1].1 - dy).abs() < 3.0);
    for tick in ["1", "2", "4", "8", "16"] {
        assert!(texts(&figure.svg()).contains(&tick.to_owned()), "{tick}");
    }
    let gaps =
        [(1.0, 1.0), (2.0, 1.0), (3.0, f64::NAN), (4.0, 1.0), (5.0, f64::INFINITY), (6.0, 1.0)];
    let svg = Figure::new("t", Across::Time).panel(Panel::new("p", "").line("a", gaps)).svg();
    let lengths: Vec<usize> =
        drawn(&svg, "polyline", "points")[0].iter().map(|l| places(l).len()).collect();
    assert_eq!(lengths.iter().filter(|l| **l > 0).collect::<Vec<_>>(), [&2, &1, &1]);
}

#[test]
fn a_line_may_turn_back_and_words_beside_its_points_do_not_cover_one_another() {
    let points = [(1.0, 100.0), (3.0, 300.0), (2.0, 400.0)];
    let mut panel = Panel::new("p", "IOPS").line("a", points);
    for i in 0..40 {
        panel.notes.push((1.0 + f64::from(i) / 20.0, 200.0, format!("note {i}")));
    }
    let mut figure = Figure::new("t", log("latency, ms")).panel(panel);
    figure.uprights.push(("threshold".to_owned(), 2.5));
    figure.width = Figure::NARROW;
    let line = places(&drawn(&figure.svg(), "polyline", "points")[0][0]);
    assert!(line[0].0 < line[2].0 && line[2].0 < line[1].0, "{line:?}");
    let svg = figure.svg();
    let document = Document::parse(&svg).unwrap();
    let alt = document.root_element().attribute("aria-label").unwrap();
    assert_eq!(alt, "t. p, IOPS: a 100 to 400. threshold at 2.50.");
    let notes =
        document.descendants().filter(|n| n.text().is_some_and(|t| t.trim().starts_with("note")));
    let notes =
        notes.filter(|n| n.is_element()).map(|n| n.attribute("x").unwrap().parse().unwrap());
    let notes: Vec<f64> = notes.collect();
    assert!((4..20).contains(&notes.len()), "{notes:?}");
    assert!(notes.windows(2).all(|pair| pair[1] - pair[0] > 300.0), "{notes:?}");
    assert!(notes.iter().all(|x| *x > 0.0 && *x < 3700.0), "{notes:?}");
}

#[test]
fn whiskers_look_like_their_line() {
    let panel = Panel::new("p", "ms").line("a", [(1.0, 2.0), (2.0, 2.0)]);
    let panel = panel.whiskers("a", [(1.0, 1.5, 2.5)]).log();
    let svg = Figure::new("t", log("n")).panel(panel).svg();
    let colours = drawn(&svg, "polyline", "stroke");
    assert!(colours[0].len() == 1 && colours[1] == [&*colours[0][0]; 3], "{colours:?}");
    assert_eq!(texts(&svg).iter().filter(|t| *t == "a").count(), 1);
}

#[test]
fn many_lines_become_a_band_and_a_mean() {
    let hosts = |n: u32| {
        let points = |i| [(1.0, f64::from(i)), (2.0, f64::NAN)];
        let panel =
            (0..n).fold(Panel::new("IOPS", ""), |panel, i| panel.line(format!("h{i}"), points(i)));
        let figure = Figure::new("t", Across::Time).panel(panel.paper("all", [(1.0, 3.0)]));
        figure.digest(12, "hosts").panels.remove(0).series
    };
    assert_eq!(hosts(12).len(), 13);
    let [band, mean, paper] = hosts(13).try_into().unwrap();
    let SeriesData::Band(band) = band.data else { panic!("{band:?}") };
    assert!(band[0] == (1.0, 0.0, 12.0) && mean.name == "mean of 13 hosts");
    let SeriesData::Line(mean) = mean.data else { panic!("{mean:?}") };
    assert!(mean[0] == (1.0, 6.0) && mean[1].1.is_nan(), "a gap for all is a gap");
    assert!(matches!(paper.data, SeriesData::Paper(_)));
}

#[test]
fn names_and_titles_are_text_whatever_is_in_them_and_no_data_is_said() {
    let evil = "</text><script>\"x\" & 'y'</script>\u{0}\u{1b}\u{FFFF}\n";
    let across = Across::Names(evil.to_owned(), vec![evil.to_owned()]);
    let mut figure =
        Figure::new(evil, across).subtitle(evil).panel(Panel::new(evil, evil).line(evil, []));
    figure.spans.push((evil.to_owned(), -0.5, 0.5));
    let svg = figure.svg();
    assert!(!svg.contains("<script"));
    assert!(texts(&svg).iter().any(|t| t.contains("</text><script>")));
    assert!(texts(&svg).contains(&"no data".to_owned()));
}

fn value() -> impl Strategy<Value = f64> {
    let odd = [f64::NAN, f64::INFINITY, f64::MAX, f64::MIN_POSITIVE, -0.0, 0.0, 7.25];
    prop_oneof![3 => -1e3..1e3f64, 1 => any::<f64>(), 1 => prop::sample::select(odd.to_vec())]
}

fn data() -> impl Strategy<Value = SeriesData> {
    let points = || prop::collection::vec((value(), value()), 0..30);
    let three = || prop::collection::vec((value(), value(), value()), 0..30);
    prop_oneof![
        points().prop_map(SeriesData::Line),
        points().prop_map(SeriesData::Marks),
        points().prop_map(SeriesData::Bars),
        points().prop_map(SeriesData::Paper),
        three().prop_map(SeriesData::Band),
        three().prop_map(SeriesData::Whiskers),
    ]
}

fn panel() -> impl Strategy<Value = Panel> {
    let series = (".{0,12}", data()).prop_map(|(name, data)| PlotSeries { name, data });
    let level = (".{0,5}", value(), prop::option::of((value(), value())));
    let level = level.prop_map(|(name, value, within)| Level { name, value, within });
    let notes = prop::collection::vec((value(), value(), ".{0,9}"), 0..5);
    let data = (prop::collection::vec(series, 0..5), prop::collection::vec(level, 0..3), notes);
    let scale = any::<bool>();
    (".{0,40}", ".{0,8}", data, scale).prop_map(|(label, unit, (series, levels, notes), log)| {
        Panel { label, unit, series, levels, notes, log }
    })
}

fn across() -> impl Strategy<Value = Across> {
    let names = (".{0,20}", prop::collection::vec(".{0,30}", 0..40));
    prop_oneof![
        Just(Across::Time),
        ".{0,20}".prop_map(Across::Numbers),
        ".{0,20}".prop_map(Across::Log),
        names.prop_map(|(label, names)| Across::Names(label, names)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn any_data_can_be_drawn(
        (title, subtitle) in (".{0,200}", ".{0,20}"),
        across in across(),
        panels in prop::collection::vec(panel(), 0..4),
        spans in prop::collection::vec((".{0,20}", value(), value()), 0..4),
        uprights in prop::collection::vec((".{0,9}", value()), 0..3),
        width in prop::sample::select(vec![Figure::WIDE, Figure::NARROW, 0, u32::MAX]),
        many in any::<bool>(),
    ) {
        let reference = "paper".to_owned();
        let figure = Figure { title, subtitle, across, panels, spans, reference, uprights, width };
        let figure = if many { figure.digest(1, "hosts") } else { figure };
        let svg = figure.svg();
        let document = Document::parse(&svg).expect("the SVG is XML");
        prop_assert!(document.root_element().attribute("role") == Some("img"));
        for node in document.descendants() {
            for attribute in node.attributes().filter(|a| !["aria-label", "font-family"].contains(&a.name())) {
                let value = attribute.value();
                prop_assert!(!value.contains("NaN") && !value.contains("inf"), "{attribute:?}");
            }
        }
        let series = of_class(document.root(), "series").len();
        prop_assert_eq!(series, figure.panels.iter().map(|p| p.series.len()).sum::<usize>());
    }
}
