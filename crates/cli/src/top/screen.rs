//! State of the screen, and the effect of each key on it.

use std::collections::{HashMap, VecDeque};
use std::ops::ControlFlow;

use parda_agent::status::{Status, VolumeStatus};
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::text::Line;
use ratatui::widgets::TableState;

use super::fit::{self, PAST};
use super::rows::{self, Column, Row};
use crate::status::recent::Recent;

/// Lines that a page key moves by.
const PAGE: u16 = 10;

/// The table that is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Subject {
    Vms,
    Hosts,
}

impl Subject {
    pub(super) fn columns(self) -> &'static [Column] {
        match self {
            Subject::Vms => &rows::VMS,
            Subject::Hosts => &rows::HOSTS,
        }
    }

    /// Number of columns that can be sorted by.
    fn sortable(self) -> usize {
        match self {
            Subject::Vms => rows::VMS.len() - 1,
            Subject::Hosts => rows::HOSTS.len(),
        }
    }
}

/// The part of the screen that receives keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Input {
    Table,
    Filter,
    Help,
}

/// Values of a volume at past looks, the newest last. `None` where there was none.
#[derive(Clone, Debug, Default)]
pub(super) struct Past {
    pub(super) latency_ms: VecDeque<Option<f64>>,
    pub(super) window: VecDeque<Option<f64>>,
    pub(super) iops: VecDeque<Option<f64>>,
    /// IO/s of each VM.
    pub(super) vms: HashMap<String, VecDeque<Option<f64>>>,
}

/// State of the screen.
pub(super) struct Screen {
    last: Status,
    recent: Option<Recent>,
    /// Why the last look failed.
    pub(super) fault: Option<String>,
    /// Whether the display is paused. Looks go on.
    pub(super) paused: bool,
    volume: usize,
    pub(super) subject: Subject,
    pub(super) sorted_by: usize,
    pub(super) descending: bool,
    pub(super) filter: String,
    pub(super) input: Input,
    /// Lines of the help above those that are shown.
    pub(super) help: usize,
    pub(super) table: TableState,
    past: HashMap<String, Past>,
}

impl Screen {
    /// A screen before the first interval is over.
    pub(super) fn new(first: Status) -> Screen {
        Screen {
            last: first,
            recent: None,
            fault: None,
            paused: false,
            volume: 0,
            subject: Subject::Vms,
            sorted_by: 2,
            descending: true,
            filter: String::new(),
            input: Input::Table,
            help: 0,
            table: TableState::new().with_selected(0),
            past: HashMap::new(),
        }
    }

    /// Updates the screen with a status of the agent, or the reason why it did not answer.
    pub(super) fn take(&mut self, look: Result<Status, String>) {
        let status = match look {
            Ok(status) => status,
            Err(why) => {
                self.fault = Some(why);
                return;
            }
        };
        self.fault = None;
        let recent = Recent::between(&self.last, status.clone());
        self.last = status;
        for volume in &recent.status.volumes {
            self.past.entry(volume.name.clone()).or_default().take(&recent, volume);
        }
        if !self.paused || self.recent.is_none() {
            self.recent = Some(recent);
        }
    }

    /// The interval that is shown. `None` before the first one is over.
    pub(super) fn recent(&self) -> Option<&Recent> {
        self.recent.as_ref()
    }

    /// The volume that is shown, its number from 1 on, and the number of volumes.
    pub(super) fn volume(&self) -> Option<(&VolumeStatus, usize, usize)> {
        let volumes = &self.recent.as_ref()?.status.volumes;
        let at = self.volume.min(volumes.len().checked_sub(1)?);
        Some((&volumes[at], at + 1, volumes.len()))
    }

    pub(super) fn past(&self, volume: &str) -> Option<&Past> {
        self.past.get(volume)
    }

    /// Columns that fit into a width, each with its own, for these rows.
    pub(super) fn columns(&self, rows: &[Row], width: u16) -> Vec<(usize, u16)> {
        let drops: &[usize] = match self.subject {
            Subject::Vms => &rows::VMS_DROP,
            Subject::Hosts => &rows::HOSTS_DROP,
        };
        let longest = rows.iter().map(|row| Line::from(row.name.as_str()).width()).max();
        let longest = longest.unwrap_or_default().min(width.into()) as u16;
        fit::columns(self.subject.columns(), drops, self.sorted_by, longest, width)
    }

