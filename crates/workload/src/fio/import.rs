//! Converts a job of a job file into a workload.

use std::collections::BTreeMap;
use std::time::Duration;

use bytesize::ByteSize;
use parda_config::{Amount, Document, Error};
use parda_control::Bytes;

use super::file::{self, Section, Written};
use super::known::{ADVICE, ASYNCHRONOUS, IGNORED_OPTIONS, NEUTRAL, SYNCHRONOUS, UNDERSTOOD};
use super::unit::{number, percent, time};
use crate::drawn::{OPEN_LOOP_DEPTH, Workload};
use crate::keys::{HotKeys, WorkloadKeys};

/// A workload that was read from a job file.
#[derive(Clone, Debug, PartialEq)]
pub struct Imported {
    /// Name of the job.
    pub job: String,
    /// The workload of the job.
    pub workload: Workload,
    /// Size of the disk, if the job gives one.
    pub disk: Option<Bytes>,
}

/// The workload of the job of this name; without a name, of the only job of the file.
///
/// Options without influence on the load are skipped. An option with influence and without a
/// counterpart in [`Workload`] is refused, so that a replayed load never differs silently.
///
/// # Errors
/// There is no such job, or a workload cannot express it. The error names the line, the option and
/// a remedy.
pub fn import(document: &Document, job: Option<&str>) -> Result<Imported, Error> {
    let section = file::job(document, job)?;
    let reader = Reader { document, kb_base: 1024, section: &section };
    let kb_base = section.last(&["kb_base"]).is_some_and(|option| option.value == "1000");
    Reader { kb_base: if kb_base { 1000 } else { 1024 }, ..reader }.imported()
}

/// Names of all jobs of a file.
///
/// # Errors
/// The document is not a job file; the error names the line.
pub fn job_names(document: &Document) -> Result<Vec<String>, Error> {
    let jobs = file::jobs(document)?;
    Ok(jobs.into_iter().map(|job| job.name.to_owned()).collect())
}

struct Reader<'a> {
    document: &'a Document,
    section: &'a Section<'a>,
    kb_base: u64,
}

/// Directions of a job's IOs, and whether their offsets are random.
struct Direction {
    read: bool,
    write: bool,
    random: bool,
}

impl<'a> Reader<'a> {
    fn imported(&self) -> Result<Imported, Error> {
        self.section.options.iter().try_for_each(|option| self.known(option))?;
        let direction = self.direction()?;
        let random = self.random(&direction)?;
        let read = self.read(&direction)?;
        let jobs = self.number(&["numjobs"])?.unwrap_or(1);
        if jobs != 1 && random != 100 {
            let message = "each of them has streams of its own: make it a VM for each, with \
                           `same_disk_as`";
            return Err(self.about(&["numjobs"], message));
        }
        let rate = self.rate(&direction, read)?.map(|rate| (rate * jobs) as f64);
        let depth = self.depth(rate.is_some())?;
        let outstanding = u32::try_from(depth.saturating_mul(jobs))
            .map_err(|_| self.about(&["iodepth", "numjobs"], "is too many"))?;
        let (size, sizes) = self.sizes(&direction)?;
        let (on, off) = self.bursts()?;
        let workload = WorkloadKeys {
            size,
            sizes,
            read: Some(Amount::Number(read.into())),
            random: Some(Amount::Number(random.into())),
            hot: self.hot(&direction, random)?,
            outstanding: rate.is_none().then_some(outstanding),
            rate,
            on,
            off,
            ..WorkloadKeys::default()
        };
        let workload = Workload::check(&workload, &|key, message| self.wrong(key, message))?;
        let disk = self.disk(jobs)?;
        Ok(Imported { job: self.section.name.to_owned(), workload, disk })
    }

    /// Refuses an option whose influence on the load is unknown.
    fn known(&self, option: &Written<'_>) -> Result<(), Error> {
        let Written { key, value, .. } = *option;
        if key == "filename" && value.replace("\\:", "").contains(':') {
            return Err(self.at(option, "is several files: make it a job for each, and a VM"));
        }
        let neutral = NEUTRAL.iter().any(|(k, values)| *k == key && values.contains(&value));
        if IGNORED_OPTIONS.contains(&key) || UNDERSTOOD.contains(&key) || neutral {
            return Ok(());
        }
        let advice = ADVICE.iter().find(|(known, _)| *known == key).map(|(_, advice)| *advice);
        let advice = advice.unwrap_or("take it out if the load is meant without it");
        Err(self.at(option, &format!("has no counterpart in a workload: {advice}")))
    }

