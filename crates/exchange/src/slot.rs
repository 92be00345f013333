//! One slot of the exchange file, byte by byte. `docs/exchange-format.md` shows the same layout as
//! a table, which a test holds to this file.

use parda_control::latency::{Sample, Signal};
use parda_control::{Bounded, Charge, Costs, Governed, Report, Settings, Source, Span, Tuning};

use crate::identity::{HostName, Identity, Incarnation, Sequence, VolumeId};
use crate::message::{Message, Publication};
use crate::region::{Block, SlotIndex};

mod power;
mod tenants;

pub use self::tenants::MOST_TENANTS;

/// Bytes of a slot: a sector of a 4Kn drive. So writing one slot never reads and rewrites its neighbour.
pub const SLOT_BYTES: usize = Block::BYTES;

/// Bytes of the record at the front of a slot: a sector of any drive. So the record is written as a whole or not at
/// all wherever sectors are.
pub const RECORD_BYTES: usize = 512;

/// The version that this code writes and the only one that it reads.
pub const VERSION: u32 = crate::header::FORMAT;

const MAGIC: &[u8; 8] = b"PARDASLT";

/// Bound of every count, sum and measure on the wire. The bound is exact as a float, and the sum over all slots of a
/// file stays within 64 bits. In nanoseconds it is 52 days.
const MOST: u64 = 1 << 52;

/// No period is longer than the longest that can be configured: a longer one is read as this.
const LONGEST_PERIOD: Span = Span::from_millis(3_600_000);

/// Offsets of the fields that are read before all others, or are not read by [`fields`]. All integers and floats are
/// little-endian.
mod at {
    use std::ops::Range;

    pub(super) const MAGIC: Range<usize> = 0..8;
    pub(super) const VERSION: usize = 8;
    pub(super) const SLOT: usize = 12;
    pub(super) const VOLUME: usize = 16;
    pub(super) const HOST: usize = 24;
    pub(super) const INCARNATION: usize = 32;
    pub(super) const SEQUENCE: usize = 40;
    pub(super) const NAME_LEN: usize = 167;
    pub(super) const NAME: Range<usize> = 168..232;
    /// 1 if the host has settings. Versions before wrote 0 here.
    pub(super) const HAS_SETTINGS: usize = 243;
    pub(super) const SIGNAL: usize = 244;
    pub(super) const DIVIDES: usize = 245;
    pub(super) const SLOWED: usize = 246;
    pub(super) const WRITES: usize = 248;
    pub(super) const READS: usize = 256;
    pub(super) const TENANTS: Range<usize> = 336..336 + super::tenants::BYTES;
    pub(super) const CHECKSUM: usize = 508;
}

/// Contents of a valid record.
#[derive(Clone, Debug, PartialEq)]
pub struct SlotRecord {
    /// Volume of the report.
    pub volume: VolumeId,
    /// Slot that the record was written for.
    pub slot: SlotIndex,
    /// Message of its host.
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

/// Content of a slot.
#[derive(Clone, Debug, PartialEq)]
pub enum Content {
    /// Zeros: never used, or erased.
    Empty,
    /// A record. Whether it is of one's own volume is for the reader to compare.
    Record(Box<SlotRecord>),
    /// Something that is ignored.
    Fault(SlotFault),
}

/// Whether a whole slot is a record, of any version and state. A record begins with the magic, and the bytes behind
/// it are zeros. Foreign data never looks so, except by intent.
pub(crate) fn is_record(block: &Block) -> bool {
    let (record, padding) = block.0.split_at(RECORD_BYTES);
    record.starts_with(MAGIC) && padding == &Block::ZERO.0[RECORD_BYTES..]
}

/// Fields of a slot, each at its place. One walk over them writes a publication, and reads one.
struct Fields<'a> {
    block: &'a mut Block,
    reads: bool,
}

impl Fields<'_> {
    /// The bytes of a field: those in the block, or `value`, which is put there.
    fn carry<const N: usize>(&mut self, at: usize, value: [u8; N]) -> [u8; N] {
        if self.reads {
            return self.block.get(at);
        }
        self.block.put(at, &value);
        value
    }

    /// A whole number up to [`MOST`].
    fn count(
        &mut self,
        at: usize,
        name: &'static str,
        value: &mut u64,
    ) -> Result<(), InvalidReport> {
        *value = u64::from_le_bytes(self.carry(at, value.to_le_bytes()));
        ensure(*value <= MOST, name, *value as f64)
    }

    /// A number from 0 to [`MOST`].
    fn measure(
        &mut self,
        at: usize,
        name: &'static str,
        value: &mut f64,
    ) -> Result<(), InvalidReport> {
        *value = f64::from_le_bytes(self.carry(at, value.to_le_bytes()));
        ensure((0.0..=MOST as f64).contains(value), name, *value)
    }

    /// A whole number of 32 bits.
    fn number(&mut self, at: usize, value: &mut u32) {
        *value = u32::from_le_bytes(self.carry(at, value.to_le_bytes()));
    }

    /// A number as a power of two ([`power`]).
    fn power(&mut self, at: usize, value: &mut f64) {
        *value =
            power::value(u16::from_le_bytes(self.carry(at, power::code(*value).to_le_bytes())));
    }

    /// One of these values, by its index.
    fn code<T: Copy + PartialEq>(
        &mut self,
        at: usize,
        name: &'static str,
        values: &[T],
        value: &mut T,
    ) -> Result<(), InvalidReport> {
        let code = values.iter().position(|known| known == value).unwrap_or(values.len());
        let [code] = self.carry(at, [code as u8]);
        *value = *values.get(usize::from(code)).unwrap_or(value);
        ensure(usize::from(code) < values.len(), name, code.into())
    }
}

