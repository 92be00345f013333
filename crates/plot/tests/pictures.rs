//! Pictures are well-formed, hold what was put into them, and can be made of any data.

use parda_plot::{Across, Data, Figure, Note, Panel, Series, Tile};
use proptest::prelude::*;
use resvg::tiny_skia::Pixmap;
use roxmltree::{Document, Node};

fn of_class<'a>(node: Node<'a, 'a>, class: &str) -> Vec<Node<'a, 'a>> {
    node.descendants().filter(|n| n.attribute("class") == Some(class)).collect()
}

fn texts(document: &Document) -> Vec<String> {
    let texts = document.descendants().filter(|n| n.has_tag_name("text"));
    texts.filter_map(|n| n.text().map(str::to_owned)).collect()
}

fn names(n: usize) -> Across {
    Across::Names { label: "variant".to_owned(), names: (0..n).map(|i| format!("v{i}")).collect() }
}

/// The picture is XML, and its PNG decodes with twice its size.
fn drawn(figure: &Figure) -> String {
    let svg = figure.svg();
    let (width, height) = {
        let document = Document::parse(&svg).expect("the SVG is XML");
        let size = |name| {
            document.root_element().attribute(name).map(|v| v.parse::<f64>().expect("a number"))
        };
        (size("width").expect("a width"), size("height").expect("a height"))
    };
    let png = figure.png().expect("a PNG");
    let picture = Pixmap::decode_png(&png).expect("the PNG decodes");
    assert_eq!(
        (f64::from(picture.width()), f64::from(picture.height())),
        (2.0 * width, 2.0 * height)
    );
    svg
}

#[test]
fn each_series_of_each_panel_is_drawn_once_and_each_name_is_in_the_legend_once() {
    let figure = Figure::new("t", Across::Time)
        .panel(
            Panel::new("Window", "slots")
                .line("a", vec![(1.0, 2.0), (2.0, 3.0)])
                .line("b", vec![(1.0, 1.0)]),
        )
        .panel(
            Panel::new("Throughput", "IOPS").line("a", vec![(1.0, 900.0)]).level("limit", 1000.0),
        );
    let svg = drawn(&figure);
    let document = Document::parse(&svg).unwrap();
    let panels = of_class(document.root(), "panel");
    let series: Vec<usize> = panels.iter().map(|p| of_class(*p, "series").len()).collect();
    assert_eq!(series, [2, 1]);
    assert_eq!(of_class(document.root(), "level").len(), 1);
    let texts = texts(&document);
    for text in ["a", "b", "limit", "Window, slots", "Throughput, IOPS", "time, s"] {
        assert_eq!(texts.iter().filter(|t| *t == text).count(), 1, "{text} in {texts:?}");
    }
}

#[test]
fn what_a_paper_says_is_hollow_and_what_we_say_is_filled() {
    let panel =
        Panel::new("IOPS", "").line("a", vec![(1.0, 2.0), (2.0, 3.0)]).paper("a", vec![(1.0, 2.5)]);
    let svg = drawn(&Figure::new("t", Across::Numbers { label: "n".to_owned() }).panel(panel));
    let document = Document::parse(&svg).unwrap();
    let series = of_class(document.root(), "series");
    assert_eq!(series.iter().map(|s| of_class(*s, "mark").len()).sum::<usize>(), 2);
    assert_eq!(series.iter().map(|s| of_class(*s, "paper").len()).sum::<usize>(), 1);
    assert!(texts(&document).contains(&"paper (hollow)".to_owned()));
}

#[test]
fn a_bar_is_as_high_as_its_value() {
    let panel = Panel::new("IOPS", "").bars("a", vec![(0.0, 100.0), (1.0, 50.0)]);
    let svg = drawn(&Figure::new("t", names(2)).panel(panel));
    let document = Document::parse(&svg).unwrap();
    let series = of_class(document.root(), "series")[0];
    let bars = series.children().filter(|n| n.has_tag_name("rect"));
    let heights: Vec<f64> = bars.map(|b| b.attribute("height").unwrap().parse().unwrap()).collect();
    assert!((heights[0] / heights[1] - 2.0).abs() < 0.01, "{heights:?}");
}

