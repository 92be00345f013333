//! How far the client of a connection has come with its request.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::task::{Context, Poll, ready};

use axum::body::{Body, Bytes, HttpBody};
use axum::extract::{Request, State};
use hyper::body::{Frame, SizeHint};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

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

/// A stream whose first bytes are noted.
pub(crate) struct ObservedStream<S> {
    pub(crate) stream: S,
    pub(crate) progress: Progress,
}

impl<S: AsyncRead + Unpin> AsyncRead for ObservedStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(cx, buf);
        if buf.filled().len() > before {
            self.progress.reached(Step::Begun);
        }
        read
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for ObservedStream<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, bytes)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

/// Notes when a request is whole: with its headers, or with the end of its body.
pub(crate) async fn noted(State(progress): State<Progress>, request: Request) -> Request {
    if request.body().is_end_stream() {
        progress.reached(Step::Asked);
        return request;
    }
    request.map(|body| Body::new(ObservedBody { body, progress }))
}

/// A body whose end is noted.
struct ObservedBody {
    body: Body,
    progress: Progress,
}

impl HttpBody for ObservedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(cx));
        if frame.is_none() || self.body.is_end_stream() {
            self.progress.reached(Step::Asked);
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_whole_with_its_body() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            for (body, first) in [("", Step::Asked), ("{}", Step::Begun)] {
                let progress = Progress::default();
                progress.reached(Step::Begun);
                let request = noted(State(progress.clone()), Request::new(body.into())).await;
                assert_eq!(progress.step(), first, "{body:?}");
                let read = axum::body::to_bytes(request.into_body(), 100).await.unwrap();
                assert_eq!((&*read, progress.step()), (body.as_bytes(), Step::Asked));
            }
        });
    }
}
