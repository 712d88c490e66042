//! State files: written atomically, checked for owner and type before they are trusted, and locked by one process.

pub mod edited_file;
pub mod lock_file;
pub mod trusted_file;
