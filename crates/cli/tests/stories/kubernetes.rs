//! Pods whose shares come from their claims and storage classes, by `parda kubernetes` beside an agent that steers. The API server is a
//! stand-in, `stand_in.py`, with the objects of a cluster as kube-apiserver answers them, or kube-apiserver itself; cgroups are directories.

mod kube_apiserver;
mod server;

use std::collections::BTreeMap;
use std::path::PathBuf;

use parda_testkit::disk::AttachedDisk;
use rustix::process::Signal;
use serde_json::{Value, json};

use self::server::{Server, StandIn, order};
use crate::stage::{Agent, PARDA, Process, Stage, until, wait_for};
use crate::tls::Authority;

/// The manifest that says how nodes are set up: the configuration and the arguments of the stories are those of the manifest.
const MANIFEST: &str = include_str!("../../../../contrib/kubernetes/steer.yaml");

/// Runs the agent with the directory `cgroups` in place of the host's cgroups.
const IN_CGROUPS: &str = "mount --bind cgroups /sys/fs/cgroup && exec \"$@\"";

/// Runs a program as in a pod: with a service account and the address of the API server, and without a kubeconfig.
const IN_A_POD: &str = "mount -t tmpfs none /run && mkdir -p /run/secrets/kubernetes.io && \
    ln -s \"$PWD/account\" /run/secrets/kubernetes.io/serviceaccount && \
    exec env -u KUBECONFIG HOME=/nonexistent KUBERNETES_SERVICE_HOST=127.0.0.1 KUBERNETES_SERVICE_PORT=$(cat port) \"$@\"";

/// A node: an agent that steers a device for pods, `parda kubernetes`, and the API server.
struct Node {
    agent: Option<Agent>,
    follows: Process,
    server: Box<dyn Server>,
    /// The uid of the pod `db-0`.
    db: String,
    stage: Stage,
    _disk: AttachedDisk,
}

impl Node {
    /// A node of a cluster with these objects. `None` where there is no loop device.
    fn new(server: fn(&Stage) -> Box<dyn Server>, objects: &[(&str, Value)]) -> Option<Node> {
        let disk = AttachedDisk::fast()?;
        let stage = stage();
        stage.exchange("exchange", 64);
        for file in ["node-1.toml", "another.toml"] {
            stage.write(file, configuration(&disk.device.display().to_string()));
        }
        let server = server(&stage);
        let mut uids = BTreeMap::new();
        for (kind, object) in objects {
            uids.insert(object["metadata"]["name"].as_str(), server.put(&stage, kind, object));
        }
        let db = uids[&Some("db-0")].clone();
        let agent = agent(&stage);
        let follows = follows(&stage, "kubernetes", "node-1.toml");
        Some(Node { stage, agent: Some(agent), server, follows, db, _disk: disk })
    }

    fn put(&self, kind: &str, object: Value) -> String {
        self.server.put(&self.stage, kind, &object)
    }

    fn order(&self, command: Value) {
        order(&self.stage, &command);
    }

    /// Makes the cgroup of a pod, as the kubelet does with systemd, with a container.
    fn cgroup(&self, uid: &str) {
        std::fs::create_dir_all(self.path_of(uid).join("cri-1.scope")).unwrap();
    }

    fn path_of(&self, uid: &str) -> PathBuf {
        let name = format!("kubepods-burstable-pod{}.slice", uid.replace('-', "_"));
        self.stage.path("cgroups/kubepods.slice/kubepods-burstable.slice").join(name)
    }

    /// Shares that the agent has for its VMs, by name.
    fn shares(&self) -> BTreeMap<String, u32> {
        let vms = self.agent.as_ref().unwrap().volume().steer.unwrap().vms;
        vms.into_iter().map(|vm| (vm.name, vm.shares)).collect()
    }

    /// The first VM's limit in IO/s, 0 without one, and its tenant.
    fn limit_and_tenant(&self) -> (f64, Option<String>) {
        let mut vms = self.agent.as_ref().unwrap().volume().steer.unwrap().vms;
        let settings = vms.swap_remove(0).settings;
        let iops = settings.limit.and_then(|limit| limit.iops).unwrap_or_default();
        (iops, settings.tenant.map(|tenant| tenant.to_string()))
    }

