use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{KeyCode, KeyEvent};
use serde_json::json;

use super::*;

/// Status of an agent after `seconds`. Each VM does its reads of 4 KiB, of a millisecond each; those of `a` are held for
/// another.
fn after(seconds: f64) -> parda_agent::status::Status {
    let disk = |name: &str, iops: u64, held: u64| {
        let reads = iops * seconds as u64;
        let spent =
            |ns: u64| json!({ "buckets": if reads == 0 { vec![] } else { vec![(ns, reads)] } });
        json!({
            "name": name, "shares": 1000, "errors": 0, "others": 0,
            "reads": { "ios": reads, "bytes": reads * 4096 }, "writes": { "ios": 0, "bytes": 0 },
            "held": spent(held), "device": spent(1_000_000), "total": spent(1_000_000 + held),
        })
    };
    let volume = |name: &str| {
        json!({
            "name": name, "mode": "parda", "latency_threshold_ms": 30.0, "cluster_latency_ms": 29.5,
            "source": "cluster", "window": 35.0, "beta": 0.0, "shares": 2000, "active_shares": 2000.0,
            "outstanding": 33.0, "held": 12, "connections": 2, "ticks": 9,
            "exchange": { "place": "file", "fault": null, "failures": 0, "ignored": 0, "duplicate_hosts": 0, "peers": [
                { "name": "kvm-02", "liveness": "stale", "age_s": 9.5, "window": 11.0, "shares": 1000, "latency_ms": 31.0 },
            ] },
            "disks": [disk("a", 1000, 1_000_000), disk("b", 3000, 1000), disk("c", 0, 1000)],
        })
    };
    serde_json::from_value(json!({
        "host": "kvm-01", "version": "0.1.0", "pid": 1, "uptime_s": seconds, "volumes": [volume("san"), volume("nas")],
    }))
    .unwrap()
}

fn screen() -> Screen {
    let mut screen = Screen::new(after(10.0));
    screen.take(Ok(after(12.0)));
    screen
}

fn press(screen: &mut Screen, keys: &str) {
    for key in keys.chars() {
        let code = if key == '\n' { KeyCode::Enter } else { KeyCode::Char(key) };
        assert!(screen.press(KeyEvent::from(code)).is_continue());
    }
}

/// The screen of a terminal of this size.
fn shown(screen: &mut Screen, width: u16, height: u16) -> Vec<String> {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| draw(screen, frame)).unwrap();
    let buffer = terminal.backend().buffer().clone();
    let line = |y| (0..width).map(|x| buffer[(x, y)].symbol()).collect::<String>();
    (0..height).map(|y| line(y).trim_end().to_owned()).collect()
}

/// Names in the order of their lines.
fn order(screen: &mut Screen) -> String {
    let lines = shown(screen, 80, 24);
    let names = lines.iter().skip(8).filter_map(|line| line.split_whitespace().next());
    names
        .filter(|name| ["a", "b", "c", "kvm-01", "kvm-02"].contains(name))
        .collect::<Vec<_>>()
        .join(" ")
}

#[test]
fn all_is_on_a_terminal_of_eighty_by_twenty_four() {
    let lines = shown(&mut screen(), 80, 24);
    assert!(lines[0].starts_with("parda kvm-01, 0.1.0, up 12 s"), "{lines:#?}");
    assert_eq!(
        lines[1],
        "san (1 of 2, Tab): parda, latency 29.5 ms (threshold 30.0 ms), 12 IOs held"
    );
    assert!(lines[3].contains("latency ms 29.5") && lines[3].contains("IO/s 4000.0"), "{lines:#?}");
    assert_eq!(
        lines[7].split_whitespace().collect::<Vec<_>>().join(" "),
        "VM shares IO/s▾ MiB/s array held outst of share limited by past"
    );
    let row = |at: usize| lines[at].split_whitespace().collect::<Vec<_>>().join(" ");
    assert_eq!(row(8), "b 1000 3000 11.7 1.0 0.0 3.0 - its own depth █");
    assert_eq!(row(9), "a 1000 1000 3.9 1.0 1.0 1.0 100% its slice █");
    assert_eq!(row(10), "c 1000 0 0.0 - - 0.0 - nothing done");
}

