//! Two daemons on one machine share limits through a real store.

#![expect(clippy::unwrap_used, reason = "clippy exempts test functions, and not what they share")]

mod hosts;
mod reloads;
mod shared_limits;
mod store_failures;
