//! Hosts that meet over UDP and, while the network is parted, in a file.

use std::sync::atomic::Ordering;

use parda_agent::status::ExchangeStatus;
use parda_exchange::Liveness;

use crate::exchange_udp::{Network, write_key};
use crate::stage::{Agent, Stage, config, until};

fn exchange(agent: &Agent) -> ExchangeStatus {
    agent.volume().exchange.unwrap_or_default()
}

#[test]
fn a_parted_network_is_bridged_by_the_file() {
    let stage = Stage::new();
    let network = Network::new(2);
    write_key(&stage, &[1]);
    stage.exchange("exchange", 8);
    let start = |(i, name): (usize, &str)| {
        stage.sparse(&format!("{name}.data"), 16 << 20);
        let keys = network
            .exchange(i)
            .replace("key_file", "fallback = { file = \"exchange\", slots = 8 }\nkey_file");
        let text = config(name, "period = \"250ms\"", &[("vm", &format!("{name}.data"))])
            .replace("[[volume.disk]]", &format!("{keys}[[volume.disk]]"));
        stage.agent(name, &text)
    };
    let agents: Vec<_> = ["a", "b"].into_iter().enumerate().map(start).collect();
    let in_force = |fallback: bool, what: &str| {
        until(what, || {
            agents.iter().all(|agent| {
                let exchange = exchange(agent);
                assert!(exchange.peers.len() <= 1, "one other host, not two: {:?}", exchange.peers);
                let is_live = exchange.peers.iter().any(|peer| peer.liveness == Liveness::Live);
                is_live && exchange.fallback.is_some_and(|it| it.in_force == fallback)
            })
        });
    };
    in_force(false, "they hear each other over UDP");
    let says = stage.parda(&["status", "--socket", "a.status"]).out;
    assert!(says.contains("in force: the first, with the fall-back ready"), "{says}");
    for _ in 0..2 {
        network.lost.store(100, Ordering::Relaxed);
        in_force(true, "the file is in force");
        network.lost.store(0, Ordering::Relaxed);
        in_force(false, "UDP is in force again");
    }
    agents[0].says("the exchange's fall-back is in force: host 'b' is heard there");
    agents[0].says("the exchange's fall-back is no longer in force");
    assert!(exchange(&agents[0]).fallback.unwrap().switches >= 4);
    // One transport alone is no fault.
    std::fs::remove_file(stage.path("exchange")).unwrap();
    agents[0].says("the exchange's fall-back does not work");
    in_force(false, "UDP alone goes on");
    assert_eq!(exchange(&agents[0]).fault, None);
    agents.into_iter().for_each(Agent::stop);
}
