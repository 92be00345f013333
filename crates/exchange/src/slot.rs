//! One slot of the exchange file, byte by byte. `docs/exchange-format.md` shows the same layout as
//! a table, which a test holds to this file.

use parda_control::latency::{Interval, Sample, Signal};
use parda_control::outsider::Finding;
use parda_control::size::Moments;
use parda_control::{
    Bounded, Bytes, Governed, Proportional, Report, Settings, Shares, Source, Span, Throughput,
    Tuning, Wants, Window,
};

use crate::identity::{HostName, HostNameError, Identity, Incarnation, Sequence, VolumeId};
use crate::message::{Message, Publication};
use crate::region::{Block, SlotIndex};

/// Bytes of a slot: a sector of a 4Kn drive, so that writing one slot never reads and rewrites
/// its neighbour.
pub const SLOT_BYTES: usize = Block::BYTES;

/// Bytes of the record at the front of a slot: a sector of any drive, so that it is written as a
/// whole or not at all wherever sectors are.
pub const RECORD_BYTES: usize = 512;

/// The version that this code writes and the only one that it reads.
pub const VERSION: u32 = crate::header::FORMAT;

const MAGIC: &[u8; 8] = b"PARDASLT";

/// No count, sum or measure on the wire exceeds this: it is exact as a float, and the sum over
/// all slots of a file stays within 64 bits. In nanoseconds it is 52 days.
const MOST: u64 = 1 << 52;

/// Where each field begins. All integers and floats are little-endian.
mod at {
    use std::ops::Range;

    pub(super) const MAGIC: Range<usize> = 0..8;
    pub(super) const VERSION: usize = 8;
    pub(super) const SLOT: usize = 12;
    pub(super) const VOLUME: usize = 16;
    pub(super) const HOST: usize = 24;
    pub(super) const INCARNATION: usize = 32;
    pub(super) const SEQUENCE: usize = 40;
    pub(super) const PERIOD: usize = 48;
    pub(super) const ELAPSED: usize = 56;
    pub(super) const READS: usize = 64;
    pub(super) const WRITES: usize = 96;
    pub(super) const OUTSTANDING: usize = 128;
    pub(super) const WINDOW: usize = 136;
    pub(super) const BETA: usize = 144;
    pub(super) const ACTIVE: usize = 152;
    pub(super) const SHARES: usize = 160;
    pub(super) const GOVERNED: usize = 164;
    pub(super) const SOURCE: usize = 165;
    pub(super) const LEAVING: usize = 166;
    pub(super) const NAME_LEN: usize = 167;
    pub(super) const NAME: Range<usize> = 168..232;
    pub(super) const THRESHOLD: usize = 232;
    pub(super) const TUNING: usize = 240;
    pub(super) const BOUNDED: usize = 241;
    pub(super) const SLOWED: usize = 246;
    pub(super) const SAYS: usize = 243;
    pub(super) const SIGNAL: usize = 244;
    pub(super) const PROPORTIONAL: usize = 245;
    pub(super) const SLOT_SIZE: usize = 256;
    pub(super) const ASKS: usize = 264;
    pub(super) const FLOOR: usize = 272;
    pub(super) const ASKERS_IOS: usize = 280;
    pub(super) const SATURATED: usize = 288;
    pub(super) const SATURATED_SHARES: usize = 296;
    pub(super) const READS_MOMENTS: usize = 304;
    pub(super) const WRITES_MOMENTS: usize = 320;
    pub(super) const CHECKSUM: usize = 508;

    /// Within `READS` and `WRITES`.
    pub(super) const SAMPLE_IOS: usize = 0;
    pub(super) const SAMPLE_BYTES: usize = 8;
    pub(super) const SAMPLE_LATENCY: usize = 16;
    pub(super) const SAMPLE_SCALED: usize = 24;

