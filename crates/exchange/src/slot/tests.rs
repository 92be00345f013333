//! The slot format against its rules and against its page in `docs/`.

use std::collections::BTreeMap;
use std::ops::Range;

use proptest::prelude::*;

use super::*;
use crate::testing::{example, identity, page_fields};
use parda_control::latency::Interval;
use parda_control::outsider::Finding;
use parda_control::size::Moments;
use parda_control::{Bytes, Shares, TenantId, TenantPart, Throughput, Wants, Window};

fn arb_count() -> impl Strategy<Value = u64> {
    prop_oneof![0..=MOST, Just(0), Just(MOST)]
}

fn arb_measure() -> impl Strategy<Value = f64> {
    prop_oneof![0.0..=MOST as f64, 0.0..100.0, Just(0.0)]
}

fn arb_sample() -> impl Strategy<Value = Sample> {
    let counts = (arb_count(), arb_count(), arb_count(), arb_count());
    let moments = (arb_measure(), arb_measure());
    (counts, moments).prop_map(|((ios, bytes, latency, scaled), (squares, products))| Sample {
        ios,
        bytes: Bytes(bytes),
        latency: Span(latency),
        scaled: Span(scaled),
        moments: Moments { squares, products },
    })
}

fn arb_settings() -> impl Strategy<Value = Option<Settings>> {
    let charge = || (1..u32::MAX, 0..u32::MAX).prop_map(|(io, mib)| Charge { io, mib });
    let cost = (charge(), charge()).prop_map(|(reads, writes)| Costs { reads, writes });
    let costs = prop_oneof![Just(Costs::IOPS), Just(Costs::BYTES), cost];
    let signal = prop_oneof![Just(Signal::All), Just(Signal::Reads), Just(Signal::Writes)];
    prop::option::of(
        (prop::option::of(costs), signal).prop_map(|(costs, signal)| Settings { costs, signal }),
    )
}

// Boxed, as all of it on one stack is too much without optimisation.
prop_compose! {
    fn arb_report()(
        elapsed in arb_count().boxed(),
        interval in (arb_sample().boxed(), arb_sample().boxed()),
        measures in (arb_measure(), arb_measure(), arb_measure(), arb_measure()).boxed(),
        shares: u32,
        governed in prop_oneof![
            Just(Governed::No),
            Just(Governed::Yes),
            Just(Governed::Observes),
        ],
        source in prop_oneof![Just(Source::Cluster), Just(Source::LastGood), Just(Source::Local)],
        bounded in prop_oneof![
            Just(Bounded::Unsaid),
            Just(Bounded::Nothing),
            Just(Bounded::Slices),
            Just(Bounded::Window),
        ],
        threshold in arb_count().boxed(),
        tuning in prop_oneof![
            Just(Tuning::Unsaid),
            Just(Tuning::Pinned),
            Just(Tuning::Auto),
            Just(Tuning::Joining),
        ],
        settings in arb_settings().boxed(),
        asks in prop::option::of((1..=MOST).prop_map(Span)),
        counts in (arb_count(), arb_count()).boxed(),
        saturated in (arb_measure(), arb_measure()).boxed(),
        reserved in arb_measure(),
        // Powers of two, which are read as they were written.
        load in (0..15i32, 0..15i32).prop_map(|(a, b)| (f64::from(a).exp2(), f64::from(b).exp2())),
    ) -> Report {
        Report {
            elapsed: Span(elapsed),
            interval: Interval { reads: interval.0, writes: interval.1 },
            outstanding: measures.0,
            window: Window(measures.1),
            beta: measures.2,
            shares: Shares(shares),
            active: measures.3,
            bounded,
            governed,
            source,
            threshold: Span(threshold),
            tuning,
            settings,
            wants: Wants { asks, floor: Span(counts.0), ios: counts.1 },
            saturated: Throughput { rate: saturated.0, shares: saturated.1 },
            reserved,
            pending: load.0,
            beside: load.1,
            finding: Finding::default(),
        }
    }
}

/// Tenants whose numbers are powers of two, which are read as they were written.
fn arb_tenants() -> impl Strategy<Value = Vec<TenantPart>> {
    let number = || prop_oneof![Just(0.0), (-20..43i32).prop_map(|power| f64::from(power).exp2())];
    let numbers = (number(), number(), number(), number(), number(), number());
    let tenant = (1u32.., any::<bool>(), 0..32u8, numbers).prop_map(
        |(id, wants, terms, (shares, used, rate, outstanding, wish, active))| {
            let id = TenantId(id);
            TenantPart { id, shares, used, wants, rate, outstanding, wish, active, terms }
        },
    );
    prop::collection::vec(tenant.boxed(), 0..=MOST_TENANTS)
}

