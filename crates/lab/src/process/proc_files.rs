//! Parses the files of `/proc`: pure functions from text; damaged text gives `None` or is skipped.

/// Linux reports times in 1/100 s to user space on every architecture that Rust's standard library
/// supports (`USER_HZ`).
const TICKS_PER_SECOND: f64 = 100.0;
/// The unit of `/proc/diskstats`, whatever the disk's sector size is.
const SECTOR_BYTES: u64 = 512;

/// Totals of all processors since boot, in ticks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ProcessorTimes {
    pub(crate) busy: u64,
    /// Includes waiting for a disk.
    pub(crate) idle: u64,
    /// The part of `busy` that a hypervisor gave to others.
    pub(crate) stolen: u64,
    /// The part of `busy` of processes that give way to others (`nice`).
    pub(crate) yielding: u64,
}

/// Parses `/proc/stat`. Steal counts as busy: the processor was not available.
pub(crate) fn processor_times(stat: &str) -> Option<ProcessorTimes> {
    let line = stat.lines().find(|line| line.starts_with("cpu "))?;
    let ticks: Option<Vec<u64>> = line
        .split_whitespace()
        .skip(1)
        .map(|word| word.parse().ok())
        .collect();
    // user nice system idle iowait irq softirq steal; guest times are in user and nice already.
    let ticks = ticks.filter(|ticks| ticks.len() >= 8)?;
    let sum = |columns: &[usize]| {
        columns
            .iter()
            .try_fold(0_u64, |sum, &column| sum.checked_add(ticks[column]))
    };
    Some(ProcessorTimes {
        busy: sum(&[0, 1, 2, 5, 6, 7])?,
        idle: sum(&[3, 4])?,
        stolen: ticks[7],
        yielding: ticks[1],
    })
}

/// Parses `/proc/pressure/cpu` (PSI): microseconds since boot in which a task that could run waited
/// for a processor.
pub(crate) fn waiting_micros(pressure: &str) -> Option<u64> {
    let some = pressure.lines().find_map(|line| line.strip_prefix("some "))?;
    some.split_whitespace()
        .find_map(|word| word.strip_prefix("total="))?
        .parse()
        .ok()
}

/// Fields of `/proc/PID/stat` or `/proc/PID/task/TID/stat`.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ProcessStat {
    pub(crate) name: String,
    pub(crate) cpu_seconds: f64,
    /// Ticks since boot; distinguishes processes with the same id.
    pub(crate) started: u64,
}

pub(crate) fn process_stat(stat: &str) -> Option<ProcessStat> {
    // The name may contain blanks and parentheses; what follows it does not.
    let (before, after) = stat.rsplit_once(')')?;
    let (_, name) = before.split_once('(')?;
    let fields: Vec<&str> = after.split_whitespace().collect();
    // proc_pid_stat(5): utime, stime and starttime are the fields 14, 15 and 22; `fields` begins
    // with 3.
    let number = |field: usize| fields.get(field - 3)?.parse::<u64>().ok();
    Some(ProcessStat {
        name: name.to_owned(),
        cpu_seconds: number(14)?.checked_add(number(15)?)? as f64 / TICKS_PER_SECOND,
        started: number(22)?,
    })
}

/// Reads a line `key: 123 kB` of `/proc/PID/status`.
pub(crate) fn status_bytes(status: &str, key: &str) -> Option<u64> {
    number_of(status, key)?.checked_mul(1_024)
}

/// Bytes that reached or left the storage layer, from `/proc/PID/io`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct DiskBytes {
    pub(crate) read: u64,
    pub(crate) written: u64,
}

pub(crate) fn disk_bytes(io: &str) -> Option<DiskBytes> {
    Some(DiskBytes {
        read: number_of(io, "read_bytes")?,
        written: number_of(io, "write_bytes")?,
    })
}

fn number_of(text: &str, key: &str) -> Option<u64> {
    let (_, value) = text
        .lines()
        .filter_map(|line| line.split_once(':'))
        .find(|(name, _)| *name == key)?;
    value.split_whitespace().next()?.parse().ok()
}

/// Parses `/proc/diskstats`: bytes written to whole disks since boot.
///
/// - `is_disk`: whether the name is a whole disk, not a partition or a device made of others, which
///   would count twice.
pub(crate) fn disks_written_bytes(diskstats: &str, is_disk: impl Fn(&str) -> bool) -> u64 {
    let sectors = diskstats.lines().filter_map(|line| {
        let mut words = line.split_whitespace().skip(2);
        let name = words.next()?;
        let sectors: u64 = words.nth(6)?.parse().ok()?;
        is_disk(name).then_some(sectors)
    });
    sectors
        .fold(0_u64, u64::saturating_add)
        .saturating_mul(SECTOR_BYTES)
}

