//! What happens to a cluster does what it says, and is over when it is healed.
use crate::common;

use common::{answer, parse};
use parda_scenario::{PhaseAnswer, RunAnswer};
use parda_sim::{KeptRuns, run};

/// What all hosts need to hear one another well again.
const HEALED: &str = "exchange = { delay = \"0s\", loss = 0, reachable = true, side = \"\" }";

fn host(name: &str, shares: u32) -> String {
    format!(
        "[[host]]\nname = \"{name}\"\n[[host.vm]]\nname = \"{name}-vm\"\nshares = {shares}\n\
         disk = \"8GiB\"\n\
         workload = {{ size = \"4KiB\", read = 100, random = 100, outstanding = 128 }}\n"
    )
}

fn event(at: u64, what: &str) -> String {
    format!("[[event]]\nat = \"{at}s\"\n{what}\n")
}

fn phase(name: &str, from: u64, to: u64) -> String {
    format!("[[phase]]\nname = \"{name}\"\nfrom = \"{from}s\"\nto = \"{to}s\"\n")
}

const RAID0: &str = "preset = \"cx3-40-raid0\"\ndrive = { queue_depth = 4 }";
const RAID5: &str = "preset = \"cx3-40-raid5-vms\"";

/// Hosts a, b and c, at 3 : 2 : 1, that want more than the array gives.
fn cluster(more: &str) -> RunAnswer {
    on(RAID0, more)
}

/// The same on another array.
fn on(array: &str, more: &str) -> RunAnswer {
    answer(&parse(&cluster_text(array, more)))
}

fn cluster_text(array: &str, more: &str) -> String {
    let hosts = [("a", 3000), ("b", 2000), ("c", 1000)].map(|(name, shares)| host(name, shares));
    format!(
        "name = \"events\"\nduration = \"180s\"\n[array]\n{array}\n\
         [control]\nlatency_threshold = \"40ms\"\nwindow_max = 256\n{}{more}",
        hosts.concat()
    )
}

/// The same, troubled from the beginning and healed after a minute: how it goes in the second half
/// of that minute, and of the next.
fn troubled(trouble: &str) -> [PhaseAnswer; 2] {
    let phases = phase("troubled", 30, 60) + &phase("healed", 90, 120);
    cluster(&(event(0, trouble) + &event(60, HEALED) + &phases)).phases.try_into().unwrap()
}

fn iops(phase: &PhaseAnswer, name: &str) -> f64 {
    phase.hosts.iter().find(|host| host.name == name).unwrap().iops
}

/// What an event sets of a VM holds from then on, as if it had stood in its table: a limit first, then a higher one and a reservation.
#[test]
fn a_limit_and_a_reservation_hold_from_the_event_that_sets_them() {
    let phases = phase("free", 20, 50) + &phase("limited", 60, 100) + &phase("reserved", 120, 160);
    let limited = event(50, "vm = \"a-vm\"\nlimit = { iops = 200 }");
    let reserved = event(100, "vm = \"a-vm\"\nlimit = { iops = 2000 }")
        + &event(100, "vm = \"c-vm\"\nreservation = 800");
    let [free, limited, reserved] =
        cluster(&(phases + &limited + &reserved)).phases.try_into().unwrap();
    let a = [&free, &limited, &reserved].map(|phase| iops(phase, "a"));
    assert!(a[0] > 400.0 && (190.0..202.0).contains(&a[1]) && a[2] > 400.0, "{a:?}");
    assert!(iops(&reserved, "c") > 760.0 && iops(&free, "c") < 600.0, "{reserved:?}");
}

/// The IOPS of one host over those of another.
fn ratio(phase: &PhaseAnswer, one: &str, other: &str) -> f64 {
    iops(phase, one) / iops(phase, other)
}

fn near(is: f64, should: f64, part: f64) {
    assert!((is / should - 1.0).abs() <= part, "{is}, not within {part} of {should}");
}

