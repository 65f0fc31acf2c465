//! `cargo xtask partitions`: many partitions with a small limit of file descriptors.
//!
//! Creates them, writes a record to each and reads it back, kills the broker, restarts it, writes
//! and reads again, stops and starts it cleanly. A partition that does not accept or return its
//! record fails the run. Prints times, memory and open descriptors.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use ottla_client::admin::{Admin, NewTopic};
use ottla_client::config::Config;
use ottla_client::consumer::{Consumer, TopicPartition};
use ottla_client::producer::{Producer, Record};
use ottla_lab::numbers::{count, number};
use rustix::process::{Pid, Signal, kill_process};

use crate::bench_kafka::machine::memory_mib;
use crate::interop::toolchain;

/// A step that takes longer counts as hung, even on a slow machine.
const STEP_MAX: Duration = Duration::from_secs(1_200);

struct Options {
    partitions: usize,
    topic_partitions: usize,
    descriptors: u32,
    durability: String,
}

fn parse(arguments: &[String]) -> Result<Options> {
    let mut options = Options {
        partitions: 20_000,
        topic_partitions: 1_000,
        descriptors: 4_096,
        durability: "disk".to_owned(),
    };
    for pair in arguments.chunks(2) {
        let [name, value] = pair else {
            bail!("{} wants a value", pair[0])
        };
        match name.as_str() {
            "--partitions" => options.partitions = value.parse().context("--partitions")?,
            "--per-topic" => options.topic_partitions = value.parse().context("--per-topic")?,
            "--descriptors" => options.descriptors = value.parse().context("--descriptors")?,
            "--durability" => options.durability.clone_from(value),
            _ => bail!("unknown argument {name}"),
        }
    }
    ensure!(
        options.partitions > 0 && options.topic_partitions > 0,
        "--partitions and --per-topic must be at least 1"
    );
    Ok(options)
}

pub fn run(arguments: &[String]) -> Result<()> {
    let options = parse(arguments)?;
    let program = toolchain::build_ottla()?;
    let home = toolchain::target_directory().join("data/partitions");
    if home.exists() {
        fs::remove_dir_all(&home).with_context(|| format!("removing {}", home.display()))?;
    }
    fs::create_dir_all(&home)?;
    let site = Site {
        program,
        home,
        options,
    };
    println!(
        "{} partitions in topics of {}, {} descriptors, durability {}",
        site.options.partitions,
        site.options.topic_partitions,
        site.options.descriptors,
        site.options.durability
    );
    let broker = site.timed_start("start, empty")?;
    create(&site, &broker)?;
    broker.print_state("after creation")?;
    write(&site, &broker, "first")?;
    read(&site, &broker, 1)?;
    broker.print_state("after the first records")?;
    broker.kill()?;

    let broker = site.timed_start("start after kill -9")?;
    broker.print_state("after that start")?;
    write(&site, &broker, "second")?;
    read(&site, &broker, 2)?;
    broker.stop("SIGTERM to exit, records since the start")?;

    let broker = site.timed_start("start after a clean stop")?;
    broker.stop("SIGTERM to exit, nothing since the start")?;

    let broker = site.timed_start("start after a clean stop")?;
    read(&site, &broker, 2)?;
    broker.stop("SIGTERM to exit, only reads since the start")?;
    fs::remove_dir_all(&site.home)?;
    println!("every partition accepted and returned its records");
    Ok(())
}

struct Site {
    program: PathBuf,
    home: PathBuf,
    options: Options,
}

impl Site {
    fn log(&self) -> PathBuf {
        self.home.join("broker.log")
    }

    /// Returns every topic with its number of partitions.
    fn topics(&self) -> Vec<(String, usize)> {
        let (all, each) = (self.options.partitions, self.options.topic_partitions);
        (0..all.div_ceil(each))
            .map(|index| (format!("topic-{index:05}"), each.min(all - index * each)))
            .collect()
    }

    fn timed_start(&self, step: &str) -> Result<Broker> {
        let started = Instant::now();
        let broker = self.start()?;
        print_time(step, started);
        Ok(broker)
    }

    fn start(&self) -> Result<Broker> {
        let limit = self.options.descriptors;
        let log = fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(self.log())?;
        let overrides = [
            format!("log.dirs={}", self.home.join("logs").display()),
            format!("ottla.durability={}", self.options.durability),
            "listeners=PLAINTEXT://127.0.0.1:0".to_owned(),
            "ottla.admin.listener=127.0.0.1:0".to_owned(),
        ];
        let mut command = Command::new("sh");
        // The hard limit too, because the broker raises the soft limit to it.
        command
            .args(["-c", &format!("ulimit -n {limit} && exec \"$@\""), "sh"])
            .arg(&self.program)
            .arg("serve");
        for setting in &overrides {
            command.args(["--override", setting]);
        }
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()
            .context("cannot start the broker")?;
        let output = child.stdout.take().context("standard output is piped")?;
        let mut line = String::new();
        BufReader::new(output).read_line(&mut line)?;
        let bootstrap = line
            .split("PLAINTEXT://")
            .nth(1)
            .and_then(|rest| rest.split_whitespace().next())
            .map(str::to_owned);
        // From here on it is killed when dropped, even if it did not start.
        let broker = Broker { child, bootstrap };
        ensure!(
            broker.bootstrap.is_some(),
            "the broker did not start:\n{}",
            self.log_tail()
        );
        Ok(broker)
    }

