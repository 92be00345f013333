//! Clusters of many hosts with each transport of the exchange, in simulation; as Markdown.
//!
//! ```sh
//! cargo run --release -p parda-sim --example scale                    # all transports, 8 to 2,000 hosts
//! cargo run --release -p parda-sim --example scale -- group 8 10000   # one transport, these numbers of hosts
//! cargo run --release -p parda-sim --example scale -- --json scale.json           # and the same as JSON
//! cargo run --release -p parda-sim --example scale -- plot scale.json scale.svg   # a picture of that
//! cargo run --release -p parda-sim --example scale -- round           # CPU time of a host's control round
//! ```
//!
//! All of it takes ten minutes of a core, most of it 1,000 and 2,000 hosts over etcd, which need an hour of their own time.
#![allow(clippy::print_stdout, reason = "this is what it is for")]

mod cluster;
mod picture;
mod round;
mod transport;

use std::error::Error;

use transport::TRANSPORTS;

type Fallible<T> = Result<T, Box<dyn Error>>;

/// Hosts of the clusters that are tried if none are named.
const SIZES: [u64; 6] = [8, 32, 100, 300, 1000, 2000];

fn main() -> Fallible<()> {
    let mut arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [command, from, to] = &arguments[..]
        && command == "plot"
    {
        return picture::draw(from, to);
    }
    let json = arguments.iter().position(|argument| argument == "--json");
    let json = match json.map(|at| arguments.drain(at..).collect::<Vec<_>>()).as_deref() {
        None => None,
        Some([_, file]) => Some(file.clone()),
        Some(_) => return Err("--json needs one file, as the last argument".into()),
    };
    let name = arguments.first();
    let sizes: Vec<u64> =
        arguments.iter().skip(1).map(|size| size.parse()).collect::<Result<_, _>>()?;
    let sizes = if sizes.is_empty() { SIZES.to_vec() } else { sizes };
    if name.is_some_and(|name| name == "round") {
        return round::table(&sizes);
    }
    let chosen: Vec<_> = TRANSPORTS.iter().filter(|t| name.is_none_or(|n| n == t.name)).collect();
    if chosen.is_empty() {
        let names = TRANSPORTS.map(|transport| transport.name).join(", ");
        return Err(format!("no transport is called so; there are {names}").into());
    }
    let rows = cluster::rows(&chosen, &sizes)?;
    if let Some(file) = json {
        std::fs::write(&file, serde_json::to_string_pretty(&rows)?)
            .map_err(|e| format!("{file}: {e}"))?;
    }
    Ok(())
}
