//! The fleet's store: hosts that share limits.
//!
//! [`FleetStore`] is the interface of a store; [`RedisStore`] implements it with Redis ≥ 6.2 or Valkey; [`FleetWorkers`] are
//! the threads of one host. The rules are in `script/`, which the server runs as one atomic step: drop expired rows, sum,
//! compare, write, respond.
//!
//! The store is only a copy. Each daemon knows its living sessions from the kernel and restates them; the store only adds
//! grants that their hosts have not counted yet. So a loss of data in the store costs a pause of one TTL:
//!
//! | event | detected by | effect |
//! | --- | --- | --- |
//! | restart, failover | another run id | pause of one TTL |
//! | stale replica promoted | a fence below one that a host has seen | pause of one TTL |
//! | `FLUSHALL`, eviction | a missing key | pause of one TTL |
//! | server stopped, its clock set | a gap between two calls | all rows expire one TTL later; pause until each is restated |
//! | host dead | its row expires | its slots are free |
//! | host rebooted | another boot id | its slots are free at once |
//! | response late, host suspended | CLOCK_BOOTTIME | the grant is void |

mod address;
mod connection;
mod redis_store;
mod reply;
mod response;
mod store;
mod store_connection;
mod transport;
mod view;
mod workers;

pub use address::{StoreOptions, StoreSecret};
pub use redis_store::RedisStore;
pub use store::{
    FleetStore, FleetStoreError, HostCounts, Placement, PlacementAnswer, Restated, StoreCall, StoreHealth,
};
pub use workers::{FleetEvent, FleetWorkers};
