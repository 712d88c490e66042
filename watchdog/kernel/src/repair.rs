//! Repairs the map of tracked processes after the kernel has skipped a program, or the daemon was interrupted.

use std::collections::HashSet;

use watchdog_common::{SampleFlags, Tracked};

use super::entries::TrackedEntry;
use super::error::KernelError;
use super::tracer::Tracer;
use super::user_shares::Charges;
use watchdog_types::ProcessId;

impl Tracer {
    /// As [`entries`](Self::entries), after a repair: entries of processes whose exit was missed are removed, and
    /// the counts corrected. Cost: one read of the sampler more.
    ///
    /// # Errors
    /// When a map cannot be read or written, or the sampler cannot be read.
    pub fn repaired_entries(&mut self) -> Result<Vec<TrackedEntry>, KernelError> {
        let (contents, drift) = self.contents_and_drift()?;
        if !drift.is_none() {
            let (_, again) = self.contents_and_drift()?;
            self.users.correct(&drift, &again)?;
        }

        let living: HashSet<ProcessId> = match self.sample() {
            Ok(samples) => {
                let living = samples.iter().filter(|sample| sample.flags & SampleFlags::ZOMBIE == 0);
                living.map(|sample| ProcessId::from_kernel(sample.tgid, sample.start)).collect()
            }
            Err(KernelError::Off(_)) => HashSet::new(),
            Err(error) => return Err(error),
        };
        let mut entries = Vec::with_capacity(contents.len());
        for content in &contents {
            let entry = TrackedEntry::from(content);
            if living.contains(&entry.process) {
                entries.push(entry);
                continue;
            }
            self.check_alive(entry.process)?;
            if self.entry(entry.process)?.is_some() {
                entries.push(entry);
            }
        }
        Ok(entries)
    }

    fn contents_and_drift(&mut self) -> Result<(Vec<(u32, Tracked)>, Charges), KernelError> {
        let before = self.users.charges()?;
        let contents = self.contents()?;
        let after = self.users.charges()?;
        let found: Vec<u32> = contents.iter().map(|(_, tracked)| tracked.uid).collect();
        let drift = self.users.drift(&before, &found, &after)?;
        Ok((contents, drift))
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::CommandExt;
    use std::process::Command;

    use watchdog_common::GatedSession;

    use super::*;
    use crate::maps::bytes_of;
    use crate::{LoadOptions, TrackOutcome};
    use watchdog_config::Candidates;
    use watchdog_host::testing::TestProcess;
    use watchdog_types::Lineage;

    const UID: u32 = 65_534;

    /// A user's process, tracked, with a limited session.
    fn limited() -> (Tracer, TestProcess) {
        let (mut tracer, _streams) = Tracer::load(&LoadOptions::new(64, &Candidates::default())).unwrap();
        let subject = TestProcess::spawn(Command::new("sleep").arg("1000").uid(UID));
        let root = subject.process;
        let lineage = Lineage { root, parent: None, depth: 0, provisional: false, forked: false, witness: false };
        assert_eq!(tracer.track(root, &lineage).unwrap(), TrackOutcome::Alive);
        tracer.limit_session(root, Some(8)).unwrap();
        (tracer, subject)
    }

    #[test]
    fn unseen_exit_leaves_nothing() {
        let (mut tracer, subject) = limited();
        let root = subject.process;
        let number = tracer.counted_under(root).unwrap();
        // As if the program had been skipped at a member's exit. The kernel program on frees never removes this entry: no process
        // has this pid (include/linux/threads.h, `PID_MAX_LIMIT`).
        let ghost = 4 << 20;
        let entry = tracer.entry(root).unwrap().unwrap();
        tracer.maps.tracked.insert(ghost, bytes_of(&entry), 0).unwrap();
        tracer.users.charge(UID, 1).unwrap();
        let mut session: GatedSession = zerocopy::transmute!(tracer.sessions.gated.get(&number, 0).unwrap());
        session.live += 1;
        let bytes: [u8; _] = zerocopy::transmute!(session);
        tracer.sessions.gated.insert(number, bytes, 0).unwrap();
        assert_eq!(tracer.session_count(root).unwrap().unwrap().live, 2);

        let left = tracer.repaired_entries().unwrap();

        assert_eq!(left.iter().map(|entry| entry.process).collect::<Vec<_>>(), [root]);
        assert_eq!(tracer.session_count(root).unwrap().unwrap().live, 1);
        assert_eq!(tracer.users.charges().unwrap().of(UID), (1, 1));
    }

    #[test]
    fn count_drift_is_corrected() {
        let (mut tracer, subject) = limited();
        tracer.users.charge(UID, 40).unwrap();
        tracer.users.charge(UID - 1, -3).unwrap();
        assert_eq!(tracer.users.charges().unwrap().of(UID), (38, 41));

        tracer.repaired_entries().unwrap();

        assert_eq!(tracer.users.charges().unwrap().of(UID), (1, 1));
        assert_eq!(tracer.users.charges().unwrap().of(UID - 1), (1, 0));
        drop(subject);
    }
}
