//! Files of the page, in the program.

use crate::response::WebResponse;

const HTML: &str = "text/html; charset=utf-8";
const STYLE: &str = "text/css; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";

/// Name, type and content. The empty name is the page.
const ASSETS: [(&str, &str, &[u8]); 6] = [
    ("", HTML, include_bytes!("../assets/index.html")),
    ("page.css", STYLE, include_bytes!("../assets/page.css")),
    ("page.js", SCRIPT, include_bytes!("../assets/page.js")),
    ("icon.svg", "image/svg+xml", include_bytes!("../assets/icon.svg")),
    ("uPlot.css", STYLE, include_bytes!("../assets/vendor/uPlot.min.css")),
    ("uPlot.js", SCRIPT, include_bytes!("../assets/vendor/uPlot.iife.min.js")),
];

pub(crate) fn find(name: &str) -> Option<WebResponse> {
    let (_, content_type, content) = ASSETS.iter().find(|(known, ..)| *known == name)?;
    Some(WebResponse::new(200, content_type, *content))
}

/// A page that says why there is none. `reason` is a text of this program.
pub(crate) fn denial(status: u16, reason: &str) -> WebResponse {
    let page = format!(
        "<!doctype html>\n<html lang=\"en\"><meta charset=\"utf-8\"><title>agent-watchdog</title>\n\
         <h1>No access</h1>\n<p>{reason}</p>\n"
    );
    WebResponse::new(status, HTML, page)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use sha2::{Digest, Sha256};

    use super::*;

    const MAX_ASSETS: usize = 150_000;
    /// Of our own script, so that it stays readable in one sitting.
    const MAX_SCRIPT: usize = 16_000;

    #[test]
    fn vendored_files_match_their_checksums() {
        let vendor = Path::new(env!("CARGO_MANIFEST_DIR")).join("assets/vendor");
        let sums = std::fs::read_to_string(vendor.join("SHA256SUMS")).unwrap();
        assert_eq!(sums.lines().count(), 3);
        for line in sums.lines() {
            let (sum, name) = line.split_once("  ").unwrap();
            let digest = Sha256::digest(std::fs::read(vendor.join(name)).unwrap());
            assert_eq!(format!("{digest:x}"), sum, "{name}");
        }
    }

    #[test]
    fn assets_are_small() {
        let total: usize = ASSETS.iter().map(|(.., content)| content.len()).sum();
        assert!(total < MAX_ASSETS, "{total} bytes");
        let script = find("page.js").unwrap();
        assert_eq!(script.status, 200);
        let script = ASSETS.iter().find(|(name, ..)| *name == "page.js").unwrap().2;
        assert!(script.len() < MAX_SCRIPT, "{} bytes", script.len());
    }

    #[test]
    fn script_writes_text_only() {
        let script = include_str!("../assets/page.js");
        for dangerous in ["innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "new Function"] {
            assert!(!script.contains(dangerous), "{dangerous}");
        }
    }
}
