//! Consumer groups: members, committed offsets with the time of the next record, what happened.

use ottla_broker::AdminView;
use ottla_broker::activity::{
    Cause, CommittedOverview, Departed, Departure, GroupProgress as Committed, GroupReading, Held,
    MemberOverview, Rebalance, Standing,
};
use ottla_broker::admin::records::{self, NoTime};
use ottla_console::source::{
    Group, GroupDeparture, GroupOffset, GroupRebalance, Groups, Member, TimeUnknown,
};
use ottla_console::trend::{GroupProgress, Position, Progress};

/// Partitions of all groups whose next record is looked up; others have their lag in records only.
const LOOKED_UP_MAX: usize = 2_000;

/// Committed offsets of all groups whose progress is read, as many as the pages show.
const PROGRESS_OFFSETS_MAX: usize = 65_536;

pub fn list(view: &AdminView) -> Groups {
    let mut rest = LOOKED_UP_MAX;
    let readings = view.node.groups.readings(&view.node.storage);
    let groups = readings.iter().map(|reading| group(view, reading, &mut rest));
    Groups {
        at_ms: view.clock.timestamp().0,
        groups: groups.collect(),
        cut: 0,
    }
}

/// Reads no records, and takes the coordinators' locks only for the offsets.
pub fn progress(view: &AdminView) -> Progress {
    let progress = view.node.groups.progress(PROGRESS_OFFSETS_MAX);
    let with_offsets = progress.groups.iter().filter(|group| !group.committed.is_empty());
    Progress {
        at_ms: view.clock.timestamp().0,
        groups: with_offsets.map(|group| progress_of(view, group)).collect(),
    }
}

fn progress_of(view: &AdminView, group: &Committed) -> GroupProgress {
    let mut progress = GroupProgress::new(&group.group_id);
    for committed in &group.committed {
        let (topic, index) = (&committed.topic, committed.partition);
        // Offsets of a deleted topic are no lag.
        let Ok(partition) = view.node.storage.partition_by_name(topic, index) else {
            continue;
        };
        let offsets = partition.offsets();
        let position = Position {
            committed: committed.offset,
            log_start: offsets.start,
            log_end: offsets.high_watermark,
        };
        progress.add(topic, index, position);
    }
    progress
}

fn group(view: &AdminView, reading: &GroupReading, rest: &mut usize) -> Group {
    let overview = &reading.overview;
    let members = overview.members.iter().zip(&reading.held);
    Group {
        group_id: overview.group_id.to_string(),
        state: Some(String::from(reading.state)),
        members: members.map(|(overview, held)| member(overview, held)).collect(),
        offsets: overview
            .committed
            .iter()
            .map(|committed| offset(view, committed, rest))
            .collect(),
        cut_partitions: reading.cut,
        departures: Some(overview.departed.iter().rev().map(departure).collect()),
        rebalances: Some(overview.rebalances.iter().rev().map(rebalance).collect()),
    }
}

fn member(member: &MemberOverview, held: &Held) -> Member {
    let holds = held.partitions.iter();
    Member {
        holds: holds
            .map(|(topic, partitions)| (topic.to_string(), partitions.clone()))
            .collect(),
        holds_more: held.cut,
        state: held.standing.map(|standing| String::from(words(standing))),
        member_id: member.member_id.to_string(),
        client_id: member.client_id.to_string(),
        host: member.client_host.trim_start_matches('/').to_owned(),
    }
}

fn words(standing: Standing) -> &'static str {
    match standing {
        Standing::Stable => "stable",
        Standing::Behind => "reconciling: its next heartbeat tells it what is new",
        Standing::Revoking => "reconciling: it gives up partitions",
        Standing::Waiting => "reconciling: it waits for partitions that others give up",
        Standing::Away => "away: a static member that has left for a while",
    }
}

fn offset(view: &AdminView, committed: &CommittedOverview, rest: &mut usize) -> GroupOffset {
    let node = &view.node;
    let partition = node
        .storage
        .partition_by_name(&committed.topic, committed.partition);
    let log_start = partition.map_or(0, |partition| partition.offsets().start);
    let next_at = match (committed.offset < committed.end, *rest) {
        (false, _) => None,
        (true, 0) => Some(Err(TimeUnknown::TooManyBehind)),
        (true, _) => {
            *rest -= 1;
            let found = records::timestamp_at(node, &committed.topic, committed.partition, committed.offset);
            Some(found.map_err(why_unknown))
        }
    };
    GroupOffset {
        topic: committed.topic.to_string(),
        partition: committed.partition,
        committed: committed.offset,
        log_start,
        log_end: committed.end,
        next_at_ms: next_at.and_then(Result::ok),
        time_unknown: next_at.and_then(Result::err),
    }
}

fn why_unknown(why: NoTime) -> TimeUnknown {
    match why {
        NoTime::NotInMemory => TimeUnknown::NotInMemory,
        NoTime::NotSet => TimeUnknown::NotSet,
    }
}

fn departure(departed: &Departed) -> GroupDeparture {
    let why = match &departed.why {
        Departure::Left { reason: None } => String::from("left"),
        Departure::Left { reason: Some(reason) } => format!("left: {reason}"),
        Departure::SessionExpired => format!(
            "removed: no heartbeat for {} ms (session.timeout.ms)",
            departed.member.session_timeout_ms
        ),
        Departure::DidNotRejoin => format!(
            "removed: did not join again within {} ms (max.poll.interval.ms)",
            departed.member.rebalance_timeout_ms
        ),
        Departure::DidNotSync => String::from("removed: joined and did not fetch its assignment in time"),
    };
    GroupDeparture {
        at_ms: departed.at.0,
        client_id: departed.member.client_id.to_string(),
        why,
    }
}

fn rebalance(rebalance: &Rebalance) -> GroupRebalance {
    let ended = rebalance.ended.as_ref();
    GroupRebalance {
        began_at_ms: rebalance.began.0,
        ended_at_ms: ended.map(|ended| ended.at.0),
        why: match &rebalance.why {
            Cause::Joined(client_id) => format!("{client_id} joined"),
            Cause::Left(client_id) => format!("{client_id} left or was removed"),
            Cause::Asked(client_id) => {
                format!("{client_id} joined again: other topics, or it leads and has seen that they changed")
            }
            Cause::TopicsChanged => String::from("the subscribed topics changed"),
        },
        generation: ended.map(|ended| ended.generation),
        members: ended.map(|ended| ended.member_count),
    }
}
