//! The configuration file with random faults: whatever is in it, the check answers, and an error
//! points into the file. The same of policies in etcd.
//!
//! `PARDA_CONFIG_RUNS` says how many files are tried, `PARDA_SEED` which.
use std::collections::{BTreeMap, BTreeSet};

use fastrand::Rng;
use parda_agent::config::Config;
use parda_config::Document;
use parda_policy::Stored;
use parda_policy::check::check_volume;

/// The manual, with its examples.
const MANUAL: &str = include_str!("../../../../docs/configuration.md");

/// A file with every key.
const EVERY_KEY: &str = include_str!("every_key.toml");

/// Values that are likely to be handled wrongly.
const VALUES: &[&str] = &[
    "0",
    "-1",
    "1",
    "1.5",
    "nan",
    "-inf",
    "9223372036854775807",
    "-9223372036854775808",
    "1e308",
    "true",
    "\"\"",
    "\"0\"",
    "\"-1ms\"",
    "\"1ns\"",
    "\"584542y\"",
    "\"18446744073709551615GiB\"",
    "\"16EiB\"",
    "\"1EiB\"",
    "\"auto\"",
    "\"off\"",
    "\"bytes\"",
    "\"published\"",
    "\"nbd://[::1\"",
    "\"nbd+unix:///?socket=\"",
    "\"nbds://h:99999/x\"",
    "\"unix:\"",
    "\"unix:/a\\u0000b\"",
    "\"tcp:\"",
    "\"tcp:0.0.0.0:0\"",
    "\"tcp:[::]:65536\"",
    "\"/dev/null\"",
    "\"..\"",
    "\"\\u0000\"",
    "\"é\\u202e\"",
    "\"99999\"",
    "[]",
    "{}",
    "[[[]]]",
    "{ a = {} }",
    "1979-05-27T07:32:00Z",
];

/// Certificates for the listeners of the examples: the check reads them.
struct Certificates(tempfile::TempDir);

impl Certificates {
    fn new() -> Certificates {
        let folder = tempfile::tempdir().unwrap();
        let identity = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
        let certificate = identity.cert.pem();
        for (name, text) in [
            ("server.pem", &certificate),
            ("server.key", &identity.signing_key.serialize_pem()),
            ("ca.pem", &certificate),
        ] {
            std::fs::write(folder.path().join(name), text).unwrap();
        }
        Certificates(folder)
    }

    /// An example with the paths of these certificates.
    fn named_in(&self, example: &str) -> String {
        example.replace("/etc/parda", self.0.path().to_str().unwrap())
    }
}

/// The manual's examples, and the file with every key.
fn examples(certificates: &Certificates) -> Vec<String> {
    let blocks = MANUAL.split("```toml\n").skip(1).filter_map(|rest| rest.split("```").next());
    blocks.chain([EVERY_KEY]).map(|example| certificates.named_in(example)).collect()
}

fn check(text: &str) -> Result<Config, parda_config::Error> {
    Config::check(&Document::new("parda.toml", text))
}

/// Files without faults: those of the examples that are whole, and those that are with a host and a disk.
fn whole(examples: &[String]) -> Vec<String> {
    let disk = "[[volume.disk]]\nname = \"a\"\npath = \"/a.img\"\nlisten = \"unix:/a.sock\"\n";
    let volume = format!("[[volume]]\nname = \"v\"\n{disk}");
    let with = |e: &String| {
        let host = "host = \"h\"\n";
        let all = [
            e.clone(),
            format!("{host}{e}"),
            format!("{host}{e}\n{disk}"),
            format!("{host}{volume}{e}"),
        ];
        all.into_iter().find(|text| check(text).is_ok())
    };
    let whole: Vec<_> = examples.iter().filter_map(with).collect();
    assert!(whole.len() >= 4, "{} of {} examples", whole.len(), examples.len());
    whole
}

/// The start of a random character of `text`.
fn place(rng: &mut Rng, text: &str) -> usize {
    let mut at = rng.usize(..=text.len());
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    at
}

/// One change of a line, of a value, or of a few characters.
fn mutate(rng: &mut Rng, text: &mut String, others: &[String]) {
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    if lines.is_empty() {
        lines.push(String::new());
    }
    let at = rng.usize(..lines.len());
    match rng.u8(..8) {
        0 => drop(lines.remove(at)),
        1 => lines.insert(at, lines[rng.usize(..lines.len())].clone()),
        2 => {
            let other = rng.usize(..lines.len());
            lines.swap(at, other);
        }
        3 => {
            let other: Vec<_> = others[rng.usize(..others.len())].lines().collect();
            lines.insert(at, other[rng.usize(..other.len())].to_owned());
        }
        4 | 5 => {
            if let Some((key, _)) = lines[at].split_once('=') {
                lines[at] = format!("{key}= {}", VALUES[rng.usize(..VALUES.len())]);
            }
        }
        6 => {
            let line = &mut lines[at];
            let (a, b) = (place(rng, line), place(rng, line));
            line.replace_range(a.min(b)..a.max(b), "");
        }
        _ => {
            let from = place(rng, &lines[at]);
            lines[at].insert(from, char::from(rng.u8(..128)));
        }
    }
    *text = lines.join("\n");
}

/// The path of the table whose header is this line.
fn header(line: &str) -> Option<&str> {
    line.starts_with('[').then(|| line.trim_matches(['[', ']']))
}

