//! The bytes of a datagram, as the manual gives them, and arbitrary bytes in their place.

use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;

use proptest::prelude::*;

use super::*;
use crate::identity::Sequence;
use crate::testing::{identity, message, page, page_fields};

/// Keys of a file with these lines.
pub(crate) fn keys(secrets: &[u8]) -> Keys {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("keys");
    let mut file = std::fs::File::options();
    let mut file = file.create(true).write(true).mode(0o600).open(&path).unwrap();
    for secret in secrets {
        writeln!(file, "{}{secret:02x}", "00".repeat(31)).unwrap();
    }
    Keys::read(&path).unwrap()
}

fn volume() -> VolumeId {
    VolumeId::of("array-a")
}

fn sealed(keys: &Keys, echoes: &[Mark]) -> Vec<u8> {
    seal(keys, volume(), &message(identity("kvm-01", 0x18a9_6f2e_5c4d_3b2a), 42), echoes).unwrap().0
}

fn marks(count: u64) -> Vec<Mark> {
    (1..=count).map(|i| Mark(i << 56 | i)).collect()
}

#[test]
fn what_is_written_is_read() {
    let keys = keys(&[1, 2]);
    for count in [0, 1, 64] {
        let bytes = sealed(&keys, &marks(count));
        let read = open(&keys, &bytes).unwrap();
        assert_eq!(read.message, message(identity("kvm-01", 0x18a9_6f2e_5c4d_3b2a), 42));
        assert_eq!((read.volume, &read.echoes), (volume(), &marks(count)));
        assert_eq!(read.mark.0.to_le_bytes(), bytes[bytes.len() - 32..][..8]);
        assert_eq!(bytes.len(), LEAST_BYTES + 8 * count as usize);
    }
    assert_eq!(open(&keys, &sealed(&keys, &marks(99))).unwrap().echoes.len(), MOST_ECHOES);
}

#[test]
fn a_key_is_replaced_without_a_gap() {
    // The new key comes as the second, becomes the first, and the old one goes.
    let steps = [keys(&[1]), keys(&[1, 2]), keys(&[2, 1]), keys(&[2])];
    for pair in steps.windows(2) {
        for (one, other) in [(&pair[0], &pair[1]), (&pair[1], &pair[0])] {
            assert!(open(one, &sealed(other, &[])).is_ok());
        }
    }
    assert_eq!(open(&steps[0], &sealed(&steps[3], &[])), Err(Refused::UnknownKey));
    assert_eq!(open(&steps[0], &sealed(&Keys::public(), &[])), Err(Refused::UnknownKey));
}

#[test]
fn each_fault_has_a_kind_of_its_own() {
    let keys = keys(&[1]);
    let good = sealed(&keys, &marks(3));
    let with = |at: usize, byte: u8| {
        let mut bytes = good.clone();
        bytes[at] ^= byte;
        bytes
    };
    let resigned = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut bytes = good[..good.len() - 32].to_vec();
        change(&mut bytes);
        let tag = keys.first().sign(&bytes);
        bytes.extend_from_slice(tag.as_bytes());
        bytes
    };
    for (bytes, why) in [
        (b"".to_vec(), Refused::Foreign),
        (b"HTTP/1.1 400 Bad Request".to_vec(), Refused::Foreign),
        (with(0, 1), Refused::Foreign),
        (good[..10].to_vec(), Refused::Truncated),
        (with(8, 3), Refused::OtherVersion),
        (good[..100].to_vec(), Refused::Truncated),
        (good[..good.len() - 1].to_vec(), Refused::Truncated),
        ([&good[..], b"x"].concat(), Refused::Oversized),
        (with(14, 1), Refused::Malformed),
        (with(16, 1), Refused::UnknownKey),
        (with(24, 1), Refused::Forged),
        (with(40, 1), Refused::Forged),
        (with(good.len() - 33, 1), Refused::Forged),
        (with(good.len() - 1, 1), Refused::Forged),
        (resigned(&|bytes| bytes[24 + 8] = 9), Refused::OtherVersion),
        (resigned(&|bytes| bytes[24 + 168] = 0), Refused::Malformed),
        (resigned(&|bytes| bytes[24..536].fill(0)), Refused::Malformed),
    ] {
        assert_eq!(open(&keys, &bytes), Err(why), "{} bytes", bytes.len());
    }
}

#[test]
fn a_record_of_a_file_is_none_of_a_datagram() {
    let keys = keys(&[1]);
    let mut bytes = sealed(&keys, &[]);
    let record = slot::encode(&crate::testing::example()).unwrap();
    bytes.truncate(LEAST_BYTES - 32);
    bytes[at::RECORD].copy_from_slice(&record.0[..RECORD_BYTES]);
    let tag = keys.first().sign(&bytes);
    bytes.extend_from_slice(tag.as_bytes());
    assert_eq!(open(&keys, &bytes), Err(Refused::Malformed));
}

proptest! {
    #[test]
    fn no_bytes_make_it_panic_and_none_but_the_signed_ones_are_believed(
        changes in proptest::collection::vec((0usize..LEAST_BYTES + 24, any::<u8>()), 1..4),
        cut in 0usize..=LEAST_BYTES + 24,
        noise in proptest::collection::vec(any::<u8>(), 0..64),
    ) {
        let keys = keys(&[1]);
        let good = sealed(&keys, &marks(3));
        let mut bytes = good.clone();
        for (at, byte) in changes {
            bytes[at] = byte;
        }
        bytes.truncate(cut);
        bytes.extend(noise);
        prop_assert!(open(&keys, &bytes).is_err() || bytes == good);
    }

    #[test]
    fn whatever_a_holder_of_the_key_signs_is_read_or_refused(
        rest in proptest::collection::vec(any::<u8>(), 512 + 8 * 3),
        changed in proptest::bool::ANY,
    ) {
        let keys = keys(&[1]);
        let mut bytes = sealed(&keys, &marks(3));
        bytes.truncate(LEAST_BYTES - 32 + 24);
        if changed {
            bytes[24..].copy_from_slice(&rest);
        } else {
            // The checksum of the record is right, so that its fields are looked at.
            bytes[24 + 12..24 + 508].copy_from_slice(&rest[..496]);
            let checksum = crc32c::crc32c(&bytes[24..24 + 508]);
            bytes[24 + 508..24 + 512].copy_from_slice(&checksum.to_le_bytes());
        }
        let tag = keys.first().sign(&bytes);
        bytes.extend_from_slice(tag.as_bytes());
        let _ = open(&keys, &bytes);
    }
}

#[test]
fn the_page_has_every_field_of_the_datagram() {
    let fields = page_fields("a datagram");
    let expected = [
        ("magic", at::MAGIC),
        ("version", at::VERSION),
        ("length", at::LENGTH),
        ("echoes", at::COUNT),
        ("key", at::KEY),
        ("record", at::RECORD),
    ];
    let expected: Vec<_> = expected.map(|(name, range)| (name.to_owned(), range)).into();
    assert_eq!(fields, expected);
    let page = page();
    for says in
        [format!("{LEAST_BYTES} to {MOST_BYTES} bytes"), format!("at most {MOST_ECHOES} echoes")]
    {
        assert!(page.contains(&says), "{says}");
    }
}

#[test]
fn a_sequence_number_is_part_of_what_is_signed() {
    let keys = keys(&[1]);
    let from = identity("a", 1);
    let mut one = message(from.clone(), 1);
    let (_, first) = seal(&keys, volume(), &one, &[]).unwrap();
    one.sequence = Sequence(2);
    assert_ne!(seal(&keys, volume(), &one, &[]).unwrap().1, first);
}
