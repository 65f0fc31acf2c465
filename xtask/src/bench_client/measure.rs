//! One run: a contender's process from its start to its report, measured from outside.

use super::case::{BUFFER_BYTES, Case, Consume, Kind, Produce, Settings};
use super::contender::{Contender, Programs};
use super::latency::{self, Latencies};
use super::process::{cpu_seconds, peak_memory_mib};
use super::{Broker, payload};
use crate::interop::toolchain;
use anyhow::{Context, Result, bail, ensure};
use ottla_lab::numbers::number;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, Instant};

/// A phase that takes longer counts as hung.
const LIMIT: Duration = Duration::from_secs(120);

/// The result of one run.
#[derive(Clone, Debug, Default)]
pub struct Run {
    pub rate: f64,
    /// CPU seconds per million records.
    pub client_cpu: f64,
    pub broker_cpu: f64,
    pub peak_mib: f64,
    pub seconds: f64,
    pub latencies: Option<Latencies>,
    pub version: String,
    /// Why this run is invalid; empty if it is valid.
    pub invalid: Vec<String>,
    pub raw: Value,
}

/// A process with a line protocol.
struct Talk {
    child: Child,
    input: ChildStdin,
    lines: Receiver<String>,
}

impl Talk {
    fn start(programs: &Programs, contender: Contender, words: &[String]) -> Result<Talk> {
        let logs = toolchain::cargo_target().join("bench-client/logs");
        fs::create_dir_all(&logs)?;
        let mut child = programs
            .command(contender)
            .args(words)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(File::create(logs.join(format!("{}.err", contender.name())))?)
            .spawn()
            .with_context(|| format!("cannot start {}", contender.name()))?;
        let input = child.stdin.take().context("the contender's input")?;
        let output = child.stdout.take().context("the contender's output")?;
        let (sender, lines) = mpsc::channel();
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(std::result::Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        Ok(Talk { child, input, lines })
    }

    fn line(&mut self) -> Result<String> {
        match self.lines.recv_timeout(LIMIT) {
            Ok(line) => Ok(line),
            Err(mpsc::RecvTimeoutError::Timeout) => bail!("no answer within {} s", LIMIT.as_secs()),
            Err(mpsc::RecvTimeoutError::Disconnected) => {
                bail!("ended early with {}", self.child.wait()?)
            }
        }
    }

    fn expect(&mut self, word: &str) -> Result<()> {
        let line = self.line()?;
        ensure!(line == word, "said {line:?} instead of {word:?}");
        Ok(())
    }

    fn go_on(&mut self) -> Result<()> {
        self.input.write_all(b"go\n").context("the contender is gone")
    }

    fn end(mut self) -> Result<()> {
        let status = self.child.wait()?;
        ensure!(status.success(), "ended with {status}");
        Ok(())
    }
}

impl Drop for Talk {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Runs `contender` under `case`. A contender's failure makes the run invalid and is not an error.
pub fn run(programs: &Programs, broker: &Broker, case: &Case, contender: Contender) -> Result<Run> {
    match &case.kind {
        Kind::Produce(produce) => {
            let topic = format!("{}-{}", case.key, contender.name());
            let slow = produce.slow.map(|_| format!("{topic}-slow"));
            let topics = slow
                .iter()
                .fold(topic.clone(), |all, slow| format!("{all},{slow}"));
            let bootstrap = broker.server.bootstrap();
            programs.errand("create", &bootstrap, &topics, partitions(produce))?;
            let outcome = produce_once(programs, broker, produce, contender, &topic);
            let outcome = outcome.and_then(|mut run| {
                let ends = programs.errand("ends", &bootstrap, &topic, 0)?;
                check_ends(&mut run, ends.trim().parse()?);
                Ok(run)
            });
            programs.errand("delete", &bootstrap, &topics, 0)?;
            Ok(or_invalid(outcome, contender))
        }
        Kind::Consume(consume) => Ok(or_invalid(
            consume_once(programs, broker, consume, contender, &case.key),
            contender,
        )),
    }
}

fn or_invalid(outcome: Result<Run>, contender: Contender) -> Run {
    outcome.unwrap_or_else(|error| {
        let log = toolchain::cargo_target().join(format!("bench-client/logs/{}.err", contender.name()));
        let text = fs::read_to_string(log).unwrap_or_default();
        Run {
            invalid: vec![format!("{error:#}; {}", toolchain::end_of(&text).trim())],
            ..Run::default()
        }
    })
}

fn partitions(produce: &Produce) -> u64 {
    if produce.is_shared { 1 } else { produce.threads }
}

fn produce_once(
    programs: &Programs,
    broker: &Broker,
    produce: &Produce,
    contender: Contender,
    topic: &str,
) -> Result<Run> {
    let latency_file = toolchain::cargo_target().join("bench-client/latencies");
    let mut words = vec!["produce".to_string()];
    let mut word = |key: &str, value: &dyn std::fmt::Display| words.push(format!("{key}={value}"));
    word("bootstrap", &broker.server.bootstrap());
    word("topic", &topic);
    word("threads", &produce.threads);
    word("partitions", &partitions(produce));
    word("records", &produce.records);
    word("warmup", &produce.warmup);
    word("bytes", &produce.bytes);
    word(
        "payloads",
        &payload::file(produce.bytes, produce.content)?.display(),
    );
    word("compression", &produce.compression);
    if let Settings::Equal {
        batch_bytes,
        linger_ms,
    } = produce.settings
    {
        word("batch", &batch_bytes);
        word("linger", &linger_ms);
        word("buffer", &BUFFER_BYTES);
    }
    if let Some(slow) = produce.slow {
        word("slow_topic", &format!("{topic}-slow"));
        word("slow_rate", &slow.rate);
        word("callback_sleep_ms", &slow.sleep_ms);
    }
    word("answers", &produce.answers.name());
    if produce.rate > 0 {
        word("rate", &produce.rate);
        word("latency_file", &latency_file.display());
    }
    let (mut run, report) = watch(programs, broker, contender, &words, produce.stall_ms)?;
    let count = |name: &str| report[name].as_f64().unwrap_or(f64::NAN);
    account(&mut run, count("acknowledged"));
    for (name, expected) in [
        ("sent", produce.records),
        ("acknowledged", produce.records),
        ("warmup_acknowledged", produce.warmup),
    ] {
        if count(name) != expected as f64 {
            run.invalid.push(format!("{name}: {} of {expected}", count(name)));
        }
    }
    for name in ["failed", "answered_twice"] {
        if count(name) != 0.0 {
            let error = report["first_error"].as_str().unwrap_or_default();
            run.invalid.push(format!("{name}: {} {error}", count(name)));
        }
    }
    if produce.rate > 0 {
        let latencies = latency::read(&latency_file, produce.records as usize)?;
        if latencies.late_p99_ms > 5.0 {
            run.invalid.push(format!(
                "1 % of the records were sent more than {} ms late",
                number(latencies.late_p99_ms)
            ));
        }
        let schedule = produce.records as f64 / produce.rate as f64;
        if run.seconds > schedule * 1.02 + 0.5 {
            run.invalid.push(format!(
                "schedule not held: {} s for one of {} s",
                number(run.seconds),
                number(schedule)
            ));
        }
        run.latencies = Some(latencies);
    }
    Ok(run)
}

fn consume_once(
    programs: &Programs,
    broker: &Broker,
    consume: &Consume,
    contender: Contender,
    topic: &str,
) -> Result<Run> {
    let words = [
        "consume".to_string(),
        format!("bootstrap={}", broker.server.bootstrap()),
        format!("topic={topic}"),
        format!("partitions={}", consume.partitions),
        format!("records={}", consume.records),
        format!("passes={}", consume.passes),
    ];
    let (mut run, report) = watch(programs, broker, contender, &words, 0)?;
    let count = |name: &str| report[name].as_f64().unwrap_or(f64::NAN);
    account(&mut run, count("received"));
    let expected = consume.records * consume.passes;
    for (name, expected) in [
        ("received", expected),
        ("value_bytes", expected * consume.bytes as u64),
        ("disordered", 0),
    ] {
        if count(name) != expected as f64 {
            run.invalid
                .push(format!("{name}: {}, expected {expected}", count(name)));
        }
    }
    Ok(run)
}

/// Writes the records for the consumer cases; any contender can write them.
pub fn fill(programs: &Programs, broker: &Broker, consume: &Consume, topic: &str) -> Result<()> {
    programs.errand("create", &broker.server.bootstrap(), topic, consume.partitions)?;
    let payloads = payload::file(consume.bytes, super::case::Content::Json)?;
    let words = [
        "produce".to_string(),
        format!("bootstrap={}", broker.server.bootstrap()),
        format!("topic={topic}"),
        format!("threads={}", consume.partitions),
        format!("partitions={}", consume.partitions),
        format!("records={}", consume.records),
        "warmup=0".to_string(),
        format!("bytes={}", consume.bytes),
        format!("payloads={}", payloads.display()),
        format!("compression={}", consume.compression),
        "batch=131072".to_string(),
        "linger=5".to_string(),
        format!("buffer={BUFFER_BYTES}"),
    ];
    let (_, report) = watch(programs, broker, Contender::FranzGo, &words, 0)?;
    ensure!(report["failed"] == json!(0), "filling {topic}: {report}");
    let ends = programs.errand("ends", &broker.server.bootstrap(), topic, 0)?;
    ensure!(ends.trim() == consume.records.to_string(), "{topic} holds {ends}");
    Ok(())
}

/// Runs the handshake. CPU time is read between the lines, memory at the end of the measured part.
fn watch(
    programs: &Programs,
    broker: &Broker,
    contender: Contender,
    words: &[String],
    stall_ms: u64,
) -> Result<(Run, Value)> {
    let mut talk = Talk::start(programs, contender, words)?;
    let (client, server) = (talk.child.id(), broker.server.pid());
    talk.expect("ready")?;
    let before = (cpu_seconds(client)?, cpu_seconds(server)?);
    let begun = Instant::now();
    talk.go_on()?;
    if stall_ms > 0 {
        stall(server, stall_ms)?;
    }
    talk.expect("done")?;
    let elapsed = begun.elapsed().as_secs_f64();
    let after = (cpu_seconds(client)?, cpu_seconds(server)?);
    let peak_mib = peak_memory_mib(client)?;
    talk.go_on()?;
    let report: Value = serde_json::from_str(&talk.line()?).context("the contender's report")?;
    talk.end()?;
    let (client_seconds, broker_seconds) = (after.0 - before.0, after.1 - before.1);
    let run = Run {
        seconds: report["seconds"].as_f64().context("seconds in the report")?,
        client_cpu: client_seconds,
        broker_cpu: broker_seconds,
        peak_mib,
        version: report["version"].as_str().unwrap_or_default().to_string(),
        raw: json!({"report": report, "client_cpu_s": client_seconds, "broker_cpu_s": broker_seconds,
            "client_peak_mib": peak_mib, "watched_seconds": elapsed}),
        ..Run::default()
    };
    Ok((run, report))
}

/// Converts totals to values per million records.
fn account(run: &mut Run, records: f64) {
    run.rate = records / run.seconds;
    run.client_cpu /= records / 1e6;
    run.broker_cpu /= records / 1e6;
}

/// Checks that the log has exactly the acknowledged records: more is a duplicate, fewer a loss.
fn check_ends(run: &mut Run, end: u64) {
    let report = &run.raw["report"];
    let acknowledged =
        report["acknowledged"].as_u64().unwrap_or(0) + report["warmup_acknowledged"].as_u64().unwrap_or(0);
    if end != acknowledged {
        run.invalid
            .push(format!("acknowledged {acknowledged}, but the log holds {end}"));
    }
}

fn stall(broker: u32, milliseconds: u64) -> Result<()> {
    let pid = Pid::from_raw(i32::try_from(broker)?).context("the broker's process id")?;
    std::thread::sleep(Duration::from_millis(100));
    kill_process(pid, Signal::STOP).context("stopping the broker")?;
    std::thread::sleep(Duration::from_millis(milliseconds));
    kill_process(pid, Signal::CONT).context("letting the broker go on")
}
