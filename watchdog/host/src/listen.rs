//! Listening sockets of a process: the inodes of its sockets, looked up in the tables of its network namespace.
//!
//! The `procfs` crate parses whole tables. A busy host has tens of thousands of connections, but the kernel lists listening
//! sockets first (tcp_seq_start, net/ipv4/tcp_ipv4.c), so reading stops at the first other line. With few sockets the kernel
//! still walks its whole hash table of connections to fill a page: some milliseconds per tcp table on a machine with 24 GiB.
//! So the tcp tables are read only for sockets that are not in net/unix.

use std::collections::HashSet;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use super::error::HostError;
use super::process::ProcessDir;

/// LISTEN in net/tcp.
const TCP_LISTEN: &[u8] = b"0A";
/// `__SO_ACCEPTCON` in the flags of net/unix.
const UNIX_LISTENS: u32 = 0x0001_0000;
/// Bytes of net/unix that are read (some 40,000 sockets): listening sockets may be anywhere in it.
const UNIX_TABLE_MAX: u64 = 4 << 20;

/// "tcp 127.0.0.1:3000" and then "unix /run/x.sock", for each listening socket among these.
pub(crate) fn listens(dir: &ProcessDir, sockets: &HashSet<u64>) -> Result<Vec<String>, HostError> {
    if sockets.is_empty() {
        return Ok(Vec::new());
    }
    let (mut tcp_found, mut unix_found) = (Vec::new(), Vec::new());
    let mut others = sockets.clone();
    each_line(dir, "net/unix", UNIX_TABLE_MAX, |line| {
        if let Some(UnixSocket { path, inode, listens }) = unix(line)
            && others.remove(&inode)
            && listens
        {
            unix_found.push(format!("unix {path}"));
        }
        true
    })?;
    if !others.is_empty() {
        for table in ["net/tcp", "net/tcp6"] {
            each_line(dir, table, u64::MAX, |line| match tcp(line) {
                Some((address, inode)) => {
                    if others.contains(&inode) {
                        tcp_found.push(format!("tcp {address}"));
                    }
                    true
                }
                None => false,
            })?;
        }
    }
    tcp_found.append(&mut unix_found);
    Ok(tcp_found)
}

/// Calls `wants` for each line after the heading, until it returns false. A missing table, such as tcp6 without IPv6, has no
/// lines.
fn each_line(dir: &ProcessDir, table: &str, limit: u64, mut wants: impl FnMut(&[u8]) -> bool) -> Result<(), HostError> {
    let Some(file) = dir.file(table)? else { return Ok(()) };
    let mut lines = BufReader::with_capacity(16 * 1024, File::from(file)).take(limit);
    let mut line = Vec::new();
    let mut heading = true;
    loop {
        line.clear();
        match lines.read_until(b'\n', &mut line) {
            Ok(0) => return Ok(()),
            Ok(_) if heading => heading = false,
            Ok(_) if !wants(line.trim_ascii_end()) => return Ok(()),
            Ok(_) => {}
            Err(error) if error.raw_os_error() == Some(libc::ESRCH) => return Ok(()),
            Err(error) => return Err(HostError::io("read", dir.path(table), error)),
        }
    }
}

/// Address and inode of a listening socket in net/tcp or net/tcp6.
fn tcp(line: &[u8]) -> Option<(SocketAddr, u64)> {
    let mut words = line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
    let local = std::str::from_utf8(words.nth(1)?).ok()?;
    if words.nth(1)? != TCP_LISTEN {
        return None;
    }
    let inode = super::stat::number(words.nth(5)?)?;
    let (address, port) = local.split_once(':')?;
    let port = u16::from_str_radix(port, 16).ok()?;
    // Each group of eight digits is a big-endian word, printed in the byte order of this machine.
    let word =
        |index: usize| u32::from_str_radix(address.get(8 * index..8 * (index + 1))?, 16).ok().map(u32::to_ne_bytes);
    let address = match address.len() {
        8 => IpAddr::V4(Ipv4Addr::from(word(0)?)),
        32 => {
            let mut octets = [0; 16];
            for (index, chunk) in octets.chunks_exact_mut(4).enumerate() {
                chunk.copy_from_slice(&word(index)?);
            }
            IpAddr::V6(Ipv6Addr::from(octets))
        }
        _ => return None,
    };
    Some((SocketAddr::new(address, port), inode))
}

/// A line of net/unix.
#[derive(Debug, PartialEq, Eq)]
struct UnixSocket {
    /// An abstract name begins with `@`.
    path: String,
    inode: u64,
    listens: bool,
}

fn unix(line: &[u8]) -> Option<UnixSocket> {
    let mut words = line.splitn(2, |byte| *byte == b':').nth(1)?.trim_ascii_start().splitn(7, |byte| *byte == b' ');
    let flags = u32::from_str_radix(std::str::from_utf8(words.nth(2)?).ok()?, 16).ok()?;
    // The kernel pads the inode to five columns; the rest is the path, which may contain spaces.
    let (_type, _state, rest) = (words.next()?, words.next()?, words.next()?);
    let (inode, path) = match words.next() {
        Some(more) if rest.is_empty() => {
            let more = more.trim_ascii_start();
            more.split_at(more.iter().position(|byte| *byte == b' ').unwrap_or(more.len()))
        }
        Some(path) => (rest, path),
        None => (rest, &[][..]),
    };
    Some(UnixSocket {
        path: String::from_utf8_lossy(path.trim_ascii_start()).into_owned(),
        inode: super::stat::number(inode)?,
        listens: flags & UNIX_LISTENS != 0,
    })
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::v4(
        "   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 81234 1 0000000000000000 100 0 0 10 0",
        Some(("127.0.0.1:8080", 81234))
    )]
    #[case::v6(
        "   1: 00000000000000000000000001000000:0BB8 00000000000000000000000000000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 7 1 0 100 0 0 10 0",
        Some(("[::1]:3000", 7))
    )]
    #[case::connected(
        "   2: 0100007F:1F90 0100007F:D2F0 01 00000000:00000000 00:00000000 00000000  1000        0 81235 1 0 20 4 30 10 -1",
        None
    )]
    #[cfg(target_endian = "little")]
    fn tcp_listeners_differ_from_connections(#[case] line: &str, #[case] expected: Option<(&str, u64)>) {
        let expected = expected.map(|(address, inode)| (address.parse().unwrap(), inode));
        assert_eq!(tcp(line.as_bytes()), expected);
    }

    #[rstest]
    #[case::path("ffff8881: 00000002 00000000 00010000 0001 01 23456 /run/a b.sock", "/run/a b.sock", 23456, true)]
    #[case::padded("ffff8881: 00000002 00000000 00010000 0001 01   456 /run/x.sock", "/run/x.sock", 456, true)]
    #[case::padded_once("ffff8881: 00000002 00000000 00010000 0001 01  4567 @abstract", "@abstract", 4567, true)]
    #[case::nameless("ffff8881: 00000002 00000000 00010000 0005 01 23456", "", 23456, true)]
    #[case::nameless_padded("ffff8881: 00000002 00000000 00010000 0005 01    56", "", 56, true)]
    #[case::connected("ffff8881: 00000003 00000000 00000000 0001 03 23456 /run/x.sock", "/run/x.sock", 23456, false)]
    fn unix_sockets_keep_their_whole_path(
        #[case] line: &str,
        #[case] path: &str,
        #[case] inode: u64,
        #[case] listens: bool,
    ) {
        assert_eq!(unix(line.as_bytes()), Some(UnixSocket { path: path.to_owned(), inode, listens }));
    }
}
