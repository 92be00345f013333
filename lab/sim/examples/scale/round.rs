//! CPU time of one control round of a host: what the others said is decoded and added up, and the law ticks.

use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant as Clock};

use parda_control::belief::Judging;
use parda_control::{
    Config, Host, Instant, Measurement, Period, Report, Shares, Span, View, VmConfig,
};
use parda_exchange::region::Block;
use parda_exchange::slot::{self, Content, RECORD_BYTES, SlotRecord};
use parda_exchange::udp::{is_datagram, signed};
use parda_exchange::{
    HostName, Identity, Incarnation, Message, Peers, Publication, Sequence, SlotIndex, VolumeId,
};

use crate::Fallible;

/// Messages that are taken in for a measurement, and least number of rounds.
const MESSAGES: u64 = 400_000;
const ROUNDS: u64 = 50;

/// Bytes before the record of a datagram, and of the 8 echoes after it.
const FRONT: usize = 24;
const ECHOES: usize = 64;

/// Slot number of a record in a datagram.
const NO_SLOT: SlotIndex = SlotIndex(u32::MAX);

pub(crate) fn table(sizes: &[u64]) -> Fallible<()> {
    println!(
        "| hosts | law and peers, µs | with slots decoded, µs | with datagrams verified, µs |\n| ---: | ---: | ---: | ---: |"
    );
    for hosts in sizes {
        let [law, slots, datagrams] = measure(*hosts)?;
        let [slots, datagrams] = [law + slots, law + datagrams];
        println!("| {hosts} | {law:.1} | {slots:.1} | {datagrams:.1} |");
    }
    Ok(())
}

/// Least times of the law's part of a round, and of decoding all slots and all datagrams, in µs: what else the machine does makes a round
/// slower, never faster.
fn measure(hosts: u64) -> Fallible<[f64; 3]> {
    let mut period = Period::new(Config::default())?;
    let mut host = Host::new(Instant(0), period.decision());
    host.add_vm(Instant(0), VmConfig::of(Shares(1000)));
    let mut measured = Measurement::default();
    let mut tick = |now, view| {
        host.measure(now, &mut measured);
        let report = period.tick(&mut measured, view, None);
        host.apply(now, period.decision());
        report
    };
    let own = tick(Instant(1), View::Silent);
    let names = (0..hosts).map(|n| HostName::new(&format!("host-{n:04}")));
    let names: Vec<_> = names.collect::<Result<_, _>>()?;
    let mut peers = Peers::new(names[0].id());
    let mut judging = Judging::default();
    let rounds = (MESSAGES / hosts).max(ROUNDS);
    let mut took = [Duration::MAX; 3];
    for round in 1..=rounds {
        let said: Vec<_> = names[1..].iter().map(|name| message(name, round, own)).collect();
        let now = Instant(round * 1_000_000_000);
        took[0] = took[0].min(time(|| {
            peers.observe(now, &said);
            let view = peers.totals(now, &mut judging).map_or(View::Silent, View::Peers);
            tick(now, view)
        }));
        let blocks = said.iter().map(|message| block(message, SlotIndex(0)));
        let blocks: Vec<_> = blocks.collect::<Result<_, _>>()?;
        let is_record =
            |block: &Block| matches!(slot::decode(block, SlotIndex(0)), Content::Record(_));
        let mut good = 0;
        let decoded = || good += blocks.iter().filter(|block| is_record(block)).count();
        took[1] = took[1].min(time(decoded));
        let datagrams = said.iter().map(|message| datagram(message));
        let datagrams: Vec<_> = datagrams.collect::<Result<_, _>>()?;
        let verified = || good += datagrams.iter().filter(|bytes| is_datagram(bytes)).count();
        took[2] = took[2].min(time(verified));
        if good != 2 * said.len() {
            return Err("a record or a datagram cannot be read".into());
        }
    }
    Ok(took.map(|took| took.as_secs_f64() * 1e6))
}

fn time<T>(work: impl FnOnce() -> T) -> Duration {
    let began = Clock::now();
    black_box(work());
    began.elapsed()
}

fn message(host: &HostName, sequence: u64, report: Report) -> Arc<Message> {
    let from = Identity { host: host.clone(), incarnation: Incarnation(1) };
    let body = Publication {
        period: Span::from_millis(1000),
        slowed: false,
        leaving: false,
        report,
        tenants: Vec::new(),
    };
    Arc::new(Message::new(from, Sequence(sequence), body))
}

fn block(message: &Message, slot: SlotIndex) -> Fallible<Block> {
    Ok(slot::encode(&SlotRecord {
        volume: VolumeId::of("array-a"),
        slot,
        message: message.clone(),
    })?)
}

fn datagram(message: &Message) -> Fallible<Vec<u8>> {
    let mut bytes = vec![0; FRONT];
    bytes.extend_from_slice(&block(message, NO_SLOT)?.0[..RECORD_BYTES]);
    bytes.resize(bytes.len() + ECHOES, 1);
    Ok(signed(&bytes))
}
