//! Threads for work on all logs at once, at start and stop.

use std::sync::atomic::{AtomicUsize, Ordering};

use ottla_log::crew::Crew;

/// Threads that live only as long as the work.
#[derive(Debug)]
pub struct ThreadCrew {
    threads: usize,
}

impl ThreadCrew {
    pub fn new(threads: usize) -> ThreadCrew {
        ThreadCrew {
            threads: threads.max(1),
        }
    }
}

impl Crew for ThreadCrew {
    fn for_each(&self, count: usize, work: &(dyn Fn(usize) + Sync)) {
        let next = AtomicUsize::new(0);
        let run = || {
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= count {
                    return;
                }
                work(number);
            }
        };
        std::thread::scope(|scope| {
            for _ in 1..self.threads.min(count) {
                let thread = std::thread::Builder::new().name("ottla-crew".into());
                // With fewer threads it merely takes longer.
                let _ = thread.spawn_scoped(scope, run);
            }
            run();
        });
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::sync::Mutex;

    use super::*;

    #[test]
    fn every_number_comes_once_however_many_threads_there_are() {
        for threads in [0, 1, 3, 100] {
            for count in [0, 1, 2, 50] {
                let seen = Mutex::new(BTreeSet::new());
                ThreadCrew::new(threads).for_each(count, &|number| {
                    assert!(seen.lock().unwrap().insert(number), "{number} came twice");
                });
                assert_eq!(seen.into_inner().unwrap(), (0..count).collect());
            }
        }
    }
}