    /// Within `READS_MOMENTS` and `WRITES_MOMENTS`.
    pub(super) const SQUARES: usize = 0;
    pub(super) const PRODUCTS: usize = 8;
}

/// Contents of a valid record.
#[derive(Clone, Debug, PartialEq)]
pub struct Record {
    /// Volume of the report.
    pub volume: VolumeId,
    /// Slot that the record was written for.
    pub slot: SlotIndex,
    /// What its host says.
    pub message: Message,
}

/// A report that cannot be written down.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[error("{field} = {value} cannot be published: it must be a number from 0 to 2^52")]
pub struct InvalidReport {
    /// The field of the table in `docs/exchange-format.md`.
    pub field: &'static str,
    /// Value of the field.
    pub value: f64,
}

/// Why the bytes of a slot are no record that counts. All of these are ignored and counted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SlotFault {
    /// Neither zeros nor the magic with zeros behind the record: noise, or something else's data.
    #[error("holds neither zeros nor a record: is this really an exchange file?")]
    NotARecord,
    /// The record is of another format version.
    #[error("holds a record of format version {0}; this program knows version {VERSION}")]
    Version(u32),
    /// The checksum does not match: a torn write, or damage.
    #[error("holds a torn or damaged record: its checksum does not match")]
    Checksum,
    /// The record was written for another slot: a shifted or copied file.
    #[error("holds a record that belongs to slot {0}: was the file copied or its offset changed?")]
    WrongSlot(SlotIndex),
    /// The record is intact but says what no host may say.
    #[error("holds an intact record with an impossible {0}")]
    Malformed(&'static str),
}

/// What is in a slot.
#[derive(Clone, Debug, PartialEq)]
pub enum Content {
    /// Zeros: never used, or erased.
    Empty,
    /// A record. Whether it is of one's own volume is for the reader to compare.
    Record(Box<Record>),
    /// Something that is ignored.
    Fault(SlotFault),
}

/// A slot and what is in it.
#[derive(Clone, Debug, PartialEq)]
pub struct SlotState {
    /// Index of the slot.
    pub slot: SlotIndex,
    /// What is in it.
    pub content: Content,
}

/// Whether a whole slot is a record, of any version and state: it begins with the magic, and the bytes
/// behind the record are zeros. Nobody else's data is, but by intent.
pub(crate) fn is_record(block: &Block) -> bool {
    let (record, padding) = block.0.split_at(RECORD_BYTES);
    record.starts_with(MAGIC) && padding == &Block::ZERO.0[RECORD_BYTES..]
}

