//! Groups with our members and Java's: each kind leads and follows, joins, leaves, dies, and
//! replaces the other.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use ottla_client::admin::{Admin, NewPartitions, NewTopic};
use ottla_client::config::Config;
use ottla_client::consumer::{Consumer, RebalanceListener, TopicPartition};
use ottla_client::producer::{Producer, Record};

use super::clients::{Client, Clients};
use super::server::Programs;
use super::table::Table;
use super::toolchain;

/// Timeout of a rebalance, including one after a member's death.
const SETTLE: Duration = Duration::from_secs(40);
const PARTITIONS: i32 = 6;
pub(super) const NEW_PROTOCOL: &str = "group.protocol=consumer";
const PACKAGE: &str = "org.apache.kafka.clients.consumer.";

/// The setting of an assignor of the classic protocol.
pub(super) fn strategy(assignor: &str) -> String {
    format!("partition.assignment.strategy={PACKAGE}{assignor}")
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Maker {
    Ours,
    Java,
    Librdkafka,
    FranzGo,
}

impl Maker {
    fn name(self) -> &'static str {
        match self {
            Ours => "ours",
            Java => "java",
            Maker::Librdkafka => "librdkafka",
            Maker::FranzGo => "franz-go",
        }
    }
}

use Maker::{Java, Ours};

/// A log of what a member has reported.
#[derive(Debug, Default)]
struct Diary {
    /// `None`: the client does not tell.
    generation: Option<i32>,
    owned: BTreeSet<String>,
    /// Partitions passed to the listener, in order.
    revoked: Vec<String>,
    lost: Vec<String>,
    /// The number of reads of each value.
    read: BTreeMap<String, u32>,
    failed: Option<String>,
    is_closed: bool,
}

struct Member {
    name: String,
    diary: Arc<Mutex<Diary>>,
    running: Running,
}

enum Running {
    Thread {
        stop: Arc<AtomicBool>,
        thread: Option<JoinHandle<()>>,
    },
    Process {
        child: Child,
        input: Option<ChildStdin>,
    },
}

fn lock(diary: &Mutex<Diary>) -> MutexGuard<'_, Diary> {
    diary.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(super) struct Bench<'a> {
    programs: &'a Programs,
    /// Where members of librdkafka and franz-go are wanted.
    clients: Option<&'a Clients>,
    bootstrap: &'a str,
    pub(super) group: String,
    pub(super) topic: String,
    members: Vec<Member>,
    started: u32,
    /// Values written so far.
    values: u32,
    /// Values that no departed member has read.
    written: BTreeSet<String>,
}

pub fn run(table: &mut Table, programs: &Programs, bootstrap: &str) -> Result<()> {
    let mut cases: Vec<(String, Result<()>)> = Vec::new();
    for assignor in [
        "RangeAssignor",
        "RoundRobinAssignor",
        "StickyAssignor",
        "CooperativeStickyAssignor",
    ] {
        for first in [Ours, Java] {
            let name = format!(
                "{assignor}, {} leads",
                if first == Ours { "ours" } else { "Java" }
            );
            cases.push((name.clone(), come_and_go(programs, bootstrap, assignor, first)));
        }
    }
    cases.push((
        "from eager to cooperative, member by member".into(),
        upgrade(programs, bootstrap),
    ));
    cases.push((
        "pattern, a new topic and new partitions".into(),
        pattern(programs, bootstrap),
    ));
    for (first, name) in [
        (Ours, "static member of ours replaced by Java's"),
        (Java, "static member of Java's replaced by ours"),
    ] {
        cases.push((name.into(), take_over_static(programs, bootstrap, first)));
    }
    for (name, outcome) in cases {
        let outcome = outcome.map_err(|error| format!("{error:#}"));
        println!(
            "groups: {name}: {}",
            outcome.as_ref().err().map_or("ok", String::as_str)
        );
        table.add_other(format!("groups: {name}"), outcome);
    }
    Ok(())
}

