//! The HTTP API for other hosts: with TLS, and tokens.

use rustix::process::Signal;

use crate::metrics::free_port;
use crate::stage::{PARDA, Stage, config, until};
use crate::tls::Authority;

const SECRETS: &str = "ops write 0123456789abcdef\nscreen read fedcba9876543210\n";

#[test]
fn other_hosts_ask_with_tls_and_a_token() {
    let (stage, ca, port) = (Stage::new(), Authority::new(), free_port());
    stage.sparse("data", 1 << 20);
    ca.directory(&stage, "pki", false);
    ca.issue(&stage.path("pki"), "server");
    stage.write("tokens", SECRETS);
    stage.ok(&["chmod", "600", "tokens"]);
    let http = format!(
        "[http]\naddress = \"tcp:0.0.0.0:{port}\"\ntokens = \"tokens\"\n[http.tls]\n\
         certificate = \"pki/server-cert.pem\"\nkey = \"pki/server-key.pem\"\n[[volume]]"
    );
    let text = config("a", "mode = \"off\"", &[("vm", "data")]).replacen("[[volume]]", &http, 1);
    let refused = |text: &str, why: &str| {
        stage.write("wrong.toml", text);
        let error = stage.fails(&[PARDA, "check", "wrong.toml"]);
        assert!(error.contains("wrong.toml:") && error.contains(why), "{error}");
    };
    refused(&text.replace("tokens = \"tokens\"\n", ""), "needs tokens");
    refused(&text.replace("server-key", "ca-cert"), "key = ");
    refused(&text.replace("tokens = ", "plain = true\ntokens = "), "contradicts tls");
    let agent = stage.agent("a", &text);

    let url = format!("https://localhost:{port}");
    let curl = |path: &str, more: &[&str]| {
        let url = format!("{url}{path}");
        let line = ["curl", "-s", "-o", "/dev/null", "-w", "%{http_code}", "--cacert"];
        stage.run(&[&line[..], &["pki/ca-cert.pem", &url], more].concat()).out
    };
    let bearer = ["-H", "authorization: Bearer fedcba9876543210"];
    for path in ["/metrics", "/readyz", "/api/v1/state", "/api/v1/events", "/api/v1/openapi.json"] {
        assert_eq!(curl(path, &[]), "401", "{path} without a token");
        assert_eq!(curl(path, &["-H", "authorization: Bearer wrong"]), "401", "{path}");
        assert_eq!(curl(path, &bearer), "200", "{path}");
    }
    // The page has nothing of the agent in it, and asks for a token.
    assert_eq!((curl("/", &[]), curl("/healthz", &[])), ("200".to_owned(), "200".to_owned()));
    let plain = stage.run(&["curl", "-s", &format!("http://localhost:{port}/healthz")]);
    assert!(!plain.status.success(), "without TLS nothing is answered");

    let set = |token: &str| {
        stage.write("secret", token);
        let at = ["--url", &url, "--ca", "pki/ca-cert.pem", "--token-file", "secret"];
        stage.run(&[&[PARDA, "set", "vm", "shares=2000"], &at[..]].concat())
    };
    let denied = set("fedcba9876543210");
    assert!(denied.err.contains("takes one with the role write"), "{}", denied.err);
    let done = set("0123456789abcdef");
    assert!(done.status.success() && done.out.contains("shares = 2000"), "{}", done.err);

    // A reload takes over another certificate, at the same address; one that is wrong changes nothing.
    let other = Authority::new();
    other.directory(&stage, "pki2", false);
    other.issue(&stage.path("pki"), "server");
    agent.process.signal(Signal::HUP);
    until("the new certificate is shown", || curl("/healthz", &[]) == "000");
    stage.ok(&["cp", "pki2/ca-cert.pem", "pki/ca-cert.pem"]);
    assert_eq!(curl("/healthz", &[]), "200");
    stage.write("pki/server-key.pem", "no key");
    agent.process.signal(Signal::HUP);
    agent.says("configuration not changed");
    assert_eq!(curl("/metrics", &bearer), "200");
}
