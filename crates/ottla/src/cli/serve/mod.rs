//! `ottla serve [server.properties] [--override key=value]...`

pub(super) mod doctor;
mod activity;
pub mod console;
mod log_line;
mod supervisor;

use std::io::{IsTerminal, Write};
use std::process::ExitCode;
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use clap::Args;
use doctor::Doctor;
use ottla_broker::{Additions, Broker, RecoveryConfig, StartError};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGXFSZ};
use signal_hook::flag;
use signal_hook::iterator::Signals;
use supervisor::{State, notify};
use tracing::{Subscriber, info, warn};
use tracing_subscriber::Layer;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt;

use super::doctor::stated;
use super::server_properties::ServerProperties;

/// The environment variable with the log filter, e.g. `debug` or `info,ottla_broker=debug`.
const LOG_VARIABLE: &str = "OTTLA_LOG";

/// Run the broker (kafka-server-start.sh)
///
/// Reads the same server.properties as Apache Kafka. Without a file it listens on 127.0.0.1:9092
/// and stores its data in ./ottla-data. SIGTERM or Ctrl-C stops it cleanly; the environment
/// variable OTTLA_LOG sets the log filter, e.g. debug. Exit status: 0 clean stop, 1 failure, 2
/// wrong usage or configuration.
#[derive(Args)]
pub struct Serve {
    #[command(flatten)]
    properties: ServerProperties,

    /// Serve this damaged partition (e.g. orders-0) without its lost records, whose offsets are not
    /// assigned again; may be repeated
    #[arg(long, value_name = "PARTITION")]
    accept_loss: Vec<String>,

    /// Rebuild a damaged metadata log from its intact part and the partitions' directories; the
    /// damaged log is kept
    #[arg(long)]
    recover_metadata: bool,

    /// Begin an empty directory with this user, as kafka-storage format --add-scram does:
    /// SCRAM-SHA-512=[name=alice,password=alice-secret]; later starts ignore it; may be repeated
    #[arg(long, value_name = "MECHANISM=[...]")]
    add_scram: Vec<String>,

    /// State a client's setting to the doctor: its client.id, or a pattern with `*`, and a key of
    /// Kafka's clients, of librdkafka or of franz-go; may be repeated
    #[arg(long, value_name = "[CLIENT.]KEY=VALUE")]
    client_set: Vec<String>,

    /// State a client's settings to the doctor by its properties file; may be repeated
    #[arg(long, value_name = "[CLIENT=]FILE")]
    client_config: Vec<String>,

    /// Stop when standard input ends, so that a test that is killed leaves no broker behind
    #[arg(long)]
    stop_with_stdin: bool,
}

impl Serve {
    pub fn run(self) -> ExitCode {
        start_log();
        let properties = match self.properties.read() {
            Ok(properties) => properties,
            Err(problem) => return fail(&problem, 2),
        };
        let statements = match stated::read(&self.client_config, &self.client_set) {
            Ok(statements) => statements,
            Err(failure) => return fail(&failure.text, 2),
        };
        raise_descriptor_limit();
        // Registered before the broker starts, so that an early signal is not lost.
        let mut signals = match Signals::new(SIGNALS) {
            Ok(signals) => signals,
            Err(error) => return fail(&format!("cannot handle signals: {error}"), 1),
        };
        // A file beyond RLIMIT_FSIZE is an error of the write, not the end of the process.
        if let Err(error) = flag::register(SIGXFSZ, Arc::default()) {
            return fail(&format!("cannot handle signals: {error}"), 1);
        }
        let is_at_terminal = std::io::stdin().is_terminal() || std::io::stderr().is_terminal();
        if self.stop_with_stdin
            && let Err(error) = supervisor::stop_with_stdin()
        {
            return fail(&format!("cannot start threads: {error}"), 1);
        }
        let mut doctor = Doctor::new(statements);
        let additions = Additions {
            recovery: RecoveryConfig {
                recover_metadata: self.recover_metadata,
                accept_loss: self.accept_loss.into_iter().collect(),
            },
            add_scram: self.add_scram,
            console: Some(console::console(doctor.shared_collector())),
            ..doctor.additions()
        };
        let broker = match Broker::start_with(&properties, additions) {
            Ok(broker) => broker,
            Err(error @ StartError::Config(_)) => return fail(&error.to_string(), 2),
            Err(error) => return fail(&error.to_string(), 1),
        };
        if let Err(error) = doctor.watch(broker.activity(), doctor::READ_INTERVAL) {
            return fail(&format!("cannot start threads: {error}"), 1);
        }
        let mut output = std::io::stdout();
        // A closed standard output does not stop the broker.
        let _ = writeln!(output, "{}", broker.ready_line()).and_then(|()| output.flush());
        notify(State::Ready);
        wait_for_stop(&mut signals, is_at_terminal, || broker.reload_tls());
        notify(State::Stopping);
        stop(broker, signals, Instant::now())
    }
}

/// What is handled. The last three stop a process that does not handle them; a JVM prints its
/// threads at SIGQUIT and goes on, and so people send it to Kafka.
const SIGNALS: [i32; 6] = [SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2];