prop_compose! {
    fn arb_record()(
        volume: u64,
        slot in 0..1024u32,
        // At most 16 characters of up to 4 bytes each.
        host in "\\PC{1,16}",
        incarnation: u64,
        sequence: u64,
        period in 0..=LONGEST_PERIOD.0,
        slowed: bool,
        leaving: bool,
        report in arb_report(),
        tenants in arb_tenants(),
    ) -> SlotRecord {
        let body = Publication { period: Span(period), slowed, leaving, report, tenants };
        SlotRecord {
            volume: VolumeId(volume),
            slot: SlotIndex(slot),
            message: Message::new(identity(&host, incarnation), Sequence(sequence), body),
        }
    }
}

/// Makes the checksum match again after an edit.
fn reseal(block: &mut Block) {
    let checksum = crc32c::crc32c(&block.0[..at::CHECKSUM]);
    block.put(at::CHECKSUM, &checksum.to_le_bytes());
}

fn fault_after(edit: impl FnOnce(&mut [u8; SLOT_BYTES])) -> SlotFault {
    let mut block = encode(&example()).unwrap();
    edit(&mut block.0);
    reseal(&mut block);
    match decode(&block, example().slot) {
        Content::Fault(fault) => fault,
        other => panic!("taken as {other:?}"),
    }
}

#[test]
fn a_period_beyond_the_longest_is_read_as_the_longest() {
    let mut block = encode(&example()).unwrap();
    block.put(48, &MOST.to_le_bytes());
    reseal(&mut block);
    let Content::Record(record) = decode(&block, example().slot) else { panic!("no record") };
    assert_eq!(record.message.body.period, LONGEST_PERIOD);
}

proptest! {
    #[test]
    fn what_is_written_is_read(record in arb_record()) {
        let block = encode(&record).unwrap();
        prop_assert_eq!(decode(&block, record.slot), Content::Record(Box::new(record)));
    }

    #[test]
    fn a_torn_record_is_the_old_one_the_new_one_or_none(old in arb_record(), new in arb_record()) {
        let new = SlotRecord { slot: old.slot, ..new };
        let (before, after) = (encode(&old).unwrap(), encode(&new).unwrap());
        for start in [&before, &Block::ZERO] {
            for cut in 0..=RECORD_BYTES {
                let mut torn = start.clone();
                torn.0[..cut].copy_from_slice(&after.0[..cut]);
                let expected = if torn == after {
                    Content::Record(Box::new(new.clone()))
                } else if torn == before {
                    Content::Record(Box::new(old.clone()))
                } else if torn == Block::ZERO {
                    Content::Empty
                } else {
                    let found = decode(&torn, old.slot);
                    prop_assert!(matches!(found, Content::Fault(_)), "cut at {}: {:?}", cut, found);
                    continue;
                };
                prop_assert_eq!(decode(&torn, old.slot), expected);
            }
        }
    }

    #[test]
    fn a_flipped_bit_is_noticed(record in arb_record(), bit in 0..RECORD_BYTES * 8) {
        let mut block = encode(&record).unwrap();
        block.0[bit / 8] ^= 1 << (bit % 8);
        prop_assert!(matches!(decode(&block, record.slot), Content::Fault(_)));
    }

    #[test]
    fn noise_is_no_record(noise in prop::collection::vec(1u8.., RECORD_BYTES), with_magic: bool) {
        let mut block = Block::ZERO;
        block.0[..RECORD_BYTES].copy_from_slice(&noise);
        if with_magic {
            block.0[at::MAGIC].copy_from_slice(MAGIC);
            block.put(at::VERSION, &VERSION.to_le_bytes());
        }
        let fault = if with_magic { SlotFault::Checksum } else { SlotFault::NotARecord };
        prop_assert_eq!(decode(&block, SlotIndex(0)), Content::Fault(fault));
    }

    #[test]
    fn noise_with_a_matching_checksum_says_nothing_impossible(
        noise in prop::collection::vec(any::<u8>(), at::CHECKSUM),
        base in arb_record(),
        edits in prop::collection::vec((48..at::NAME.end, any::<u8>()), 0..4),
    ) {
        let mut wild = Block::ZERO;
        wild.0[..at::CHECKSUM].copy_from_slice(&noise);
        wild.0[at::MAGIC].copy_from_slice(MAGIC);
        wild.put(at::VERSION, &VERSION.to_le_bytes());
        wild.put(at::SLOT, &base.slot.0.to_le_bytes());
        let mut near = encode(&base).unwrap();
        for (at, byte) in edits {
            near.0[at] = byte;
        }
        for mut block in [wild, near] {
            reseal(&mut block);
            if let Content::Record(record) = decode(&block, base.slot) {
                prop_assert!(encode(&record).is_ok(), "{:?}", record);
            }
        }
    }

    /// Wherever a slot holds anything else than zeros or a record, it is nobody's to write: byte by byte.
    #[test]
    fn a_byte_behind_a_record_or_in_zeros_makes_it_foreign(
        record in arb_record(),
        at in RECORD_BYTES..SLOT_BYTES,
        byte in 1u8..,
    ) {
        let foreign = Content::Fault(SlotFault::NotARecord);
        for mut block in [encode(&record).unwrap(), Block::ZERO] {
            block.0[at] = byte;
            prop_assert_eq!(&decode(&block, record.slot), &foreign);
        }
    }
}

