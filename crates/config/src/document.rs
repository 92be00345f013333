//! A TOML document with the place of each of its values.

use std::fmt;
use std::ops::Range;
use std::path::Path;
use std::sync::OnceLock;

use parda_control::VmConfig;
use parda_input::{InputFault, Pipe};
use serde::de::DeserializeOwned;
use toml::de::{DeTable, DeValue};
use toml::{Spanned, Table};

use crate::short::short;

/// A document: its name, as the user gave it, and its text.
#[derive(Clone, Debug)]
pub struct Document {
    name: String,
    /// Text of the document. A merged document is printed when an error needs the text.
    text: OnceLock<String>,
    /// The same as a table, if it was merged.
    merged: Option<Table>,
}

/// A table of a document, for errors about its keys.
#[derive(Clone, Debug)]
pub struct TablePart<'a> {
    doc: &'a Document,
    path: String,
}

/// Error of a document with its place. Prints as `file:line:column: key = value: message`.
#[derive(Clone, Debug, thiserror::Error)]
pub struct Error {
    /// Name of the document that has the error.
    pub file: String,
    /// Line and column, counted from 1, if the fault has a place.
    pub place: Option<(usize, usize)>,
    /// `key = value` as written, if the fault is with one value.
    pub value: Option<String>,
    /// Message with the fault and its remedy.
    pub message: String,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.file)?;
        if let Some((line, column)) = self.place {
            write!(f, ":{line}:{column}")?;
        }
        if let Some(value) = &self.value {
            write!(f, ": {value}")?;
        }
        write!(f, ": {}", self.message)
    }
}

impl Error {
    /// The error without its place, for who has not seen the document.
    #[must_use]
    pub fn without_place(&self) -> String {
        let message = short(&self.message);
        match &self.value {
            Some(value) => format!("{}: {message}", short(value)),
            None => message.into_owned(),
        }
    }
}

/// The largest document, in bytes, far above any real one.
const MAX: u64 = 16 << 20;

fn read(path: &Path, pipe: Pipe) -> Result<Document, Error> {
    let name = path.display().to_string();
    let wrong = |message: String| Error { file: name.clone(), place: None, value: None, message };
    let text = parda_input::read_text(path, MAX, pipe).map_err(|fault| match fault {
        InputFault::Large(_) => wrong(format!("{fault}, which no document is")),
        InputFault::NoText(_) => wrong(format!("cannot be read: it is not UTF-8: {fault}")),
        fault => wrong(fault.to_string()),
    })?;
    Ok(Document::new(name, text))
}

impl Document {
    /// A document that is already in memory.
    #[must_use]
    pub fn new(name: impl Into<String>, text: impl Into<String>) -> Document {
        Document { name: name.into(), text: text.into().into(), merged: None }
    }

    /// A document with changes. Its errors show values and no places, as nobody has its text.
    #[must_use]
    pub fn merged(name: impl Into<String>, table: Table) -> Document {
        Document { name: name.into(), text: OnceLock::new(), merged: Some(table) }
    }

    /// Reads a document from a file, or once from a pipe.
    ///
    /// # Errors
    /// The file cannot be read, is neither a regular file nor a pipe, is too large, or is not UTF-8.
    pub fn read(path: &Path) -> Result<Document, Error> {
        read(path, Pipe::Taken)
    }

    /// Reads a document from a regular file.
    ///
    /// # Errors
    /// As [`Document::read`], and a pipe is refused: a read of it might wait for ever.
    pub fn read_regular(path: &Path) -> Result<Document, Error> {
        read(path, Pipe::Refused)
    }

    /// Name that errors show, mostly a file's path.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Text of the whole document.
    #[must_use]
    pub fn text(&self) -> &str {
        let print = || self.merged.as_ref().map(Table::to_string).unwrap_or_default();
        self.text.get_or_init(print)
    }

    /// The document as a `T`.
    ///
    /// # Errors
    /// The text is not TOML or not a `T`; the error points at the offending place.
    pub fn parse<T: DeserializeOwned>(&self) -> Result<T, Error> {
        // An error shows the line that is wrong, which only the text has.
        let merged = self.merged.clone().and_then(|table| table.try_into().ok());
        if let Some(parsed) = merged {
            return Ok(parsed);
        }
        toml::from_str(self.text()).map_err(|e| {
            let message = plainly(&e.message().trim().replace('\n', "; "));
            // A fault of something that is missing in the document has no line.
            let Some(span) = e.span().filter(|span| *span != (0..0)) else {
                return Error { file: self.name.clone(), place: None, value: None, message };
            };
            let message = of_shares(message, &self.text()[..span.start]);
            let message = of_date(message, &self.text()[span.clone()]);
            Error { value: Some(self.line_of(&span)), ..self.at_span(span, message) }
        })
    }

