//! The relay's clock, and the timer that wakes its thread.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::time::{
    ClockId, Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, clock_gettime,
    timerfd_create, timerfd_settime,
};

/// Wakes with microsecond precision: epoll's own timeout counts milliseconds, and the kernel adds
/// its slack of 50 microseconds to it, but not to a timer's descriptor.
#[derive(Debug)]
pub struct Timer {
    descriptor: OwnedFd,
    began: u64,
    armed: Option<u64>,
}

impl Timer {
    pub fn new() -> io::Result<Timer> {
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        Ok(Timer {
            descriptor: timerfd_create(TimerfdClockId::Monotonic, flags)?,
            began: monotonic_nanos(),
            armed: None,
        })
    }

    /// Nanoseconds since the timer was created.
    pub fn now(&self) -> u64 {
        monotonic_nanos() - self.began
    }

    /// Wakes at `moment`, a value of `now`, and not before; `None` for never. A moment in the past
    /// is allowed.
    pub fn arm(&mut self, moment: Option<u64>) -> io::Result<()> {
        if self.armed == moment {
            return Ok(());
        }
        let nanos = moment.map_or(0, |moment| moment + self.began);
        let at = Timespec {
            tv_sec: (nanos / 1_000_000_000) as i64,
            tv_nsec: (nanos % 1_000_000_000) as i64,
        };
        let setting = Itimerspec {
            it_interval: Timespec {
                tv_sec: 0,
                tv_nsec: 0,
            },
            it_value: at,
        };
        timerfd_settime(&self.descriptor, TimerfdTimerFlags::ABSTIME, &setting)?;
        self.armed = moment;
        Ok(())
    }

    /// The descriptor was readable: clears it.
    pub fn rang(&mut self) {
        let mut count = [0; 8];
        // Nothing to read: it was armed again in between.
        let _ = rustix::io::read(&self.descriptor, &mut count);
        self.armed = None;
    }
}

impl AsFd for Timer {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

fn monotonic_nanos() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}
