//! The thread that keeps score of the doctor's promises: clients are examined whether or not anyone
//! asks.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread::{Builder, JoinHandle};
use std::time::Instant;

use ottla_lab::doctor::history::Collector;
use ottla_lab::doctor::promises::{LOOK_EVERY, pause_after};

use super::now_ms;

/// Dropping it ends the thread.
pub struct Scorekeeper {
    stop: Option<mpsc::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Scorekeeper {
    pub fn start(collector: Arc<Collector>) -> io::Result<Scorekeeper> {
        let (stop, stopped) = mpsc::channel();
        let look = move || {
            let mut pause = LOOK_EVERY;
            while stopped.recv_timeout(pause) == Err(RecvTimeoutError::Timeout) {
                let started = Instant::now();
                collector.keep_score(now_ms());
                pause = pause_after(started.elapsed());
            }
        };
        let thread = Builder::new().name("ottla-promises".into()).spawn(look)?;
        Ok(Scorekeeper {
            stop: Some(stop),
            thread: Some(thread),
        })
    }
}

impl Drop for Scorekeeper {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
