use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicUsize, Ordering};

use std::time::Instant;

use super::*;

/// An agent without volumes.
struct Stub {
    looks: Arc<AtomicUsize>,
    lacking: &'static str,
}

impl Agent for Stub {
    fn pages(&self) -> Pages {
        self.looks.fetch_add(1, Ordering::Relaxed);
        Pages {
            metrics: Bytes::from_static(b"# TYPE a counter\na_total 1\n# EOF\n"),
            lacking: self.lacking.to_owned(),
        }
    }

    fn state(&self) -> parda_api::State {
        self.looks.fetch_add(1, Ordering::Relaxed);
        parda_api::State {
            host: "h".to_owned(),
            version: "1".to_owned(),
            pid: 1,
            uptime_s: 1.0,
            now_ms: 1,
            role: parda_api::Role::Read,
            policy: None,
            reload_refused: None,
            http: Vec::new(),
            pages: None,
            volumes: Vec::new(),
        }
    }

    fn history(&self, query: &parda_api::HistoryQuery) -> Result<parda_api::History, ApiRefusal> {
        Err(ApiRefusal::NotFound(format!("volume {:?}: there is none", query.volume)))
    }

    fn events(&self, query: parda_api::EventsQuery) -> parda_api::Events {
        let (events, last_id) = (Vec::new(), query.after.unwrap_or(7));
        parda_api::Events { started_ms: 1, events, last_id, lost: 0 }
    }

    fn who(&self, secret: &str) -> Option<(String, parda_api::Role)> {
        match secret {
            "look" => Some(("screen".to_owned(), parda_api::Role::Read)),
            "gaze" => Some(("nobody".to_owned(), parda_api::Role::Read)),
            "build" => Some(("root".to_owned(), parda_api::Role::Admin)),
            "turn" => Some(("ops".to_owned(), parda_api::Role::Write)),
            _ => None,
        }
    }
}

impl Changes for Stub {
    fn set(
        &self,
        place: &ChangeTarget,
        change: &parda_api::SettingsChange,
        who: &Caller,
    ) -> Result<parda_api::Changed, ApiRefusal> {
        Err(ApiRefusal::Conflict(format!(
            "{} {:?} {:?} {}",
            place.volume, place.of, change.keep, who.name
        )))
    }

    fn reset(
        &self,
        place: &ChangeTarget,
        setting: Option<&str>,
        _: &Caller,
    ) -> Result<parda_api::Changed, ApiRefusal> {
        Err(ApiRefusal::Failed(format!("{} {:?} {setting:?}", place.volume, place.of)))
    }
}

impl Disks for Stub {
    fn add_disk(
        &self,
        volume: &str,
        new: &parda_api::NewDisk,
        who: &Caller,
    ) -> Result<parda_api::DiskDone, ApiRefusal> {
        Err(ApiRefusal::Conflict(format!("{volume} {:?} {}", new.disk, who.name)))
    }

    fn remove_disk(
        &self,
        place: &ChangeTarget,
        keep: Option<parda_api::Keep>,
        _: &Caller,
    ) -> Result<parda_api::DiskDone, ApiRefusal> {
        Err(ApiRefusal::Conflict(format!("{} {:?} {keep:?}", place.volume, place.of)))
    }

    fn drain(
        &self,
        volume: &str,
        drain: &parda_api::Drain,
        _: &Caller,
    ) -> Result<parda_api::Drained, ApiRefusal> {
        Err(ApiRefusal::Conflict(format!("{volume} {} {:?}", drain.drain, drain.keep)))
    }
}

/// A server at a unix socket of its own, and how often it looked at its agent.
struct Served {
    dir: tempfile::TempDir,
    looks: Arc<AtomicUsize>,
    _server: ServerThread,
}

