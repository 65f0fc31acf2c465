//! Consumer groups of the classic protocol, and their administration.

use super::suite::{MINUTE, Suite, eventually, fails_with, only, partition, partitions, poll, same, take};
use anyhow::{Context, Result, anyhow, ensure};
use ottla_client::admin::{OffsetAndMetadata, TopicPartition};
use ottla_client::consumer::{Consumer, RebalanceListener};
use ottla_wire::error_code::ErrorCode;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

pub const ASSIGNORS: [&str; 2] = ["RangeAssignor", "CooperativeStickyAssignor"];

pub fn run(suite: &mut Suite) {
    for assignor in ASSIGNORS {
        suite.run(&format!("group of two, {assignor}"), |suite| {
            group_of_two(suite, assignor)
        });
    }
    suite.run("static membership", static_membership);
    suite.run("commit and fetch offsets", offsets);
    suite.run("group administration", administration);
}

/// A member's state, for the thread that watches it.
#[derive(Clone, Debug, Default)]
struct Known {
    assigned: BTreeSet<TopicPartition>,
    values: BTreeSet<String>,
    assignments: usize,
    generation: i32,
    member_id: String,
}

/// One group member on a thread of its own, polling until it is stopped.
struct Member {
    known: Arc<Mutex<Known>>,
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<Result<()>>>,
}

struct Listener(Arc<Mutex<Known>>);

impl RebalanceListener for Listener {
    fn partitions_assigned(&mut self, _: &mut Consumer, partitions: &BTreeSet<TopicPartition>) {
        let mut known = self.0.lock().expect("no holder panics");
        known.assigned.extend(partitions.iter().cloned());
        known.assignments += 1;
    }

    fn partitions_revoked(&mut self, _: &mut Consumer, partitions: &BTreeSet<TopicPartition>) {
        let mut known = self.0.lock().expect("no holder panics");
        known.assigned.retain(|assigned| !partitions.contains(assigned));
    }
}

impl Member {
    fn start(suite: &Suite, group: &str, topic: &str, settings: &[(&str, &str)]) -> Result<Member> {
        let base = [
            ("group.id", group),
            ("heartbeat.interval.ms", "300"),
            ("session.timeout.ms", "10000"),
        ];
        let mut consumer = suite.consumer(&[&base, settings].concat())?;
        let known = Arc::new(Mutex::new(Known::default()));
        let is_over = Arc::new(AtomicBool::new(false));
        consumer.set_rebalance_listener(Listener(Arc::clone(&known)));
        consumer.subscribe([topic])?;
        let (shared, end) = (Arc::clone(&known), Arc::clone(&is_over));
        let thread = std::thread::spawn(move || {
            while !end.load(Ordering::Relaxed) {
                let records = poll(&mut consumer, Duration::from_millis(100))?;
                let mut known = shared.lock().expect("no holder panics");
                known.values.extend(records.iter().map(super::suite::Taken::text));
                if let Some(metadata) = consumer.group_metadata() {
                    known.generation = metadata.generation_id;
                    known.member_id = metadata.member_id.to_string();
                }
                let has_partitions = !known.assigned.is_empty();
                drop(known);
                if has_partitions {
                    consumer.commit_async(None)?;
                }
            }
            consumer.commit_sync()?;
            Ok(consumer.close(MINUTE)?)
        });
        Ok(Member {
            known,
            is_over,
            thread: Some(thread),
        })
    }

    fn known(&self) -> Known {
        self.known.lock().expect("no holder panics").clone()
    }

    fn partition_count(&self) -> usize {
        self.known().assigned.len()
    }

    fn stop(mut self) -> Result<Known> {
        self.is_over.store(true, Ordering::Relaxed);
        let thread = self.thread.take().context("stopped once")?;
        thread
            .join()
            .map_err(|_| anyhow!("a member panicked"))?
            .context("a member failed")?;
        Ok(self.known())
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
    }
}

