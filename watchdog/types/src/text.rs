//! Text as the kernel writes it.

/// Text up to its NUL; what is not UTF-8 is replaced.
#[must_use]
pub fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}