#[test]
fn every_byte_of_a_slot_of_zeros_counts() {
    assert_eq!(decode(&Block::ZERO, SlotIndex(0)), Content::Empty);
    for at in 0..SLOT_BYTES {
        let mut block = Block::ZERO;
        block.0[at] = 1;
        let content = decode(&block, SlotIndex(0));
        assert_eq!(content, Content::Fault(SlotFault::NotARecord), "byte {at}");
    }
}

#[test]
fn what_readers_ignore_may_hold_anything() {
    let mut block = encode(&example()).unwrap();
    for (name, range) in documented_fields() {
        if name.starts_with("reserved") {
            block.0[range].fill(0xaa);
        }
    }
    reseal(&mut block);
    assert_eq!(decode(&block, SlotIndex(3)), Content::Record(Box::new(example())));
}

#[test]
fn a_record_of_before_there_were_thresholds_says_nothing_of_its_own() {
    let mut block = encode(&example()).unwrap();
    block.0[at::NAME.end..at::CHECKSUM].fill(0);
    reseal(&mut block);
    let Content::Record(record) = decode(&block, SlotIndex(3)) else { panic!("not a record") };
    let report = record.message.body.report;
    assert_eq!((report.threshold, report.tuning), (Span::ZERO, Tuning::Unsaid));
    assert_eq!(report.settings, None);
    let example = example().message.body.report;
    let rest = Report {
        threshold: Span::from_millis(30),
        tuning: Tuning::Auto,
        settings: example.settings,
        interval: example.interval,
        ..report
    };
    assert_eq!(report.interval.reads.moments, Moments::default());
    assert_eq!(rest, example);
}

#[test]
fn the_signal_of_the_slowest_vm_is_read_as_that_of_all_ios() {
    let mut block = encode(&example()).unwrap();
    block.0[at::SIGNAL] = 3;
    reseal(&mut block);
    assert_eq!(decode(&block, SlotIndex(3)), Content::Record(Box::new(example())));
}

#[test]
fn settings_that_a_later_version_knows_leave_the_rest_of_the_record_as_it_is() {
    for at in [at::HAS_SETTINGS, at::SIGNAL, at::DIVIDES] {
        let mut block = encode(&example()).unwrap();
        block.0[at] = 200;
        reseal(&mut block);
        let Content::Record(record) = decode(&block, SlotIndex(3)) else { panic!("no record") };
        let example = example().message.body.report;
        assert_eq!(record.message.body.report, Report { settings: None, ..example });
    }
}

