//! docs/tutorial.md, run as it stands.

use std::path::Path;

use rustix::process::Signal;

use crate::metrics::free_port;
use crate::stage::{PARDA, Process, Stage, until};

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/tutorial.md");

/// The directory that the page works in.
const PLACE: &str = "/tmp/parda";

/// `xdg-open` in place of a browser. `sleep` as the page means it, on a busy machine too: until the array, and each agent whose number was
/// kept, listens.
const LISTENERS: &str = r#"
xdg-open() { curl -sSf "$1" > opened.html; }
sleep() {
    command sleep "$1"
    for name in array $(ls | grep '[.]pid$'); do
        until [ -S "${name%.pid}.sock" ]; do command sleep 0.05; done
    done
}
"#;

/// Blocks of commands of a page: lines that are indented by four spaces, and what stands between two of them without a word.
fn blocks(page: &str) -> Vec<String> {
    let mut blocks = vec![String::new()];
    for line in page.lines() {
        match line.strip_prefix("    ") {
            Some(command) => {
                let block = blocks.last_mut().unwrap();
                block.push_str(command);
                block.push('\n');
            }
            None if line.is_empty() => blocks.last_mut().unwrap().push('\n'),
            None => blocks.push(String::new()),
        }
    }
    blocks.retain(|block| !block.trim().is_empty());
    blocks
}

/// A shell that runs the page, a block whenever it is told to, and ends all that it started.
struct Reader<'a> {
    stage: &'a Stage,
    shell: Process,
    done: usize,
}

impl<'a> Reader<'a> {
    fn new(stage: &'a Stage, blocks: &[String]) -> Reader<'a> {
        let place = stage.path("place").display().to_string();
        let ports = ["9843", "9844"].map(|port| (port, free_port().to_string()));
        let program = Path::new(PARDA).parent().unwrap().display();
        let mut script = format!(
            "set -eu\nPATH={program}:$PATH\n{LISTENERS}\
             trap 'kill $(jobs -p) 2> /dev/null' EXIT\ntrap 'exit 1' TERM\n"
        );
        for (i, block) in blocks.iter().enumerate() {
            let go = stage.path(&format!("go.{i}")).display().to_string();
            let done = stage.path(&format!("done.{i}")).display().to_string();
            script += &format!(
                "while [ ! -e {go} ]; do command sleep 0.05; done\n{}\n: > {done}\n",
                ports.iter().fold(block.replace(PLACE, &place), |block, (port, free)| {
                    block.replace(port, free)
                })
            );
        }
        stage.write("page.sh", script);
        Reader { stage, shell: stage.start("page", &["bash", "page.sh"]), done: 0 }
    }

    /// Runs the next block to its end.
    fn next(&mut self) {
        self.stage.write(&format!("go.{}", self.done), "");
        let done = self.stage.path(&format!("done.{}", self.done));
        until("the block is done", || {
            assert!(done.exists() || self.shell.ended().is_none(), "{}", self.shell.log());
            done.exists()
        });
        self.done += 1;
    }

    /// Window and cluster's latency, in milliseconds, of the first or the second host.
    fn volume(&self, host: usize) -> Option<(f64, f64)> {
        let socket = self.stage.path(&format!("place/h{host}.status"));
        let status = parda_agent::status::ask(&socket).ok()?;
        Some((status.volumes[0].window?, status.volumes[0].cluster_latency_ms?))
    }

    /// Waits until the first host's window over the second's, and the latency, are these.
    fn until_settled(&self, ratio: f64, latency_ms: f64) {
        let near = |value: f64, wanted: f64| (value / wanted - 1.0).abs() < 0.2;
        until(&format!("windows are {ratio} to 1 at {latency_ms} ms"), || {
            match (self.volume(1), self.volume(2)) {
                (Some((a, latency)), Some((b, _))) => {
                    near(a / b, ratio) && near(latency, latency_ms)
                }
                _ => false,
            }
        });
    }
}

impl Drop for Reader<'_> {
    fn drop(&mut self) {
        if self.shell.ended().is_none() {
            self.shell.signal(Signal::TERM);
            self.shell.wait();
        }
    }
}

#[test]
fn the_tutorial_does_what_it_says() {
    let stage = Stage::new();
    let page = std::fs::read_to_string(PAGE).unwrap();
    let blocks = blocks(&page);
    let at = |words: &str| {
        let found = blocks.iter().position(|block| block.contains(words));
        found.unwrap_or_else(|| panic!("no block of the page has {words:?}: {blocks:#?}"))
    };
    let (shown, opened, shares, threshold, end) = (
        at("parda status"),
        at("xdg-open"),
        at("s/1000/3000/"),
        at("s/50ms/20ms/"),
        at("kill $(jobs -p)"),
    );
    assert_eq!(end + 1, blocks.len());
    let mut reader = Reader::new(&stage, &blocks);
    while reader.done < shown {
        reader.next();
    }
    reader.until_settled(3.0, 50.0);
    while reader.done <= opened {
        reader.next();
    }
    let said = String::from_utf8(stage.read("page.out")).unwrap();
    assert!(said.contains("VM vm1 of volume array-a"), "{said}");
    // A machine that stood still when the page asked is asked again.
    until("vm1 is limited by its slice", || {
        let again = || stage.parda(&["explain", "vm1", "-c", "place/h1.toml"]).out;
        said.contains("limited by its slice") || again().contains("limited by its slice")
    });
    let opened = String::from_utf8(stage.read("place/opened.html")).unwrap();
    assert!(opened.contains("<title>parda"), "{opened}");
    while reader.done <= shares {
        reader.next();
    }
    reader.until_settled(1.0, 50.0);
    while reader.done <= threshold {
        reader.next();
    }
    reader.until_settled(1.0, 20.0);
    reader.stage.write(&format!("go.{end}"), "");
    reader.shell.wait();
    until("the agents have ended", || reader.volume(1).is_none());
}
