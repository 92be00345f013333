//! A comparison of two probes as an HTML page.

use parda_plot::{Figure, html, list, table};

use super::table::{by_mix, columns, row, texts};
use super::{advice, curves, figures, side, summary, word};
use crate::report::comparison::{Change, Comparison, Pair};
use crate::report::page::beside;
use crate::report::words::{percent, short};
use parda_probe::ProbeDocument;

/// An HTML page without external files: summary, the advice of both probes, their curves in the same
/// charts, the distributions of their latencies, and a table of all loads that both ran.
#[must_use]
pub fn page(a: &ProbeDocument, b: &ProbeDocument) -> String {
    let comparison = Comparison::new(a, b);
    let mut shown: Vec<(String, Figure)> = Vec::new();
    // Pictures beside one another.
    let mut pictures = |figures: Vec<Figure>| {
        let named = |(i, figure)| (format!("{i}"), figure);
        let named: Vec<_> = (shown.len()..).zip(figures).map(named).collect();
        let text = beside(&named);
        shown.extend(named);
        text
    };
    let mut text = list([side("A", &comparison.a), side("B", &comparison.b)]) + "\n";
    text += &facts(&comparison);
    text += &format!(
        "{}\n\n## What to set\n\n{}\n",
        summary(&comparison).join(" "),
        list(advice(&comparison))
    );
    if let Some(figure) = figures::ratios(&comparison) {
        text += &format!(
            "## What B has of A's throughput\n\nAbove the dashed line B does more than A at the same load, below it less. \
             Where a whisker touches the line the difference may be chance.\n\n{}",
            pictures(vec![figure])
        );
    }
    let loads = figures::loads(a, b);
    if !loads.is_empty() || !comparison.curves.is_empty() {
        text += "## How both answer load\n\nDotted lines are knees, grey around them is where they lie with 95 % \
                 confidence.\n\n";
        for of in &comparison.curves {
            let both = loads.iter().filter(|(mix, _)| *mix == of.mix);
            let both = pictures(both.flat_map(|(_, both)| both.clone()).collect());
            text += &format!("### {}\n\n{both}{}\n", of.mix, list(curves(of)));
        }
    }
    let spreads = figures::spreads(a, b);
    if !spreads.is_empty() {
        text += "## How latencies are spread\n\nAll pictures have the same axes.\n\n";
        text.extend(spreads.into_iter().map(&mut pictures));
    }
    text += &tables(&comparison);
    let title = format!("{} and {} side by side", a.target.name, b.target.name);
    html(&title, &text, |name| shown.iter().find(|(known, _)| known == name).map(|(_, f)| f.svg()))
}

fn facts(comparison: &Comparison) -> String {
    let Some([least, middle, most]) = comparison.ratios() else { return String::new() };
    let of_a = format!("of A's; {} to {}", short_of(least), short_of(most));
    let mut facts = vec![["B's throughput".to_owned(), format!("**{}**", short_of(middle)), of_a]];
    let changes = [Change::Better, Change::Same, Change::Worse, Change::Unsure];
    facts.extend(changes.into_iter().zip(["better", "the same", "worse", "unsure"]).map(
        |(change, name)| {
            let of_all = format!("of {} loads", comparison.loads.len());
            [name.to_owned(), format!("**{}**", comparison.count(change)), of_all]
        },
    ));
    table(["", "", ""], 3, facts) + "\n"
}

/// `80 %`, `175 ×`.
fn short_of(ratio: f64) -> String {
    let said = if ratio >= 2.0 { format!("{} ×", short(ratio)) } else { percent(ratio) };
    said.replace(' ', "\u{a0}")
}

fn tables(comparison: &Comparison) -> String {
    let Comparison { only_a, only_b, .. } = comparison;
    let mut text = "## All loads that both ran\n\n".to_owned();
    if only_a + only_b > 0 {
        text += &format!("Left out: {only_a} that only A ran, {only_b} that only B ran.\n\n");
    }
    for (heading, pairs) in by_mix(&comparison.loads) {
        let texts = texts(&pairs);
        let row = |pair: &&Pair| row(pair, texts == 0).into_iter().chain([verdict(pair)]);
        let table = table(columns(&pairs), texts, pairs.iter().map(row));
        text += &format!("**{heading}**\n\n{table}\n");
    }
    text
}

/// A verdict with its mark.
fn verdict(pair: &Pair) -> String {
    let verdict = word(pair.verdict);
    match pair.verdict {
        Change::Better => format!("✓ {verdict}"),
        Change::Worse => format!("**✗ {verdict}**"),
        Change::Same | Change::Unsure => verdict.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::example::{document, empty, slower};

    #[test]
    fn a_page_has_both_in_the_same_pictures() {
        let html = page(&document(), &slower(1.25));
        assert!(html.contains("80\u{a0}%") || html.contains("80 %"));
        // A ratio, two for each of three mixes, and two spreads for each.
        assert_eq!(html.matches("<svg").count(), 1 + 3 * 2 + 3 * 2);
        assert!(html.contains("✗ worse"));
    }

    #[test]
    fn where_nothing_is_common_there_are_no_pictures_and_that_is_said() {
        let html = page(&document(), &empty());
        assert!(html.contains("nothing to compare") && !html.contains("<svg"));
    }
}
