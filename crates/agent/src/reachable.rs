//! Servers, names and directories of a configuration, looked for by `parda check`. One that is missing is a note and no error: it may come
//! later than the agent.

use std::collections::BTreeMap;
use std::net::{SocketAddr, ToSocketAddrs as _};
use std::path::Path;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use parda_address::{Address, Socket, Uri};
use parda_block::reach_server;
use parda_exchange::udp::{PeerAddress, UdpReach};

use crate::config::{Config, Place, Udp, Volume, directory_of, is_of_this_host};

/// Longest wait for all servers and names, which are asked at once.
const LIMIT: Duration = Duration::from_secs(5);

/// Most servers and names that are asked. A fleet's configuration names far fewer.
const MOST: usize = 256;

/// Directory that the service's unit makes at its start.
const OF_THE_UNIT: &str = "/run/parda";

/// Key prefix of a trial read of the policy's etcd; it need not exist.
const POLICY: &str = "policy";

/// Question to the network. Its answer is a fault, or nothing.
type Question = Box<dyn FnOnce() -> Option<String> + Send>;

/// Notes on servers, names and directories that are not there, one a line.
#[must_use]
pub fn examine(config: &Config) -> Vec<String> {
    let mut notes: Vec<_> = config.volumes.iter().flat_map(own_peers).collect();
    notes.extend(directories(config));
    let questions = servers(config).into_iter().chain(names(config));
    let (answer, answers) = channel();
    let mut asked: Vec<_> = Vec::new();
    for (at, (what, ask)) in questions.take(MOST).enumerate() {
        let answer = answer.clone();
        // A look-up of a name may take minutes, and is not waited for.
        let thread = std::thread::Builder::new().name("check".to_owned());
        if thread.spawn(move || answer.send((at, ask()))).is_ok() {
            asked.push((what, Some("no answer in time".to_owned())));
        }
    }
    drop(answer);
    let until = Instant::now() + LIMIT;
    while let Ok((at, fault)) =
        answers.recv_timeout(until.saturating_duration_since(Instant::now()))
    {
        if let Some(asked) = asked.get_mut(at) {
            asked.1 = fault;
        }
    }
    notes.extend(asked.into_iter().filter_map(|(what, fault)| Some(format!("{what}: {}", fault?))));
    notes
}

/// Servers without TLS behind disks and exchanges, each asked once. Servers with TLS are tried as a whole elsewhere.
fn servers(config: &Config) -> Vec<(String, Question)> {
    let mut users: BTreeMap<String, (Uri, Vec<String>)> = BTreeMap::new();
    for volume in &config.volumes {
        let disks = volume.disks().iter();
        let disks = disks.map(|disk| (format!("disk {}", disk.name), disk.backend.place()));
        let exchange = volume.exchange.as_ref().and_then(|exchange| exchange.slots());
        let slots =
            exchange.map(|slots| (format!("exchange of {}", volume.name), slots.place.clone()));
        for (user, place) in disks.chain(slots) {
            let Place::Nbd(uri) = place else { continue };
            if uri.tls.is_none() {
                let server = users.entry(uri.address.to_string());
                server.or_insert_with(|| (uri.clone(), Vec::new())).1.push(user);
            }
        }
    }
    let question = |(address, (uri, users)): (String, (Uri, Vec<String>))| {
        let more = match users.len() {
            1 => String::new(),
            many => format!(" and {} more", many - 1),
        };
        let what = format!("{}{more}: the NBD server {address}", users[0]);
        let ask = move || {
            let error = reach_server(&uri.address, LIMIT).err()?;
            Some(format!("{error}: the agent waits for it"))
        };
        (what, Box::new(ask) as Question)
    };
    users.into_iter().map(question).collect()
}

