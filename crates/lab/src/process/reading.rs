//! One reading of everything that is watched.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use super::Watched;
use super::proc_files::{self, DiskBytes};

/// Totals since the start of a process, thread or machine.
#[derive(Clone, Debug, Default)]
pub(super) struct ProcessReading {
    /// In the order of `Watched`; `None`: it does not exist, or may not be read.
    pub(super) watched: Vec<Option<Totals>>,
    pub(super) disk_written_bytes: u64,
    pub(super) network_bytes: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Totals {
    pub(super) cpu_seconds: f64,
    pub(super) disk: Option<DiskBytes>,
    /// `None` for threads, which have no memory of their own.
    pub(super) memory: Option<Memory>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Memory {
    pub(super) resident_bytes: u64,
    /// Since the first reading if the kernel allowed to reset it (`is_peak_ours`).
    pub(super) peak_bytes: u64,
    pub(super) is_peak_ours: bool,
}

/// State that is kept between two readings.
pub(super) struct Reader {
    watched: Vec<Followed>,
    disks: BTreeSet<String>,
}

enum Followed {
    Process {
        process: u32,
        started: Option<u64>,
        is_peak_ours: bool,
    },
    Threads {
        matches: Matches,
        /// A thread that has ended keeps its usage at the last reading.
        seen: BTreeMap<String, (f64, DiskBytes)>,
    },
}

enum Matches {
    Prefixes(Vec<String>),
    NoneOf(Vec<String>),
}

impl Matches {
    fn is_match(&self, name: &str) -> bool {
        let begins = |prefixes: &[String]| prefixes.iter().any(|prefix| name.starts_with(prefix.as_str()));
        match self {
            Matches::Prefixes(prefixes) => begins(prefixes),
            Matches::NoneOf(prefixes) => !begins(prefixes),
        }
    }
}

/// Linux cuts thread names to this many bytes.
const THREAD_NAME_BYTES: usize = 15;

impl Reader {
    /// Resets the memory peaks where the kernel allows it.
    pub(super) fn new(watched: &[Watched]) -> Reader {
        let cut = |prefix: &String| {
            let end = prefix.floor_char_boundary(THREAD_NAME_BYTES);
            prefix[..end].to_owned()
        };
        let named: Vec<String> = watched
            .iter()
            .filter_map(|watched| match watched {
                Watched::ThreadsOf { prefixes, .. } => Some(prefixes.iter().map(cut)),
                _ => None,
            })
            .flatten()
            .collect();
        let follow = |watched: &Watched| match watched {
            Watched::Process { process, .. } => Followed::Process {
                process: *process,
                started: None,
                // proc_pid_clear_refs(5): 5 sets the peak to what is resident now.
                is_peak_ours: fs::write(format!("/proc/{process}/clear_refs"), "5").is_ok(),
            },
            Watched::ThreadsOf { prefixes, .. } => {
                Followed::threads(Matches::Prefixes(prefixes.iter().map(cut).collect()))
            }
            Watched::OtherThreads { .. } => Followed::threads(Matches::NoneOf(named.clone())),
        };
        Reader {
            watched: watched.iter().map(follow).collect(),
            disks: whole_disks(),
        }
    }

    pub(super) fn read(&mut self) -> ProcessReading {
        let disks = &self.disks;
        ProcessReading {
            watched: self.watched.iter_mut().map(Followed::read).collect(),
            disk_written_bytes: proc_files::disks_written_bytes(&text("/proc/diskstats"), |name| {
                disks.contains(name)
            }),
            network_bytes: proc_files::network_bytes(&text("/proc/net/dev")),
        }
    }
}

/// Memory used as a disk, and disks made of other disks.
const NO_DISKS: [&str; 6] = ["loop", "ram", "zram", "dm-", "md", "sr"];

fn whole_disks() -> BTreeSet<String> {
    let names = fs::read_dir("/sys/block").into_iter().flatten().flatten();
    names
        .filter_map(|entry| entry.file_name().into_string().ok())
        .filter(|name| !NO_DISKS.iter().any(|prefix| name.starts_with(prefix)))
        .collect()
}

impl Followed {
    fn threads(matches: Matches) -> Followed {
        Followed::Threads {
            matches,
            seen: BTreeMap::new(),
        }
    }

    fn read(&mut self) -> Option<Totals> {
        match self {
            Followed::Process {
                process,
                started,
                is_peak_ours,
            } => {
                let totals = read_process(*process, started)?;
                Some(Totals {
                    memory: totals.memory.map(|memory| Memory {
                        is_peak_ours: *is_peak_ours,
                        ..memory
                    }),
                    ..totals
                })
            }
            Followed::Threads { matches, seen } => {
                read_threads(matches, seen);
                let mut sum = Totals::default();
                let mut disk = DiskBytes::default();
                for (cpu_seconds, bytes) in seen.values() {
                    sum.cpu_seconds += cpu_seconds;
                    disk.read += bytes.read;
                    disk.written += bytes.written;
                }
                sum.disk = Some(disk);
                Some(sum)
            }
        }
    }
}

fn read_process(process: u32, started: &mut Option<u64>) -> Option<Totals> {
    let file = |name: &str| text(&format!("/proc/{process}/{name}"));
    let stat = proc_files::process_stat(&file("stat"))?;
    // Its id was given to another process.
    if *started.get_or_insert(stat.started) != stat.started {
        return None;
    }
    let status = file("status");
    let memory = || {
        Some(Memory {
            resident_bytes: proc_files::status_bytes(&status, "VmRSS")?,
            peak_bytes: proc_files::status_bytes(&status, "VmHWM")?,
            is_peak_ours: false,
        })
    };
    Some(Totals {
        cpu_seconds: stat.cpu_seconds,
        disk: proc_files::disk_bytes(&file("io")),
        memory: memory(),
    })
}

fn read_threads(matches: &Matches, seen: &mut BTreeMap<String, (f64, DiskBytes)>) {
    for entry in fs::read_dir("/proc/self/task").into_iter().flatten().flatten() {
        let path = entry.path();
        let file = |name: &str| fs::read_to_string(path.join(name)).unwrap_or_default();
        // It may have ended since the directory was read.
        let Some(stat) = proc_files::process_stat(&file("stat")) else {
            continue;
        };
        if matches.is_match(&stat.name) {
            let disk = proc_files::disk_bytes(&file("io")).unwrap_or_default();
            // A thread's id may be reused; its start time tells the two apart.
            let key = format!("{} {}", entry.file_name().display(), stat.started);
            seen.insert(key, (stat.cpu_seconds, disk));
        }
    }
}

fn text(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_thread_belongs_to_one_part() {
        let named = Matches::Prefixes(super::super::BROKER_THREADS.map(String::from).to_vec());
        let other = Matches::NoneOf(super::super::BROKER_THREADS.map(String::from).to_vec());
        for (name, is_broker) in [
            ("ottla-loop-0", true),
            ("ottla-sync-12", true),
            ("ottla-cold-read", true),
            ("ottla-callbacks", false),
            ("ottla-producer", false),
            ("main", false),
            ("", false),
        ] {
            assert_eq!(
                (named.is_match(name), other.is_match(name)),
                (is_broker, !is_broker),
                "{name}"
            );
        }
    }

    #[test]
    fn prefixes_are_cut_like_thread_names() {
        let watched = Watched::ThreadsOf {
            name: String::new(),
            prefixes: vec![
                String::from("a-name-longer-than-linux-keeps"),
                String::from("ööööööööö"),
            ],
        };
        let reader = Reader::new(&[watched]);
        let Followed::Threads { matches, .. } = &reader.watched[0] else {
            panic!("threads are watched");
        };
        assert!(matches.is_match("a-name-longer-t"));
        assert!(matches.is_match("ööööööö"));
    }
}