    /// Waits until the agent has these VMs.
    fn until(&self, what: &str, wanted: &[(&str, u32)]) {
        let wanted: BTreeMap<String, u32> =
            wanted.iter().map(|(name, shares)| ((*name).to_owned(), *shares)).collect();
        let mut last = None;
        until(&format!("{what}: {wanted:?}"), || {
            let shares = self.shares();
            if last.as_ref() != Some(&shares) {
                eprintln!("{what}: {shares:?}");
                last = Some(shares.clone());
            }
            shares == wanted
        });
    }

    fn says(&self, what: &str) {
        until(&format!("parda kubernetes says {what:?}"), || self.follows.log().contains(what));
    }

    fn end(mut self) {
        self.agent.take().unwrap().stop();
        self.follows.signal(Signal::TERM);
        self.follows.wait();
    }
}

/// A stage with the certificates of an API server, and the account of a pod without a token.
fn stage() -> Stage {
    let (stage, ca) = (Stage::new(), Authority::new());
    ca.directory(&stage, "pki", false);
    ca.issue(&stage.path("pki"), "api");
    ca.issue(&stage.path("pki"), "account");
    std::fs::create_dir(stage.path("account")).unwrap();
    std::fs::copy(stage.path("pki/ca-cert.pem"), stage.path("account/ca.crt")).unwrap();
    stage.write("account/namespace", "parda");
    std::fs::create_dir(stage.path("cgroups")).unwrap();
    stage.write("cgroups/cgroup.controllers", "cpu io memory\n");
    stage
}

/// The configuration of the manifest, on this device, and nothing is set.
fn configuration(device: &str) -> String {
    let lines = MANIFEST.lines().skip_while(|line| line.trim() != "parda.toml: |").skip(1);
    let lines = lines.map_while(|line| line.strip_prefix("    ").or(line.is_empty().then_some("")));
    let mut text: String = lines.map(|line| format!("{line}\n")).collect();
    for (from, to) in [
        ("@NODE@", "node-1"),
        ("/run/parda/steer.sock", "node-1.status"),
        ("[volume.control]", "[volume.control]\nmode = \"observe\"\nperiod = \"200ms\""),
        ("\"/dev/mapper/parda\"", "\"exchange\""),
        ("[volume.steer]", "[[volume.tenant]]\nname = \"gold\"\n[volume.steer]"),
        ("/dev/mapper/san", device),
        ("shares = 1000", "shares = 100"),
    ] {
        assert!(text.contains(from), "{from}: {text}");
        text = text.replace(from, to);
    }
    text
}

/// Starts what follows the pods, with the arguments of the manifest.
fn follows(stage: &Stage, who: &str, config: &str) -> Process {
    let args = MANIFEST.lines().find_map(|line| line.trim().strip_prefix("args: [kubernetes, "));
    let args = args.unwrap().trim_end_matches(']').replace("/etc/parda/parda.toml", config);
    let args: Vec<&str> = args.split(", ").collect();
    let line =
        ["env", "NODE=node-1", "unshare", "-m", "sh", "-c", IN_A_POD, "sh", PARDA, "kubernetes"];
    stage.start(who, &[&line[..], &args].concat())
}

fn agent(stage: &Stage) -> Agent {
    stage.restart(&["unshare", "-m", "sh", "-c", IN_CGROUPS, "sh"], "node-1")
}

fn pod(name: &str, uid: &str, node: &str, volumes: Value) -> Value {
    json!({
        "metadata": {
            "name": name, "namespace": "shop", "uid": uid, "creationTimestamp": "2026-11-26T08:00:00Z",
            "labels": { "app": "db" },
            "managedFields": [{
                "manager": "kubelet", "operation": "Update", "apiVersion": "v1", "time": "2026-11-26T08:00:02Z",
                "fieldsType": "FieldsV1", "fieldsV1": { "f:status": { "f:phase": {} } }, "subresource": "status"
            }]
        },
        "spec": {
            "nodeName": node, "volumes": volumes,
            "containers": [{ "name": "db", "image": "docker.io/library/postgres:18", "resources": { "requests": { "cpu": "100m" } } }]
        },
        "status": { "phase": "Running", "qosClass": "Burstable", "podIP": "10.1.0.7" }
    })
}

/// A volume of a pod with the claim of that name.
fn claimed(claim: &str) -> Value {
    json!([
        { "name": "data", "persistentVolumeClaim": { "claimName": claim } },
        { "name": "token", "projected": { "sources": [{ "serviceAccountToken": { "path": "token", "expirationSeconds": 3607 } }] } }
    ])
}

