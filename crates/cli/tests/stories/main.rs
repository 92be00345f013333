//! What the `parda` binary promises, tried from outside: real processes, real sockets, the clients
//! that people use. Every story has a directory of its own, and nothing that it starts outlives it.
//!
//! | file | stories |
//! | --- | --- |
//! | `clients` | nbdinfo, nbdcopy, qemu-img, qemu-io and fio, on every backend and listener |
//! | `clocks` | wall clocks that step by an hour |
//! | `firmware` | OVMF, which reads long files, on a disk by vhost-user |
//! | `files` | files and devices that change, vanish or fail while they are served |
//! | `listeners` | who may connect where; sockets that a service manager passes |
//! | `nbd` | what of the protocol clients see: maps, holes, advice, refusals |
//! | `tls` | clients with TLS: libnbd and QEMU, certificates of all kinds |
//! | `tls_backends` | NBD servers with TLS behind disks and exchanges: nbdkit and qemu-nbd |
//! | `crash` | SIGKILL, power cuts, SIGTERM |
//! | `dashboard` | the web dashboard in a browser |
//! | `durability` | what was promised, after kills at random points |
//! | `reload` | SIGHUP |
//! | `api` | the HTTP API: state, history, events |
//! | `api_tls` | the HTTP API for other hosts: with TLS, and tokens |
//! | `live_disks` | disks added, removed and drained by command |
//! | `auto` | a latency threshold that is found while working |
//! | `observe` | looking before acting |
//! | `explain` | why a VM is as slow as it is, and predictions that come true |
//! | `bench` | servers under load by `parda-lab bench` |
//! | `bad_clients` | malformed and rude NBD |
//! | `bad_configuration` | mistakes in the file, and in what it names |
//! | `failing_backends` | full disks, lost servers |
//! | `frozen` | agents that are stopped and go on |
//! | `few_shares` | a disk of one share beside one of ten thousand |
//! | `half_open` | clients whose host vanishes from the network |
//! | `hostile` | hundreds of clients that take all they can, in a bounded memory |
//! | `restarted_backends` | NBD servers behind disks, restarted, stopped and continued |
//! | `latency_targets` | disks with a latency objective |
//! | `alerts` | each alert of the rules, fired by its fault and cleared by its mending |
//! | `metrics` | metrics as Prometheus takes them; health; alerts and the dashboard |
//! | `many` | a thousand disks; limits of the system that are reached on purpose |
//! | `manager` | a service manager, and its watchdog |
//! | `locks` | files that others have: QEMU, another agent, one that was killed |
//! | `exchange_faults` | a damaged, lost or contested exchange |
//! | `exchange_etcd` | hosts that meet in an etcd of three members that die, stop and lose all data |
//! | `exchange_fallback` | hosts that meet over UDP, and in a file while the network is parted |
//! | `exchange_udp` | hosts that meet over UDP, and attackers on their network |
//! | `silence` | a host that nobody hears, a configuration that is refused, IOs that fail |
//! | `exchange_init` | making an exchange |
//! | `image` | the container image |
//! | `libvirt` | domains of libvirt whose disks the agent serves |
//! | `kubernetes` | pods whose shares come from claims and classes: `make kubernetes` |
//! | `proxmox` | the storage plugin and the hook script for Proxmox VE |
//! | `qemu` | disks that QEMU opens itself, held by its throttles |
//! | `packages` | Debian and RPM packages on a machine of their own |
//! | `service` | installed, and run by systemd |
//! | `settings` | hosts that were told different things |
//! | `silent_files` | file systems that do not answer, at the start, on a reload, and when a disk is removed |
//! | `soak` | a long time under load, with reloads and kills |
//! | `status` | rates of now, and what limits each disk |
//! | `steering` | devices whose queue is steered, alone and beside hosts that serve |
//! | `lifecycle` | disks, listeners and volumes that come late, come and go, or panic |
//! | `logging` | a log that nobody reads, or that others would fill or forge |
//! | `pages` | the pages of probes, in a browser |
//! | `pools` | two LUNs on the same drives, shared by hosts as one pool |
//! | `policy` | settings that live in etcd for all hosts |
//! | `probe` | devices measured by `parda probe`: what it tells, and how it ends |
//! | `tutorial` | docs/tutorial.md, run as it stands |
//! | `vhost_user` | guests by vhost-user, whose agent is killed under their load |
//! | `vm_names` | VMs of a steered device by the names of platforms; what no pattern matches |
//! | `watching` | what a device does, shown by `parda steer watch` |
//! | `workloads` | workloads to and from fio, and a trace from its file to an answer |
//!
//! The rest is what they stand on.
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod alerts;
mod api;
mod api_tls;
mod array;
mod auto;
mod bad_clients;
mod bad_configuration;
mod bench;
mod browser;
mod clients;
mod clocks;
mod crash;
mod dashboard;
mod durability;
mod exchange_etcd;
mod exchange_fallback;
mod exchange_faults;
mod exchange_init;
mod exchange_udp;
mod explain;
mod failing_backends;
mod few_shares;
mod files;
mod firmware;
mod frozen;
mod fuse;
mod guarantees;
mod half_open;
mod held;
mod hostile;
mod image;
mod island;
mod journal;
#[cfg(feature = "kubernetes")]
mod kubernetes;
mod latency_targets;
mod libvirt;
mod lifecycle;
mod listeners;
mod live_disks;
mod locks;
mod logging;
mod machine;
mod manager;
mod many;
mod metrics;
mod migration;
mod nbd;
mod observe;
mod packages;
mod page_cache;
mod pages;
mod policy;
mod pools;
mod probe;
mod prometheus;
mod proxmox;
mod qemu;
mod reload;
mod restarted_backends;
mod service;
mod settings;
mod silence;
mod silent_files;
mod soak;
mod stage;
mod status;
mod steering;
mod throttles;
mod tls;
mod tls_backends;
mod tutorial;
mod vhost_user;
mod vm_names;
mod watching;
mod wire;
mod workloads;
