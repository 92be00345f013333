//! Drawing of the screen: heading, charts of the last looks, table, and the line of keys.

use std::collections::VecDeque;

use parda_agent::status::VolumeStatus;
use parda_terminal::output::{line, number};
use ratatui::Frame;
use ratatui::layout::{Alignment, Constraint, Layout, Rect};
use ratatui::style::{Color, Style, Stylize};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Cell, Clear, Padding, Paragraph, Row, Sparkline, Table};

use super::fit;
use super::rows::{self, Column};
use super::screen::{Input, Past, Screen};
use crate::status::outsider;

/// Least width and height of a terminal with charts above the table.
const CHARTS_FROM: (u16, u16) = (48, 14);

const HELP: &str = "\
q         quit
up down   move; also PgUp, PgDn, Home, End
< >       sort by the previous or next column; also left and right
r         reverse the order
/         filter by name; Enter keeps it, Esc drops it
h         switch between VMs and hosts
Tab       next volume
space     pause, and go on

array, held, latency: means in milliseconds. outst: outstanding IOs.
of share: what one that is held back has, of what its shares give.
limited by: its slice (more shares help), window_max (of its host), or
its own depth (only lower latency at the array helps).";

pub(super) fn draw(screen: &mut Screen, frame: &mut Frame<'_>) {
    let all = screen.rows();
    let Rect { width, height, .. } = frame.area();
    let charts = if width < CHARTS_FROM.0 || height < CHARTS_FROM.1 { 0 } else { 4 };
    // A low terminal has rows of the table first.
    let (above, below) = match height {
        0..=2 => (0, 0),
        3 => (0, 1),
        4..=7 => (1, 1),
        _ => (3, 1),
    };
    let [head, lines, table, foot] = Layout::vertical([
        Constraint::Length(above),
        Constraint::Length(charts),
        Constraint::Fill(1),
        Constraint::Length(below),
    ])
    .areas(frame.area());
    let heading = heading(screen, &all, head).into_iter().map(|line| fit::line(line, width));
    frame.render_widget(Paragraph::new(heading.collect::<Vec<_>>()), head);
    if charts > 0
        && let Some((volume, _, _)) = screen.volume()
        && let Some(past) = screen.past(&volume.name)
    {
        lately(frame, lines, volume, past);
    }
    rows(screen, &all, frame, table);
    frame.render_widget(fit::line(footer(screen), width), foot);
    if screen.input == Input::Help {
        help(screen, frame);
    }
}

fn heading(screen: &Screen, rows: &[rows::Row], area: Rect) -> Vec<Line<'static>> {
    let Some(recent) = screen.recent() else {
        return vec![Line::from("the first interval is not over yet")];
    };
    let status = &recent.status;
    let mut first = vec![
        Span::from("parda ").bold(),
        Span::from(format!("{}, {}, up {:.0} s", status.host, status.version, status.uptime_s)),
    ];
    if screen.paused {
        first.push(Span::from("  paused (space goes on)").yellow());
    }
    let Some((volume, at, of)) = screen.volume() else {
        return vec![Line::from(first), Line::from("this agent has no volume")];
    };
    let which = if of > 1 { format!(" ({at} of {of}, Tab)") } else { String::new() };
    let latency = number(volume.cluster_latency_ms, 1);
    let over = volume.cluster_latency_ms.is_some_and(|ms| ms > 1.25 * volume.latency_threshold_ms);
    let pool = volume.pool.as_ref().map_or(String::new(), |pool| format!(" of pool {pool}"));
    let second = vec![
        Span::from(format!("{}{pool}{which}: {}, latency ", volume.name, volume.mode)),
        Span::styled(format!("{latency} ms"), if over { Style::new().red() } else { Style::new() }),
        Span::from(format!(
            " (threshold {:.1} ms), {} IOs held",
            volume.latency_threshold_ms, volume.held
        )),
    ];
    let trouble = trouble(screen, volume);
    if area.height < 3 {
        return vec![trouble.unwrap_or_else(|| Line::from(second))];
    }
    let third = trouble.or_else(|| cut(screen, rows, area.width));
    vec![Line::from(first), Line::from(second), third.unwrap_or_default()]
}

/// Name of the selected row, if it is cut in its column.
fn cut(screen: &Screen, rows: &[rows::Row], width: u16) -> Option<Line<'static>> {
    let row = rows.get(screen.table.selected()?)?;
    let (_, room) = *screen.columns(rows, width).first()?;
    let name = Line::from(line(&row.name));
    (name.width() > usize::from(room)).then_some(name)
}

/// The first thing that is wrong, if anything is, or load that is not under control.
fn trouble(screen: &Screen, volume: &VolumeStatus) -> Option<Line<'static>> {
    let exchange = volume.exchange.as_ref();
    let fault = (screen.fault.clone()).or_else(|| volume.fault.clone()).or_else(|| {
        exchange.and_then(|exchange| exchange.faults().next()).map(|why| format!("exchange: {why}"))
    });
    let reload = screen.recent().and_then(|recent| recent.status.reload.as_ref());
    let refused = reload.and_then(|reload| reload.refused.as_ref());
    let fault = fault.or_else(|| refused.map(|why| format!("reload refused: {why}")));
    let fault = fault.map(|why| Line::from(why.red()));
    let seen = volume.outsider.as_ref();
    fault.or_else(|| seen.map(|found| Line::from(outsider::short(found).yellow())))
}

