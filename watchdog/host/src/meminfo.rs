//! The memory of the host: /proc/meminfo and /proc/pressure/memory.

use procfs::{Current, Meminfo, MemoryPressure, ProcError, ProcResult};

use super::error::HostError;
use watchdog_types::{Bytes, HostMemory};

/// Memory and pressure of the host now. 60 µs.
///
/// # Errors
/// When /proc/meminfo cannot be read, or lacks a field that every kernel since 3.14 has. Missing PSI is not an error.
pub fn host_memory() -> Result<HostMemory, HostError> {
    let info = Meminfo::current().map_err(|error| failed("/proc/meminfo", error))?;
    let need = |value: Option<u64>, what| value.map(Bytes).ok_or_else(|| HostError::malformed("/proc/meminfo", what));
    let pressure = pressure()?;
    Ok(HostMemory {
        total: Bytes(info.mem_total),
        available: need(info.mem_available, "MemAvailable")?,
        swap_total: Bytes(info.swap_total),
        swap_free: Bytes(info.swap_free),
        anon: need(info.anon_pages, "AnonPages")?,
        shmem: need(info.shmem, "Shmem")?,
        pressure_some_avg10: pressure.as_ref().map(|pressure| f64::from(pressure.some.avg10)),
        pressure_full_avg10: pressure.as_ref().map(|pressure| f64::from(pressure.full.avg10)),
    })
}

/// `None` when the kernel was built without PSI, or booted with `psi=0` (then the file exists, and opening or reading it
/// fails with EOPNOTSUPP).
fn pressure() -> Result<Option<MemoryPressure>, HostError> {
    let read: ProcResult<MemoryPressure> = MemoryPressure::current();
    match read {
        Ok(pressure) => Ok(Some(pressure)),
        Err(ProcError::NotFound(_)) => Ok(None),
        Err(ProcError::Io(error, _)) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => Ok(None),
        Err(error) => Err(failed(MemoryPressure::PATH, error)),
    }
}

fn failed(path: &'static str, error: ProcError) -> HostError {
    HostError::io("read", path, std::io::Error::other(error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_memory_is_plausible() {
        let host = host_memory().unwrap();
        assert!(host.total > Bytes::from_mib(64), "{host:?}");
        assert!(
            host.available <= host.total && host.anon <= host.total && host.swap_free <= host.swap_total,
            "{host:?}"
        );
    }

    #[test]
    fn pressure_present_only_with_psi() {
        let readable = std::fs::read_to_string("/proc/pressure/memory").is_ok();
        let host = host_memory().unwrap();
        assert_eq!(host.pressure_some_avg10.is_some(), readable);
        assert!(host.pressure_full_avg10.is_none_or(|full| (0.0..=100.0).contains(&full)));
    }
}
