//! The machine under a measurement: what a reader must know about it to trust a number.
//!
//! Everything is read from Linux's own files; what cannot be read stays empty and is never guessed.

pub mod others;
pub mod host;
pub mod tcp_sockets;
mod mounts;
mod probe;

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::thread::{self, available_parallelism};
use std::time::Duration;

use crate::numbers;
use crate::process::proc_files::{ProcessorTimes, processor_times};
use crate::report::{Machine, Target};

/// A machine that was busy for this long before the run would also have been busy during it.
const BUSY_BEFORE: Duration = Duration::from_secs(1);
/// The share of processors busy with other programs, which affects every number.
const BUSY_LIMIT: f64 = 0.10;
/// No flash without a cache and no spinning disk makes data durable in less; a host's memory does.
const DISK_SYNC_MICROS: f64 = 200.0;
/// With fewer processors than these, generator and broker compete for them.
const PROCESSORS_FOR_TWO: u32 = 8;

/// Describes the machine and probes disk and network; takes about two seconds.
///
/// - `directory`: the broker's data directory, or the working directory if the broker is elsewhere.
///   A probe file is written into it and removed.
/// - `broker`: `None` probes the loopback. A loopback address is probed by one byte there and back
///   through an echo of our own, any other by the time of `connect`, which is one round trip: a
///   broker would not echo a byte.
/// - `memory_bytes`: what this process may use; a control group may limit it, and a broker on this
///   machine asks the same.
/// - Shape: a probe that failed has a `count` of 0.
pub fn describe(directory: &Path, broker: Option<SocketAddr>, memory_bytes: u64) -> Machine {
    let busy_before = busy_over(BUSY_BEFORE);
    Machine {
        kernel: kernel(),
        processor: processor_name(&read("/proc/cpuinfo")),
        processors: available_parallelism().map_or(0, |count| count.get() as u32),
        memory_bytes,
        governor: governor(),
        load_average: load_average(&read("/proc/loadavg")),
        busy_before,
        filesystem: mounts::filesystem_of(directory, &read("/proc/self/mountinfo")),
        sync_micros: probe::sync_micros(directory),
        network_round_trip_micros: probe::round_trip_micros(broker),
    }
}

/// What about this machine and this target limits the meaning of a number.
pub fn caveats(machine: &Machine, target: &Target) -> Vec<String> {
    let mut caveats = Vec::new();
    let is_local = target.is_loopback || target.is_embedded;
    if is_local {
        caveats.push(format!(
            "{}: a loopback run; no network was part of it",
            target.name
        ));
    }
    if is_local && (1..PROCESSORS_FOR_TWO).contains(&machine.processors) {
        caveats.push(format!(
            "{}: generator and broker share {} processors",
            target.name, machine.processors
        ));
    }
    let sync = machine.sync_micros;
    if sync.count == 0 {
        caveats.push(String::from("the latency of a sync could not be measured"));
    } else if machine.filesystem.starts_with("tmpfs") || machine.filesystem.starts_with("ramfs") {
        caveats.push(format!(
            "{}: the data was in memory, not on a disk",
            machine.filesystem
        ));
    } else if sync.p50 < DISK_SYNC_MICROS {
        caveats.push(format!(
            "a sync took {} (median): that is the cache of a host or a controller, not a disk",
            numbers::duration(sync.p50 / 1e6)
        ));
    }
    if machine.busy_before > BUSY_LIMIT {
        caveats.push(format!(
            "{} of the processors were busy in the second before the run",
            numbers::percent(machine.busy_before)
        ));
    }
    caveats
}

/// Returns an empty text if the file is missing or is not text: callers then find nothing in it.
fn read(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

fn kernel() -> String {
    let of = |file: &str| read(&format!("/proc/sys/kernel/{file}")).trim().to_owned();
    let text = format!("{} {} {}", of("ostype"), of("osrelease"), std::env::consts::ARCH);
    text.trim().to_owned()
}

fn processor_name(cpuinfo: &str) -> String {
    // Arm kernels give no model name.
    ["model name", "Model", "Hardware"]
        .iter()
        .find_map(|key| field(cpuinfo, key))
        .unwrap_or(std::env::consts::ARCH)
        .to_owned()
}

/// The value of the first line `key : value`.
fn field<'t>(text: &'t str, key: &str) -> Option<&'t str> {
    text.lines()
        .filter_map(|line| line.split_once(':'))
        .find(|(name, _)| name.trim() == key)
        .map(|(_, value)| value.trim())
}

