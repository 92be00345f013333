//! Alternative text of a figure, for readers who do not see it.

use crate::figure::{Data, Figure, Panel, Series};
use crate::number::brief;
use crate::scale::extent;

/// Largest number of series of a panel that the text describes.
const MOST: usize = 12;

impl Figure {
    /// Description of the figure in a few sentences: its panels, and the first and last values of their
    /// series.
    pub fn alt(&self) -> String {
        let mut out = format!("{}.", self.title.trim_end_matches('.'));
        for panel in &self.panels {
            out.push(' ');
            out.push_str(&describe(panel, &self.reference));
        }
        for upright in &self.uprights {
            out.push_str(&format!(" {} at {}.", upright.name, brief(upright.at)));
        }
        out
    }
}

fn describe(panel: &Panel, reference: &str) -> String {
    let unit = if panel.unit.is_empty() { String::new() } else { format!(", {}", panel.unit) };
    // Whiskers belong to series that are described already.
    let all: Vec<&Series> =
        panel.series.iter().filter(|s| !matches!(s.data, Data::Whiskers(_))).collect();
    let mut parts: Vec<String> = all.iter().take(MOST).map(|s| series(s, reference)).collect();
    if all.len() > MOST {
        parts.push(format!("and {} more", all.len() - MOST));
    }
    parts.extend(panel.levels.iter().map(|l| format!("{} {}", l.name, brief(l.value))));
    if parts.is_empty() {
        parts.push("no data".to_owned());
    }
    format!("{}{unit}: {}.", panel.label, parts.join("; "))
}

fn series(series: &Series, reference: &str) -> String {
    let whose = match series.data {
        Data::Paper(_) => format!("{} ({reference})", series.name),
        _ => series.name.clone(),
    };
    let values = series.data.values();
    let range = match extent(values.iter().map(|(_, y)| *y)) {
        None => "no data".to_owned(),
        Some((low, high)) if low == high => brief(low),
        Some((low, high)) => format!("{} to {}", brief(low), brief(high)),
    };
    format!("{whose} {range}").trim_start().to_owned()
}

#[cfg(test)]
mod tests {
    use crate::figure::{Across, Figure, Panel};

    #[test]
    fn a_figure_is_told_in_words() {
        let panel = Panel::new("Device latency", "ms")
            .line("kvm-01", vec![(0.0, 29.5), (1.0, 31.0), (2.0, f64::NAN)])
            .paper("kvm-01", vec![(0.0, 30.0)])
            .line("kvm-02", vec![])
            .level("threshold", 30.0);
        let figure = Figure::new("Six hosts.", Across::Time).panel(panel);
        assert_eq!(
            figure.alt(),
            "Six hosts. Device latency, ms: kvm-01 29.5 to 31; kvm-01 (paper) 30; kvm-02 no data; threshold 30."
        );
    }
}