    /// An error about the value at a path of keys and indices, such as `volume.0.window_max`. If
    /// the value is not in the document (a default), the error points at what contains it.
    #[must_use]
    pub fn error(&self, path: &str, message: impl Into<String>) -> Error {
        self.error_at(&path.split('.').collect::<Vec<_>>(), message)
    }

    /// The table at a path of keys and indices, such as `volume.0`.
    #[must_use]
    pub fn part(&self, path: impl Into<String>) -> TablePart<'_> {
        TablePart { doc: self, path: path.into() }
    }

    /// Whether there is a value at a path of keys and indices.
    #[must_use]
    pub fn has(&self, path: &str) -> bool {
        let Ok(root) = DeTable::parse(self.text()) else { return false };
        let root = DeValue::Table(root.into_inner());
        path.split('.').try_fold(root, |value, key| Some(child(value, key)?.into_inner())).is_some()
    }

    /// [`error`](Self::error) for keys that may themselves have dots in them.
    #[must_use]
    pub fn error_at(&self, keys: &[&str], message: impl Into<String>) -> Error {
        let (file, message) = (self.name.clone(), message.into());
        let Ok(root) = DeTable::parse(self.text()) else {
            return Error { file, place: None, value: Some(keys.join(".")), message };
        };
        let mut span: Option<Range<usize>> = None;
        let mut found = Some(DeValue::Table(root.into_inner()));
        let mut last = "";
        for &key in keys {
            let value = found.take();
            // A value in a list is named by its list.
            if let Some(DeValue::Table(_)) = value {
                last = key;
            }
            found = value.and_then(|value| child(value, key)).map(|value| {
                span = Some(value.span());
                value.into_inner()
            });
            if found.is_none() {
                break;
            }
        }
        let value = match (&found, &span) {
            (Some(DeValue::Table(_) | DeValue::Array(_)), _) | (_, None) => last.to_owned(),
            (Some(_), Some(span)) => format!("{last} = {}", self.on_one_line(span)),
            (None, _) => keys.last().copied().unwrap_or_default().to_owned(),
        };
        match span {
            Some(span) => Error { value: Some(value), ..self.at_span(span, message) },
            None => Error { file, place: None, value: Some(value), message },
        }
    }

    fn at_span(&self, span: Range<usize>, message: String) -> Error {
        let before = &self.text()[..span.start.min(self.text().len())];
        let line = before.matches('\n').count() + 1;
        let column = before.chars().rev().take_while(|&c| c != '\n').count() + 1;
        let place = self.merged.is_none().then_some((line, column));
        Error { file: self.name.clone(), place, value: None, message }
    }

    fn line_of(&self, span: &Range<usize>) -> String {
        let start = span.start.min(self.text().len());
        let from = self.text()[..start].rfind('\n').map_or(0, |i| i + 1);
        let line = format!("{}{}", &self.text()[from..start], self.on_one_line(&(start..span.end)));
        let rest = self.text().get(span.end..).unwrap_or_default();
        let line = format!("{line}{rest}");
        let line = line.lines().next().unwrap_or_default().trim();
        match without_comment(line).trim_end() {
            // The comment is the fault.
            "" => line.to_owned(),
            line => line.to_owned(),
        }
    }

    /// A value as it is written, but a text of several lines with its line breaks escaped.
    fn on_one_line(&self, span: &Range<usize>) -> String {
        let text = self.text().get(span.clone()).unwrap_or_default();
        match text.contains('\n').then(|| text.parse()) {
            Some(Ok(toml::Value::String(text))) => format!("{text:?}"),
            _ => text.to_owned(),
        }
    }
}

impl<'a> TablePart<'a> {
    /// A part of this part: a key, or keys and indices with dots between them.
    #[must_use]
    pub fn part(&self, path: &str) -> TablePart<'a> {
        TablePart { doc: self.doc, path: format!("{}.{path}", self.path) }
    }

    /// An error about a value below this part, as [`Document::error`].
    #[must_use]
    pub fn error(&self, key: &str, message: impl Into<String>) -> Error {
        self.doc.error(&format!("{}.{key}", self.path), message)
    }

    /// Whether there is a value at a key.
    #[must_use]
    pub fn has(&self, key: &str) -> bool {
        self.doc.has(&format!("{}.{key}", self.path))
    }

    /// Refuses a value that is wrong.
    ///
    /// # Errors
    /// The value is wrong: the message at its key.
    pub fn refuse_if(
        &self,
        is_wrong: bool,
        key: &str,
        message: impl Into<String>,
    ) -> Result<(), Error> {
        if is_wrong { Err(self.error(key, message)) } else { Ok(()) }
    }

    /// A value that was read, or its fault as an error at its key.
    ///
    /// # Errors
    /// The value could not be read.
    pub fn read<T>(&self, key: &str, value: Result<T, impl ToString>) -> Result<T, Error> {
        value.map_err(|fault| self.error(key, fault.to_string()))
    }
}

