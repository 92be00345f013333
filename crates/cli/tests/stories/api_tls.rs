//! The HTTP API for other hosts: with TLS, and tokens.

use std::time::{Duration, Instant, SystemTime};

use rustix::process::Signal;

use crate::metrics::free_port;
use crate::stage::{PARDA, Stage, config, until, uri};
use crate::tls::Authority;

const SECRETS: &str = "ops write 0123456789abcdef\nscreen read fedcba9876543210\n";

/// The configuration with an HTTP server for other hosts.
fn with_tls(text: &str, port: u16) -> String {
    let http = format!(
        "[http]\naddress = \"tcp:0.0.0.0:{port}\"\ntokens = \"tokens\"\n[http.tls]\n\
         certificate = \"pki/server-cert.pem\"\nkey = \"pki/server-key.pem\"\n[[volume]]"
    );
    text.replacen("[[volume]]", &http, 1)
}

#[test]
fn other_hosts_ask_with_tls_and_a_token() {
    let (stage, ca, port) = (Stage::new(), Authority::new(), free_port());
    stage.sparse("data", 1 << 20);
    ca.directory(&stage, "pki", false);
    ca.issue(&stage.path("pki"), "server");
    stage.write("tokens", SECRETS);
    stage.ok(&["chmod", "600", "tokens"]);
    let text = with_tls(&config("a", "mode = \"off\"", &[("vm", "data")]), port);
    let refused = |text: &str, why: &str| {
        stage.write("wrong.toml", text);
        let error = stage.fails(&[PARDA, "check", "wrong.toml"]);
        assert!(error.contains("wrong.toml:") && error.contains(why), "{error}");
    };
    refused(&text.replace("tokens = \"tokens\"\n", ""), "needs tokens");
    refused(&text.replace("server-key", "ca-cert"), "key = ");
    refused(&text.replace("tokens = ", "plain = true\ntokens = "), "contradicts tls");
    for (tokens, why) in [("ops owner 0123456789abcdef", "tokens:1: the role"), ("", "no token")] {
        stage.write("tokens", tokens);
        refused(&text, why);
    }
    stage.write("tokens", SECRETS);
    stage.ok(&["chmod", "644", "tokens"]);
    refused(&text, "chmod 0600");
    stage.ok(&["chmod", "600", "tokens"]);
    let agent = stage.agent("a", &text);
    agent.says("started");

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
    for (secret, why) in [
        ("0123456789abcdef\nfedcba9876543210\n", "secret: has 2 lines: must hold one secret"),
        (SECRETS, "secret: has 2 lines"),
        ("ops write 0123456789abcdef", "put the SECRET of one of them alone into a file"),
        ("\n", "secret: is empty"),
    ] {
        let denied = set(secret);
        assert_eq!(denied.status.code(), Some(2), "{}", denied.err);
        assert!(denied.err.contains(why) && !denied.err.contains("0123"), "{}", denied.err);
    }
    let plain = stage.parda(&["peers", "--url", &url.replace("https", "http")]);
    assert_eq!(plain.status.code(), Some(2), "{}", plain.err);
    assert!(plain.err.contains("named by --url https://HOST:PORT --ca FILE"), "{}", plain.err);
    let denied = set("fedcba9876543210");
    assert!(denied.err.contains("takes one with the role write"), "{}", denied.err);
    let done = set("0123456789abcdef");
    assert!(done.status.success() && done.out.contains("shares = 2000"), "{}", done.err);

    // A reload takes over another certificate, at the same address; with one that is wrong, that from before is shown.
    let other = Authority::new();
    other.directory(&stage, "pki2", false);
    other.issue(&stage.path("pki"), "server");
    agent.process.signal(Signal::HUP);
    until("the new certificate is shown", || curl("/healthz", &[]) == "000");
    stage.ok(&["cp", "pki2/ca-cert.pem", "pki/ca-cert.pem"]);
    assert_eq!(curl("/healthz", &[]), "200");
    stage.write("pki/server-key.pem", "no key");
    agent.process.signal(Signal::HUP);
    agent.says("the certificate from before is shown");
    assert_eq!(curl("/metrics", &bearer), "200");
    let status = stage.ok(&[PARDA, "status", "--since-start", "--socket", "a.status"]);
    assert!(status.contains("FAULT: pki/server-key.pem: "), "{status}");

    // So are tokens.
    stage.write("tokens", "ops owner 0123456789abcdef\n");
    agent.process.signal(Signal::HUP);
    agent.says("tokens are as before");
    assert_eq!(curl("/metrics", &bearer), "200");
    let status = stage.ok(&[PARDA, "status", "--since-start", "--socket", "a.status"]);
    assert!(status.contains("FAULT: tokens:1: the role must be"), "{status}");
}

#[test]
fn a_certificate_that_is_its_own_ca_is_refused_with_the_way_to_a_good_one() {
    let (stage, port) = (Stage::new(), free_port());
    stage.sparse("data", 1 << 20);
    std::fs::create_dir(stage.path("pki")).unwrap();
    let line = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN=localhost \
                -addext subjectAltName=DNS:localhost -keyout pki/server-key.pem -out pki/server-cert.pem";
    stage.ok(&line.split_whitespace().collect::<Vec<_>>());
    stage.write("tokens", SECRETS);
    stage.write("secret", "0123456789abcdef");
    stage.ok(&["chmod", "600", "tokens"]);
    let text = with_tls(&config("a", "mode = \"off\"", &[("vm", "data")]), port);
    let agent = stage.agent("a", &text);
    agent.says("started");
    let url = format!("https://localhost:{port}");
    let at = ["--url", &url, "--ca", "pki/server-cert.pem", "--token-file", "secret"];
    for command in [&["set", "vm", "shares=2000"][..], &["disk", "remove", "vm"], &["drain"]] {
        let error = stage.fails(&[&[PARDA], command, &at].concat());
        assert!(error.contains("certificate is a CA's own"), "{error}");
        assert!(
            error.contains("docs/configuration.md, TLS") && !error.contains("CaUsed"),
            "{error}"
        );
    }
}

