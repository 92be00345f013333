//! The fate of each packet: whether it arrives.

use parda_scenario::exchange::Hearing;

/// State of each node's access to the others.
#[derive(Debug)]
pub(super) struct Links {
    nodes: Vec<Hearing>,
    random: fastrand::Rng,
}

impl Links {
    pub(super) fn new(nodes: usize, seed: u64) -> Links {
        let random = fastrand::Rng::with_seed(seed);
        Links { nodes: vec![Hearing::default(); nodes], random }
    }

    pub(super) fn set(&mut self, node: usize, hearing: &Hearing) {
        self.nodes[node] = hearing.clone();
    }

    /// Whether a packet arrives.
    ///
    /// As in the simulator, an unreachable host neither sends nor receives. Packets of a host that cannot write are lost. The
    /// receiver's `loss` applies.
    pub(super) fn passes(&mut self, from: usize, to: usize) -> bool {
        let [from, to] = [from, to].map(|node| &self.nodes[node]);
        let joined = from.reachable && from.writable && to.reachable && from.side == to.side;
        let kept = to.loss <= 0.0 || self.random.f64() >= to.loss;
        joined && kept
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn links(node: usize, hearing: Hearing) -> Links {
        let mut links = Links::new(3, 1);
        links.set(node, &hearing);
        links
    }

    /// Fraction of 10,000 packets in this direction that pass.
    fn part(links: &mut Links, from: usize, to: usize) -> f64 {
        (0..10_000).filter(|_| links.passes(from, to)).count() as f64 / 10_000.0
    }

    #[test]
    fn a_host_that_cannot_write_hears_and_is_not_heard() {
        let mut links = links(0, Hearing { writable: false, ..Hearing::default() });
        assert_eq!([part(&mut links, 0, 1), part(&mut links, 1, 0)], [0.0, 1.0]);
    }

    #[test]
    fn sides_and_hosts_that_are_cut_off_exchange_nothing() {
        for hearing in [
            Hearing { reachable: false, ..Hearing::default() },
            Hearing { side: "left".to_owned(), ..Hearing::default() },
        ] {
            let mut links = links(0, hearing);
            assert_eq!([part(&mut links, 0, 1), part(&mut links, 1, 0)], [0.0, 0.0]);
            assert_eq!(part(&mut links, 1, 2), 1.0);
        }
    }

    #[test]
    fn loss_is_the_receivers() {
        let mut links = links(1, Hearing { loss: 0.3, ..Hearing::default() });
        assert!((part(&mut links, 0, 1) - 0.7).abs() < 0.02);
        assert_eq!(part(&mut links, 1, 0), 1.0);
    }
}