/// The fields of a publication, in the order of the table in `docs/exchange-format.md`.
fn fields(f: &mut Fields<'_>, body: &mut Publication) -> Result<(), InvalidReport> {
    let Publication { period, leaving, report, .. } = body;
    f.count(48, "period", &mut period.0)?;
    // Otherwise a host whose record has a longer period would be counted for as long after its end.
    *period = (*period).min(LONGEST_PERIOD);
    f.count(56, "elapsed", &mut report.elapsed.0)?;
    sample(f, 64, 304, &mut report.interval.reads)?;
    sample(f, 96, 320, &mut report.interval.writes)?;
    f.measure(128, "outstanding", &mut report.outstanding)?;
    f.measure(136, "window", &mut report.window.0)?;
    f.measure(144, "beta", &mut report.beta)?;
    f.measure(152, "active shares", &mut report.active)?;
    f.number(160, &mut report.shares.0);
    let governed = [Governed::No, Governed::Yes, Governed::Observes];
    f.code(164, "governed", &governed, &mut report.governed)?;
    let sources = [Source::Cluster, Source::LastGood, Source::Local];
    f.code(165, "source", &sources, &mut report.source)?;
    f.code(166, "leaving", &[false, true], leaving)?;
    f.count(232, "threshold", &mut report.threshold.0)?;
    let tunings = [Tuning::Unsaid, Tuning::Pinned, Tuning::Auto, Tuning::Joining];
    f.code(240, "tuning", &tunings, &mut report.tuning)?;
    let bounds = [Bounded::Unsaid, Bounded::Nothing, Bounded::Slices, Bounded::Window];
    f.code(241, "bounded", &bounds, &mut report.bounded)?;
    // 0 stands for none.
    let mut asks = report.wants.asks.unwrap_or_default();
    f.count(264, "asks", &mut asks.0)?;
    report.wants.asks = Some(asks).filter(|asks| asks.0 > 0);
    f.count(272, "floor", &mut report.wants.floor.0)?;
    f.count(280, "IO count of those that ask", &mut report.wants.ios)?;
    f.measure(288, "saturated throughput", &mut report.saturated.rate)?;
    f.measure(296, "saturated shares", &mut report.saturated.shares)?;
    f.measure(496, "IOs of reservations", &mut report.reserved)?;
    f.power(504, &mut report.pending);
    f.power(506, &mut report.beside);
    Ok(())
}

fn sample(
    f: &mut Fields<'_>,
    at: usize,
    moments_at: usize,
    sample: &mut Sample,
) -> Result<(), InvalidReport> {
    f.count(at, "IO count", &mut sample.ios)?;
    f.count(at + 8, "bytes", &mut sample.bytes.0)?;
    f.count(at + 16, "latency sum", &mut sample.latency.0)?;
    f.count(at + 24, "scaled latency sum", &mut sample.scaled.0)?;
    f.measure(moments_at, "sum of squared sizes", &mut sample.moments.squares)?;
    f.measure(moments_at + 8, "sum of size times latency", &mut sample.moments.products)
}

/// Refuses a value that no record can hold.
fn ensure(ok: bool, field: &'static str, value: f64) -> Result<(), InvalidReport> {
    if ok { Ok(()) } else { Err(InvalidReport { field, value }) }
}

/// Writes `record` down as a whole slot.
pub fn encode(record: &SlotRecord) -> Result<Block, InvalidReport> {
    let Message { from, sequence, body, .. } = &record.message;
    let mut to = Block::ZERO;
    to.put(at::MAGIC.start, MAGIC);
    to.put(at::VERSION, &VERSION.to_le_bytes());
    to.put(at::SLOT, &record.slot.0.to_le_bytes());
    to.put(at::VOLUME, &record.volume.0.to_le_bytes());
    to.put(at::HOST, &from.host.id().0.to_le_bytes());
    to.put(at::INCARNATION, &from.incarnation.0.to_le_bytes());
    to.put(at::SEQUENCE, &sequence.0.to_le_bytes());
    let name = from.host.as_str().as_bytes();
    to.put(at::NAME_LEN, &[name.len() as u8]);
    to.put(at::NAME.start, name);
    to.put(at::SLOWED, &[body.slowed.into()]);
    fields(&mut Fields { block: &mut to, reads: false }, &mut body.clone())?;
    tenants::put(&mut to.0[at::TENANTS], &body.tenants);
    if let Some(settings) = &body.report.settings {
        put_settings(&mut to, settings);
    }
    let checksum = crc32c::crc32c(&to.0[..at::CHECKSUM]);
    to.put(at::CHECKSUM, &checksum.to_le_bytes());
    Ok(to)
}

