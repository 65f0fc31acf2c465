//! consumer 11: are there more consumers than partitions?
//!
//! Each partition is read by one member of a group: members beyond the number of partitions have
//! nothing to read. No record is read later for it; the cost is that of the machines that run them,
//! and of rebalances, which wait for every member.
//!
//! - Numbers: members of the group, partitions of its topics, partitions of this member.
//! - Thresholds: members above partitions; a member without partitions.
//! - Says: "This member has nothing to do: 2 of 14 members are idle."
//! - Source: how groups assign partitions; p99 article on large groups.

use super::super::super::diagnosis::{Confidence, Verdict};
use super::found::{Found, known};
use super::reading::{Reading, sane};
use crate::numbers::number;

pub fn idle_members(reading: &Reading<'_>) -> Found {
    let (members, partitions) = (
        sane(reading.consumer.group_members),
        sane(reading.consumer.group_partitions),
    );
    let own = sane(reading.consumer.assigned_partitions);
    let numbers = [
        known("members", members, ""),
        known("partitions", partitions, ""),
        known("of this member", own, ""),
    ]
    .join(", ");
    let surplus = members
        .zip(partitions)
        .map(|(members, partitions)| members - partitions)
        .filter(|surplus| *surplus >= 1.0);
    let text = match (surplus, members, partitions) {
        (Some(surplus), Some(members), Some(partitions)) => Some(format!(
            "{} of {} members are idle, because the group has {} partitions: they cost the machines that run them, and each \
             rebalance waits for them; nobody reads slower for it",
            number(surplus),
            number(members),
            number(partitions)
        )),
        _ => None,
    };
    let refusal = "a partition is read by one member of a group; those beyond have nothing to read";
    if own == Some(0.0) {
        let (confidence, why) = match (surplus, members) {
            (Some(surplus), Some(members)) => (
                Confidence::High,
                format!("{} of {} members are idle", number(surplus), number(members)),
            ),
            _ => (Confidence::Medium, String::from("the group gave it no partition")),
        };
        let summary = format!("This member has nothing to do: {why}.");
        let found = Found::verdict(numbers, Verdict::KeepsUp, confidence, summary);
        let found = match text {
            Some(text) => found.note(text),
            None => found,
        };
        return found.refuse("more consumers", refusal);
    }
    match text {
        Some(text) => Found::nothing(numbers, text.clone())
            .note(text)
            .refuse("more consumers", refusal),
        None => Found::nothing(numbers, "no"),
    }
}
