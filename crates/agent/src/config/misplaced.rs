//! Keys that stand in a table that does not have them, and that another one has: TOML gives a line to the table above it.

use parda_config::{Error, quoted};

use crate::file;

/// The tables of a configuration, each with a document that has an unknown key there. The parser's error lists the known keys.
const TABLES: [(&str, &str); 15] = [
    ("the top of the file, above the first [table]", "? = 0"),
    ("[http]", "[http]\n? = 0"),
    ("[policy]", "[policy]\n? = 0"),
    ("[limits]", "[limits]\n? = 0"),
    ("[[listener]]", "[[listener]]\n? = 0"),
    ("[[volume]]", "[[volume]]\n? = 0"),
    ("[volume.control]", LAW),
    ("[volume.limits]", "[[volume]]\n[volume.limits]\n? = 0"),
    ("[volume.exchange]", "[[volume]]\n[volume.exchange]\n? = 0"),
    ("[[volume.tenant]]", "[[volume]]\n[[volume.tenant]]\n? = 0"),
    ("[[volume.disk]]", DISK),
    ("[volume.disk.nbd]", "[[volume]]\n[[volume.disk]]\n[volume.disk.nbd]\n? = 0"),
    ("[volume.steer]", "[[volume]]\n[volume.steer]\n? = 0"),
    ("[[volume.steer.vm]]", "[[volume]]\n[volume.steer]\n[[volume.steer.vm]]\n? = 0"),
    ("[volume.qemu]", "[[volume]]\n[volume.qemu]\n? = 0"),
];

/// Whether a key is one of the table of a volume's law, and of that of a disk.
pub(crate) fn is_of_law_or_disk(key: &str) -> [bool; 2] {
    [LAW, DISK].map(|table| keys(table).iter().any(|known| known == key))
}

const LAW: &str = "[[volume]]\n[volume.control]\n? = 0";
const DISK: &str = "[[volume]]\n[[volume.disk]]\n? = 0";

/// The keys that the table of such a document has.
fn keys(document: &str) -> Vec<String> {
    let parsed = toml::from_str::<file::File>(&document.replace('?', "\"?\""));
    let message = parsed.err().map(|error| error.message().to_owned()).unwrap_or_default();
    let known = message.split_once("expected ").map_or("", |(_, known)| known);
    quoted(known).map(str::to_owned).collect()
}

/// The key that an error names as unknown.
fn unknown(message: &str) -> Option<&str> {
    message.strip_prefix("unknown field `")?.split('`').next()
}

/// The error, with the table that has the key if it is unknown where it stands.
pub(super) fn explained(error: Error) -> Error {
    // Without a place it is no line of a file, but a live change.
    let key = unknown(&error.message).filter(|_| error.place.is_some());
    let Some(key) = key else { return error };
    let has = |document: &str| keys(document).iter().any(|known| known == key);
    let places = TABLES.iter().filter(|(_, document)| has(document)).map(|(table, _)| *table);
    let places: Vec<_> = places.collect();
    let Some((last, others)) = places.split_last() else { return error };
    let places = match others {
        [] => (*last).to_owned(),
        others => format!("{} or {last}", others.join(", ")),
    };
    let message = format!(
        "`{key}` is not known here; it is a key of {places}. A line belongs to the table above it"
    );
    Error { message, ..error }
}

#[cfg(test)]
mod tests {
    use parda_config::Document;

    use super::*;

    fn said(text: &str) -> String {
        let error = Document::new("p.toml", text).parse::<file::File>().unwrap_err();
        explained(error).to_string()
    }

    #[test]
    fn a_key_of_another_table_is_sent_there_and_others_are_said_as_before() {
        let top = "the top of the file, above the first [table]";
        for (text, place) in [
            ("[[volume]]\nname = \"v\"\nstate = \"/s\"", top),
            ("[http]\naddress = \"unix:/h\"\nstate = \"/s\"", top),
            ("[[volume]]\n[volume.policy]\netcd = []", top),
            ("[[volume]]\n[[volume.disk]]\nhost = \"a\"", top),
            ("[[volume]]\nlatency_threshold = \"30ms\"", "[volume.control]"),
            ("udp = \"1\"", "[volume.exchange]"),
            ("tokens = \"t\"", "[http]"),
            ("[[volume]]\n[volume.control]\ndevice = \"/dev/sda\"", "[volume.steer]"),
        ] {
            let expected = format!("is not known here; it is a key of {place}. A line belongs");
            let said = said(text);
            assert!(said.starts_with("p.toml:") && said.contains(&expected), "{said}");
        }
        assert!(said("[[volume]]\nshares = 5").contains("[[volume.tenant]], [[volume.disk]],"));
        let likely = said("[[volume]]\n[volume.control]\nlatency_treshold = \"30ms\"");
        assert!(likely.contains("did you mean `latency_threshold`?"), "{likely}");
    }

    #[test]
    fn each_table_has_keys() {
        for (table, document) in TABLES {
            assert!(!keys(document).is_empty(), "{table}");
        }
    }
}
