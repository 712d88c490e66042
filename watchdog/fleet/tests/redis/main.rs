//! The store against a real Redis server, from Debian's package. Skipped aloud where it is missing, except in CI.
//!
//! A [`guest::FleetGuest`] is a host of the fleet, as its daemon would act.
#![expect(clippy::unwrap_used, clippy::expect_used, reason = "clippy exempts test functions, and not what they share")]

mod access;
mod clocks;
mod damage;
mod data_loss;
mod grants;
mod guest;
mod hostile_store;
mod incarnations;
mod interleavings;
mod links;
mod proxy;
mod service_order;
mod shares;
mod tickets;
#[cfg(feature = "tls")]
mod tls;
mod wake_ups;