/// Parses `/proc/net/dev`: bytes in and out since boot; loopback traffic counts once.
pub(crate) fn network_bytes(dev: &str) -> u64 {
    let bytes = dev.lines().filter_map(|line| {
        let (name, counters) = line.split_once(':')?;
        let mut counters = counters.split_whitespace();
        let received: u64 = counters.next()?.parse().ok()?;
        let sent: u64 = counters.nth(7)?.parse().ok()?;
        Some(if name.trim() == "lo" {
            sent
        } else {
            received.saturating_add(sent)
        })
    });
    bytes.fold(0, u64::saturating_add)
}

#[cfg(test)]
mod tests {
    use super::*;

    const STAT: &str =
        "cpu  2526213 312323 652239 1603850 53009 0 25374 5494 0 0\ncpu0 1 2 3 4 5 6 7 8 0 0\n";
    const TASK: &str = "713 (a) b (c) S 1 713 713 0 -1 4194560 5 0 7 0 1234 66 0 0 20 0 9 0 4711 9 9";
    const DISKS: &str = "   7       0 loop0 0 0 0 0 0 0 9 0 0 0 0\n \
         254       0 vda 7838062 708704 1825982530 35647392 9169297 1698678 1000 4285585 0 1 2 3\n \
         254       1 vda1 7838062 708704 1825982530 35647392 9169297 1698678 1000 4285585 0 1 2 3\n";
    const NET: &str = "Inter-|   Receive  |  Transmit\n face |bytes packets errs drop fifo frame compressed multicast|bytes\n    \
         lo: 500 1 0 0 0 0 0 0 500 1 0 0 0 0 0 0\n  eth0: 70 3 0 0 0 0 0 0 8 2 0 0 0 0 0 0\n";

    #[test]
    fn the_files_are_parsed() {
        let times = processor_times(STAT).unwrap();
        assert_eq!(times.idle, 1_603_850 + 53_009);
        assert_eq!(times.busy, 2_526_213 + 312_323 + 652_239 + 25_374 + 5_494);
        assert_eq!(times.yielding, 312_323);
        let stat = process_stat(TASK).unwrap();
        assert_eq!(
            (stat.name.as_str(), stat.cpu_seconds, stat.started),
            ("a) b (c", 13.0, 4_711)
        );
        assert_eq!(
            status_bytes("Name:\tx\nVmHWM:\t   12 kB\n", "VmHWM"),
            Some(12_288)
        );
        let io = disk_bytes("rchar: 1\nread_bytes: 4096\nwrite_bytes: 8192\ncancelled_write_bytes: 1\n");
        assert_eq!(
            io,
            Some(DiskBytes {
                read: 4_096,
                written: 8_192
            })
        );
        assert_eq!(disks_written_bytes(DISKS, |name| name == "vda"), 512_000);
        assert_eq!(network_bytes(NET), 578);
    }

    #[test]
    fn damaged_text_gives_no_number_and_does_not_panic() {
        let huge = u64::MAX.to_string();
        for text in [
            "",
            ")",
            "(",
            ")(",
            "(a)",
            "1 (a) S 1",
            "cpu ",
            "cpu x",
            "cpu 1 2 3",
            ":",
            "a:b:c",
            "\0\u{ffff}",
        ] {
            assert_eq!(processor_times(text), None, "{text}");
            assert_eq!(process_stat(text), None, "{text}");
            assert_eq!(status_bytes(text, "VmHWM"), None, "{text}");
            assert_eq!(disk_bytes(text), None, "{text}");
            assert_eq!(disks_written_bytes(text, |_| true), 0, "{text}");
            assert_eq!(network_bytes(text), 0, "{text}");
        }
        assert_eq!(processor_times(&format!("cpu {huge} 0 1 0 0 0 0 0")), None);
        assert_eq!(process_stat(&TASK.replace("1234", &huge)), None);
        assert_eq!(status_bytes(&format!("VmHWM: {huge} kB"), "VmHWM"), None);
        assert_eq!(
            disks_written_bytes(&DISKS.replace(" 1000 ", &format!(" {huge} ")), |_| true),
            u64::MAX
        );
        assert_eq!(
            network_bytes(&NET.replace(" 70 ", &format!(" {huge} "))),
            u64::MAX
        );
    }
}