#[test]
fn keys_sort_filter_and_turn_to_hosts() {
    let mut screen = screen();
    assert_eq!(order(&mut screen), "b a c");
    press(&mut screen, "r");
    assert_eq!(order(&mut screen), "c a b");
    press(&mut screen, "<<");
    assert_eq!(order(&mut screen), "a b c", "by name");
    press(&mut screen, "/B\n");
    assert_eq!(order(&mut screen), "b");
    press(&mut screen, "h/\u{8}\n");
    screen.filter.clear();
    assert_eq!(order(&mut screen), "kvm-01 kvm-02");
    assert!(screen.press(KeyEvent::from(KeyCode::Char('q'))).is_break());
}

#[test]
fn unknown_values_stand_last_in_both_orders() {
    let mut screen = screen();
    press(&mut screen, ">>>");
    assert_eq!(order(&mut screen), "a b c", "by time held");
    press(&mut screen, "r");
    assert_eq!(order(&mut screen), "b a c");
}

#[test]
fn a_paused_screen_keeps_its_values_until_it_goes_on() {
    let mut screen = screen();
    press(&mut screen, " ");
    screen.take(Ok(after(14.0)));
    assert!(shown(&mut screen, 80, 24)[0].contains("up 12 s"));
    press(&mut screen, " ");
    screen.take(Ok(after(16.0)));
    assert!(shown(&mut screen, 80, 24)[0].contains("up 16 s"));
}

#[test]
fn an_agent_that_is_gone_is_said_and_the_last_picture_stays() {
    let mut screen = screen();
    screen.take(Err("s: nobody listens".to_owned()));
    let lines = shown(&mut screen, 80, 24);
    assert_eq!(lines[2], "s: nobody listens");
    assert_eq!(order(&mut screen), "b a c");
}

#[test]
fn a_low_terminal_has_rows_in_place_of_charts_and_a_long_name_is_told_in_full() {
    let mut screen = screen();
    let lines = shown(&mut screen, 40, 8);
    assert!(lines[3].starts_with("VM") && lines[4].starts_with('b'), "{lines:#?}");
    assert_eq!(lines[1], "san (1 of 2, Tab): parda, latency 29.5 …");
    assert_eq!(lines[2], "");
    let mut status = after(14.0);
    status.volumes[0].disks[1].name = "one-of-many-with-a-common-beginning".to_owned();
    let mut screen = Screen::new(status.clone());
    status.uptime_s += 2.0;
    screen.take(Ok(status));
    press(&mut screen, "/many\n");
    assert_eq!(shown(&mut screen, 80, 24)[2], "one-of-many-with-a-common-beginning");
}

#[test]
fn a_narrow_terminal_has_fewer_columns_and_whole_numbers() {
    let [first, second] = [12.0, 14.0].map(|seconds| {
        let mut status = after(seconds);
        status.volumes[0].disks[1].name = "数据库-of-the-shop".to_owned();
        status
    });
    let mut screen = Screen::new(first);
    screen.take(Ok(second));
    let words = |line: &String| line.split_whitespace().collect::<Vec<_>>().join(" ");
    let lines = shown(&mut screen, 60, 8);
    assert_eq!(words(&lines[3]), "VM IO/s▾ array held outst of share limited by");
    // Beside the sort column, the VM's limiting factor and its part of its share stay longest.
    for (width, columns) in [
        (40, "VM IO/s▾ of share limited by"),
        (30, "VM IO/s▾ limited by"),
        (25, "VM IO/s▾ limited by"),
    ] {
        assert_eq!(words(&shown(&mut screen, width, 8)[3]), columns, "{width}");
    }
    let lines = shown(&mut screen, 20, 5);
    assert_eq!(lines[0], "san (1 of 2, Tab): …");
    assert_eq!(words(&lines[1]), "VM IO/s▾");
    // A character of two columns leaves the second one empty.
    assert!(lines[2].starts_with("数 据 库 -of-th…") && lines[2].ends_with(" 3000"), "{lines:#?}");
    assert!(lines[3].starts_with('a') && lines[3].ends_with(" 1000"), "{lines:#?}");
    assert_eq!(lines[4], "? help  q quit  < >…");
    // The column that is sorted by is always there.
    press(&mut screen, "<");
    assert_eq!(words(&shown(&mut screen, 20, 5)[1]), "VM shares▾");
    // A wide sort column leaves the rest of the room to the name, and is cut visibly in the end.
    press(&mut screen, "<<");
    let lines = shown(&mut screen, 20, 5);
    assert_eq!(words(&lines[1]), "VM limited by▴");
    assert!(lines.contains(&"a      its slice".to_owned()), "{lines:#?}");
    assert_eq!(shown(&mut screen, 10, 5)[1], "VM   limi…");
    press(&mut screen, "h");
    assert_eq!(words(&shown(&mut screen, 30, 5)[1]), "host▴ state");
    // Errors come first.
    screen.take(Err("nobody listens".to_owned()));
    assert_eq!(shown(&mut screen, 20, 4)[0], "nobody listens");
    let lines = shown(&mut screen, 20, 3);
    assert!(lines[0].starts_with("host") && lines[1].starts_with("kvm-01"), "{lines:#?}");
}

