//! A connection that stays open between requests.

use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};

/// At most one. Its clones share it; a request that finds it in use opens its own.
#[derive(Clone, Debug, Default)]
pub(super) struct KeptConnection(Arc<Mutex<Option<UnixStream>>>);

impl KeptConnection {
    /// `None` if there is none, or if the daemon has closed it: after 10 s without a request, at its connection limit, and
    /// when it stops.
    pub(super) fn take(&self) -> Option<UnixStream> {
        let stream = self.lock().take()?;
        let read = recv(&stream, &mut [0_u8; 1], RecvFlags::PEEK | RecvFlags::DONTWAIT);
        // Data that belongs to no request would be taken for the next response.
        matches!(read, Err(Errno::AGAIN)).then_some(stream)
    }

    pub(super) fn keep(&self, stream: UnixStream) {
        *self.lock() = Some(stream);
    }

    /// A panic leaves the old or the new value, both valid.
    fn lock(&self) -> MutexGuard<'_, Option<UnixStream>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
