//! Simulates what an application does in its callbacks: on the callback's thread, or handed over to
//! other threads.

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use super::lock;

/// Above this many the callback waits: threads that do not keep up do not help.
const WAITING_MAX: usize = 65_536;

/// Cloned into every callback.
#[derive(Clone, Debug)]
pub struct CallbackWork {
    duration: Duration,
    /// `None`: the callback does the work itself.
    threads: Option<SyncSender<()>>,
}

impl CallbackWork {
    /// Starts this many threads; they end when the last clone is dropped and no work is left.
    ///
    /// - Errors: a thread cannot be started.
    pub fn start(duration: Duration, threads: u32) -> std::io::Result<CallbackWork> {
        if duration.is_zero() || threads == 0 {
            return Ok(CallbackWork {
                duration,
                threads: None,
            });
        }
        let (sender, receiver) = sync_channel(WAITING_MAX);
        let receiver = Arc::new(Mutex::new(receiver));
        for _ in 0..threads {
            let receiver = Arc::clone(&receiver);
            thread::Builder::new()
                .name(String::from("ottla-work"))
                .spawn(move || while_there_is_any(&receiver, duration))?;
        }
        Ok(CallbackWork {
            duration,
            threads: Some(sender),
        })
    }

    pub fn run(&self) {
        match &self.threads {
            // All threads have panicked: no thread is left to do the work.
            Some(threads) => threads.send(()).unwrap_or_default(),
            None if self.duration.is_zero() => {}
            None => work(self.duration),
        }
    }
}

fn while_there_is_any(receiver: &Mutex<Receiver<()>>, duration: Duration) {
    loop {
        // The lock is held while waiting, which is fine because only one thread needs to wait.
        let next = lock(receiver).recv();
        if next.is_err() {
            return;
        }
        work(duration);
    }
}

/// Keeps the thread busy as an application's callback would. A sleep cannot be as short as some of
/// these.
fn work(duration: Duration) {
    const SLEEP_MIN: Duration = Duration::from_micros(200);
    if duration >= SLEEP_MIN {
        return thread::sleep(duration);
    }
    let end = Instant::now() + duration;
    while Instant::now() < end {
        std::hint::spin_loop();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handed_over_work_is_done_on_another_thread() {
        let work = CallbackWork::start(Duration::from_micros(1), 2).unwrap();
        let receiver_of = work.threads.clone();
        (0..1_000).for_each(|_| work.run());
        // The channel accepts everything, whichever thread does the work.
        assert!(receiver_of.is_some_and(|threads| threads.send(()).is_ok()));
    }

    #[test]
    fn without_threads_the_callback_does_the_work() {
        let work = CallbackWork::start(Duration::from_millis(2), 0).unwrap();
        assert!(work.threads.is_none());
        let begin = Instant::now();
        work.run();
        assert!(begin.elapsed() >= Duration::from_millis(2));
    }
}
