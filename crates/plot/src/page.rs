//! HTML pages: one file, no scripts, nothing from elsewhere.

use pulldown_cmark::{Event, HeadingLevel, Options, Parser, Tag, TagEnd};

const STYLE: &str = include_str!("page.css");
/// Pages with more parts than this begin with their contents.
const PARTS: usize = 3;

/// A page from Markdown. `picture` gives the SVG of an image by its address; the image's text is the caption. HTML in
/// the Markdown is shown as text, links as their text, and images without a picture as their caption.
///
/// ```
/// let text = format!("## Hosts\n\n{}", parda_plot::table(["host", "IOPS"], 1, [["kvm-01", "1,482"]]));
/// assert!(parda_plot::html("A report", &text, |_| None).contains("1,482"));
/// ```
pub fn html(title: &str, markdown: &str, picture: impl Fn(&str) -> Option<String>) -> String {
    let mut part = 0;
    let markup = |html: String| Event::InlineHtml(html.into());
    let events = Parser::new_ext(markdown, Options::ENABLE_TABLES).map(|event| match event {
        Event::Html(text) | Event::InlineHtml(text) => Event::Text(text),
        Event::Start(Tag::Link { .. }) | Event::End(TagEnd::Link) => Event::Text("".into()),
        Event::Start(Tag::Image { dest_url, .. }) => {
            let svg = picture(&dest_url).unwrap_or_default();
            markup(format!("<span class=\"figure\" tabindex=\"0\">{svg}<span>"))
        }
        Event::End(TagEnd::Image) => markup("</span></span>".to_owned()),
        Event::Start(Tag::Heading { level: HeadingLevel::H2, .. }) => {
            part += 1;
            markup(format!("<h2 id=\"part-{part}\">"))
        }
        event => event,
    });
    let mut body = String::new();
    pulldown_cmark::html::push_html(&mut body, events);
    let headings = markdown.lines().filter_map(|line| line.strip_prefix("## ")).enumerate();
    let entry = |(i, text)| format!("<li><a href=\"#part-{}\">{}</a></li>\n", i + 1, escaped(text));
    let entries: Vec<String> = headings.map(entry).collect();
    let contents = match entries.len() > PARTS {
        true => format!("<nav aria-label=\"Contents\"><ul>\n{}</ul></nav>\n", entries.concat()),
        false => String::new(),
    };
    let title = escaped(title);
    let page = format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>{title}</title>\n\
         <style>\n{STYLE}</style>\n</head>\n<body><main>\n<h1>{title}</h1>\n{contents}{body}</main></body>\n</html>\n"
    );
    clean(page)
}

/// A Markdown table. After the first `texts` columns there are numbers, at the right.
pub fn table<Head: AsRef<str>, Cell: AsRef<str>>(
    head: impl IntoIterator<Item = Head>,
    texts: usize,
    rows: impl IntoIterator<Item = impl IntoIterator<Item = Cell>>,
) -> String {
    let cell = |text: &str| text.replace('|', "\\|").replace('\n', " ");
    let head: Vec<String> = head.into_iter().map(|text| cell(text.as_ref())).collect();
    let rule: Vec<&str> = (0..head.len()).map(|i| if i < texts { "---" } else { "--:" }).collect();
    let mut table = format!("|{}|\n|{}|\n", head.join("|"), rule.join("|"));
    for row in rows {
        let cells: Vec<String> = row.into_iter().map(|text| cell(text.as_ref())).collect();
        table += &format!("|{}|\n", cells.join("|"));
    }
    table
}

/// Text for HTML and XML.
pub(crate) fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// The text without characters that neither HTML nor XML can contain.
pub(crate) fn clean(mut text: String) -> String {
    text.retain(|c| c == '\n' || !c.is_control() && !matches!(c, '\u{FFFE}' | '\u{FFFF}'));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whatever_is_put_in_is_text_and_nothing_comes_from_elsewhere() {
        let evil = "</td><script>x</script> [a](javascript:b) ![c](http://d/e) <img src=f> \u{0}";
        let rows = [[evil, "a | b"]];
        let text = format!("## {evil}\n\n{evil}\n\n{}", table([evil, "n"], 1, rows));
        let page = html(evil, &text, |_| None);
        for outside in ["<script", "<img", "href=\"j", "src=\"", "url(", "<link", "\u{0}"] {
            assert!(!page.contains(outside), "{outside}: {page}");
        }
        assert!(page.contains("&lt;script&gt;") && page.contains(">a | b</td>"), "{page}");
    }

    #[test]
    fn the_contents_lead_to_the_headings_and_pictures_have_captions() {
        let text = "## One\n\n## Two\n\n## `Two`\n\n## Drei Würfe\n\n![words](picture)\n";
        let page = html("t", text, |name| Some(format!("<svg>{name}</svg>")));
        for i in 1..=4 {
            assert!(page.contains(&format!("<h2 id=\"part-{i}\">")), "{page}");
            assert!(page.contains(&format!("href=\"#part-{i}\"")), "{page}");
        }
        assert!(page.contains("<svg>picture</svg><span>words</span>"), "{page}");
    }
}
