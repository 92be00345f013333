//! The header against its rules and against its page in `docs/`.

use proptest::prelude::*;

use super::*;
use crate::testing::page_fields;

fn example() -> Header {
    Header {
        place: PlaceId(0x0123_4567_89ab_cdef_1122_3344_5566_7788),
        slots: SlotCount::new(64).unwrap(),
        volume: Some(VolumeName::new("array-a").unwrap()),
        made_ns: 1_900_000_000_000_000_000,
    }
}

fn reseal(block: &mut Block) {
    let checksum = crc32c::crc32c(&block.0[..at::CHECKSUM]);
    block.0[at::CHECKSUM..at::PADDING].copy_from_slice(&checksum.to_le_bytes());
}

prop_compose! {
    fn arb_header()(
        place: u128,
        slots in 1..=SlotCount::MAX,
        volume in prop::option::of("\\PC{1,60}"),
        made_ns: u64,
    ) -> Header {
        let volume = volume.map(|name| VolumeName::new(&name).unwrap());
        Header { place: PlaceId(place), slots: SlotCount::new(slots).unwrap(), volume, made_ns }
    }
}

proptest! {
    #[test]
    fn what_is_written_is_read(header in arb_header()) {
        prop_assert_eq!(Header::decode(&header.encode()), Ok(header));
    }

    #[test]
    fn a_flipped_bit_anywhere_in_the_block_is_noticed(
        header in arb_header(),
        bit in 0..Block::BYTES * 8,
    ) {
        let mut block = header.encode();
        block.0[bit / 8] ^= 1 << (bit % 8);
        prop_assert!(Header::decode(&block).is_err());
        reseal(&mut block);
        if let Ok(other) = Header::decode(&block) {
            prop_assert_eq!(other.encode(), block);
        }
    }

    #[test]
    fn a_torn_header_is_none(header in arb_header(), cut in 1..at::PADDING) {
        let whole = header.encode();
        for front in [true, false] {
            let mut torn = Block::ZERO;
            let kept = if front { 0..cut } else { cut..Block::BYTES };
            torn.0[kept.clone()].copy_from_slice(&whole.0[kept]);
            prop_assert!(torn == whole || Header::decode(&torn).is_err());
        }
    }

    #[test]
    fn any_bytes_are_judged(bytes in prop::collection::vec(any::<u8>(), Block::BYTES)) {
        let mut block = Block::ZERO;
        block.0.copy_from_slice(&bytes);
        prop_assert!(Header::decode(&block).is_err());
        block.0[at::MAGIC].copy_from_slice(MAGIC);
        block.0[at::FORMAT..at::SLOTS].copy_from_slice(&FORMAT.to_le_bytes());
        reseal(&mut block);
        prop_assert!(Header::decode(&block).is_err());
    }
}

#[test]
fn each_fault_is_told_apart() {
    let fault = |edit: &dyn Fn(&mut Block)| {
        let mut block = example().encode();
        edit(&mut block);
        Header::decode(&block).unwrap_err()
    };
    assert_eq!(fault(&|b| *b = Block::ZERO), PlaceFault::Blank);
    assert_eq!(fault(&|b| b.0[at::FORMAT] = 3), PlaceFault::Format(3));
    assert_eq!(fault(&|b| b.0[at::NAME.start] ^= 1), PlaceFault::Damaged);
    let record = slot::encode(&crate::testing::example()).unwrap();
    assert_eq!(fault(&|b| *b = record.clone()), PlaceFault::OldFormat);
    let ext4 = fault(&|b| {
        *b = Block::ZERO;
        b.0[1080..1082].copy_from_slice(b"\x53\xef");
    });
    assert_eq!(ext4.to_string(), "it is no exchange: it holds an ext2, ext3 or ext4 file system");
    let over = fault(&|b| b.0[4086..].copy_from_slice(b"SWAPSPACE2"));
    assert!(over.to_string().contains("and over it swap space"), "{over}");
    for at in [at::SLOT_BYTES, at::VOLUME, at::NAME.end, at::CHECKSUM - 1] {
        let resealed = fault(&|b| {
            b.0[at] ^= 1;
            reseal(b);
        });
        assert_eq!(resealed, PlaceFault::Damaged, "byte {at}");
    }
}

#[test]
fn every_field_lies_where_the_page_says() {
    type Edit = fn(&mut Header);
    let fields = page_fields("header");
    let mut end = 0;
    for (_, range) in &fields {
        assert_eq!(range.start, end);
        end = range.end;
    }
    assert_eq!(end, Block::BYTES);
    let edits: [(&str, Edit); 5] = [
        ("slots", |h| h.slots = SlotCount::new(65).unwrap()),
        ("place", |h| h.place.0 = !h.place.0),
        ("made", |h| h.made_ns = !h.made_ns),
        ("volume", |h| h.volume = Some(VolumeName::new("array-b").unwrap())),
        ("name", |h| h.volume = None),
    ];
    let before = example().encode();
    for (field, edit) in edits {
        let mut header = example();
        edit(&mut header);
        let after = header.encode();
        let about_name = ["volume", "name"].contains(&field);
        let allowed = |name: &str| {
            name == field
                || name == "checksum"
                || (about_name && ["volume", "name", "name length"].contains(&name))
        };
        let changed: Vec<&str> = (0..Block::BYTES)
            .filter(|i| before.0[*i] != after.0[*i])
            .filter_map(|i| fields.iter().find(|(_, range)| range.contains(&i)))
            .map(|(name, _)| name.as_str())
            .collect();
        assert!(changed.contains(&field), "{field} is not where it should be");
        assert!(changed.iter().all(|name| allowed(name)), "{field}: {changed:?}");
    }
}
