//! kube-apiserver with an etcd, and what only these show: `tools/kube-apiserver.sh` builds them.

use std::net::TcpListener;

use parda_testkit::TestEtcd;
use rustix::process::Signal;
use serde_json::{Value, json};

use super::server::{Server, ask, cluster, is_gone, token, version};
use super::{MANIFEST, Node, a_role_lacks, follows, settings_follow, settings_stay, shop, stage};
use crate::stage::{Process, Stage, until};

/// The manifest of agents that serve.
const SERVING: &str = include_str!("../../../../../contrib/kubernetes/parda.yaml");

const FLAGS: &str = "--bind-address=127.0.0.1 --cert-dir=certificates --tls-cert-file=pki/api-cert.pem --tls-private-key-file=pki/api-key.pem \
    --service-account-issuer=https://kubernetes --service-account-key-file=pki/account-cert.pem \
    --service-account-signing-key-file=pki/account-key.pem --authorization-mode=Node,RBAC --token-auth-file=tokens --allow-privileged \
    --admission-control-config-file=admission.yaml --service-cluster-ip-range=10.0.0.0/24 --endpoint-reconciler-type=none \
    --etcd-compaction-interval=0";

/// A cluster whose namespaces permit next to nothing to their pods, but `shop`.
const ADMISSION: &str = "apiVersion: apiserver.config.k8s.io/v1
kind: AdmissionConfiguration
plugins:
- name: PodSecurity
  configuration:
    apiVersion: pod-security.admission.config.k8s.io/v1
    kind: PodSecurityConfiguration
    defaults: { enforce: restricted }
    exemptions: { namespaces: [shop] }
";

const PARDA: &str = "/api/v1/namespaces/parda";
const ROLE: &str = "/apis/rbac.authorization.k8s.io/v1/clusterroles/parda-steer";

/// kube-apiserver, which a pod of the DaemonSet `parda-steer` may ask.
pub(super) struct KubeApiserver {
    process: Option<Process>,
    etcd: TestEtcd,
}

impl KubeApiserver {
    /// A cluster with the manifests of this project.
    pub(super) fn launch(stage: &Stage) -> Box<dyn Server> {
        std::fs::create_dir(stage.path("etcd")).unwrap();
        // None that the kernel gives to others meanwhile, as it does from 32768 on.
        let mut ports = std::iter::repeat_with(|| fastrand::u16(20000..32768));
        let is_free = |port: &u16| TcpListener::bind(("127.0.0.1", *port)).is_ok();
        stage.write("port", ports.find(is_free).unwrap().to_string());
        stage.write("tokens", "admin,admin,admin,\"system:masters\"\n");
        stage.write("admission.yaml", ADMISSION);
        let etcd = TestEtcd::start(&stage.path("etcd"), 1);
        let mut server = KubeApiserver { process: None, etcd };
        server.start(stage);
        for document in documents() {
            let (code, answer) = apply(stage, document, "");
            assert!(matches!(code, 200 | 201), "{document}: {code} {answer}");
        }
        admin(stage, "POST", "/api/v1/namespaces", &json!({"metadata": {"name": "shop"}}));
        // Controllers make these.
        for namespace in ["shop", "parda"] {
            let path = format!("/api/v1/namespaces/{namespace}/serviceaccounts");
            admin(stage, "POST", &path, &json!({"metadata": {"name": "default"}}));
        }
        log_in(stage, "steer-1");
        Box::new(server)
    }
}

impl Server for KubeApiserver {
    fn start(&mut self, stage: &Stage) {
        let port = String::from_utf8(stage.read("port")).unwrap();
        let (etcd, port) =
            (format!("--etcd-servers={}", self.etcd.urls()[0]), format!("--secure-port={port}"));
        let line = ["kube-apiserver", &etcd, &port].into_iter().chain(FLAGS.split_whitespace());
        let mut process = stage.start("api", &line.collect::<Vec<_>>());
        until("kube-apiserver is ready", || {
            assert!(process.ended().is_none(), "kube-apiserver ended: {}", process.log());
            ask(stage, "admin", "GET", "/readyz", &Value::Null).0 == 200
        });
        self.process = Some(process);
    }

    fn kill(&mut self) {
        self.process.take().unwrap().kill();
    }