fn governor() -> Option<String> {
    let text = read("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor");
    let name = text.trim();
    (!name.is_empty()).then(|| name.to_owned())
}

fn load_average(loadavg: &str) -> [f64; 3] {
    let mut values = loadavg.split_whitespace().map(|word| {
        word.parse()
            .ok()
            .filter(|value: &f64| value.is_finite())
            .unwrap_or(0.0)
    });
    [(); 3].map(|()| values.next().unwrap_or(0.0))
}

fn busy_over(span: Duration) -> f64 {
    let before = processor_times(&read("/proc/stat"));
    thread::sleep(span);
    let after = processor_times(&read("/proc/stat"));
    match (before, after) {
        (Some(before), Some(after)) => busy_share(before, after),
        _ => 0.0,
    }
}

fn busy_share(before: ProcessorTimes, after: ProcessorTimes) -> f64 {
    let busy = after.busy.saturating_sub(before.busy);
    let all = busy + after.idle.saturating_sub(before.idle);
    if all == 0 { 0.0 } else { busy as f64 / all as f64 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::Percentiles;

    const CPUINFO: &str = "processor\t: 0\nvendor_id\t: GenuineIntel\nmodel name\t: Intel(R) Xeon(R) Processor\n\nprocessor\t: 1\n";

    fn target() -> Target {
        Target {
            name: String::from("Kafka"),
            ..Target::default()
        }
    }

    fn disk() -> Machine {
        Machine {
            processors: 16,
            filesystem: String::from("ext4 on /dev/sda"),
            sync_micros: Percentiles {
                p50: 900.0,
                count: 100,
                ..Percentiles::default()
            },
            ..Machine::default()
        }
    }

    #[test]
    fn reads_what_linux_says() {
        assert_eq!(processor_name(CPUINFO), "Intel(R) Xeon(R) Processor");
        assert_eq!(load_average("1.88 2.25 2.16 5/108 865"), [1.88, 2.25, 2.16]);
    }

    #[test]
    fn damaged_text_gives_nothing() {
        assert_eq!(processor_name("\0:\n::::"), std::env::consts::ARCH);
        assert_eq!(load_average("NaN inf x"), [0.0; 3]);
        assert_eq!(load_average(""), [0.0; 3]);
    }

    #[test]
    fn busy_time_is_all_time_that_was_not_idle() {
        let at = |busy, idle| ProcessorTimes {
            busy,
            idle,
            stolen: 0,
            yielding: 0,
        };
        assert_eq!(busy_share(at(100, 100), at(150, 250)), 0.25);
        // Idle time is known to go backwards when a processor is taken offline.
        assert_eq!(busy_share(at(100, 100), at(100, 50)), 0.0);
    }

    #[test]
    fn a_quiet_machine_with_a_disk_and_a_network_has_no_caveat() {
        assert_eq!(caveats(&disk(), &target()), Vec::<String>::new());
    }

    #[test]
    fn each_limit_is_reported() {
        let local = Target {
            is_loopback: true,
            ..target()
        };
        let check = |change: &dyn Fn(&mut Machine), target: &Target, wanted: &str| {
            let mut machine = disk();
            change(&mut machine);
            let all = caveats(&machine, target);
            assert!(
                all.iter().any(|caveat| caveat.contains(wanted)),
                "{wanted}: {all:?}"
            );
        };
        check(&|_| {}, &local, "loopback");
        check(&|machine| machine.processors = 2, &local, "share 2 processors");
        check(
            &|machine| machine.sync_micros.p50 = 90.0,
            &target(),
            "a sync took 90 µs",
        );
        check(
            &|machine| machine.sync_micros.count = 0,
            &target(),
            "could not be measured",
        );
        check(
            &|machine| machine.filesystem = "tmpfs on shm".to_owned(),
            &target(),
            "in memory",
        );
        check(
            &|machine| machine.busy_before = 0.4,
            &target(),
            "40 % of the processors",
        );
    }

    #[test]
    fn this_machine_is_described() {
        let machine = describe(&std::env::temp_dir(), None, 1);
        assert!(machine.processors >= 1);
        assert!(machine.kernel.starts_with("Linux"), "{machine:?}");
        assert_eq!(machine.sync_micros.count, 100);
        assert!(machine.network_round_trip_micros.count > 0);
        assert!((0.0..=1.0).contains(&machine.busy_before));
        assert!(machine.filesystem.contains(" on "), "{machine:?}");
    }
}
