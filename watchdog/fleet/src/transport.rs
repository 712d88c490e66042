//! The socket of a connection, with one deadline for a whole call. A timeout of each read would never pass while a server
//! sends one byte at a time.

use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use redis::ConnectionAddr;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};

/// Plain or encrypted.
pub(crate) enum Transport {
    Plain(DeadlineSocket),
    #[cfg(feature = "tls")]
    Tls(Box<rustls::StreamOwned<rustls::ClientConnection, DeadlineSocket>>),
}

/// Reads and writes fail after the deadline.
pub(crate) struct DeadlineSocket {
    socket: Socket,
    deadline: Instant,
}

enum Socket {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Transport {
    pub(crate) fn connect(address: &ConnectionAddr, deadline: Instant) -> io::Result<Self> {
        let plain = |socket| DeadlineSocket { socket, deadline };
        match address {
            ConnectionAddr::Tcp(host, port) => Ok(Self::Plain(plain(Socket::Tcp(connect_tcp(host, *port, deadline)?)))),
            ConnectionAddr::Unix(path) => Ok(Self::Plain(plain(Socket::Unix(connect_unix(path, deadline)?)))),
            #[cfg(feature = "tls")]
            ConnectionAddr::TcpTls { host, port, .. } => {
                encrypt(host, plain(Socket::Tcp(connect_tcp(host, *port, deadline)?)))
            }
            _ => Err(io::Error::from(io::ErrorKind::Unsupported)),
        }
    }

    pub(crate) fn set_deadline(&mut self, deadline: Instant) {
        match self {
            Self::Plain(socket) => socket.deadline = deadline,
            #[cfg(feature = "tls")]
            Self::Tls(stream) => stream.sock.deadline = deadline,
        }
    }
}

fn connect_tcp(host: &str, port: u16, deadline: Instant) -> io::Result<TcpStream> {
    let mut result = Err(io::Error::new(io::ErrorKind::NotFound, "the name has no address"));
    for address in (host, port).to_socket_addrs()? {
        result = TcpStream::connect_timeout(&address, time_left(deadline)?);
        if let Ok(socket) = &result {
            socket.set_nodelay(true)?;
            break;
        }
    }
    result
}

fn connect_unix(path: &Path, deadline: Instant) -> io::Result<UnixStream> {
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    // Also limits connect(2), which waits while the server's backlog is full.
    set_socket_timeout(&socket, Timeout::Send, Some(time_left(deadline)?))?;
    connect(&socket, &SocketAddrUnix::new(path)?)?;
    Ok(UnixStream::from(socket))
}

/// With the certificates that the host trusts.
#[cfg(feature = "tls")]
fn encrypt(host: &str, socket: DeadlineSocket) -> io::Result<Transport> {
    let mut roots = rustls::RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    let config = rustls::ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
    let name = rustls::pki_types::ServerName::try_from(host.to_owned()).map_err(io::Error::other)?;
    let connection = rustls::ClientConnection::new(std::sync::Arc::new(config), name).map_err(io::Error::other)?;
    Ok(Transport::Tls(Box::new(rustls::StreamOwned::new(connection, socket))))
}

fn time_left(deadline: Instant) -> io::Result<Duration> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(left) }
}

impl Read for Transport {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Plain(socket) => socket.read(buffer),
            #[cfg(feature = "tls")]
            Self::Tls(stream) => stream.read(buffer),
        }
    }
}

impl Write for Transport {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Plain(socket) => socket.write(bytes),
            #[cfg(feature = "tls")]
            Self::Tls(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Plain(socket) => socket.flush(),
            #[cfg(feature = "tls")]
            Self::Tls(stream) => stream.flush(),
        }
    }
}

impl Read for DeadlineSocket {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let left = Some(time_left(self.deadline)?);
        match &mut self.socket {
            Socket::Tcp(socket) => socket.set_read_timeout(left).and_then(|()| socket.read(buffer)),
            Socket::Unix(socket) => socket.set_read_timeout(left).and_then(|()| socket.read(buffer)),
        }
    }
}

impl Write for DeadlineSocket {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let left = Some(time_left(self.deadline)?);
        match &mut self.socket {
            Socket::Tcp(socket) => socket.set_write_timeout(left).and_then(|()| socket.write(bytes)),
            Socket::Unix(socket) => socket.set_write_timeout(left).and_then(|()| socket.write(bytes)),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn full_backlog_ends_with_deadline() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("store.sock");
        let listener = socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None).unwrap();
        rustix::net::bind(&listener, &SocketAddrUnix::new(&path).unwrap()).unwrap();
        rustix::net::listen(&listener, 0).unwrap();
        let _first = UnixStream::connect(&path).unwrap();
        let began = Instant::now();
        let second = connect_unix(&path, began + Duration::from_millis(100));
        assert_eq!(second.unwrap_err().kind(), io::ErrorKind::WouldBlock);
        assert!(began.elapsed() >= Duration::from_millis(100));
    }
}
