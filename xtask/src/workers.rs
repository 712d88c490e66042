//! Does a list of jobs on several threads.

use std::panic::resume_unwind;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Calls `work` for each item, for up to `limit` items at a time, in order. Returns the results in the same order.
pub(crate) fn in_parallel<T: Sync, R: Send>(items: &[T], limit: usize, work: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let next = AtomicUsize::new(0);
    let worker = || {
        let mut done = Vec::new();
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            let Some(item) = items.get(at) else { return done };
            done.push((at, work(item)));
        }
    };
    let mut results: Vec<_> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..limit.min(items.len())).map(|_| scope.spawn(worker)).collect();
        workers.into_iter().flat_map(|worker| worker.join().unwrap_or_else(|panic| resume_unwind(panic))).collect()
    });
    results.sort_by_key(|(at, _)| *at);
    results.into_iter().map(|(_, result)| result).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;

    use super::*;

    #[test]
    fn results_keep_the_order_of_items() {
        let pair = Barrier::new(2);
        let results = in_parallel(&[1, 2, 3, 4], 2, |item| {
            // Ends only if two items are worked on at a time.
            pair.wait();
            item * 10
        });
        assert_eq!(results, [10, 20, 30, 40]);
    }

    #[test]
    fn no_items_need_no_worker() {
        assert!(in_parallel(&[0; 0], 4, |item| *item).is_empty());
    }
}
