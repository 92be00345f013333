//! Hosts on one medium in memory: the records that they hear of each other, and their events.

mod versions;

use proptest::prelude::*;

use super::*;
use crate::claim::{self, Rival, chosen};
use crate::freshness::Liveness;
use crate::header::VolumeName;
use crate::memory::MemoryRegion;
use crate::peers::Peers;
use crate::region::{Block, RegionFault, SlotCount};
use crate::testing::{PERIOD, at, exchange, identity, leaving, live, publication};

const AUTOMATIC: SlotChoice = SlotChoice::Automatic;

fn fixed(slot: u32) -> SlotChoice {
    SlotChoice::Fixed(SlotIndex(slot))
}

fn medium(slots: u32) -> MemoryRegion {
    MemoryRegion::new(SlotCount::new(slots).unwrap())
}

/// One period of a host: its events, and whether it could publish.
fn period(
    host: &mut SlotExchange,
    now: Instant,
) -> (Vec<ExchangeEvent>, Result<(), ExchangeError>) {
    let events = host.collect(now).unwrap().events;
    (events, host.publish(&publication(16.0)))
}

/// Periods of hosts one after the other, all of which must work. Returns the events of each.
fn periods(
    hosts: &mut [&mut SlotExchange],
    range: std::ops::Range<u64>,
) -> Vec<Vec<ExchangeEvent>> {
    let mut noticed = vec![Vec::new(); hosts.len()];
    for now in range {
        for (host, noticed) in hosts.iter_mut().zip(&mut noticed) {
            let (events, published) = period(host, at(now));
            published.unwrap();
            noticed.extend(events);
        }
    }
    noticed
}

/// Checks that a publication failed, for this reason.
fn says(published: Result<(), ExchangeError>, why: &str) {
    let error = published.unwrap_err().to_string();
    assert!(error.contains(why), "{error}");
}

const OCCUPIED: &str = "slot 1 holds neither zeros nor a record";

fn conflict(slot: u32, rival: Rival, moving: bool) -> ExchangeEvent {
    claim::conflict(SlotIndex(slot), &rival, moving)
}

#[test]
fn hosts_hear_each_other() {
    let medium = medium(8);
    let mut a = exchange(&medium, identity("a", 1), fixed(0));
    let mut b = exchange(&medium, identity("b", 1), fixed(7));
    let mut peers = Peers::new(identity("a", 1).host.id());
    for now in 0..3 {
        let heard = a.collect(at(now)).unwrap();
        assert!(heard.events.is_empty());
        peers.observe(at(now), &heard.messages);
        a.publish(&publication(1.0)).unwrap();
        b.collect(at(now)).unwrap();
        b.publish(&publication(now as f64)).unwrap();
    }
    assert_eq!(live(&peers, at(2)), [publication(1.0).report]);
    b.publish(&leaving()).unwrap();
    peers.observe(at(3), &a.collect(at(3)).unwrap().messages);
    assert_eq!(peers.all(at(3)).next().unwrap().liveness, Liveness::Left);
    // a: 0 + 2 + 2 + 2 slots with a record.
    assert_eq!(a.counters(), RecordCounters { records: 6, ..RecordCounters::default() });
}

#[test]
fn a_slot_that_does_not_exist_is_refused() {
    let settings = SlotSettings {
        me: identity("a", 1),
        volume: VolumeId::of("array-a"),
        choice: fixed(8),
        period: PERIOD,
        make: String::new(),
    };
    let error = SlotExchange::new(medium(8), settings).err().unwrap();
    assert_eq!(error.to_string(), "slot 8 does not exist: there are 8 slots, from 0 to 7");
}

