//! The HTTP server of an agent: metrics, health and readiness, and the API of `docs/api.md`. Requests that change something need the agent's
//! unix socket or a token.
//!
//! One thread with a runtime of its own serves HTTP, so that no IO waits for it. Only this crate has an async runtime. A connection carries
//! one request and lasts at most [`PATIENCE`]. Beyond [`CONNECTIONS`] a new one takes the place of another (`connections`). Answers are
//! shared for [`FRESH`], so that no flood of requests reaches the volumes' threads.

#![forbid(unsafe_code)]

mod answer;
mod api;
mod asked;
pub mod client;
mod connections;
mod dashboard;
mod guard;
mod pages;
mod progress;
mod shared;
mod text_format;
mod who;
mod within;

use std::io;
use std::net::TcpListener;
use std::os::unix::net::UnixListener;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use axum::middleware::{from_fn, from_fn_with_state, map_request_with_state};
use axum::routing::any;
use axum::{Extension, Router};
use hyper::server::conn::http1;
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use parda_tls::Acceptor;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio_rustls::TlsAcceptor;
use tokio_util::io::InspectReader;

use connections::{Connections, Origin};

pub use asked::{Agent, ApiRefusal, Caller, ChangeTarget, Changes, Disks, Of, Pages};
pub use axum::body::Bytes;
use progress::{Progress, Step};
pub use shared::FRESH;
use who::Peer;
use within::within;

/// Time limit of a connection.
pub const PATIENCE: Duration = Duration::from_secs(10);

/// Time limit of a client's TLS handshake.
pub const HANDSHAKE: Duration = Duration::from_secs(3);

/// Most connections that are open at a time.
pub const CONNECTIONS: usize = 64;

/// Most requests that wait for the agent at a time, each on a thread. Others wait for these.
const ASKED: usize = 32;

/// Pause after a connection could not be accepted, most likely for want of file descriptors.
const PAUSE: Duration = Duration::from_millis(100);

/// Clients that can reach the server, by its address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientReach {
    /// Users who may open its unix socket.
    Unix,
    /// Programs of this host, browsers among them.
    Loopback,
    /// Other hosts, without TLS. They get metrics, health and readiness only.
    Plain,
    /// Other hosts, with TLS. All but health and the page of the dashboard, which holds no data, needs a token.
    Tls,
}

fn router(agent: Arc<dyn Agent>, reach: ClientReach) -> Router {
    let shared = shared::Shared::new(agent);
    let router = match reach {
        ClientReach::Unix => pages::router().merge(api::router(&shared)),
        ClientReach::Loopback => {
            pages::router().merge(api::router(&shared)).layer(from_fn(guard::by_address))
        }
        // A page of another site has no token, and gets no certificate for its own name: `Host` need not be checked.
        ClientReach::Tls => {
            let known = from_fn_with_state(shared.clone(), who::known_only);
            pages::looks().merge(api::router(&shared)).route_layer(known).merge(pages::open())
        }
        ClientReach::Plain => pages::router().route("/api/{*path}", any(guard::without_tls)),
    };
    router.with_state(shared)
}

/// A thread that serves HTTP until it is dropped.
#[derive(Debug)]
pub struct ServerThread {
    stop: Arc<Notify>,
    thread: Option<JoinHandle<()>>,
}

impl ServerThread {
    /// Serves at a bound socket.
    ///
    /// # Errors
    /// The socket cannot be watched, or there is no thread to be had.
    pub fn start(
        listener: HttpListener,
        tls: Option<Arc<Acceptor>>,
        agent: Arc<dyn Agent>,
        reach: ClientReach,
    ) -> io::Result<ServerThread> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .max_blocking_threads(ASKED)
            .build()?;
        let listener = {
            let _inside = runtime.enter();
            listener.watched()?
        };
        let stop = Arc::new(Notify::new());
        let stopped = Arc::clone(&stop);
        let thread = std::thread::Builder::new().name("http".to_owned()).spawn(move || {
            runtime.block_on(async {
                tokio::select! {
                    () = stopped.notified() => {}
                    () = listener.serve(tls, router(agent, reach)) => {}
                }
            });
            // A call of the agent that hangs delays neither a reload nor the end.
            runtime.shutdown_background();
        })?;
        Ok(ServerThread { stop, thread: Some(thread) })
    }
}

