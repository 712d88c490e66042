//! Commands of the workspace.
fn main() {}