/// The value of a key of a table, or at an index of a list.
fn child<'a>(value: DeValue<'a>, key: &str) -> Option<Spanned<DeValue<'a>>> {
    match value {
        DeValue::Table(mut table) => table.remove(key),
        DeValue::Array(array) => array.into_iter().nth(key.parse().ok()?),
        _ => None,
    }
}

/// A parser's message about a value of a wrong type or beyond its bounds, in the words of the configuration. Other messages are returned unchanged.
fn plainly(message: &str) -> String {
    let wrong =
        ["invalid type: ", "invalid value: "].iter().find_map(|start| message.strip_prefix(start));
    match wrong.and_then(|rest| rest.rsplit_once(", expected ")) {
        Some((found, expected)) => {
            format!("must be {}, not {}", expected_plainly(expected), found_plainly(found))
        }
        // toml's own, for the names of an enum.
        None if message == "wanted string or table" => "must be a text, in quotes".to_owned(),
        None => withdrawn(message)
            .or_else(|| with_likely(message))
            .unwrap_or_else(|| message.to_owned()),
    }
}

/// Keys of earlier versions, and what there is in their place.
const WITHDRAWN: [(&str, &str); 4] = [
    ("epsilon", "`gamma` alone says how far the window moves in a period"),
    ("hold_periods", "absent hosts stand in with what they had for as long as they are silent"),
    (
        "proportional",
        "`fairness = \"iops\"` divides IO/s, as proportional = \"throughput\" did; without it shares divide outstanding IOs",
    ),
    ("slot_size", "a slot of `fairness = \"bytes\"` is 8 KiB"),
];

/// The message about an unknown key that earlier versions had.
fn withdrawn(message: &str) -> Option<String> {
    let (key, _) = message.strip_prefix("unknown field `")?.split_once('`')?;
    let (_, instead) = WITHDRAWN.iter().find(|(withdrawn, _)| *withdrawn == key)?;
    Some(format!("`{key}` is gone: {instead}"))
}

/// Similarity, at most 1, from which on a known name is likely to be meant. Then the similarity of a word of it.
const LIKELY: f64 = 0.8;
const LIKELY_WORD: f64 = 0.9;

/// The known name that an unknown one likely means. Either the names are alike, or a word of the known one is like it.
pub fn likely<'a>(unknown: &str, known: impl Iterator<Item = &'a str> + Clone) -> Option<&'a str> {
    let unknown = unknown.to_lowercase();
    let like = |name: &str| strsim::jaro_winkler(&unknown, name);
    let most = |least: f64, likeness: &dyn Fn(&str) -> f64| {
        let found = known.clone().map(|name| (likeness(name), name));
        let found = found.filter(|(likeness, _)| *likeness >= least);
        found.max_by(|one, other| one.0.total_cmp(&other.0)).map(|(_, name)| name)
    };
    let word = |name: &str| name.split('_').map(like).fold(0.0, f64::max);
    most(LIKELY, &like).or_else(|| most(LIKELY_WORD, &word))
}

/// The names in a message that has each between backquotes.
pub fn quoted(text: &str) -> impl Iterator<Item = &str> + Clone {
    text.split('`').skip(1).step_by(2)
}

/// The message about an unknown name, with the known name that was likely meant, if one is like it.
fn with_likely(message: &str) -> Option<String> {
    let (named, known) = message.strip_prefix("unknown ")?.split_once("`, expected ")?;
    let (_, unknown) = named.split_once('`')?;
    let likely = likely(unknown, quoted(known))?;
    Some(format!("unknown {named}`: did you mean `{likely}`? Expected {known}"))
}

/// The message about a number beyond its type, with the bounds of shares if `before` ends with their key.
fn of_shares(message: String, before: &str) -> String {
    let key = before.trim_end().strip_suffix('=').map(str::trim_end);
    if !key.is_some_and(|key| key.ends_with("shares")) {
        return message;
    }
    let number = expected_plainly("u32");
    message.replace(&number, &format!("a whole number from 1 to {}", VmConfig::MAX_SHARES))
}

