//! Text of disks, kept from one answer to the next. Of a thousand disks most are idle in a second, and a disk has 52 series.

use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;

use super::disk::{DiskNow, FAMILIES};
use super::{Labelled, text_of, write};

/// First line of a family.
const HELP: &str = "# HELP ";

/// Samples of all disks, as of the last answer.
#[derive(Debug)]
pub(super) struct Kept {
    /// Lines that stand before a family's samples, of all families in their order.
    heads: Vec<String>,
    disks: Vec<KeptDisk>,
}

/// Samples of a disk.
#[derive(Debug)]
struct KeptDisk {
    disk: DiskNow,
    text: String,
    /// End of each family's samples in `text`.
    ends: Vec<usize>,
}

impl Default for Kept {
    fn default() -> Kept {
        let text = text_of(Heads);
        let heads = text.split(HELP).skip(1).map(|head| format!("{HELP}{head}")).collect();
        Kept { heads, disks: Vec::new() }
    }
}

impl Kept {
    /// Writes all families. An idle disk at the same position keeps its samples.
    pub(super) fn write(&mut self, to: &mut String, disks: impl Iterator<Item = DiskNow>) {
        let mut before = std::mem::take(&mut self.disks).into_iter();
        self.disks = disks
            .map(|now| match before.next() {
                Some(kept) if kept.disk.counted() == now.counted() => kept,
                _ => KeptDisk::new(now, &self.heads),
            })
            .collect();
        for (family, head) in self.heads.iter().enumerate() {
            let samples = || self.disks.iter().map(|disk| disk.samples(family));
            if samples().any(|samples| !samples.is_empty()) {
                to.push_str(head);
                samples().for_each(|samples| to.push_str(samples));
            }
        }
    }
}

impl KeptDisk {
    fn new(now: DiskNow, heads: &[String]) -> KeptDisk {
        let (mut text, mut ends) = (String::new(), Vec::with_capacity(heads.len()));
        let disk = now.without_times();
        let whole = text_of(One(now));
        let mut rest = whole.as_str();
        for head in heads {
            if let Some(samples) = rest.strip_prefix(head.as_str()) {
                let end = samples.find(&format!("\n{HELP}")).map_or(samples.len(), |at| at + 1);
                text.push_str(&samples[..end]);
                rest = &samples[end..];
            }
            ends.push(text.len());
        }
        KeptDisk { disk, text, ends }
    }

    fn samples(&self, family: usize) -> &str {
        let from = family.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.text[from..self.ends[family]]
    }
}

/// Heads of all families, without samples.
#[derive(Debug)]
struct Heads;

impl Collector for Heads {
    fn encode(&self, mut to: DescriptorEncoder<'_>) -> fmt::Result {
        FAMILIES.iter().try_for_each(|family| {
            to.encode_descriptor(family.name, family.help, family.unit.as_ref(), family.kind)?;
            Ok(())
        })
    }
}

/// Samples of one disk, with the heads of their families.
#[derive(Debug)]
struct One(DiskNow);

impl Collector for One {
    fn encode(&self, mut to: DescriptorEncoder<'_>) -> fmt::Result {
        write(&mut to, FAMILIES, &[Labelled(self.0.labels(), &self.0)])
    }
}