#[test]
fn each_fault_is_told_apart() {
    let malformed = SlotFault::Malformed;
    assert_eq!(fault_after(|b| b[0] = b'x'), SlotFault::NotARecord);
    assert_eq!(fault_after(|b| b[at::VERSION] = 1), SlotFault::Version(1));
    assert_eq!(fault_after(|b| b[at::SLOT] = 4), SlotFault::WrongSlot(SlotIndex(4)));
    assert_eq!(fault_after(|b| b[165] = 3), malformed("source"));
    assert_eq!(fault_after(|b| b[166] = 2), malformed("leaving"));
    for unknown in [3, 255] {
        assert_eq!(fault_after(|b| b[164] = unknown), malformed("governed"));
    }
    assert_eq!(fault_after(|b| b[at::HOST] ^= 1), malformed("host"));
    assert_eq!(fault_after(|b| b[at::NAME_LEN] = 0), malformed("host name"));
    assert_eq!(fault_after(|b| b[at::NAME_LEN] = 65), malformed("host name"));
    assert_eq!(fault_after(|b| b[at::NAME.start] = 0xff), malformed("host name"));
    assert_eq!(fault_after(|b| b[at::NAME.start] = b'\n'), malformed("host name"));
    assert_eq!(fault_after(|b| put_most(b, 64)), malformed("IO count"));
    assert_eq!(fault_after(|b| put_most(b, 48)), malformed("period"));
    for value in [f64::NAN, f64::INFINITY, -1.0] {
        let fault = fault_after(|b| b[136..144].copy_from_slice(&value.to_le_bytes()));
        assert_eq!(fault, malformed("window"), "{value}");
    }
}

fn put_most(block: &mut [u8; SLOT_BYTES], at: usize) {
    block[at..at + 8].fill(0xff);
}

#[test]
fn what_cannot_be_written_is_refused_by_name() {
    let field = |edit: fn(&mut Report)| {
        let mut record = example();
        edit(&mut record.message.body.report);
        encode(&record).unwrap_err().field
    };
    assert_eq!(field(|r| r.beta = f64::NAN), "beta");
    assert_eq!(field(|r| r.window.0 = -1.0), "window");
    assert_eq!(field(|r| r.outstanding = f64::INFINITY), "outstanding");
    assert_eq!(field(|r| r.interval.writes.ios = MOST + 1), "IO count");
}

fn example_tenant() -> TenantPart {
    TenantPart { id: TenantId::of("gold"), shares: 1000.0, wants: true, ..TenantPart::default() }
}

/// The rows of the page's byte table of a slot: field and where it lies.
fn documented_fields() -> BTreeMap<String, Range<usize>> {
    page_fields("one slot").into_iter().collect()
}

#[test]
fn the_documented_fields_fill_the_slot_without_gap_or_overlap() {
    let mut fields: Vec<_> = documented_fields().into_values().collect();
    fields.sort_by_key(|range| range.start);
    let mut end = 0;
    for range in fields {
        assert_eq!(range.start, end);
        end = range.end;
    }
    assert_eq!(end, SLOT_BYTES);
}

const DEAR_WRITES: Costs = Costs { writes: Charge { io: 7, mib: 7 }, ..Costs::BYTES };

