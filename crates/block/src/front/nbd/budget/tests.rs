use super::*;

const MIB: usize = 1 << 20;

fn peer(pid: usize) -> Peer {
    Peer::Process { uid: 0, pid: pid as i32 }
}

/// Each connection is another peer's.
fn budget(limit: usize, connections: usize) -> Budget {
    budget_of(limit, connections, |key| key)
}

fn budget_of(limit: usize, connections: usize, peer_of: impl Fn(usize) -> usize) -> Budget {
    let mut budget = Budget::new(&AgentMemory::new(limit, 1), limit, connections).unwrap();
    (0..connections).for_each(|key| budget.open(key, peer(peer_of(key))));
    budget
}

/// A connection of the model: requests in parts, each part asked for when the one before is there.
#[derive(Clone, Default)]
struct Client {
    /// Parts of the present request that are still to be asked for.
    parts: Vec<usize>,
    /// Set while it waits for its next part.
    waits: bool,
    /// Requests that have all that they need and were not given back.
    complete: Vec<usize>,
    /// Bytes of the present request.
    has: usize,
    done: usize,
}

fn request(random: &mut fastrand::Rng) -> Vec<usize> {
    let len = 1 << random.usize(12..=25);
    if random.bool() {
        return vec![len + REQUEST];
    }
    let mut parts = vec![256 << 10; len >> 18];
    parts.insert(0, REQUEST);
    if !len.is_multiple_of(256 << 10) {
        parts.push(len % (256 << 10));
    }
    parts
}

/// Clients of all sizes that end what they began: nobody waits for ever, whatever the order.
#[test]
fn every_request_gets_its_memory_and_the_sum_is_never_exceeded() {
    for seed in 0..60 {
        let mut random = fastrand::Rng::with_seed(seed);
        let (limit, n) = (random.usize(64..200) * MIB, random.usize(2..40));
        let peers = random.usize(1..=n);
        let mut budget = budget_of(limit, n, |key| key % peers);
        let mut clients = vec![Client::default(); n];
        let mut idle_turns = 0;
        while clients.iter().any(|c| c.done < 10) {
            let key = random.usize(..n);
            let client = &mut clients[key];
            idle_turns += 1;
            assert!(idle_turns < 100_000, "seed {seed}: nothing moves any more");
            // The client gives back complete requests, in some runs only when nothing else is
            // possible.
            if !client.complete.is_empty() && (random.u8(..4) == 0 || client.waits) {
                let i = random.usize(..client.complete.len());
                let bytes = client.complete.swap_remove(i);
                budget.give(key, bytes);
                client.done += 1;
                idle_turns = 0;
            } else if !client.waits && client.parts.is_empty() && client.complete.len() < 3 {
                client.parts = request(&mut random);
                client.has = 0;
            } else if !client.waits && !client.parts.is_empty() {
                let part = client.parts[0];
                client.waits = !budget.ask(key, part, client.parts.len() == 1);
                if !client.waits {
                    got(client);
                    idle_turns = 0;
                }
            }
            for key in budget.granted() {
                assert!(clients[key].waits);
                got(&mut clients[key]);
                idle_turns = 0;
            }
            let held: usize =
                clients.iter().map(|c| c.has + c.complete.iter().sum::<usize>()).sum();
            assert_eq!(budget.used(), held);
            assert!(budget.used() <= budget.capacity() && budget.capacity() <= limit);
            assert_eq!(budget.waiting(), clients.iter().filter(|c| c.waits).count());
        }
        (0..n).for_each(|key| budget.close(key));
        assert_eq!((budget.used(), budget.parties.len(), budget.by_peer.len()), (0, 0, 0));
    }
}

fn got(client: &mut Client) {
    client.waits = false;
    client.has += client.parts.remove(0);
    if client.parts.is_empty() {
        client.complete.push(std::mem::take(&mut client.has));
    }
}

