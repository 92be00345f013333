//! All values as Markdown, with the scenarios' descriptions: the part of `docs/reproduction.md`
//! below [`MARK`].

use std::fmt::Write as _;

use super::run::Reproduction;
use super::value::Value;

/// Line of a page below which `parda reproduce --page` writes.
pub const MARK: &str = "<!-- From here on by `parda reproduce --page`. -->";

/// `page` with everything below [`MARK`] written anew. Links to pictures point into `folder`.
/// `None` if the page has no [`MARK`].
#[must_use]
pub fn renewed(page: &str, reproduction: &Reproduction, folder: &str) -> Option<String> {
    let (prose, _) = page.split_once(MARK)?;
    Some(format!("{prose}{MARK}\n{}", markdown(reproduction, folder)))
}

fn markdown(reproduction: &Reproduction, folder: &str) -> String {
    let mut text = format!("\n{}.\n", reproduction.words());
    // Writing to a String cannot fail.
    for figure in &reproduction.figures {
        let study = &figure.study;
        let _ = write!(text, "\n## {}\n\n`scenarios/papers/{}.toml`", study.title, study.name);
        if study.runs.len() > 1 {
            let _ = write!(text, ", {} variants", study.runs.len());
        }
        let _ = write!(text, "\n\n{}\n", study.description.trim());
        for picture in &figure.pictures {
            let (title, name) = (&picture.figure.title, &picture.name);
            let _ = write!(text, "\n![{title}]({folder}/{name}.svg)\n");
        }
        text += "\n| source | value | paper | ours | error | tolerance | |\n\
                 | --- | --- | ---: | ---: | ---: | ---: | --- |\n";
        for value in &figure.values {
            text += &row(value);
        }
    }
    text
}

fn row(value: &Value) -> String {
    let outcome = match &value.reason {
        Some(reason) => format!("**{}**: {reason}", value.outcome.word()),
        None => value.outcome.word().to_owned(),
    };
    format!(
        "| {} | `{}` | {} | {} | {} | {} | {outcome} |\n",
        value.source,
        value.what,
        value.paper_text(),
        value.ours_text(),
        value.error_text(),
        value.tolerance_text(),
    )
}
