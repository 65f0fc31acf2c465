//! Random groups, each assigned by our assignors and by Apache Kafka's.
//!
//! `range` must give the same. What Kafka's `uniform` gives depends on the order of the members in
//! a hash table, so only its properties are compared: how even it is, and how much stays in its
//! place. With equal subscriptions both are optimal; with different ones neither is, and sums are
//! compared.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::sync::Arc;

use anyhow::{Context, Result, bail, ensure};
use ottla_core::group::{Assignor, AssignorInput, AssignorMember, Partitions};
use ottla_wire::primitives::Uuid;
use ottla_wire::random::Random;

use super::ask;
use crate::interop::clients::Outcome;
use crate::interop::table::Table;
use crate::kafka::Kafka;

const GROUPS: u64 = 10_000;

type Assigned = BTreeMap<Arc<str>, Partitions>;

struct Case {
    assignor: Assignor,
    input: AssignorInput,
}

/// What an assignment is worth.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
struct Worth {
    /// The sum of the squared counts of members' partitions: the smaller, the more even.
    squares: u64,
    /// Partitions that stay with their members.
    kept: u64,
}

/// The sums over all groups with different subscriptions.
#[derive(Default)]
struct Sums {
    groups: u64,
    ours: Worth,
    kafkas: Worth,
}

pub fn run(table: &mut Table, kafka: &Kafka) -> Result<()> {
    let cases: Vec<Case> = (0..GROUPS).map(case).collect();
    let input: String = cases.iter().map(lines).collect();
    let output = ask(kafka, "GroupAssignors", &input)?;
    let mut answers = output.split_terminator("end\n");
    let (mut sums, mut failures) = (Sums::default(), Vec::new());
    for (seed, case) in cases.iter().enumerate() {
        let kafkas = parse(answers.next().context("an answer is missing")?)?;
        if let Err(error) = compare(case, &kafkas, &mut sums) {
            failures.push(format!("{} of group {seed}: {error:#}", case.assignor.name()));
        }
    }
    let outcome = match failures.first() {
        None => Ok(()),
        Some(first) => Err(format!("{} groups, first {first}", failures.len())),
    };
    table.add_other(format!("oracle: {GROUPS} groups are assigned"), outcome);
    let name = format!(
        "oracle: {} groups with different subscriptions: as even, and as much stays",
        sums.groups
    );
    table.add_other(name, sums.judge());
    Ok(())
}

fn compare(case: &Case, kafkas: &Assigned, sums: &mut Sums) -> Result<()> {
    let (assignor, input) = (case.assignor, &case.input);
    let mut ours = assignor.assign(input);
    check_complete(input, &ours)?;
    ours.retain(|_, partitions| !partitions.is_empty());
    if assignor == Assignor::Range {
        ensure!(ours == *kafkas, "{ours:?} instead of {kafkas:?}");
        return Ok(());
    }
    let (our_worth, kafkas_worth) = (worth(input, &ours), worth(input, kafkas));
    let first = input.members.first();
    if input
        .members
        .iter()
        .all(|member| Some(&member.topics) == first.map(|first| &first.topics))
    {
        ensure!(
            our_worth == kafkas_worth,
            "{ours:?} is not worth the same as {kafkas:?}"
        );
        return Ok(());
    }
    check_even(input, &ours)?;
    sums.groups += 1;
    sums.ours.add(our_worth);
    sums.kafkas.add(kafkas_worth);
    Ok(())
}

impl Worth {
    fn add(&mut self, other: Worth) {
        self.squares += other.squares;
        self.kept += other.kept;
    }
}

impl Sums {
    /// Either may be better for one group: neither looks for moves that help only together.
    fn judge(&self) -> Outcome {
        let (ours, kafkas) = (self.ours, self.kafkas);
        println!(
            "oracle: different subscriptions: squares {} (Kafka {}), kept {} (Kafka {})",
            ours.squares, kafkas.squares, ours.kept, kafkas.kept
        );
        match ours.squares <= kafkas.squares && ours.kept >= kafkas.kept {
            true => Ok(()),
            false => Err("Kafka's are more even, or keep more".to_owned()),
        }
    }
}

fn worth(input: &AssignorInput, assigned: &Assigned) -> Worth {
    let mut worth = Worth::default();
    for member in &input.members {
        let Some(now) = assigned.get(&member.member_id) else {
            continue;
        };
        worth.squares += now.len().pow(2) as u64;
        worth.kept += now.intersection(&member.target).count() as u64;
    }
    worth
}

/// Every partition of a subscribed topic has one owner, which subscribes to it.
fn check_complete(input: &AssignorInput, assigned: &Assigned) -> Result<()> {
    let mut missing: BTreeSet<(Uuid, i32)> = BTreeSet::new();
    for topic_id in input.members.iter().flat_map(|member| &member.topics) {
        missing.extend((0..input.partition_counts[topic_id]).map(|index| (*topic_id, index)));
    }
    for member in &input.members {
        for partition in &assigned[&member.member_id] {
            let is_subscribed = member.topics.contains(&partition.0);
            ensure!(
                is_subscribed && missing.remove(partition),
                "{partition:?} is assigned wrongly"
            );
        }
    }
    ensure!(missing.is_empty(), "unassigned: {missing:?}");
    Ok(())
}

