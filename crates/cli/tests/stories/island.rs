//! A small file system that only the processes sent there can see, gone with them: full and
//! read-only file systems, without a mount that anybody could forget.

use std::fs::File;
use std::io::{ErrorKind, Write};
use std::path::PathBuf;

use crate::stage::{Process, Stage, until};

/// Where it is, in the stage.
pub(crate) const ISLAND: &str = "island";

pub(crate) struct Island {
    /// As long as it lives, there is an island.
    _holder: Process,
    enter: Vec<String>,
    dir: PathBuf,
}

impl Island {
    /// Mounts a file system of that size, in tmpfs's terms.
    pub(crate) fn new(stage: &Stage, size: &str) -> Island {
        std::fs::create_dir(stage.path(ISLAND)).unwrap();
        let script = format!(
            "mount -t tmpfs -o size={size} none {ISLAND} && touch {ISLAND}/mounted && \
             exec setpriv --pdeathsig KILL sleep infinity"
        );
        // Whoever is not root becomes root of a namespace of his own.
        let root = rustix::process::geteuid().is_root();
        let user: &[&str] = if root { &[] } else { &["--map-root-user"] };
        let line = [&["unshare", "--mount"], user, &["sh", "-c", &script]].concat();
        let mut holder = stage.start("holder", &line);
        let target = format!("--target={}", holder.pid());
        let user: &[&str] = if root { &[] } else { &["--user", "--preserve-credentials"] };
        // Entering a namespace leads to its root directory.
        let back =
            format!("cd '{}' && exec setpriv --pdeathsig KILL \"$@\"", stage.path("").display());
        let enter = [&["nsenter", &target, "--mount"], user, &["sh", "-c", &back, "sh"]].concat();
        let enter = enter.into_iter().map(str::to_owned).collect();
        let dir = PathBuf::from(format!("/proc/{}/root", holder.pid()))
            .join(stage.path(ISLAND).strip_prefix("/").unwrap());
        until("the island is mounted", || {
            assert_eq!(holder.ended(), None, "no file system could be mounted: {}", holder.log());
            dir.join("mounted").exists()
        });
        Island { _holder: holder, enter, dir }
    }

    /// What to put before a command line for it to run there, in the stage's directory.
    pub(crate) fn enter(&self) -> Vec<&str> {
        self.enter.iter().map(String::as_str).collect()
    }

    /// A file on it, as it is seen from outside.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// Fills it to the last byte.
    pub(crate) fn fill(&self) {
        let mut filler =
            File::options().create(true).append(true).open(self.path("filler")).unwrap();
        let error = filler.write_all(&[1; 16 << 20]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::StorageFull);
    }

    /// Mounts it again: `ro` or `rw`. As a bind, which needs none of the options that it was
    /// mounted with, and so nobody but its owner.
    pub(crate) fn remount(&self, stage: &Stage, how: &str) {
        let how = format!("remount,bind,{how}");
        stage.ok(&[&self.enter()[..], &["mount", "-o", &how, ISLAND]].concat());
    }
}
