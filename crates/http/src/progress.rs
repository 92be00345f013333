//! Progress of a connection's client with its request.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use axum::body::{Body, to_bytes};
use axum::extract::{Request, State};
use axum::http::StatusCode;

use crate::answer::Refused;

/// The largest body of a request, in bytes.
const LARGEST: usize = 64 << 10;

/// What a client has sent so far, at least.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(crate) enum Step {
    /// Nothing so far, or no whole handshake of TLS.
    Silent,
    /// Part of a request, or the handshake of TLS.
    Begun,
    /// A whole request, with its body if it has one.
    Asked,
}

/// The step of one connection, shared with who serves it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Progress(Arc<AtomicU8>);

impl Progress {
    pub(crate) fn reached(&self, step: Step) {
        self.0.fetch_max(step as u8, Ordering::Relaxed);
    }

    pub(crate) fn step(&self) -> Step {
        match self.0.load(Ordering::Relaxed) {
            0 => Step::Silent,
            1 => Step::Begun,
            _ => Step::Asked,
        }
    }
}

/// Reads the whole of a request, and notes that.
pub(crate) async fn whole(
    State(progress): State<Progress>,
    request: Request,
) -> Result<Request, Refused> {
    let (head, body) = request.into_parts();
    let body = to_bytes(body, LARGEST).await.map_err(|_| {
        let message = format!("the body is larger than {} KiB, or was not sent", LARGEST >> 10);
        Refused(StatusCode::PAYLOAD_TOO_LARGE, message)
    })?;
    progress.reached(Step::Asked);
    Ok(Request::from_parts(head, Body::from(body)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_whole_with_its_body() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let progress = Progress::default();
            let request = Request::new("{}".into());
            assert!(whole(State(progress.clone()), request).await.is_ok());
            assert_eq!(progress.step(), Step::Asked);
            let progress = Progress::default();
            let request = Request::new(vec![0; LARGEST + 1].into());
            assert!(whole(State(progress.clone()), request).await.is_err());
            assert_eq!(progress.step(), Step::Silent);
        });
    }
}
