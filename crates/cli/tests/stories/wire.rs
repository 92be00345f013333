//! Two hosts and the cable between them: network namespaces that only the processes sent there
//! are in, gone with them.

use crate::stage::{Process, Stage, until};

/// The address of the near host, which is the agent's, in a network of its own.
pub(crate) const NEAR: &str = "192.0.2.1";

pub(crate) struct Wire {
    /// As long as it lives, there is a cable.
    _holder: Process,
    near: Vec<String>,
    far: Vec<String>,
}

impl Wire {
    pub(crate) fn new(stage: &Stage) -> Wire {
        let script = format!(
            "ip link set lo up
            unshare --net setpriv --pdeathsig KILL sleep infinity & far=$!
            until [ \"$(readlink /proc/$far/ns/net)\" != \"$(readlink /proc/$$/ns/net)\" ]; do sleep 0.01; done
            ip link add near type veth peer name far netns $far &&
            ip addr add {NEAR}/24 dev near && ip link set near up &&
            nsenter --target=$far --net sh -c 'ip addr add 192.0.2.2/24 dev far && ip link set far up' &&
            echo $far > wire.far && mv wire.far wire && exec setpriv --pdeathsig KILL sleep infinity"
        );
        // Whoever is not root becomes root of a namespace of his own.
        let root = rustix::process::geteuid().is_root();
        let user: &[&str] = if root { &[] } else { &["--map-root-user"] };
        let line = [&["unshare", "--net"], user, &["sh", "-c", &script]].concat();
        let mut holder = stage.start("cable", &line);
        until("there is a cable", || {
            assert_eq!(holder.ended(), None, "no network could be made: {}", holder.log());
            stage.path("wire").exists()
        });
        let user: &[&str] = if root { &[] } else { &["--user", "--preserve-credentials"] };
        let enter = |pid: &str| {
            let target = format!("--target={}", pid.trim());
            let exec = ["setpriv", "--pdeathsig", "KILL"];
            let line = [&["nsenter", &target, "--net"], user, &exec].concat();
            line.into_iter().map(str::to_owned).collect()
        };
        let far = String::from_utf8(stage.read("wire")).unwrap();
        Wire { near: enter(&holder.pid().to_string()), far: enter(&far), _holder: holder }
    }

    /// What to put before a command line for it to run on the near host.
    pub(crate) fn near(&self) -> Vec<&str> {
        self.near.iter().map(String::as_str).collect()
    }

    /// What to put before a command line for it to run on the far host.
    pub(crate) fn far(&self) -> Vec<&str> {
        self.far.iter().map(String::as_str).collect()
    }

    /// Pulls the cable out at the far host: nothing arrives any more, and nobody is told.
    pub(crate) fn cut(&self, stage: &Stage) {
        stage.ok(&[&self.far()[..], &["ip", "link", "set", "far", "down"]].concat());
    }
}
