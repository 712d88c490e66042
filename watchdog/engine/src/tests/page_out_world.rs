//! Page-out in a test's host, and the rules that every order must keep.

use std::time::Duration;

use super::world::{SHELL, World};
use crate::input::Input;
use watchdog_types::{Bytes, Memory, PageOut, PageOutOutcome, PageOutStop, PagedOut, PagedOutProcess, Pid};

impl World {
    /// Carries out an order.
    pub(super) fn page_out(&mut self, order: &PageOut) -> Input {
        self.check_page_out(order);
        let mut processes = Vec::new();
        let mut all = Bytes(0);
        for ordered in &order.processes {
            let before = self.engine.table.get(ordered.id).map(|process| process.memory).unwrap_or_default();
            let outcome = match self.page_out_outcomes.get(&ordered.id) {
                Some(outcome) => outcome.clone(),
                None if ordered.budget < before.anon => PageOutOutcome::Stopped(PageOutStop::Budget),
                None => PageOutOutcome::Done,
            };
            if matches!(outcome, PageOutOutcome::Excluded(_)) && !self.slow_swap {
                self.never_paged_out.insert(ordered.id);
            }
            let swaps = self.last_host.swap_total > Bytes(0);
            let moves = swaps && matches!(outcome, PageOutOutcome::Done | PageOutOutcome::Stopped(_));
            let out = if moves && !self.not_swapped.contains(&ordered.id) {
                before.anon.min(ordered.budget)
            } else {
                Bytes(0)
            };
            let after = Memory { anon: Bytes(before.anon.0 - out.0), swap: before.swap + out, ..before };
            all += out;
            self.last_host.available += out;
            self.last_host.swap_free.0 -= out.0;
            processes.push(PagedOutProcess { id: ordered.id, before, after, outcome });
        }
        self.page_outs.push((self.now, order.clone(), all));
        let (number, session) = (order.number, order.session);
        // Instantly: the engine must wait for the budget itself.
        let (took, cpu) = (Duration::ZERO, Duration::ZERO);
        let answer = PagedOut { number, session, processes, took, cpu };
        Input::PagedOut { answer, compressed: None }
    }

    /// The rules, stated again and independently.
    fn check_page_out(&self, order: &PageOut) {
        assert!(!order.processes.is_empty());
        let config = &self.engine.config.reclaim;
        let session = self.engine.sessions.get(order.session).expect("a session that the engine knows");
        for ordered in &order.processes {
            let process = self.engine.table.alive(ordered.id).unwrap_or_else(|| panic!("{} is not alive", ordered.id));
            assert!(ordered.id.pid > Pid(1) && ordered.id != SHELL, "{} is outside any session", ordered.id);
            assert_eq!((process.session, process.uid), (order.session, session.uid), "{}", ordered.id);
            assert!(!process.verdict.is_kept() || config.includes(&process.image), "{} is kept", ordered.id);
            assert!(!self.never_paged_out.contains(&ordered.id), "{} is excluded", ordered.id);
            assert!(!self.engine.actions.is_protected(ordered.id), "{} is the daemon", ordered.id);
        }
        let host = &self.last_host;
        let reserve = config.reserve.on_host(host.swap_total).0;
        assert_eq!(order.reserve.0, reserve);
        let asked: Bytes = order.processes.iter().map(|process| process.budget).sum();
        if host.swap_total.0 > 0 {
            assert!(asked.0 <= host.swap_free.0.saturating_sub(reserve), "{order:?} beyond the reserve of {host:?}");
        }
        let rate = config.budget.on_host(host.total);
        assert_eq!(order.rate, rate);
        assert!(asked.0 <= rate.0 * 4, "{order:?} is longer than 4 s");
        if let Some((at, _, out)) = self.page_outs.last() {
            let paced = Duration::from_secs_f64(out.0 as f64 / rate.0 as f64);
            let waited = self.now.since(*at) + Duration::from_millis(1);
            assert!(waited >= paced, "{} MiB, and the next after {waited:?}", out.mib());
        }
    }
}