/// A member of the other kind joins and leaves, a third joins, one is killed; no record is lost,
/// and partitions that do not move are not read twice.
fn come_and_go(programs: &Programs, bootstrap: &str, assignor: &str, first: Maker) -> Result<()> {
    let second = if first == Ours { Java } else { Ours };
    let is_cooperative = assignor == "CooperativeStickyAssignor";
    let name = format!("mixed-{assignor}-{first:?}");
    let mut bench = Bench::create(programs, bootstrap, &name)?;
    let setting = strategy(assignor);
    bench.join(first, &[&setting])?;
    bench.settle(&[6])?;
    bench.write(60)?;
    bench.all_read()?;
    bench.join(second, &[&setting])?;
    bench.settle(&[3, 3])?;
    if is_cooperative {
        let revoked = lock(&bench.members[0].diary).revoked.len();
        ensure!(
            revoked == 3,
            "a cooperative member gave up {revoked} partitions instead of 3"
        );
    }
    bench.write(60)?;
    bench.all_read()?;
    bench.join(first, &[&setting])?;
    bench.settle(&[2, 2, 2])?;
    bench.write(60)?;
    bench.all_read()?;
    bench.nothing_read_twice()?;
    // The leader leaves; the coordinator may choose either kind as the next leader.
    bench.close(0)?;
    bench.settle(&[3, 3])?;
    bench.write(60)?;
    bench.all_read()?;
    bench.nothing_read_twice()?;
    bench.join(second, &[&setting])?;
    bench.settle(&[2, 2, 2])?;
    // Java's member can be killed; ours runs in this process.
    let java = if second == Java { 0 } else { 1 };
    bench.kill(java)?;
    bench.settle(&[3, 3])?;
    bench.write(60)?;
    bench.all_read()?;
    bench.close_all()
}

/// Kafka's migration to cooperative rebalancing (KIP-429): first both assignors are offered, then
/// the old one is removed.
fn upgrade(programs: &Programs, bootstrap: &str) -> Result<()> {
    let mut bench = Bench::create(programs, bootstrap, "mixed-upgrade")?;
    let eager = strategy("RangeAssignor");
    let both =
        format!("partition.assignment.strategy={PACKAGE}CooperativeStickyAssignor,{PACKAGE}RangeAssignor");
    let cooperative = strategy("CooperativeStickyAssignor");
    bench.join(Java, &[&eager])?;
    bench.join(Ours, &[&eager])?;
    bench.settle(&[3, 3])?;
    for step in [&both, &cooperative] {
        for maker in [Java, Ours] {
            bench.close(0)?;
            bench.join(maker, &[step])?;
            bench.settle(&[3, 3])?;
            bench.write(30)?;
            bench.all_read()?;
        }
    }
    bench.nothing_read_twice()?;
    bench.close_all()
}

fn pattern(programs: &Programs, bootstrap: &str) -> Result<()> {
    let mut bench = Bench::create(programs, bootstrap, "mixed-pattern")?;
    let setting = strategy("CooperativeStickyAssignor");
    let settings = [setting.as_str(), "metadata.max.age.ms=1000"];
    let topics = "~mixed-pattern.*";
    bench.join_on(Ours, topics, &settings)?;
    bench.join_on(Java, topics, &settings)?;
    bench.settle(&[3, 3])?;
    create(bootstrap, "mixed-pattern-more", 2)?;
    bench.settle(&[4, 4])?;
    let admin = admin(bootstrap)?;
    let more = BTreeMap::from([("mixed-pattern".to_string(), NewPartitions::to(8))]);
    for (topic, result) in admin.create_partitions(more).wait()? {
        result.with_context(|| format!("growing {topic}"))?;
    }
    bench.settle(&[5, 5])?;
    bench.write(40)?;
    bench.all_read()?;
    bench.nothing_read_twice()?;
    bench.close_all()
}

/// The instance id moves from one client to the other without a rebalance; the previous owner is
/// fenced.
fn take_over_static(programs: &Programs, bootstrap: &str, first: Maker) -> Result<()> {
    let second = if first == Ours { Java } else { Ours };
    let mut bench = Bench::create(programs, bootstrap, &format!("mixed-static-{first:?}"))?;
    let setting = strategy("RangeAssignor");
    bench.join(first, &[&setting, "group.instance.id=one"])?;
    bench.join(second, &[&setting, "group.instance.id=two"])?;
    bench.settle(&[3, 3])?;
    bench.write(60)?;
    bench.all_read()?;
    let before = bench.generation(1);
    let owned = lock(&bench.members[0].diary).owned.clone();
    bench.join(second, &[&setting, "group.instance.id=one"])?;
    bench.wait("the fenced member to fail", |members| {
        lock(&members[0].diary).failed.is_some()
    })?;
    let failed = lock(&bench.members[0].diary).failed.clone().unwrap_or_default();
    ensure!(
        failed
            .to_lowercase()
            .replace('_', "")
            .contains("fencedinstanceid"),
        "the fenced member failed with {failed}"
    );
    bench.forget(0);
    bench.settle(&[3, 3])?;
    ensure!(bench.generation(0) == before, "the group was rebalanced");
    let inherited = lock(&bench.members[1].diary).owned.clone();
    ensure!(inherited == owned, "{inherited:?} instead of {owned:?}");
    bench.write(60)?;
    bench.all_read()?;
    bench.close_all()
}

