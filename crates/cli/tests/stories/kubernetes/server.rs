//! The API server of a story: a stand-in, or kube-apiserver.

use std::net::TcpStream;

use serde_json::{Value, json};

use crate::stage::{Process, Stage, until};

/// An API server at the port in the file `port`, with the certificates in `pki`. `account/token` has the token of `parda kubernetes`.
pub(super) trait Server {
    /// Starts it, with what it had before.
    fn start(&mut self, stage: &Stage);

    /// Ends it with SIGKILL.
    fn kill(&mut self);

    /// Adds or replaces an object. Returns its uid.
    fn put(&self, stage: &Stage, kind: &str, object: &Value) -> String;

    /// The same, and the change is in no watch of `follows`: the watch that it begins next is answered with 410 Gone.
    fn put_unseen(&mut self, stage: &Stage, follows: &Process, kind: &str, object: &Value);

    /// Deletes an object of the namespace `shop`.
    fn delete(&self, stage: &Stage, kind: &str, name: &str);

    /// Gives `parda kubernetes` another token, refuses the one before, and cuts all watches.
    fn renew_token(&mut self, stage: &Stage);

    /// Refuses a kind of objects to `parda kubernetes`, or none.
    fn deny(&self, stage: &Stage, kind: Option<&str>);
}

pub(super) struct StandIn(Option<Process>);

impl StandIn {
    pub(super) fn launch(stage: &Stage) -> Box<dyn Server> {
        stage.write("account/token", "first");
        let mut server = StandIn(None);
        server.start(stage);
        order(stage, &json!({"tokens": ["first"]}));
        Box::new(server)
    }
}

impl Server for StandIn {
    fn start(&mut self, stage: &Stage) {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/stories/kubernetes/stand_in.py");
        let files = ["pki/api-cert.pem", "pki/api-key.pem", "state", "port"];
        let mut process = stage.start("api", &[&["python3", script], &files[..]].concat());
        until("the API server listens", || {
            assert!(process.ended().is_none(), "the stand-in ended: {}", process.log());
            let port = std::fs::read_to_string(stage.path("port")).unwrap_or_default();
            port.parse().is_ok_and(|port: u16| TcpStream::connect(("127.0.0.1", port)).is_ok())
        });
        self.0 = Some(process);
    }

    fn kill(&mut self) {
        self.0.take().unwrap().kill();
    }

    fn put(&self, stage: &Stage, kind: &str, object: &Value) -> String {
        order(stage, &json!({"put": kind, "object": object}));
        object["metadata"]["uid"].as_str().unwrap_or_default().to_owned()
    }

    fn put_unseen(&mut self, stage: &Stage, _: &Process, kind: &str, object: &Value) {
        let before = version(stage, kind);
        order(stage, &json!({"put": kind, "object": object, "forget": true}));
        is_gone(stage, kind, &before);
    }

    fn delete(&self, stage: &Stage, kind: &str, name: &str) {
        order(stage, &json!({"delete": kind, "name": format!("shop/{name}")}));
    }

    fn renew_token(&mut self, stage: &Stage) {
        stage.write("account/token", "second");
        order(stage, &json!({"tokens": ["second"], "cut": true}));
    }

    fn deny(&self, stage: &Stage, kind: Option<&str>) {
        order(stage, &json!({"deny": kind}));
    }
}

/// Gives the stand-in a command.
pub(super) fn order(stage: &Stage, command: &Value) {
    let (code, answer) = ask(stage, "", "POST", "/stand-in", command);
    assert_eq!(code, 200, "{answer}");
}

/// Asks the API server. Returns the code and the first object of the answer.
pub(super) fn ask(
    stage: &Stage,
    token: &str,
    method: &str,
    path: &str,
    body: &Value,
) -> (u16, Value) {
    let kind = match method {
        "PATCH" if body.is_string() => "application/apply-patch+yaml",
        "PATCH" => "application/merge-patch+json",
        _ => "application/json",
    };
    let text = body.as_str().map_or_else(|| body.to_string(), str::to_owned);
    stage.write("request", if body.is_null() { "" } else { &text });
    let port = String::from_utf8(stage.read("port")).unwrap();
    let to = format!("https://127.0.0.1:{port}{path}");
    let (token, kind) = (format!("Authorization: Bearer {token}"), format!("Content-Type: {kind}"));
    let mut line = vec!["curl", "-sS", "--cacert", "pki/ca-cert.pem", "-w", "\n%{http_code}"];
    line.extend(["-X", method, "-H", &token, "-H", &kind, "--data-binary", "@request", &to]);
    let answer = stage.run(&line).out;
    let (answer, code) = answer.rsplit_once('\n').unwrap();
    let mut answers = serde_json::Deserializer::from_str(answer).into_iter();
    (code.parse().unwrap(), answers.next().and_then(Result::ok).unwrap_or_default())
}

/// Path of all objects of a kind in the cluster.
pub(super) fn cluster(kind: &str) -> String {
    let group = if kind.ends_with("classes") { "apis/storage.k8s.io" } else { "api" };
    format!("/{group}/v1/{kind}")
}

/// The token of `parda kubernetes`.
pub(super) fn token(stage: &Stage) -> String {
    String::from_utf8(stage.read("account/token")).unwrap()
}

/// The version of a list of these objects.
pub(super) fn version(stage: &Stage, kind: &str) -> String {
    let (code, list) = ask(stage, &token(stage), "GET", &cluster(kind), &Value::Null);
    let version = list["metadata"]["resourceVersion"].as_str();
    version.unwrap_or_else(|| panic!("{code} {list}")).to_owned()
}

/// Asserts that a watch that begins with this version gets 410, as kube-apiserver writes it.
pub(super) fn is_gone(stage: &Stage, kind: &str, version: &str) {
    let watch = format!("{}?watch=1&timeoutSeconds=9&resourceVersion={version}", cluster(kind));
    let (code, mut event) = ask(stage, &token(stage), "GET", &watch, &Value::Null);
    let message = event["object"]["message"].take();
    let is_right =
        message.as_str().is_some_and(|text| text.starts_with("too old resource version"));
    assert!(is_right, "{code} {event}: {message}");
    let object = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "reason": "Expired", "code": 410, "message": null
    });
    assert_eq!((code, event), (200, json!({"type": "ERROR", "object": object})));
}
