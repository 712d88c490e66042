//! Limits open connections. Every local user can connect, so connections without access make room for others.

use std::net::{Shutdown, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};

/// Open connections, each with a thread.
pub(crate) const MAX_CONNECTIONS: usize = 64;
/// Streams of open pages among them. The others are for requests.
const MAX_STREAMS: usize = 40;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SlotState {
    /// It has not shown its cookie.
    Unknown,
    Admitted,
    Stream,
}

#[derive(Debug)]
struct Slot {
    id: u64,
    state: SlotState,
    stream: TcpStream,
}

#[derive(Debug, Default)]
struct OpenSlots {
    last_id: u64,
    /// The oldest first.
    slots: Vec<Slot>,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct ConnectionSlots(Arc<Mutex<OpenSlots>>);

/// Frees its slot when it is dropped.
#[derive(Debug)]
pub(crate) struct SlotGuard {
    slots: ConnectionSlots,
    id: u64,
}

impl ConnectionSlots {
    /// `None` if all connections have access. Otherwise the oldest one without access is closed to make room.
    pub(crate) fn take(&self, stream: &TcpStream) -> Option<SlotGuard> {
        let stream = stream.try_clone().ok()?;
        let id = self.with(|open| {
            if open.slots.len() >= MAX_CONNECTIONS {
                let oldest = open.slots.iter().position(|slot| slot.state == SlotState::Unknown)?;
                // Its thread sees the end of the connection, and ends.
                let _ = open.slots.remove(oldest).stream.shutdown(Shutdown::Both);
            }
            open.last_id += 1;
            open.slots.push(Slot { id: open.last_id, state: SlotState::Unknown, stream });
            Some(open.last_id)
        })?;
        Some(SlotGuard { slots: self.clone(), id })
    }

    fn with<T>(&self, change: impl FnOnce(&mut OpenSlots) -> T) -> T {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl SlotGuard {
    /// The request has access: it is not closed for others.
    pub(crate) fn admit(&self) {
        self.set(SlotState::Admitted);
    }

    /// `false` if too many streams are open.
    pub(crate) fn begin_stream(&self) -> bool {
        let streams = |open: &OpenSlots| open.slots.iter().filter(|slot| slot.state == SlotState::Stream).count();
        let free = self.slots.with(|open| streams(open) < MAX_STREAMS);
        if free {
            self.set(SlotState::Stream);
        }
        free
    }

    fn set(&self, state: SlotState) {
        self.slots.with(|open| {
            if let Some(slot) = open.slots.iter_mut().find(|slot| slot.id == self.id) {
                slot.state = state;
            }
        });
    }
}

impl Drop for SlotGuard {
    fn drop(&mut self) {
        self.slots.with(|open| open.slots.retain(|slot| slot.id != self.id));
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::net::TcpListener;

    use super::*;

    fn connection(listener: &TcpListener) -> (TcpStream, TcpStream) {
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (client, listener.accept().unwrap().0)
    }

    #[test]
    fn unknown_connection_is_evicted_first() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let slots = ConnectionSlots::default();
        let mut open: Vec<_> = (0..MAX_CONNECTIONS)
            .map(|_| {
                let (client, server) = connection(&listener);
                let slot = slots.take(&server).unwrap();
                (client, server, slot)
            })
            .collect();
        open[0].2.admit();
        let (_client, server) = connection(&listener);
        let newcomer = slots.take(&server).unwrap();
        assert_eq!(open[1].0.read(&mut [0]).unwrap(), 0, "the oldest unknown connection was closed");
        newcomer.admit();
        open.iter().for_each(|(_, _, slot)| slot.admit());
        assert!(slots.take(&server).is_none(), "every connection has access");
        drop(newcomer);
        assert!(slots.take(&server).is_some());
    }

    #[test]
    fn streams_leave_slots_for_requests() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let slots = ConnectionSlots::default();
        let (_client, server) = connection(&listener);
        let open: Vec<_> = (0..=MAX_STREAMS).map(|_| slots.take(&server).unwrap()).collect();
        let begun = open.iter().filter(|slot| slot.begin_stream()).count();
        assert_eq!(begun, MAX_STREAMS);
    }
}
