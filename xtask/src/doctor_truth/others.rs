//! How much of the machine's processors others used: a result that was measured beside foreign work
//! says little about the doctor.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use ottla_lab::machine::host::HostCounts;

/// Above this share of all processors' time a result counts as disturbed. The kernel's own threads
/// and interrupts of the run belong to no process of it and stay below this.
pub const DISTURBING: f64 = 0.15;

/// Processor time of the machine and of this process with its descendants, from one moment on.
pub struct Others {
    began: Option<(HostCounts, u64)>,
}

impl Others {
    pub fn watch() -> Others {
        Others { began: counts() }
    }

    /// The share of all processors' time that neither this run used nor was idle, since `watch`;
    /// `None` where there is no `/proc`.
    pub fn share(&self) -> Option<f64> {
        let ((before, own_before), (after, own_after)) = (self.began?, counts()?);
        let busy = after.busy.saturating_sub(before.busy);
        let idle = after.idle.saturating_sub(before.idle);
        Some(share(busy, idle, own_after.saturating_sub(own_before)))
    }
}

fn share(busy: u64, idle: u64, own: u64) -> f64 {
    busy.saturating_sub(own) as f64 / (busy + idle).max(1) as f64
}

fn counts() -> Option<(HostCounts, u64)> {
    let mut processes = BTreeMap::new();
    for entry in fs::read_dir("/proc").ok()?.flatten() {
        let Some(id) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        // A process may have ended since the directory was listed.
        let stat = fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
        if let Some(process) = parent_and_ticks(&stat) {
            processes.insert(id, process);
        }
    }
    Some((HostCounts::read()?, family_ticks(&processes, std::process::id())))
}

/// The parent of a process, and its ticks with those of the children that it has waited for.
fn parent_and_ticks(stat: &str) -> Option<(u32, u64)> {
    // The name may contain blanks and parentheses; what follows it does not.
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    // proc_pid_stat(5): ppid is field 4, utime to cstime are 14 to 17; `fields` begins with 3.
    let ticks = fields.get(11..15)?.iter().map(|ticks| ticks.parse::<u64>());
    Some((fields.get(1)?.parse().ok()?, ticks.sum::<Result<u64, _>>().ok()?))
}

fn family_ticks(processes: &BTreeMap<u32, (u32, u64)>, head: u32) -> u64 {
    let mut family = BTreeSet::from([head]);
    loop {
        let before = family.len();
        let children = processes
            .iter()
            .filter(|(_, (parent, _))| family.contains(parent));
        let children: Vec<u32> = children.map(|(id, _)| *id).collect();
        family.extend(children);
        if family.len() == before {
            break;
        }
    }
    let ticks = family.iter().filter_map(|id| processes.get(id));
    ticks.map(|(_, ticks)| ticks).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_of_descendants_is_our_own_and_the_rest_is_others() {
        let processes = BTreeMap::from([
            (1, (0, 1_000)),
            (40, (1, 7)),
            (41, (40, 20)),
            (30, (41, 300)),
            (50, (1, 5_000)),
        ]);
        assert_eq!(family_ticks(&processes, 40), 327);
        assert_eq!(share(600, 400, 350), 0.25);
        assert_eq!(share(600, 400, 700), 0.0);
    }

    #[test]
    fn ticks_of_children_that_were_waited_for_count() {
        let stat = "713 (a) b (c) S 9 713 713 0 -1 4194560 5 0 7 0 1000 200 30 4 20 0 9 0 4711 9 9";
        assert_eq!(parent_and_ticks(stat), Some((9, 1_234)));
        assert_eq!(parent_and_ticks("713 (a) S 9"), None);
    }

    #[test]
    fn work_of_this_process_is_not_that_of_others() {
        let before = counts().expect("/proc").1;
        let began = std::time::Instant::now();
        while began.elapsed().as_millis() < 100 {
            std::hint::spin_loop();
        }
        assert!(counts().expect("/proc").1 > before);
    }
}
