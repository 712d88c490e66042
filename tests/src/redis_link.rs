//! A network link to a server, which tests cut.

use std::process::Command;
use std::time::Duration;

use crate::poll;
use crate::redis_server::{RedisNamespace, RedisServer};

/// A network namespace that a pair of virtual interfaces connects with this one.
pub struct RedisLink {
    tag: String,
    subnet: u8,
}

impl RedisLink {
    /// `None`, aloud, without the right or the program. Tests of one process need different subnets, from 1 to 255.
    ///
    /// # Panics
    /// In CI without the right or the program.
    #[must_use]
    pub fn new(subnet: u8) -> Option<Self> {
        let link = Self { tag: format!("wdf{}x{subnet}", std::process::id() % 100_000), subnet };
        let RedisLink { tag, .. } = &link;
        let commands = [
            format!("netns add {tag}"),
            format!("link add {tag}a type veth peer name {tag}b netns {tag}"),
            format!("addr add 10.211.{subnet}.1/30 dev {tag}a"),
            format!("link set {tag}a up"),
            format!("-n {tag} addr add 10.211.{subnet}.2/30 dev {tag}b"),
            format!("-n {tag} link set {tag}b up"),
            format!("-n {tag} link set lo up"),
        ];
        for command in commands {
            if !ip(&command) {
                assert!(std::env::var_os("CI").is_none(), "CI must install iproute2: ip {command} failed");
                eprintln!("SKIPPED: ip {command} failed; network namespaces need root and iproute2");
                return None;
            }
        }
        link.wait_until_up();
        Some(link)
    }

    /// The kernel drops what is sent before it has seen both ends up, which takes up to a second.
    fn wait_until_up(&self) {
        let end = format!("/sys/class/net/{}a/operstate", self.tag);
        let is_up = || std::fs::read_to_string(&end).expect("our interface").trim() == "up";
        assert!(poll(Duration::from_secs(20), || is_up().then_some(())).is_some(), "the link is down");
    }

    /// A server in the namespace; `None`, aloud, where the program is missing.
    ///
    /// # Panics
    /// In CI without the program, or when it does not start.
    #[must_use]
    pub fn server(&self) -> Option<RedisServer> {
        let Self { tag, subnet } = self;
        let namespace = RedisNamespace { name: tag.clone(), address: format!("10.211.{subnet}.2") };
        RedisServer::start_in(Some(namespace), &[])
    }

    /// Sets the link down, or up again.
    ///
    /// # Panics
    /// When `ip` fails.
    pub fn cut(&self, down: bool) {
        let state = if down { "down" } else { "up" };
        assert!(ip(&format!("link set {}a {state}", self.tag)));
    }

    /// Requests reach the store, and answers do not come back.
    ///
    /// # Panics
    /// When `ip` fails.
    pub fn lose_answers(&self, lose: bool) {
        let change = if lose { "add" } else { "del" };
        assert!(ip(&format!("-n {} route {change} blackhole 10.211.{}.1/32", self.tag, self.subnet)));
    }
}

impl Drop for RedisLink {
    fn drop(&mut self) {
        ip(&format!("link del {}a", self.tag));
        ip(&format!("netns del {}", self.tag));
    }
}

fn ip(arguments: &str) -> bool {
    Command::new("ip").args(arguments.split(' ')).output().is_ok_and(|output| output.status.success())
}
