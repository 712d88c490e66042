//! The machine of a measurement.

use std::fs;
use std::num::NonZero;

/// Processor, memory, kernel and load.
pub fn description() -> String {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let cpuinfo = read("/proc/cpuinfo");
    let model =
        cpuinfo.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": ")).map(|(_, name)| name);
    let cpus = processors();
    let meminfo = read("/proc/meminfo");
    let memory_kib =
        meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:")?.split_whitespace().next()?.parse().ok());
    let (model, memory_mib) = (model.unwrap_or("unknown CPU"), memory_kib.unwrap_or(0_u64) / 1024);
    format!(
        "machine: {cpus} × {model}, {memory_mib} MiB\nkernel:  {}\nload:    {} (before it began)",
        read("/proc/version").trim(),
        read("/proc/loadavg").trim()
    )
}

/// How many processors this process may use.
pub fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, NonZero::get)
}