#[test]
fn a_gap_in_the_data_is_a_gap_in_the_line() {
    let points = vec![(1.0, 1.0), (2.0, 1.0), (3.0, f64::NAN), (4.0, 1.0), (5.0, f64::INFINITY)];
    let svg = drawn(&Figure::new("t", Across::Time).panel(Panel::new("p", "").line("a", points)));
    let document = Document::parse(&svg).unwrap();
    let line = of_class(document.root(), "series")[0].first_element_child().unwrap();
    let path = line.attribute("d").unwrap();
    assert_eq!(path.matches('M').count(), 2, "{path}");
    assert!(!path.contains("NaN") && !path.contains("inf"));
}

#[test]
fn names_and_titles_are_text_whatever_is_in_them() {
    let evil = "</text><script>\"x\" & 'y'</script>\u{0}\u{1b}\u{FFFF}\n";
    let panel = Panel::new(evil, evil).line(evil, vec![(0.0, 1.0)]).level(evil, 2.0);
    let across = Across::Names { label: evil.to_owned(), names: vec![evil.to_owned()] };
    let svg = drawn(&Figure::new(evil, across).subtitle(evil).span(evil, -0.5, 0.5).panel(panel));
    let document = Document::parse(&svg).unwrap();
    assert!(!document.descendants().any(|n| n.has_tag_name("script")));
    assert!(texts(&document).iter().any(|t| t.contains("</text><script>")));
}

#[test]
fn a_picture_has_a_white_ground_and_words_for_those_who_do_not_see_it() {
    let figure = Figure::new("Six hosts", Across::Time)
        .panel(Panel::new("IOPS", "").line("a", vec![(0.0, 1.0)]));
    let png = Pixmap::decode_png(&figure.png().unwrap()).unwrap();
    let corner = png.pixel(0, 0).unwrap();
    assert_eq!((corner.red(), corner.green(), corner.blue(), corner.alpha()), (255, 255, 255, 255));
    let dark =
        png.pixels().iter().filter(|p| p.red() < 100 && p.green() < 100 && p.blue() < 100).count();
    assert!(dark > 500, "only {dark} dark pixels: the PNG has no text");
    let svg = figure.svg();
    let document = Document::parse(&svg).unwrap();
    let root = document.root_element();
    assert_eq!(root.attribute("role"), Some("img"));
    assert_eq!(root.attribute("aria-label"), Some("Six hosts. IOPS: a 1."));
}

#[test]
fn a_long_run_is_drawn_with_no_more_points_than_can_be_seen() {
    let points: Vec<(f64, f64)> = (0..200_000).map(|i| (f64::from(i), f64::from(i % 97))).collect();
    let band: Vec<(f64, f64, f64)> = points.iter().map(|(x, y)| (*x, *y, y + 9.0)).collect();
    let svg = drawn(
        &Figure::new("t", Across::Time)
            .panel(Panel::new("p", "").line("a", points).band("b", band)),
    );
    assert!(svg.len() < 200_000, "{} bytes", svg.len());
}

#[test]
fn no_data_at_all_is_a_picture_that_says_so() {
    drawn(&Figure::new("", Across::Time));
    drawn(&Figure::new("t", names(0)).panel(Panel::default()));
    drawn(&Figure::new("t", Across::Time).panel(Panel::new("p", "").line("a", vec![])));
    let svg = drawn(
        &Figure::new("t", Across::Time)
            .panel(Panel::new("p", "").line("a", vec![(f64::NAN, f64::NAN)])),
    );
    assert!(texts(&Document::parse(&svg).unwrap()).contains(&"no data".to_owned()));
}

#[test]
fn on_a_logarithmic_scale_a_line_that_doubles_is_straight_and_what_is_not_above_zero_is_a_gap() {
    let points = vec![(1.0, 3.0), (2.0, 6.0), (4.0, 12.0), (8.0, 0.0), (16.0, 48.0), (-2.0, 7.0)];
    let across = Across::Log { label: "outstanding".to_owned() };
    let svg = drawn(&Figure::new("t", across).panel(Panel::new("p", "ms").line("a", points).log()));
    let document = Document::parse(&svg).unwrap();
    let line = of_class(document.root(), "series")[0].first_element_child().unwrap();
    let path = line.attribute("d").unwrap();
    let numbers: Vec<f64> =
        path.split(['M', 'L', ' ', 'h']).filter_map(|n| n.parse().ok()).collect();
    let (dx, dy) = (numbers[2] - numbers[0], numbers[3] - numbers[1]);
    assert!(dx > 50.0 && dy < -10.0, "{path}");
    assert!(
        (numbers[4] - numbers[2] - dx).abs() < 0.2 && (numbers[5] - numbers[3] - dy).abs() < 0.2
    );
    assert_eq!(path.matches('M').count(), 2, "{path}");
    for tick in ["1", "2", "4", "8", "16"] {
        assert!(texts(&document).contains(&tick.to_owned()), "{tick}");
    }
}

