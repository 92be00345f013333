//! Hosts of the first version of format 2 and of this one, side by side on one medium.
//!
//! The older host's writing and reading are given in bytes here, as that version had them. They are not
//! derived from the present encoder.

use parda_control::belief::Judging;

use super::*;
use crate::testing::page_fields;

/// The slot that the first version's documentation showed: host `kvm-01`, volume `array-a`, slot 3. Pairs of
/// an offset and 16 bytes; all other bytes are zeros.
const OLD_SLOT: [(usize, &str); 14] = [
    (0x000, "5041524441534c540200000003000000"),
    (0x010, "7027020288cc605005edc1d241f961b0"),
    (0x020, "2a3b4d5c2e6fa9182a00000000000000"),
    (0x030, "00ca9a3b00000000c090c83b00000000"),
    (0x040, "f40100000000000000007d0000000000"),
    (0x050, "00d6117e03000000007841cb02000000"),
    (0x060, "14000000000000000040010000000000"),
    (0x070, "00e1f5050000000080778e0600000000"),
    (0x080, "0000000000002f400000000000003040"),
    (0x090, "000000000000114000000000007da540"),
    (0x0a0, "b80b0000010100066b766d2d30310000"),
    (0x0e0, "000000000000000080c3c90100000000"),
    (0x0f0, "02000000000000000000000000000000"),
    (0x1f0, "000000000000000000000000232e03b4"),
];

/// Fields of the first version, all of which it read, and where they lie.
const OLD_FIELDS: [(&str, usize, usize); 29] = [
    ("magic", 0, 8),
    ("version", 8, 4),
    ("slot", 12, 4),
    ("volume", 16, 8),
    ("host", 24, 8),
    ("incarnation", 32, 8),
    ("sequence", 40, 8),
    ("period", 48, 8),
    ("elapsed", 56, 8),
    ("reads: IO count", 64, 8),
    ("reads: bytes", 72, 8),
    ("reads: latency sum", 80, 8),
    ("reads: scaled latency sum", 88, 8),
    ("writes: IO count", 96, 8),
    ("writes: bytes", 104, 8),
    ("writes: latency sum", 112, 8),
    ("writes: scaled latency sum", 120, 8),
    ("outstanding", 128, 8),
    ("window", 136, 8),
    ("beta", 144, 8),
    ("active shares", 152, 8),
    ("shares", 160, 4),
    ("governed", 164, 1),
    ("source", 165, 1),
    ("leaving", 166, 1),
    ("name length", 167, 1),
    ("name", 168, 64),
    ("threshold", 232, 8),
    ("tuning", 240, 1),
];

const CHECKSUM: usize = 508;

/// A host of the first version.
struct OldHost {
    region: MemoryRegion,
    slot: Block,
    sequence: u64,
}

impl OldHost {
    fn new(region: MemoryRegion) -> OldHost {
        let mut slot = Block::ZERO;
        for (at, hex) in OLD_SLOT {
            for i in 0..16 {
                slot.0[at + i] = u8::from_str_radix(&hex[2 * i..2 * i + 2], 16).unwrap();
            }
        }
        OldHost { region, slot, sequence: 42 }
    }

    /// Reads all slots, as that version did, and writes its own. Returns the window and shares of each other
    /// host that it hears, by slot.
    fn period(&mut self) -> Vec<(u32, f64, u32)> {
        let image = self.region.read().unwrap();
        self.sequence += 1;
        self.slot.0[40..48].copy_from_slice(&self.sequence.to_le_bytes());
        let sum = crc32c::crc32c(&self.slot.0[..CHECKSUM]);
        self.slot.0[CHECKSUM..CHECKSUM + 4].copy_from_slice(&sum.to_le_bytes());
        self.region.write(SlotIndex(3), &self.slot).unwrap();
        let others = image.slots().iter().zip(0..).filter(|(_, slot)| *slot != 3);
        others.filter_map(|(block, slot)| OldHost::read(&block.0, slot)).collect()
    }

