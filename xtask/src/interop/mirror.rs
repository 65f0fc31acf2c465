//! MirrorMaker 2 between Apache Kafka and the target while both are used, one topic in each
//! direction: how a cluster of any size moves in, and out again.

use std::collections::BTreeMap;
use std::fs;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use ottla_client::admin::{Admin, ConfigResource, NewTopic};
use ottla_client::config::Config;
use ottla_client::consumer::{Consumer, ConsumerRecord, TopicPartition};
use ottla_client::producer::{Producer, Record, TransactionalProducer};

use super::application::Application;
use super::server::{Programs, Server, Site, Target};
use super::table::Table;

const MAKER: &str = "org.apache.kafka.connect.mirror.MirrorMaker";
const PARTITIONS: i32 = 3;
/// Written before the first copy, and again beside it.
const RECORDS: usize = 2_000;
const RETENTION_MS: &str = "123456789";
const PATIENCE: Duration = Duration::from_secs(120);

pub fn run(table: &mut Table, programs: &Programs, target: Target) -> Result<()> {
    let name = "mirror: MirrorMaker 2 from Apache Kafka and back, with groups";
    let outcome = mirror(programs, target).map_err(|error| format!("{error:#}"));
    println!("{name}: {}", outcome.as_ref().err().map_or("ok", String::as_str));
    table.add_other(name, outcome);
    Ok(())
}

/// A cluster, with the topic and the group that begin there.
struct Side {
    server: Server,
    alias: &'static str,
    topic: &'static str,
    group: &'static str,
}

fn properties(sides: &[Side; 2]) -> String {
    let [one, other] = sides;
    let mut text = format!(
        "clusters={}, {}
replication.policy.class=org.apache.kafka.connect.mirror.IdentityReplicationPolicy
replication.factor=1
offset-syncs.topic.replication.factor=1
checkpoints.topic.replication.factor=1
config.storage.replication.factor=1
offset.storage.replication.factor=1
status.storage.replication.factor=1
emit.heartbeats.enabled=false
sync.group.offsets.enabled=true
sync.group.offsets.interval.seconds=1
emit.checkpoints.interval.seconds=1
refresh.topics.interval.seconds=2
refresh.groups.interval.seconds=2
",
        one.alias, other.alias
    );
    for (from, to) in [(one, other), (other, one)] {
        let flow = format!("{}->{}", from.alias, to.alias);
        text += &format!(
            "{0}.bootstrap.servers={1}\n{0}.consumer.isolation.level=read_committed\n{flow}.enabled=true\n{flow}.topics={2}\n{flow}.groups={3}\n",
            from.alias,
            from.server.bootstrap(),
            from.topic,
            from.group
        );
    }
    text
}

fn mirror(programs: &Programs, target: Target) -> Result<()> {
    let (kafka, own) = (
        Site::create("mirror-kafka", &[])?,
        Site::create("mirror-target", &[])?,
    );
    let side = |server, alias, topic, group| Side {
        server,
        alias,
        topic,
        group,
    };
    let sides = [
        side(kafka.start(programs, Target::Kafka)?, "old", "orders", "billing"),
        side(own.start(programs, target)?, "new", "returns", "refunds"),
    ];
    for side in &sides {
        side.create_topic()?;
        side.write(0)?;
        side.abort()?;
    }
    let file = own.home().join("mirror.properties");
    fs::write(&file, properties(&sides))?;
    let mut maker = Application::start("mirror", programs.kafka.java(512, MAKER).arg(&file))?;
    let [old, new] = &sides;
    for (from, to) in [(old, new), (new, old)] {
        from.wait_for_copy(to, RECORDS, &mut maker)?;
        ensure!(from.read_as_group(from)? == RECORDS, "the group reads everything");
        from.write(RECORDS)?;
    }
    for (from, to) in [(old, new), (new, old)] {
        from.wait_for_copy(to, 2 * RECORDS, &mut maker)?;
        from.check_copy(to)?;
        from.wait_for_group(to, &mut maker)?;
    }
    maker.kill()?;
    for (from, to) in [(old, new), (new, old)] {
        // What the group had read is translated with care: a few records come twice, none is lost.
        let more = from.read_as_group(to)?;
        ensure!(
            more >= RECORDS,
            "the group reads only {more} records after its move"
        );
    }
    for side in sides {
        side.server.stop()?;
    }
    kafka.remove();
    own.remove();
    Ok(())
}

/// What must arrive as it was written.
type Content = (Option<Vec<u8>>, Option<Vec<u8>>, Vec<u8>, i64);

impl Side {
    fn config(&self) -> Config {
        Config::new()
            .set("bootstrap.servers", self.server.bootstrap())
            .set("auto.offset.reset", "earliest")
            .set("allow.auto.create.topics", "false")
            .set("enable.auto.commit", "false")
            .set("isolation.level", "read_committed")
    }

    fn create_topic(&self) -> Result<()> {
        let topic = NewTopic::new(self.topic)
            .partitions(PARTITIONS)
            .config("retention.ms", RETENTION_MS);
        for (name, result) in Admin::new(&self.config())?.create_topics(vec![topic]).wait()? {
            result.with_context(|| format!("creating {name}"))?;
        }
        Ok(())
    }

    /// Writes `RECORDS` records with numbers from `first` on.
    fn write(&self, first: usize) -> Result<()> {
        let producer = Producer::new(&self.config().set("compression.type", "lz4"))?;
        let mut answers = Vec::new();
        for number in first..first + RECORDS {
            let (key, value) = (
                format!("key-{}", number % 100),
                format!("{}-{number}", self.topic),
            );
            let headers = [("number", Some(value.as_bytes()))];
            let record = Record::new(self.topic).key(&key).value(&value).headers(&headers);
            answers.push(producer.send(&record)?);
        }
        producer.flush()?;
        for answer in answers {
            answer.wait()?;
        }
        Ok(())
    }

