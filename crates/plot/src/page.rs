//! HTML pages: one file, no scripts, nothing from elsewhere.

use crate::figure::Figure;

const STYLE: &str = include_str!("page.css");

/// A part of a page.
#[derive(Clone, Debug)]
pub enum PagePart<'a> {
    /// Heading of a part.
    Heading(&'a str),
    /// Text of one paragraph, without markup.
    Text(&'a str),
    /// Figures beside one another.
    Figures(&'a [Figure]),
    /// Lines of text as on a terminal.
    Lines(&'a str),
}

/// A page. All content is escaped and shown as text.
///
/// ```
/// use parda_plot::PagePart;
///
/// assert!(parda_plot::html("A report", &[PagePart::Lines("kvm-01  1,482")]).contains("1,482"));
/// ```
#[must_use]
pub fn html(title: &str, parts: &[PagePart<'_>]) -> String {
    let part = |part: &PagePart<'_>| match part {
        PagePart::Heading(text) => format!("<h2>{}</h2>\n", escaped(text)),
        PagePart::Text(text) => format!("<p>{}</p>\n", escaped(text)),
        PagePart::Lines(text) => format!("<pre tabindex=\"0\">{}</pre>\n", escaped(text)),
        PagePart::Figures(figures) => {
            let figure = |figure: &Figure| {
                format!("<span class=\"figure\" tabindex=\"0\">{}</span>\n", figure.svg())
            };
            format!("<p>{}</p>\n", figures.iter().map(figure).collect::<String>())
        }
    };
    let (title, body) = (escaped(title), parts.iter().map(part).collect::<String>());
    clean(format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>{title}</title>\n\
         <style>\n{STYLE}</style>\n</head>\n<body><main>\n<h1>{title}</h1>\n{body}</main></body>\n</html>\n"
    ))
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
        let evil = "</pre><script>x</script> <a href=\"javascript:b\"> <img src=f> \u{0}";
        let page =
            html(evil, &[PagePart::Heading(evil), PagePart::Text(evil), PagePart::Lines(evil)]);
        for outside in ["<script", "<img", "href=\"j", "src=\"", "url(", "<link", "\u{0}"] {
            assert!(!page.contains(outside), "{outside}: {page}");
        }
        assert!(page.contains("&lt;script&gt;"), "{page}");
    }
}
