//! The body of a response that consists of lines: a JSON document, or a stream.

use std::collections::VecDeque;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::task::{Context, Poll};

use bytes::{BufMut, Bytes, BytesMut};
use hyper::body::{Body, Frame};
use tokio::sync::mpsc;

use super::journal::Feed;

/// Size of a frame, in bytes, but for its last line. Small, since each connection holds one.
const FRAME: usize = 8 * 1024;

#[derive(Debug)]
pub(super) struct NdjsonBody {
    head: &'static str,
    between: &'static str,
    tail: &'static str,
    first: bool,
    backlog: VecDeque<Bytes>,
    live: Option<mpsc::Receiver<Bytes>>,
    done: bool,
    /// Set by a source that ends before it is complete.
    incomplete: Arc<AtomicBool>,
}

impl NdjsonBody {
    /// `{"events":[…]}`
    pub(super) fn document(events: VecDeque<Bytes>) -> Self {
        let (head, between, tail) = (r#"{"events":["#, ",", "]}");
        Self { head, between, tail, first: true, backlog: events, live: None, done: false, incomplete: Arc::default() }
    }

    /// One event a line, until either side closes.
    pub(super) fn stream(feed: Feed) -> Self {
        let Feed { backlog, live } = feed;
        let (head, between, tail, live) = ("", "", "", Some(live));
        Self { head, between, tail, first: true, backlog, live, done: false, incomplete: Arc::default() }
    }

    /// Makes the body fail if the flag is set when the source ends, so that the client does not take it for complete.
    pub(super) fn fail_if(self, incomplete: Arc<AtomicBool>) -> Self {
        Self { incomplete, ..self }
    }

    fn end(&self) -> Option<Result<Frame<Bytes>, io::Error>> {
        let error = || Err(io::Error::other("the stream ended before it was complete"));
        self.incomplete.load(Relaxed).then(error)
    }

    fn push(&mut self, frame: &mut BytesMut, line: &[u8]) {
        frame.put_slice(if self.first { self.head } else { self.between }.as_bytes());
        self.first = false;
        frame.put_slice(line);
        if self.live.is_some() {
            frame.put_u8(b'\n');
        }
    }

    /// Takes the lines that are ready, up to a frame's size. Pending when the source has no more for now.
    fn fill(&mut self, frame: &mut BytesMut, cx: &mut Context<'_>) -> Poll<()> {
        while frame.len() < FRAME {
            if let Some(line) = self.backlog.pop_front() {
                self.push(frame, &line);
                continue;
            }
            let Some(live) = &mut self.live else { break };
            match live.poll_recv(cx) {
                Poll::Ready(Some(line)) => self.push(frame, &line),
                Poll::Ready(None) => break,
                Poll::Pending => return Poll::Pending,
            }
        }
        if frame.len() < FRAME {
            self.done = true;
            if self.first {
                frame.put_slice(self.head.as_bytes());
            }
            frame.put_slice(self.tail.as_bytes());
        }
        Poll::Ready(())
    }
}

impl Body for NdjsonBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        let lines = self.get_mut();
        if lines.done {
            return Poll::Ready(lines.end());
        }
        let mut frame = BytesMut::new();
        let state = lines.fill(&mut frame, cx);
        match (frame.is_empty(), state) {
            (false, _) => Poll::Ready(Some(Ok(Frame::data(frame.freeze())))),
            (true, Poll::Ready(())) => Poll::Ready(lines.end()),
            (true, Poll::Pending) => Poll::Pending,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body_util::BodyExt;

    async fn text(lines: NdjsonBody) -> String {
        String::from_utf8(lines.collect().await.unwrap().to_bytes().to_vec()).unwrap()
    }

    #[tokio::test]
    async fn document_is_valid_json() {
        for count in [0_usize, 1, 2, 10_000] {
            let events = (0..count).map(|number| Bytes::from(format!(r#"{{"seq":{number}}}"#))).collect();
            let document: serde_json::Value = serde_json::from_str(&text(NdjsonBody::document(events)).await).unwrap();
            assert_eq!(document["events"].as_array().unwrap().len(), count);
        }
    }

    #[tokio::test]
    async fn stream_sends_backlog_then_live() {
        let (sender, live) = mpsc::channel(4);
        let lines = NdjsonBody::stream(Feed { backlog: [Bytes::from_static(b"1")].into(), live });
        sender.send(Bytes::from_static(b"2")).await.unwrap();
        drop(sender);
        assert_eq!(text(lines).await, "1\n2\n");
    }

    #[tokio::test]
    async fn stream_sends_lines_at_once() {
        let (sender, live) = mpsc::channel(4);
        let mut lines = NdjsonBody::stream(Feed { backlog: VecDeque::new(), live });
        sender.send(Bytes::from_static(b"now")).await.unwrap();
        let frame = lines.frame().await.unwrap().unwrap().into_data().unwrap();
        assert_eq!(frame, "now\n");
    }
}
