//! A fio job that produces a given workload.
//!
//! All conversions from a workload to fio's options are in this module, so that the laboratory's
//! clients, the points of a probe and exported job files have the same load.

use std::io;
use std::process::Command;
use std::time::Duration;

use parda_control::Bytes;

use crate::drawn::{ArrivalRule, Hot, SizePart, Workload};

/// Whether the installed fio has an engine of this name.
///
/// # Errors
/// fio cannot be run.
pub fn has_engine(name: &str) -> io::Result<bool> {
    let engines = Command::new("fio").arg("--enghelp").output()?;
    Ok(String::from_utf8_lossy(&engines.stdout).lines().any(|line| line.trim() == name))
}

/// Target of a job's IOs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JobTarget<'a> {
    /// An NBD export, by its URI. fio's own NBD client needs neither a device nor privileges.
    Nbd(&'a str),
    /// Path of a file or block device, opened with O_DIRECT.
    Path(&'a str),
}

/// A part of a workload, by its key, that fio as a client does not support.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("fio has no `{0}`")]
pub struct UnsupportedByFio(pub &'static str);

/// A fio job: options and their values, in the order in which they were set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Job {
    name: String,
    options: Vec<(String, String)>,
}

impl Job {
    /// A job of this name, without options.
    #[must_use]
    pub fn new(name: impl Into<String>) -> Job {
        Job { name: name.into(), options: Vec::new() }
    }

    /// Sets an option. A later value replaces an earlier one.
    pub fn set(&mut self, option: &str, value: impl ToString) {
        self.options.retain(|(known, _)| known != option);
        self.options.push((option.to_owned(), value.to_string()));
    }

    /// Sets the target of the IOs.
    pub fn target(&mut self, target: JobTarget<'_>) {
        match target {
            JobTarget::Nbd(uri) => {
                self.set("ioengine", "nbd");
                self.set("uri", uri);
            }
            JobTarget::Path(path) => {
                self.set("ioengine", "libaio");
                self.set("direct", 1);
                // fio separates file names by colons.
                self.set("filename", path.replace(':', "\\:"));
            }
        }
    }

    /// Sets the whole workload, a closed loop without bursts, on the first `disk` bytes of the target.
    ///
    /// # Errors
    /// The first part of the workload that fio does not support.
    pub fn load(&mut self, workload: &Workload, disk: Bytes) -> Result<(), UnsupportedByFio> {
        // All fields are named, so that a new one is looked at here too.
        let Workload {
            sizes,
            read_percent: read,
            random_percent,
            hot,
            demand,
            one_stream,
            trim_percent,
            bursts,
        } = workload;
        // Between two arrivals fio's NBD client would wait for all IOs that are outstanding.
        let ArrivalRule::Closed { outstanding } = *demand else {
            return Err(UnsupportedByFio("rate"));
        };
        let others =
            [("one_stream", *one_stream), ("trim", *trim_percent > 0.0), ("on", bursts.is_some())];
        if let Some((key, _)) = others.iter().find(|(_, set)| *set) {
            return Err(UnsupportedByFio(key));
        }
        let rw = match *read {
            read if read >= 100.0 => "randread",
            read if read > 0.0 => "randrw",
            _ => "randwrite",
        };
        self.set("rw", rw);
        self.set("rwmixread", format!("{read:.0}"));
        self.set("percentage_random", format!("{random_percent:.0}"));
        match sizes.as_slice() {
            [only] => self.set("bs", only.size.0),
            several => {
                let part = |part: &SizePart| format!("{}/{}", part.size.0, part.percent);
                self.set("bssplit", several.iter().map(part).collect::<Vec<_>>().join(":"));
            }
        }
        if let Some(Hot { part_percent: part, hits_percent: hits }) = *hot {
            let (rest, misses) = (100.0 - part, 100.0 - hits);
            let zones = format!("zoned:{hits:.0}/{part:.0}:{misses:.0}/{rest:.0}");
            self.set("random_distribution", zones);
        }
        self.set("size", disk.0);
        self.set("iodepth", outstanding);
        // fio's map of used blocks would cost memory and, late in a run, time.
        self.set("norandommap", 1);
        self.set("random_generator", "tausworthe64");
        Ok(())
    }

    /// Bounds the run time, and sets the seed of what is drawn.
    pub fn bound(&mut self, most: Duration, seed: u64) {
        self.set("time_based", 1);
        self.set("runtime", most.as_secs().max(1));
        self.set("randseed", seed);
        // A single process, so that killing it leaves none behind.
        self.set("thread", 1);
    }

    /// The job as arguments of fio. The first is `--name=…`, which begins a job.
    #[must_use]
    pub fn arguments(&self) -> Vec<String> {
        let name = [format!("--name={}", self.name)].into_iter();
        name.chain(self.options.iter().map(|(key, value)| format!("--{key}={value}"))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Bursts;
    use std::time::Duration;

    fn workload() -> Workload {
        Workload {
            sizes: vec![SizePart { size: Bytes::kib(16), percent: 100 }],
            read_percent: 67.0,
            random_percent: 70.0,
            hot: None,
            demand: ArrivalRule::Closed { outstanding: 24 },
            one_stream: false,
            trim_percent: 0.0,
            bursts: None,
        }
    }

    fn arguments(workload: &Workload) -> Result<String, UnsupportedByFio> {
        let mut job = Job::new("db");
        job.target(JobTarget::Path("/dev/disk/by-id/x:1"));
        job.load(workload, Bytes(1 << 30))?;
        Ok(job.arguments().join("\n"))
    }

    fn has(text: &str, lines: &[&str]) {
        for line in lines {
            assert!(text.lines().any(|l| l == *line), "{line}: {text}");
        }
    }

    #[test]
    fn a_job_says_what_the_workload_says() {
        let text = arguments(&workload()).unwrap();
        assert!(text.starts_with("--name=db\n"), "{text}");
        let lines = [
            "--filename=/dev/disk/by-id/x\\:1",
            "--direct=1",
            "--rw=randrw",
            "--rwmixread=67",
            "--percentage_random=70",
            "--bs=16384",
            "--size=1073741824",
            "--iodepth=24",
        ];
        has(&text, &lines);
    }

    #[test]
    fn sizes_and_the_hot_part_have_words_of_their_own() {
        let part = |kib, percent| SizePart { size: Bytes::kib(kib), percent };
        let several = Workload {
            sizes: vec![part(4, 70), part(64, 30)],
            hot: Some(Hot { part_percent: 10.0, hits_percent: 85.0 }),
            ..workload()
        };
        let text = arguments(&several).unwrap();
        has(&text, &["--bssplit=4096/70:65536/30", "--random_distribution=zoned:85/10:15/90"]);
        assert!(!text.contains("bs="), "{text}");
    }

    #[test]
    fn what_is_set_twice_is_said_once() {
        let mut job = Job::new("a");
        job.set("runtime", 1);
        job.set("runtime", 2);
        assert_eq!(job.arguments(), ["--name=a", "--runtime=2"]);
    }

    #[test]
    fn a_job_of_one_direction_asks_for_no_other() {
        let of = |read_percent| arguments(&Workload { read_percent, ..workload() }).unwrap();
        has(&of(100.0), &["--rw=randread"]);
        has(&of(0.0), &["--rw=randwrite"]);
    }

    #[test]
    fn what_fio_has_no_words_for_is_refused() {
        let second = Duration::from_secs(1);
        for (key, workload) in [
            ("trim", Workload { trim_percent: 10.0, ..workload() }),
            ("one_stream", Workload { one_stream: true, ..workload() }),
            ("rate", Workload { demand: ArrivalRule::Open { rate: 9.0 }, ..workload() }),
            ("on", Workload { bursts: Some(Bursts { on: second, off: second }), ..workload() }),
        ] {
            assert_eq!(arguments(&workload), Err(UnsupportedByFio(key)));
        }
    }
}