#[test]
fn what_is_not_of_this_volume_and_intact_is_ignored_and_counted() {
    let medium = medium(8);
    let mut a = exchange(&medium, identity("a", 1), fixed(0));
    let mut other = exchange(&medium, identity("b", 1), fixed(1));
    other.volume = VolumeId::of("array-b");
    period(&mut other, at(0)).1.unwrap();
    medium.edit(|blocks| {
        blocks[2] = blocks[1].clone();
        blocks[3] = blocks[1].clone();
        blocks[3].0[100] ^= 1;
        blocks[4] = blocks[1].clone();
        blocks[4].0[8] = 9;
        blocks[5] = Block([7; Block::BYTES]);
    });
    let heard = a.collect(at(0)).unwrap();
    assert_eq!(heard.messages, []);
    let expected = RecordCounters {
        other_volume: 1,
        malformed: 1,
        damaged: 1,
        other_version: 1,
        foreign: 1,
        ..RecordCounters::default()
    };
    assert_eq!(a.counters(), expected);
}

#[test]
fn two_hosts_with_one_fixed_slot_both_say_so_once() {
    let medium = medium(4);
    let mut a = exchange(&medium, identity("a", 1), fixed(2));
    let mut b = exchange(&medium, identity("b", 2), fixed(2));
    let noticed = periods(&mut [&mut a, &mut b], 0..5);
    assert_eq!(noticed[0], [conflict(2, Rival::Host(identity("b", 2)), false)]);
    assert_eq!(noticed[1], [conflict(2, Rival::Host(identity("a", 1)), false)]);
    assert_eq!(a.counters().slot_conflicts, 4);
    // b's first look cannot tell a's record from a dead host's.
    assert_eq!(b.counters().slot_conflicts, 4);
}

#[test]
fn another_rival_is_said_again() {
    let medium = medium(4);
    let mut a = exchange(&medium, identity("a", 1), fixed(2));
    for run in [5, 6] {
        let mut b = exchange(&medium, identity("b", run), fixed(2));
        let noticed = periods(&mut [&mut a, &mut b], 0..3);
        let rival = Rival::Host(identity("b", run));
        assert_eq!(noticed[0].last(), Some(&conflict(2, rival, false)), "run {run}");
    }
}

#[test]
fn a_host_of_another_volume_or_version_is_a_rival_too() {
    let medium = medium(4);
    let mut a = exchange(&medium, identity("a", 1), fixed(2));
    let mut b = exchange(&medium, identity("b", 2), fixed(2));
    b.volume = VolumeId::of("array-b");
    let noticed = periods(&mut [&mut a, &mut b], 0..3);
    let rival = Rival::OtherVolume { host: identity("b", 2), volume: b.volume };
    assert_eq!(noticed[0], [conflict(2, rival, false)]);
    for sequence in 0..3 {
        medium.edit(|blocks| {
            blocks[2].0[8] = 3;
            blocks[2].0[40] = sequence;
        });
        let events = period(&mut a, at(3)).0;
        let expected = [conflict(2, Rival::OtherVersion(3), false)];
        assert_eq!(events, if sequence == 0 { &expected[..] } else { &[] });
    }
}

#[test]
fn a_dead_hosts_record_in_our_slot_is_no_rival() {
    let medium = medium(4);
    let mut dead = exchange(&medium, identity("dead", 9), fixed(2));
    periods(&mut [&mut dead], 0..3);
    let mut a = exchange(&medium, identity("a", 1), fixed(2));
    assert_eq!(periods(&mut [&mut a], 3..6), [[]]);
}

#[test]
fn a_restarted_host_takes_over_from_its_predecessor_without_a_word() {
    for choice in [fixed(2), AUTOMATIC] {
        let medium = medium(64);
        let mut before = exchange(&medium, identity("a", 1), choice);
        periods(&mut [&mut before], 0..3);
        let mut after = exchange(&medium, identity("a", 2), choice);
        let noticed = periods(&mut [&mut after], 3..9);
        assert_eq!(after.slot(), before.slot());
        let event = chosen(after.slot().unwrap());
        assert_eq!(noticed, [if choice == AUTOMATIC { vec![event] } else { vec![] }]);
    }
}

#[test]
fn automatic_hosts_of_one_name_part() {
    let medium = medium(8);
    let mut a = exchange(&medium, identity("a", 1), AUTOMATIC);
    let mut twin = exchange(&medium, identity("a", 2), AUTOMATIC);
    periods(&mut [&mut a, &mut twin], 0..9);
    assert_ne!(a.slot(), twin.slot());
}