/// Writes `record` down as a whole slot.
pub fn encode(record: &Record) -> Result<Block, InvalidReport> {
    let Message { from, sequence, body } = &record.message;
    let Publication { period, slowed, leaving, report } = body;
    let mut block = Block::ZERO;
    let to = &mut block.0;
    to[at::MAGIC].copy_from_slice(MAGIC);
    put(to, at::VERSION, VERSION.to_le_bytes());
    put(to, at::SLOT, record.slot.0.to_le_bytes());
    put(to, at::VOLUME, record.volume.0.to_le_bytes());
    put(to, at::HOST, from.host.id().0.to_le_bytes());
    put(to, at::INCARNATION, from.incarnation.0.to_le_bytes());
    put(to, at::SEQUENCE, sequence.0.to_le_bytes());
    put_count(to, at::PERIOD, "period", period.0)?;
    put_count(to, at::ELAPSED, "elapsed", report.elapsed.0)?;
    let Interval { reads, writes } = &report.interval;
    put_sample(to, at::READS, at::READS_MOMENTS, reads)?;
    put_sample(to, at::WRITES, at::WRITES_MOMENTS, writes)?;
    put_measure(to, at::OUTSTANDING, "outstanding", report.outstanding)?;
    put_measure(to, at::WINDOW, "window", report.window.0)?;
    put_measure(to, at::BETA, "beta", report.beta)?;
    put_measure(to, at::ACTIVE, "active shares", report.active)?;
    put(to, at::SHARES, report.shares.0.to_le_bytes());
    to[at::GOVERNED] = match report.governed {
        Governed::No => 0,
        Governed::Yes => 1,
        Governed::Observes => 2,
    };
    to[at::SOURCE] = match report.source {
        Source::Cluster => 0,
        Source::LastGood => 1,
        Source::Local => 2,
    };
    to[at::LEAVING] = (*leaving).into();
    to[at::SLOWED] = (*slowed).into();
    let name = from.host.as_str().as_bytes();
    to[at::NAME_LEN] = name.len() as u8;
    to[at::NAME][..name.len()].copy_from_slice(name);
    put_count(to, at::THRESHOLD, "threshold", report.threshold.0)?;
    to[at::TUNING] = match report.tuning {
        Tuning::Unsaid => 0,
        Tuning::Pinned => 1,
        Tuning::Auto => 2,
        Tuning::Joining => 3,
    };
    to[at::BOUNDED] = match report.bounded {
        Bounded::Unsaid => 0,
        Bounded::Nothing => 1,
        Bounded::Slices => 2,
        Bounded::Window => 3,
    };
    if let Some(settings) = &report.settings {
        put_settings(to, settings)?;
    }
    put_count(to, at::ASKS, "asks", report.wants.asks.map_or(0, |asks| asks.0))?;
    put_count(to, at::FLOOR, "floor", report.wants.floor.0)?;
    put_count(to, at::ASKERS_IOS, "IO count of those that ask", report.wants.ios)?;
    put_measure(to, at::SATURATED, "saturated throughput", report.saturated.rate)?;
    put_measure(to, at::SATURATED_SHARES, "saturated shares", report.saturated.shares)?;
    put(to, at::CHECKSUM, crc32c::crc32c(&to[..at::CHECKSUM]).to_le_bytes());
    Ok(block)
}

/// Reads what is in `slot`: all of its bytes count.
#[must_use]
pub fn decode(block: &Block, slot: SlotIndex) -> Content {
    if *block == Block::ZERO {
        return Content::Empty;
    }
    if !is_record(block) {
        return Content::Fault(SlotFault::NotARecord);
    }
    match record(&block.0, slot) {
        Ok(record) => Content::Record(Box::new(record)),
        Err(fault) => Content::Fault(fault),
    }
}

fn record(from: &[u8; SLOT_BYTES], slot: SlotIndex) -> Result<Record, SlotFault> {
    // Magic and version stand where they stand in every version; the rest need not.
    let version = u32::from_le_bytes(get(from, at::VERSION));
    if version != VERSION {
        return Err(SlotFault::Version(version));
    }
    if crc32c::crc32c(&from[..at::CHECKSUM]) != u32::from_le_bytes(get(from, at::CHECKSUM)) {
        return Err(SlotFault::Checksum);
    }
    let found = SlotIndex(u32::from_le_bytes(get(from, at::SLOT)));
    if found != slot {
        return Err(SlotFault::WrongSlot(found));
    }
    Ok(Record {
        volume: VolumeId(get_u64(from, at::VOLUME)),
        slot,
        message: Message {
            from: identity(from)?,
            sequence: Sequence(get_u64(from, at::SEQUENCE)),
            body: Publication {
                period: Span(get_count(from, at::PERIOD, "period")?),
                slowed: from[at::SLOWED] == 1,
                leaving: get_flag(from, at::LEAVING, "leaving")?,
                report: report(from)?,
            },
        },
    })
}

fn identity(from: &[u8; SLOT_BYTES]) -> Result<Identity, SlotFault> {
    let name = from[at::NAME].get(..usize::from(from[at::NAME_LEN]));
    let host = name
        .and_then(|name| str::from_utf8(name).ok())
        .map(HostName::new)
        .and_then(Result::<HostName, HostNameError>::ok)
        .ok_or(SlotFault::Malformed("host name"))?;
    if host.id().0 != get_u64(from, at::HOST) {
        return Err(SlotFault::Malformed("host"));
    }
    Ok(Identity { host, incarnation: Incarnation(get_u64(from, at::INCARNATION)) })
}

