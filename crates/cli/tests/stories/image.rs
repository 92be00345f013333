//! The container image: what is in it, and that it serves.

use std::path::Path;

use rustix::process::Signal;

use crate::stage::{PARDA, Stage, until};
use parda_testkit::disk::skipped;

#[test]
fn an_image_made_without_a_daemon_serves_as_a_user_without_privileges() {
    if !rustix::process::geteuid().is_root() {
        return skipped("to unpack an image and to enter it needs root");
    }
    let stage = Stage::new();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tools/image.sh");
    let (program, image) = (format!("PARDA={PARDA}"), stage.path("image").display().to_string());
    let script = script.display().to_string();
    let made = stage.ok(&["env", &program, &format!("IMAGE={image}"), &script]);
    let made = made.lines().last().unwrap();
    assert!(made.starts_with(&format!("{image}:")), "{made}");
    stage.ok(&["umoci", "unpack", "--image", made, "bundle"]);

    let config: serde_json::Value =
        serde_json::from_slice(&stage.read("bundle/config.json")).unwrap();
    assert_eq!(config["process"]["user"]["uid"], 7077);
    let arguments = ["/usr/bin/parda", "serve", "-c", "/etc/parda.toml"];
    assert_eq!(config["process"]["args"], serde_json::json!(arguments));
    let files = stage.ok(&["find", "bundle/rootfs", "-type", "f", "-printf", "%P %m\n"]);
    let known = ["etc/passwd 644", "etc/group 644", "usr/bin/parda 755"];
    let library =
        |file: &str| file.starts_with("usr/lib") && file.contains(".so") && file.ends_with(" 755");
    let odd = files.lines().filter(|file| !known.contains(file) && !library(file));
    assert_eq!(odd.collect::<Vec<_>>(), Vec::<&str>::new(), "only the program and its libraries");

    // As a container engine runs it, less the other namespaces.
    stage.write(
        "bundle/rootfs/etc/parda.toml",
        "host = \"h\"\n[[volume]]\nname = \"v\"\n[[volume.disk]]\nname = \"vm1\"\n\
         path = \"/var/lib/parda/vm1.img\"\nlisten = \"unix:/run/parda/v.sock\"\n",
    );
    stage.sparse("bundle/rootfs/var/lib/parda/vm1.img", 1 << 20);
    stage.ok(&["chown", "7077:7077", "bundle/rootfs/var/lib/parda/vm1.img"]);
    let root = ["unshare", "--mount", "--root=bundle/rootfs", "--mount-proc=/proc"];
    let enter = [&root[..], &["--setgid=7077", "--setuid=7077"]].concat();
    let mut agent = stage.start("agent", &[&enter[..], &arguments[..]].concat());
    let socket = stage.path("bundle/rootfs/run/parda/v.sock");
    until("it listens", || {
        assert!(agent.ended().is_none(), "{}", agent.log());
        socket.exists()
    });
    let uri = format!("nbd+unix:///vm1?socket={}", socket.display());
    stage.ok(&["nbdinfo", &uri]);
    agent.signal(Signal::TERM);
    assert!(agent.wait().success());
}
