//! Keeps a connection's permit informed: whether the connection waits for its client or is being answered.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::body::{Body, Bytes};
use hyper::body::{Body as HttpBody, Frame, SizeHint};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::connection_limit::ConnectionPermit;

/// Reports to the permit while the client reads nothing.
pub(super) struct WatchedStream<I> {
    io: Pin<Box<I>>,
    permit: Arc<ConnectionPermit>,
    stalled: bool,
}

impl<I> WatchedStream<I> {
    pub(super) fn new(io: I, permit: Arc<ConnectionPermit>) -> Self {
        Self { io: Box::pin(io), permit, stalled: false }
    }

    fn note<T>(&mut self, written: Poll<T>) -> Poll<T> {
        if written.is_pending() != self.stalled {
            self.stalled = written.is_pending();
            self.permit.stall(self.stalled);
        }
        written
    }
}

impl<I: AsyncRead> AsyncRead for WatchedStream<I> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        self.io.as_mut().poll_read(cx, buffer)
    }
}

impl<I: AsyncWrite> AsyncWrite for WatchedStream<I> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = self.io.as_mut().poll_write(cx, bytes);
        self.note(written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = self.io.as_mut().poll_write_vectored(cx, slices);
        self.note(written)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.io.as_mut().poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.io.as_mut().poll_shutdown(cx)
    }
}

/// The body of a request: the daemon waits for the client until it is complete.
pub(super) struct RequestBody {
    body: Body,
    permit: Arc<ConnectionPermit>,
}

impl RequestBody {
    pub(super) fn new(body: Body, permit: Arc<ConnectionPermit>) -> Self {
        if !body.is_end_stream() {
            permit.stall(true);
        }
        Self { body, permit }
    }
}

impl HttpBody for RequestBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let frame = Pin::new(&mut self.body).poll_frame(cx);
        if matches!(frame, Poll::Ready(None)) || self.body.is_end_stream() {
            self.permit.stall(false);
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// The body of an answer: once it is sent or dropped, the connection waits for its next request.
pub(super) struct ResponseBody {
    body: Body,
    permit: Arc<ConnectionPermit>,
}

impl ResponseBody {
    pub(super) fn new(body: Body, permit: Arc<ConnectionPermit>) -> Self {
        Self { body, permit }
    }
}

impl HttpBody for ResponseBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Drop for ResponseBody {
    fn drop(&mut self) {
        self.permit.finish();
    }
}
