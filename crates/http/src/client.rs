//! A client of an agent's API: one request, and its answer.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use axum::body::{Body, to_bytes};
use axum::http::Request;
use axum::http::header::{AUTHORIZATION, CONTENT_TYPE, HOST};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use parda_tls::Connector;
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsConnector;

use crate::within::within;

/// Longest time for an answer to a query, as at the status socket. Then that for a change, which may wait for
/// disks.
const PATIENCE: Duration = Duration::from_secs(5);
const PATIENCE_WITH_CHANGES: Duration = Duration::from_secs(20);

/// The largest answer, in bytes.
const LARGEST: usize = 256 << 20;

/// Address at which an agent answers.
#[derive(Clone, Debug)]
pub enum AgentAddress {
    /// Path of a unix socket.
    Unix(PathBuf),
    /// `HOST:PORT`, in plain text.
    Tcp(String),
    /// `HOST:PORT`, with TLS to it.
    Tls(String, Connector),
}

impl std::fmt::Display for AgentAddress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            AgentAddress::Unix(path) => write!(f, "{}", path.display()),
            AgentAddress::Tcp(authority) => write!(f, "http://{authority}"),
            AgentAddress::Tls(authority, _) => write!(f, "https://{authority}"),
        }
    }
}

/// Reason why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum HttpError {
    /// Nobody listens at the address.
    #[error("cannot ask: {0}")]
    Connect(io::Error),
    /// The answer is not an agent's, or did not come.
    #[error("no answer: {0}")]
    Answer(String),
    /// The peer does not speak HTTP, or with TLS.
    #[error("what answers there does not speak HTTP without TLS ({0})")]
    NotHttp(String),
    /// The agent refuses: HTTP status and reason.
    #[error("{1}")]
    Refused(u16, String),
}

/// Sends a request and waits for its answer. `path` is that behind the server's name, escaped.
///
/// # Errors
/// There is no answer, or a refusal.
pub fn ask(
    server: &AgentAddress,
    method: &str,
    path: &str,
    body: Option<&Value>,
    token: Option<&str>,
) -> Result<Value, HttpError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(HttpError::Connect)?;
    let host = match server {
        AgentAddress::Unix(_) => "localhost",
        AgentAddress::Tcp(authority) | AgentAddress::Tls(authority, _) => authority,
    };
    let mut request = Request::builder().method(method).uri(path).header(HOST, host);
    if let Some(token) = token {
        request = request.header(AUTHORIZATION, format!("Bearer {token}"));
    }
    if body.is_some() {
        request = request.header(CONTENT_TYPE, "application/json");
    }
    let body = body.map_or_else(Body::empty, |value| Body::from(value.to_string()));
    let request = request.body(body).map_err(wrong)?;
    runtime.block_on(async {
        let answered = async {
            match server {
                AgentAddress::Unix(socket) => {
                    exchange(tokio::net::UnixStream::connect(socket).await, request).await
                }
                AgentAddress::Tcp(authority) => {
                    exchange(tokio::net::TcpStream::connect(authority).await, request).await
                }
                AgentAddress::Tls(authority, connector) => {
                    let (config, name) = connector.parts();
                    let stream = tokio::net::TcpStream::connect(authority).await;
                    let stream = stream.map_err(HttpError::Connect)?;
                    let stream = TlsConnector::from(config).connect(name, stream).await;
                    let stream =
                        stream.map_err(|error| HttpError::Answer(connector.explain(&error)))?;
                    exchange(Ok(stream), request).await
                }
            }
        };
        let patience = if method == "GET" { PATIENCE } else { PATIENCE_WITH_CHANGES };
        within(patience, answered).await.unwrap_or_else(|| {
            Err(HttpError::Answer(format!("none within {} s", patience.as_secs())))
        })
    })
}

fn wrong(error: impl std::fmt::Display) -> HttpError {
    HttpError::Answer(error.to_string())
}

async fn exchange(
    stream: io::Result<impl AsyncRead + AsyncWrite + Unpin + Send + 'static>,
    request: Request<Body>,
) -> Result<Value, HttpError> {
    let stream = TokioIo::new(stream.map_err(HttpError::Connect)?);
    let (mut sender, connection) = http1::handshake(stream).await.map_err(wrong)?;
    tokio::spawn(connection);
    let answer = sender.send_request(request).await.map_err(|error| {
        if error.is_parse() || error.is_incomplete_message() {
            return HttpError::NotHttp(error.to_string());
        }
        wrong(error)
    })?;
    let status = answer.status();
    let text = to_bytes(Body::new(answer.into_body()), LARGEST).await.map_err(wrong)?;
    if status.is_success() {
        return serde_json::from_slice(&text).map_err(wrong);
    }
    let problem: Result<parda_api::Problem, _> = serde_json::from_slice(&text);
    let error = problem.map_or_else(|_| format!("it answers {status}"), |problem| problem.error);
    Err(HttpError::Refused(status.as_u16(), error))
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn a_silent_agent_is_asked_as_long_as_at_its_status_socket() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s");
        let _silent = UnixListener::bind(&path).unwrap();
        let error = ask(&AgentAddress::Unix(path), "GET", "/api/v1/state", None, None).unwrap_err();
        assert_eq!(error.to_string(), "no answer: none within 5 s");
    }
}