#[test]
fn every_field_lies_where_the_page_says() {
    type Edit = fn(&mut SlotRecord);
    fn settings(record: &mut SlotRecord) -> &mut Settings {
        record.message.body.report.settings.get_or_insert_default()
    }
    let edits: [(&str, Edit); 43] = [
        ("slot", |r| r.slot.0 = 0x0101_0101),
        ("volume", |r| r.volume.0 = !r.volume.0),
        ("incarnation", |r| r.message.from.incarnation.0 ^= u64::MAX),
        ("sequence", |r| r.message.sequence.0 ^= u64::MAX),
        ("period", |r| r.message.body.period.0 += 1),
        ("leaving", |r| r.message.body.leaving = true),
        ("slowed", |r| r.message.body.slowed = true),
        ("elapsed", |r| r.message.body.report.elapsed.0 += 1),
        ("reads: IO count", |r| r.message.body.report.interval.reads.ios += 1),
        ("reads: bytes", |r| r.message.body.report.interval.reads.bytes.0 += 1),
        ("reads: latency sum", |r| r.message.body.report.interval.reads.latency.0 += 1),
        ("reads: scaled latency sum", |r| r.message.body.report.interval.reads.scaled.0 += 1),
        ("writes: IO count", |r| r.message.body.report.interval.writes.ios += 1),
        ("writes: bytes", |r| r.message.body.report.interval.writes.bytes.0 += 1),
        ("writes: latency sum", |r| r.message.body.report.interval.writes.latency.0 += 1),
        ("writes: scaled latency sum", |r| r.message.body.report.interval.writes.scaled.0 += 1),
        ("outstanding", |r| r.message.body.report.outstanding += 0.1),
        ("window", |r| r.message.body.report.window.0 += 0.1),
        ("beta", |r| r.message.body.report.beta += 0.1),
        ("active shares", |r| r.message.body.report.active += 0.1),
        ("shares", |r| r.message.body.report.shares.0 ^= u32::MAX),
        ("governed", |r| r.message.body.report.governed = Governed::Observes),
        ("source", |r| r.message.body.report.source = Source::Local),
        ("threshold", |r| r.message.body.report.threshold.0 += 1),
        ("tuning", |r| r.message.body.report.tuning = Tuning::Joining),
        ("bounded", |r| r.message.body.report.bounded = Bounded::Window),
        ("signal", |r| settings(r).signal = Signal::Reads),
        ("divides", |r| settings(r).costs = Some(Costs::IOPS)),
        ("cost of reads", |r| settings(r).costs = None),
        ("cost of writes", |r| settings(r).costs = Some(DEAR_WRITES)),
        ("asks", |r| r.message.body.report.wants.asks = Some(Span(7))),
        ("floor", |r| r.message.body.report.wants.floor.0 += 7),
        ("IO count of those that ask", |r| r.message.body.report.wants.ios += 7),
        ("saturated throughput", |r| r.message.body.report.saturated.rate += 7.0),
        ("saturated shares", |r| r.message.body.report.saturated.shares += 7.0),
        ("reads: sum of squared sizes", |r| {
            r.message.body.report.interval.reads.moments.squares += 7.0
        }),
        ("reads: sum of size times latency", |r| {
            r.message.body.report.interval.reads.moments.products += 7.0
        }),
        ("writes: sum of squared sizes", |r| {
            r.message.body.report.interval.writes.moments.squares += 7.0
        }),
        ("writes: sum of size times latency", |r| {
            r.message.body.report.interval.writes.moments.products += 7.0
        }),
        ("IOs of reservations", |r| r.message.body.report.reserved += 7.0),
        ("tenants", |r| {
            r.message.body.tenants.resize(MOST_TENANTS, example_tenant());
        }),
        ("name", |r| r.message.from = identity("kvm-02", r.message.from.incarnation.0)),
        ("name length", |r| r.message.from = identity("kvm-0", r.message.from.incarnation.0)),
    ];
    let documented = documented_fields();
    let range = |field: &str| documented.get(field).expect(field).clone();
    let before = encode(&example()).unwrap();
    for (field, edit) in edits {
        let mut record = example();
        edit(&mut record);
        let after = encode(&record).unwrap();
        // The name also shows in its hash and its length.
        let also = match field {
            "name" | "name length" => ["host", "name"],
            "divides" | "cost of writes" => ["divides", "cost of reads"],
            _ => ["checksum"; 2],
        };
        let allowed = [range(field), range("checksum"), range(also[0]), range(also[1])];
        let changed: Vec<_> = (0..SLOT_BYTES).filter(|i| before.0[*i] != after.0[*i]).collect();
        assert!(
            changed.iter().any(|i| range(field).contains(i)),
            "{field} is not where it should be"
        );
        for i in changed {
            assert!(allowed.iter().any(|range| range.contains(&i)), "{field} changes byte {i}");
        }
    }
}

#[test]
fn the_dump_is_the_example() {
    let mut block = Block::ZERO;
    for line in include_str!("example.xxd").lines() {
        // xxd: eight digits of offset, a colon, eight groups of two bytes, two spaces, text.
        let (offset, rest) = line.split_once(": ").unwrap();
        let offset = usize::from_str_radix(offset, 16).unwrap();
        let hex: String = rest.split("  ").next().unwrap().split(' ').collect();
        for i in 0..16 {
            let byte = u8::from_str_radix(&hex[2 * i..2 * i + 2], 16).unwrap();
            block.0[offset - example().slot.offset() as usize + i] = byte;
        }
    }
    let encoded = encode(&example()).unwrap();
    assert!(block == encoded, "the dump should be:\n{}", xxd(&encoded));
}

/// As `xxd -a` prints the slot, which leaves out repeated lines of zeros.
fn xxd(block: &Block) -> String {
    let printable = |b: &u8| if (0x20..0x7f).contains(b) { char::from(*b) } else { '.' };
    block.0[..RECORD_BYTES]
        .chunks(16)
        .enumerate()
        .filter(|(_, line)| line.iter().any(|b| *b != 0))
        .map(|(i, line)| {
            let hex: Vec<_> = line.chunks(2).map(|b| format!("{:02x}{:02x}", b[0], b[1])).collect();
            let text: String = line.iter().map(printable).collect();
            let offset = example().slot.offset() as usize + 16 * i;
            format!("{offset:08x}: {}  {text}\n", hex.join(" "))
        })
        .collect()
}
