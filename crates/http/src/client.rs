//! A client of an agent's API: one request, and its answer.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use axum::body::{Body, to_bytes};
use axum::http::header::{AUTHORIZATION, CONTENT_TYPE, HOST};
use axum::http::{Method, Request};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use parda_tls::Connector;
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsConnector;

/// Longest time for an answer. A change may take several seconds.
const PATIENCE: Duration = Duration::from_secs(20);

/// The largest answer, in bytes.
const LARGEST: usize = 256 << 20;

/// Address at which an agent answers.
#[derive(Clone, Debug)]
pub enum Server {
    /// Path of a unix socket.
    Unix(PathBuf),
    /// `HOST:PORT`, in plain text.
    Tcp(String),
    /// `HOST:PORT`, with TLS to it.
    Tls(String, Connector),
}

impl std::fmt::Display for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Server::Unix(path) => write!(f, "{}", path.display()),
            Server::Tcp(authority) => write!(f, "http://{authority}"),
            Server::Tls(authority, _) => write!(f, "https://{authority}"),
        }
    }
}

/// Reason why there is no answer.
#[derive(Debug)]
pub enum AskError {
    /// Nobody listens at the address.
    Connect(io::Error),
    /// The answer is not an agent's, or did not come.
    Answer(String),
    /// The agent refuses: HTTP status and reason.
    Refused(u16, String),
}

impl std::fmt::Display for AskError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            AskError::Connect(error) => write!(f, "cannot ask: {error}"),
            AskError::Answer(error) => write!(f, "no answer: {error}"),
            AskError::Refused(_, error) => f.write_str(error),
        }
    }
}

/// Sends a request and waits for its answer. `path` is that behind the server's name, escaped.
///
/// # Errors
/// There is no answer, or a refusal.
pub fn ask(
    server: &Server,
    method: &str,
    path: &str,
    body: Option<&Value>,
    token: Option<&str>,
) -> Result<Value, AskError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(AskError::Connect)?;
    runtime.block_on(async {
        let answered = async {
            match server {
                Server::Unix(socket) => {
                    let stream = tokio::net::UnixStream::connect(socket).await;
                    exchange(stream, "localhost", method, path, body, token).await
                }
                Server::Tcp(authority) => {
                    let stream = tokio::net::TcpStream::connect(authority).await;
                    exchange(stream, authority, method, path, body, token).await
                }
                Server::Tls(authority, connector) => {
                    let (config, name) = connector.parts();
                    let stream = tokio::net::TcpStream::connect(authority).await;
                    let stream = stream.map_err(AskError::Connect)?;
                    let stream = TlsConnector::from(config).connect(name, stream).await;
                    let stream =
                        stream.map_err(|error| AskError::Answer(connector.explain(&error)))?;
                    exchange(Ok(stream), authority, method, path, body, token).await
                }
            }
        };
        tokio::time::timeout(PATIENCE, answered).await.unwrap_or_else(|_| {
            Err(AskError::Answer(format!("none within {} s", PATIENCE.as_secs())))
        })
    })
}

async fn exchange(
    stream: io::Result<impl AsyncRead + AsyncWrite + Unpin + Send + 'static>,
    host: &str,
    method: &str,
    path: &str,
    body: Option<&Value>,
    token: Option<&str>,
) -> Result<Value, AskError> {
    let wrong = |error: &dyn std::fmt::Display| AskError::Answer(error.to_string());
    let stream = TokioIo::new(stream.map_err(AskError::Connect)?);
    let (mut sender, connection) = http1::handshake(stream).await.map_err(|e| wrong(&e))?;
    tokio::spawn(connection);
    let method: Method = method.parse().map_err(|e| wrong(&e))?;
    let mut request = Request::builder().method(method).uri(path).header(HOST, host);
    if let Some(token) = token {
        request = request.header(AUTHORIZATION, format!("Bearer {token}"));
    }
    let body = match body {
        Some(value) => {
            request = request.header(CONTENT_TYPE, "application/json");
            Body::from(value.to_string())
        }
        None => Body::empty(),
    };
    let request = request.body(body).map_err(|e| wrong(&e))?;
    let answer = sender.send_request(request).await.map_err(|e| wrong(&e))?;
    let status = answer.status();
    let text = to_bytes(Body::new(answer.into_body()), LARGEST).await.map_err(|e| wrong(&e))?;
    if status.is_success() {
        return serde_json::from_slice(&text).map_err(|e| wrong(&e));
    }
    let problem: Result<parda_api::Problem, _> = serde_json::from_slice(&text);
    let error = problem.map_or_else(|_| format!("it answers {status}"), |problem| problem.error);
    Err(AskError::Refused(status.as_u16(), error))
}