/// Decodes the content of `slot` from all of its bytes.
#[must_use]
pub fn decode(block: &Block, slot: SlotIndex) -> Content {
    if *block == Block::ZERO {
        return Content::Empty;
    }
    if !is_record(block) {
        return Content::Fault(SlotFault::NotARecord);
    }
    match record(block, slot) {
        Ok(record) => Content::Record(Box::new(record)),
        Err(fault) => Content::Fault(fault),
    }
}

fn record(from: &Block, slot: SlotIndex) -> Result<SlotRecord, SlotFault> {
    // Magic and version stand where they stand in every version; the rest need not.
    let version = u32::from_le_bytes(from.get(at::VERSION));
    if version != VERSION {
        return Err(SlotFault::Version(version));
    }
    let checksum = u32::from_le_bytes(from.get(at::CHECKSUM));
    if crc32c::crc32c(&from.0[..at::CHECKSUM]) != checksum {
        return Err(SlotFault::Checksum);
    }
    let found = SlotIndex(u32::from_le_bytes(from.get(at::SLOT)));
    if found != slot {
        return Err(SlotFault::WrongSlot(found));
    }
    let (period, slowed) = (Span::ZERO, from.0[at::SLOWED] == 1);
    let tenants = tenants::get(&from.0[at::TENANTS]);
    let report = Report::default();
    let mut body = Publication { period, slowed, leaving: false, report, tenants };
    let mut values = Fields { block: &mut from.clone(), reads: true };
    fields(&mut values, &mut body).map_err(|invalid| SlotFault::Malformed(invalid.field))?;
    body.report.settings = settings(from);
    let sequence = Sequence(u64::from_le_bytes(from.get(at::SEQUENCE)));
    let message = Message::new(identity(from)?, sequence, body);
    Ok(SlotRecord { volume: VolumeId(u64::from_le_bytes(from.get(at::VOLUME))), slot, message })
}

fn identity(from: &Block) -> Result<Identity, SlotFault> {
    let name = from.0[at::NAME].get(..usize::from(from.0[at::NAME_LEN]));
    let host = name
        .and_then(|name| str::from_utf8(name).ok())
        .and_then(|name| HostName::new(name).ok())
        .ok_or(SlotFault::Malformed("host name"))?;
    if host.id().0 != u64::from_le_bytes(from.get(at::HOST)) {
        return Err(SlotFault::Malformed("host"));
    }
    Ok(Identity { host, incarnation: Incarnation(u64::from_le_bytes(from.get(at::INCARNATION))) })
}

/// The size of a slot that stands for [`Costs::BYTES`], so that version 0.1 reads it.
const SLOT_SIZE: Charge = Charge { io: 8192, mib: 0 };

fn put_settings(to: &mut Block, settings: &Settings) {
    let Settings { costs, signal } = *settings;
    let signal = match signal {
        Signal::All => 0,
        Signal::Reads => 1,
        Signal::Writes => 2,
    };
    let (divides, Costs { reads, writes }) = match costs {
        None => (0, Costs::default()),
        Some(Costs::BYTES) => (0, Costs { reads: SLOT_SIZE, ..Costs::default() }),
        Some(Costs::IOPS) => (1, Costs::default()),
        Some(costs) => (2, costs),
    };
    to.put(at::HAS_SETTINGS, &[1, signal, divides]);
    for (at, Charge { io, mib }) in [(at::READS, reads), (at::WRITES, writes)] {
        to.put(at, &io.to_le_bytes());
        to.put(at + 4, &mib.to_le_bytes());
    }
}

/// The host's settings. `None` if this version does not define a value: the rest of the record still counts.
fn settings(from: &Block) -> Option<Settings> {
    let signal = match from.0[at::SIGNAL] {
        // 3 was the slowest VM's latency, which this version does not have.
        0 | 3 => Signal::All,
        1 => Signal::Reads,
        2 => Signal::Writes,
        _ => return None,
    };
    let number = |at| u32::from_le_bytes(from.get(at));
    let charge = |at| Charge { io: number(at), mib: number(at + 4) };
    let costs = Costs { reads: charge(at::READS), writes: charge(at::WRITES) };
    let costs = match from.0[at::DIVIDES] {
        // Version 0.1 has slots of other sizes.
        0 | 1 if costs.reads != Charge::default() => Some(Costs::BYTES),
        0 => None,
        1 => Some(Costs::IOPS),
        2 if costs.reads != Charge::default() => Some(costs),
        _ => return None,
    };
    (from.0[at::HAS_SETTINGS] == 1).then_some(Settings { costs, signal })
}

#[cfg(test)]
mod tests;