fn report(from: &[u8; SLOT_BYTES]) -> Result<Report, SlotFault> {
    Ok(Report {
        elapsed: Span(get_count(from, at::ELAPSED, "elapsed")?),
        interval: Interval {
            reads: get_sample(from, at::READS, at::READS_MOMENTS)?,
            writes: get_sample(from, at::WRITES, at::WRITES_MOMENTS)?,
        },
        outstanding: get_measure(from, at::OUTSTANDING, "outstanding")?,
        window: Window(get_measure(from, at::WINDOW, "window")?),
        beta: get_measure(from, at::BETA, "beta")?,
        shares: Shares(u32::from_le_bytes(get(from, at::SHARES))),
        active: get_measure(from, at::ACTIVE, "active shares")?,
        bounded: match from[at::BOUNDED] {
            0 => Bounded::Unsaid,
            1 => Bounded::Nothing,
            2 => Bounded::Slices,
            3 => Bounded::Window,
            _ => return Err(SlotFault::Malformed("bounded")),
        },
        governed: match from[at::GOVERNED] {
            0 => Governed::No,
            1 => Governed::Yes,
            2 => Governed::Observes,
            _ => return Err(SlotFault::Malformed("governed")),
        },
        source: match from[at::SOURCE] {
            0 => Source::Cluster,
            1 => Source::LastGood,
            2 => Source::Local,
            _ => return Err(SlotFault::Malformed("source")),
        },
        threshold: Span(get_count(from, at::THRESHOLD, "threshold")?),
        tuning: match from[at::TUNING] {
            0 => Tuning::Unsaid,
            1 => Tuning::Pinned,
            2 => Tuning::Auto,
            3 => Tuning::Joining,
            _ => return Err(SlotFault::Malformed("tuning")),
        },
        settings: settings(from)?,
        wants: Wants {
            asks: match get_count(from, at::ASKS, "asks")? {
                0 => None,
                asks => Some(Span(asks)),
            },
            floor: Span(get_count(from, at::FLOOR, "floor")?),
            ios: get_count(from, at::ASKERS_IOS, "IO count of those that ask")?,
        },
        finding: Finding::default(),
        saturated: Throughput {
            rate: get_measure(from, at::SATURATED, "saturated throughput")?,
            shares: get_measure(from, at::SATURATED_SHARES, "saturated shares")?,
        },
    })
}

fn put_settings(to: &mut [u8; SLOT_BYTES], settings: &Settings) -> Result<(), InvalidReport> {
    let Settings { slot_size, signal, proportional } = *settings;
    to[at::SAYS] = 1;
    to[at::SIGNAL] = match signal {
        Signal::All => 0,
        Signal::Reads => 1,
        Signal::Writes => 2,
    };
    to[at::PROPORTIONAL] = match proportional {
        Proportional::Concurrency => 0,
        Proportional::Throughput => 1,
    };
    put_count(to, at::SLOT_SIZE, "slot size", slot_size.map_or(0, |size| size.0))
}

/// What the host says of settings. A value that this version does not know is as good as nothing said:
/// whatever else the record says still counts.
fn settings(from: &[u8; SLOT_BYTES]) -> Result<Option<Settings>, SlotFault> {
    let slot_size = match get_count(from, at::SLOT_SIZE, "slot size")? {
        0 => None,
        size => Some(Bytes(size)),
    };
    let signal = match from[at::SIGNAL] {
        // 3 was the slowest VM's latency, which this version does not know.
        0 | 3 => Signal::All,
        1 => Signal::Reads,
        2 => Signal::Writes,
        _ => return Ok(None),
    };
    let proportional = match from[at::PROPORTIONAL] {
        0 => Proportional::Concurrency,
        1 => Proportional::Throughput,
        _ => return Ok(None),
    };
    Ok((from[at::SAYS] == 1).then_some(Settings { slot_size, signal, proportional }))
}