    fn put(&self, stage: &Stage, kind: &str, object: &Value) -> String {
        let mut object = object.clone();
        let meta = object["metadata"].as_object_mut().unwrap();
        meta.retain(|key, _| !["uid", "managedFields"].contains(&key.as_str()));
        let (all, one) = paths(kind, meta["name"].as_str().unwrap());
        let status = object.as_object_mut().unwrap().remove("status");
        let put_status =
            |status| admin(stage, "PATCH", &format!("{one}/status"), &json!({"status": status}));
        let (code, answer) = ask(stage, "admin", "POST", &all, &object);
        let answer = match (code, status) {
            (201, None) => answer,
            (201, Some(status)) => put_status(status),
            // Parameters of a class cannot be changed.
            (409, None) => {
                let (code, answer) = ask(stage, "admin", "PUT", &one, &object);
                assert!(code == 422, "{code} {answer}");
                admin(stage, "DELETE", &one, &Value::Null);
                admin(stage, "POST", &all, &object)
            }
            (409, Some(status)) => {
                put_status(status);
                admin(stage, "PUT", &one, &object)
            }
            _ => panic!("{object}: {code} {answer}"),
        };
        answer["metadata"]["uid"].as_str().unwrap().to_owned()
    }

    fn put_unseen(&mut self, stage: &Stage, follows: &Process, kind: &str, object: &Value) {
        let before = version(stage, kind);
        follows.signal(Signal::STOP);
        self.put(stage, kind, object);
        let now = json!({"revision": version(stage, kind), "physical": true}).to_string();
        self.kill();
        let answer = self.etcd.post(0, "/v3/kv/compaction", &now).unwrap();
        assert!(answer.contains(" 200 "), "{answer}");
        self.start(stage);
        is_gone(stage, kind, &before);
        follows.signal(Signal::CONT);
    }

    fn delete(&self, stage: &Stage, kind: &str, name: &str) {
        let one = paths(kind, name).1 + "?gracePeriodSeconds=0";
        admin(stage, "DELETE", &one, &Value::Null);
    }

    fn renew_token(&mut self, stage: &Stage) {
        let before = token(stage);
        log_in(stage, "steer-2");
        let pod = format!("{PARDA}/pods/steer-1?gracePeriodSeconds=0");
        admin(stage, "DELETE", &pod, &Value::Null);
        until("the token of a pod that is gone is refused", || {
            ask(stage, &before, "GET", &cluster("pods"), &Value::Null).0 == 401
        });
        self.kill();
        self.start(stage);
    }

    fn deny(&self, stage: &Stage, kind: Option<&str>) {
        permit(stage, |permission| permission["resource"].as_str() != kind);
    }
}

/// Asks as the administrator of the cluster.
fn admin(stage: &Stage, method: &str, path: &str, body: &Value) -> Value {
    let (code, answer) = ask(stage, "admin", method, path, body);
    assert!(matches!(code, 200 | 201), "{method} {path}: {code} {answer}");
    answer
}

/// Paths of all objects of a kind and of one, in the namespace `shop` if it has one.
fn paths(kind: &str, name: &str) -> (String, String) {
    let of_shop = cluster(kind).replace("/api/v1", "/api/v1/namespaces/shop");
    (of_shop.clone(), format!("{of_shop}/{name}"))
}

/// The documents of both manifests.
fn documents() -> impl Iterator<Item = &'static str> {
    [MANIFEST, SERVING].into_iter().flat_map(|text| text.split("\n---\n"))
}

/// Applies a document of a manifest as `kubectl apply --server-side` does: unknown keys are faults.
fn apply(stage: &Stage, document: &str, options: &str) -> (u16, Value) {
    let field = |key: &str| document.lines().find_map(|line| line.strip_prefix(key));
    let version = field("apiVersion: ").unwrap();
    let group = if version.contains('/') { "apis" } else { "api" };
    let namespace = field("  namespace: ").map(|name| format!("/namespaces/{name}"));
    let (kind, name) = (field("kind: ").unwrap().to_lowercase(), field("  name: ").unwrap());
    let path = format!("/{group}/{version}{}/{kind}s/{name}", namespace.unwrap_or_default());
    let path = path + "?fieldManager=kubectl&fieldValidation=Strict" + options;
    ask(stage, "admin", "PATCH", &path, &document.into())
}

/// Makes a pod of a DaemonSet, as its controller does.
fn pod_of(stage: &Stage, set: &str, name: &str) -> (u16, Value) {
    let path = format!("/apis/apps/v1/namespaces/parda/daemonsets/{set}");
    let mut pod = admin(stage, "GET", &path, &Value::Null)["spec"]["template"].take();
    pod["metadata"]["name"] = name.into();
    pod["spec"]["nodeName"] = "node-1".into();
    ask(stage, "admin", "POST", &format!("{PARDA}/pods"), &pod)
}

/// Gives `parda kubernetes` the token of a new pod of the DaemonSet, as the kubelet does.
fn log_in(stage: &Stage, pod: &str) {
    let (code, made) = pod_of(stage, "parda-steer", pod);
    assert_eq!(code, 201, "{made}");
    let uid = &made["metadata"]["uid"];
    let pod = json!({"kind": "Pod", "apiVersion": "v1", "name": pod, "uid": uid});
    let wanted = json!({"spec": {"expirationSeconds": 3607, "boundObjectRef": pod}});
    let path = format!("{PARDA}/serviceaccounts/parda-steer/token");
    let token = admin(stage, "POST", &path, &wanted);
    stage.write("account/token", token["status"]["token"].as_str().unwrap());
}

