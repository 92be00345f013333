use super::*;
use crate::io::Costs;
use crate::latency::Sample;
use crate::units::Bytes;

/// A period of one second at 30 ms, the threshold, with `outstanding` at the array.
fn measured(outstanding: f64, vms: &[VmDemand]) -> Measured<'_> {
    let ios = (outstanding / 0.030) as u64;
    let latency = Span::from_secs(0.030 * ios as f64);
    let reads =
        Sample { ios, bytes: Bytes(4096 * ios), latency, scaled: latency, ..Sample::default() };
    let interval = Interval { reads, ..Interval::default() };
    Measured { elapsed: Span::from_millis(1000), interval, outstanding, vms, reserved: 0.0 }
}

#[test]
fn means_alone_share_the_array_by_demand() {
    let mut governor = Governor::new(Config::default()).unwrap();
    // Of 60 slots at the array 30 are another host's, whose VM of 1000 shares could use more.
    let peer = Report {
        active: 1000.0,
        governed: Governed::Yes,
        ..Governor::new(Config::default()).unwrap().tick(measured(30.0, &[]), View::Silent)
    };
    for _ in 0..40 {
        let per_share = governor.window_per_share();
        let vms = [
            VmDemand::of_mean((1000.0, 1000.0), 64.0, per_share),
            VmDemand::of_mean((3000.0, 3000.0), 3.0, per_share),
        ];
        let report = governor.tick(measured(30.0, &vms), View::Peers(Totals::of([&peer])));
        assert_eq!(report.shares, Shares(4000));
    }
    // The light VM keeps its 3 slots, and 57 are left for two VMs of equal shares.
    let window = governor.window().0;
    assert!((window - 31.5).abs() < 0.05, "{window}");
    let slice = governor.window_per_share() * 1000.0;
    assert!((slice - 28.5).abs() < 0.05, "{slice}");
}

#[test]
fn who_is_left_with_a_share_of_many_has_an_io_at_once() {
    let mut governor = Governor::new(Config::default()).unwrap();
    let production = Report {
        active: 8000.0,
        governed: Governed::Yes,
        shares: Shares(8000),
        ..Governor::new(Config::default()).unwrap().tick(measured(30.0, &[]), View::Silent)
    };
    let asleep =
        Report { active: 0.0, outstanding: 0.0, interval: Interval::default(), ..production };
    let mut tick = |peer: &Report| {
        let vms = [VmDemand::of_mean((1.0, 1.0), 128.0, governor.window_per_share())];
        governor.tick(measured(0.0, &vms), View::Peers(Totals::of([peer])));
        governor.window_per_share()
    };
    let beside = (0..60).fold(0.0, |_, _| tick(&production));
    assert!(beside < 0.01, "{beside}");
    // No IO of its own was done yet, so nothing is known of the array.
    assert_eq!(tick(&asleep), 1.0);
}

#[test]
fn bounds_are_in_ios_where_shares_are_of_bytes() {
    let config = Config { costs: Some(Costs::BYTES), ..Config::default() };
    let mut governor = Governor::new(config).unwrap();
    for _ in 0..60 {
        // IOs of 1 MiB that take 15 ms, half the threshold, however many there are.
        let window = governor.window().0;
        let ios = (window / 128.0 / 0.015) as u64;
        let latency = Span::from_secs(0.015 * ios as f64);
        let bytes = Bytes(ios << 20);
        let reads = Sample { ios, bytes, latency, scaled: latency, ..Sample::default() };
        let interval = Interval { reads, ..Interval::default() };
        let shares = 1000.0;
        let vms = [VmDemand { used: window, ..VmDemand::of_mean((shares, shares), 1e5, 1.0) }];
        let elapsed = Span::from_millis(1000);
        let measured =
            Measured { elapsed, interval, outstanding: window, vms: &vms, reserved: 0.0 };
        governor.tick(measured, View::Peers(Totals::default()));
    }
    // 256 IOs of 128 slots each.
    assert!((governor.window().0 - 256.0 * 128.0).abs() < 1.0, "{}", governor.window());
}

#[test]
fn parameters_that_cannot_work_change_nothing() {
    let mut governor = Governor::new(Config::default()).unwrap();
    let mut wrong = Config::default();
    wrong.law.gamma = 0.0;
    assert_eq!(governor.set_config(wrong.clone()).unwrap_err().parameter, "gamma");
    assert_eq!(*governor.config(), Config::default());
    assert!(Governor::new(wrong).is_err());
}

#[test]
fn a_change_of_the_unit_keeps_the_ios_that_are_outstanding() {
    // IOs of 64 KiB, which are 8 slots each with bytes.
    let tick = |governor: &mut Governor, slots: f64| {
        let mut period = measured(20.0, &[]);
        period.interval.reads.bytes = Bytes(period.interval.reads.ios << 16);
        let vms =
            [VmDemand { used: 20.0 * slots, ..VmDemand::of_mean((1000.0, 1000.0), 1e5, 1.0) }];
        let period = Measured { outstanding: 20.0 * slots, vms: &vms, ..period };
        governor.tick(period, View::Peers(Totals::default()));
        governor.window().0
    };
    let mut governor = Governor::new(Config::default()).unwrap();
    let before = (0..20).fold(0.0, |_, _| tick(&mut governor, 1.0));
    assert!((before - 20.0).abs() < 0.01, "{before}");
    governor.set_config(Config { costs: Some(Costs::BYTES), ..Config::default() }).unwrap();
    // The host reports its IOs in the unit of before for a period, then in that of now.
    for slots in [1.0, 8.0, 8.0, 8.0] {
        let window = tick(&mut governor, slots);
        assert!((window / 8.0 - 20.0).abs() < 0.01, "{window}");
    }
    governor.set_config(Config::default()).unwrap();
    for slots in [8.0, 1.0, 1.0] {
        let window = tick(&mut governor, slots);
        assert!((window - 20.0).abs() < 0.01, "{window}");
    }
}