    /// Rows of the table, filtered and sorted.
    pub(super) fn rows(&self) -> Vec<Row> {
        let (Some(recent), Some((volume, _, _))) = (&self.recent, self.volume()) else {
            return Vec::new();
        };
        let mut rows = match self.subject {
            Subject::Vms => rows::vms(recent, volume),
            Subject::Hosts => rows::hosts(recent, volume),
        };
        let wanted = self.filter.to_lowercase();
        rows.retain(|row| row.name.to_lowercase().contains(&wanted));
        let (by, descending) = (self.sorted_by, self.descending);
        rows.sort_by(|a, b| {
            a.cells[by].compare(&b.cells[by], descending).then_with(|| a.name.cmp(&b.name))
        });
        rows
    }

    /// Executes a key. Breaks if the key ends the program.
    pub(super) fn press(&mut self, key: KeyEvent) -> ControlFlow<()> {
        if key.modifiers.contains(KeyModifiers::CONTROL) && key.code == KeyCode::Char('c') {
            return ControlFlow::Break(());
        }
        match self.input {
            Input::Help => self.read_help(key.code),
            Input::Filter => self.type_filter(key.code),
            Input::Table => return self.command(key.code),
        }
        ControlFlow::Continue(())
    }

    /// Moves the help; another key closes it. Drawing bounds the move.
    fn read_help(&mut self, code: KeyCode) {
        self.help = match code {
            KeyCode::Down => self.help.saturating_add(1),
            KeyCode::Up => self.help.saturating_sub(1),
            KeyCode::PageDown => self.help.saturating_add(PAGE.into()),
            KeyCode::PageUp => self.help.saturating_sub(PAGE.into()),
            KeyCode::Home => 0,
            KeyCode::End => usize::MAX,
            _ => {
                self.input = Input::Table;
                0
            }
        };
    }

    fn type_filter(&mut self, code: KeyCode) {
        match code {
            KeyCode::Enter => self.input = Input::Table,
            KeyCode::Esc => {
                self.filter.clear();
                self.input = Input::Table;
            }
            KeyCode::Backspace => drop(self.filter.pop()),
            KeyCode::Char(c) => self.filter.push(c),
            _ => {}
        }
        self.table.select_first();
    }

    fn command(&mut self, code: KeyCode) -> ControlFlow<()> {
        match code {
            KeyCode::Char('q') => return ControlFlow::Break(()),
            KeyCode::Char('?') => self.input = Input::Help,
            KeyCode::Char('/') => self.input = Input::Filter,
            KeyCode::Char('r') => self.descending = !self.descending,
            KeyCode::Char(' ') => self.paused = !self.paused,
            KeyCode::Char('h') => self.switch_table(),
            KeyCode::Char('>') | KeyCode::Right => self.sort_by(1),
            KeyCode::Char('<') | KeyCode::Left => self.sort_by(-1),
            KeyCode::Tab => self.next_volume(),
            KeyCode::Esc => self.filter.clear(),
            KeyCode::Down => self.table.scroll_down_by(1),
            KeyCode::Up => self.table.scroll_up_by(1),
            KeyCode::PageDown => self.table.scroll_down_by(PAGE),
            KeyCode::PageUp => self.table.scroll_up_by(PAGE),
            KeyCode::Home => self.table.select_first(),
            KeyCode::End => self.table.select_last(),
            _ => {}
        }
        ControlFlow::Continue(())
    }

    fn switch_table(&mut self) {
        (self.subject, self.sorted_by, self.descending) = match self.subject {
            Subject::Vms => (Subject::Hosts, 0, false),
            Subject::Hosts => (Subject::Vms, 2, true),
        };
        self.table.select_first();
    }

    fn sort_by(&mut self, step: isize) {
        let columns = self.subject.sortable() as isize;
        let by = (self.sorted_by as isize + step).rem_euclid(columns) as usize;
        (self.sorted_by, self.descending) = (by, self.subject.columns()[by].numeric);
    }

    fn next_volume(&mut self) {
        if let Some((_, at, count)) = self.volume() {
            self.volume = at % count;
            self.table.select_first();
        }
    }
}

impl Past {
    fn take(&mut self, recent: &Recent, volume: &VolumeStatus) {
        push(&mut self.latency_ms, volume.cluster_latency_ms);
        push(&mut self.window, volume.window);
        let vms: Vec<(&str, f64)> = volume
            .disks
            .iter()
            .map(|disk| (disk.name.as_str(), recent.rate(disk.reads.ios + disk.writes.ios)))
            .collect();
        push(&mut self.iops, Some(vms.iter().fold(0.0, |all, (_, iops)| all + iops)));
        self.vms.retain(|name, _| vms.iter().any(|(vm, _)| vm == name));
        for (name, iops) in vms {
            push(self.vms.entry(name.to_owned()).or_default(), Some(iops));
        }
    }
}

fn push(past: &mut VecDeque<Option<f64>>, value: Option<f64>) {
    if past.len() == PAST {
        past.pop_front();
    }
    past.push_back(value);
}
