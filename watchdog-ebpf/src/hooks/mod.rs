//! One file for each hook. The doc comment of a program states the kernel's prototype and the program's cost.

mod bprm_creds_for_exec;
mod exec;
mod exit;
mod fork;
mod free;
mod mark_victim;
mod own_level;
mod reclaim;
mod recount;
mod rss_stat;
mod sample;
mod signal;
mod task_alloc;
mod task_iterator;
