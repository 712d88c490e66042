//! One connection's place at the door, kept up to date: whether it waits for its client or is being answered.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::body::{Body, Bytes};
use hyper::body::{Body as HttpBody, Frame, SizeHint};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::door::Place;

/// A stream that reports at its place while the client takes nothing.
pub(super) struct WatchedStream<I> {
    io: Pin<Box<I>>,
    place: Arc<Place>,
    stalled: bool,
}

impl<I> WatchedStream<I> {
    pub(super) fn new(io: I, place: Arc<Place>) -> Self {
        Self { io: Box::pin(io), place, stalled: false }
    }

    fn note<T>(&mut self, written: Poll<T>) -> Poll<T> {
        if written.is_pending() != self.stalled {
            self.stalled = written.is_pending();
            self.place.stall(self.stalled);
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

/// The body of a request: the client is waited for until it is complete.
pub(super) struct Arriving {
    body: Body,
    place: Arc<Place>,
}

impl Arriving {
    pub(super) fn new(body: Body, place: Arc<Place>) -> Self {
        if !body.is_end_stream() {
            place.stall(true);
        }
        Self { body, place }
    }
}

impl HttpBody for Arriving {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let frame = Pin::new(&mut self.body).poll_frame(cx);
        if matches!(frame, Poll::Ready(None)) || self.body.is_end_stream() {
            self.place.stall(false);
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

/// The body of an answer: when it is taken, or dropped, the connection waits for its next request.
pub(super) struct Leaving {
    body: Body,
    place: Arc<Place>,
}

impl Leaving {
    pub(super) fn new(body: Body, place: Arc<Place>) -> Self {
        Self { body, place }
    }
}

impl HttpBody for Leaving {
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

impl Drop for Leaving {
    fn drop(&mut self) {
        self.place.finish();
    }
}