impl Served {
    fn new() -> Served {
        let dir = tempfile::tempdir().unwrap();
        let looks = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&looks);
        Served::with(Stub { looks: counted, lacking: "" }, ClientReach::Unix, dir, looks)
    }

    fn with(
        stub: Stub,
        reach: ClientReach,
        dir: tempfile::TempDir,
        looks: Arc<AtomicUsize>,
    ) -> Served {
        let listener = UnixListener::bind(dir.path().join("s")).unwrap();
        let server =
            ServerThread::start(HttpListener::Unix(listener), None, Arc::new(stub), reach).unwrap();
        Served { dir, looks, _server: server }
    }

    fn connect(&self) -> UnixStream {
        UnixStream::connect(self.dir.path().join("s")).unwrap()
    }

    /// The whole answer to a request.
    fn ask(&self, request: &str) -> String {
        let mut stream = self.connect();
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    fn get(&self, path: &str) -> String {
        self.ask(&format!("GET {path} HTTP/1.1\r\nhost: h\r\n\r\n"))
    }
}

#[test]
fn each_page_is_there_and_nothing_else() {
    let served = Served::new();
    let metrics = served.get("/metrics");
    assert!(metrics.starts_with("HTTP/1.1 200 OK\r\n"), "{metrics}");
    assert!(metrics.contains("content-type: text/plain; version=0.0.4"), "{metrics}");
    assert!(metrics.ends_with("\r\n\r\n# TYPE a_total counter\na_total 1\n"), "{metrics}");
    let accept = "accept: application/openmetrics-text;version=1.0.0,text/plain;q=0.5";
    let metrics = served.ask(&format!("GET /metrics HTTP/1.1\r\nhost: h\r\n{accept}\r\n\r\n"));
    assert!(metrics.contains("content-type: application/openmetrics-text; version=1.0.0"));
    assert!(metrics.ends_with("\r\n\r\n# TYPE a counter\na_total 1\n# EOF\n"), "{metrics}");
    assert!(served.get("/healthz").ends_with("alive\n"));
    assert!(served.get("/readyz").ends_with("ready\n"));
    for path in ["/metrics/", "/../etc/passwd", "/%2e%2e/etc/passwd", "//metrics", "/metrics%00"] {
        assert!(served.get(path).starts_with("HTTP/1.1 404"), "{path}");
    }
    let post = served.ask("POST /metrics HTTP/1.1\r\nhost: h\r\ncontent-length: 3\r\n\r\nabc");
    assert!(post.starts_with("HTTP/1.1 405"), "{post}");
}

#[test]
fn a_client_that_sends_no_more_is_answered() {
    let served = Served::new();
    let mut stream = served.connect();
    stream.write_all(b"GET /healthz HTTP/1.0\r\n\r\n").unwrap();
    stream.shutdown(std::net::Shutdown::Write).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.ends_with("alive\n"), "{answer}");
}

#[test]
fn what_is_no_request_is_refused_and_the_next_is_answered() {
    let served = Served::new();
    assert!(served.ask("NBDMAGICIHAVEOPT\r\n\r\n").starts_with("HTTP/1.1 400"));
    let long = format!("GET /{} HTTP/1.1\r\nhost: h\r\n\r\n", "a".repeat(1 << 16));
    let mut stream = served.connect();
    // The server may close before all was sent.
    let _ = stream.write_all(long.as_bytes());
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    assert!(!answer.starts_with(b"HTTP/1.1 200"));
    assert!(served.get("/healthz").ends_with("alive\n"));
}

#[test]
fn silent_connections_keep_nobody_out() {
    let served = Served::new();
    let silent: Vec<_> = (0..3 * CONNECTIONS).map(|_| served.connect()).collect();
    let began = Instant::now();
    assert!(served.get("/healthz").ends_with("alive\n"));
    // None of the silent ones has had to end by itself.
    assert!(began.elapsed() < PATIENCE / 2, "{:?}", began.elapsed());
    drop(silent);
}