    fn at(&self, option: &Written<'_>, message: &str) -> Error {
        let Written { key, value, line } = *option;
        let text = if value.is_empty() { key.to_owned() } else { format!("{key}={value}") };
        file::error(self.document, line, &text, message)
    }

    /// An error at the first of these options that the job has; at the job if it has none.
    fn about(&self, keys: &[&str], message: &str) -> Error {
        match keys.iter().find_map(|key| self.section.last(&[key])) {
            Some(option) => self.at(&option, message),
            None => {
                let name = format!("[{}]", self.section.name);
                file::error(self.document, self.section.line, &name, message)
            }
        }
    }

    /// An error about a key of the workload, at the option of the job that sets it.
    fn wrong(&self, key: &str, message: &str) -> Error {
        let options: &[&str] = match key.split('.').next().unwrap_or_default() {
            "size" => &["bs", "blocksize"],
            "sizes" => &["bssplit"],
            "hot" => &["random_distribution"],
            "outstanding" => &["iodepth", "numjobs"],
            "rate" => &["rate_iops"],
            "on" => &["thinktime_iotime"],
            "off" => &["thinktime"],
            _ => &[],
        };
        self.about(options, message)
    }

    fn option(&self, keys: &[&str]) -> Option<Written<'a>> {
        self.section.options.iter().rev().find(|option| keys.contains(&option.key)).copied()
    }

    fn number(&self, keys: &[&str]) -> Result<Option<u64>, Error> {
        let Some(option) = self.option(keys) else { return Ok(None) };
        let wrong = || self.at(&option, "must be a number");
        number(option.value, self.kb_base).ok_or_else(wrong).map(Some)
    }

    /// Value of an option for the job's directions, if it is the same for both.
    fn same<'v>(
        &self,
        option: &Written<'_>,
        values: &'v str,
        direction: &Direction,
    ) -> Result<&'v str, Error> {
        let (read, write) = values.split_once(',').unwrap_or((values, values));
        // A third value would be that of trims.
        let write = write.split(',').next().unwrap_or_default();
        let both = direction.read && direction.write;
        let value = if direction.read { read } else { write };
        if value.is_empty() || (both && read != write) {
            let message = "must say the same of reads and writes: make it a VM for each, with \
                           `same_disk_as`";
            return Err(self.at(option, message));
        }
        Ok(value)
    }

    fn direction(&self) -> Result<Direction, Error> {
        let Some(option) = self.option(&["rw", "readwrite"]) else {
            return Ok(Direction { read: true, write: false, random: false });
        };
        let (read, write, random) = match option.value {
            "read" => (true, false, false),
            "write" => (false, true, false),
            "rw" | "readwrite" => (true, true, false),
            "randread" => (true, false, true),
            "randwrite" => (false, true, true),
            "randrw" => (true, true, true),
            _ => {
                let message = "must be read, write, rw, randread, randwrite or randrw, and nothing \
                               behind it: an array knows no trims here, and a stream no jumps";
                return Err(self.at(&option, message));
            }
        };
        Ok(Direction { read, write, random })
    }

    fn percent(&self, option: &Written<'_>, value: &str) -> Result<u32, Error> {
        percent(value).ok_or_else(|| self.at(option, "must be a percentage, 0 to 100"))
    }

    fn read(&self, direction: &Direction) -> Result<u32, Error> {
        if !(direction.read && direction.write) {
            return Ok(if direction.read { 100 } else { 0 });
        }
        match self.option(&["rwmixread", "rwmixwrite"]) {
            None => Ok(50),
            Some(option) => {
                let part = self.percent(&option, option.value)?;
                Ok(if option.key == "rwmixread" { part } else { 100 - part })
            }
        }
    }

    fn random(&self, direction: &Direction) -> Result<u32, Error> {
        if !direction.random {
            return Ok(0);
        }
        let Some(option) = self.option(&["percentage_random"]) else { return Ok(100) };
        self.percent(&option, self.same(&option, option.value, direction)?)
    }

    #[allow(clippy::type_complexity)] // As the file has it.
    fn sizes(
        &self,
        direction: &Direction,
    ) -> Result<(Option<ByteSize>, Option<BTreeMap<String, Amount>>), Error> {
        if let Some(option) = self.option(&["bssplit"]) {
            let split = self.split(&option, self.same(&option, option.value, direction)?)?;
            return Ok((None, Some(split)));
        }
        let Some(option) = self.option(&["bs", "blocksize"]) else {
            return Ok((Some(ByteSize(4096)), None));
        };
        let value = self.same(&option, option.value, direction)?;
        let size = number(value, self.kb_base);
        let size = size.ok_or_else(|| self.at(&option, "must be a size, such as 4k"))?;
        if size % 512 != 0 && value.to_ascii_lowercase().ends_with("ib") {
            let message = "is so many thousands in fio, which has the units the other way round: \
                           write 4k for 4096";
            return Err(self.at(&option, message));
        }
        Ok((Some(ByteSize(size)), None))
    }

    fn split(&self, option: &Written<'_>, value: &str) -> Result<BTreeMap<String, Amount>, Error> {
        let wrong = |message: &str| self.at(option, message);
        let shape = "must be sizes and how many of a hundred IOs have each, such as 4k/70:64k/30";
        let mut parts = Vec::new();
        for part in value.split(':') {
            let (size, percentage) = part.split_once('/').unwrap_or((part, ""));
            let size = number(size, self.kb_base).ok_or_else(|| wrong(shape))?;
            let some = |text: &str| percent(text).ok_or_else(|| wrong(shape));
            parts.push((size, Some(percentage).filter(|p| !p.is_empty()).map(some).transpose()?));
        }
        let said: u32 = parts.iter().filter_map(|(_, percent)| *percent).sum();
        let silent = parts.iter().filter(|(_, percent)| percent.is_none()).count() as u32;
        // Entries without a percentage share the rest.
        let left = 100_u32.saturating_sub(said);
        if silent > 0 && !left.is_multiple_of(silent) {
            let message = format!(
                "leaves {left} % to {silent} sizes without a percentage, which is no whole number: \
                 say one for each size"
            );
            return Err(wrong(&message));
        }
        let mut sizes = BTreeMap::new();
        for (size, percent) in parts {
            let percent = percent.unwrap_or_else(|| left / silent);
            let percent = Amount::Number(percent.into());
            if sizes.insert(format!("{size}B"), percent).is_some() {
                return Err(wrong("has the same size twice"));
            }
        }
        Ok(sizes)
    }

    /// IOs per second of one copy of the job.
    fn rate(&self, direction: &Direction, read: u32) -> Result<Option<u64>, Error> {
        let Some(option) = self.option(&["rate_iops"]) else { return Ok(None) };
        let parts = option.value.split(',').map(|part| {
            let wrong = || self.at(&option, "must be a number of IOs a second");
            number(part, self.kb_base).ok_or_else(wrong)
        });
        let parts = parts.collect::<Result<Vec<u64>, Error>>()?;
        let reads = parts[0];
        let writes = parts.get(1).copied().unwrap_or(reads);
        let reads = if direction.read { reads } else { 0 };
        let writes = if direction.write { writes } else { 0 };
        let all = reads.saturating_add(writes);
        if all == 0 {
            return Ok(None);
        }
        if u128::from(reads) * 100 != u128::from(all) * u128::from(read) {
            let message = format!(
                "makes {reads} reads and {writes} writes a second, which are not the {read} % \
                 reads that rwmixread says: fio counts each by itself, as rate_iops=READS,WRITES"
            );
            return Err(self.at(&option, &message));
        }
        let poisson = self.option(&["rate_process"]);
        if poisson.is_none_or(|process| process.value != "poisson") {
            let message = "comes at even times: a workload's `rate` is a Poisson process, which is \
                           rate_process=poisson";
            return Err(self.at(&poisson.unwrap_or(option), message));
        }
        Ok(Some(all))
    }

    /// Queue depth of one copy of the job.
    fn depth(&self, open: bool) -> Result<u64, Error> {
        let depth = self.number(&["iodepth"])?.unwrap_or(1);
        let engine = self.option(&["ioengine"]);
        let name = engine.map_or("psync", |engine| engine.value);
        let synchronous = SYNCHRONOUS.contains(&name);
        if !synchronous && !ASYNCHRONOUS.contains(&name.split(':').next().unwrap_or_default()) {
            let message = "is not known here: whether it has as many under way as iodepth says";
            return Err(self.about(&["ioengine"], message));
        }
        if synchronous && depth > 1 {
            let message = format!(
                "is 1 in fio, whose engine {name} waits for each IO: say ioengine=libaio, or \
                 iodepth=1"
            );
            return Err(self.about(&["iodepth"], &message));
        }
        if open && depth != u64::from(OPEN_LOOP_DEPTH) {
            let message = format!(
                "with rate_iops must be {OPEN_LOOP_DEPTH}, which is what a workload's `rate` has \
                 under way at most (and an asynchronous ioengine); or leave out rate_iops"
            );
            return Err(self.about(&["iodepth", "rate_iops"], &message));
        }
        Ok(depth)
    }

    fn bursts(&self) -> Result<(Option<Duration>, Option<Duration>), Error> {
        let length = |key: &str, default| {
            let Some(option) = self.option(&[key]) else { return Ok(None) };
            let length = time(option.value, default);
            length.ok_or_else(|| self.at(&option, "must be a time, such as 2s")).map(Some)
        };
        let off = length("thinktime", Duration::from_micros(1))?.filter(|off| !off.is_zero());
        let on = length("thinktime_iotime", Duration::from_secs(1))?.filter(|on| !on.is_zero());
        if off.is_some() && on.is_none() {
            let message = "after so many IOs has no counterpart: bursts go by the clock here, with \
                           thinktime_iotime";
            return Err(self.about(&["thinktime"], message));
        }
        // One of the two options has no effect without the other.
        Ok((on.filter(|_| off.is_some()), off))
    }

    fn hot(&self, direction: &Direction, random: u32) -> Result<Option<HotKeys>, Error> {
        let Some(option) = self.option(&["random_distribution"]) else { return Ok(None) };
        let value = self.same(&option, option.value, direction)?;
        // The option has no effect without random IOs.
        if value == "random" || random == 0 {
            return Ok(None);
        }
        let pair = |zone: &str| {
            let (hits, part) = zone.split_once('/')?;
            Some((percent(hits)?, percent(part)?))
        };
        let zones = value.strip_prefix("zoned:").and_then(|zones| zones.split_once(':'));
        let zones = zones.and_then(|(first, second)| Some((pair(first)?, pair(second)?)));
        match zones {
            Some(((hits, part), (misses, rest))) if hits + misses == 100 && part + rest == 100 => {
                let amount = |percent: u32| Amount::Number(percent.into());
                Ok(Some(HotKeys { part: amount(part), hits: amount(hits) }))
            }
            _ => {
                let message = "must be random, or zoned with two zones of which the first is hot, \
                               such as zoned:90/10:10/90 for nine of ten IOs to the first tenth";
                Err(self.at(&option, message))
            }
        }
    }

    /// Size of the disk that all copies of the job use together.
    fn disk(&self, jobs: u64) -> Result<Option<Bytes>, Error> {
        let Some(option) = self.option(&["size"]) else { return Ok(None) };
        if option.value == "100%" {
            return Ok(None);
        }
        let size = number(option.value, self.kb_base);
        let wrong = "must be a size, such as 20g, or 100%: the disk is as large as the VM's";
        let size = size.ok_or_else(|| self.at(&option, wrong))?;
        // Without a file name each copy has a file of its own.
        let files = if self.option(&["filename", "uri"]).is_some() { 1 } else { jobs };
        let all = size.checked_mul(files).ok_or_else(|| self.at(&option, "is too large"))?;
        let wrong = |message: &str| self.at(&option, message);
        if !all.is_multiple_of(512) || all == 0 {
            return Err(wrong("must be a multiple of 512 bytes, and not 0"));
        }
        Ok(Some(Bytes(all)))
    }
}