fn claim(name: &str, annotations: Value, attributes: Option<&str>) -> Value {
    json!({
        "metadata": { "name": name, "namespace": "shop", "uid": format!("claim-{name}"), "annotations": annotations },
        "spec": {
            "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": "10Gi" } }, "storageClassName": "san",
            "volumeAttributesClassName": attributes, "volumeMode": "Filesystem", "volumeName": format!("pvc-{name}")
        },
        "status": { "phase": "Bound", "capacity": { "storage": "10Gi" }, "currentVolumeAttributesClassName": attributes }
    })
}

fn storage_class(shares: &str) -> Value {
    json!({
        "metadata": { "name": "san" }, "provisioner": "csi.example.com", "reclaimPolicy": "Delete", "volumeBindingMode": "Immediate",
        "allowVolumeExpansion": true, "parameters": { "pool": "flash", "parda/shares": shares, "parda/tenant": "gold" }
    })
}

fn gold() -> Value {
    let parameters = json!({ "iops": "4000", "parda/shares": "3000" });
    json!({ "metadata": { "name": "gold" }, "driverName": "csi.example.com", "parameters": parameters })
}

/// Uids of pods, where the API server does not choose them.
const A: &str = "0f6a1f6e-0000-4000-8000-00000000000a";
const B: &str = "0f6a1f6e-0000-4000-8000-00000000000b";
const UNKNOWN: &str = "0f6a1f6e-0000-4000-8000-00000000000c";

/// A class with 2000 shares, and a pod of this node and one of another that use it.
fn shop() -> Vec<(&'static str, Value)> {
    vec![
        ("storageclasses", storage_class("2000")),
        ("volumeattributesclasses", gold()),
        ("persistentvolumeclaims", claim("data-db-0", json!({}), None)),
        ("persistentvolumeclaims", claim("data-db-9", json!({}), None)),
        ("persistentvolumeclaims", claim("web-0-cache", json!({"parda/shares": "700"}), None)),
        ("pods", pod("db-0", A, "node-1", claimed("data-db-0"))),
        ("pods", pod("db-9", "elsewhere", "node-2", claimed("data-db-9"))),
    ]
}

#[test]
fn pods_have_the_shares_of_their_claims_and_classes_as_these_change() {
    if let Some(node) = Node::new(StandIn::launch, &shop()) {
        settings_follow(node);
    }
}

fn settings_follow(mut node: Node) {
    node.cgroup(&node.db);
    node.until("of the StorageClass", &[("shop.db-0", 2000)]);
    let gold = Some("gold".to_owned());
    assert_eq!(node.limit_and_tenant(), (0.0, gold.clone()));
    let own = json!({"parda/shares": "5000"});
    node.put("persistentvolumeclaims", claim("data-db-0", own, None));
    node.until("of the claim", &[("shop.db-0", 5000)]);
    // One that io.max cannot hold keeps nobody from the others.
    for (limit, iops) in [("{ iops = 500 }", 500.0), ("{ iops = 3 }", 0.0)] {
        let own = json!({"parda/shares": "5000", "parda/limit": limit});
        node.put("persistentvolumeclaims", claim("data-db-0", own, None));
        until(&format!("the limit is {iops}"), || node.limit_and_tenant() == (iops, gold.clone()));
    }
    // Nor does a tenant that the node does not have.
    let own = json!({"parda/shares": "5001", "parda/tenant": "silver"});
    node.put("persistentvolumeclaims", claim("data-db-0", own, None));
    node.until("without its tenant", &[("shop.db-0", 5001)]);
    node.says("pod shop.db-0: parda/tenant = \"silver\": is no [[volume.tenant]] of this volume");
    node.says("parda/limit = \"{ iops = 3 }\": has iops = 3, which must be 4 or more on a steered");
    node.put("persistentvolumeclaims", claim("data-db-0", json!({}), Some("gold")));
    node.until("of the VolumeAttributesClass", &[("shop.db-0", 3000)]);
    node.put(
        "persistentvolumeclaims",
        claim("data-db-0", json!({"parda/shares": "0"}), Some("gold")),
    );
    node.says("PersistentVolumeClaim shop/data-db-0: annotation parda/shares = \"0\": must be from 1 to 1000000; it is not used");
    node.put("storageclasses", storage_class("many"));
    node.says("StorageClass san: parameter parda/shares = \"many\": ");
    node.put("persistentvolumeclaims", claim("data-db-0", json!({}), None));
    node.until("without a value, the shares of all pods", &[("shop.db-0", 100)]);
    node.put("storageclasses", storage_class("2000"));
    node.until("of the StorageClass again", &[("shop.db-0", 2000)]);

    node.cgroup(UNKNOWN);
    node.until("one that the API server does not know", &[("shop.db-0", 2000), ("pods", 100)]);
    std::fs::remove_dir_all(node.path_of(UNKNOWN)).unwrap();
    // A pod with a volume that lives as long as it does.
    let spec = claim("", json!({}), None)["spec"].take();
    let template = json!({ "spec": { "accessModes": spec["accessModes"], "resources": spec["resources"], "storageClassName": "san" } });
    let cache = json!([{ "name": "cache", "ephemeral": { "volumeClaimTemplate": template } }]);
    let web = node.put("pods", pod("web-0", B, "node-1", cache));
    node.cgroup(&web);
    let all = |shares| [("shop.db-0", shares), ("shop.web-0", 700)];
    node.until("a pod comes", &all(2000));
    // The agent has its settings from the file at its next start.
    node.agent.take().unwrap().process.kill();
    node.agent = Some(agent(&node.stage));
    node.until("a new agent", &all(2000));
    node.put("storageclasses", storage_class("2100"));
    node.until("the new agent is told", &all(2100));
    node.server.delete(&node.stage, "pods", "web-0");
    node.until("a pod goes", &[("shop.db-0", 2100), ("pods", 100)]);
    let text = String::from_utf8(node.stage.read("node-1.toml")).unwrap();
    assert!(!text.contains("shop.web-0") && !text.contains("shop.db-9"), "{text}");
    let log = node.follows.log();
    assert!(!log.contains("kubernetes_unreachable"), "the role has all that is needed: {log}");
    node.end();
}