    /// Writes records that must not be copied, in the middle of each partition.
    fn abort(&self) -> Result<()> {
        let config = self.config().set("transactional.id", self.alias);
        let producer = TransactionalProducer::new(&config)?;
        producer.init()?;
        let transaction = producer.begin()?;
        for index in 0..PARTITIONS {
            let record = Record::new(self.topic).partition(index).value("aborted");
            transaction.send(&record)?.wait()?;
        }
        transaction.abort()?;
        Ok(producer.close(PATIENCE)?)
    }

    fn partitions(&self) -> impl Iterator<Item = TopicPartition> {
        let topic = self.topic;
        (0..PARTITIONS).map(move |index| TopicPartition::new(topic, index))
    }

    /// The records of this side's topic at `at`, by partition and in order, as far as `at` has
    /// them within a moment; of a copy also what was aborted, which there should be none of.
    fn contents(&self, at: &Side, wanted: usize) -> Result<BTreeMap<i32, Vec<Content>>> {
        let config = match at.alias == self.alias {
            true => at.config(),
            false => at.config().set("isolation.level", "read_uncommitted"),
        };
        let mut consumer = Consumer::new(&config)?;
        consumer.assign(self.partitions())?;
        let mut found: BTreeMap<i32, Vec<Content>> = BTreeMap::new();
        let (mut count, started) = (0, Instant::now());
        while count < wanted && started.elapsed() < Duration::from_secs(5) {
            for record in consumer.poll(Duration::from_millis(100))?.iter() {
                found.entry(record.partition).or_default().push(content(&record));
                count += 1;
            }
        }
        Ok(found)
    }

    fn wait_for_copy(&self, to: &Side, wanted: usize, maker: &mut Application) -> Result<()> {
        let started = Instant::now();
        loop {
            maker.check_alive()?;
            // The topic does not exist at first.
            let copied = self.contents(to, wanted).unwrap_or_default();
            let count: usize = copied.values().map(Vec::len).sum();
            ensure!(count <= wanted, "{count} copies of {wanted} records");
            if count == wanted {
                return Ok(());
            }
            let (topic, alias) = (self.topic, to.alias);
            ensure!(
                started.elapsed() < PATIENCE,
                "{alias} has {count} of {wanted} records of {topic}"
            );
        }
    }

    /// Content, partition and order of all records, and the topic's own settings.
    fn check_copy(&self, to: &Side) -> Result<()> {
        let (original, copy) = (self.contents(self, 2 * RECORDS)?, self.contents(to, 2 * RECORDS)?);
        ensure!(original == copy, "the copy of {} differs", self.topic);
        let resource = ConfigResource::topic(self.topic);
        let described = Admin::new(&to.config())?
            .describe_configs(vec![resource.clone()])
            .wait()?;
        let entries = described.into_iter().find(|(found, _)| *found == resource);
        let entries = entries.context("the copy's settings")?.1?;
        let retention = entries.get("retention.ms").and_then(|entry| entry.value.clone());
        ensure!(
            retention.as_deref() == Some(RETENTION_MS),
            "retention.ms of the copy is {retention:?}"
        );
        Ok(())
    }

    /// Reads this side's topic at `at` to its end as the group; returns how many records came.
    fn read_as_group(&self, at: &Side) -> Result<usize> {
        let mut consumer = Consumer::new(&at.config().set("group.id", self.group))?;
        consumer.subscribe([self.topic])?;
        let (mut count, mut last) = (0, Instant::now());
        let started = Instant::now();
        // The end is where nothing more comes for a while.
        while count == 0 || last.elapsed() < Duration::from_secs(2) {
            let more = consumer.poll(Duration::from_millis(100))?.iter().count();
            if more > 0 {
                (count, last) = (count + more, Instant::now());
            }
            ensure!(started.elapsed() < PATIENCE, "no record comes for {}", self.group);
        }
        consumer.commit_sync()?;
        consumer.close(Duration::from_secs(30))?;
        Ok(count)
    }

    /// Waits until the group has an offset in every partition of the copy; none may be beyond what
    /// the group has read.
    fn wait_for_group(&self, to: &Side, maker: &mut Application) -> Result<()> {
        let committed = Admin::new(&self.config())?
            .list_group_offsets(self.group)
            .wait()?;
        let admin = Admin::new(&to.config())?;
        let started = Instant::now();
        loop {
            maker.check_alive()?;
            let copied = admin.list_group_offsets(self.group).wait().unwrap_or_default();
            for (partition, copy) in &copied {
                let original = committed.get(partition).map_or(0, |original| original.offset);
                ensure!(
                    copy.offset <= original,
                    "{partition:?}: {} was read up to {original}, its copy up to {}",
                    self.group,
                    copy.offset
                );
            }
            if self.partitions().all(|partition| copied.contains_key(&partition)) {
                return Ok(());
            }
            ensure!(
                started.elapsed() < PATIENCE,
                "{} has offsets in {copied:?} only",
                self.group
            );
            std::thread::sleep(Duration::from_millis(200));
        }
    }
}

fn content(record: &ConsumerRecord<'_>) -> Content {
    let header = record.headers.iter().next().and_then(|header| header.value);
    (
        record.key.map(<[u8]>::to_vec),
        record.value.map(<[u8]>::to_vec),
        header.map(<[u8]>::to_vec).unwrap_or_default(),
        record.timestamp,
    )
}
