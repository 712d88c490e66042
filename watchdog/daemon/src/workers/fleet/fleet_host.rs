//! The identity of this host in the fleet, and the password of the store.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use anyhow::{Context, bail};

use crate::set_aside::StateNotes;
use watchdog_config::FleetConfig;
use watchdog_files::trusted_file;
use watchdog_fleet::StoreSecret;
use watchdog_types::{FleetName, FleetShares, HostIncarnation};

/// In the state directory: the generation of this daemon, and its shares while the store is lost.
const FILE: &str = "fleet";
/// The file holds two lines, the second with some hundred pools at most.
const MAX_BYTES: u64 = 64 * 1024;
const MAX_PASSWORD: u64 = 4096;
/// The name of a credential of the service, see systemd.exec(5).
const CREDENTIAL: &str = "fleet-password";
/// Characters of the machine id in the default name of a host.
const SHOWN_ID: usize = 8;

#[derive(Clone, Debug)]
pub(super) struct FleetHostId {
    pub(super) name: FleetName,
    pub(super) incarnation: HostIncarnation,
    /// Of an earlier run that ended while the store was lost.
    pub(super) shares: FleetShares,
    state_dir: PathBuf,
}

impl FleetHostId {
    /// Increments the generation.
    pub(super) fn read(
        fleet: &FleetConfig,
        state_dir: &Path,
        boot_id: &str,
        notes: &StateNotes,
    ) -> anyhow::Result<Self> {
        let machine = machine_id()?;
        let (name, machine_id) = match &fleet.host {
            // Several daemons may run on one machine, each under a name of its own.
            Some(host) => (host.clone(), format!("{machine}:{:016x}", fnv1a(host))),
            None => (format!("{}-{}", host_name(), &machine[..SHOWN_ID.min(machine.len())]), machine),
        };
        let (last, shares) = read(state_dir, notes).unwrap_or_default();
        // Above the generations of a state directory that was lost.
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs();
        let generation = last.saturating_add(1).max(now);
        let id = Self {
            name: FleetName::new(name).context("the name of this host; set [fleet] host")?,
            incarnation: HostIncarnation {
                boot_id: FleetName::new(boot_id).context("the boot id of this host")?,
                machine_id: FleetName::new(machine_id).context("the machine id of this host")?,
                generation,
            },
            shares,
            state_dir: state_dir.to_owned(),
        };
        id.store(&id.shares);
        Ok(id)
    }

    /// Remembers the shares, for a start without the store.
    pub(super) fn store(&self, shares: &FleetShares) {
        let shares = serde_json::to_string(shares).unwrap_or_default();
        let line = format!("{}\n{shares}\n", self.incarnation.generation);
        let path = self.state_dir.join(FILE);
        if let Err(error) = trusted_file::replace(&path, line.as_bytes(), false) {
            tracing::warn!("cannot write {}: {error}", path.display());
        }
    }
}

/// `None` where there is no file, or it is unusable.
fn read(state_dir: &Path, notes: &StateNotes) -> Option<(u64, FleetShares)> {
    let consequence = "this host's share of the fleet's limits is unknown until the store answers";
    let decoded = |content: &[u8]| decode(content).ok_or_else(|| "it is damaged".to_owned());
    notes.read(&state_dir.join(FILE), MAX_BYTES, consequence, decoded)
}

fn decode(content: &[u8]) -> Option<(u64, FleetShares)> {
    let (generation, shares) = std::str::from_utf8(content).ok()?.split_once('\n')?;
    Some((generation.parse().ok()?, serde_json::from_str(shares).ok()?))
}

fn machine_id() -> anyhow::Result<String> {
    let read = |path| std::fs::read_to_string(path).ok().map(|id| id.trim().to_owned()).filter(|id| !id.is_empty());
    read("/etc/machine-id")
        .or_else(|| read("/var/lib/dbus/machine-id"))
        .context("this host has no /etc/machine-id, which the fleet needs; systemd-machine-id-setup creates it")
}

fn host_name() -> String {
    let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    name.chars().map(|c| if plain(c) { c } else { '_' }).take(FleetName::MAX_BYTES - SHOWN_ID - 1).collect()
}

/// Stable across versions of the daemon, unlike the hash of the standard library.
fn fnv1a(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3))
}

