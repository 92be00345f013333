//! Parser of fio's job files: sections, comments and inherited options.

use parda_config::{Document, Error};

/// An option and its value, as written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Written<'a> {
    pub(crate) key: &'a str,
    /// Value of the option. Empty for an option without one, such as `group_reporting`.
    pub(crate) value: &'a str,
    /// Line number, counted from 1.
    pub(crate) line: usize,
}

/// A job: the options of its section, after those of all `[global]` sections before it.
#[derive(Clone, Debug)]
pub(crate) struct Section<'a> {
    pub(crate) name: &'a str,
    pub(crate) line: usize,
    pub(crate) options: Vec<Written<'a>>,
}

impl Section<'_> {
    /// The last occurrence of an option, under any of its names.
    pub(crate) fn last(&self, keys: &[&str]) -> Option<Written<'_>> {
        self.options.iter().rev().find(|option| keys.contains(&option.key)).copied()
    }
}

/// An error that points at a line of a job file.
pub(crate) fn error(document: &Document, line: usize, value: &str, message: &str) -> Error {
    Error {
        file: document.name().to_owned(),
        place: Some((line, 1)),
        value: Some(value.to_owned()),
        message: message.to_owned(),
    }
}

/// All jobs of a file, in order.
pub(crate) fn jobs(document: &Document) -> Result<Vec<Section<'_>>, Error> {
    let mut globals: Vec<Written<'_>> = Vec::new();
    let mut jobs: Vec<Section<'_>> = Vec::new();
    // Whether the current section is `[global]`. `None` before the first section.
    let mut global = None;
    for (line, text) in (1..).zip(document.text().lines()) {
        let text = text.trim_start();
        if text.is_empty() || text.starts_with([';', '#']) {
            continue;
        }
        if let Some(rest) = text.strip_prefix('[') {
            let Some((name, _)) = rest.split_once(']') else {
                return Err(error(document, line, text, "must end with `]`"));
            };
            global = Some(name == "global");
            if name != "global" {
                jobs.push(Section { name: name.trim(), line, options: globals.clone() });
            }
            continue;
        }
        let text = text.split([';', '#']).next().unwrap_or_default().trim_end();
        let (key, value) = text.split_once('=').unwrap_or((text, ""));
        let (key, written) = (key.trim_end(), Written { key: key.trim_end(), value, line });
        if key.split_whitespace().next() == Some("include") {
            let message = "other files are not read: put what it has in its place";
            return Err(error(document, line, text, message));
        }
        if value.starts_with(char::is_whitespace) {
            // fio reads `bs= 8k` as eight bytes.
            let message = "fio reads no unit after a blank: write no blanks around `=`";
            return Err(error(document, line, text, message));
        }
        match (global, jobs.last_mut()) {
            (Some(true), _) => globals.push(written),
            (Some(false), Some(job)) => job.options.push(written),
            _ => return Err(error(document, line, text, "stands before the first [section]")),
        }
    }
    Ok(jobs)
}

/// The job of this name; without a name, the only job of the file.
pub(crate) fn job<'a>(document: &'a Document, name: Option<&str>) -> Result<Section<'a>, Error> {
    let mut jobs = jobs(document)?;
    let names = jobs.iter().map(|job| job.name).collect::<Vec<_>>().join(", ");
    let error = |message: String| Error {
        file: document.name().to_owned(),
        place: None,
        value: None,
        message,
    };
    match name {
        None if jobs.is_empty() => Err(error("has no job: a [section] other than [global]".into())),
        None if jobs.len() > 1 => Err(error(format!("has several jobs: say which: {names}"))),
        None => Ok(jobs.remove(0)),
        Some(name) => {
            let mut named = jobs.iter().filter(|job| job.name == name);
            match (named.next(), named.next()) {
                (Some(job), None) => Ok(job.clone()),
                (None, _) => Err(error(format!("has no job `{name}`; it has {names}"))),
                (Some(_), Some(_)) => Err(error(format!("has several jobs called `{name}`"))),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn doc(text: &str) -> Document {
        Document::new("t.fio", text)
    }

    #[test]
    fn a_job_inherits_from_all_globals_before_it() {
        let text = "# all\n[global]\nrw=read\n\n[global]\nbs=8k ; two\n  [a]\n; three\nbs =4k# x\n\
                    time_based\n[global]\nbs=16k\n[b c]\n";
        let document = doc(text);
        let jobs = jobs(&document).unwrap();
        let said = |i: usize| {
            let options = jobs[i].options.iter().map(|o| (o.key, o.value, o.line));
            (jobs[i].name, options.collect::<Vec<_>>())
        };
        let a = vec![("rw", "read", 3), ("bs", "8k", 6), ("bs", "4k", 9), ("time_based", "", 10)];
        assert_eq!(said(0), ("a", a));
        assert_eq!(said(1), ("b c", vec![("rw", "read", 3), ("bs", "8k", 6), ("bs", "16k", 12)]));
        assert_eq!(jobs[0].last(&["blocksize", "bs"]).unwrap().value, "4k");
    }

    #[test]
    fn what_is_no_job_file_is_pointed_at() {
        for (text, says) in [
            ("bs=4k\n[a]\n", "t.fio:1:1: bs=4k: stands before the first [section]"),
            ("[a\n", "t.fio:1:1: [a: must end with `]`"),
            ("[a]\n\nbs = 8k\n", "t.fio:3:1: bs = 8k: fio reads no unit after a blank"),
            ("[a]\ninclude b.fio\n", "t.fio:2:1: include b.fio: other files are not read"),
            ("[global]\nbs=4k\n", "t.fio: has no job: a [section]"),
            ("[a]\n[b]\n", "t.fio: has several jobs: say which: a, b"),
        ] {
            let error = job(&doc(text), None).unwrap_err().to_string();
            assert!(error.starts_with(says), "{error}");
        }
        let error = |text: &str| job(&doc(text), Some("c")).unwrap_err().to_string();
        assert_eq!(error("[a]\n[b]\n"), "t.fio: has no job `c`; it has a, b");
        assert_eq!(error("[c]\n[c]\n"), "t.fio: has several jobs called `c`");
        assert_eq!(job(&doc("[a]\n[c]\n"), Some("c")).unwrap().line, 2);
    }
}