#[test]
fn who_has_begun_to_ask_stays_while_silent_connections_go() {
    let served = Served::new();
    let mut slow = served.connect();
    slow.write_all(b"GET /healthz HTTP/1.1\r\n").unwrap();
    let silent: Vec<_> = (0..2 * CONNECTIONS).map(|_| served.connect()).collect();
    // All that came before were accepted.
    assert!(served.get("/healthz").ends_with("alive\n"));
    slow.write_all(b"host: h\r\n\r\n").unwrap();
    let mut answer = String::new();
    slow.read_to_string(&mut answer).unwrap();
    assert!(answer.ends_with("alive\n"), "{answer}");
    drop(silent);
}

#[test]
fn a_flood_of_requests_makes_few_looks() {
    let served = Served::new();
    let began = Instant::now();
    for _ in 0..100 {
        served.get("/metrics");
        served.get("/api/v1/state");
    }
    let most = 2 * (began.elapsed().as_millis() / FRESH.as_millis() + 1);
    assert!(served.looks.load(Ordering::Relaxed) as u128 <= most);
}

#[test]
fn a_slow_connection_is_closed() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        tokio::time::pause();
        let (_client, server) = tokio::io::duplex(64);
        let began = tokio::time::Instant::now();
        let looks = Arc::default();
        let router = router(Arc::new(Stub { looks, lacking: "" }), ClientReach::Unix);
        patiently(answer(server, Peer::Unix(None), router, Progress::default())).await;
        assert_eq!(began.elapsed().as_secs(), PATIENCE.as_secs());
    });
}

#[test]
fn what_is_not_served_is_said_with_503() {
    let (dir, looks) = (tempfile::tempdir().unwrap(), Arc::<AtomicUsize>::default());
    let stub = Stub { looks: Arc::clone(&looks), lacking: "disk vm is waiting\n" };
    let answer = Served::with(stub, ClientReach::Unix, dir, looks).get("/readyz");
    assert!(answer.starts_with("HTTP/1.1 503"), "{answer}");
    assert!(answer.ends_with("\r\n\r\ndisk vm is waiting\n"), "{answer}");
}

