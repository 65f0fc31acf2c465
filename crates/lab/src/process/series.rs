//! Combines readings into totals and seconds.

use std::sync::Arc;
use std::time::Instant;

use super::Watched;
use super::reading::{ProcessReading, Totals};
use crate::report::{ProcessResult, Second};

/// Everything that was sampled so far.
pub(super) struct Samples {
    names: Vec<String>,
    processors: f64,
    first: ProcessReading,
    last: ProcessReading,
    last_at: Instant,
    peaks: Vec<Option<u64>>,
    seconds: Vec<Vec<ProcessSecond>>,
    machine: Vec<MachineSecond>,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct ProcessSeries {
    pub name: String,
    pub cpu_seconds: f64,
    /// `None` for threads, which share their process's memory.
    pub peak_memory_bytes: Option<u64>,
    /// Bytes read from the storage layer; reads answered by the page cache do not count. `None`: it
    /// may not be read.
    pub read_bytes: Option<u64>,
    pub written_bytes: Option<u64>,
    pub seconds: Vec<ProcessSecond>,
    /// The same for all series of one sampler.
    pub machine: Arc<[MachineSecond]>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ProcessSecond {
    /// Share of all processors of the machine, 0 to 1.
    pub cpu_share: f64,
    pub memory_bytes: Option<u64>,
}

/// Numbers of the whole machine, including other programs.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct MachineSecond {
    /// Per second.
    pub disk_written_bytes: u64,
    /// Per second, in and out; the loopback counts once.
    pub network_bytes: u64,
}

/// A last interval shorter than this is noise: ticks are 10 ms.
const SHORTEST_SECONDS: f64 = 0.2;

impl Samples {
    pub(super) fn begin(watched: &[Watched], first: ProcessReading, at: Instant) -> Samples {
        let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let mut samples = Samples {
            names: watched.iter().map(|watched| watched.name().to_owned()).collect(),
            processors: processors as f64,
            last: first.clone(),
            first,
            last_at: at,
            peaks: vec![None; watched.len()],
            seconds: vec![Vec::new(); watched.len()],
            machine: Vec::new(),
        };
        samples.follow_peaks(&samples.first.clone());
        samples
    }

    pub(super) fn add(&mut self, reading: ProcessReading, at: Instant) {
        self.follow_peaks(&reading);
        let passed = at.saturating_duration_since(self.last_at).as_secs_f64();
        let is_interval = passed >= SHORTEST_SECONDS;
        if is_interval {
            self.add_second(&reading, passed);
            self.last_at = at;
            self.last.disk_written_bytes = reading.disk_written_bytes;
            self.last.network_bytes = reading.network_bytes;
        }
        // What has ended keeps its totals of the last reading.
        for (last, now) in self.last.watched.iter_mut().zip(reading.watched) {
            *last = now.or(*last);
        }
    }

    fn add_second(&mut self, reading: &ProcessReading, passed: f64) {
        let rate = |now: u64, before: u64| (now.saturating_sub(before) as f64 / passed) as u64;
        self.machine.push(MachineSecond {
            disk_written_bytes: rate(reading.disk_written_bytes, self.last.disk_written_bytes),
            network_bytes: rate(reading.network_bytes, self.last.network_bytes),
        });
        for (index, seconds) in self.seconds.iter_mut().enumerate() {
            let cpu = |reading: &ProcessReading| reading.watched[index].map(|totals| totals.cpu_seconds);
            let used = cpu(reading)
                .zip(cpu(&self.last))
                .map_or(0.0, |(now, before)| now - before);
            seconds.push(ProcessSecond {
                cpu_share: (used / passed / self.processors).max(0.0),
                memory_bytes: reading.watched[index].and_then(|totals| Some(totals.memory?.resident_bytes)),
            });
        }
    }

    fn follow_peaks(&mut self, reading: &ProcessReading) {
        for (peak, totals) in self.peaks.iter_mut().zip(&reading.watched) {
            let memory = totals.and_then(|totals: Totals| totals.memory);
            // A peak that the kernel did not allow to reset may be from before the run.
            let bytes = memory.map(|memory| {
                if memory.is_peak_ours {
                    memory.peak_bytes
                } else {
                    memory.resident_bytes
                }
            });
            *peak = (*peak).max(bytes);
        }
    }