#[test]
fn what_a_connection_owns_it_gets_whatever_others_do() {
    let mut budget = budget(128 * MIB, 512);
    // Hostile clients take what they can, and never give it back.
    for key in 1..512 {
        while budget.ask(key, MIB, false) {}
        while budget.take_spare(key, 4096) {}
    }
    assert_eq!(budget.waiting(), 511);
    let own = budget.own();
    assert!(own >= 64 << 10, "{own}");
    for _ in 0..10 {
        for _ in 0..own / 4096 {
            assert!(budget.ask(0, 4096, true));
        }
        budget.give(0, own / 4096 * 4096);
    }
}

#[test]
fn the_first_few_cannot_take_all() {
    let mut budget = budget(256 * MIB, 16);
    let mut had = Vec::new();
    for key in 0..4 {
        had.push((0..).take_while(|_| budget.take_spare(key, MIB)).count());
    }
    // Half of what is free, each.
    assert!(had.windows(2).all(|w| w[1] >= w[0] / 3 && w[1] <= w[0]), "{had:?}");
    assert!(had[3] >= 6, "{had:?}");
}

#[test]
fn one_client_alone_may_have_four_large_requests() {
    let mut budget = budget(256 * MIB, 1024);
    assert!((0..4).all(|_| budget.ask(0, 16 * MIB + REQUEST, true)));
}

#[test]
fn connections_that_end_leave_the_queue_and_return_all() {
    let mut budget = budget(64 * MIB, 8);
    for key in 0..8 {
        while budget.ask(key, 8 * MIB, false) {}
    }
    assert_eq!(budget.waiting(), 8);
    for key in 0..8 {
        budget.close(key);
        budget.granted();
    }
    assert_eq!((budget.used(), budget.waiting(), budget.elected), (0, 0, None));
    assert_eq!(budget.reserve, RESERVE);
}

#[test]
fn volumes_share_what_the_agent_has() {
    let agent = AgentMemory::new(256 * MIB, 2);
    let new = |connections| Budget::new(&agent, 256 * MIB, connections);
    let (mut one, mut two) = (new(64).unwrap(), new(64).unwrap());
    (0..64).for_each(|key| (one.open(key, peer(key)), two.open(key, peer(key))).0);
    // The first takes what it can get, up to half of what is free.
    let took = (0..).take_while(|_| one.take_spare(0, MIB)).count();
    assert!(took > 32, "{took}");
    assert!(one.capacity() + two.capacity() <= agent.total());
    // Even then the other gets the largest request.
    assert!(two.ask(0, 32 * MIB + REQUEST, true));
    one.close(0);
    assert!(one.capacity() <= one.committed + 2 * STEP, "it was returned to the agent");
    drop((one, two));
    assert_eq!(agent.free(), agent.total());
}

#[test]
fn too_little_memory_is_said() {
    let agent = AgentMemory::new(64 * MIB, 1);
    let error = Budget::new(&agent, 64 * MIB, 4096).map(|_| ()).unwrap_err();
    assert!(error.to_string().contains("lower connections"), "{error}");
    assert_eq!(agent.free(), agent.total());
}

#[test]
fn a_newcomer_does_not_wait_behind_those_that_have_their_part() {
    let mut budget = budget(128 * MIB, 512);
    // Two hostile clients hold what they got, and wait for more.
    for key in 1..=2 {
        while budget.ask(key, 256 << 10, false) {}
    }
    assert_eq!(budget.waiting(), 2);
    for part in 1..=16 {
        assert!(budget.ask(0, 256 << 10, part == 16), "part {part}");
    }
}

#[test]
fn a_request_keeps_its_place_until_its_last_part() {
    let mut budget = budget(128 * MIB, 8);
    let fill = |budget: &mut Budget, key| while budget.ask(key, 64 << 10, false) {};
    (0..4).for_each(|key| fill(&mut budget, key));
    // The first has the reserve, and waits for more than that.
    assert_eq!((budget.holder(), &budget.waiting), (Some(0), &VecDeque::from([0, 1, 2, 3])));
    budget.close(1);
    assert_eq!(budget.granted(), [2, 3]);
    // The one that began to wait later asks first.
    fill(&mut budget, 3);
    fill(&mut budget, 2);
    assert_eq!(budget.waiting, [0, 2, 3]);
    // Its next request begins anew.
    budget.forget(2);
    fill(&mut budget, 2);
    assert_eq!(budget.waiting, [0, 3, 2]);
}