fn committed_sum(suite: &Suite, group: &str) -> Result<i64> {
    let offsets = suite.admin.list_group_offsets(group).wait()?;
    Ok(offsets.values().map(|committed| committed.offset).sum())
}

fn strategy(assignor: &str) -> String {
    format!("org.apache.kafka.clients.consumer.{assignor}")
}

pub fn group_of_two(suite: &Suite, assignor: &str) -> Result<()> {
    let (topic, group) = (format!("ottla-two-{assignor}"), format!("ottla-group-{assignor}"));
    let strategy = strategy(assignor);
    let settings = [("partition.assignment.strategy", strategy.as_str())];
    suite.create_topic(&topic, 6, &[])?;
    suite.fill(&topic, None, 300)?;
    let first = Member::start(suite, &group, &topic, &settings)?;
    eventually("the first member has all partitions", || {
        Ok(first.partition_count() == 6)
    })?;
    let second = Member::start(suite, &group, &topic, &settings)?;
    eventually("the partitions are shared", || {
        let (one, two) = (first.known().assigned, second.known().assigned);
        Ok(one.len() == 3 && two.len() == 3 && one.is_disjoint(&two))
    })?;
    let described = only(suite.admin.describe_groups(vec![group.clone()]).wait())?;
    same(&2, &described.members.len(), "members")?;
    same(&"Stable".to_string(), &described.state, "state")?;
    suite.fill(&topic, None, 600)?;
    let mut seen = second.stop()?.values;
    eventually("the first member has all partitions again", || {
        Ok(first.partition_count() == 6)
    })?;
    eventually("every value was read by one of the two", || {
        seen.extend(first.known().values);
        Ok(seen.len() == 600)
    })?;
    eventually("all 900 records are committed", || {
        Ok(committed_sum(suite, &group)? == 900)
    })?;
    first.stop()?;
    Ok(())
}

fn static_membership(suite: &Suite) -> Result<()> {
    let name = "ottla-static";
    suite.create_topic(name, 4, &[])?;
    let strategy = strategy("RangeAssignor");
    let start = |instance: &str| {
        let settings = [
            ("group.instance.id", instance),
            ("partition.assignment.strategy", &strategy),
        ];
        Member::start(suite, name, name, &settings)
    };
    let (first, second) = (start("one")?, start("two")?);
    eventually("the partitions are shared, and both know it", || {
        let (one, two) = (first.known(), second.known());
        let is_shared = one.assigned.len() == 2 && two.assigned.len() == 2;
        Ok(is_shared && one.generation > 0 && one.generation == two.generation)
    })?;
    let before = first.known();
    // A static member that closes does not leave (KIP-345): other members must not notice.
    let gone = second.stop()?;
    let again = start("two")?;
    eventually("the member is back", || {
        Ok(again.partition_count() == 2 && again.known().generation > 0)
    })?;
    let back = again.known();
    same(
        &before.generation,
        &back.generation,
        "generation of the member after the restart",
    )?;
    ensure!(
        gone.member_id != back.member_id,
        "the restarted member kept the member id {}",
        back.member_id
    );
    std::thread::sleep(Duration::from_millis(1000));
    let after = first.known();
    let stayed = (before.generation, before.assignments);
    same(
        &stayed,
        &(after.generation, after.assignments),
        "the member that stayed",
    )?;
    let described = only(suite.admin.describe_groups(vec![name.to_string()]).wait())?;
    let instances: BTreeSet<String> = described
        .members
        .iter()
        .filter_map(|member| member.instance_id.clone())
        .collect();
    same(
        &["one".to_string(), "two".to_string()].into(),
        &instances,
        "instances",
    )?;
    again.stop()?;
    first.stop()?;
    Ok(())
}