#[test]
fn automatic_hosts_all_find_a_slot_of_their_own_even_in_a_full_file() {
    let medium = medium(16);
    let mut hosts: Vec<_> = (0..16)
        .map(|i| exchange(&medium, identity(&format!("kvm-{i:02}"), i), AUTOMATIC))
        .collect();
    let mut hosts: Vec<_> = hosts.iter_mut().collect();
    // All look before anyone writes: the worst start.
    for host in &mut hosts {
        host.collect(at(0)).unwrap();
    }
    for now in 1..40 {
        for host in &mut hosts {
            // While two fight for the last slots, one may find none free for a period.
            let _ = host.publish(&publication(1.0));
        }
        for host in &mut hosts {
            host.collect(at(now)).unwrap();
        }
    }
    let mut slots: Vec<_> = hosts.iter().map(|h| h.slot().unwrap().0).collect();
    slots.sort_unstable();
    assert_eq!(slots, (0..16).collect::<Vec<_>>());
}

/// Two automatic hosts, the earlier first, that have both chosen the same slot.
fn contenders(medium: &MemoryRegion) -> (SlotExchange, SlotExchange, SlotIndex) {
    let slots = u64::from(medium.slots().get());
    let mut names = (0..).map(|i| format!("kvm-{i}"));
    let first = names.next().unwrap();
    let start = |name: &str| identity(name, 0).host.id().0 % slots;
    let second = names.find(|name| start(name) == start(&first)).unwrap();
    let mut early = exchange(medium, identity(&first, 1), AUTOMATIC);
    let mut late = exchange(medium, identity(&second, 2), AUTOMATIC);
    early.collect(at(0)).unwrap();
    late.collect(at(0)).unwrap();
    let slot = early.slot().unwrap();
    assert_eq!(late.slot(), Some(slot));
    (early, late, slot)
}

#[test]
fn of_two_automatic_hosts_the_later_one_moves() {
    let medium = medium(8);
    let (mut early, mut late, slot) = contenders(&medium);
    early.publish(&publication(1.0)).unwrap();
    late.publish(&publication(1.0)).unwrap();
    let noticed = periods(&mut [&mut early, &mut late], 1..6);
    assert_eq!(early.slot(), Some(slot));
    let next = SlotIndex((slot.0 + 1) % 8);
    assert_eq!(late.slot(), Some(next));
    assert_eq!(noticed[0], [conflict(slot.0, Rival::Host(late.me.clone()), false)]);
    let rival = Rival::Host(early.me.clone());
    assert_eq!(noticed[1], [conflict(slot.0, rival, true), chosen(next)]);
}

#[test]
fn the_earlier_one_moves_if_the_beat_blinds_the_later_one() {
    let medium = medium(8);
    let (mut early, mut late, slot) = contenders(&medium);
    let mut moved_at = None;
    for now in 1..10 {
        early.publish(&publication(1.0)).unwrap();
        late.publish(&publication(1.0)).unwrap();
        early.collect(at(now)).unwrap();
        late.collect(at(now)).unwrap();
        if moved_at.is_none() && early.slot() != Some(slot) {
            moved_at = Some(now);
        }
    }
    assert_eq!(late.slot(), Some(slot));
    assert_eq!(moved_at, Some(4), "not before the later one had its three chances");
}

