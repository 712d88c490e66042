//! `GET /v1/config`.

use serde::{Deserialize, Serialize};

/// The configuration that the daemon uses. Keys that `text` leaves out have their defaults.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct ConfigInForce {
    /// The file that was read; null if there is none.
    pub file: Option<String>,
    /// When it was read, RFC 3339.
    pub loaded_at: String,
    /// Its content, as TOML. The file may have changed since.
    pub text: String,
}
