//! `watchdogctl web`, and a browser's part of its conversation.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::http::{HttpResponse, connect, exchange};
use crate::limit;

/// A server, and the cookie of its one visitor. The server is killed when this is dropped.
pub struct WebPage {
    server: Child,
    address: SocketAddr,
    base: String,
    cookie: String,
}

impl WebPage {
    /// Starts the server, and opens the address that it prints.
    ///
    /// # Panics
    /// When it prints none, or its token gives no cookie.
    #[must_use]
    pub fn open(command: &mut Command) -> Self {
        let mut server = command.stdout(Stdio::piped()).spawn().expect("the server starts");
        let mut url = String::new();
        let mut output = BufReader::new(server.stdout.take().expect("a piped output"));
        output.read_line(&mut url).expect("text");
        let (host, query) =
            url.trim_end().strip_prefix("http://").and_then(|rest| rest.split_once('/')).expect("an address");
        let address = host.parse().expect("an address and a port");
        let mut page = Self { server, address, base: "/".into(), cookie: String::new() };
        let answer = page.get(query);
        let header = |name: &str| answer.header(name).unwrap_or_else(|| panic!("no {name} in {answer:?}")).to_owned();
        assert_eq!(answer.status, 303, "{answer:?}");
        let cookie = header("set-cookie");
        (page.base, page.cookie) = (header("location"), cookie.split(';').next().unwrap_or_default().to_owned());
        page
    }

    pub fn pid(&self) -> u32 {
        self.server.id()
    }

    /// `GET` of a resource below the page.
    ///
    /// # Panics
    /// When there is no answer.
    pub fn get(&self, resource: &str) -> HttpResponse {
        let answer = connect(self.address).and_then(|stream| exchange(stream, self.request(resource).as_bytes()));
        answer.unwrap_or_else(|error| panic!("GET {resource}: {error}"))
    }

    /// The stream of the page, after the message that the daemon answers.
    ///
    /// # Panics
    /// When it does not.
    pub fn follow(&self) -> TcpStream {
        let mut stream = connect(self.address).expect("a connection");
        stream.write_all(self.request("live").as_bytes()).expect("a connection");
        stream.set_read_timeout(Some(limit(Duration::from_secs(30)))).expect("a time limit");
        let lines = BufReader::new(stream.try_clone().expect("a descriptor")).lines();
        let said: Vec<String> =
            lines.map(|line| line.expect("text")).take_while(|line| !line.starts_with("data: {\"up\":true,")).collect();
        assert!(said.iter().any(|line| line == "event: daemon"), "{said:?}");
        stream
    }

    fn request(&self, resource: &str) -> String {
        let Self { address, base, cookie, .. } = self;
        format!("GET {base}{resource} HTTP/1.1\r\nHost: {address}\r\nCookie: {cookie}\r\n\r\n")
    }
}

impl Drop for WebPage {
    fn drop(&mut self) {
        // An error means that it has exited.
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}