/// The role of the manifest, verb by verb, as reviews of access have it.
fn permissions(stage: &Stage) -> Vec<Value> {
    let role = documents().find(|document| document.contains("kind: ClusterRole\n")).unwrap();
    let (_, role) = apply(stage, role, "&dryRun=All&force=true");
    let list = |of: &Value, key: &str| of[key].as_array().unwrap().clone();
    let mut all = Vec::new();
    for rule in list(&role, "rules") {
        for resource in list(&rule, "resources") {
            for verb in list(&rule, "verbs") {
                all.push(
                    json!({"group": rule["apiGroups"][0], "resource": resource, "verb": verb}),
                );
            }
        }
    }
    all
}

/// Leaves these permissions to the role, and waits until they are in force.
fn permit(stage: &Stage, kept: impl Fn(&Value) -> bool) {
    let (kept, lost): (Vec<_>, Vec<_>) = permissions(stage).into_iter().partition(kept);
    let rule = |of: &Value| json!({"apiGroups": [of["group"]], "resources": [of["resource"]], "verbs": [of["verb"]]});
    let rules: Vec<_> = kept.iter().map(rule).collect();
    admin(stage, "PATCH", ROLE, &json!({"rules": rules}));
    let may = |permission: &Value| {
        let spec = json!({"resourceAttributes": permission});
        let path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
        let (code, answer) = ask(stage, &token(stage), "POST", path, &json!({"spec": spec}));
        answer["status"]["allowed"].as_bool().unwrap_or_else(|| panic!("{code} {answer}"))
    };
    until("the role is in force", || kept.iter().all(may) && !lost.iter().any(may));
}

#[test]
#[ignore = "make nightly: kube-apiserver and etcd, by tools/kube-apiserver.sh; the same with a stand-in above"]
fn pods_have_their_settings_from_a_kube_apiserver() {
    if let Some(node) = Node::new(KubeApiserver::launch, &shop()) {
        settings_follow(node);
    }
}

#[test]
#[ignore = "make nightly: kube-apiserver and etcd, by tools/kube-apiserver.sh; the same with a stand-in above"]
fn a_kube_apiserver_that_is_killed_a_compaction_and_a_token_that_is_renewed_leave_settings_as_they_are()
 {
    if let Some(node) = Node::new(KubeApiserver::launch, &shop()) {
        settings_stay(node);
    }
}

#[test]
#[ignore = "make nightly: kube-apiserver and etcd, by tools/kube-apiserver.sh; roles with a stand-in above"]
fn the_role_has_each_verb_that_is_used_and_no_other() {
    let Some(node) = Node::new(KubeApiserver::launch, &shop()) else { return };
    a_role_lacks(&node, "volumeattributesclasses", 3000);
    let all = permissions(&node.stage);
    assert!(!all.is_empty());
    for lost in all {
        permit(&node.stage, |permission| *permission != lost);
        let [verb, kind] = ["verb", "resource"].map(|key| lost[key].as_str().unwrap());
        let without = follows(&node.stage, &format!("{verb}-{kind}"), "another.toml");
        let says = format!("cannot {verb} resource \"{kind}\"");
        until(&format!("it says {says:?}"), || without.log().contains(&says));
    }
    node.end();
}

#[test]
#[ignore = "make nightly: kube-apiserver and etcd, by tools/kube-apiserver.sh; schemas of other versions: tools/manifests.sh"]
fn a_cluster_that_permits_little_takes_the_manifests_and_their_pods_and_refuses_a_wrong_key() {
    let stage = stage();
    let _server = KubeApiserver::launch(&stage);
    let (code, made) = pod_of(&stage, "parda", "parda-1");
    assert_eq!(code, 201, "{made}");
    let label = json!({"metadata": {"labels": {"pod-security.kubernetes.io/enforce": null}}});
    admin(&stage, "PATCH", PARDA, &label);
    for set in ["parda", "parda-steer"] {
        let (code, refused) = pod_of(&stage, set, "refused");
        assert!(code == 403 && refused.to_string().contains("violates PodSecurity"), "{refused}");
    }
    for (from, to) in [("maxUnavailable", "maxUnavailabel"), ("hostPath:", "hostpath:")] {
        let set = documents().last().unwrap();
        let (code, answer) = apply(&stage, &set.replace(from, to), "&dryRun=All");
        assert!(code >= 400, "{to}: {answer}");
    }
}
