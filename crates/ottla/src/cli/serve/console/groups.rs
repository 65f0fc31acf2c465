//! Consumer groups: members, committed offsets with the time of the next record, what happened.

use ottla_broker::AdminView;
use ottla_broker::activity::{
    Cause, CommittedOverview, Departed, Departure, GroupReading, MemberOverview, Rebalance,
};
use ottla_broker::admin::records;
use ottla_console::source::{Group, GroupDeparture, GroupOffset, GroupRebalance, Groups, Member};

/// Partitions of all groups whose next record is looked up; others have their lag in records only.
const LOOKED_UP_MAX: usize = 2_000;

pub fn list(view: &AdminView) -> Groups {
    let mut rest = LOOKED_UP_MAX;
    let readings = view.node.groups.readings(&view.node.storage);
    let groups = readings.iter().map(|reading| group(view, reading, &mut rest));
    Groups {
        groups: groups.collect(),
        cut: 0,
    }
}

fn group(view: &AdminView, reading: &GroupReading, rest: &mut usize) -> Group {
    let overview = &reading.overview;
    let state = if overview.members.is_empty() {
        "no member"
    } else {
        "has members"
    };
    Group {
        group_id: overview.group_id.to_string(),
        state: Some(String::from(state)),
        members: overview.members.iter().map(member).collect(),
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

fn member(member: &MemberOverview) -> Member {
    Member {
        member_id: member.member_id.to_string(),
        client_id: member.client_id.to_string(),
        host: member.client_host.trim_start_matches('/').to_owned(),
    }
}

fn offset(view: &AdminView, committed: &CommittedOverview, rest: &mut usize) -> GroupOffset {
    let node = &view.node;
    let partition = node
        .storage
        .partition_by_name(&committed.topic, committed.partition);
    let log_start = partition.map_or(0, |partition| partition.offsets().start);
    let is_behind = committed.offset < committed.end;
    let next_at_ms = (is_behind && *rest > 0)
        .then(|| {
            *rest -= 1;
            records::timestamp_at(node, &committed.topic, committed.partition, committed.offset)
        })
        .flatten();
    GroupOffset {
        topic: committed.topic.to_string(),
        partition: committed.partition,
        committed: committed.offset,
        log_start,
        log_end: committed.end,
        next_at_ms,
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