fn put<const N: usize>(to: &mut [u8; SLOT_BYTES], at: usize, value: [u8; N]) {
    to[at..at + N].copy_from_slice(&value);
}

fn put_count(
    to: &mut [u8; SLOT_BYTES],
    at: usize,
    field: &'static str,
    value: u64,
) -> Result<(), InvalidReport> {
    if value > MOST {
        return Err(InvalidReport { field, value: value as f64 });
    }
    put(to, at, value.to_le_bytes());
    Ok(())
}

fn put_measure(
    to: &mut [u8; SLOT_BYTES],
    at: usize,
    field: &'static str,
    value: f64,
) -> Result<(), InvalidReport> {
    if !(0.0..=MOST as f64).contains(&value) {
        return Err(InvalidReport { field, value });
    }
    put(to, at, value.to_le_bytes());
    Ok(())
}

fn put_sample(
    to: &mut [u8; SLOT_BYTES],
    at: usize,
    moments_at: usize,
    sample: &Sample,
) -> Result<(), InvalidReport> {
    put_count(to, at + at::SAMPLE_IOS, "IO count", sample.ios)?;
    put_count(to, at + at::SAMPLE_BYTES, "bytes", sample.bytes.0)?;
    put_count(to, at + at::SAMPLE_LATENCY, "latency sum", sample.latency.0)?;
    put_count(to, at + at::SAMPLE_SCALED, "scaled latency sum", sample.scaled.0)?;
    let Moments { squares, products } = sample.moments;
    put_measure(to, moments_at + at::SQUARES, "sum of squared sizes", squares)?;
    put_measure(to, moments_at + at::PRODUCTS, "sum of size times latency", products)
}

fn get<const N: usize>(from: &[u8; SLOT_BYTES], at: usize) -> [u8; N] {
    std::array::from_fn(|i| from[at + i])
}

fn get_u64(from: &[u8; SLOT_BYTES], at: usize) -> u64 {
    u64::from_le_bytes(get(from, at))
}

fn get_count(from: &[u8; SLOT_BYTES], at: usize, field: &'static str) -> Result<u64, SlotFault> {
    let value = get_u64(from, at);
    if value <= MOST { Ok(value) } else { Err(SlotFault::Malformed(field)) }
}

fn get_measure(from: &[u8; SLOT_BYTES], at: usize, field: &'static str) -> Result<f64, SlotFault> {
    let value = f64::from_le_bytes(get(from, at));
    if (0.0..=MOST as f64).contains(&value) { Ok(value) } else { Err(SlotFault::Malformed(field)) }
}

fn get_flag(from: &[u8; SLOT_BYTES], at: usize, field: &'static str) -> Result<bool, SlotFault> {
    match from[at] {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err(SlotFault::Malformed(field)),
    }
}

fn get_sample(from: &[u8; SLOT_BYTES], at: usize, moments_at: usize) -> Result<Sample, SlotFault> {
    Ok(Sample {
        ios: get_count(from, at + at::SAMPLE_IOS, "IO count")?,
        bytes: Bytes(get_count(from, at + at::SAMPLE_BYTES, "bytes")?),
        latency: Span(get_count(from, at + at::SAMPLE_LATENCY, "latency sum")?),
        scaled: Span(get_count(from, at + at::SAMPLE_SCALED, "scaled latency sum")?),
        moments: Moments {
            squares: get_measure(from, moments_at + at::SQUARES, "sum of squared sizes")?,
            products: get_measure(from, moments_at + at::PRODUCTS, "sum of size times latency")?,
        },
    })
}

#[cfg(test)]
mod tests;