#[test]
fn the_api_answers_in_json_and_says_what_is_wrong() {
    let served = Served::new();
    let state = served.get("/api/v1/state");
    assert!(state.contains("content-type: application/json\r\n"), "{state}");
    assert!(
        state.ends_with(
            r#""now_ms":1,"role":"admin","policy":null,"reload_refused":null,"http":[],"pages":null,"volumes":[]}"#
        ),
        "{state}"
    );
    assert!(served.get("/api/v1/events?after=3").ends_with(r#""last_id":3,"lost":0}"#));
    let missing = served.get("/api/v1/history?volume=a");
    assert!(missing.starts_with("HTTP/1.1 404"), "{missing}");
    assert!(missing.ends_with(r#"{"error":"volume \"a\": there is none"}"#), "{missing}");
    let wrong = served.get("/api/v1/history");
    assert!(wrong.starts_with("HTTP/1.1 400"), "{wrong}");
}

#[test]
fn the_description_has_every_path_and_no_loose_end() {
    let answer = Served::new().get("/api/v1/openapi.json");
    let text = answer.split_once("\r\n\r\n").unwrap().1;
    let doc: serde_json::Value = serde_json::from_str(text).unwrap();
    let paths: Vec<_> = doc["paths"].as_object().unwrap().keys().collect();
    for path in ["/api/v1/events", "/api/v1/state", "/api/v1/volumes/{volume}/disks/{disk}"] {
        assert!(paths.iter().any(|other| *other == path), "{paths:?}");
    }
    assert_eq!(paths.len(), 14);
    // Each path describes the parts that it names, and no other.
    for (path, methods) in doc["paths"].as_object().unwrap() {
        let parts: Vec<_> = path.split('{').skip(1).map(|part| part.split('}').next()).collect();
        for (method, operation) in methods.as_object().unwrap() {
            let described = operation["parameters"].as_array().into_iter().flatten();
            let described = described.filter(|parameter| parameter["in"] == "path");
            let described: Vec<_> = described.map(|part| part["name"].as_str()).collect();
            assert_eq!(described, parts, "{method} {path}");
        }
    }
    let schemas = &doc["components"]["schemas"];
    for reference in text.split("#/components/schemas/").skip(1) {
        let name = reference.split('"').next().unwrap();
        assert!(schemas[name].is_object(), "{name} is not described");
    }
}

#[test]
fn other_hosts_get_no_more_than_metrics_without_tls() {
    let (dir, looks) = (tempfile::tempdir().unwrap(), Arc::<AtomicUsize>::default());
    let stub = Stub { looks: Arc::clone(&looks), lacking: "" };
    let served = Served::with(stub, ClientReach::Plain, dir, looks);
    assert!(served.get("/metrics").starts_with("HTTP/1.1 200"));
    assert!(served.get("/api/v1/state").starts_with("HTTP/1.1 403"));
}

#[test]
fn a_page_of_another_site_gets_nothing_at_loopback() {
    let (dir, looks) = (tempfile::tempdir().unwrap(), Arc::<AtomicUsize>::default());
    let stub = Stub { looks: Arc::clone(&looks), lacking: "" };
    let served = Served::with(stub, ClientReach::Loopback, dir, looks);
    let ask = |path: &str, host: &str| {
        served.ask(&format!("GET {path} HTTP/1.1\r\nhost: {host}\r\n\r\n"))
    };
    let refused = ask("/api/v1/state", "evil.example");
    assert!(refused.starts_with("HTTP/1.1 403") && refused.contains("Host"), "{refused}");
    assert!(ask("/api/v1/state", "127.0.0.1:9843").starts_with("HTTP/1.1 200"));
    // These name all disks as well.
    assert!(ask("/metrics", "evil.example:9843").starts_with("HTTP/1.1 403"));
    assert!(ask("/metrics", "localhost:9843").starts_with("HTTP/1.1 200"));
}

#[test]
fn the_dashboard_is_there_and_runs_no_script_but_its_own() {
    let served = Served::new();
    let page = served.get("/");
    assert!(page.starts_with("HTTP/1.1 200 OK\r\n"), "{page}");
    assert!(
        page.contains("script-src 'self';") && page.contains("frame-ancestors 'none'"),
        "{page}"
    );
    for (path, kind) in
        [("/app.js", "text/javascript"), ("/app.css", "text/css"), ("/licenses.md", "text/plain")]
    {
        let file = served.get(path);
        assert!(file.contains(&format!("content-type: {kind}; charset=utf-8\r\n")), "{path}");
        assert!(file.contains("x-content-type-options: nosniff\r\n"), "{path}");
    }
    // All files that the page names are served.
    let (_, html) = page.split_once("\r\n\r\n").unwrap();
    for name in html.split(['"', '\'']).filter_map(|word| word.strip_prefix("./")) {
        assert!(served.get(&format!("/{name}")).starts_with("HTTP/1.1 200"), "{name}");
    }
    assert!(html.contains("./app.js"), "{html}");
}

/// A PATCH of a disk with these headers.
fn patched(reach: ClientReach, headers: &str, body: &str) -> String {
    asked(reach, "PATCH", "/api/v1/volumes/a%20b/disks/c%2Fd", headers, body)
}

/// A server at loopback or a unix socket, and the answer to a request with these headers.
fn asked(reach: ClientReach, method: &str, path: &str, headers: &str, body: &str) -> String {
    let (dir, looks) = (tempfile::tempdir().unwrap(), Arc::<AtomicUsize>::default());
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let stub = Stub { looks: Arc::clone(&looks), lacking: "" };
    let mut answer = Vec::new();
    let head = format!(
        "{method} {path} HTTP/1.1\r\nhost: {address}\r\n{headers}content-length: {}\r\n\r\n{body}",
        body.len()
    );
    if reach == ClientReach::Unix {
        return Served::with(stub, reach, dir, looks).ask(&head);
    }
    let _server =
        ServerThread::start(HttpListener::Tcp(listener), None, Arc::new(stub), reach).unwrap();
    let mut stream = std::net::TcpStream::connect(address).unwrap();
    // The server may close before all was sent.
    let _ = stream.write_all(head.as_bytes());
    let _ = stream.read_to_end(&mut answer);
    String::from_utf8(answer).unwrap()
}

const JSON: &str = "content-type: application/json\r\n";

#[test]
fn a_change_takes_the_role_write() {
    let body = r#"{"shares": 2000, "keep": "until_restart"}"#;
    let with = |token: &str| patched(ClientReach::Loopback, &format!("{JSON}{token}"), body);
    for (token, code) in [
        ("", 401),
        ("authorization: Bearer nonsense\r\n", 401),
        ("authorization: Basic dHVybg==\r\n", 401),
        ("authorization: Bearer look\r\n", 403),
        // A token may have any name.
        ("authorization: Bearer gaze\r\n", 403),
        ("authorization: Bearer turn\r\n", 409),
    ] {
        let answer = with(token);
        assert!(answer.starts_with(&format!("HTTP/1.1 {code}")), "{token}: {answer}");
    }
    let told = r#"{"error":"a b Disk(\"c/d\") Some(UntilRestart) ops"}"#;
    assert!(with("authorization: bearer turn\r\n").ends_with(told));
    assert!(patched(ClientReach::Unix, JSON, body).starts_with("HTTP/1.1 409"));
    let plain = patched(ClientReach::Plain, &format!("{JSON}authorization: Bearer turn\r\n"), body);
    assert!(plain.starts_with("HTTP/1.1 403"), "{plain}");
}

#[test]
fn what_a_page_of_another_site_may_send_changes_nothing() {
    let token = "authorization: Bearer turn\r\n";
    let origin = patched(
        ClientReach::Loopback,
        &format!("{JSON}{token}origin: http://evil.example\r\n"),
        "{}",
    );
    assert!(origin.starts_with("HTTP/1.1 403"), "{origin}");
    let form = format!("content-type: text/plain\r\n{token}");
    let form = patched(ClientReach::Loopback, &form, r#"{"shares": 1}"#);
    assert!(form.starts_with("HTTP/1.1 415"), "{form}");
}

#[test]
fn a_body_that_is_too_large_or_no_object_is_refused() {
    let large = format!(r#"{{"shares": "{}"}}"#, "1".repeat(65 << 10));
    assert!(patched(ClientReach::Unix, JSON, &large).starts_with("HTTP/1.1 413"));
    for body in ["", "[]", "{", "7", r#"{"keep": "for ever"}"#] {
        let answer = patched(ClientReach::Unix, JSON, body);
        assert!(answer.starts_with("HTTP/1.1 400"), "{body}: {answer}");
    }
}

#[test]
fn a_disk_is_added_by_who_may_name_files_and_removed_by_who_may_change() {
    let ask = |method: &str, path: &str, token: &str, body: &str| {
        let headers = format!("{JSON}authorization: Bearer {token}\r\n");
        asked(ClientReach::Loopback, method, &format!("/api/v1/volumes/a/{path}"), &headers, body)
    };
    let disk = r#"{"name": "d", "path": "/etc/shadow", "listen": "unix:s"}"#;
    for (token, code) in [("look", "403"), ("turn", "403"), ("nobody", "401")] {
        let answer = ask("POST", "disks", token, disk);
        assert!(answer.starts_with(&format!("HTTP/1.1 {code}")), "{token}: {answer}");
    }
    let added = ask("POST", "disks", "build", disk);
    assert!(added.starts_with("HTTP/1.1 409") && added.contains("/etc/shadow"), "{added}");
    let removed = ask("DELETE", "disks/d%40unix?keep=state", "turn", "");
    assert!(removed.ends_with(r#"{"error":"a Disk(\"d@unix\") Some(State)"}"#), "{removed}");
    let drained = ask("POST", "drain", "turn", r#"{"drain": true}"#);
    assert!(drained.ends_with(r#"{"error":"a true None"}"#), "{drained}");
    assert!(ask("POST", "drain", "look", r#"{"drain": true}"#).starts_with("HTTP/1.1 403"));
}
