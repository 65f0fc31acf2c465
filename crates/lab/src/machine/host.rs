//! How busy this machine's processors are: counts since its start, from Linux's own files.

use std::fs;

use crate::process::proc_files::{processor_times, waiting_micros};

/// Counts since the machine's start; two of them make a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostCounts {
    pub processors: u32,
    /// Time of all processors, in ticks: used, idle, and given to others by a hypervisor (part of
    /// the used time). What processes use that give way to others (`nice`) counts as idle: it is
    /// there for who needs it.
    pub busy: u64,
    pub idle: u64,
    pub stolen: u64,
    /// Microseconds in which something that could run waited for a processor (PSI `some`); `None`:
    /// a kernel without PSI.
    pub waiting_micros: Option<u64>,
}

impl HostCounts {
    /// Reads this machine's counts; `None` where there is no `/proc`.
    pub fn read() -> Option<HostCounts> {
        let stat = fs::read_to_string("/proc/stat").ok()?;
        let pressure = fs::read_to_string("/proc/pressure/cpu").ok();
        HostCounts::of(&stat, pressure.as_deref())
    }

    fn of(stat: &str, pressure: Option<&str>) -> Option<HostCounts> {
        let times = processor_times(stat)?;
        let is_processor = |line: &&str| {
            line.strip_prefix("cpu")
                .is_some_and(|rest| rest.starts_with(|first: char| first.is_ascii_digit()))
        };
        Some(HostCounts {
            processors: u32::try_from(stat.lines().filter(is_processor).count()).ok()?,
            busy: times.busy - times.yielding,
            idle: times.idle + times.yielding,
            stolen: times.stolen,
            waiting_micros: pressure.and_then(waiting_micros),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STAT: &str = "cpu  100 40 50 800 30 10 5 5 0 0\n\
        cpu0 50 0 25 400 15 5 2 3 0 0\ncpu1 50 0 25 400 15 5 3 2 0 0\nintr 1\n";

    #[test]
    fn a_machines_counts_are_read() {
        let pressure = "some avg10=1.00 avg60=0.50 avg300=0.10 total=123456\n\
            full avg10=0.00 avg60=0.00 avg300=0.00 total=99\n";
        let expected = HostCounts {
            processors: 2,
            busy: 170,
            idle: 830 + 40,
            stolen: 5,
            waiting_micros: Some(123_456),
        };
        assert_eq!(HostCounts::of(STAT, Some(pressure)), Some(expected));
    }

    #[test]
    fn a_kernel_without_pressure_counts_still_has_the_others() {
        let counts = HostCounts::of(STAT, None).unwrap();
        assert_eq!((counts.processors, counts.waiting_micros), (2, None));
        assert_eq!(HostCounts::of("", None), None);
    }
}
