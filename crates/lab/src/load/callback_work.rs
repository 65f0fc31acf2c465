//! What an application does in its callbacks: on the callback's thread, or handed to threads of its own.

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use super::lock;

/// Beyond so much the callback waits: threads that do not keep up are no better than none.
const WAITING_MAX: usize = 65_536;

/// Cloned into every callback.
#[derive(Clone, Debug)]
pub struct CallbackWork {
    duration: Duration,
    /// `None`: the callback does the work itself.
    threads: Option<SyncSender<()>>,
}

impl CallbackWork {
    /// Starts so many threads; they end when the last clone is dropped and nothing is left to do.
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
            // All threads have panicked: then nothing is left that could work.
            Some(threads) => threads.send(()).unwrap_or_default(),
            None if self.duration.is_zero() => {}
            None => work(self.duration),
        }
    }
}

fn while_there_is_any(receiver: &Mutex<Receiver<()>>, duration: Duration) {
    loop {
        // The lock is held while waiting, and only one needs to wait.
        let next = lock(receiver).recv();
        if next.is_err() {
            return;
        }
        work(duration);
    }
}

/// As an application's callback would keep its thread. A sleep cannot be so short as some.
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
    fn what_is_handed_over_is_done_elsewhere() {
        let work = CallbackWork::start(Duration::from_micros(1), 2).unwrap();
        let receiver_of = work.threads.clone();
        (0..1_000).for_each(|_| work.run());
        // The channel takes everything, whoever works.
        assert!(receiver_of.is_some_and(|threads| threads.send(()).is_ok()));
    }

    #[test]
    fn without_threads_the_callback_works_itself() {
        let work = CallbackWork::start(Duration::from_millis(2), 0).unwrap();
        assert!(work.threads.is_none());
        let begin = Instant::now();
        work.run();
        assert!(begin.elapsed() >= Duration::from_millis(2));
    }
}
