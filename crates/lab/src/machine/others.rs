//! How much of the machine's processors was used by programs that do not belong to a measurement.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use super::host::HostCounts;
use crate::numbers::percent;

/// Above this share of all processors' time a measurement is not valid. Generator and broker share
/// the machine, so what others take is missing to both, and moves rates and tails by more than the
/// differences that are looked for. The kernel's own threads and interrupts, which belong to no
/// process, stay below it.
pub const OTHERS_MAX: f64 = 0.15;

/// Processor time of the machine and of some processes with their descendants, from one moment on.
#[derive(Debug)]
pub struct Others {
    heads: Vec<u32>,
    began: Option<Moment>,
}

/// What others used.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Foreign {
    /// Share of all processors' time, with what a hypervisor gave to others.
    pub share: f64,
    /// The program that used most of it, its id, and its share.
    pub busiest: Option<(String, u32, f64)>,
}

impl Foreign {
    /// Why a measurement beside this is not valid; `None`: it is.
    pub fn reason(&self) -> Option<String> {
        let busiest = match &self.busiest {
            Some((name, process, share)) if *share > 0.01 => {
                format!(", {} of them `{name}` (process {process})", percent(*share))
            }
            _ => String::new(),
        };
        (self.share > OTHERS_MAX).then(|| {
            format!(
                "other programs used {} of the processors during the run{busiest}: at most {} may be",
                percent(self.share),
                percent(OTHERS_MAX)
            )
        })
    }
}

impl Others {
    /// - `heads`: processes that belong to the measurement, beside this one.
    pub fn watch(heads: impl IntoIterator<Item = u32>) -> Others {
        Others {
            heads: heads.into_iter().chain([std::process::id()]).collect(),
            began: counts(),
        }
    }

    /// What was used since `watch`; `None` where there is no `/proc`.
    pub fn foreign(&self) -> Option<Foreign> {
        Some(between(self.began.as_ref()?, &counts()?, &self.heads))
    }
}

type Moment = (HostCounts, Processes);

/// What the processes outside of the families of `heads` used from one moment to another.
fn between((before, processes_before): &Moment, (after, processes): &Moment, heads: &[u32]) -> Foreign {
    let busy = after.busy.saturating_sub(before.busy);
    let idle = after.idle.saturating_sub(before.idle);
    let (own_before, own) = (family(processes_before, heads), family(processes, heads));
    let spent = ticks(processes, &own).saturating_sub(ticks(processes_before, &own_before));
    let all = (busy + idle).max(1) as f64;
    let others = processes.iter().filter(|(id, _)| !own.contains(id));
    let used = others.map(|(id, process)| {
        let before = ticks_of_ended(processes_before, processes, *id);
        (process.ticks.saturating_sub(before), id, process)
    });
    let busiest = used.max_by_key(|(used, ..)| *used);
    Foreign {
        share: busy.saturating_sub(spent) as f64 / all,
        busiest: busiest.map(|(used, id, process)| (process.name.clone(), *id, used as f64 / all)),
    }
}

/// What a process had used before, with those of its descendants that have ended since: a child
/// that is waited for adds the time of its whole life to its parent's.
fn ticks_of_ended(before: &Processes, after: &Processes, id: u32) -> u64 {
    let family = family(before, &[id]);
    let ended = family
        .into_iter()
        .filter(|one| *one == id || !after.contains_key(one));
    ticks(before, &ended.collect())
}

type Processes = BTreeMap<u32, Process>;

#[derive(Clone, Debug, PartialEq)]
struct Process {
    name: String,
    parent: u32,
    /// Its own, and those of the children that it has waited for.
    ticks: u64,
}

fn counts() -> Option<Moment> {
    let mut processes = Processes::new();
    for entry in fs::read_dir("/proc").ok()?.flatten() {
        let Some(id) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        // A process may have ended since the directory was listed.
        let stat = fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
        if let Some(process) = process(&stat) {
            processes.insert(id, process);
        }
    }
    Some((HostCounts::read()?, processes))
}

fn process(stat: &str) -> Option<Process> {
    // The name may contain blanks and parentheses; what follows it does not.
    let (before, after) = stat.rsplit_once(')')?;
    let fields: Vec<&str> = after.split_whitespace().collect();
    // proc_pid_stat(5): ppid is field 4, utime to cstime are 14 to 17; `fields` begins with 3.
    let ticks = fields.get(11..15)?.iter().map(|ticks| ticks.parse::<u64>());
    Some(Process {
        name: before.split_once('(')?.1.to_owned(),
        parent: fields.get(1)?.parse().ok()?,
        ticks: ticks.sum::<Result<u64, _>>().ok()?,
    })
}

