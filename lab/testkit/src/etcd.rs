//! A real etcd of one or more members, each a process at a loopback address of its own.

use std::hash::{BuildHasher, RandomState};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

/// Time limit of any step, on a busy machine.
const PATIENT: Duration = Duration::from_secs(60);

/// Time limit of a member's answer whether it leads. After it, the test asks again.
const SOON: Duration = Duration::from_secs(1);

/// A cluster of etcd. Its members and data end with it.
#[derive(Debug)]
pub struct TestEtcd {
    /// Directory of the members' logs.
    dir: PathBuf,
    /// Directory of their data: in memory, as a disk that other tests flush to keeps an etcd waiting for longer than its own time-out.
    data: TempDir,
    members: Vec<Member>,
    /// Flags of the members' TLS.
    tls: Vec<String>,
}

#[derive(Debug)]
struct Member {
    address: String,
    process: Option<Child>,
}

/// PEM files of the members' TLS with clients.
#[derive(Clone, Copy, Debug)]
pub struct TestEtcdTls<'a> {
    /// Certificate of all members. It serves for clients, too: the gateway is one of its own member.
    pub certificate: &'a Path,
    /// Private key of the certificate.
    pub key: &'a Path,
    /// The CA of clients, which need a certificate.
    pub clients: &'a Path,
}

impl TestEtcd {
    /// Starts so many members, whose logs are in `dir`, and waits until they serve.
    #[must_use]
    pub fn start(dir: &Path, members: u8) -> TestEtcd {
        let mut etcd = TestEtcd::new(dir, members);
        etcd.launch();
        etcd.wait();
        etcd
    }

