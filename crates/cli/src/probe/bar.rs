//! Progress of a probe: a bar on a terminal, and notes as they come.

use indicatif::ProgressBar;
use parda_probe::{Point, Progress};

use crate::output;

/// On what is no terminal it draws nothing.
#[derive(Default)]
pub(super) struct Bar {
    bar: Option<ProgressBar>,
    /// Result of the last load.
    last: String,
}

impl Bar {
    pub(super) fn show(&mut self, progress: &Progress<'_>) {
        let bar = self.bar.get_or_insert_with(|| output::bar("{bar:20} {pos}/{len}  {msg}", 0));
        bar.set_length((progress.done + progress.left) as u64);
        bar.set_position(progress.done as u64);
        let left = progress.left_s.map_or(String::new(), |left| {
            format!("  at most {}:{:02} left", left as u64 / 60, left as u64 % 60)
        });
        let Progress { load, load_s, .. } = progress;
        bar.set_message(format!("{load}, {load_s:.0} s{left}{}", self.last));
    }

    pub(super) fn measured(&mut self, point: &Point) {
        let all = &point.all;
        self.last = format!("  (last: {:.0} IOPS, {:.2} ms)", all.iops, all.mean_ms);
    }

    /// Says something above the bar.
    pub(super) fn say(&self, what: &str) {
        let print = || eprintln!("parda: {what}");
        match &self.bar {
            Some(bar) => bar.suspend(print),
            None => print(),
        }
    }

    pub(super) fn clear(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