/// Names of hosts and addresses of this host that a configuration has.
fn names(config: &Config) -> Vec<(String, Question)> {
    let mut all: Vec<(String, Question)> = Vec::new();
    for volume in &config.volumes {
        for peer in peers(volume).into_iter().flat_map(|(_, peers)| peers) {
            if let PeerAddress::Name(name, port) = peer {
                let (what, name, port) =
                    (format!("volume {}: peer {peer}", volume.name), name.clone(), *port);
                all.push((what, Box::new(move || unresolved(&name, port).err())));
            }
        }
        for listener in &volume.listeners {
            all.extend(bound(&format!("volume {}: listen", volume.name), &listener.address));
        }
    }
    if let Some(place) = &config.http {
        all.extend(bound("http", &place.address));
    }
    if let Some(policy) = &config.policy {
        let etcd = policy.etcd.clone();
        let ask = move || {
            let fault = parda_exchange::etcd::examine(&etcd.cluster, &etcd.prefix, POLICY, LIMIT);
            Some(format!("{}; what was read last stays in force", fault?))
        };
        all.push(("policy".to_owned(), Box::new(ask)));
    }
    all
}

/// Question whether an address of a server can be one of this host.
fn bound(what: &str, address: &Address) -> Option<(String, Question)> {
    let Socket::Tcp(host, port) = address.socket() else { return None };
    let (host, what) = (host.to_owned(), format!("{what} {address}"));
    let ask = move || match unresolved(&host, port) {
        Err(fault) => Some(fault),
        Ok(found) if found.iter().any(|found| is_of_this_host(found.ip())) => None,
        Ok(_) => Some("is no address of this host: nobody can connect there".to_owned()),
    };
    Some((what, Box::new(ask)))
}

/// The addresses of a name, or the reason why it has none.
fn unresolved(host: &str, port: u16) -> Result<Vec<SocketAddr>, String> {
    let found = (host, port).to_socket_addrs();
    match found.map(Iterator::collect::<Vec<_>>) {
        Ok(found) if found.is_empty() => Err("has no address".to_owned()),
        Ok(found) => Ok(found),
        Err(error) => Err(format!("has no address that this host finds: {error}")),
    }
}

/// This host's address and its peers, of an exchange over UDP without multicast.
fn peers(volume: &Volume) -> Option<(SocketAddr, &[PeerAddress])> {
    let Udp { address, reach: UdpReach::Peers(peers), .. } = volume.exchange.as_ref()?.udp()?
    else {
        return None;
    };
    Some((*address, peers))
}

/// Notes on peers that are this host itself. One beside others does no harm, as all hosts may have the same list.
fn own_peers(volume: &Volume) -> Option<String> {
    let (own, peers) = peers(volume)?;
    let is_own = |peer: &PeerAddress| match peer {
        PeerAddress::Address(peer) => {
            peer.port() == own.port()
                && (peer.ip() == own.ip()
                    || own.ip().is_unspecified() && is_of_this_host(peer.ip()))
        }
        PeerAddress::Name(..) => false,
    };
    peers.iter().all(is_own).then(|| {
        format!(
            "volume {}: peers: has no host but this one, {own}: it will hear nobody. Name the others",
            volume.name
        )
    })
}

/// Notes on directories of sockets and files that are not there.
fn directories(config: &Config) -> Vec<String> {
    let own = [("status", config.status.as_deref()), ("state", config.state.as_deref())];
    let own = own.into_iter().filter_map(|(what, path)| Some((what.to_owned(), path?)));
    let http = config.http.iter().map(|place| ("http".to_owned(), &place.address));
    let volumes = config.volumes.iter();
    let listeners = volumes.flat_map(|volume| volume.listeners.iter().map(move |of| (volume, of)));
    let listeners = listeners.map(|(volume, of)| (format!("volume {}", volume.name), &of.address));
    let sockets = http.chain(listeners).filter_map(|(what, at)| Some((what, at.path()?)));
    let missing = own.chain(sockets).filter_map(|(what, path)| {
        let directory = directory_of(path)?;
        let is_missing = directory != Path::new(OF_THE_UNIT) && !directory.is_dir();
        is_missing.then(|| {
            let (path, directory) = (path.display(), directory.display());
            format!("{what}: {path}: there is no directory {directory}")
        })
    });
    missing.collect()
}
