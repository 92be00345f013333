//! A comparison of two probes as an HTML page.

use parda_plot::{Page, Table};

use super::table::{by_mix, columns, rows};
use super::{advice, curves, figures, side, summary};
use crate::report::comparison::{Change, Comparison};
use crate::report::page::side_by_side;
use crate::report::words::{percent, short};
use parda_probe::ProbeDocument;

/// An HTML page without external files: summary, the advice of both probes, their curves in the same
/// charts, the distributions of their latencies, and a table of all loads that both ran.
#[must_use]
pub fn page(a: &ProbeDocument, b: &ProbeDocument) -> String {
    let comparison = Comparison::new(a, b);
    let mut page = Page::new(format!("`{}` and `{}` side by side", a.target.name, b.target.name));
    page.list([side("A", &comparison.a), side("B", &comparison.b)]);
    facts(&mut page, &comparison);
    page.prose(&summary(&comparison).join(" "));
    page.heading("What to set");
    page.list(advice(&comparison));
    if let Some(figure) = figures::ratios(&comparison) {
        page.heading("What B has of A's throughput");
        page.prose(
            "Above the dashed line B does more than A at the same load, below it less. Where a whisker touches the line \
             the difference may be chance.",
        );
        side_by_side(&mut page, [figure], &[]);
    }
    let mut loads = figures::loads(a, b);
    if !loads.is_empty() || !comparison.curves.is_empty() {
        page.heading("How both answer load");
        page.prose(
            "Dotted lines are knees, grey around them is where they lie with 95 % confidence.",
        );
        for of in &comparison.curves {
            page.subheading(&of.mix.to_string());
            let drawn = loads.extract_if(.., |(mix, _)| *mix == of.mix);
            side_by_side(&mut page, drawn.flat_map(|(_, both)| both), &[]);
            page.list(curves(of));
        }
    }
    let spreads = figures::spreads(a, b);
    if !spreads.is_empty() {
        page.heading("How latencies are spread");
        page.prose("All pictures have the same axes.");
        for both in spreads {
            side_by_side(&mut page, both, &[]);
        }
    }
    tables(&mut page, &comparison);
    page.html()
}

fn facts(page: &mut Page, comparison: &Comparison) {
    let Some([least, middle, most]) = comparison.ratios() else { return };
    let count = |verdict| comparison.count(verdict).to_string();
    let of_all = format!("of {} loads", comparison.loads.len());
    page.facts([
        [
            "B's throughput".to_owned(),
            short_of(middle),
            format!("of A's; {} to {}", short_of(least), short_of(most)),
        ],
        ["better".to_owned(), count(Change::Better), of_all.clone()],
        ["the same".to_owned(), count(Change::Same), of_all.clone()],
        ["worse".to_owned(), count(Change::Worse), of_all.clone()],
        ["unsure".to_owned(), count(Change::Unsure), of_all],
    ]);
}

/// `80 %`, `175 ×`.
fn short_of(ratio: f64) -> String {
    let said = if ratio >= 2.0 { format!("{} ×", short(ratio)) } else { percent(ratio) };
    said.replace(' ', "\u{a0}")
}

fn tables(page: &mut Page, comparison: &Comparison) {
    page.heading("All loads that both ran");
    let left_out = comparison.only_a + comparison.only_b;
    if left_out > 0 {
        page.prose(&format!(
            "Left out: {} that only A ran, {} that only B ran.",
            comparison.only_a, comparison.only_b
        ));
    }
    for (heading, pairs) in by_mix(&comparison.loads) {
        let table = Table::new(columns(&pairs)).caption(heading);
        page.table(rows(&pairs).into_iter().fold(table, Table::row));
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