#[test]
fn a_wide_terminal_has_whole_names_and_numbers_and_a_longer_past() {
    let name = "a-name-of-thirty-characters-xx";
    let at = |seconds| {
        let mut status = after(seconds);
        status.volumes[0].disks[1].name = name.to_owned();
        status.volumes[0].disks[1].reads.ios *= 4000;
        status
    };
    let mut screen = Screen::new(at(10.0));
    (11..60).for_each(|second| screen.take(Ok(at(f64::from(second)))));
    let row = |lines: Vec<String>| lines.into_iter().find(|line| line.contains("its own")).unwrap();
    let (narrow, wide) = (row(shown(&mut screen, 80, 24)), row(shown(&mut screen, 200, 24)));
    assert!(narrow.starts_with("a-name-o… ") && narrow.contains(" 12000k "), "{narrow}");
    assert!(wide.starts_with(name) && wide.contains(" 12000000 "), "{wide}");
    let bars = |line: &str| line.chars().filter(|c| *c == '█').count();
    assert_eq!((bars(&narrow), bars(&wide)), (4, 49));
    press(&mut screen, "h");
    assert!(shown(&mut screen, 200, 24).iter().any(|line| line.starts_with("kvm-02")));
}

#[test]
fn a_volume_without_disks_does_nothing() {
    let [first, second] = [10.0, 12.0].map(|seconds| {
        let mut status = after(seconds);
        status.volumes[0].disks.clear();
        status
    });
    let mut screen = Screen::new(first);
    screen.take(Ok(second));
    let lines = shown(&mut screen, 80, 24);
    assert!(lines[3].contains("IO/s 0.0"), "{lines:#?}");
}

#[test]
fn help_begins_its_lines_alike_and_says_what_is_cut() {
    let mut screen = screen();
    press(&mut screen, "?");
    let lines = shown(&mut screen, 80, 24);
    let inside = |line: &String| line.split('│').nth(1).map(|text| text.trim_end().to_owned());
    let inside = |lines: &[String]| lines.iter().filter_map(inside).collect::<Vec<_>>();
    let whole = inside(&lines);
    assert_eq!(whole[..2], [" q         quit", " up down   move; also PgUp, PgDn, Home, End"]);
    assert!(whole.iter().any(|line| line.ends_with("(of its host), or")), "{lines:#?}");
    let low = inside(&shown(&mut screen, 24, 6));
    assert_eq!(low, [" q         quit", " up down   move; als…", " < >       sort by t…", " …"]);
}

#[test]
fn every_line_of_the_help_is_reached_in_a_low_terminal() {
    let mut screen = screen();
    press(&mut screen, "?");
    let inside = |line: &String| line.split('│').nth(1).map(|text| text.trim().to_owned());
    let mut seen = std::collections::BTreeSet::new();
    for _ in 0..HELP.lines().count() {
        seen.extend(shown(&mut screen, 80, 8).iter().filter_map(inside));
        assert!(screen.press(KeyEvent::from(KeyCode::Down)).is_continue());
    }
    let missed: Vec<_> = HELP.lines().filter(|line| !seen.contains(line.trim())).collect();
    assert_eq!((missed, screen.input), (Vec::new(), Input::Help));
    let end = shown(&mut screen, 80, 8);
    assert!(!end.iter().any(|line| line.contains('…')), "{end:#?}");
    assert!(screen.press(KeyEvent::from(KeyCode::PageUp)).is_continue());
    assert!(shown(&mut screen, 80, 8).iter().any(|line| line.contains("q         quit")));
    press(&mut screen, "x");
    assert_eq!((screen.input, screen.help), (Input::Table, 0));
}

#[test]
fn no_size_of_the_terminal_is_too_small() {
    let mut screen = screen();
    for keys in ["", "h", "?"] {
        press(&mut screen, keys);
        for (width, height) in [(1, 1), (20, 5), (79, 10), (300, 100)] {
            shown(&mut screen, width, height);
        }
    }
}