#[test]
fn a_watch_that_is_cut_and_one_that_begins_too_late_an_api_server_that_is_away_and_another_token() {
    if let Some(node) = Node::new(StandIn::launch, &shop()) {
        settings_stay(node);
    }
}

fn settings_stay(mut node: Node) {
    node.cgroup(&node.db);
    node.until("of the StorageClass", &[("shop.db-0", 2000)]);
    let put = |node: &Node, shares: &str| {
        let own = json!({"parda/shares": shares});
        node.put("persistentvolumeclaims", claim("data-db-0", own, None));
    };
    put(&node, "2001");
    node.until("of the claim", &[("shop.db-0", 2001)]);
    let data = claim("data-db-0", json!({}), None);
    node.server.put_unseen(&node.stage, &node.follows, "persistentvolumeclaims", &data);
    node.until("after 410 Gone", &[("shop.db-0", 2000)]);

    node.server.kill();
    node.says("settings stay as they are");
    assert_eq!(node.shares(), BTreeMap::from([("shop.db-0".to_owned(), 2000)]));
    node.server.start(&node.stage);
    put(&node, "2002");
    node.until("the API server is back", &[("shop.db-0", 2002)]);

    node.server.renew_token(&node.stage);
    put(&node, "2004");
    node.until("by the new token", &[("shop.db-0", 2004)]);

    // The agent refuses nothing that was checked before; a file that has lost its lines is left alone.
    let text = String::from_utf8(node.stage.read("node-1.toml")).unwrap();
    let lost = text.replace("# parda kubernetes: end", "");
    node.stage.write("node-1.toml", &lost);
    put(&node, "2003");
    node.says("must stand there once each, within [volume.steer]; the file is as it was; it is tried again");
    assert_eq!(String::from_utf8(node.stage.read("node-1.toml")).unwrap(), lost);
    node.stage.write("node-1.toml", text);
    node.until("the lines are back", &[("shop.db-0", 2003)]);
    node.end();
}

#[test]
fn an_object_of_a_hundred_megabytes_and_a_watch_cut_within_a_line_keep_nobody_from_their_shares() {
    let Some(node) = Node::new(StandIn::launch, &shop()) else { return };
    node.cgroup(A);
    node.until("of the StorageClass", &[("shop.db-0", 2000)]);
    let huge = json!({"note": "x".repeat(100 << 20), "parda/shares": "2001"});
    node.put("persistentvolumeclaims", claim("data-db-0", huge, None));
    node.until("of a huge claim", &[("shop.db-0", 2001)]);
    let status = std::fs::read_to_string(format!("/proc/{}/status", node.follows.pid())).unwrap();
    let lines =
        status.lines().filter(|line| line.starts_with("VmHWM") || line.starts_with("VmRSS"));
    eprintln!("{}", lines.collect::<Vec<_>>().join(", "));
    node.put("persistentvolumeclaims", claim("data-db-0", json!({}), None));
    node.until("without it", &[("shop.db-0", 2000)]);

    node.order(json!({"cut": true}));
    node.put("persistentvolumeclaims", claim("data-db-0", json!({"parda/shares": "2002"}), None));
    node.until("after a cut within a line", &[("shop.db-0", 2002)]);
    node.end();
}