/// Waits for the signal to stop. SIGHUP has the broker read the files of TLS again, except at a
/// terminal, where it means that the terminal is gone.
fn wait_for_stop(signals: &mut Signals, is_at_terminal: bool, reload_tls: impl Fn()) {
    for signal in signals.forever() {
        match signal {
            SIGHUP if !is_at_terminal => {
                info!(signal, "reading the files of TLS again");
                reload_tls();
            }
            SIGQUIT | SIGUSR1 | SIGUSR2 => {
                warn!(
                    signal,
                    "this signal means nothing to a broker: it goes on (SIGTERM stops it)"
                );
            }
            _ => {
                info!(signal, "stopping");
                return;
            }
        }
    }
}

/// Signals within this time are one stop: a supervisor may signal a process and its group.
const ONE_STOP: Duration = Duration::from_secs(1);

/// Stops cleanly, however often a supervisor asks: an interrupted stop would only make the next
/// start longer, and SIGKILL is there for who wants that. Ctrl-C again, later than `ONE_STOP` after
/// the first signal, ends the process at once: at a terminal a person waits.
fn stop(broker: impl Send + 'static, mut signals: Signals, first: Instant) -> ExitCode {
    let handle = signals.handle();
    let (stopped, is_stopped) = mpsc::channel();
    let work = move || {
        drop(broker);
        let _ = stopped.send(());
        handle.close();
    };
    // Without a thread the work is dropped, and the broker with it: it stops here.
    if let Err(error) = std::thread::Builder::new().spawn(work) {
        warn!(%error, "stopped without a thread for it");
        return ExitCode::SUCCESS;
    }
    let mut is_told = false;
    for signal in signals.forever().skip_while(|_| first.elapsed() < ONE_STOP) {
        if signal == SIGINT {
            warn!(signal, "stopped at once by a second signal");
            return ExitCode::from(1);
        }
        if !is_told {
            info!(signal, "still stopping: another signal does not hurry it");
            is_told = true;
        }
    }
    // The iterator ends when the handle is closed: after the stop, or because that panicked.
    match is_stopped.recv() {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => fail("stopping failed", 1),
    }
}

fn fail(problem: &str, status: u8) -> ExitCode {
    eprintln!("ottla serve: {problem}");
    ExitCode::from(status)
}

pub(super) fn start_log() {
    let wanted = std::env::var(LOG_VARIABLE).unwrap_or_default();
    let filter: Targets = wanted.parse().unwrap_or_default();
    let filter = if wanted.is_empty() {
        filter.with_default(tracing::Level::INFO)
    } else {
        filter
    };
    let lines = lines(std::io::stderr, std::io::stderr().is_terminal());
    tracing_subscriber::registry().with(filter).with(lines).init();
}

/// Returns the layer that writes log lines: time, level, message, fields.
fn lines<S, W>(to: W, is_coloured: bool) -> impl Layer<S>
where
    S: Subscriber + for<'span> LookupSpan<'span>,
    W: for<'writer> MakeWriter<'writer> + 'static,
{
    tracing_subscriber::fmt::layer()
        .fmt_fields(log_line::Fields)
        .with_writer(to)
        .with_ansi(is_coloured)
        .with_target(false)
}

/// Raises the soft limit of descriptors, often 1,024, to the hard limit: connections and segments
/// need one each.
fn raise_descriptor_limit() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    if let Err(error) = setrlimit(Resource::Nofile, limit) {
        warn!(%error, "the limit of open files cannot be raised");
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, Sender};
    use std::thread::{JoinHandle, spawn};

    use super::*;

    /// A broker whose stop takes until the other end of the channel is dropped.
    struct Slow(Receiver<()>);

    impl Drop for Slow {
        fn drop(&mut self) {
            let _ = self.0.recv();
        }
    }

    struct Lines(Sender<String>);

    impl Write for Lines {
        fn write(&mut self, line: &[u8]) -> std::io::Result<usize> {
            let _ = self.0.send(String::from_utf8_lossy(line).into_owned());
            Ok(line.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    fn stop_slowly() -> (Sender<()>, Receiver<String>, JoinHandle<ExitCode>) {
        let signals = Signals::new([SIGTERM, SIGINT, SIGHUP]).unwrap();
        let first = Instant::now().checked_sub(2 * ONE_STOP).unwrap();
        let (release, held) = mpsc::channel();
        let (to, said) = mpsc::channel();
        let log = tracing_subscriber::registry().with(lines(move || Lines(to.clone()), false));
        let stopping =
            spawn(move || tracing::subscriber::with_default(log, || stop(Slow(held), signals, first)));
        (release, said, stopping)
    }

    fn is(status: ExitCode, expected: ExitCode) -> bool {
        format!("{status:?}") == format!("{expected:?}")
    }

    /// On this thread, so that it has arrived when this returns.
    fn raise(signal: i32) {
        signal_hook::low_level::raise(signal).unwrap();
    }

    /// A second SIGTERM ended the process in the middle of the stop. One test, because signals are
    /// those of the whole process.
    #[test]
    fn a_second_sigterm_leaves_the_stop_as_it_is_and_a_second_ctrl_c_ends_it() {
        let (release, said, stopping) = stop_slowly();
        raise(SIGTERM);
        let line = said.recv().unwrap();
        assert!(line.contains("still stopping"), "{line}");
        raise(SIGTERM);
        raise(SIGHUP);
        drop(release);
        assert!(is(stopping.join().unwrap(), ExitCode::SUCCESS));
        assert_eq!(said.iter().count(), 0, "it is said once");

        let (release, said, stopping) = stop_slowly();
        raise(SIGINT);
        assert!(is(stopping.join().unwrap(), ExitCode::from(1)));
        assert!(said.recv().unwrap().contains("stopped at once"));
        drop(release);
    }
}