/// Some processes with all their descendants.
fn family(processes: &Processes, heads: &[u32]) -> BTreeSet<u32> {
    let mut family: BTreeSet<u32> = heads.iter().copied().collect();
    loop {
        let before = family.len();
        let children = processes
            .iter()
            .filter(|(_, process)| family.contains(&process.parent));
        let children: Vec<u32> = children.map(|(id, _)| *id).collect();
        family.extend(children);
        if family.len() == before {
            return family;
        }
    }
}

fn ticks(processes: &Processes, family: &BTreeSet<u32>) -> u64 {
    let ticks = family.iter().filter_map(|id| processes.get(id));
    ticks.map(|process| process.ticks).sum()
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    fn one(parent: u32, ticks: u64) -> Process {
        Process {
            name: String::from("p"),
            parent,
            ticks,
        }
    }

    #[test]
    fn time_of_descendants_is_our_own() {
        let processes = Processes::from([
            (1, one(0, 1_000)),
            (40, one(1, 7)),
            (41, one(40, 20)),
            (30, one(41, 300)),
            (50, one(1, 5_000)),
        ]);
        assert_eq!(ticks(&processes, &family(&processes, &[40])), 327);
        assert_eq!(ticks(&processes, &family(&processes, &[41, 50])), 5_320);
    }

    #[test]
    fn ticks_of_children_that_were_waited_for_count() {
        let stat = "713 (a) b (c) S 9 713 713 0 -1 4194560 5 0 7 0 1000 200 30 4 20 0 9 0 4711 9 9";
        let read = process(stat).expect("whole");
        assert_eq!(
            (read.name.as_str(), read.parent, read.ticks),
            ("a) b (c", 9, 1_234)
        );
        assert_eq!(process("713 (a) S 9"), None);
    }

    #[test]
    fn a_busy_program_beside_a_run_is_named() {
        let host = |busy, idle| HostCounts {
            processors: 2,
            busy,
            idle,
            stolen: 0,
            waiting_micros: None,
        };
        let named = |name: &str, ticks| Process {
            name: name.to_owned(),
            ..one(1, ticks)
        };
        let before = Processes::from([(40, one(1, 100)), (50, named("cc", 900)), (60, one(1, 5_000))]);
        let after = Processes::from([
            (40, one(1, 200)),
            (50, named("cc", 1_000)),
            (60, one(1, 5_000)),
            (70, named("sh", 500)),
        ]);
        let found = between(&(host(6_000, 100), before), &(host(6_700, 400), after), &[40]);
        assert_eq!(found.share, 0.6);
        assert_eq!(found.busiest, Some((String::from("sh"), 70, 0.5)));
        let reason = found.reason().expect("busy");
        assert!(
            reason.contains("60 %") && reason.contains("50 % of them `sh`"),
            "{reason}"
        );
        let calm = Foreign {
            share: OTHERS_MAX,
            ..found
        };
        assert_eq!(calm.reason(), None);
    }

    #[test]
    fn a_child_that_ended_meanwhile_used_only_what_it_used_meanwhile() {
        let before = Processes::from([
            (50, one(1, 10)),
            (51, one(50, 9_000)),
            (52, one(51, 400)),
            (53, one(50, 70)),
        ]);
        // 51 has waited for 52, and 50 for 51: 30 ticks of all three are new.
        let after = Processes::from([(50, one(1, 9_440)), (53, one(50, 75))]);
        let host = |busy| HostCounts {
            processors: 2,
            busy,
            idle: 0,
            stolen: 0,
            waiting_micros: None,
        };
        let found = between(&(host(0), before), &(host(100), after), &[40]);
        assert_eq!(found.busiest, Some((String::from("p"), 50, 0.3)));
    }

    /// A program of another family; `sh` starts it and ends, so that it has no parent here.
    #[test]
    fn a_program_beside_a_run_is_seen() {
        let script = "(while :; do :; done) >/dev/null 2>&1 & echo $!";
        let started = Command::new("sh").args(["-c", script]).output().expect("sh");
        let burner: u32 = String::from_utf8_lossy(&started.stdout)
            .trim()
            .parse()
            .expect("a process id");
        let found = loop {
            let (_, processes) = counts().expect("/proc");
            assert!(!family(&processes, &[std::process::id()]).contains(&burner));
            match processes.get(&burner) {
                Some(process) if process.ticks > 0 => break process.clone(),
                _ => std::thread::sleep(std::time::Duration::from_millis(20)),
            }
        };
        let _ = Command::new("kill").args(["-9", &burner.to_string()]).status();
        assert_eq!(found.name, "sh");
    }
}