impl<'a> Bench<'a> {
    pub(super) fn create(programs: &'a Programs, bootstrap: &'a str, name: &str) -> Result<Bench<'a>> {
        create(bootstrap, name, PARTITIONS)?;
        Ok(Bench {
            programs,
            clients: None,
            bootstrap,
            group: format!("{name}-group"),
            topic: name.to_string(),
            members: Vec::new(),
            started: 0,
            values: 0,
            written: BTreeSet::new(),
        })
    }

    /// With members of librdkafka and franz-go.
    pub(super) fn with(self, clients: &'a Clients) -> Bench<'a> {
        Bench {
            clients: Some(clients),
            ..self
        }
    }

    pub(super) fn join(&mut self, maker: Maker, settings: &[&str]) -> Result<()> {
        let topic = self.topic.clone();
        self.join_on(maker, &topic, settings)
    }

    /// - `topics`: comma-separated names, or a pattern after `~`.
    pub(super) fn join_on(&mut self, maker: Maker, topics: &str, settings: &[&str]) -> Result<()> {
        self.started += 1;
        let name = format!("{} {}", maker.name(), self.started);
        let group = format!("group.id={}", self.group);
        // With the protocol of KIP-848 the broker sets these.
        let timeouts: &[&str] = match settings.contains(&NEW_PROTOCOL) {
            true => &[],
            false => &["session.timeout.ms=6000", "heartbeat.interval.ms=300"],
        };
        let common = [
            group.as_str(),
            "auto.offset.reset=earliest",
            "enable.auto.commit=true",
            "auto.commit.interval.ms=200",
        ];
        let settings: Vec<String> = common
            .iter()
            .chain(timeouts)
            .chain(settings)
            .map(ToString::to_string)
            .collect();
        let diary: Arc<Mutex<Diary>> = Arc::default();
        let running = match self.program(maker)? {
            None => start_ours(self.bootstrap, topics, &settings, diary.clone())?,
            Some(mut command) => {
                command.args(["member", self.bootstrap, topics]).args(&settings);
                start_process(command, diary.clone(), &self.group)?
            }
        };
        self.members.push(Member { name, diary, running });
        Ok(())
    }

    /// - Returns: `None`: ours, which runs in this process.
    fn program(&self, maker: Maker) -> Result<Option<Command>> {
        let of = |client| {
            let clients = self.clients.context("this bench has no other clients")?;
            Ok(Some(clients.command(&self.programs.kafka, client)))
        };
        match maker {
            Ours => Ok(None),
            Java => Ok(Some(self.programs.kafka.java(64, "interop.Main"))),
            Maker::Librdkafka => of(Client::Librdkafka),
            Maker::FranzGo => of(Client::FranzGo),
        }
    }

    fn wait(&self, what: &str, is_done: impl Fn(&[Member]) -> bool) -> Result<()> {
        let started = Instant::now();
        while !is_done(&self.members) {
            if started.elapsed() > SETTLE {
                let diaries = self.members.iter().map(|member| {
                    let diary = lock(&member.diary);
                    format!(
                        "{}: generation {:?}, {:?}, {} values{}",
                        member.name,
                        diary.generation,
                        diary.owned,
                        diary.read.len(),
                        diary
                            .failed
                            .as_ref()
                            .map(|error| format!(", failed: {error}"))
                            .unwrap_or_default()
                    )
                });
                bail!(
                    "waited {} s for {what}: {}",
                    SETTLE.as_secs(),
                    diaries.collect::<Vec<_>>().join("; ")
                );
            }
            thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    /// Waits until the members own these numbers of partitions, without overlap, in one generation.
    pub(super) fn settle(&self, counts: &[usize]) -> Result<()> {
        self.wait(&format!("an assignment of {counts:?}"), |members| {
            let mut owned: BTreeSet<String> = BTreeSet::new();
            let mut found: Vec<usize> = Vec::new();
            let mut generations: BTreeSet<i32> = BTreeSet::new();
            for member in members {
                let diary = lock(&member.diary);
                found.push(diary.owned.len());
                generations.extend(diary.generation);
                owned.extend(diary.owned.iter().cloned());
            }
            found.sort_unstable();
            found == counts && owned.len() == counts.iter().sum::<usize>() && generations.len() <= 1
        })
    }

    /// The partitions of a member.
    pub(super) fn place(&self, index: usize) -> BTreeSet<String> {
        lock(&self.members[index].diary).owned.clone()
    }

    fn generation(&self, index: usize) -> Option<i32> {
        lock(&self.members[index].diary).generation
    }

    /// Writes values to all partitions in turn.
    pub(super) fn write(&mut self, count: usize) -> Result<()> {
        let producer = Producer::new(&Config::new().set("bootstrap.servers", self.bootstrap))?;
        let mut sent = Vec::new();
        for number in 0..count {
            let value = self.values.to_string();
            self.values += 1;
            let partition = number as i32 % PARTITIONS;
            sent.push(producer.send(&Record::new(&self.topic).partition(partition).value(&value))?);
            self.written.insert(value);
        }
        for future in sent {
            future.wait()?;
        }
        producer.close(Duration::from_secs(10))?;
        Ok(())
    }

    /// Waits until every value was read by some member, which may have left.
    pub(super) fn all_read(&mut self) -> Result<()> {
        let written = self.written.clone();
        self.wait("all values to be read", |members| {
            let mut read: BTreeSet<String> = BTreeSet::new();
            for member in members {
                read.extend(lock(&member.diary).read.keys().cloned());
            }
            written.is_subset(&read)
        })
    }

    /// Checks that no value was read twice: members that are revoked in time hand over their
    /// positions by
    /// commits.
    pub(super) fn nothing_read_twice(&self) -> Result<()> {
        let mut read: BTreeMap<String, u32> = BTreeMap::new();
        for member in &self.members {
            for (value, times) in &lock(&member.diary).read {
                *read.entry(value.clone()).or_default() += times;
            }
        }
        let twice = read.values().filter(|times| **times > 1).count();
        ensure!(twice == 0, "{twice} values were read more than once");
        Ok(())
    }

    pub(super) fn close(&mut self, index: usize) -> Result<()> {
        let member = &mut self.members[index];
        member.stop()?;
        let diary = lock(&member.diary);
        ensure!(
            diary.failed.is_none(),
            "{} failed: {:?}",
            member.name,
            diary.failed
        );
        ensure!(diary.lost.is_empty(), "{} lost {:?}", member.name, diary.lost);
        drop(diary);
        self.forget(index);
        Ok(())
    }

    /// Removes a member's values from those that others must read.
    fn forget(&mut self, index: usize) {
        let member = self.members.remove(index);
        let diary = lock(&member.diary);
        self.written.retain(|value| !diary.read.contains_key(value));
    }

    pub(super) fn kill(&mut self, index: usize) -> Result<()> {
        let member = &mut self.members[index];
        let Running::Process { child, .. } = &mut member.running else {
            bail!("{} runs in this process", member.name);
        };
        child.kill()?;
        child.wait()?;
        self.forget(index);
        Ok(())
    }

    pub(super) fn close_all(&mut self) -> Result<()> {
        while !self.members.is_empty() {
            self.close(0)?;
        }
        Ok(())
    }
}

impl Member {
    fn stop(&mut self) -> Result<()> {
        match &mut self.running {
            Running::Thread { stop, thread } => {
                stop.store(true, Ordering::Release);
                if let Some(thread) = thread.take()
                    && thread.join().is_err()
                {
                    bail!("{} panicked", self.name);
                }
            }
            Running::Process { child, input } => {
                if let Some(mut input) = input.take() {
                    input.write_all(b"close\n")?;
                }
                let started = Instant::now();
                while child.try_wait()?.is_none() {
                    if started.elapsed() > SETTLE {
                        bail!("{} does not close", self.name);
                    }
                    thread::sleep(Duration::from_millis(20));
                }
            }
        }
        Ok(())
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        match &mut self.running {
            Running::Thread { stop, thread } => {
                stop.store(true, Ordering::Release);
                if let Some(thread) = thread.take() {
                    let _ = thread.join();
                }
            }
            Running::Process { child, .. } => {
                let _ = child.kill();
                let _ = child.wait();
            }
        }
    }
}

fn admin(bootstrap: &str) -> Result<Admin> {
    Ok(Admin::new(&Config::new().set("bootstrap.servers", bootstrap))?)
}

pub(super) fn create(bootstrap: &str, topic: &str, partitions: i32) -> Result<()> {
    let admin = admin(bootstrap)?;
    for (topic, result) in admin
        .create_topics(vec![NewTopic::new(topic).partitions(partitions)])
        .wait()?
    {
        result.with_context(|| format!("creating {topic}"))?;
    }
    Ok(())
}

/// Records the listener's calls in the diary.
struct Listener {
    diary: Arc<Mutex<Diary>>,
}

impl RebalanceListener for Listener {
    fn partitions_assigned(&mut self, _consumer: &mut Consumer, _partitions: &BTreeSet<TopicPartition>) {}

    fn partitions_revoked(&mut self, _consumer: &mut Consumer, partitions: &BTreeSet<TopicPartition>) {
        lock(&self.diary)
            .revoked
            .extend(partitions.iter().map(ToString::to_string));
    }

    fn partitions_lost(&mut self, _consumer: &mut Consumer, partitions: &BTreeSet<TopicPartition>) {
        lock(&self.diary)
            .lost
            .extend(partitions.iter().map(ToString::to_string));
    }
}

fn start_ours(
    bootstrap: &str,
    topics: &str,
    settings: &[String],
    diary: Arc<Mutex<Diary>>,
) -> Result<Running> {
    let settings = settings.iter().filter_map(|setting| setting.split_once('='));
    let config = settings.fold(
        Config::new().set("bootstrap.servers", bootstrap),
        |config, (key, value)| config.set(key, value),
    );
    let mut consumer = Consumer::new(&config)?;
    consumer.set_rebalance_listener(Listener { diary: diary.clone() });
    match topics.strip_prefix('~') {
        Some(pattern) => consumer.subscribe_pattern(pattern)?,
        None => consumer.subscribe(topics.split(','))?,
    }
    let stop = Arc::new(AtomicBool::new(false));
    let until = stop.clone();
    let thread = thread::Builder::new().name("member".into()).spawn(move || {
        if let Err(error) = consume(&mut consumer, &until, &diary) {
            lock(&diary).failed.get_or_insert(error.to_string());
        }
        let _ = consumer.close(Duration::from_secs(10));
        lock(&diary).is_closed = true;
    })?;
    Ok(Running::Thread {
        stop,
        thread: Some(thread),
    })
}

fn consume(
    consumer: &mut Consumer,
    stop: &AtomicBool,
    diary: &Mutex<Diary>,
) -> std::result::Result<(), ottla_client::Error> {
    while !stop.load(Ordering::Acquire) {
        let records = consumer.poll(Duration::from_millis(50))?;
        let mut diary = lock(diary);
        for record in &records {
            let value = String::from_utf8_lossy(record.value.unwrap_or_default()).into_owned();
            *diary.read.entry(value).or_default() += 1;
        }
        diary.owned = consumer.assignment().iter().map(ToString::to_string).collect();
        diary.generation = consumer.group_metadata().map(|metadata| metadata.generation_id);
    }
    Ok(())
}

/// Starts a member that prints lines of a diary.
fn start_process(mut command: Command, diary: Arc<Mutex<Diary>>, group: &str) -> Result<Running> {
    let logs = toolchain::logs();
    std::fs::create_dir_all(&logs)?;
    let log = std::fs::OpenOptions::new()
        .create(true)
        .append(true)
        .open(logs.join(format!("member-{group}.err")))?;
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(log)
        .spawn()
        .context("cannot start a member")?;
    let output = child.stdout.take().context("the output is piped")?;
    let input = child.stdin.take();
    thread::Builder::new().name("diary".into()).spawn(move || {
        for line in BufReader::new(output).lines().map_while(std::io::Result::ok) {
            take_line(&mut lock(&diary), &line);
        }
    })?;
    Ok(Running::Process { child, input })
}

fn take_line(diary: &mut Diary, line: &str) {
    let fields: Vec<&str> = line.split('\t').collect();
    let names = |text: &str| -> Vec<String> {
        text.split(',')
            .filter(|name| !name.is_empty())
            .map(ToString::to_string)
            .collect()
    };
    match fields[..] {
        ["REVOKED", partitions] => diary.revoked.extend(names(partitions)),
        ["LOST", partitions] => diary.lost.extend(names(partitions)),
        ["PLACE", generation, partitions] => {
            diary.generation = generation.parse().ok().filter(|generation| *generation >= 0);
            diary.owned = names(partitions).into_iter().collect();
        }
        ["READ", _, value] => *diary.read.entry(value.to_string()).or_default() += 1,
        ["FAILED", what] => diary.failed = Some(what.to_string()),
        ["CLOSED", _] => diary.is_closed = true,
        _ => {}
    }
}
