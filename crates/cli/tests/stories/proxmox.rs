//! The hook script for Proxmox VE: shares from the tags of VMs. Its VMs are files of a directory here, as of /etc/pve/qemu-server.

use std::path::Path;

use crate::stage::{Done, PARDA, Stage};

const BEFORE: &str = r##"host = "pve1"
[[volume]]
name = "local"
[[volume.disk]]
name = "scratch"
path = "scratch.img"
listen = "unix:local.sock"
[[volume]]
name = "san"
[volume.steer]
device = "/dev/mapper/san"
# parda-hook: begin
# parda-hook: end
[[volume.steer.vm]]
name = "others"
cgroup = "proxmox:*"
"##;

fn hook(stage: &Stage, phase: &str) -> Done {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../contrib/proxmox/parda-hook");
    let (script, program) = (script.display().to_string(), format!("PARDA={PARDA}"));
    let place = ["env", "PARDA_PVE=pve", "PARDA_TOML=parda.toml", &program];
    let reload = "PARDA_RELOAD=echo reloaded";
    let done = stage.run(&[&place[..], &[reload, &script, "100", phase]].concat());
    assert!(done.status.success(), "a VM must start whatever happens: {}", done.err);
    done
}

fn configuration(stage: &Stage) -> String {
    String::from_utf8(stage.read("parda.toml")).unwrap()
}

#[test]
fn tags_of_proxmox_are_shares_and_no_fault_keeps_a_vm_from_starting() {
    let stage = Stage::new();
    std::fs::create_dir(stage.path("pve")).unwrap();
    stage.write("parda.toml", BEFORE);
    stage.write(
        "pve/100.conf",
        "name: db\ntags: prod;parda-shares-2000\n[old]\ntags: parda-shares-5\n",
    );
    stage.write("pve/101.conf", "name: web\n[old]\ntags: parda-shares-7\n");
    stage.write("pve/102.conf", "tags: xparda-shares-9;parda-shares-3x\n");
    assert_eq!(hook(&stage, "pre-start").out, "");
    assert_eq!(configuration(&stage), BEFORE);
    assert_eq!(hook(&stage, "post-start").out, "reloaded\n");
    let tagged = "# parda-hook: begin\n[[volume.steer.vm]]\nname = \"100\"\n\
                  cgroup = \"proxmox:100\"\nshares = 2000\n# parda-hook: end";
    let after = BEFORE.replace("# parda-hook: begin\n# parda-hook: end", tagged);
    assert_eq!(configuration(&stage), after);
    stage.ok(&[PARDA, "check", "parda.toml"]);
    assert_eq!(hook(&stage, "post-stop").out, "", "nothing has changed");

    // Shares that are refused, and a file without the two lines, change nothing.
    stage.write("pve/101.conf", "tags: parda-shares-0\n");
    let refused = hook(&stage, "post-start");
    assert!(
        refused.err.contains("shares = 0: must be") && refused.out.is_empty(),
        "{}",
        refused.err
    );
    assert_eq!(configuration(&stage), after);
    stage.write("pve/101.conf", "tags: parda-shares-10\n");
    let without = after.replace("# parda-hook: end\n", "");
    stage.write("parda.toml", &without);
    let refused = hook(&stage, "post-start");
    assert!(refused.err.contains("do not stand there once each"), "{}", refused.err);
    assert_eq!(configuration(&stage), without);
    assert!(!stage.path("parda.toml.new").exists());

    stage.write("parda.toml", &after);
    std::fs::remove_file(stage.path("pve/100.conf")).unwrap();
    std::fs::remove_file(stage.path("pve/101.conf")).unwrap();
    assert_eq!(hook(&stage, "post-stop").out, "reloaded\n");
    assert_eq!(configuration(&stage), BEFORE);
}