    /// The rules of that version, on the bytes that it defined.
    fn read(from: &[u8; Block::BYTES], slot: u32) -> Option<(u32, f64, u32)> {
        let u32_at = |at: usize| u32::from_le_bytes(from[at..at + 4].try_into().unwrap());
        let u64_at = |at: usize| u64::from_le_bytes(from[at..at + 8].try_into().unwrap());
        let sealed = crc32c::crc32c(&from[..CHECKSUM]) == u32_at(CHECKSUM);
        let place = from.starts_with(b"PARDASLT") && u32_at(8) == 2 && u32_at(12) == slot;
        let padded = from[512..].iter().all(|byte| *byte == 0);
        let counts = (48..128).step_by(8).all(|at| u64_at(at) <= 1 << 52);
        let mut floats = (128..160).step_by(8).map(|at| f64::from_bits(u64_at(at)));
        let floats = floats.all(|x| (0.0..=2_f64.powi(52)).contains(&x));
        let flags = from[164] <= 2 && from[165] <= 2 && from[166] <= 1 && from[240] <= 3;
        let named = str::from_utf8(&from[168..168 + usize::from(from[167])]).is_ok();
        let good = sealed && place && padded && counts && floats && flags && named;
        good.then(|| (slot, f64::from_bits(u64_at(136)), u32_at(160)))
    }
}

#[test]
fn the_old_slot_is_that_of_the_first_version() {
    let old = OldHost::new(medium(8)).slot;
    let sum = u32::from_le_bytes(old.0[CHECKSUM..CHECKSUM + 4].try_into().unwrap());
    assert_eq!(crc32c::crc32c(&old.0[..CHECKSUM]), sum);
}

#[test]
fn an_old_host_and_a_new_one_hear_each_other() {
    let medium = medium(64);
    let mut old = OldHost::new(medium.clone());
    let me = identity("kvm-02", 7);
    let mut new = exchange(&medium, me.clone(), SlotChoice::Automatic);
    let mut peers = Peers::new(me.host.id());
    for now in 0..20 {
        let heard_by_old = old.period();
        let heard = new.collect(at(now)).unwrap();
        assert_eq!(
            heard.events.len(),
            usize::from(now == 0),
            "it chooses a slot, and nothing else is to be said"
        );
        peers.observe(at(now), &heard.messages);
        new.publish(&publication(16.0)).unwrap();
        if now < 2 {
            continue;
        }
        // The old host reads the fields of the new one's record that its version defines, and ignores the
        // rest.
        let slot = new.slot().unwrap().0;
        assert_eq!(heard_by_old, [(slot, 16.0, 3000)], "period {now}");

        // The new host counts the old one. Fields that the old version lacks are `None`.
        let all: Vec<_> = peers.all(at(now)).collect();
        let [peer] = &all[..] else { panic!("{} hosts heard", all.len()) };
        assert_eq!(peer.liveness, Liveness::Live);
        let report = &peer.message.body.report;
        assert_eq!((report.outstanding, report.window.0, report.shares.0), (15.5, 16.0, 3000));
        assert_eq!(report.settings, None);
        let totals = peers.totals(at(now), &mut Judging::default()).unwrap();
        assert_eq!(totals.governed.outstanding, 15.5);
    }
    let counters = new.counters();
    assert_eq!(
        (counters.damaged, counters.other_version, counters.malformed, counters.foreign),
        (0, 0, 0, 0)
    );
}

/// A record of another version of the slot is not guessed at: it is ignored, counted, and not written over.
#[test]
fn a_slot_of_another_version_is_ignored_and_stays() {
    for version in [1_u8, 3] {
        let medium = medium(8);
        let mut later = OldHost::new(medium.clone());
        later.slot.0[8] = version;
        let mut new = exchange(&medium, identity("kvm-02", 7), SlotChoice::Automatic);
        for now in 0..10 {
            assert_eq!(
                later.period(),
                if now < 1 { vec![] } else { vec![(slot(&new), 16.0, 3000)] }
            );
            assert_eq!(new.collect(at(now)).unwrap().messages, []);
            new.publish(&publication(16.0)).unwrap();
        }
        assert_eq!(new.counters().other_version, 10);
        assert_ne!(slot(&new), 3);
    }
}

fn slot(host: &SlotExchange) -> u32 {
    host.slot().unwrap().0
}

#[test]
fn a_host_that_was_upgraded_finds_its_slot() {
    let medium = medium(64);
    OldHost::new(medium.clone()).period();
    let mut upgraded = exchange(&medium, identity("kvm-01", 7), SlotChoice::Automatic);
    upgraded.collect(at(0)).unwrap();
    upgraded.publish(&publication(16.0)).unwrap();
    assert_eq!(slot(&upgraded), 3);
}

#[test]
fn fields_of_the_first_version_lie_where_they_lay() {
    let fields = page_fields("one slot");
    for (name, at, len) in OLD_FIELDS {
        let now = fields.iter().find(|(field, _)| field == name);
        assert_eq!(now.map(|(_, range)| range.clone()), Some(at..at + len), "{name}");
    }
}