/// Latency at the threshold, IOPS as the shares have it.
fn well(phase: &PhaseAnswer) {
    near(phase.total.device_latency_ms.unwrap(), 40.0, 0.05);
    near(ratio(phase, "a", "c"), 3.0, 0.05);
    near(ratio(phase, "b", "c"), 2.0, 0.05);
}

#[test]
fn hosts_that_never_heard_one_another_do_not_know_their_shares() {
    let [troubled, healed] = troubled("exchange = { reachable = false }");
    assert!(ratio(&troubled, "a", "c") < 1.2);
    well(&healed);
}

#[test]
fn beside_a_host_that_never_heard_the_exchange_the_others_share_the_rest() {
    let [troubled, healed] = troubled("host = \"a\"\nexchange = { reachable = false }");
    near(ratio(&troubled, "b", "c"), 2.0, 0.05);
    well(&healed);
}

#[test]
fn losing_all_visits_is_being_cut_off_and_losing_half_of_them_is_borne() {
    let [cut_off, _] = troubled("exchange = { reachable = false }");
    let [all_lost, healed] = troubled("exchange = { loss = \"100%\" }");
    assert_eq!(all_lost.hosts, cut_off.hosts);
    well(&healed);
    let [half_lost, _] = troubled("exchange = { loss = \"50%\" }");
    well(&half_lost);
}

#[test]
fn sides_hear_only_themselves() {
    let [troubled, healed] = troubled("host = \"c\"\nexchange = { side = \"right\" }");
    near(ratio(&troubled, "a", "b"), 1.5, 0.05);
    well(&healed);
    let [renamed, _] = self::troubled("exchange = { side = \"all\" }");
    well(&renamed);
}

#[test]
fn what_is_read_is_as_old_as_the_delay_says() {
    // Until then nothing is older.
    let [nothing_yet, healed] = troubled("exchange = { delay = \"60s\" }");
    assert!(ratio(&nothing_yet, "a", "c") < 1.2);
    well(&healed);
    let [a_while, _] = troubled("exchange = { delay = \"5s\" }");
    well(&a_while);
}

/// Sixteen hosts, of which one has IOs: the IOs of the exchange, of which so many in a hundred fail.
fn exchange_iops(loss: u32) -> f64 {
    let mut text = format!(
        "name = \"loss\"\nduration = \"120s\"\n[array]\npreset = \"cx3-40-raid0\"\n\
         [control]\nlatency_threshold = \"1s\"\nperiod = \"100ms\"\n[exchange]\nloss = {loss}\n"
    );
    for i in 0..16 {
        let start = if i == 0 { 0 } else { 119 };
        text += &format!(
            "[[host]]\nname = \"h{i}\"\n[[host.vm]]\nname = \"v{i}\"\nshares = 1\ndisk = \"8GiB\"\n\
             start = \"{start}s\"\n\
             workload = {{ size = \"256KiB\", read = 100, random = 0, outstanding = 16 }}\n"
        );
    }
    answer(&parse(&(text + &phase("rest", 5, 119)))).phases[0].total.exchange_iops.unwrap()
}

#[test]
fn visits_that_fail_cost_the_array_nothing() {
    let [none, half, all] = [0, 50, 100].map(exchange_iops);
    assert!(none > 5.0, "{none}");
    // Hosts that hear fewer others do rounds more often, so it is not just half.
    assert!(half > 0.3 * none && half < 1.5 * none, "{none} {half}");
    assert!(all < 0.1, "{all}");
}

/// The cluster with an outsider, who keeps 64 IOs at the array from 60 s to 120 s.
fn with_outsider(answer: &str) -> [PhaseAnswer; 3] {
    let outsider = host("out", 1)
        .replace("[[host]]\n", "[[host]]\noutside = true\n")
        .replace("shares = 1\n", "start = \"60s\"\nstop = \"120s\"\n")
        .replace("outstanding = 128", "outstanding = 64");
    let phases = phase("before", 30, 60) + &phase("while", 90, 120) + &phase("after", 150, 180);
    let hold = format!("[[event]]\nat = \"0s\"\ncontrol = {{ outsider = \"{answer}\" }}\n");
    cluster(&(outsider + &phases + &hold)).phases.try_into().unwrap()
}