#[test]
fn a_line_may_turn_back() {
    let points = vec![(1.0, 100.0), (3.0, 300.0), (2.0, 400.0)];
    let across = Across::Log { label: "latency, ms".to_owned() };
    let figure = Figure::new("t", across).panel(Panel::new("p", "IOPS").line("a", points));
    let svg = drawn(&figure.upright("threshold", 2.5));
    let document = Document::parse(&svg).unwrap();
    let line = of_class(document.root(), "series")[0].first_element_child().unwrap();
    let path = line.attribute("d").unwrap();
    let places: Vec<f64> =
        path[1..].split('L').filter_map(|point| point.split(' ').next()?.parse().ok()).collect();
    assert!(places[0] < places[2] && places[2] < places[1], "{path}");
    assert_eq!(of_class(document.root(), "upright").len(), 1);
    assert!(figure_says(&document, "threshold at 2.5"));
}

fn figure_says(document: &Document, words: &str) -> bool {
    document.root_element().attribute("aria-label").is_some_and(|alt| alt.contains(words))
}

#[test]
fn a_heat_map_is_darker_where_there_is_more() {
    let tile = |x: f64, shade| Tile { across: (x, x + 1.0), up: (1.0, 2.0), shade };
    let panel =
        Panel::new("p", "ms").heat("share", vec![tile(1.0, 0.2), tile(2.0, 0.9), tile(3.0, 0.0)]);
    let across = Across::Numbers { label: "n".to_owned() };
    let svg = drawn(&Figure::new("t", across).panel(panel.log()));
    let document = Document::parse(&svg).unwrap();
    let tiles = of_class(document.root(), "tile");
    let shades: Vec<&str> = tiles.iter().filter_map(|t| t.attribute("fill-opacity")).collect();
    assert_eq!(shades, ["0.20", "0.90"], "what is empty is not drawn");
}

#[test]
fn whiskers_have_the_colour_of_what_they_belong_to_and_no_name_of_their_own() {
    let panel =
        Panel::new("p", "ms").line("a", vec![(1.0, 2.0)]).whiskers("a", vec![(1.0, 1.5, 2.5)]);
    let svg = drawn(&Figure::new("t", Across::Time).panel(panel));
    let document = Document::parse(&svg).unwrap();
    let colours: Vec<&str> = of_class(document.root(), "series")
        .iter()
        .filter_map(|s| s.first_element_child()?.attribute("stroke"))
        .collect();
    assert_eq!(colours.len(), 2);
    assert_eq!(colours[0], colours[1]);
    assert_eq!(texts(&document).iter().filter(|t| *t == "a").count(), 1);
}

#[test]
fn words_beside_points_do_not_cover_one_another_and_stay_inside() {
    let points: Vec<(f64, f64)> = (0..40).map(|i| (f64::from(i) / 50.0, 1.0)).collect();
    let mut panel = Panel::new("p", "").line("a", points.clone());
    for (i, at) in points.iter().enumerate() {
        panel = panel.note(*at, format!("note {i}"));
    }
    let mut figure = Figure::new("t", Across::Time).panel(panel);
    figure.width = Figure::NARROW;
    let svg = drawn(&figure);
    let document = Document::parse(&svg).unwrap();
    let notes: Vec<(f64, f64)> = document
        .descendants()
        .filter(|n| n.has_tag_name("text") && n.text().is_some_and(|t| t.starts_with("note")))
        .map(|n| ["x", "y"].map(|a| n.attribute(a).unwrap().parse().unwrap()))
        .map(|[x, y]: [f64; 2]| (x, y))
        .collect();
    assert!((4..40).contains(&notes.len()), "{notes:?}");
    for (i, a) in notes.iter().enumerate() {
        assert!(a.0 > 0.0 && a.0 + 30.0 < Figure::NARROW);
        assert!(notes[..i].iter().all(|b| (a.0 - b.0).abs() > 30.0 || (a.1 - b.1).abs() > 11.0));
    }
}