#[test]
fn a_peer_has_no_more_of_the_shared_part_with_many_connections_than_with_one() {
    for connections in [1, 64, 255] {
        let mut budget = budget_of(256 * MIB, 256, |key| usize::from(key > 0));
        let limit = budget.limit() - budget.committed;
        for key in 1..=connections {
            while budget.take_spare(key, MIB) {}
        }
        let left = limit - budget.shared;
        assert!(left >= limit / 2, "{connections} connections: {left} of {limit} are left");
        // The other gets half of that, at once.
        assert!(budget.take_spare(0, left / 2));
    }
}

/// A peer with hundreds of connections that wait, and another with two.
#[test]
fn one_request_of_each_peer_is_before_that_of_another() {
    const GOOD: std::ops::Range<usize> = 0..2;
    const LARGEST: usize = 32 * MIB;
    let mut budget = budget_of(128 * MIB, 256, |key| usize::from(!GOOD.contains(&key)));
    let take_all = |budget: &mut Budget, key| while budget.ask(key, 512 << 10, false) {};
    // The hostile ones take what they are granted. Returns the others.
    let settle = |budget: &mut Budget| {
        let mut good = Vec::new();
        while budget.has_granted() {
            let (of_good, hostile): (Vec<_>, Vec<_>) =
                budget.granted().into_iter().partition(|key| GOOD.contains(key));
            good.extend(of_good);
            hostile.into_iter().for_each(|key| take_all(budget, key));
        }
        good
    };
    (2..256).for_each(|key| take_all(&mut budget, key));
    assert_eq!((budget.holder(), settle(&mut budget)), (Some(2), vec![]));
    while budget.take_spare(0, 64 << 10) {}
    for key in GOOD {
        assert!(!budget.ask(key, LARGEST, true));
    }
    for round in 0..4 {
        assert_eq!(budget.holder(), Some(2 + round));
        budget.close(2 + round);
        // One of theirs is next. Once served, it asks again and is behind the other.
        let key = round % 2;
        assert_eq!(settle(&mut budget), [key]);
        budget.give(key, LARGEST);
        assert!(settle(&mut budget).is_empty());
        assert!(!budget.ask(key, LARGEST, true));
    }
}

/// Relays of TLS are no requests: they take of the shared part as long as a quarter of it is left.
/// The agent gets that memory back when they end, wherever they end.
#[test]
fn what_is_charged_beside_requests_comes_out_of_the_shared_part() {
    let agent = AgentMemory::new(256 * MIB, 1);
    let mut budget = Budget::new(&agent, 128 * MIB, 16).unwrap();
    let (free, shared) = (agent.free(), budget.limit() - budget.capacity());
    let charges: Vec<Charge> = std::iter::from_fn(|| budget.charge(MIB)).collect();
    assert_eq!(charges.len() * MIB, shared / 4 * 3 / MIB * MIB);
    assert_eq!((budget.charged(), agent.free()), (charges.len() * MIB, free - charges.len() * MIB));
    // A request finds what is left, and no more of it than its threshold allows.
    budget.open(0, peer(0));
    let left = shared - budget.charged();
    assert!(budget.take_spare(0, left / 2));
    assert!(!budget.take_spare(0, left / 4 + MIB));
    budget.give_spare(0);
    std::thread::spawn(move || drop(charges)).join().unwrap();
    assert_eq!(budget.charged(), 0);
    assert!(budget.take_spare(0, shared / 2));
    budget.close(0);
    drop(budget);
    assert_eq!(agent.free(), agent.total());
}