/// The message about a value of a wrong type, if the value is a date. The parser takes a date for a table or for its own type.
fn of_date(message: String, value: &str) -> String {
    match message.rsplit_once(", not ") {
        _ if value.parse::<toml::value::Datetime>().is_err() => message,
        Some((must_be, _)) => format!("{must_be}, not the date {value}"),
        // A value that may be a table is read as one. The first key of a date is the parser's own.
        None => format!("must not be the date {value}: write a text in quotes, or a table"),
    }
}

/// Name of a value that a parser has found.
fn found_plainly(found: &str) -> String {
    match found.split_once(' ') {
        Some(("string", text)) => format!("the text {text}"),
        Some(("integer" | "boolean", value)) => {
            let value = value.replace('`', "");
            // A number that fits no type of the parser comes with the type that it did not fit.
            value.trim_end_matches(" as i128").trim_end_matches(" as u128").to_owned()
        }
        Some(("floating", value)) => value.trim_start_matches("point ").replace('`', ""),
        _ if found == "sequence" => "a list".to_owned(),
        _ if found == "map" => "a table".to_owned(),
        _ => found.to_owned(),
    }
}

/// Name of what a parser expects.
fn expected_plainly(expected: &str) -> String {
    let whole = |least: &str, most: u64| format!("a whole number from {least} to {most}");
    let plain = match expected {
        "u8" => return whole("0", u8::MAX.into()),
        "u16" => return whole("0", u16::MAX.into()),
        "u32" => return whole("0", u32::MAX.into()),
        "i32" | "i64" | "isize" | "u64" | "usize" => "a whole number",
        "f32" | "f64" => "a number",
        "a boolean" => "true or false",
        "a string" | "path string" => "a text, in quotes",
        "a sequence" => "a list",
        "a map" => "a table",
        "a duration" => "a duration such as \"30ms\"",
        kind if kind.starts_with("struct ") => "a table",
        other => other,
    };
    plain.to_owned()
}

