//! Processor time, memory, disk and network of processes, sampled while they run.
//!
//! Once a second during the measured part, from `/proc`; bounded by its seconds; whatever cannot be
//! read stays `None`.
//!
//! Reading order: the modules below, from the entry point down to the foundations.

mod series;
mod reading;
pub(crate) mod proc_files;

use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

pub use self::series::{MachineSecond, ProcessSecond, ProcessSeries};

use self::reading::Reader;
use self::series::Samples;

/// What is sampled, each under a name for the report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Watched {
    /// A process of this machine, by its id; `std::process::id()` for this process as a whole.
    Process { name: String, process: u32 },
    /// Threads of this process whose names begin with one of these, such as `BROKER_THREADS`. Linux
    /// keeps the first 15 bytes of a name.
    ThreadsOf { name: String, prefixes: Vec<String> },
    /// The threads of this process that no `ThreadsOf` names.
    OtherThreads { name: String },
}

/// The thread names of an embedded Ottla broker. All other threads of its process belong to the
/// generator.
pub const BROKER_THREADS: [&str; 7] = [
    "ottla-accept",
    "ottla-loop-",
    "ottla-cold-read",
    "ottla-sync-",
    "ottla-control",
    "ottla-deadline",
    "ottla-maintain",
];

impl Watched {
    /// Broker and generator in one process: its memory as a whole, its processor time and disk
    /// separately.
    pub fn broker_and_generator() -> Vec<Watched> {
        vec![
            Watched::own("broker and generator"),
            Watched::ThreadsOf {
                name: String::from("broker"),
                prefixes: BROKER_THREADS.map(String::from).to_vec(),
            },
            Watched::OtherThreads {
                name: String::from("generator"),
            },
        ]
    }

    /// This process as a whole.
    pub fn own(name: &str) -> Watched {
        Watched::process(name, std::process::id())
    }

    pub fn process(name: &str, process: u32) -> Watched {
        Watched::Process {
            name: name.to_owned(),
            process,
        }
    }

    pub fn name(&self) -> &str {
        match self {
            Watched::Process { name, .. }
            | Watched::ThreadsOf { name, .. }
            | Watched::OtherThreads { name } => name,
        }
    }
}

/// A thread that samples; when dropped without `stop`, it ends at once.
#[derive(Debug)]
pub struct Sampler {
    /// Disconnecting it wakes the thread.
    stop: Sender<()>,
    thread: Option<JoinHandle<Vec<ProcessSeries>>>,
}

/// The interval between readings.
const INTERVAL: Duration = Duration::from_secs(1);

impl Sampler {
    /// Starts sampling: call it when the measured part begins, so that its seconds are those of the
    /// timeline.
    pub fn start(watched: Vec<Watched>) -> Sampler {
        let (stop, stopped) = mpsc::channel::<()>();
        // Without a thread nothing is sampled, and the report has nothing about processes.
        let thread = thread::Builder::new()
            .name(String::from("lab-sampler"))
            .spawn(move || {
                let goes_on_until = |moment: Instant| {
                    let wait = moment.saturating_duration_since(Instant::now());
                    matches!(stopped.recv_timeout(wait), Err(RecvTimeoutError::Timeout))
                };
                sample(&watched, goes_on_until)
            })
            .ok();
        Sampler { stop, thread }
    }

    /// Returns what was sampled until now, in the order of `watched`, without what could never be
    /// read.
    pub fn stop(mut self) -> Vec<ProcessSeries> {
        let (dead, _) = mpsc::channel();
        drop(std::mem::replace(&mut self.stop, dead));
        let series = self.thread.take().map(JoinHandle::join);
        series.and_then(Result::ok).unwrap_or_default()
    }
}

/// - `goes_on_until`: waits; returns false if the sampler was stopped before.
fn sample(watched: &[Watched], goes_on_until: impl Fn(Instant) -> bool) -> Vec<ProcessSeries> {
    let begin = Instant::now();
    let mut reader = Reader::new(watched);
    let mut samples = Samples::begin(watched, reader.read(), Instant::now());
    let mut due = begin + INTERVAL;
    while goes_on_until(due) {
        samples.add(reader.read(), Instant::now());
        due += INTERVAL;
    }
    samples.add(reader.read(), Instant::now());
    samples.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Keeps a processor busy until this thread's own clock has advanced by `cpu`, however long
    /// that takes.
    fn burn(cpu: Duration) {
        let used = || {
            let text = std::fs::read_to_string("/proc/thread-self/stat").unwrap();
            proc_files::process_stat(&text).unwrap().cpu_seconds
        };
        let begin = used();
        while used() - begin < cpu.as_secs_f64() {
            std::hint::black_box((0..10_000).fold(1_u64, |sum, n| sum.wrapping_mul(31).wrapping_add(n)));
        }
    }

    #[test]
    fn threads_are_told_apart_by_name() {
        let sampler = Sampler::start(Watched::broker_and_generator());
        let (ready, wait) = mpsc::channel();
        let (end, ended) = mpsc::channel::<()>();
        // It is alive at the last reading, as a broker's threads are.
        let broker = thread::Builder::new()
            .name(String::from("ottla-loop-7"))
            .spawn(move || {
                burn(Duration::from_millis(300));
                ready.send(()).unwrap();
                let _ = ended.recv();
            })
            .unwrap();
        wait.recv().unwrap();
        let series = sampler.stop();
        drop(end);
        broker.join().unwrap();
        let names: Vec<&str> = series.iter().map(|series| series.name.as_str()).collect();
        assert_eq!(names, ["broker and generator", "broker", "generator"]);
        // The kernel counts in hundredths, and the last reading may miss some.
        assert!(series[1].cpu_seconds >= 0.25, "{series:?}");
        assert!(
            series[0].cpu_seconds >= series[1].cpu_seconds - 0.02,
            "{series:?}"
        );
        assert_eq!(series[1].peak_memory_bytes, None);
        assert!(series[0].peak_memory_bytes.unwrap() > 1_000_000);
    }

    #[test]
    fn a_process_that_is_gone_is_no_number() {
        let series = Sampler::start(vec![Watched::process("broker", u32::MAX)]).stop();
        assert_eq!(series, Vec::new());
    }

    #[test]
    fn another_process_is_read() {
        let mut sleeper = std::process::Command::new("sleep").arg("600").spawn().unwrap();
        let series = Sampler::start(vec![Watched::process("broker", sleeper.id())]).stop();
        sleeper.kill().unwrap();
        sleeper.wait().unwrap();
        assert_eq!(series.len(), 1);
        assert!(series[0].peak_memory_bytes.unwrap() > 0);
    }
}