#[test]
fn automatic_choice_takes_what_is_left_or_gone_but_no_living_slot() {
    let medium = medium(3);
    let mut lives = exchange(&medium, identity("lives", 1), fixed(0));
    let mut dead = exchange(&medium, identity("dead", 1), fixed(1));
    let mut left = exchange(&medium, identity("left", 1), fixed(2));
    periods(&mut [&mut lives, &mut dead, &mut left], 0..1);
    let mut a = exchange(&medium, identity("a", 2), AUTOMATIC);
    let (events, published) = period(&mut a, at(1));
    assert!(events.is_empty());
    let full = published.unwrap_err().to_string();
    assert!(full.contains("none of its 3 slots is free: make a larger exchange"), "{full}");
    left.publish(&leaving()).unwrap();
    periods(&mut [&mut lives, &mut a], 2..3);
    assert_eq!(a.slot(), Some(SlotIndex(2)));
    let mut b = exchange(&medium, identity("b", 3), AUTOMATIC);
    for now in 3..34 {
        periods(&mut [&mut lives, &mut a], now..now + 1);
        says(period(&mut b, at(now)).1, "none of its 3 slots is free");
    }
    periods(&mut [&mut lives, &mut a, &mut b], 34..35);
    assert_eq!(b.slot(), Some(SlotIndex(1)));
}

#[test]
fn data_that_is_no_record_is_never_written_over() {
    let medium = medium(4);
    let noise = Block([0x5a; Block::BYTES]);
    medium.edit(|blocks| blocks.fill(noise.clone()));
    let mut a = exchange(&medium, identity("a", 1), fixed(1));
    let mut b = exchange(&medium, identity("b", 1), AUTOMATIC);
    for now in 0..100 {
        says(period(&mut a, at(now)).1, OCCUPIED);
        let refused = period(&mut b, at(now)).1.unwrap_err();
        let said = refused.to_string();
        let expected = "none of its 4 slots is free: 4 of them hold neither zeros nor a record";
        assert!(said.contains(expected) && !said.contains("raise `slots`"), "{said}");
    }
    medium.edit(|blocks| assert!(blocks.iter().all(|block| *block == noise)));
    medium.edit(|blocks| blocks.fill(Block::ZERO));
    periods(&mut [&mut a, &mut b], 100..102);
}

/// What a host finds of a place whose header was changed, and that it writes nothing.
fn refused(
    medium: &MemoryRegion,
    host: &mut SlotExchange,
    edit: impl FnOnce(&mut Block),
) -> String {
    let mut before = Vec::new();
    medium.edit_header(edit);
    medium.edit(|blocks| before.extend_from_slice(blocks));
    let error = host.collect(at(50)).unwrap_err().to_string();
    let published = host.publish(&publication(2.0)).unwrap_err().to_string();
    assert!(host.publish(&leaving()).is_err());
    medium.edit(|blocks| assert!(blocks == before));
    assert!(published == error || published.contains("not written before"), "{published}");
    error
}

#[test]
fn a_place_that_is_not_this_volumes_exchange_is_never_written() {
    let medium = medium(4);
    let ours = Header::new(SlotCount::new(4).unwrap(), None);
    let of = |name: &str| Header { volume: Some(VolumeName::new(name).unwrap()), ..ours.clone() };
    for known in [false, true] {
        let mut a = exchange(&medium, identity("a", 1), fixed(1));
        if known {
            medium.edit_header(|block| *block = of("array-a").encode());
            periods(&mut [&mut a], 0..3);
        }
        let mut refused = |block: Block, says: &str| {
            let error = refused(&medium, &mut a, |header| *header = block);
            assert!(error.contains(says) && error.contains("Nothing was written"), "{error}");
        };
        let (zeros, advice) = match known {
            false => ("never made an exchange", "Make it, once, on one host"),
            true => ("there are zeros in its place", "Make it anew, on one host"),
        };
        refused(Block::ZERO, zeros);
        refused(Block::ZERO, &format!("{advice}: parda exchange init memory"));
        refused(Block([7; Block::BYTES]), "it holds other data (byte 0 is 0x07)");
        refused(slot::encode(&crate::testing::example()).unwrap(), "an exchange of format 1");
        refused(of("array-b").encode(), "made for the volume \"array-b\"");
        let more = Header { slots: SlotCount::new(5).unwrap(), ..ours.clone() };
        refused(more.encode(), "has 5 slots, but the configuration says slots = 4");
        let mut damaged = ours.encode();
        damaged.0[100] ^= 1;
        refused(damaged, "torn or damaged");
        for at in [512, 1080, 4095] {
            let mut over = of("array-a").encode();
            over.0[at] = 1;
            refused(over, "the header of an exchange, and over it other data");
        }
        // And it is used again once it is itself again.
        medium.edit_header(|block| *block = of("array-a").encode());
        periods(&mut [&mut a], 60..62);
    }
}

