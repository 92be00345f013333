use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicUsize, Ordering};

use std::time::Instant;

use super::*;

/// A server at a unix socket of its own, and how often it looked at its agent.
struct Served {
    dir: tempfile::TempDir,
    looks: Arc<AtomicUsize>,
    _server: Server,
}

impl Served {
    fn new() -> Served {
        let dir = tempfile::tempdir().unwrap();
        let looks = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&looks);
        let describe = Arc::new(move || {
            counted.fetch_add(1, Ordering::Relaxed);
            Pages {
                metrics: "# EOF
"
                .to_owned(),
                lacking: String::new(),
            }
        });
        let listener = UnixListener::bind(dir.path().join("s")).unwrap();
        let server = Server::start(Listener::Unix(listener), describe).unwrap();
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
    assert!(metrics.contains("content-type: application/openmetrics-text; version=1.0.0"));
    assert!(metrics.ends_with("# EOF\n"), "{metrics}");
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
fn silent_connections_keep_nobody_out_below_the_bound() {
    let served = Served::new();
    let silent: Vec<_> = (1..CONNECTIONS).map(|_| served.connect()).collect();
    assert!(served.get("/healthz").ends_with("alive\n"));
    drop(silent);
}

#[test]
fn a_flood_of_requests_makes_few_looks() {
    let served = Served::new();
    let began = Instant::now();
    for _ in 0..100 {
        served.get("/metrics");
    }
    let most = began.elapsed().as_millis() / FRESH.as_millis() + 1;
    assert!(served.looks.load(Ordering::Relaxed) as u128 <= most);
}

#[test]
fn a_slow_connection_is_closed() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        tokio::time::pause();
        let (_client, server) = tokio::io::duplex(64);
        let began = tokio::time::Instant::now();
        answer(server, pages::router(Arc::new(Pages::default))).await;
        assert_eq!(began.elapsed().as_secs(), PATIENCE.as_secs());
    });
}

#[test]
fn what_is_not_served_is_said_with_503() {
    let dir = tempfile::tempdir().unwrap();
    let listener = UnixListener::bind(dir.path().join("s")).unwrap();
    let pages = || Pages { metrics: String::new(), lacking: "disk vm is waiting\n".to_owned() };
    let server = Server::start(Listener::Unix(listener), Arc::new(pages)).unwrap();
    let looks = Arc::default();
    let answer = Served { dir, looks, _server: server }.get("/readyz");
    assert!(answer.starts_with("HTTP/1.1 503"), "{answer}");
    assert!(answer.ends_with("\r\n\r\ndisk vm is waiting\n"), "{answer}");
}
