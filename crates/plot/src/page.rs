//! The HTML page: one file, no scripts, nothing from elsewhere.

use maud::{DOCTYPE, Markup, PreEscaped, html};

use crate::draw::clean;
use crate::figure::Figure;
use crate::number::number;

/// A page, put together from top to bottom.
///
/// ```
/// use parda_plot::{Cell, Page, Table};
///
/// let mut page = Page::new("A report");
/// page.prose("What was asked, and of `which` scenario.");
/// page.heading("What came out");
/// page.table(Table::new(["host", "IOPS"]).row([Cell::text("kvm-01"), Cell::number(1482.0, 0)]));
/// assert!(page.html().contains("1,482"));
/// ```
#[derive(Clone, Debug)]
pub struct Page {
    title: String,
    body: Vec<Markup>,
    /// Headings, for the contents: level, anchor, text.
    contents: Vec<(u8, String, String)>,
}

/// A table for a [`Page`]: a head, rows and a caption.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Table {
    caption: String,
    columns: Vec<String>,
    rows: Vec<Vec<Cell>>,
}

/// Content of a table's cell.
#[derive(Clone, Debug, PartialEq)]
pub enum Cell {
    /// Text, aligned to the left.
    Text(String),
    /// A number, aligned to the right.
    Number(String),
    /// A result that is as it should be.
    Good(String),
    /// A result that is not as it should be.
    Bad(String),
}

impl Cell {
    /// Text, at the left. `code` between backticks.
    pub fn text(text: impl Into<String>) -> Cell {
        Cell::Text(text.into())
    }

    /// A number with so many decimals, at the right.
    pub fn number(value: f64, decimals: usize) -> Cell {
        Cell::Number(number(value, decimals))
    }

    /// A result, marked by a sign and not by colour alone.
    pub fn verdict(good: bool, text: impl Into<String>) -> Cell {
        if good { Cell::Good(text.into()) } else { Cell::Bad(text.into()) }
    }

    fn class(&self) -> Option<&'static str> {
        match self {
            Cell::Text(_) => None,
            Cell::Number(_) => Some("number"),
            Cell::Good(_) => Some("good"),
            Cell::Bad(_) => Some("bad"),
        }
    }

    fn content(&self) -> Markup {
        html! {
            @match self {
                Cell::Text(text) => (prose(text)),
                Cell::Number(text) => (clean(text)),
                Cell::Good(text) => { "✓ " (clean(text)) }
                Cell::Bad(text) => { "✗ " (clean(text)) }
            }
        }
    }
}

impl Table {
    /// A table with these columns, and no rows yet.
    pub fn new<S: Into<String>>(columns: impl IntoIterator<Item = S>) -> Table {
        Table { columns: columns.into_iter().map(Into::into).collect(), ..Table::default() }
    }

    /// Sets the caption, which says what the table shows.
    #[must_use]
    pub fn caption(mut self, caption: impl Into<String>) -> Table {
        self.caption = caption.into();
        self
    }

    /// Adds a row. Its first cell names it.
    #[must_use]
    pub fn row(mut self, cells: impl IntoIterator<Item = Cell>) -> Table {
        self.rows.push(cells.into_iter().collect());
        self
    }

    fn html(&self) -> Markup {
        // A column is headed at the side where its cells are.
        let numbers = |column: usize| {
            self.rows.iter().any(|r| matches!(r.get(column), Some(Cell::Number(_))))
        };
        html! {
            div.wide tabindex="0" role="region" aria-label=[(!self.caption.is_empty()).then(|| clean(&self.caption))] {
                table {
                    @if !self.caption.is_empty() { caption { (prose(&self.caption)) } }
                    thead { tr {
                        @for (i, column) in self.columns.iter().enumerate() {
                            th scope="col" class=[numbers(i).then_some("number")] { (clean(column)) }
                        }
                    } }
                    tbody {
                        @for row in &self.rows {
                            tr { @for (i, cell) in row.iter().enumerate() {
                                @if i == 0 {
                                    th scope="row" class=[cell.class()] { (cell.content()) }
                                } @else {
                                    td class=[cell.class()] { (cell.content()) }
                                }
                            } }
                        }
                    }
                }
            }
        }
    }
}