fn value() -> impl Strategy<Value = f64> {
    prop_oneof![
        4 => -1e3..1e3f64,
        1 => any::<f64>(),
        1 => Just(0.0),
        1 => Just(7.25),
        1 => prop_oneof![Just(f64::NAN), Just(f64::INFINITY), Just(f64::MAX), Just(f64::MIN_POSITIVE), Just(-0.0)],
    ]
}

fn data() -> impl Strategy<Value = Data> {
    let points = || prop::collection::vec((value(), value()), 0..30);
    let tile = ((value(), value()), (value(), value()), value());
    let tile = tile.prop_map(|(across, up, shade)| Tile { across, up, shade });
    prop_oneof![
        points().prop_map(Data::Line),
        points().prop_map(Data::Marks),
        points().prop_map(Data::Bars),
        points().prop_map(Data::Paper),
        prop::collection::vec((value(), value(), value()), 0..30).prop_map(Data::Band),
        prop::collection::vec((value(), value(), value()), 0..30).prop_map(Data::Whiskers),
        prop::collection::vec(tile, 0..30).prop_map(Data::Heat),
    ]
}

fn panel() -> impl Strategy<Value = Panel> {
    let series = (".{0,12}", data()).prop_map(|(name, data)| Series { name, data });
    let level = (".{0,5}", value(), prop::option::of((value(), value())));
    let level = level.prop_map(|(name, value, within)| parda_plot::Level { name, value, within });
    let note = ((value(), value()), ".{0,9}").prop_map(|(at, text)| Note { at, text });
    let data = (prop::collection::vec(series, 0..5), prop::collection::vec(level, 0..3));
    let scale = (any::<bool>(), prop::option::of((value(), value())));
    (".{0,40}", ".{0,8}", data, prop::collection::vec(note, 0..5), scale).prop_map(
        |(label, unit, (series, levels), notes, (log, room))| Panel {
            label,
            unit,
            series,
            levels,
            notes,
            log,
            room,
        },
    )
}

fn across() -> impl Strategy<Value = Across> {
    prop_oneof![
        Just(Across::Time),
        ".{0,20}".prop_map(|label| Across::Numbers { label }),
        ".{0,20}".prop_map(|label| Across::Log { label }),
        (".{0,20}", prop::collection::vec(".{0,30}", 0..40))
            .prop_map(|(label, names)| Across::Names { label, names }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]
    #[test]
    fn any_data_can_be_drawn(
        title in ".{0,200}",
        across in across(),
        panels in prop::collection::vec(panel(), 0..4),
        spans in prop::collection::vec((".{0,20}", value(), value()), 0..4),
        uprights in prop::collection::vec((".{0,9}", value()), 0..3),
        width in prop_oneof![Just(Figure::WIDE), Just(Figure::NARROW), Just(f64::NAN), Just(-3.0)],
        room in prop::option::of((value(), value())),
        many in any::<bool>(),
    ) {
        let mut figure = Figure::new(title, across);
        figure.panels = panels;
        for (name, from, to) in spans {
            figure = figure.span(name, from, to);
        }
        for (name, at) in uprights {
            figure = figure.upright(name, at);
        }
        figure.width = width;
        figure.room = room;
        let figure = if many { figure.digest(1, "hosts") } else { figure };
        let svg = drawn(&figure);
        // Attributes are numbers; names may say what they like.
        let document = Document::parse(&svg).expect("it has been parsed before");
        for node in document.descendants() {
            for name in ["x", "y", "x1", "x2", "y1", "y2", "width", "height", "d", "transform"] {
                if let Some(value) = node.attribute(name) {
                    prop_assert!(!value.contains("NaN") && !value.contains("inf"), "{name}={value}");
                }
            }
        }
        let series: usize = of_class(document.root(), "panel").iter().map(|p| of_class(*p, "series").len()).sum();
        prop_assert_eq!(series, figure.panels.iter().map(|p| p.series.len()).sum::<usize>());
    }
}