/// Reads the password from the file, or else from the service's credentials; `None` without either.
pub(super) fn password(file: Option<&Path>) -> anyhow::Result<Option<StoreSecret>> {
    let credential = || {
        let path = PathBuf::from(std::env::var_os("CREDENTIALS_DIRECTORY")?).join(CREDENTIAL);
        path.exists().then_some(path)
    };
    let Some(path) = file.map(Path::to_owned).or_else(credential) else { return Ok(None) };
    let shown = path.display();
    trusted_file::check_config(&path).with_context(|| format!("the password of the fleet's store in {shown}"))?;
    let mode = std::fs::metadata(&path).with_context(|| format!("cannot read the password file {shown}"))?.mode();
    if mode & 0o077 != 0 {
        bail!("other users may read the password of the fleet's store in {shown}: chmod 600 {shown}");
    }
    let content = std::fs::read(&path).with_context(|| format!("cannot read the password file {shown}"))?;
    if content.len() as u64 > MAX_PASSWORD {
        bail!("the password file {shown} is longer than {MAX_PASSWORD} bytes");
    }
    let text = String::from_utf8(content).ok().and_then(|text| text.lines().next().map(str::to_owned));
    match text.filter(|line| !line.is_empty()) {
        Some(password) => Ok(Some(StoreSecret::new(&password))),
        None => bail!("the password file {shown} has no password in its first line"),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use watchdog_types::PoolName;

    fn named(host: &str) -> FleetConfig {
        FleetConfig { host: Some(host.to_owned()), ..FleetConfig::default() }
    }

    fn read_id(host: &str, state_dir: &Path) -> FleetHostId {
        FleetHostId::read(&named(host), state_dir, "boot", &StateNotes::default()).unwrap()
    }

    #[test]
    fn generation_rises_with_each_start() {
        let dir = tempfile::tempdir().unwrap();
        let first = read_id("a", dir.path());
        let shares = FleetShares { hosts: 7, pools: [(PoolName::All, 3)].into() };
        first.store(&shares);
        let second = read_id("a", dir.path());
        assert!(second.incarnation.generation > first.incarnation.generation);
        assert_eq!((first.shares, second.shares), (FleetShares::default(), shares));
        assert_eq!(first.incarnation.machine_id, second.incarnation.machine_id);
    }

    #[test]
    fn unusable_file_is_set_aside() {
        let (dir, notes) = (tempfile::tempdir().unwrap(), StateNotes::default());
        let path = dir.path().join(FILE);
        let read = || FleetHostId::read(&named("a"), dir.path(), "boot", &notes).unwrap();
        std::os::unix::fs::symlink("/etc/passwd", &path).unwrap();
        assert_eq!((read().shares, notes.all().len()), (FleetShares::default(), 1));
        std::fs::write(&path, "18446744073709551615\n{\"hosts\"").unwrap();
        assert_eq!((read().shares, notes.all().len()), (FleetShares::default(), 2));
        read();
        assert_eq!(notes.all().len(), 2, "it was written anew");
    }

    #[test]
    fn named_hosts_are_separate_machines() {
        let dir = tempfile::tempdir().unwrap();
        let ids = ["a", "b"].map(|host| read_id(host, dir.path()));
        assert_ne!(ids[0].incarnation.machine_id, ids[1].incarnation.machine_id);
        let (unnamed, notes) = (FleetConfig::default(), StateNotes::default());
        let unnamed = FleetHostId::read(&unnamed, dir.path(), "boot", &notes).unwrap();
        assert!(unnamed.name.as_str().ends_with(&unnamed.incarnation.machine_id.as_str()[..SHOWN_ID]));
    }

    #[test]
    fn password_file_is_private() {
        let dir = tempfile::tempdir_in("/root").unwrap();
        let file = dir.path().join("password");
        std::fs::write(&file, "secret\nignored\n").unwrap();
        std::fs::set_permissions(&file, PermissionsExt::from_mode(0o644)).unwrap();
        let error = password(Some(&file)).unwrap_err().to_string();
        assert!(error.contains("chmod 600") && !error.contains("secret"), "{error}");
        std::fs::set_permissions(&file, PermissionsExt::from_mode(0o600)).unwrap();
        assert_eq!(password(Some(&file)).unwrap(), Some(StoreSecret::new("secret")));
        std::fs::write(&file, "\n").unwrap();
        assert!(password(Some(&file)).unwrap_err().to_string().contains("no password"));
    }
}