#[test]
fn hosts_that_compete_with_an_outsider_keep_more_than_those_that_hold_the_threshold() {
    let [alone, within, after] = with_outsider("compete");
    let [_, held, _] = with_outsider("hold");
    assert!(within.controlled().iops > 1.2 * held.controlled().iops);
    well(&alone);
    well(&after);
}

#[test]
fn an_outsider_takes_what_it_wants_and_the_others_make_room_by_their_shares() {
    let [before, within, after] = with_outsider("hold");
    well(&before);
    well(&after);
    assert_eq!(iops(&before, "out"), 0.0);
    // 64 IOs at some 40 ms each, none of them held.
    let out = within.hosts.iter().find(|host| host.name == "out").unwrap();
    near(out.outstanding, 64.0, 0.02);
    near(out.iops, 1600.0, 0.1);
    assert_eq!((out.window, out.shares), (None, 0));
    assert!(out.vms[0].held_ms.unwrap().max < 0.001);
    // Its latency is everybody's, and so the others have held it at the threshold.
    well(&within);
    near(within.controlled().iops, before.total.iops - out.iops, 0.05);
}

#[test]
fn an_outsider_counts_in_the_total_and_is_not_judged() {
    let [_, within, _] = with_outsider("hold");
    let (total, controlled) = (within.total, within.controlled());
    near(total.iops, controlled.iops + iops(&within, "out"), 1e-9);
    assert!(within.hosts.iter().all(|host| host.outside != host.vms[0].saturated));
    assert_eq!(total.fairness, controlled.fairness);
    assert!(total.fairness.unwrap() > 0.99);
}

/// What a host in whose life something happens from 60 s to 80 s does before, while and after it.
fn for_a_while(array: &str, first: &str, last: &str, after: u64) -> [PhaseAnswer; 3] {
    let phases =
        phase("before", 30, 60) + &phase("while", 65, 80) + &phase("after", after, after + 30);
    on(array, &(event(60, first) + &event(80, last) + &phases)).phases.try_into().unwrap()
}

#[test]
fn a_host_that_hangs_does_nothing_and_the_others_take_its_share_until_it_goes_on() {
    let (hang, resume) = ("host = \"a\"\ndo = \"hang\"", "host = \"a\"\ndo = \"resume\"");
    let [before, within, after] = for_a_while(RAID0, hang, resume, 90);
    well(&before);
    assert_eq!(iops(&within, "a"), 0.0);
    // It had half of all shares.
    near(ratio(&within, "b", "c"), 2.0, 0.05);
    near(iops(&within, "b") + iops(&within, "c"), before.total.iops, 0.1);
    // Ten seconds after it woke to what the array had long done.
    well(&after);
}

#[test]
fn what_the_array_does_for_a_host_that_hangs_it_sees_when_it_goes_on() {
    let events =
        event(60, "host = \"a\"\ndo = \"hang\"") + &event(80, "host = \"a\"\ndo = \"resume\"");
    let answer = cluster(&(events + &phase("hangs", 60, 80) + &phase("resumes", 80, 81)));
    let a = |phase: usize| answer.phases[phase].hosts.iter().find(|h| h.name == "a").unwrap();
    assert_eq!((a(0).iops, a(0).device_latency_ms), (0.0, None));
    // Its whole window was at the array, and was there for these 20 s; nothing was lost.
    let late = a(1).device_latency_ms.unwrap();
    assert!((20_000.0..20_200.0).contains(&late.max), "{}", late.max);
    let (window, all) = (answer.phases[0].hosts[0].window.unwrap(), a(1).iops);
    assert!(late.mean > 20_000.0 * (window - 1.0) / all, "{window} of {all} were late");
}