#[test]
fn the_file_with_every_key_has_every_key() {
    let certificates = Certificates::new();
    let text = certificates.named_in(EVERY_KEY);
    if let Err(error) = check(&text) {
        panic!("{error}");
    }
    let lines: Vec<&str> = text.lines().collect();
    let mut keys: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    let mut known: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
    let mut table = "";
    for at in 0..=lines.len() {
        // Before the first line, and after each header: the error for an unknown key lists all known ones.
        if at == 0 || header(lines[at - 1]).is_some() {
            table = at.checked_sub(1).and_then(|above| header(lines[above])).unwrap_or("");
            let mut wrong = lines.clone();
            wrong.insert(at, "no_such_key = 1");
            let error = check(&wrong.join("\n")).unwrap_err().message;
            let (_, list) = error.split_once("expected").expect(&error);
            let names = list.split('`').skip(1).step_by(2).map(str::to_owned);
            known.entry(table).or_default().extend(names);
        }
        let Some(line) = lines.get(at) else { break };
        if let Some((key, _)) = line.split_once(" = ") {
            keys.entry(table).or_default().insert(key);
        } else if let Some(inner) = header(line) {
            let (outer, key) = inner.rsplit_once('.').unwrap_or(("", inner));
            keys.entry(outer).or_default().insert(key);
        }
    }
    for (table, known) in &known {
        let keys: BTreeSet<String> = keys[table].iter().map(|&key| key.to_owned()).collect();
        let missing: Vec<_> = known.difference(&keys).collect();
        assert!(missing.is_empty(), "[{table}] lacks {missing:?}");
    }
}

#[test]
fn a_file_with_faults_is_answered_with_a_place() {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let runs = number("PARDA_CONFIG_RUNS").unwrap_or(20_000);
    let seed = number("PARDA_SEED").unwrap_or_else(|| fastrand::u64(..));
    println!("PARDA_SEED={seed} PARDA_CONFIG_RUNS={runs}");
    let mut rng = Rng::with_seed(seed);
    let certificates = Certificates::new();
    let examples = examples(&certificates);
    let whole = whole(&examples);
    let (mut good, mut pointed) = (0u64, 0u64);
    for run in 0..runs {
        let mut text = whole[rng.usize(..whole.len())].clone();
        for _ in 0..rng.u8(1..4) {
            mutate(&mut rng, &mut text, &examples);
        }
        let checked = std::panic::catch_unwind(|| check(&text));
        let Ok(checked) = checked else { panic!("run {run} panicked on:\n{text}") };
        let Err(error) = checked else {
            good += 1;
            continue;
        };
        assert!(!error.message.is_empty(), "run {run}: no reason for:\n{text}");
        if let Some((line, column)) = error.place {
            pointed += 1;
            assert!(
                line >= 1 && line <= text.lines().count() + 1 && column >= 1,
                "run {run}: {error} for:\n{text}"
            );
        }
    }
    println!("{runs} files: {good} good, {pointed} faults with a place");
    assert!(pointed * 2 > runs, "most faults have a place");
}

/// A policy of a volume with every setting that a policy may have in some place, as etcd holds it.
const POLICY: &str = r#"format = 1
revision = 7
[volume]
name = "array-a"
[volume.control]
mode = "parda"
latency_threshold = "30ms"
period = "1s"
window_max = 64
outsider = "hold"
hold_max = "10s"
[[volume.group]]
name = "databases"
vms = ["db-*", "sql?"]
shares = 2000
latency_target = "10ms"
[[volume.vm]]
name = "batch"
shares = 200
burst = 16
"#;

/// Whatever a key of etcd holds, the reader answers, and what it takes is the same when it is written and read again.
#[test]
fn a_policy_with_faults_is_refused_or_read_as_it_is_written() {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let runs = number("PARDA_CONFIG_RUNS").unwrap_or(3_000);
    let seed = number("PARDA_SEED").unwrap_or_else(|| fastrand::u64(..));
    println!("PARDA_SEED={seed} PARDA_CONFIG_RUNS={runs}");
    let mut rng = Rng::with_seed(seed);
    let others = [POLICY.to_owned(), EVERY_KEY.to_owned()];
    let [mut good, mut refused, mut damaged] = [0u64; 3];
    assert!(check_volume(&Stored::read(POLICY.as_bytes()).unwrap().volume).is_ok());
    for run in 0..runs {
        let mut text = POLICY.to_owned();
        for _ in 0..rng.u8(1..4) {
            mutate(&mut rng, &mut text, &others);
        }
        let mut bytes = text.into_bytes();
        if rng.u8(..8) == 0 {
            let at = rng.usize(..bytes.len());
            bytes[at] = rng.u8(..);
        }
        let shown = || String::from_utf8_lossy(&bytes).into_owned();
        let read = std::panic::catch_unwind(|| {
            let stored = Stored::read(&bytes).ok()?;
            let known = stored.volume.clone().known().0;
            Some((check_volume(&known), stored))
        });
        let Ok(read) = read else { panic!("run {run} panicked on:\n{}", shown()) };
        let Some((checked, stored)) = read else {
            damaged += 1;
            continue;
        };
        let written = stored.text().unwrap();
        // By its text, as nan is not equal to itself.
        let again = Stored::read(written.as_bytes()).map(|stored| stored.text().unwrap());
        assert_eq!(again, Ok(written), "run {run}:\n{}", shown());
        match checked {
            Ok(()) => good += 1,
            Err(why) => {
                refused += 1;
                assert!(
                    !why.is_empty() && !why.contains('\n'),
                    "run {run}: {why:?} for:\n{}",
                    shown()
                );
            }
        }
    }
    println!("{runs} policies: {good} good, {refused} refused, {damaged} damaged");
    assert!(good.min(refused).min(damaged) * 20 > runs, "{good}, {refused}, {damaged}");
}
