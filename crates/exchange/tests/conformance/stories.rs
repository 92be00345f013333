//! What must be so over every transport.

use parda_exchange::udp::Refused;
use parda_exchange::{Liveness, Standing};

use crate::FAULTS;
use crate::cluster::Cluster;

type Make = fn(usize) -> Option<Cluster>;

/// Periods within which hosts that start see each other alive, over a perfect transport.
const SOON: u64 = 5;

fn names(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

pub(crate) fn a_host_is_heard(make: Make, slack: u64) {
    let Some(cluster) = make(2) else { return };
    let mut cluster = cluster.with(&["a", "b"]);
    cluster.until(SOON + slack, "they hear each other", Cluster::all_live);
    if slack == 0 {
        cluster.periods(3);
        assert_eq!(cluster.seen(0), [("b".to_owned(), Liveness::Live, 1)], "what it said last");
        // The one that comes later in a period may hear the other of this period.
        assert!(cluster.seen(1)[0].2 <= 1);
    }
}

pub(crate) fn a_host_that_leaves_is_given_up_at_once(make: Make, slack: u64) {
    // One farewell is sent, which a network may lose.
    if slack > 0 {
        return;
    }
    let Some(cluster) = make(3) else { return };
    let mut cluster = cluster.with(&["a", "b", "c"]);
    cluster.until(SOON, "they hear each other", Cluster::all_live);
    cluster.leave(1);
    cluster.periods(1);
    for seat in [0, 2] {
        assert_eq!(cluster.names(seat, Liveness::Left), ["b"], "seen by {seat}");
    }
}

pub(crate) fn a_host_that_falls_silent_goes_stale_and_returns(make: Make, slack: u64) {
    let Some(cluster) = make(2) else { return };
    let mut cluster = cluster.with(&["a", "b"]);
    cluster.until(SOON + slack, "they hear each other", Cluster::all_live);
    for silence in [5, 35, 300] {
        cluster.host(1).paused = true;
        let mut states = Vec::new();
        for _ in 0..silence {
            cluster.periods(1);
            states.push(cluster.seen(0).first().map(|(_, liveness, _)| *liveness));
        }
        let count = |liveness| states.iter().filter(|is| **is == Some(liveness)).count() as u64;
        // One more, as what it said in its last period is heard in the next one.
        let (live, stale) = (count(Liveness::Live), count(Liveness::Stale));
        if slack == 0 {
            assert_eq!((live, live + stale), (4, silence.min(31)), "{states:?}");
        } else {
            assert!(live <= 4 + slack && live + stale <= 31 + slack, "{states:?}");
        }
        cluster.host(1).paused = false;
        cluster.until(SOON + slack, "it is back", Cluster::all_live);
    }
}

pub(crate) fn a_host_that_restarts_is_counted_once(make: Make, slack: u64) {
    let Some(cluster) = make(3) else { return };
    let mut cluster = cluster.with(&["a", "b", "c"]);
    cluster.until(SOON + slack, "they hear each other", Cluster::all_live);
    for farewell in [false, true] {
        if farewell {
            cluster.leave(1);
        } else {
            cluster.kill(1);
        }
        cluster.start(1, "b", "array-a");
        for _ in 0..8 + slack {
            cluster.periods(1);
            let mut seen: Vec<_> = cluster.seen(0).into_iter().map(|(name, ..)| name).collect();
            seen.dedup();
            assert_eq!(seen, ["b", "c"], "each once");
            assert_eq!(cluster.seen(0).len(), 2, "each once");
        }
        cluster.until(slack, "the new run is heard", |cluster| {
            cluster.all_live() && cluster.seen(0)[0].2 <= 1 + slack
        });
        assert!(!cluster.has_twin(0) && !cluster.has_twin(1), "the run before is no twin");
    }
}

pub(crate) fn hosts_of_one_name_are_named_on_both_sides(make: Make, slack: u64) {
    let Some(cluster) = make(3) else { return };
    let mut cluster = cluster.with(&["twin", "twin", "c"]);
    cluster.until(12 + slack, "both are told", |c| c.has_twin(0) && c.has_twin(1));
    assert!(!cluster.has_twin(2));
    assert_eq!(cluster.seen(2).len(), 1, "they count as one");
}

/// What was counted of other volumes, where that is heard at all.
fn other_volumes(standing: &Standing) -> Option<u64> {
    match standing {
        Standing::Slots { counters, .. } => Some(counters.other_volume),
        Standing::Datagrams(standing) => Some(standing.refused[Refused::OtherVolume.name()]),
        // Their keys are not even read.
        Standing::Etcd(_) => None,
        Standing::Both(both) => other_volumes(&both.first),
    }
}

pub(crate) fn volumes_do_not_mix(make: Make, slack: u64) {
    let Some(cluster) = make(4) else { return };
    let mut cluster = cluster.with(&["a", "b"]);
    cluster.start(2, "a", "array-b");
    cluster.start(3, "c", "array-b");
    // Slots: hosts of one name begin in one slot.
    cluster.until(20 + slack, "each hears one other host", |cluster| {
        (0..4).all(|seat| cluster.names(seat, Liveness::Live).len() == 1)
    });
    for (seat, other) in [(0, "b"), (1, "a"), (2, "c"), (3, "a")] {
        let seen: Vec<_> = cluster.seen(seat).into_iter().map(|(name, ..)| name).collect();
        assert_eq!(seen, [other], "seen by {seat}");
        let counted = other_volumes(&cluster.standing(seat));
        assert!(counted != Some(0), "the others are counted at {seat}");
        assert!(!cluster.has_twin(seat), "one name on two volumes is no twin");
    }
}

pub(crate) fn many_hosts_hear_each_other(make: Make, slack: u64) {
    let Some(cluster) = make(64) else { return };
    let all: Vec<_> = (0..64).map(|i| format!("host-{i:02}")).collect();
    let all: Vec<_> = all.iter().map(String::as_str).collect();
    let mut cluster = cluster.with(&all);
    // Slots: hosts that start at once meet in one slot, and part.
    if slack == 0 {
        cluster.until(20, "64 hosts hear each other", Cluster::all_live);
    } else {
        // With three of ten datagrams lost, one of a hundred peers is stale at any time.
        cluster.until(20 + slack, "64 hosts know each other, and most are alive", |cluster| {
            (0..64).all(|seat| {
                cluster.seen(seat).len() == 63 && cluster.names(seat, Liveness::Live).len() > 56
            })
        });
    }
}

pub(crate) fn what_one_says_is_heard_by_others_only(make: Make, slack: u64) {
    let Some(cluster) = make(2) else { return };
    let mut cluster = cluster.with(&["a"]);
    cluster.periods(SOON + slack);
    assert_eq!(cluster.seen(0), []);
    assert!(!cluster.has_twin(0));
}

pub(crate) fn a_path_that_works_one_way(make: Make, slack: u64) {
    let Some(cluster) = make(3) else { return };
    let mut cluster = cluster.with(&["a", "b", "c"]);
    cluster.until(SOON + slack, "they hear each other", Cluster::all_live);
    cluster.host(1).ears.lock().unwrap().deaf_to = ["a".to_owned()].into();
    cluster.periods(6 + slack);
    assert_eq!(cluster.names(1, Liveness::Stale), ["a"]);
    if slack == 0 {
        assert_eq!(cluster.names(1, Liveness::Live), ["c"]);
        assert_eq!(cluster.names(0, Liveness::Live), names(&["b", "c"]), "it still hears b");
    }
    cluster.host(1).ears.lock().unwrap().deaf_to.clear();
    cluster.until(SOON + slack, "the path is back", Cluster::all_live);
}

pub(crate) fn a_cluster_that_parts_and_meets_again(make: Make, slack: u64) {
    let Some(cluster) = make(4) else { return };
    let mut cluster = cluster.with(&["a", "b", "c", "d"]);
    cluster.until(SOON + slack, "they hear each other", Cluster::all_live);
    let sides = [["a", "b"], ["c", "d"]];
    for seat in 0..4 {
        let others = names(&sides[1 - seat / 2]);
        cluster.host(seat).ears.lock().unwrap().deaf_to = others.into_iter().collect();
    }
    cluster.periods(6 + slack);
    for seat in 0..4 {
        assert_eq!(cluster.names(seat, Liveness::Stale), sides[1 - seat / 2], "seen by {seat}");
    }
    for seat in 0..4 {
        cluster.host(seat).ears.lock().unwrap().deaf_to.clear();
    }
    cluster.until(SOON + slack, "they meet again", Cluster::all_live);
}

/// The decorator over every transport: hosts are found, each counts once, and what is old counts for nothing.
pub(crate) fn what_is_heard_late_twice_or_not_at_all(make: Make, slack: u64) {
    for fault in FAULTS {
        let Some(mut cluster) = make(4) else { return };
        cluster.suffer(fault);
        let mut cluster = cluster.with(&["a", "b", "c", "d"]);
        cluster.until(10 + slack, &format!("{fault:?}: they hear each other"), Cluster::all_live);
        cluster.kill(3);
        // What is heard late is given up late.
        cluster.until(16 + slack, &format!("{fault:?}: the dead host is given up"), |cluster| {
            (0..3).all(|seat| {
                cluster.names(seat, Liveness::Stale) == ["d"] && cluster.seen(seat).len() == 3
            })
        });
        cluster.start(3, "d", "array-a");
        let limit = 12 + slack;
        cluster.until(limit, &format!("{fault:?}: it is back"), Cluster::all_live);
    }
}