    fn log_tail(&self) -> String {
        let text = fs::read_to_string(self.log()).unwrap_or_default();
        toolchain::end_of(&text).to_owned()
    }
}

struct Broker {
    child: Child,
    bootstrap: Option<String>,
}

impl Broker {
    fn config(&self) -> Config {
        let bootstrap = self.bootstrap.clone().unwrap_or_default();
        Config::new()
            .set("bootstrap.servers", bootstrap)
            .set("default.api.timeout.ms", STEP_MAX.as_millis())
            .set("request.timeout.ms", STEP_MAX.as_millis())
    }

    fn print_state(&self, when: &str) -> Result<()> {
        let pid = self.child.id();
        let descriptors = fs::read_dir(format!("/proc/{pid}/fd"))?.count();
        println!(
            "  {when}: {} MiB resident, {} descriptors",
            number(memory_mib(pid, "VmRSS")?),
            count(descriptors as u64)
        );
        Ok(())
    }

    fn kill(mut self) -> Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }

    fn stop(mut self, step: &str) -> Result<()> {
        let started = Instant::now();
        kill_process(Pid::from_child(&self.child), Signal::TERM)?;
        let status = self.child.wait()?;
        print_time(step, started);
        ensure!(status.success(), "the broker did not stop cleanly: {status}");
        Ok(())
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn print_time(step: &str, started: Instant) {
    println!("{:>8.2} s  {step}", started.elapsed().as_secs_f64());
}

/// Creates the topics, one request each.
fn create(site: &Site, broker: &Broker) -> Result<()> {
    let admin = Admin::new(&broker.config())?;
    let started = Instant::now();
    for (name, count) in site.topics() {
        let topic = NewTopic::new(&name).partitions(i32::try_from(count)?);
        for (name, result) in admin.create_topics(vec![topic]).wait()? {
            result.with_context(|| format!("creating {name}"))?;
        }
    }
    print_time("creation", started);
    Ok(())
}

/// Writes one record to each partition and waits for the acknowledgements.
fn write(site: &Site, broker: &Broker, value: &str) -> Result<()> {
    let config = broker
        .config()
        .set("batch.size", 1_024)
        .set("delivery.timeout.ms", STEP_MAX.as_millis() * 2);
    let producer = Producer::new(&config)?;
    let failures: Arc<Mutex<BTreeMap<String, usize>>> = Arc::default();
    let started = Instant::now();
    for (topic, count) in site.topics() {
        for partition in 0..count {
            let record = Record::new(&topic)
                .partition(i32::try_from(partition)?)
                .value(value);
            let failures = Arc::clone(&failures);
            producer.send_with(&record, move |result| {
                if let Err(error) = result {
                    let mut failures = failures.lock().expect("no callback panics");
                    *failures.entry(error.to_string()).or_default() += 1;
                }
            })?;
        }
    }
    producer.flush()?;
    print_time(&format!("{value} record to each"), started);
    let failures = failures.lock().expect("no callback panics");
    ensure!(
        failures.is_empty(),
        "records were refused: {failures:?}\n{}",
        site.log_tail()
    );
    Ok(())
}

/// Reads every partition from its beginning until each has given `records_each`.
fn read(site: &Site, broker: &Broker, records_each: usize) -> Result<()> {
    let config = broker
        .config()
        .set("auto.offset.reset", "earliest")
        .set("enable.auto.commit", false);
    let mut consumer = Consumer::new(&config)?;
    let mut missing: BTreeSet<TopicPartition> = site
        .topics()
        .iter()
        .flat_map(|(topic, count)| (0..*count).map(|index| TopicPartition::new(topic.as_str(), index as i32)))
        .collect();
    consumer.assign(missing.iter().cloned())?;
    let mut seen: BTreeMap<TopicPartition, usize> = BTreeMap::new();
    let started = Instant::now();
    while !missing.is_empty() {
        ensure!(
            started.elapsed() < STEP_MAX,
            "{} partitions returned no records, one of them {:?}\n{}",
            missing.len(),
            missing.first(),
            site.log_tail()
        );
        for partition in consumer.poll(Duration::from_secs(1))?.partitions() {
            let count = seen.entry(partition.topic_partition().clone()).or_default();
            *count += partition.len();
            if *count >= records_each {
                missing.remove(partition.topic_partition());
            }
        }
    }
    let all: usize = seen.values().sum();
    let expected = site.options.partitions * records_each;
    ensure!(all == expected, "{all} records instead of {expected}");
    print_time(&format!("{records_each} record(s) of each read"), started);
    consumer.close(Duration::from_secs(30))?;
    Ok(())
}