/// No partition can go to another subscriber so that two counts become more equal.
fn check_even(input: &AssignorInput, assigned: &Assigned) -> Result<()> {
    let count = |member: &AssignorMember| assigned.get(&member.member_id).map_or(0, Partitions::len);
    for holder in &input.members {
        let topics = assigned.get(&holder.member_id).into_iter().flatten();
        for topic_id in topics.map(|partition| partition.0).collect::<BTreeSet<Uuid>>() {
            let others = input
                .members
                .iter()
                .filter(|member| member.topics.contains(&topic_id));
            let least = others.map(count).min().unwrap_or(0);
            ensure!(count(holder) <= least + 1, "{} has too much", holder.member_id);
        }
    }
    Ok(())
}

/// A random group: members of one subscription or of several, static or not, that have partitions
/// or do not.
fn case(seed: u64) -> Case {
    let mut random = Random::new(seed);
    let mut assignor = || match random.below(3) {
        0 => Assignor::Range,
        _ => Assignor::Uniform,
    };
    let (before, assignor) = (assignor(), assignor());
    let are_equal = random.below(2) == 0;
    let mut counts = BTreeMap::new();
    for number in 0..1 + random.below(10) {
        counts.insert(topic_id(number), 1 + random.below(20) as i32);
    }
    let mut members = Vec::new();
    add_members(&mut members, 51, are_equal, &counts, &mut random);
    match random.below(4) {
        0 => {}
        1 => scatter(&mut members, &counts, &mut random),
        _ => {
            let past = before.assign(&AssignorInput::new(members.clone(), counts.clone()));
            for member in &mut members {
                member.target = Arc::new(past[&member.member_id].clone());
            }
        }
    }
    members.retain(|_| random.below(6) > 0);
    if random.below(2) == 0 {
        add_members(&mut members, 4, are_equal, &counts, &mut random);
    }
    let more = (random.below(4) == 0).then(|| random.below(9) as i32);
    counts.values_mut().for_each(|count| *count += more.unwrap_or(0));
    if random.below(3) == 0 {
        subscribe(&mut members, are_equal, &counts, &mut random);
    }
    Case {
        assignor,
        input: AssignorInput::new(members, counts),
    }
}

fn topic_id(number: u64) -> Uuid {
    Uuid(u128::from(number).to_be_bytes())
}

/// Adds less than `bound` members.
fn add_members(
    members: &mut Vec<AssignorMember>,
    bound: u64,
    are_equal: bool,
    counts: &BTreeMap<Uuid, i32>,
    random: &mut Random,
) {
    let topics = members.first().map(|member| member.topics.clone());
    let first_new = members.len();
    for _ in 0..random.below(bound) {
        let is_static = random.below(4) == 0;
        members.push(AssignorMember {
            member_id: format!("member-{:016x}", random.next_u64()).into(),
            instance_id: is_static.then(|| format!("instance-{:x}", random.next_u64()).into()),
            ..AssignorMember::default()
        });
    }
    let new = &mut members[first_new..];
    match topics.filter(|_| are_equal) {
        Some(topics) => new.iter_mut().for_each(|member| member.topics = topics.clone()),
        None => subscribe(new, are_equal, counts, random),
    }
}

/// Gives members new subscriptions: all the same one, or each its own.
fn subscribe(
    members: &mut [AssignorMember],
    are_equal: bool,
    counts: &BTreeMap<Uuid, i32>,
    random: &mut Random,
) {
    let mut topics = || counts.keys().filter(|_| random.below(4) > 0).copied().collect();
    let common = topics();
    for member in members {
        member.topics = if are_equal {
            BTreeSet::clone(&common)
        } else {
            topics()
        };
    }
}

/// Gives most partitions to any members, as no assignor would.
fn scatter(members: &mut [AssignorMember], counts: &BTreeMap<Uuid, i32>, random: &mut Random) {
    let mut targets = vec![Partitions::new(); members.len()];
    for (topic_id, count) in counts {
        for partition in 0..*count {
            let owner = random.below(members.len() as u64 + 2) as usize;
            targets
                .get_mut(owner)
                .map(|target| target.insert((*topic_id, partition)));
        }
    }
    for (member, target) in members.iter_mut().zip(targets) {
        member.target = Arc::new(target);
    }
}

/// The group as `GroupAssignors` reads it.
fn lines(case: &Case) -> String {
    let mut text = String::new();
    for (topic_id, count) in &case.input.partition_counts {
        let _ = writeln!(text, "topic\t{}\t{count}", number(*topic_id));
    }
    for member in &case.input.members {
        let topics: Vec<String> = member.topics.iter().map(|id| number(*id).to_string()).collect();
        let target: Vec<String> = member
            .target
            .iter()
            .map(|(id, index)| format!("{}:{index}", number(*id)))
            .collect();
        let _ = writeln!(
            text,
            "member\t{}\t{}\t{}\t{}",
            member.member_id,
            member.instance_id.as_deref().unwrap_or(""),
            topics.join(","),
            target.join(",")
        );
    }
    let _ = writeln!(text, "assign\t{}", case.assignor.name());
    text
}

fn number(topic_id: Uuid) -> u128 {
    u128::from_be_bytes(topic_id.0)
}

/// What `GroupAssignors` prints for one group.
fn parse(text: &str) -> Result<Assigned> {
    text.lines().map(parse_member).collect()
}

fn parse_member(line: &str) -> Result<(Arc<str>, Partitions)> {
    let mut fields = line.split('\t').skip(1);
    let (Some(member_id), Some(list)) = (fields.next(), fields.next()) else {
        bail!("not a member: {line}");
    };
    let partition = |name: &str| {
        let (topic, index) = name.split_once(':').context("topic:partition")?;
        anyhow::Ok((topic_id(topic.parse()?), index.parse()?))
    };
    Ok((
        member_id.into(),
        list.split(',').map(partition).collect::<Result<_>>()?,
    ))
}