#[test]
fn a_certificate_that_has_expired_stops_nothing_but_its_address() {
    let (stage, ca, port) = (Stage::new(), Authority::new(), free_port());
    stage.sparse("data", 1 << 20);
    ca.directory(&stage, "pki", false);
    ca.issue_as(&stage.path("pki"), "server", &|params| {
        params.not_before = rcgen::date_time_ymd(2001, 1, 1);
        params.not_after = rcgen::date_time_ymd(2002, 1, 1);
    });
    stage.write("tokens", SECRETS);
    stage.ok(&["chmod", "600", "tokens"]);
    let text = config("a", "mode = \"off\"", &[("vm", "data")]);
    stage.write("whole.toml", with_tls(&text, port));
    let error = stage.fails(&[PARDA, "check", "whole.toml"]);
    assert!(error.contains("certificate = ") && error.contains("expired"), "{error}");

    let agent = stage.agent("a", &with_tls(&text, port));
    agent.says("no HTTP server: ");
    agent.says("started");
    assert!(stage.ok(&["nbdinfo", "--size", &uri("a", "vm")]).starts_with("1048576"));
    let status = || stage.ok(&[PARDA, "status", "--since-start", "--socket", "a.status"]);
    assert!(status().contains(&format!("HTTP at tcp:0.0.0.0:{port}: DOWN")), "{}", status());
    let up = format!("parda_http_up{{address=\"tcp:0.0.0.0:{port}\"}} ");
    let metrics = || stage.ok(&["curl", "-s", "--unix-socket", "a.status.api", "http://h/metrics"]);
    assert!(metrics().contains(&format!("{up}0.0")), "{}", metrics());

    // It is read again by itself.
    ca.issue(&stage.path("pki"), "server");
    until("the address is served", || metrics().contains(&format!("{up}1.0")));
    assert!(!status().contains("HTTP at"), "{}", status());
}

#[test]
fn a_certificate_that_expires_while_it_is_shown_is_noticed() {
    let (stage, ca, port) = (Stage::new(), Authority::new(), free_port());
    stage.sparse("data", 1 << 20);
    ca.directory(&stage, "pki", false);
    let issue = |life: Duration| {
        ca.issue_as(&stage.path("pki"), "server", &|params| {
            params.not_after = (SystemTime::now() + life).into();
        });
        (Instant::now(), life)
    };
    let (mut issued, mut life) = issue(Duration::from_secs(10));
    stage.write("tokens", SECRETS);
    stage.ok(&["chmod", "600", "tokens"]);
    let agent =
        stage.agent("a", &with_tls(&config("a", "mode = \"off\"", &[("vm", "data")]), port));
    let up = format!("parda_http_up{{address=\"tcp:0.0.0.0:{port}\"}} ");
    let metrics = || stage.ok(&["curl", "-s", "--unix-socket", "a.status.api", "http://h/metrics"]);
    until("the API is there", || {
        // On a busy machine it may expire before it is ever shown.
        if issued.elapsed() > life {
            (issued, life) = issue(2 * life);
        }
        metrics().contains(&format!("{up}1.0"))
    });
    agent.says("serves HTTP");

    // Nobody reloads, and nothing changes but the time.
    until("it is noticed", || metrics().contains(&format!("{up}0.0")));
    agent.says("no HTTP server: pki/server-cert.pem: ");
    let status = stage.ok(&[PARDA, "status", "--since-start", "--socket", "a.status"]);
    assert!(status.contains("DOWN") && status.contains("FAULT: pki/server-cert.pem"), "{status}");
    let events = ["curl", "-s", "--unix-socket", "a.status.api", "http://h/api/v1/events"];
    let events = stage.ok(&events);
    assert!(events.contains("http_down"), "{events}");
    assert!(stage.ok(&["nbdinfo", "--size", &uri("a", "vm")]).starts_with("1048576"));
    ca.issue(&stage.path("pki"), "server");
    until("the address is served", || metrics().contains(&format!("{up}1.0")));
}

#[test]
fn silent_connections_delay_no_scrape() {
    let (stage, ca, port) = (Stage::new(), Authority::new(), free_port());
    stage.sparse("data", 1 << 20);
    ca.directory(&stage, "pki", false);
    ca.issue(&stage.path("pki"), "server");
    stage.write("tokens", SECRETS);
    stage.ok(&["chmod", "600", "tokens"]);
    let text = config("a", "mode = \"off\"", &[("vm", "data")]);
    let agent = stage.agent("a", &with_tls(&text, port));
    agent.says("started");
    let url = format!("https://localhost:{port}/metrics");
    let scrape = ["curl", "-s", "--max-time", "6", "--cacert", "pki/ca-cert.pem", "-H"];
    let accept = "accept: application/openmetrics-text";
    let bearer = ["authorization: Bearer fedcba9876543210", "-H", accept, &url];
    until("a scrape is done beside silent connections", || {
        let connect = |_| std::net::TcpStream::connect(("127.0.0.1", port)).unwrap();
        // In turns they would last 9 s, each with 3 s for its handshake.
        let silent: Vec<_> = (0..200).map(connect).collect();
        let scraped = stage.run(&[&scrape[..], &bearer].concat()).out;
        drop(silent);
        scraped.ends_with("# EOF\n")
    });
}