pub fn offsets(suite: &Suite) -> Result<()> {
    let name = "ottla-offsets";
    suite.create_topic(name, 2, &[])?;
    suite.fill(name, Some(0), 50)?;
    let both = partitions(name, 2);
    let wanted: BTreeSet<TopicPartition> = both.iter().cloned().collect();
    let noted = |offset: i64, note: &str| {
        let committed = OffsetAndMetadata {
            metadata: note.into(),
            ..OffsetAndMetadata::new(offset)
        };
        BTreeMap::from([(both[0].clone(), committed)])
    };
    let mut consumer = suite.consumer(&[("group.id", name)])?;
    consumer.assign(both.clone())?;
    ensure!(
        consumer.committed(wanted.clone())?.is_empty(),
        "an offset before any commit"
    );
    consumer.commit_sync_offsets(noted(17, "a note"))?;
    let committed = consumer.committed(wanted.clone())?;
    same(&1, &committed.len(), "partitions with a committed offset")?;
    let of_first = committed.get(&both[0]).context("the committed offset")?;
    same(
        &(17, "a note"),
        &(of_first.offset, &*of_first.metadata),
        "committed offset and note",
    )?;
    consumer.close(MINUTE)?;

    let mut consumer = suite.consumer(&[("group.id", name)])?;
    consumer.assign([both[0].clone()])?;
    same(
        &17,
        &take(&mut consumer, 33)?[0].offset,
        "first record after the commit",
    )?;
    let refused = consumer.commit_sync_offsets(noted(1, &"x".repeat(5000)));
    fails_with(ErrorCode::OffsetMetadataTooLarge, refused)
}

fn administration(suite: &Suite) -> Result<()> {
    let name = "ottla-administered";
    suite.create_topic(name, 2, &[])?;
    suite.fill(name, Some(0), 20)?;
    suite.fill(name, Some(1), 20)?;
    let (zero, one) = (partition(name, 0), partition(name, 1));
    let member = Member::start(suite, name, name, &[("client.id", "the-client")])?;
    eventually("the member is assigned and has read", || {
        let known = member.known();
        Ok(known.assigned.len() == 2 && known.values.len() == 20)
    })?;
    let groups = || vec![name.to_string()];
    let described = only(suite.admin.describe_groups(groups()).wait())?;
    same(&1, &described.members.len(), "members")?;
    same(
        &"the-client".to_string(),
        &described.members[0].client_id,
        "client id",
    )?;
    same(
        &[zero.clone(), one.clone()].into(),
        &described.members[0].assignment,
        "assignment",
    )?;
    fails_with(
        ErrorCode::NonEmptyGroup,
        only(suite.admin.delete_groups(groups()).wait()),
    )?;
    let forgotten = only(
        suite
            .admin
            .delete_group_offsets(name, [zero.clone()].into())
            .wait(),
    );
    fails_with(ErrorCode::GroupSubscribedToTopic, forgotten)?;
    let three = || BTreeMap::from([(zero.clone(), OffsetAndMetadata::new(3))]);
    fails_with(
        ErrorCode::UnknownMemberId,
        only(suite.admin.alter_group_offsets(name, three()).wait()),
    )?;
    member.stop()?;

    eventually("the group is empty", || {
        Ok(only(suite.admin.describe_groups(groups()).wait())?.state == "Empty")
    })?;
    only(suite.admin.alter_group_offsets(name, three()).wait())?;
    let of = |partition: &TopicPartition| -> Result<Option<i64>> {
        let offsets = suite.admin.list_group_offsets(name).wait()?;
        Ok(offsets.get(partition).map(|committed| committed.offset))
    };
    same(
        &(Some(3), Some(20)),
        &(of(&zero)?, of(&one)?),
        "offsets after one was altered",
    )?;
    only(
        suite
            .admin
            .delete_group_offsets(name, [zero.clone()].into())
            .wait(),
    )?;
    same(
        &(None, Some(20)),
        &(of(&zero)?, of(&one)?),
        "offsets after one was deleted",
    )?;
    ensure!(
        suite.admin.list_groups().wait()?.contains_key(name),
        "the group is not listed"
    );
    only(suite.admin.delete_groups(groups()).wait())?;
    fails_with(
        ErrorCode::GroupIdNotFound,
        only(suite.admin.delete_groups(groups()).wait()),
    )
}