impl Page {
    /// A page without content below its title.
    pub fn new(title: impl Into<String>) -> Page {
        Page { title: title.into(), body: Vec::new(), contents: Vec::new() }
    }

    /// Adds the heading of a part.
    pub fn heading(&mut self, text: &str) {
        self.headed(2, text);
    }

    /// Adds a heading within a part.
    pub fn subheading(&mut self, text: &str) {
        self.headed(3, text);
    }

    fn headed(&mut self, level: u8, text: &str) {
        let mut anchor: String = text
            .chars()
            .map(|c| if c.is_alphanumeric() { c.to_ascii_lowercase() } else { '-' })
            .collect();
        while anchor.is_empty() || self.contents.iter().any(|(_, a, _)| *a == anchor) {
            anchor.push('-');
        }
        self.body.push(html! {
            @if level == 2 { h2 id=(anchor) { (prose(text)) } } @else { h3 id=(anchor) { (prose(text)) } }
        });
        self.contents.push((level, anchor, text.to_owned()));
    }

    /// Adds paragraphs, separated by blank lines in `text`. `code` is written between backticks.
    pub fn prose(&mut self, text: &str) {
        for paragraph in text.split("\n\n").filter(|p| !p.trim().is_empty()) {
            self.body.push(html! { p { (prose(paragraph)) } });
        }
    }

    /// Adds a list with one entry for each item.
    pub fn list<S: AsRef<str>>(&mut self, items: impl IntoIterator<Item = S>) {
        self.body.push(html! { ul { @for item in items { li { (prose(item.as_ref())) } } } });
    }

    /// Adds preformatted lines, to be copied.
    pub fn code(&mut self, lines: &str) {
        let clean: Vec<String> = lines.trim_end().lines().map(clean).collect();
        self.body.push(html! { pre tabindex="0" { code { (clean.join("\n")) } } });
    }

    /// The few numbers that matter most: what each is called, the number, and a word on it that may be empty.
    pub fn facts<S: AsRef<str>>(&mut self, facts: impl IntoIterator<Item = [S; 3]>) {
        self.body.push(html! {
            dl.facts {
                @for [name, number, word] in facts {
                    div {
                        dt { (prose(name.as_ref())) }
                        dd { strong { (clean(number.as_ref())) } " " small { (prose(word.as_ref())) } }
                    }
                }
            }
        });
    }

    /// Narrow figures side by side, as many as there is room for, each with a line below it that may be empty.
    pub fn side_by_side(&mut self, figures: &[(Figure, String)]) {
        self.body.push(html! {
            div.beside {
                @for (figure, caption) in figures {
                    figure {
                        (PreEscaped(figure.svg()))
                        @if !caption.is_empty() { figcaption { (prose(caption)) } }
                    }
                }
            }
        });
    }

    /// Adds a table below what the page has so far.
    pub fn table(&mut self, table: Table) {
        self.body.push(table.html());
    }

    /// Adds a figure, with a caption that may be empty.
    pub fn figure(&mut self, figure: &Figure, caption: &str) {
        self.body.push(html! {
            figure {
                // On a narrow screen it is moved sideways rather than made too small to read.
                div.wide tabindex="0" role="region" aria-label=(clean(&figure.title)) {
                    (PreEscaped(figure.svg()))
                }
                @if !caption.is_empty() { figcaption { (prose(caption)) } }
            }
        });
    }

    /// The page as an HTML document.
    pub fn html(&self) -> String {
        let page = html! {
            (DOCTYPE)
            html lang="en" {
                head {
                    meta charset="utf-8";
                    meta name="viewport" content="width=device-width, initial-scale=1";
                    title { (clean(&self.title)) }
                    style { (PreEscaped(STYLE)) }
                }
                body { main {
                    h1 { (prose(&self.title)) }
                    @if self.contents.len() > 3 {
                        nav aria-label="Contents" { ul {
                            @for (level, anchor, text) in &self.contents {
                                li class=[(*level > 2).then_some("deeper")] {
                                    a href={ "#" (anchor) } { (prose(text)) }
                                }
                            }
                        } }
                    }
                    @for part in &self.body { (part) "\n" }
                } }
            }
        };
        page.into_string()
    }
}

