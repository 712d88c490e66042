//! Names of programs: the data of classification. One word a row, in alphabetical order unless the order has a meaning.

mod agents;
mod browsers;
mod daemons;
mod servers;
mod tools;

pub use agents::*;
pub use browsers::*;
pub use daemons::*;
pub use servers::*;
pub use tools::*;
