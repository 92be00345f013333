//! XML within bounds: the parser compares each attribute with all before it, and each prefix with all that are declared.

use roxmltree::{Document, ParsingOptions};

/// Most bytes of a definition. One of a thousand disks has half a megabyte.
pub(super) const MOST: u64 = 4 << 20;

/// Most attributes of one element.
const MOST_ATTRIBUTES: usize = 256;

/// Most namespaces that a document declares.
const MOST_NAMESPACES: usize = 256;

/// Most elements, texts and comments.
const MOST_NODES: u32 = 50_000;

/// Most elements in each other.
const DEEPEST: usize = 256;

/// The document of a text.
///
/// # Errors
/// It is no XML, or beyond a bound.
pub(super) fn parse(text: &str) -> Result<Document<'_>, String> {
    if text.len() as u64 > MOST {
        return Err(format!("is larger than {} MiB", MOST >> 20));
    }
    if text.matches("xmlns").count() > MOST_NAMESPACES {
        return Err(format!("has more than {MOST_NAMESPACES} namespaces"));
    }
    bound(text)?;
    let options = ParsingOptions { nodes_limit: MOST_NODES, ..ParsingOptions::default() };
    Document::parse_with_options(text, options).map_err(|error| error.to_string())
}

/// Refuses a text in which an element has too many attributes, or is too deep. Whether it is XML the parser says.
fn bound(text: &str) -> Result<(), String> {
    let (mut rest, mut depth) = (text, 0usize);
    while let Some(start) = rest.find('<') {
        rest = &rest[start..];
        let other = [("<!--", "-->"), ("<![CDATA[", "]]>"), ("<?", "?>")];
        if let Some((_, end)) = other.into_iter().find(|(begin, _)| rest.starts_with(begin)) {
            let Some(at) = rest.find(end) else { return Ok(()) };
            rest = &rest[at + end.len()..];
            continue;
        }
        let (mut quote, mut values, mut end) = (None, 0, None);
        for (at, byte) in rest.bytes().enumerate() {
            match (quote, byte) {
                (None, b'"' | b'\'') => {
                    quote = Some(byte);
                    values += 1;
                }
                (Some(open), byte) if open == byte => quote = None,
                (None, b'>') => {
                    end = Some(at);
                    break;
                }
                _ => {}
            }
        }
        if values > MOST_ATTRIBUTES {
            return Err(format!("has an element of more than {MOST_ATTRIBUTES} attributes"));
        }
        let Some(end) = end else { return Ok(()) };
        let tag = &rest[..end];
        match (tag.starts_with("</"), tag.ends_with('/')) {
            (true, _) => depth = depth.saturating_sub(1),
            (false, false) => depth += 1,
            (false, true) => {}
        }
        if depth > DEEPEST {
            return Err(format!("has elements in each other more than {DEEPEST} deep"));
        }
        rest = &rest[end..];
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(text: &str) -> String {
        parse(text).unwrap_err()
    }

    #[test]
    fn a_document_beyond_a_bound_is_refused_and_not_parsed() {
        let attributes: String = (0..200_000).map(|n| format!(" a{n}='1'")).collect();
        assert!(refused(&format!("<domain{attributes}/>")).contains("256 attributes"));
        let spaces: String = (0..1000).map(|n| format!("<e xmlns:n{n}='u:{n}'/>")).collect();
        assert!(refused(&format!("<domain>{spaces}</domain>")).contains("256 namespaces"));
        let deep = format!("{}{}", "<a>".repeat(100_000), "</a>".repeat(100_000));
        assert!(refused(&deep).contains("256 deep"));
        assert!(refused(&format!("<a>{}</a>", "<b/>".repeat(200_000))).contains("nodes limit"));
        assert!(refused(&format!("<a>{}</a>", "x".repeat(4 << 20))).contains("4 MiB"));
    }

    #[test]
    fn what_only_looks_like_attributes_is_none() {
        let many = "a='1' ".repeat(1000);
        let text = format!("<a b=\"it's > {}\"><!-- <b {many}> --><![CDATA[<c {many}>]]></a>", "'");
        assert!(parse(&text).is_ok());
        let flat = format!("<a>{}</a>", "<b c='1'><d/></b>".repeat(1000));
        assert!(parse(&flat).is_ok());
    }
}