#[test]
fn a_place_that_was_replaced_by_an_older_one_is_not_written_until_an_operator_says_so() {
    let older = Header::new(SlotCount::new(4).unwrap(), None).encode();
    let medium = medium(4);
    let mut a = exchange(&medium, identity("a", 1), fixed(1));
    periods(&mut [&mut a], 0..3);
    let error = refused(&medium, &mut a, |header| *header = older);
    assert!(error.contains("it was replaced") && error.contains("reload the agents"), "{error}");
    a.reload();
    periods(&mut [&mut a], 60..62);
}

#[test]
fn a_place_that_is_made_anew_is_used_by_all_hosts() {
    let medium = medium(4);
    let mut a = exchange(&medium, identity("a", 1), fixed(1));
    let mut b = exchange(&medium, identity("b", 1), fixed(2));
    periods(&mut [&mut a, &mut b], 0..3);
    // One host has seen that it was lost, the other one not.
    refused(&medium, &mut a, |header| *header = Block::ZERO);
    let anew = Header::new(SlotCount::new(4).unwrap(), None).encode();
    medium.edit_header(|header| *header = anew);
    medium.edit(|blocks| blocks.fill(Block::ZERO));
    for noticed in periods(&mut [&mut a, &mut b], 60..62) {
        let [event] = &noticed[..] else { panic!("{noticed:?}") };
        assert!(event.to_string().contains("was made anew"), "{event}");
    }
}

#[test]
fn a_slot_that_became_foreign_since_the_last_look_is_not_written() {
    let medium = medium(4);
    let mut a = exchange(&medium, identity("a", 1), fixed(1));
    periods(&mut [&mut a], 0..3);
    // As in a farewell, there was no look since the last write.
    let foreign = Block([7; Block::BYTES]);
    medium.edit(|blocks| blocks[1] = foreign.clone());
    says(a.publish(&leaving()), OCCUPIED);
    medium.edit(|blocks| assert_eq!(blocks[1], foreign));
}

#[test]
fn nothing_is_written_before_the_first_read_worked() {
    let medium = medium(4);
    let mut a = exchange(&medium, identity("a", 1), fixed(1));
    medium.fail_reads(Some(|| RegionFault::ReadOnly));
    assert!(a.collect(at(0)).is_err());
    says(a.publish(&publication(1.0)), "not written before it could be read once");
    medium.edit(|blocks| assert_eq!(blocks[1], Block::ZERO));
}

#[test]
fn every_fault_passes() {
    let medium = medium(4);
    let mut a = exchange(&medium, identity("a", 1), fixed(0));
    let mut b = exchange(&medium, identity("b", 1), fixed(1));
    let mut peers = Peers::new(b.me.host.id());
    periods(&mut [&mut a, &mut b], 0..3);
    let limit = || RegionFault::Timeout(std::time::Duration::from_secs(1));
    medium.fail_writes(Some(|| RegionFault::ReadOnly));
    says(a.publish(&publication(1.0)), "it is read-only");
    assert!(a.collect(at(3)).is_ok(), "reading goes on where writing fails");
    medium.fail_writes(None);
    medium.fail_reads(Some(limit));
    assert!(a.collect(at(4)).is_err());
    // Nothing is written that was not looked at in the same period.
    says(a.publish(&publication(1.0)), "no answer within 1s");
    medium.fail_reads(None);
    a.publish(&publication(1.0)).unwrap();
    medium.edit(|blocks| blocks.fill(Block::ZERO));
    for now in 5..9 {
        assert_eq!(periods(&mut [&mut a], now..now + 1), [[]]);
        peers.observe(at(now), &b.collect(at(now)).unwrap().messages);
    }
    assert_eq!(live(&peers, at(8)).len(), 1);
}

