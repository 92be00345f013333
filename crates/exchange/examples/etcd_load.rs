//! What hosts of one volume cost a real etcd of three members:
//! `cargo run --release --locked --package parda-exchange --example etcd_load -- 10 100`.
//!
//! Each host is an exchange of its own, with its connections and its thread, at the period that so many hosts have.
//! Bytes are those of bodies, as etcd and hosts count them; CPU time is that of all members together.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a measurement says what it finds")]

use std::path::PathBuf;
use std::thread::sleep;
use std::time::{Duration, Instant};

use parda_control::{Instant as Now, Report, Shares, Span, Window};
use parda_etcd::{Endpoint, EtcdAccess, Traffic};
use parda_exchange::etcd::{EtcdExchange, EtcdLimits, EtcdSettings, pace};
use parda_exchange::{Exchange, HostName, Publication, Standing};
use parda_testkit::TestEtcd;

/// Time that is measured, after as much that is not.
const MEASURED: Duration = Duration::from_secs(20);

fn main() {
    println!("hosts  period s  calls/s  writes/s  kB/s in  kB/s out  CPU s/s  read ms  failed");
    for hosts in std::env::args().skip(1) {
        measure(hosts.parse().unwrap());
    }
}

fn measure(hosts: usize) {
    let dir = std::env::temp_dir().join(format!("etcd-load-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    let etcd = TestEtcd::start(&dir, 3);
    let period = Span::from_millis(1_000).max(pace(hosts));
    let measured = MEASURED.max(Duration::from(period) * 5);
    let begun = Instant::now();
    let (count, since, cpu) = std::thread::scope(|scope| {
        let run = |host| {
            let exchange = exchange(&etcd, host, period);
            scope
                .spawn(move || drive(exchange, host as f64 / hosts as f64, period, begun, measured))
        };
        let threads: Vec<_> = (0..hosts).map(run).collect();
        sleep(measured.saturating_sub(begun.elapsed()));
        let (cpu, since) = (etcd.cpu_seconds(), Instant::now());
        sleep((2 * measured).saturating_sub(begun.elapsed()));
        let (cpu, since) = (etcd.cpu_seconds() - cpu, since.elapsed());
        let counts = threads.into_iter().map(|thread| thread.join().unwrap());
        (counts.fold(Count::default(), Count::plus), since, cpu)
    });
    let seconds = since.as_secs_f64();
    let rate = |count: u64| count as f64 / seconds;
    println!(
        "{hosts:5}  {:8.2}  {:7.1}  {:8.1}  {:7.1}  {:8.1}  {:7.3}  {:7.1}  {:6}",
        period.secs(),
        rate(count.calls),
        rate(count.writes),
        rate(count.sent) / 1e3,
        rate(count.received) / 1e3,
        cpu / seconds,
        count.slowest.as_secs_f64() * 1e3,
        count.failed,
    );
    drop(etcd);
    // A directory that stays behind is no harm to the next measurement.
    let _ = std::fs::remove_dir_all(PathBuf::from(&dir));
}

/// What a host did in the second half.
#[derive(Default)]
struct Count {
    calls: u64,
    writes: u64,
    sent: u64,
    received: u64,
    failed: u64,
    slowest: Duration,
}

impl Count {
    fn plus(self, other: Count) -> Count {
        Count {
            calls: self.calls + other.calls,
            writes: self.writes + other.writes,
            sent: self.sent + other.sent,
            received: self.received + other.received,
            failed: self.failed + other.failed,
            slowest: self.slowest.max(other.slowest),
        }
    }
}

/// Rounds of one host, as an agent makes them.
fn drive(
    mut host: EtcdExchange,
    phase: f64,
    period: Span,
    begun: Instant,
    measured: Duration,
) -> Count {
    let mut count = Count::default();
    let mut before = None;
    let mut next = Duration::from(period).mul_f64(phase);
    while next < 2 * measured {
        sleep(next.saturating_sub(begun.elapsed()));
        if next >= measured && before.is_none() {
            before = Some(traffic(&host));
            count = Count::default();
        }
        let read = Instant::now();
        let now = Now(u64::try_from(begun.elapsed().as_nanos()).unwrap());
        count.failed += u64::from(host.collect(now).is_err());
        count.slowest = count.slowest.max(read.elapsed());
        let publication = Publication {
            period,
            slowed: false,
            leaving: false,
            report: report(),
            tenants: Vec::new(),
        };
        let published = host.publish(&publication).is_ok();
        count.failed += u64::from(!published);
        count.writes += u64::from(published);
        next += Duration::from(period);
    }
    let (now, before) = (traffic(&host), before.unwrap_or_default());
    Count {
        calls: now.calls - before.calls,
        sent: now.sent_bytes - before.sent_bytes,
        received: now.received_bytes - before.received_bytes,
        ..count
    }
}

fn exchange(etcd: &TestEtcd, host: usize, period: Span) -> EtcdExchange {
    let endpoints = etcd.urls().iter().map(|url| Endpoint::parse(url).unwrap()).collect();
    let settings = EtcdSettings {
        host: HostName::new(&format!("kvm-{host:04}")).unwrap(),
        volume: "array-a".to_owned(),
        prefix: "/parda/".to_owned(),
        cluster: EtcdAccess { endpoints, tls: None, login: None },
        limits: EtcdLimits::of(period),
    };
    EtcdExchange::new(settings).unwrap()
}

fn traffic(host: &EtcdExchange) -> Traffic {
    match host.standing() {
        Standing::Etcd(standing) => standing.traffic,
        _ => Traffic::default(),
    }
}

fn report() -> Report {
    Report { outstanding: 1.0, window: Window(4.0), shares: Shares(1_000), ..Report::default() }
}