/// A line without the comment at its end, which may be long and tells nothing about the error.
fn without_comment(line: &str) -> &str {
    let mut quote = None;
    let mut chars = line.char_indices();
    while let Some((at, char)) = chars.next() {
        match (quote, char) {
            (None, '#') => return &line[..at],
            (None, '"' | '\'') => quote = Some(char),
            (Some('"'), '\\') => {
                chars.next();
            }
            (Some(begun), char) if begun == char => quote = None,
            _ => {}
        }
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, serde::Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Conf {
        #[allow(dead_code)]
        volume: Vec<Volume>,
    }

    #[derive(Debug, serde::Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Volume {
        #[allow(dead_code)]
        window: u32,
    }

    #[test]
    fn an_unknown_key_is_pointed_at() {
        let doc = Document::new("p.toml", "[[volume]]\nwindow = 3\nwinbow = 4\n");
        let error = doc.parse::<Conf>().unwrap_err().to_string();
        assert!(error.starts_with("p.toml:3:1: winbow = 4: unknown field `winbow`"), "{error}");
    }

    #[test]
    fn a_comment_behind_what_is_wrong_is_not_repeated() {
        for line in ["window = \"a#\\\"#\"", "winbow = '#\"'", "window = 3.5", "window ="] {
            let shown = |text: &str| {
                let doc = Document::new("p.toml", format!("[[volume]]\n{text}\n"));
                doc.parse::<Conf>().unwrap_err().value
            };
            assert_eq!(shown(&format!("{line}   # at least \"1\"")).as_deref(), Some(line));
            assert_eq!(shown(line).as_deref(), Some(line));
        }
    }

    #[test]
    fn the_known_key_that_was_meant_is_named_and_none_that_is_unlike() {
        let message =
            |text: &str| Document::new("p.toml", text).parse::<Conf>().unwrap_err().message;
        let says = "unknown field `winbow`: did you mean `window`? Expected `window`";
        assert_eq!(message("[[volume]]\nwinbow = 4\n"), says);
        let says = "unknown field `colour`, expected `window`";
        assert_eq!(message("[[volume]]\ncolour = 4\n"), says);
        for (unknown, likely) in [
            ("latency_treshold", "latency_threshold"),
            ("perod", "period"),
            ("thresold", "latency_threshold"),
            ("Mode", "mode"),
        ] {
            let known = "one of `mode`, `latency_threshold`, `latency_target_min`, `period`";
            let said = plainly(&format!("unknown field `{unknown}`, expected {known}"));
            assert_eq!(
                said,
                format!("unknown field `{unknown}`: did you mean `{likely}`? Expected {known}")
            );
        }
    }

    #[test]
    fn shares_have_one_range_whatever_is_wrong_with_them() {
        for (value, found) in
            [("-1", "-1"), ("5000000000", "5000000000"), ("\"x\"", "the text \"x\"")]
        {
            let doc = Document::new("p.toml", format!("shares = {value}\n"));
            let message = doc.parse::<crate::VmSettings>().unwrap_err().message;
            assert_eq!(message, format!("must be a whole number from 1 to 1000000, not {found}"));
        }
    }

    #[test]
    fn a_wrong_type_is_pointed_at() {
        let doc = Document::new("p.toml", "[[volume]]\nwindow = \"x\"\n");
        let error = doc.parse::<Conf>().unwrap_err().to_string();
        assert_eq!(
            error,
            "p.toml:2:10: window = \"x\": must be a whole number from 0 to 4294967295, not the text \"x\""
        );
        let doc = Document::new("p.toml", "[[volume]]\nwindow = \"\"\"1\n2\"\"\" # no number\n");
        let error = doc.parse::<Conf>().unwrap_err().to_string();
        assert!(error.starts_with("p.toml:2:10: window = \"1\\n2\": must"), "{error}");
        let error = doc.error("volume.0.window", "too small").to_string();
        assert_eq!(error, "p.toml:2:10: window = \"1\\n2\": too small");
        for (message, plain) in [
            ("string \"yes\", expected a boolean", "must be true or false, not the text \"yes\""),
            ("integer `3`, expected a string", "must be a text, in quotes, not 3"),
            ("floating point `3.5`, expected usize", "must be a whole number, not 3.5"),
            ("sequence, expected struct Http", "must be a table, not a list"),
            ("map, expected a duration", "must be a duration such as \"30ms\", not a table"),
        ] {
            assert_eq!(plainly(&format!("invalid type: {message}")), plain);
        }
    }

    #[test]
    fn a_number_out_of_range_is_told_the_range() {
        #[derive(Debug, serde::Deserialize)]
        struct Sizes {
            #[allow(dead_code)]
            #[serde(with = "crate::quantity")]
            size: bytesize::ByteSize,
        }
        let window = |value: &str| {
            let doc = Document::new("p.toml", format!("[[volume]]\nwindow = {value}\n"));
            doc.parse::<Conf>().unwrap_err().message
        };
        let whole = "must be a whole number from 0 to 4294967295, not";
        for value in ["-3", "5000000000", "3.5", "18446744073709551615", "99999999999999999999"] {
            assert_eq!(window(value), format!("{whole} {value}"));
        }
        for value in ["-1", "\"0x10\"", "\"-1GiB\"", "\"8QiB\"", "\"x\"", "3.5", "1979-05-27"] {
            let doc = Document::new("p.toml", format!("size = {value}\n"));
            let message = doc.parse::<Sizes>().unwrap_err().message;
            let found = match value {
                text if text.starts_with('"') => format!("the text {text}"),
                date if date.contains("-05-") => format!("the date {date}"),
                number => number.to_owned(),
            };
            assert_eq!(message, format!("must be a size such as \"8KiB\", not {found}"));
        }
    }

    #[test]
    fn a_value_is_found_by_its_path() {
        let doc = Document::new("p.toml", "[[volume]]\nwindow = 1\n[[volume]]\n\nwindow = 2\n");
        let error = doc.error("volume.1.window", "too small").to_string();
        assert_eq!(error, "p.toml:5:10: window = 2: too small");
        let doc = Document::new("p.toml", "peers = [\"a\",\n  \"b\"]\n");
        let error = doc.error("peers.1", "is not an address").to_string();
        assert_eq!(error, "p.toml:2:3: peers = \"b\": is not an address");
    }

    #[test]
    fn a_key_may_have_dots_in_it() {
        let doc = Document::new("p.toml", "set = { \"a.b\" = 1, \"a.c\" = 2 }\n");
        let error = doc.error_at(&["set", "a.c"], "has no place").to_string();
        assert_eq!(error, "p.toml:1:28: a.c = 2: has no place");
    }

    #[test]
    fn a_missing_value_points_at_what_should_hold_it() {
        let doc = Document::new("p.toml", "[[volume]]\nwindow = 1\n");
        let error = doc.error("volume.0.name", "is missing").to_string();
        assert_eq!(error, "p.toml:1:1: name: is missing");
    }
}