#[test]
fn a_hung_host_takes_up_its_settings_and_shares_when_it_goes_on() {
    let events = event(60, "host = \"a\"\ndo = \"hang\"")
        + &event(65, "vm = \"a-vm\"\nshares = 1000")
        + &event(65, "control = { latency_threshold = \"30ms\" }")
        + &event(80, "host = \"a\"\ndo = \"resume\"");
    let [after] = cluster(&(events + &phase("after", 100, 130))).phases.try_into().unwrap();
    near(after.total.device_latency_ms.unwrap(), 30.0, 0.05);
    near(ratio(&after, "a", "c"), 1.0, 0.05);
}

#[test]
fn a_host_that_is_killed_while_it_hangs_comes_back_as_from_any_death() {
    let host = |verb: &str| format!("host = \"a\"\ndo = \"{verb}\"");
    let events = event(60, &host("hang")) + &event(70, &host("kill")) + &event(80, &host("start"));
    let [after] = cluster(&(events + &phase("after", 100, 130))).phases.try_into().unwrap();
    well(&after);
}

#[test]
fn a_failed_drive_costs_reads_half_the_array_and_the_threshold_holds() {
    let fails = "array = { fail_drive = 1 }";
    let [before, degraded, _] = for_a_while(RAID5, fails, HEALED, 90);
    // Each read of its data is four of the others'.
    near(degraded.total.iops / before.total.iops, 0.5, 0.15);
    for phase in [&before, &degraded] {
        near(phase.total.device_latency_ms.unwrap(), 40.0, 0.07);
        near(ratio(phase, "a", "c"), 3.0, 0.07);
    }
}

#[test]
fn a_rebuilt_drive_gives_the_array_back_its_speed() {
    // Small disks: there is not much to rebuild.
    let text = |events: &str| {
        let phases =
            phase("before", 30, 60) + &phase("rebuilding", 82, 90) + &phase("after", 150, 180);
        let rebuild = event(80, events);
        event(60, "array = { fail_drive = 1 }") + &rebuild + &phases
    };
    let small = |more: &str| {
        let text = cluster_text(RAID5, more).replace("disk = \"8GiB\"", "disk = \"256MiB\"");
        let phases: [PhaseAnswer; 3] = answer(&parse(&text)).phases.try_into().unwrap();
        phases.map(|phase| phase.total.iops)
    };
    let [before, rebuilding, after] = small(&text("array = { rebuild_drive = 1 }"));
    assert!(rebuilding < 0.6 * before, "{rebuilding} of {before}");
    near(after, before, 0.03);
    let [before, _, never] = small(&text(HEALED));
    assert!(never < 0.6 * before, "{never} of {before}");
}

#[test]
fn a_drive_that_fails_before_another_is_rebuilt_ends_the_run_by_name() {
    let events = event(60, "array = { fail_drive = 1 }")
        + &event(61, "array = { rebuild_drive = 1 }")
        + &event(62, "array = { fail_drive = 2 }");
    let text = cluster_text(RAID5, &(events + &phase("p", 1, 2)));
    let error = run(&parse(&text), KeptRuns::Nothing, |_| ()).unwrap_err();
    let says = "at 62s: drive 2 cannot fail: drive 1 has failed and is not rebuilt";
    assert_eq!(error.to_string(), says);
}

#[test]
fn without_its_write_cache_an_array_writes_at_the_pace_of_its_drives() {
    let cache = |at: u64, on: bool| event(at, &format!("array = {{ write_cache = {on} }}"));
    let phases = phase("off", 30, 60) + &phase("on", 61, 66) + &phase("again", 170, 180);
    let events = cache(0, false) + &cache(60, true) + &cache(70, false);
    let text = cluster_text(RAID5, &(events + &phases)).replace("read = 100", "read = 0");
    let phases: [PhaseAnswer; 3] = answer(&parse(&text)).phases.try_into().unwrap();
    let [off, on, again] = phases.each_ref().map(|phase| phase.total.iops);
    // While it is not full, it takes writes as fast as the front end.
    assert!(on > 20.0 * off, "{on} and {off}");
    assert!(again < 2.0 * off, "{again} and {off}");
    near(phases[0].total.device_latency_ms.unwrap(), 40.0, 0.1);
}
