//! A fio job that produces a given workload.
//!
//! All conversions from a workload to fio's options are in this module, so that the laboratory's
//! clients, the points of a probe and exported job files have the same load.

use parda_control::Bytes;

use crate::drawn::{Bursts, Demand, Hot, OPEN_LOOP_DEPTH, SizePart, Workload};

/// Target of a job's IOs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JobTarget<'a> {
    /// An NBD export, by its URI. fio's own NBD client needs neither a device nor privileges.
    Nbd(&'a str),
    /// Path of a file or block device, opened with O_DIRECT.
    Path(&'a str),
}

impl JobTarget<'_> {
    /// The target of this name: an NBD URI, or else a path.
    #[must_use]
    pub fn of(name: &str) -> JobTarget<'_> {
        let is_uri = name.starts_with("nbd://") || name.starts_with("nbd+unix://");
        if is_uri { JobTarget::Nbd(name) } else { JobTarget::Path(name) }
    }
}

/// A part of a workload, or an option, that fio does not support.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[allow(missing_docs)] // The messages say it.
pub enum UnsupportedByFio {
    #[error("fio has no `one_stream`: its reads and writes have a stream each")]
    OneStream,
    #[error("a fio job has trims alone or none, and `rw` of this one has reads and writes")]
    Trims,
    #[error("fio has no bursts of a `rate`: after a pause it makes up for what it has missed")]
    BurstsOfRate,
    #[error(
        "fio takes whole IOs a second for each direction, which {rate} at {read} % reads does not \
         give: choose another `rate`"
    )]
    Rate { rate: f64, read: f64 },
    #[error(
        "`{value}` of {option} cannot stand in a job file: fio takes `;` and `#` for comments and \
         `$` for variables, and has no way to quote them"
    )]
    Text { option: String, value: String },
}

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

    /// Name of the job, without the `--name=` before it.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Options and their values, in the order in which they were set.
    pub fn options(&self) -> impl Iterator<Item = (&str, &str)> {
        self.options.iter().map(|(option, value)| (option.as_str(), value.as_str()))
    }

    /// Sets an option. A later value replaces an earlier one.
    pub fn set(&mut self, option: &str, value: impl ToString) {
        self.options.retain(|(known, _)| known != option);
        self.options.push((option.to_owned(), value.to_string()));
    }

    /// Value of an option, if it is set.
    #[must_use]
    pub fn get(&self, option: &str) -> Option<&str> {
        let mut named = self.options.iter().filter(|(known, _)| known == option);
        named.next().map(|(_, value)| value.as_str())
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

    /// Sets the whole workload, on the first `disk` bytes of the target.
    ///
    /// A job that only reads is `randread`, which fio accepts with `--readonly`.
    ///
    /// # Errors
    /// A part of the workload that fio does not support.
    pub fn load(&mut self, workload: &Workload, disk: Bytes) -> Result<(), UnsupportedByFio> {
        if workload.one_stream {
            return Err(UnsupportedByFio::OneStream);
        }
        if workload.trim_percent > 0.0 {
            return Err(UnsupportedByFio::Trims);
        }
        let read = workload.read_percent;
        self.set(
            "rw",
            if read >= 100.0 {
                "randread"
            } else if read > 0.0 {
                "randrw"
            } else {
                "randwrite"
            },
        );
        self.set("rwmixread", format!("{read:.0}"));
        self.set("percentage_random", format!("{:.0}", workload.random_percent));
        match workload.sizes.as_slice() {
            [only] => self.set("bs", only.size.0),
            several => {
                let part = |part: &SizePart| format!("{}/{}", part.size.0, part.percent);
                self.set("bssplit", several.iter().map(part).collect::<Vec<_>>().join(":"));
            }
        }
        if let Some(Hot { part_percent: part, hits_percent: hits }) = workload.hot {
            let (rest, misses) = (100.0 - part, 100.0 - hits);
            let zones = format!("zoned:{hits:.0}/{part:.0}:{misses:.0}/{rest:.0}");
            self.set("random_distribution", zones);
        }
        self.set("size", disk.0);
        match workload.demand {
            Demand::Closed { outstanding } => self.set("iodepth", outstanding),
            Demand::Open { rate } => {
                self.set("rate_iops", rates(rate, read)?);
                self.set("rate_process", "poisson");
                self.set("iodepth", OPEN_LOOP_DEPTH);
            }
        }
        if let Some(Bursts { on, off }) = workload.bursts {
            if matches!(workload.demand, Demand::Open { .. }) {
                return Err(UnsupportedByFio::BurstsOfRate);
            }
            // Units are explicit, as the defaults differ: microseconds for one option, seconds for the
            // other.
            self.set("thinktime", format!("{}us", off.as_micros()));
            self.set("thinktime_iotime", format!("{}us", on.as_micros()));
        }
        // fio's map of used blocks would cost memory and, late in a run, time.
        self.set("norandommap", 1);
        self.set("random_generator", "tausworthe64");
        Ok(())
    }

    /// The job as arguments of fio. The first is `--name=…`, which begins a job.
    #[must_use]
    pub fn arguments(&self) -> Vec<String> {
        let name = [format!("--name={}", self.name)].into_iter();
        name.chain(self.options.iter().map(|(key, value)| format!("--{key}={value}"))).collect()
    }

    /// The job as a section of a job file.
    ///
    /// # Errors
    /// A value cannot be written in a job file.
    pub fn section(&self) -> Result<String, UnsupportedByFio> {
        plain("name", &self.name)?;
        self.options.iter().try_fold(format!("[{}]\n", self.name), |text, (key, value)| {
            plain(key, value)?;
            Ok(text + key + "=" + value + "\n")
        })
    }
}

