//! Guests by vhost-user whose disks are behind NBD servers with block sizes of their own.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::guest::{Bus, Guest, Source};
use crate::restarts::Agent;
use crate::{SOON, guest, turn};

/// nbdkit, which is killed when dropped.
struct Server(Child);

impl Server {
    /// Takes requests of these sizes only, and answers EINVAL to others.
    fn start(dir: &Path, name: &str, [min, preferred, max]: [&str; 3]) -> Server {
        let mut nbdkit = Command::new("nbdkit");
        nbdkit.args(["-f", "-U", name, "--filter=blocksize-policy", "memory", "64M"]);
        nbdkit.arg(format!("blocksize-minimum={min}"));
        nbdkit.arg(format!("blocksize-preferred={preferred}"));
        nbdkit.arg(format!("blocksize-maximum={max}"));
        nbdkit.arg("blocksize-error-policy=error").current_dir(dir).stdin(Stdio::null());
        let server = Server(nbdkit.spawn().unwrap());
        let end = Instant::now() + SOON;
        while !dir.join(name).exists() {
            assert!(Instant::now() < end, "nbdkit does not listen");
            std::thread::sleep(Duration::from_millis(10));
        }
        server
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn linux_has_the_blocks_of_a_server_and_moves_more_than_that_takes_at_once() {
    let Some(_turn) = turn() else { return };
    let dir = tempfile::tempdir().unwrap();
    let disks = [
        ("bytes", ["1", "4K", "64K"], "512 4096 4096 65536"),
        ("pages", ["4K", "64K", "64K"], "4096 4096 65536 65536"),
    ];
    let mut config = "host = \"host\"\nstatus = \"unix:status\"\n\
                      [[volume]]\nname = \"array\"\n[volume.control]\nmode = \"off\"\n"
        .to_owned();
    let mut wanted = guest("one");
    let mut servers = Vec::new();
    for (name, sizes, _) in disks {
        let (server, socket) = (format!("{name}.nbd"), dir.path().join(name));
        servers.push(Server::start(dir.path(), &server, sizes));
        let server = dir.path().join(server);
        config += &format!(
            "[[volume.disk]]\nname = \"{name}\"\npath = \"nbd+unix:///?socket={}\"\n\
             listen = \"vhost-user:{name}\"\n",
            server.display()
        );
        wanted = wanted.disk(name, Bus::Virtio, Source::Vhost { socket });
    }
    std::fs::write(dir.path().join("parda.toml"), config).unwrap();
    let agent = Agent::start(dir.path(), &["status"]);
    let end = Instant::now() + SOON;
    while !disks.iter().all(|(name, ..)| dir.path().join(name).exists()) {
        assert!(Instant::now() < end, "the agent does not listen");
        std::thread::sleep(Duration::from_millis(10));
    }
    let guest = Guest::boot(wanted).unwrap();
    for (name, _, expected) in disks {
        let device = guest.device(name).unwrap();
        let queue = format!("/sys/block/{}/queue", &device["/dev/".len()..]);
        let sizes = format!(
            "cd {queue} && echo $(cat logical_block_size physical_block_size minimum_io_size optimal_io_size)"
        );
        assert_eq!(guest.ok(&sizes, SOON).unwrap(), expected, "{name}");
        let copy = format!(
            "head -c 8388608 /dev/urandom >/run/data && dd if=/run/data of={device} bs=4M oflag=direct && \
             echo 3 >/proc/sys/vm/drop_caches && dd if={device} bs=8M count=1 iflag=direct | cmp - /run/data"
        );
        guest.ok(&copy, SOON).unwrap();
    }
    let errors = guest.ok("dmesg | grep -c 'error' || true", SOON).unwrap();
    assert_eq!(errors, "0", "errors in the guest's log");
    drop((guest, agent, servers));
}