    /// A cluster whose members do not run yet. Their addresses are known, as certificates need them.
    #[must_use]
    pub fn new(dir: &Path, members: u8) -> TestEtcd {
        // An address of loopback that no other test has.
        let random = RandomState::new().hash_one(Instant::now());
        let [x, y, ..] = random.to_le_bytes();
        let addresses = (1..=members).map(|n| format!("127.{}.{y}.{n}", x | 1));
        let member = |address| Member { address, process: None };
        let data = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir_in(dir));
        TestEtcd {
            dir: dir.to_owned(),
            data: data.unwrap(),
            members: addresses.map(member).collect(),
            tls: Vec::new(),
        }
    }

    /// Has the members speak TLS with clients, from the next start of each.
    pub fn secure(&mut self, tls: TestEtcdTls<'_>) {
        let files = [
            ("--cert-file", tls.certificate),
            ("--key-file", tls.key),
            ("--trusted-ca-file", tls.clients),
        ];
        let files = files.map(|(flag, file)| [flag.to_owned(), file.display().to_string()]);
        self.tls = files.into_iter().flatten().chain(["--client-cert-auth".to_owned()]).collect();
    }

    /// Starts all members, which then elect a leader.
    pub fn launch(&mut self) {
        (0..self.members.len()).for_each(|n| self.restart(n));
    }

    fn arguments(&self, member: usize) -> Vec<String> {
        let peer = |member: &Member| format!("http://{}:2380", member.address);
        let all =
            self.members.iter().enumerate().map(|(n, member)| format!("m{n}={}", peer(member)));
        let all: Vec<_> = all.collect();
        let client = self.urls().swap_remove(member);
        let own = peer(&self.members[member]);
        let flags = [
            ("name", format!("m{member}")),
            ("data-dir", self.data(member).display().to_string()),
            ("listen-client-urls", client.clone()),
            ("advertise-client-urls", client),
            ("listen-peer-urls", own.clone()),
            ("initial-advertise-peer-urls", own),
            ("initial-cluster", all.join(",")),
            ("logger", "zap".to_owned()),
        ];
        let flags = flags.into_iter().flat_map(|(flag, value)| [format!("--{flag}"), value]);
        flags.chain(self.tls.iter().cloned()).collect()
    }

    fn data(&self, member: usize) -> PathBuf {
        self.data.path().join(format!("m{member}"))
    }

    /// URLs of the members.
    #[must_use]
    pub fn urls(&self) -> Vec<String> {
        let scheme = if self.tls.is_empty() { "http" } else { "https" };
        let url = |member: &Member| format!("{scheme}://{}:2379", member.address);
        self.members.iter().map(url).collect()
    }

    /// Addresses of the members.
    #[must_use]
    pub fn addresses(&self) -> Vec<String> {
        self.members.iter().map(|member| member.address.clone()).collect()
    }

    /// Starts a member that was killed.
    pub fn restart(&mut self, member: usize) {
        let log = self.dir.join(format!("m{member}.log"));
        let log = std::fs::File::options().create(true).append(true).open(log).unwrap();
        let process = Command::new("etcd")
            .args(self.arguments(member))
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn();
        self.members[member].process = Some(process.expect("etcd must be installed for this test"));
    }

    /// Kills a member, whose data stays.
    pub fn kill(&mut self, member: usize) {
        if let Some(mut process) = self.members[member].process.take() {
            // It may have ended by itself; either way it is gone afterwards.
            let _ = process.kill();
            let _ = process.wait();
        }
    }

    /// Stops a member (SIGSTOP), or lets it go on.
    pub fn pause(&self, member: usize, paused: bool) {
        if let Some(process) = &self.members[member].process {
            let signal = if paused { Signal::STOP } else { Signal::CONT };
            kill_process(Pid::from_child(process), signal).unwrap();
        }
    }

    /// Kills all members and starts a cluster without data in their place.
    pub fn wipe(&mut self) {
        for n in 0..self.members.len() {
            self.kill(n);
            std::fs::remove_dir_all(self.data(n)).unwrap();
        }
        self.launch();
    }

    /// Waits until all members that run have a leader.
    pub fn wait(&self) {
        let begun = Instant::now();
        let running = |member: &&Member| member.process.is_some();
        for member in self.members.iter().filter(running) {
            while member.leader().is_none() {
                assert!(begun.elapsed() < PATIENT, "etcd at {} has no leader", member.address);
                std::thread::sleep(Duration::from_millis(20));
            }
        }
    }

    /// The member that leads.
    #[must_use]
    pub fn leader(&self) -> Option<usize> {
        self.members.iter().position(|member| member.leader() == Some(true))
    }

    /// Calls the JSON gateway of a member without TLS. Returns the answer with its headers.
    pub fn post(&self, member: usize, path: &str, body: &str) -> std::io::Result<String> {
        post(&self.members[member].address, path, body, PATIENT)
    }

    /// Seconds of CPU time that the members have taken together.
    #[must_use]
    pub fn cpu_seconds(&self) -> f64 {
        let ticks = self.members.iter().filter_map(|member| {
            let pid = member.process.as_ref()?.id();
            let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
            let fields: Vec<_> = stat.rsplit_once(") ")?.1.split(' ').collect();
            Some(fields.get(11)?.parse::<f64>().ok()? + fields.get(12)?.parse::<f64>().ok()?)
        });
        ticks.sum::<f64>() / 100.0
    }
}

impl Drop for TestEtcd {
    fn drop(&mut self) {
        (0..self.members.len()).for_each(|n| self.kill(n));
    }
}

impl Member {
    /// Whether the member leads. `None`: it has no leader, or does not answer.
    fn leader(&self) -> Option<bool> {
        let answer = post(&self.address, "/v3/maintenance/status", "{}", SOON).ok()?;
        let field = |name: &str| {
            let (_, rest) = answer.split_once(&format!("\"{name}\":\""))?;
            rest.split('"').next()
        };
        let leader = field("leader").filter(|leader| *leader != "0")?;
        Some(field("member_id") == Some(leader))
    }
}

fn post(address: &str, path: &str, body: &str, patience: Duration) -> std::io::Result<String> {
    let mut socket = TcpStream::connect((address, 2379))?;
    socket.set_read_timeout(Some(patience))?;
    let length = body.len();
    write!(
        socket,
        "POST {path} HTTP/1.1\r\nHost: etcd\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}"
    )?;
    let mut answer = String::new();
    socket.read_to_string(&mut answer)?;
    Ok(answer)
}
