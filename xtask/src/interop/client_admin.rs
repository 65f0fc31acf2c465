//! Our admin client against a running broker: every API family once, with its expected answer.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::process::{Child, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use ottla_client::Error;
use ottla_client::admin::{
    Admin, AlterConfig, ClientMetricsSubscription, ConfigResource, ConfigResourceKind, ConfigSource,
    ElectionKind, NewPartitions, NewTopic, OffsetAndMetadata, OffsetSpec, QuotaAlteration, QuotaFilter,
    QuotaMatch, Results, ScramCredential, ScramMechanism, TopicPartition,
};
use ottla_client::config::{Config, Password};
use ottla_wire::error_code::ErrorCode;

use super::server::{Programs, Target};
use super::table::Table;

/// Far more time than a broker needs to learn the controller's decisions.
const PROPAGATION: Duration = Duration::from_secs(20);

type Case = (&'static str, fn(&Admin) -> Result<()>);

const CASES: [Case; 6] = [
    ("topics", topics),
    ("configs", configs),
    ("offsets and records", offsets),
    ("group offsets", group_offsets),
    ("cluster and log directories", cluster),
    ("SCRAM credentials", scram),
];

/// APIs that Ottla does not serve.
const KAFKA_CASES: [Case; 3] = [
    ("leader election", elections),
    ("client quotas", quotas),
    ("client-metrics subscriptions", subscriptions),
];

pub fn run(table: &mut Table, programs: &Programs, bootstrap: &str, target: Target) -> Result<()> {
    let admin = Admin::new(&Config::new().set("bootstrap.servers", bootstrap))?;
    let (more, protocols): (&[Case], &[_]) = match target {
        Target::Kafka => (&KAFKA_CASES, &["classic", "consumer"]),
        Target::Ottla => (&[], &["classic"]),
    };
    let outcomes = CASES
        .iter()
        .chain(more)
        .map(|(name, case)| ((*name).to_owned(), case(&admin)));
    let groups = protocols.iter().map(|protocol| {
        let name = format!("a group of Java's with group.protocol={protocol}");
        (name, member(&admin, programs, bootstrap, protocol))
    });
    for (name, outcome) in outcomes.chain(groups) {
        let outcome = outcome.map_err(|error| format!("{error:#}"));
        let said = outcome.as_ref().err().map_or("ok", String::as_str);
        println!("our admin client: {name}: {said}");
        table.add_other(format!("our admin client: {name}"), outcome);
    }
    Ok(())
}

/// A Java consumer, killed when dropped.
struct Member(Child);

impl Drop for Member {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Describes a group with a Java member.
fn member(admin: &Admin, programs: &Programs, bootstrap: &str, protocol: &str) -> Result<()> {
    let name = format!("admin-{protocol}");
    create(admin, &name, 2)?;
    let property = format!("group.protocol={protocol}");
    let mut command = programs
        .kafka
        .tool("org.apache.kafka.tools.consumer.ConsoleConsumer");
    command
        .args([
            "--bootstrap-server",
            bootstrap,
            "--topic",
            &name,
            "--group",
            &name,
        ])
        .args(["--command-property", &property])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let _member = Member(command.spawn().context("cannot start the console consumer")?);
    let expected: BTreeSet<_> = [0, 1]
        .map(|index| TopicPartition::new(name.as_str(), index))
        .into();
    eventually(|| {
        let group = only(admin.describe_groups(vec![name.clone()]).wait()?)?;
        ensure!(group.state.eq_ignore_ascii_case("stable"), "{group:?}");
        ensure!(
            group.members.len() == 1 && group.protocol_type == "consumer",
            "{group:?}"
        );
        ensure!(group.members[0].assignment == expected, "{group:?}");
        ensure!(!group.members[0].client_host.is_empty(), "{group:?}");
        Ok(())
    })?;
    let listed = admin.list_groups().wait()?;
    ensure!(
        listed
            .get(&name)
            .is_some_and(|group| group.kind.eq_ignore_ascii_case(protocol)),
        "{listed:?}"
    );
    let refused = admin.delete_groups(vec![name.clone()]).wait()?;
    ensure_code(refused.get(&name), ErrorCode::NonEmptyGroup)
}

fn only<K: Ord + Debug, T>(results: Results<K, T>) -> Result<T> {
    let (key, result) = results.into_iter().next().context("an empty result")?;
    result.with_context(|| format!("{key:?}"))
}

fn ensure_code<T: Debug>(result: Option<&Result<T, Error>>, expected: ErrorCode) -> Result<()> {
    match result {
        Some(Err(Error::Broker { code, .. })) if *code == expected => Ok(()),
        other => bail!("{other:?} where {expected:?} was expected"),
    }
}

/// Repeats a check: the controller answers a change before every broker knows of it.
fn eventually(check: impl Fn() -> Result<()>) -> Result<()> {
    let started = Instant::now();
    loop {
        match check() {
            Err(_) if started.elapsed() < PROPAGATION => thread::sleep(Duration::from_millis(20)),
            outcome => return outcome,
        }
    }
}

fn create(admin: &Admin, name: &str, partitions: i32) -> Result<()> {
    let topic = NewTopic::new(name).partitions(partitions).replicas(1);
    only(admin.create_topics(vec![topic]).wait()?)?;
    Ok(())
}

fn topics(admin: &Admin) -> Result<()> {
    let new = vec![
        NewTopic::new("admin-a")
            .partitions(2)
            .replicas(1)
            .config("retention.ms", 1000),
        NewTopic::new("admin-b"),
        NewTopic::new("admin/odd"),
        NewTopic::new("admin-safe").partitions(1).replicas(3),
    ];
    let created = admin.create_topics(new.clone()).wait()?;
    ensure!(
        created["admin-a"]
            .as_ref()
            .is_ok_and(|topic| topic.partitions == 2),
        "{created:?}"
    );
    ensure!(created["admin-b"].is_ok(), "{created:?}");
    ensure_code(created.get("admin/odd"), ErrorCode::InvalidTopicException)?;
    ensure_code(created.get("admin-safe"), ErrorCode::InvalidReplicationFactor)?;
    let again = admin.create_topics(new).wait()?;
    ensure_code(again.get("admin-a"), ErrorCode::TopicAlreadyExists)?;
    let more = NewPartitions::to(4);
    only(
        admin
            .create_partitions(BTreeMap::from([("admin-a".to_owned(), more)]))
            .wait()?,
    )?;
    let names = vec!["admin-a".to_owned(), "admin-missing".to_owned()];
    eventually(|| {
        let described = admin.describe_topics(names.clone()).wait()?;
        ensure_code(described.get("admin-missing"), ErrorCode::UnknownTopicOrPartition)?;
        let partitions = described["admin-a"].as_ref().map(|topic| topic.partitions.len());
        ensure!(partitions == Ok(4), "{described:?}");
        ensure!(
            admin.list_topics().wait()?.contains_key("admin-b"),
            "admin-b is not listed"
        );
        Ok(())
    })?;
    let deleted = admin.delete_topics(names).wait()?;
    ensure!(deleted["admin-a"].is_ok(), "{deleted:?}");
    ensure_code(deleted.get("admin-missing"), ErrorCode::UnknownTopicOrPartition)
}

fn configs(admin: &Admin) -> Result<()> {
    create(admin, "admin-configs", 1)?;
    let topic = ConfigResource::topic("admin-configs");
    let changes = vec![AlterConfig::set("retention.ms", 5000)];
    only(
        admin
            .incremental_alter_configs(BTreeMap::from([(topic.clone(), changes)]))
            .wait()?,
    )?;
    let broker = ConfigResource::new(ConfigResourceKind::Broker, "1");
    eventually(|| {
        let described = admin
            .describe_configs(vec![topic.clone(), broker.clone()])
            .wait()?;
        let entries = described[&topic].as_ref().map_err(Error::clone)?;
        let retention = &entries["retention.ms"];
        ensure!(retention.value.as_deref() == Some("5000"), "{retention:?}");
        ensure!(retention.source == ConfigSource::Topic, "{retention:?}");
        let entries = described[&broker].as_ref().map_err(Error::clone)?;
        let partitions = &entries["num.partitions"];
        ensure!(partitions.value.as_deref() == Some("1"), "{partitions:?}");
        Ok(())
    })?;
    let wrong = vec![AlterConfig::set("retention.ms", "long")];
    let refused = admin
        .incremental_alter_configs(BTreeMap::from([(topic.clone(), wrong)]))
        .wait()?;
    ensure_code(refused.get(&topic), ErrorCode::InvalidConfig)
}

fn offsets(admin: &Admin) -> Result<()> {
    create(admin, "admin-offsets", 2)?;
    let part = |index| TopicPartition::new("admin-offsets", index);
    let wanted = [
        (OffsetSpec::Earliest, 0),
        (OffsetSpec::Latest, 0),
        (OffsetSpec::Timestamp(0), -1),
        (OffsetSpec::MaxTimestamp, -1),
    ];
    for (spec, expected) in wanted {
        for (key, listed) in admin
            .list_offsets(BTreeMap::from([(part(0), spec), (part(1), spec)]))
            .wait()?
        {
            let offset = listed?.offset;
            ensure!(offset == expected, "{key}: {spec:?} is {offset}");
        }
    }
    let before = BTreeMap::from([(part(0), -1), (part(1), 7), (part(5), 0)]);
    let deleted = admin.delete_records(before).wait()?;
    ensure!(deleted[&part(0)] == Ok(0), "{deleted:?}");
    ensure_code(deleted.get(&part(1)), ErrorCode::OffsetOutOfRange)?;
    ensure_code(deleted.get(&part(5)), ErrorCode::UnknownTopicOrPartition)
}

fn group_offsets(admin: &Admin) -> Result<()> {
    create(admin, "admin-groups", 2)?;
    let part = |index| TopicPartition::new("admin-groups", index);
    let offset = OffsetAndMetadata {
        offset: 42,
        leader_epoch: None,
        metadata: "by hand".into(),
    };
    let offsets = BTreeMap::from([(part(0), offset.clone()), (part(1), OffsetAndMetadata::new(7))]);
    for result in admin
        .alter_group_offsets("admin-group", offsets)
        .wait()?
        .into_values()
    {
        result?;
    }
    let listed = admin.list_group_offsets("admin-group").wait()?;
    ensure!(
        listed.get(&part(0)) == Some(&offset) && listed.len() == 2,
        "{listed:?}"
    );
    ensure!(
        admin.list_groups().wait()?.contains_key("admin-group"),
        "the group is not listed"
    );
    let group = only(admin.describe_groups(vec!["admin-group".to_owned()]).wait()?)?;
    ensure!(group.state == "Empty" && group.members.is_empty(), "{group:?}");
    only(
        admin
            .delete_group_offsets("admin-group", BTreeSet::from([part(0)]))
            .wait()?,
    )?;
    let listed = admin.list_group_offsets("admin-group").wait()?;
    ensure!(listed.keys().eq([&part(1)]), "{listed:?}");
    let names = vec!["admin-group".to_owned(), "admin-missing".to_owned()];
    let deleted = admin.delete_groups(names).wait()?;
    ensure!(deleted["admin-group"].is_ok(), "{deleted:?}");
    ensure_code(deleted.get("admin-missing"), ErrorCode::GroupIdNotFound)
}

fn cluster(admin: &Admin) -> Result<()> {
    create(admin, "admin-disks", 1)?;
    let cluster = admin.describe_cluster().wait()?;
    ensure!(
        cluster.controller.is_some() && cluster.nodes.len() == 1,
        "{cluster:?}"
    );
    eventually(|| {
        let directory = only(only(admin.describe_log_dirs(Vec::new()).wait()?)?)?;
        let key = TopicPartition::new("admin-disks", 0);
        ensure!(directory.replicas.contains_key(&key), "{directory:?}");
        ensure!(directory.total_bytes > 0, "{directory:?}");
        Ok(())
    })
}

fn elections(admin: &Admin) -> Result<()> {
    create(admin, "admin-leaders", 1)?;
    let key = TopicPartition::new("admin-leaders", 0);
    eventually(|| {
        let elected = admin
            .elect_leaders(ElectionKind::Preferred, Some(vec![key.clone()]))
            .wait()?;
        ensure_code(elected.get(&key), ErrorCode::ElectionNotNeeded)
    })
}

fn quotas(admin: &Admin) -> Result<()> {
    let entity = BTreeMap::from([("client-id".to_owned(), Some("admin-client".to_owned()))]);
    let change = || QuotaAlteration::new(entity.clone());
    let set = change().set("producer_byte_rate", 1e6);
    only(admin.alter_client_quotas(vec![set]).wait()?)?;
    let filter = QuotaFilter::new()
        .component("client-id", QuotaMatch::Exact("admin-client".to_owned()))
        .strict();
    eventually(|| {
        let described = admin.describe_client_quotas(filter.clone()).wait()?;
        let quotas = described.get(&entity).context("the quota is not there")?;
        ensure!(quotas.get("producer_byte_rate") == Some(&1e6), "{quotas:?}");
        Ok(())
    })?;
    let removed = change().remove("producer_byte_rate");
    only(admin.alter_client_quotas(vec![removed]).wait()?)?;
    eventually(|| {
        let described = admin.describe_client_quotas(filter.clone()).wait()?;
        ensure!(described.is_empty(), "{described:?}");
        Ok(())
    })?;
    let unknown = change().set("speed", 1.0);
    let refused = admin.alter_client_quotas(vec![unknown]).wait()?;
    ensure_code(refused.get(&entity), ErrorCode::InvalidRequest)
}

fn scram(admin: &Admin) -> Result<()> {
    let user = || "admin-user".to_owned();
    let set = |mechanism| ScramCredential::Set {
        mechanism,
        password: Password::new("a secret, with a comma"),
        rounds: Some(4096),
    };
    only(
        admin
            .alter_scram_credentials(vec![(user(), set(ScramMechanism::Sha256))])
            .wait()?,
    )?;
    only(
        admin
            .alter_scram_credentials(vec![(user(), set(ScramMechanism::Sha512))])
            .wait()?,
    )?;
    eventually(|| {
        let described = only(admin.describe_scram_credentials(vec![user()]).wait()?)?;
        let expected = BTreeMap::from([(ScramMechanism::Sha256, 4096), (ScramMechanism::Sha512, 4096)]);
        ensure!(described == expected, "{described:?}");
        Ok(())
    })?;
    for mechanism in [ScramMechanism::Sha256, ScramMechanism::Sha512] {
        only(
            admin
                .alter_scram_credentials(vec![(user(), ScramCredential::Delete { mechanism })])
                .wait()?,
        )?;
    }
    eventually(|| {
        let described = admin.describe_scram_credentials(vec![user()]).wait()?;
        ensure_code(described.get("admin-user"), ErrorCode::ResourceNotFound)
    })
}

fn subscriptions(admin: &Admin) -> Result<()> {
    let subscription = ClientMetricsSubscription::new(["org.apache.kafka.producer.", "ottla."])
        .interval_ms(5000)
        .matching("client_id=nobody.*");
    only(
        admin
            .set_client_metrics_subscription("admin-metrics", &subscription)
            .wait()?,
    )?;
    let resource = ConfigResource::new(ConfigResourceKind::ClientMetrics, "admin-metrics");
    eventually(|| {
        let listed = admin.list_client_metrics_subscriptions().wait()?;
        ensure!(listed == [resource.clone()], "{listed:?}");
        let entries = only(
            admin
                .describe_client_metrics_subscriptions(&["admin-metrics"])
                .wait()?,
        )?;
        let described = ClientMetricsSubscription::from_entries(&entries)?;
        ensure!(described == subscription, "{described:?}");
        Ok(())
    })?;
    only(admin.delete_client_metrics_subscription("admin-metrics").wait()?)?;
    eventually(|| {
        let listed = admin.list_client_metrics_subscriptions().wait()?;
        ensure!(listed.is_empty(), "{listed:?}");
        Ok(())
    })?;
    let wrong = subscription.interval_ms(1);
    let refused = admin
        .set_client_metrics_subscription("admin-metrics", &wrong)
        .wait()?;
    ensure_code(refused.get(&resource), ErrorCode::InvalidRequest)
}