    pub(super) fn finish(self) -> Vec<ProcessSeries> {
        let Samples { first, last, .. } = self;
        let machine: Arc<[MachineSecond]> = self.machine.into();
        let parts = self.names.into_iter().zip(self.peaks).zip(self.seconds);
        let mut all = Vec::new();
        for (index, ((name, peak_memory_bytes), seconds)) in parts.enumerate() {
            let Some((first, last)) = first.watched[index].zip(last.watched[index]) else {
                continue;
            };
            let disk = first.disk.zip(last.disk);
            all.push(ProcessSeries {
                name,
                cpu_seconds: (last.cpu_seconds - first.cpu_seconds).max(0.0),
                peak_memory_bytes,
                read_bytes: disk.map(|(first, last)| last.read.saturating_sub(first.read)),
                written_bytes: disk.map(|(first, last)| last.written.saturating_sub(first.written)),
                seconds,
                machine: Arc::clone(&machine),
            });
        }
        all
    }
}

impl ProcessSeries {
    /// - `records`: acknowledged, or received where nothing was produced.
    /// - Shape: `network_bytes` is `None`: Linux counts it for machines, not for processes.
    pub fn result(&self, records: u64) -> ProcessResult {
        ProcessResult {
            name: self.name.clone(),
            cpu_seconds: self.cpu_seconds,
            cpu_seconds_per_million: match records {
                0 => 0.0,
                _ => self.cpu_seconds / (records as f64 / 1e6),
            },
            peak_memory_bytes: self.peak_memory_bytes,
            read_bytes: self.read_bytes,
            written_bytes: self.written_bytes,
            network_bytes: None,
        }
    }

    /// Adds processor and memory of this process, and disk and network of the machine, to the
    /// seconds of the same time.
    pub fn fill(&self, timeline: &mut [Second]) {
        for (index, second) in timeline.iter_mut().enumerate() {
            if let Some(machine) = self.machine.get(index) {
                second.disk_written_bytes = machine.disk_written_bytes;
                second.network_bytes = machine.network_bytes;
            }
            if let Some(sample) = self.seconds.get(index) {
                second.cpu.insert(self.name.clone(), sample.cpu_share);
                if let Some(bytes) = sample.memory_bytes {
                    second.memory_bytes.insert(self.name.clone(), bytes);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::proc_files::DiskBytes;
    use super::super::reading::Memory;
    use super::*;

    fn reading(cpu_seconds: f64, resident: u64, disk: u64) -> ProcessReading {
        ProcessReading {
            watched: vec![Some(Totals {
                cpu_seconds,
                disk: Some(DiskBytes {
                    read: 0,
                    written: disk,
                }),
                memory: Some(Memory {
                    resident_bytes: resident,
                    peak_bytes: 999,
                    is_peak_ours: false,
                }),
            })],
            disk_written_bytes: disk,
            network_bytes: 10 * disk,
        }
    }

    fn begin() -> (Samples, Instant) {
        let begin = Instant::now();
        let watched = [Watched::process("broker", 1)];
        (Samples::begin(&watched, reading(5.0, 100, 1_000), begin), begin)
    }

    #[test]
    fn totals_become_seconds() {
        let (mut samples, begin) = begin();
        samples.add(reading(6.0, 300, 3_000), begin + Duration::from_secs(1));
        samples.add(reading(6.0, 200, 3_000), begin + Duration::from_secs(2));
        let processors = std::thread::available_parallelism().unwrap().get() as f64;
        let series = &samples.finish()[0];
        assert_eq!((series.cpu_seconds, series.peak_memory_bytes), (1.0, Some(300)));
        assert_eq!((series.read_bytes, series.written_bytes), (Some(0), Some(2_000)));
        assert_eq!(series.seconds[0].cpu_share, 1.0 / processors);
        let mut timeline = vec![Second::default(); 3];
        series.fill(&mut timeline);
        assert_eq!(timeline[0].disk_written_bytes, 2_000);
        assert_eq!(timeline[0].network_bytes, 20_000);
        assert_eq!(timeline[1].memory_bytes["broker"], 200);
        // More seconds than samples: no numbers are invented.
        assert!(timeline[2].cpu.is_empty());
    }

    #[test]
    fn a_process_that_ends_keeps_what_it_had() {
        let (mut samples, begin) = begin();
        samples.add(reading(7.0, 100, 1_000), begin + Duration::from_secs(1));
        let gone = ProcessReading {
            watched: vec![None],
            ..ProcessReading::default()
        };
        samples.add(gone, begin + Duration::from_secs(2));
        let series = &samples.finish()[0];
        assert_eq!(series.cpu_seconds, 2.0);
        assert_eq!(series.seconds[1].memory_bytes, None);
    }

    #[test]
    fn a_short_interval_does_not_count_as_a_second() {
        let (mut samples, begin) = begin();
        samples.add(reading(6.0, 100, 1_000), begin + Duration::from_millis(20));
        let series = &samples.finish()[0];
        assert!(series.machine.is_empty());
        assert_eq!(series.cpu_seconds, 1.0);
    }

    #[test]
    fn without_records_there_is_no_cost_per_record() {
        let (mut samples, begin) = begin();
        samples.add(reading(6.0, 100, 1_000), begin + Duration::from_secs(1));
        let series = &samples.finish()[0];
        assert_eq!(series.result(0).cpu_seconds_per_million, 0.0);
        assert_eq!(series.result(500_000).cpu_seconds_per_million, 2.0);
    }
}
