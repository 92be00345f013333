use super::*;
use crate::cluster::Report;
use crate::units::Window;

/// A host with so many shares that follows the law at an array of 30 ms.
fn honest(shares: u32, period: u64) -> Report {
    // Chance differs from period to period.
    let ios = u64::from(shares) / 10 + period % 3;
    let all = crate::testing::report(ios);
    let latency = Span(ios * 30_000_000);
    let mut interval = all.interval;
    interval.reads.latency = latency;
    interval.reads.scaled = latency;
    let outstanding = latency.secs() / all.elapsed.secs();
    Report {
        interval,
        outstanding,
        window: Window(outstanding),
        shares: Shares(shares),
        active: f64::from(shares),
        governed: Governed::Yes,
        ..all
    }
}

/// A cluster of four, of which the second says something else from a period on.
struct Cluster {
    beliefs: [Belief; 4],
    period: u64,
}

impl Cluster {
    fn settled() -> Cluster {
        let mut cluster = Cluster { beliefs: [Belief::default(); 4], period: 0 };
        (0..60).for_each(|_| _ = cluster.period(|_| ()));
        cluster
    }

    /// Latency, and outstanding IOs for each active share, as the others see them.
    fn period(&mut self, lie: impl Fn(&mut Report)) -> [f64; 2] {
        self.period += 1;
        let new = self.period <= u64::from(NEW);
        let mut reports = [500, 1000, 2000, 1000].map(|shares| honest(shares, self.period));
        lie(&mut reports[1]);
        let parts = reports.iter().map(Part::of).zip(self.beliefs).enumerate();
        let heard =
            |(place, (part, belief))| Heard { place, part, belief, tenants: 0.0, news: true };
        let mut judging = Judging { hosts: parts.map(heard).collect(), pulls: Vec::new() };
        judging.judge(new);
        self.beliefs = core::array::from_fn(|i| judging.hosts[i].belief);
        let mut all = [[0.0; 2]; 4];
        for host in &judging.hosts {
            let part = host.part.quotients(Settings::default(), false);
            all.iter_mut().flatten().zip(part.iter().flatten()).for_each(|(sum, one)| *sum += one);
        }
        let [window, latency, ..] = all;
        [latency[0] / latency[1], window[0] / window[1]]
    }
}

#[test]
fn whatever_one_host_says_the_quotients_of_all_are_soon_as_they_were() {
    let lies: [fn(&mut Report); 8] = [
        |report| report.active = 1e6,
        |report| report.outstanding = 0.0,
        |report| report.outstanding = 1e12,
        |report| report.interval.reads.ios = 1 << 52,
        |report| report.interval.reads.scaled = Span(0),
        |report| report.interval.reads.scaled = Span(1 << 52),
        |report| report.elapsed = Span(1),
        |report| (report.active, report.outstanding) = (1e9, 1e-9),
    ];
    let honest = Cluster::settled().period(|_| ());
    for (i, lie) in lies.into_iter().enumerate() {
        let mut cluster = Cluster::settled();
        (0..30).for_each(|_| _ = cluster.period(lie));
        for (has, had) in cluster.period(lie).into_iter().zip(honest) {
            assert!((has / had - 1.0).abs() < 0.06, "lie {i}: {has} and not {had}");
        }
        let doubts = cluster.beliefs.map(|belief| belief.doubt().is_some());
        let small = i == 1 || i == 4;
        assert!(doubts == [false, true, false, false] || small, "lie {i}: {doubts:?}");
        (0..200).for_each(|_| _ = cluster.period(|_| ()));
        assert_eq!(cluster.beliefs[1].doubt(), None, "lie {i} is over");
    }
}

#[test]
fn a_lie_that_drifts_is_not_learned() {
    let mut cluster = Cluster::settled();
    let [honest, _] = cluster.period(|_| ());
    let mut factor = 1.0;
    for _ in 0..300 {
        factor *= 0.98;
        cluster.period(|report| {
            let reads = &mut report.interval.reads;
            reads.scaled = Span((reads.scaled.0 as f64 * factor) as u64);
            reads.ios = (reads.ios as f64 / factor) as u64;
        });
    }
    let [latency, _] = cluster.period(|report| report.interval.reads.ios = 1_000_000);
    assert!((latency / honest - 1.0).abs() < 0.15, "{latency} and not {honest}");
}

#[test]
fn a_change_that_the_others_see_as_well_is_believed() {
    let mut cluster = Cluster::settled();
    let slower = |report: &mut Report, by: u64| {
        report.interval.reads.scaled.0 *= by;
        report.outstanding *= by as f64;
    };
    for _ in 0..40 {
        cluster.period(|report| slower(report, 3));
    }
    assert!(cluster.beliefs[1].doubt().is_some(), "alone it is not");
    let mut cluster = Cluster::settled();
    for (i, belief) in cluster.beliefs.iter_mut().enumerate().filter(|(i, _)| *i != 1) {
        belief.rest *= 1.0 + i as f32;
    }
    cluster.beliefs[1].rest *= 2.0;
    (0..3).for_each(|_| _ = cluster.period(|report| slower(report, 3)));
    assert_eq!(cluster.beliefs[1].weights, Weights::ALL);
}

#[test]
fn shares_that_a_host_claims_win_no_vote() {
    let mut cluster = Cluster::settled();
    cluster.period(|report| report.shares = Shares(u32::MAX));
    assert!(cluster.beliefs[1].counted(f64::from(u32::MAX)) < 1600.0);
    assert_eq!(cluster.beliefs[1].doubt(), Some(Doubt::Shares));
}

#[test]
fn a_host_with_most_of_the_shares_is_believed_beside_one_that_does_few_ios() {
    let judged = |large: u32| {
        let mut beliefs = [Belief::default(); 2];
        let mut weights = Weights::ALL;
        for period in 1..=100 {
            let mut reports = [100, large].map(|shares| honest(shares, period));
            // An IO now and then, and more than one at once after the hosts know one another.
            reports[0].outstanding *= if period > 60 { 8.0 } else { 1.0 };
            let parts = reports.iter().map(Part::of).zip(beliefs).enumerate();
            let heard =
                |(place, (part, belief))| Heard { place, part, belief, tenants: 0.0, news: true };
            let mut judging = Judging { hosts: parts.map(heard).collect(), pulls: Vec::new() };
            judging.judge(period <= u64::from(NEW));
            beliefs = core::array::from_fn(|i| judging.hosts[i].belief);
            weights.load = weights.load.min(beliefs[1].weights.load);
        }
        weights.load
    };
    assert_eq!(judged(1000), 1.0);
    assert!(judged(50) < 0.9, "one with fewer is not");
}

#[test]
fn a_lie_of_a_single_period_moves_latency_twofold_at_most() {
    let mut cluster = Cluster::settled();
    let [honest, _] = cluster.period(|_| ());
    let [latency, _] = cluster.period(|report| report.interval.reads.scaled = Span(1 << 52));
    assert!(latency < 2.2 * honest, "{latency} and not {honest}");
}