/// Value of `rate_iops` for reads and writes. fio draws arrivals for each direction; two Poisson
/// processes together are one.
fn rates(rate: f64, read_percent: f64) -> Result<String, UnsupportedByFio> {
    let reads = rate * read_percent / 100.0;
    let writes = rate - reads;
    // Rounding: 500 × 67 % is not exactly 335 in floating point.
    let whole = |part: f64| Some(part.round()).filter(|whole| (whole - part).abs() < 1e-6);
    match (whole(reads), whole(writes)) {
        // The rate of a direction without IOs is arbitrary, except for 0, which means unlimited.
        (Some(reads), Some(0.0)) if reads >= 1.0 => Ok(format!("{reads:.0}")),
        (Some(0.0), Some(writes)) if writes >= 1.0 => Ok(format!("{writes:.0}")),
        (Some(reads), Some(writes)) if reads >= 1.0 && writes >= 1.0 => {
            Ok(format!("{reads:.0},{writes:.0}"))
        }
        _ => Err(UnsupportedByFio::Rate { rate, read: read_percent }),
    }
}

/// Checks that fio reads a value in a job file unchanged.
fn plain(option: &str, value: &str) -> Result<(), UnsupportedByFio> {
    let bad = |c: char| ";#$\n\r".contains(c);
    let ok = !value.is_empty() && value.trim() == value && !value.contains(bad);
    // A `]` would end the name of a section.
    let ok = ok && (option != "name" || !value.contains(']'));
    let text = || UnsupportedByFio::Text { option: option.to_owned(), value: value.to_owned() };
    if ok { Ok(()) } else { Err(text()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn workload() -> Workload {
        Workload {
            sizes: vec![SizePart { size: Bytes::kib(16), percent: 100 }],
            read_percent: 67.0,
            random_percent: 70.0,
            hot: None,
            demand: Demand::Closed { outstanding: 24 },
            one_stream: false,
            trim_percent: 0.0,
            bursts: None,
        }
    }

    fn said(workload: &Workload) -> Result<String, UnsupportedByFio> {
        let mut job = Job::new("db");
        job.load(workload, Bytes(1 << 30))?;
        job.section()
    }

    fn has(text: &str, lines: &[&str]) {
        for line in lines {
            assert!(text.lines().any(|l| l == *line), "{line}: {text}");
        }
    }

    #[test]
    fn a_job_says_what_the_workload_says_in_a_file_as_on_the_command_line() {
        let mut job = Job::new("db");
        job.target(JobTarget::Path("/dev/disk/by-id/x:1"));
        job.load(&workload(), Bytes(1 << 30)).unwrap();
        let section = job.section().unwrap();
        assert!(section.starts_with("[db]\n"), "{section}");
        has(
            &section,
            &[
                "filename=/dev/disk/by-id/x\\:1",
                "direct=1",
                "rw=randrw",
                "rwmixread=67",
                "percentage_random=70",
                "bs=16384",
                "size=1073741824",
                "iodepth=24",
            ],
        );
        let arguments = job.arguments();
        assert_eq!(arguments[0], "--name=db");
        let lines: Vec<String> = arguments[1..].iter().map(|a| a[2..].to_owned()).collect();
        assert_eq!(section.lines().skip(1).collect::<Vec<_>>(), lines);
    }

    #[test]
    fn sizes_and_the_hot_part_have_words_of_their_own() {
        let part = |kib, percent| SizePart { size: Bytes::kib(kib), percent };
        let several = Workload {
            sizes: vec![part(4, 70), part(64, 30)],
            hot: Some(Hot { part_percent: 10.0, hits_percent: 85.0 }),
            ..workload()
        };
        let text = said(&several).unwrap();
        has(&text, &["bssplit=4096/70:65536/30", "random_distribution=zoned:85/10:15/90"]);
        assert!(!text.contains("bs="), "{text}");
        let text = said(&workload()).unwrap();
        assert!(!text.contains("bssplit") && !text.contains("random_distribution"), "{text}");
    }

    #[test]
    fn what_is_set_twice_is_said_once() {
        let mut job = Job::new("a");
        job.set("runtime", 1);
        job.set("runtime", 2);
        assert_eq!(job.arguments(), ["--name=a", "--runtime=2"]);
        assert_eq!((job.get("runtime"), job.get("ramp_time")), (Some("2"), None));
    }

    #[test]
    fn a_job_of_one_direction_asks_for_no_other() {
        let of = |read_percent| said(&Workload { read_percent, ..workload() }).unwrap();
        has(&of(100.0), &["rw=randread"]);
        has(&of(0.0), &["rw=randwrite"]);
    }

    #[test]
    fn an_open_loop_is_two_poisson_processes_of_whole_numbers() {
        let of = |rate, read_percent| {
            said(&Workload { demand: Demand::Open { rate }, read_percent, ..workload() })
        };
        let lines = ["rate_process=poisson", "iodepth=1024", "rate_iops=335,165"];
        has(&of(500.0, 67.0).unwrap(), &lines);
        has(&of(500.0, 100.0).unwrap(), &["rate_iops=500"]);
        has(&of(500.0, 0.0).unwrap(), &["rate_iops=500"]);
        for (rate, read) in [(0.5, 100.0), (7.0, 50.0), (1.0, 1.0)] {
            assert_eq!(of(rate, read), Err(UnsupportedByFio::Rate { rate, read }));
        }
    }

    #[test]
    fn bursts_are_think_times_by_the_clock() {
        let bursts = Some(Bursts { on: Duration::from_secs(2), off: Duration::from_millis(500) });
        let text = said(&Workload { bursts, ..workload() }).unwrap();
        has(&text, &["thinktime=500000us", "thinktime_iotime=2000000us"]);
        let error = said(&Workload { bursts, demand: Demand::Open { rate: 100.0 }, ..workload() });
        assert_eq!(error, Err(UnsupportedByFio::BurstsOfRate));
    }

    #[test]
    fn what_fio_has_no_words_for_is_refused() {
        let error = said(&Workload { trim_percent: 10.0, ..workload() }).unwrap_err();
        assert_eq!(error, UnsupportedByFio::Trims);
        let error = said(&Workload { one_stream: true, ..workload() }).unwrap_err();
        assert_eq!(error, UnsupportedByFio::OneStream);
        for value in ["/dev/a;b", "/dev/a#b", "${HOME}", "a\nb", " a", ""] {
            let mut job = Job::new("db");
            job.set("filename", value);
            assert!(matches!(job.section(), Err(UnsupportedByFio::Text { .. })), "{value:?}");
        }
        assert!(Job::new("a]b").section().is_err());
    }
}