#[test]
fn a_cluster_without_classes_of_attributes_and_roles_without_claims_or_classes() {
    let objects = [
        ("storageclasses", storage_class("2000")),
        ("persistentvolumeclaims", claim("data-db-0", json!({}), None)),
        ("pods", pod("db-0", A, "node-1", claimed("data-db-0"))),
    ];
    let Some(node) = Node::new(StandIn::launch, &objects) else { return };
    node.cgroup(A);
    node.until("of the StorageClass", &[("shop.db-0", 2000)]);
    // As Kubernetes 1.33 answers. What is known stays.
    node.order(json!({"missing": ["volumeattributesclasses"], "deny": "persistentvolumeclaims", "forget": true}));
    node.says(
        "persistentvolumeclaims is forbidden: User \"system:serviceaccount:parda:parda-steer\"",
    );
    node.put("storageclasses", storage_class("2001"));
    node.until("what is known of claims stays", &[("shop.db-0", 2001)]);
    node.order(json!({"deny": null}));
    let text = String::from_utf8(node.stage.read("node-1.toml")).unwrap();
    node.stage.write("second.toml", text.replace("shares = 2001", "shares = 5"));
    let anew = follows(&node.stage, "second", "second.toml");
    wait_for("one that starts without classes of attributes", || {
        let text = String::from_utf8(node.stage.read("second.toml")).unwrap();
        (text.contains("shares = 2001") && anew.log().contains("this cluster has none"))
            .then_some(())
    });

    a_role_lacks(&node, "storageclasses", 2001);
    node.end();
}

/// A role without a kind of classes: claims' own settings count, and those of the classes once it has them. The classes give `db-1` so many
/// shares.
fn a_role_lacks(node: &Node, kind: &str, shares: u32) {
    let gold = (kind == "volumeattributesclasses").then_some("gold");
    node.put("persistentvolumeclaims", claim("data-db-0", json!({"parda/shares": "700"}), None));
    node.put("persistentvolumeclaims", claim("data-db-1", json!({}), gold));
    node.put("pods", pod("db-1", B, "node-1", claimed("data-db-1")));
    node.server.deny(&node.stage, Some(kind));
    let denied = follows(&node.stage, "denied", "another.toml");
    let has = |shares: u32| {
        let text = String::from_utf8(node.stage.read("another.toml")).unwrap();
        text.contains(&format!("shares = {shares}\n"))
    };
    until("the claim's shares", || has(700));
    assert!(!has(shares), "of the class nothing is known");
    let says = format!(
        "cannot list resource \"{kind}\" in API group \"storage.k8s.io\" at the cluster scope"
    );
    until("it says so", || {
        let log = denied.log();
        log.contains(&says) && log.contains("what these classes say is not used")
    });
    node.server.deny(&node.stage, None);
    until("the class's shares", || has(shares) && has(700));
}

#[test]
fn mistakes_are_told_at_once() {
    let stage = Stage::new();
    stage.write("node-1.toml", "host = \"node-1\"\n");
    let begin = [
        "env",
        "-u",
        "KUBECONFIG",
        "-u",
        "KUBERNETES_SERVICE_HOST",
        "HOME=/nonexistent",
        PARDA,
        "kubernetes",
    ];
    let fails = |more: &[&str]| stage.fails(&[&begin[..], &["-c", "node-1.toml"], more].concat());
    let error = fails(&["--node", "node-1"]);
    assert!(error.contains("node-1.toml: the lines \"# parda kubernetes: begin\""), "{error}");
    // Without a name it would follow the pods that no node has yet.
    for node in [&[][..], &["--node", ""]] {
        assert!(fails(node).contains("--node <NODE>"), "{}", fails(node));
    }
    stage.write("node-1.toml", "# parda kubernetes: begin\n# parda kubernetes: end\n");
    let error = fails(&["--node", "node-1"]);
    assert!(error.contains("no API server is known") && error.contains("KUBECONFIG"), "{error}");
}