/// Text in which `code` stands between backticks.
fn prose(text: &str) -> Markup {
    let text = clean(text);
    let parts: Vec<&str> = text.split('`').collect();
    // A backtick without a partner is one.
    let paired = parts.len() % 2 == 1;
    html! {
        @if paired {
            @for (i, part) in parts.iter().enumerate() {
                @if i % 2 == 1 { code { (breakable(part)) } } @else { (part) }
            }
        } @else { (text) }
    }
}

/// Code that may go on in another line after a `/` or a `,`: paths of metrics are long.
fn breakable(code: &str) -> Markup {
    html! {
        @for (i, part) in code.split_inclusive(['/', ',']).enumerate() {
            @if i > 0 { wbr; }
            (part)
        }
    }
}

const STYLE: &str = "
:root {
  color-scheme: light dark;
  --ground: #fff; --ink: #1a1a1a; --faint: #555; --line: #ddd; --rule: #888; --code: #f2f2f2;
  --link: #00508a; --good: #00664a; --bad: #a33c00;
}
body { margin: 0; background: var(--ground); color: var(--ink); font: 1rem/1.55 system-ui, Roboto, 'Helvetica Neue', Arial, sans-serif; }
main { max-width: 58rem; margin: 0 auto; padding: 1.5rem 1rem 4rem; overflow-wrap: break-word; }
p, ul { max-width: 46rem; }
h1 { font-size: 1.9rem; line-height: 1.2; }
h2 { font-size: 1.4rem; margin: 2.5rem 0 .5rem; border-bottom: 1px solid var(--line); padding-bottom: .2rem; }
h3 { font-size: 1.1rem; margin: 1.8rem 0 .4rem; }
a { color: var(--link); }
code { font: .9em ui-monospace, 'DejaVu Sans Mono', monospace; background: var(--code); padding: .05em .3em; border-radius: 3px; }
nav ul { list-style: none; padding: 0; columns: 18rem; max-width: none; }
nav li { break-inside: avoid; padding: .1rem 0; }
nav .deeper { padding-left: 1.2rem; font-size: .93em; }
figure { margin: 1.2rem 0; }
figcaption, caption { color: var(--faint); font-size: .92rem; text-align: left; padding: .3rem 0; }
.wide { overflow-x: auto; }
.wide + .wide { margin-top: 1.4rem; }
.wide:focus-visible { outline: 2px solid var(--link); outline-offset: 2px; }
figure svg { display: block; width: 100%; min-width: 44rem; height: auto; }
.beside { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(100%, 25rem), 1fr)); gap: 0 1.5rem; align-items: start; }
.beside svg { min-width: 0; max-width: 34rem; }
pre { background: var(--code); padding: .7rem .9rem; border-radius: 4px; overflow-x: auto; max-width: 44rem; }
pre code { padding: 0; background: none; }
.facts { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 9.5rem), 1fr)); gap: .7rem; margin: 1.2rem 0; }
.facts div { border: 1px solid var(--line); border-radius: 6px; padding: .6rem .8rem; }
.facts dt { color: var(--faint); font-size: .92rem; }
.facts dd { margin: 0; }
.facts strong { font-size: 1.45rem; font-weight: 600; display: block; }
.facts small { color: var(--faint); font-size: .88rem; }
table { border-collapse: collapse; font-size: .92rem; }
th, td { padding: .28rem .8rem .28rem 0; border-bottom: 1px solid var(--line); text-align: left; vertical-align: top; }
thead th { border-bottom: 2px solid var(--rule); vertical-align: bottom; }
tbody th { font-weight: inherit; }
tbody td:not([class]), tbody th:not([class]) { min-width: 8rem; }
th code, td code { background: none; padding: 0; }
.number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
.good { color: var(--good); white-space: nowrap; }
.bad { color: var(--bad); font-weight: 600; white-space: nowrap; }
/* Pictures are drawn for a light ground: their few colours have others on a dark one. */
@media screen and (prefers-color-scheme: dark) {
  :root {
    --ground: #16181b; --ink: #e8e6e3; --faint: #a9a9a9; --line: #3a3d42; --rule: #777; --code: #24272c;
    --link: #7fbfff; --good: #4fd1a5; --bad: #ff9d66;
  }
  svg, svg [fill='#1a1a1a'] { fill: var(--ink); }
  svg [stroke='#1a1a1a'], svg [stroke='#000000'] { stroke: var(--ink); }
  svg [fill='#000000'] { fill: var(--ink); }
  svg [fill='#ffffff'] { fill: var(--ground); }
  svg [stroke='#ffffff'] { stroke: var(--ground); }
  svg [fill='#555555'] { fill: var(--faint); }
  svg [stroke='#555555'] { stroke: var(--faint); }
  svg [stroke='#e2e2e2'] { stroke: var(--line); }
  svg [fill='#0072B2'] { fill: #4aa8e0; }
  svg [stroke='#0072B2'] { stroke: #4aa8e0; }
  svg [fill='#4a5568'] { fill: #a9b6c9; }
}
@media print {
  @page { margin: 15mm; }
  body { font-size: 10pt; }
  main { max-width: none; padding: 0; }
  nav { display: none; }
  .wide { overflow: visible; }
  figure svg { min-width: 0; }
  figure, tr { break-inside: avoid; }
  h2, h3 { break-after: avoid; }
  thead { display: table-header-group; }
}
";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figure::Across;

    #[test]
    fn whatever_is_said_is_text_and_not_markup() {
        let evil = "<script>alert(\"x\")</script> & \u{0} `a < b`";
        let mut page = Page::new(evil);
        page.heading(evil);
        page.prose(evil);
        page.list([evil]);
        page.table(
            Table::new([evil]).caption(evil).row([Cell::text(evil), Cell::verdict(false, evil)]),
        );
        page.figure(&Figure::new(evil, Across::Time), evil);
        let html = page.html();
        assert!(!html.contains("<script") && !html.contains('\u{0}'));
        assert!(html.contains("&lt;script&gt;") && html.contains("<code>a &lt; b</code>"));
    }

    #[test]
    fn the_contents_lead_to_the_headings() {
        let mut page = Page::new("t");
        for text in ["One", "Two", "Two", "Drei Würfe"] {
            page.heading(text);
        }
        let html = page.html();
        for anchor in ["one", "two", "two-", "drei-würfe"] {
            assert!(html.contains(&format!("id=\"{anchor}\"")), "{anchor}");
            assert!(html.contains(&format!("href=\"#{anchor}\"")), "{anchor}");
        }
    }

    #[test]
    fn nothing_comes_from_elsewhere() {
        let mut page = Page::new("t");
        page.figure(&Figure::new("f", Across::Time), "");
        let html = page.html().replace("http://www.w3.org/2000/svg", "");
        for outside in ["http:", "https:", "src=", "url(", "@import", "<link"] {
            assert!(!html.contains(outside), "{outside}");
        }
    }

    #[test]
    fn a_verdict_has_a_sign_and_not_only_a_colour() {
        let cells = [Cell::text("a"), Cell::verdict(true, "holds"), Cell::verdict(false, "fails")];
        let mut page = Page::new("t");
        page.table(Table::new(["a", "b", "c"]).row(cells));
        let html = page.html();
        assert!(html.contains("✓ holds") && html.contains("✗ fails"));
    }

    #[test]
    fn a_backtick_alone_is_a_backtick() {
        assert_eq!(prose("it`s").into_string(), "it`s");
        assert_eq!(prose("`a/b`").into_string(), "<code>a/<wbr>b</code>");
        assert_eq!(prose("`a` and `b`").into_string(), "<code>a</code> and <code>b</code>");
    }
}