impl Drop for ServerThread {
    fn drop(&mut self) {
        self.stop.notify_one();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// A socket at which a server listens.
#[derive(Debug)]
pub enum HttpListener<U = UnixListener, T = TcpListener> {
    /// A unix socket that listens.
    Unix(U),
    /// A TCP socket that listens.
    Tcp(T),
}

type Watched = HttpListener<tokio::net::UnixListener, tokio::net::TcpListener>;

impl HttpListener {
    /// The listener, watched by the runtime that is entered.
    fn watched(self) -> io::Result<Watched> {
        Ok(match self {
            HttpListener::Unix(listener) => {
                listener.set_nonblocking(true)?;
                HttpListener::Unix(tokio::net::UnixListener::from_std(listener)?)
            }
            HttpListener::Tcp(listener) => {
                listener.set_nonblocking(true)?;
                HttpListener::Tcp(tokio::net::TcpListener::from_std(listener)?)
            }
        })
    }
}

impl Watched {
    async fn serve(&self, tls: Option<Arc<Acceptor>>, router: Router) {
        let mut connections = Connections::default();
        loop {
            let progress = Progress::default();
            let (router, sent) = (router.clone(), progress.clone());
            let accepted = match self {
                HttpListener::Unix(listener) => listener.accept().await.map(|(stream, _)| {
                    let who = stream.peer_cred().ok();
                    let origin = Origin::Process(who.and_then(|who| who.pid()));
                    let peer = Peer::Unix(who.map(|who| who.uid()));
                    (origin, tokio::spawn(patiently(answer(stream, peer, router, sent))))
                }),
                HttpListener::Tcp(listener) => listener.accept().await.map(|(stream, from)| {
                    let peer = Peer::Tcp(Some(from));
                    let tls = tls.as_ref().map(|tls| TlsAcceptor::from(tls.config()));
                    let served = async move {
                        match tls {
                            Some(tls) => answer_within(tls, stream, peer, router, sent).await,
                            None => answer(stream, peer, router, sent).await,
                        }
                    };
                    (Origin::at(from.ip()), tokio::spawn(patiently(served)))
                }),
            };
            match accepted {
                Ok((origin, served)) => {
                    connections.admit(origin, progress, served);
                    // Data of other clients is read between any two new connections, however many come.
                    tokio::task::yield_now().await;
                }
                Err(_) => tokio::time::sleep(PAUSE).await,
            }
        }
    }
}

/// Serves a connection for as long as one may last.
async fn patiently(served: impl Future<Output = ()>) {
    if within(PATIENCE, served).await.is_none() {
        tracing::debug!("an HTTP connection lasted too long, and was closed");
    }
}

/// Answers one request on a connection with TLS.
async fn answer_within(
    tls: TlsAcceptor,
    stream: TcpStream,
    peer: Peer,
    router: Router,
    sent: Progress,
) {
    match within(HANDSHAKE, tls.accept(stream)).await {
        Some(Ok(stream)) => {
            sent.reached(Step::Begun);
            answer(stream, peer, router, sent).await;
        }
        Some(Err(error)) => tracing::debug!("TLS of an HTTP client failed: {error}"),
        None => tracing::debug!("an HTTP client did not shake hands in time"),
    }
}

/// Answers one request on a connection, and closes it.
async fn answer(
    stream: impl AsyncRead + AsyncWrite + Unpin,
    peer: Peer,
    router: Router,
    sent: Progress,
) {
    let begun = sent.clone();
    let stream = InspectReader::new(stream, move |_| begun.reached(Step::Begun));
    let router = router.layer(Extension(peer)).layer(map_request_with_state(sent, progress::whole));
    let served = http1::Builder::new()
        .keep_alive(false)
        .half_close(true)
        .max_buf_size(16 << 10)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router));
    if let Err(error) = served.await {
        tracing::debug!("an HTTP request was not answered: {error}");
    }
}

#[cfg(test)]
mod tests;
#[cfg(test)]
mod typescript;
