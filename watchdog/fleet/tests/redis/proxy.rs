//! A port that leads to a server, slowly or to another one, as an address that fails over does.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};
use std::thread;
use std::time::Duration;

use watchdog_tests::RedisServer;

pub(crate) struct Proxy {
    port: u16,
    target: Arc<AtomicU16>,
}

impl Proxy {
    /// With this delay in each direction.
    pub(crate) fn to(server: &RedisServer, delay: Duration) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let target = Arc::new(AtomicU16::new(server.port()));
        let proxy = Self { port, target: target.clone() };
        thread::spawn(move || {
            for client in listener.incoming() {
                let (client, port) = (client.unwrap(), target.load(Ordering::SeqCst));
                let server = TcpStream::connect(("127.0.0.1", port)).unwrap();
                let back = (server.try_clone().unwrap(), client.try_clone().unwrap());
                for (from, to) in [(client, server), back] {
                    thread::spawn(move || forward(from, to, delay));
                }
            }
        });
        proxy
    }

    /// Connections to the other server end, and new ones lead to this one.
    pub(crate) fn switch(&self, from: &RedisServer, to: &RedisServer) {
        self.target.store(to.port(), Ordering::SeqCst);
        from.command(&["CLIENT", "KILL", "TYPE", "normal"]);
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }
}

fn forward(mut from: TcpStream, mut to: TcpStream, delay: Duration) {
    let mut bytes = [0; 65_536];
    while let Ok(read @ 1..) = from.read(&mut bytes) {
        thread::sleep(delay);
        if to.write_all(&bytes[..read]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Both);
    let _ = from.shutdown(Shutdown::Both);
}