#[test]
fn a_report_that_cannot_be_written_is_refused() {
    let mut a = exchange(&medium(4), identity("a", 1), fixed(0));
    a.collect(at(0)).unwrap();
    says(a.publish(&publication(f64::NAN)), "window = NaN cannot be published");
    a.publish(&publication(1.0)).unwrap();
}

proptest! {
    /// After any damage to the medium, automatic hosts come to slots of their own and hear each
    /// other again.
    #[test]
    fn the_exchange_heals(
        hosts in 2..6u64,
        harm in prop::collection::vec((0..8usize, 0..Block::BYTES, 1..=255u8), 0..20),
        order in prop::collection::vec(any::<prop::sample::Index>(), 20..60),
    ) {
        let medium = medium(8);
        let mut hosts: Vec<_> =
            (0..hosts).map(|i| exchange(&medium, identity(&format!("h{i}"), i), AUTOMATIC)).collect();
        for (now, index) in order.iter().enumerate() {
            let host = index.index(hosts.len());
            let host = &mut hosts[host];
            if now % 2 == 0 {
                host.collect(at(now as u64)).unwrap();
            } else {
                let _ = host.publish(&publication(1.0));
            }
            if let Some((slot, byte, flip)) = harm.get(now) {
                medium.edit(|blocks| blocks[*slot].0[*byte] ^= flip);
            }
        }
        medium.edit(|blocks| blocks.fill(Block::ZERO));
        let mut heard = Vec::new();
        for now in 100..110 {
            for host in &mut hosts {
                heard = host.collect(at(now)).unwrap().messages;
                host.publish(&publication(1.0)).unwrap();
            }
        }
        prop_assert_eq!(heard.len() + 1, hosts.len());
    }
}

/// Number of slots that a host's next look shows.
fn shown(host: &SlotExchange) -> u32 {
    host.reach.unwrap_or(64)
}

#[test]
fn only_slots_in_use_are_read_and_a_host_beyond_them_is_found_all_the_same() {
    let medium = medium(64);
    let mut a = exchange(&medium, identity("a", 1), AUTOMATIC);
    let mut b = exchange(&medium, identity("b", 1), AUTOMATIC);
    periods(&mut [&mut a, &mut b], 0..10);
    assert_eq!((shown(&a), shown(&b)), (8, 8));
    assert!(a.slot().unwrap().0 < 8 && b.slot().unwrap().0 < 8);
    // As hosts of earlier versions do, it takes any slot.
    let mut old = exchange(&medium, identity("old", 1), fixed(63));
    periods(&mut [&mut a, &mut b, &mut old], 10..10 + ALL_EVERY + 1);
    assert_eq!((shown(&a), shown(&b)), (64, 64));
    let heard = a.collect(at(30)).unwrap().messages;
    assert!(heard.iter().any(|message| message.from.host.as_str() == "old"));
    // When the host is gone, its slot is read no more.
    periods(&mut [&mut a, &mut b], 30..30 + 80);
    assert_eq!((shown(&a), shown(&b)), (8, 8));
}

#[test]
fn many_hosts_that_start_at_once_each_find_a_slot_that_all_read() {
    let medium = medium(64);
    let names: Vec<String> = (0..40).map(|i| format!("kvm-{i:02}")).collect();
    let identities = names.iter().zip(1..).map(|(name, run)| identity(name, run));
    let mut hosts: Vec<_> = identities.map(|me| exchange(&medium, me, AUTOMATIC)).collect();
    // All read before any writes.
    for now in 0..60 {
        hosts.iter_mut().for_each(|host| drop(host.collect(at(now)).unwrap()));
        for host in &mut hosts {
            // A host that was driven out may find no slot in this period.
            let _ = host.publish(&publication(16.0));
        }
    }
    let taken: std::collections::BTreeSet<_> = hosts.iter().filter_map(|h| h.slot()).collect();
    assert_eq!(taken.len(), 40);
    for host in &mut hosts {
        let heard = host.collect(at(61)).unwrap().messages;
        assert_eq!(heard.len(), 39);
        assert!(shown(host) <= 56, "{}", shown(host));
    }
}
