//! What a page-out did, or would do.

use crate::escape::escape;
use watchdog_api::{ReclaimRun, ReclaimRunState};
use watchdog_types::units::size;

/// The sentence of a page-out, the resident memory before and after, and each process that it leaves alone.
pub fn page_out_receipt(run: &ReclaimRun) -> String {
    let mut text = format!("{}\n", escape(&run.to_string()));
    if run.processes > 0 && run.state == ReclaimRunState::Done {
        let (before, after) = (size(run.resident_before_bytes), size(run.resident_after_bytes));
        text.push_str(&format!("  resident: {before} before, {after} now\n"));
    }
    for exempt in &run.exempt {
        text.push_str(&format!(
            "  left alone: {} (pid {}): {}\n",
            escape(&exempt.name),
            exempt.pid,
            escape(&exempt.because)
        ));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::reclaim_run;
    use watchdog_api::ReclaimExemption;

    #[test]
    fn receipt_has_sizes_and_sessions() {
        insta::assert_snapshot!(page_out_receipt(&reclaim_run()), @r"
        paged out 1.9 GiB of 12 idle sessions in 4s; 614 MiB in compressed swap
          resident: 2.1 GiB before, 254 MiB now
        ");
    }

    #[test]
    fn receipt_of_session_lists_exempt() {
        let exempt = ReclaimExemption { pid: 12, name: "ssh\u{1b}".into(), because: "it locks memory".into() };
        let note = Some("free swap is down to [reclaim] reserve".to_owned());
        let run = ReclaimRun { session: Some(3), note, compressed_bytes: None, exempt: vec![exempt], ..reclaim_run() };
        insta::assert_snapshot!(page_out_receipt(&run), @r"
        paged out 1.9 GiB of session 3 in 4s; free swap is down to [reclaim] reserve
          resident: 2.1 GiB before, 254 MiB now
          left alone: ssh\u{1b} (pid 12): it locks memory
        ");
    }

    #[test]
    fn plan_and_empty_run_are_sentences() {
        let planned =
            ReclaimRun { state: ReclaimRunState::Planned, compressed_bytes: None, sessions: 1, ..reclaim_run() };
        insta::assert_snapshot!(page_out_receipt(&planned), @"would page out up to 1.9 GiB of 1 idle session");
        let nothing = ReclaimRun { processes: 0, sessions: 0, compressed_bytes: None, ..reclaim_run() };
        insta::assert_snapshot!(page_out_receipt(&nothing), @"no idle session has memory to page out");
    }
}