/// Latency, window and throughput at the last looks.
fn lately(frame: &mut Frame<'_>, area: Rect, volume: &VolumeStatus, past: &Past) {
    let areas: [Rect; 3] = Layout::horizontal([Constraint::Fill(1); 3]).spacing(1).areas(area);
    let iops = past.iops.back().copied().flatten();
    let lines = [
        ("latency ms", volume.cluster_latency_ms, &past.latency_ms, Color::Blue),
        ("window", volume.window, &past.window, Color::Magenta),
        ("IO/s", iops, &past.iops, Color::Green),
    ];
    for (area, (name, now, past, colour)) in areas.into_iter().zip(lines) {
        let now = number(now, 1);
        let title = Line::from(vec![Span::from(format!("{name} ")), Span::from(now).bold()]);
        let [top, rest] =
            Layout::vertical([Constraint::Length(1), Constraint::Fill(1)]).areas(area);
        frame.render_widget(Paragraph::new(title), top);
        frame.render_widget(chart(past, rest.width).style(colour), rest);
    }
}

/// A chart of the newest values, as many as the width has room for.
fn chart(past: &VecDeque<Option<f64>>, width: u16) -> Sparkline<'static> {
    let newest = past.iter().skip(past.len().saturating_sub(width.into()));
    // A sparkline has whole numbers.
    Sparkline::default().data(newest.map(|value| value.map(|value| (value * 100.0) as u64)))
}

fn rows(screen: &mut Screen, rows: &[rows::Row], frame: &mut Frame<'_>, area: Rect) {
    let columns = screen.subject.columns();
    let shown = screen.columns(rows, area.width);
    let volume = screen.volume().map(|(volume, _, _)| volume.name.clone());
    let past = volume.and_then(|name| screen.past(&name)).cloned().unwrap_or_default();
    let header = shown.iter().map(|&(i, width)| {
        let mark = match (i == screen.sorted_by, screen.descending) {
            (false, _) => "",
            (true, true) => "▾",
            (true, false) => "▴",
        };
        let title = fit::line(format!("{}{mark}", columns[i].title), width);
        aligned(&columns[i], title).bold()
    });
    let body = rows.iter().map(|row| {
        let cells = shown.iter().map(|&(i, width)| match row.cells.get(i) {
            Some(cell) => aligned(&columns[i], cell.shown(width)),
            None => Cell::from(bars(past.vms.get(&row.name), width)),
        });
        Row::new(cells).style(if row.alarm { Style::new().red() } else { Style::new() })
    });
    let table = Table::new(body, shown.iter().map(|(_, width)| Constraint::Length(*width)))
        .header(Row::new(header).style(Style::new().reversed()))
        .column_spacing(1)
        .row_highlight_style(Style::new().reversed());
    frame.render_stateful_widget(table, area, &mut screen.table);
}

fn aligned(column: &Column, text: Line<'static>) -> Cell<'static> {
    let alignment = if column.numeric { Alignment::Right } else { Alignment::Left };
    Cell::from(text.alignment(alignment))
}

/// A chart of a VM's IO/s in `width` characters, scaled to its own maximum.
fn bars(past: Option<&VecDeque<Option<f64>>>, width: u16) -> String {
    const BARS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let Some(past) = past else { return String::new() };
    let newest: Vec<f64> = (past.iter().skip(past.len().saturating_sub(width.into())))
        .map(|value| value.unwrap_or(0.0))
        .collect();
    let most = newest.iter().copied().fold(0.0, f64::max);
    let bar =
        |value: &f64| if most > 0.0 { BARS[(value / most * 8.0).round() as usize] } else { ' ' };
    newest.iter().map(bar).collect()
}

fn footer(screen: &Screen) -> Line<'static> {
    match screen.input {
        Input::Filter => Line::from(format!("filter: {}_", screen.filter)).yellow(),
        _ if !screen.filter.is_empty() => {
            Line::from(format!("filter \"{}\" (Esc drops it)  ? help  q quit", screen.filter))
                .yellow()
        }
        _ => Line::from("? help  q quit  < > sort  r reverse  / filter  h hosts  Tab volume").dim(),
    }
}

fn help(screen: &mut Screen, frame: &mut Frame<'_>) {
    let height = HELP.lines().count() as u16 + 2;
    let area = frame.area().centered(Constraint::Length(74), Constraint::Length(height));
    let block = Block::bordered().title(" keys ").padding(Padding::horizontal(1));
    let Rect { width, height, .. } = block.inner(area);
    let height = usize::from(height);
    screen.help = screen.help.min(HELP.lines().count().saturating_sub(height));
    let shown = HELP.lines().skip(screen.help);
    let mut lines: Vec<Line<'_>> = shown.map(|line| fit::line(line, width)).collect();
    if lines.len() > height {
        lines.truncate(height);
        // A single line has no room for a mark.
        lines.iter_mut().skip(1).next_back().into_iter().for_each(|last| *last = Line::from("…"));
    }
    frame.render_widget(Clear, area);
    frame.render_widget(Paragraph::new(lines).block(block), area);
}

#[cfg(test)]
mod tests;
