//! `/groups` and `/groups/G`: lag in seconds and in records, members, who left and why.

use ottla_lab::doctor::diagnosis::Diagnosis;
use ottla_lab::numbers::{count, duration, number};
use serde_json::json;

use super::overview::mark;
use super::{Page, View, document, draw_pager, paged};
use crate::draw::block::{Block, block, head, nothing};
use crate::draw::table::{Cell, Table, numbers, words};
use crate::draw::text::{Piece, address, clock, counted, link, name, plain, strong, text};
use crate::source::{Group, GroupOffset};

/// Less lag than this is the time that records are on their way.
const BEHIND_SECONDS: f64 = 10.0;

/// Records behind, and the age of the oldest record that is still to be read.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Lag {
    records: i64,
    seconds: Option<f64>,
}

fn lag(group: &Group, now_ms: i64) -> Lag {
    let seconds = group
        .offsets
        .iter()
        .filter_map(|offset| offset.lag_seconds(now_ms));
    let is_known = group
        .offsets
        .iter()
        .all(|offset| offset.lag_seconds(now_ms).is_some());
    Lag {
        records: group.offsets.iter().map(GroupOffset::lag).sum(),
        seconds: seconds.reduce(f64::max).filter(|_| is_known),
    }
}

fn seconds_of(lag: Lag) -> String {
    lag.seconds.map_or_else(|| String::from("–"), short)
}

/// Seconds with one decimal; longer times in words.
fn short(seconds: f64) -> String {
    match seconds {
        short if short < 120.0 => format!("{} s", number((short * 10.0).round() / 10.0)),
        long => duration(long),
    }
}

pub fn list(view: &View<'_>) -> Page {
    let groups = view.source.groups();
    let now_ms = view.source.now_ms();
    let lead = match &groups {
        Err(untold) => vec![text(untold.to_string())],
        Ok(groups) => lead_of_all(groups, now_ms),
    };
    let shown: Vec<_> = (groups.iter().flatten())
        .map(|group| {
            let lag = lag(group, now_ms);
            json!({"group": group, "lag_records": lag.records, "lag_seconds": lag.seconds})
        })
        .collect();
    let document = document(json!({
        "summary": plain(&lead),
        "untold": groups.as_ref().err(),
        "groups": shown,
    }));
    let note = "Seconds: the age of the oldest record that is still to be read, by its own timestamp.";
    let table = block("groups", "Groups, worst first", note, |page| match &groups {
        Err(untold) => nothing(&untold.to_string(), page),
        Ok(groups) if groups.is_empty() => {
            nothing(
                "No group has members or committed offsets. A consumer with a group.id makes one.",
                page,
            );
        }
        Ok(groups) => table(groups, now_ms, view, page),
    });
    Page {
        title: String::from("Groups"),
        place: "/groups",
        json: document,
        blocks: vec![head("Groups", "", &lead, &[]), table],
    }
}

fn lead_of_all(groups: &[Group], now_ms: i64) -> Vec<Piece> {
    if groups.is_empty() {
        return vec![text("There is no consumer group.")];
    }
    let behind = groups.iter().map(|group| (group, lag(group, now_ms)));
    let behind = behind.filter(|(_, lag)| lag.seconds.is_some_and(|seconds| seconds >= BEHIND_SECONDS));
    let worst = behind.max_by(|one, other| {
        one.1
            .seconds
            .partial_cmp(&other.1.seconds)
            .unwrap_or(std::cmp::Ordering::Equal)
    });
    match worst {
        None => vec![
            strong(counted(groups.len(), "group")),
            text("; none is more than ten seconds behind."),
        ],
        Some((group, lag)) => vec![
            link(address("groups", &group.group_id), name(&group.group_id)),
            text(" is "),
            strong(format!("{} behind", seconds_of(lag))),
            text(format!(
                ", {} records; it is the worst of {}.",
                count(lag.records.max(0) as u64),
                counted(groups.len(), "group")
            )),
        ],
    }
}

fn table(groups: &[Group], now_ms: i64, view: &View<'_>, page: &mut ottla_lab::markup::Markup) {
    let mut rows: Vec<(&Group, Lag)> = groups.iter().map(|group| (group, lag(group, now_ms))).collect();
    rows.sort_by(|one, other| {
        let seconds = |row: &(&Group, Lag)| row.1.seconds.unwrap_or(-1.0);
        let order = seconds(other).total_cmp(&seconds(one));
        order
            .then(other.1.records.cmp(&one.1.records))
            .then(one.0.group_id.cmp(&other.0.group_id))
    });
    let most = rows.iter().map(|row| row.1.records).max().unwrap_or(0).max(1);
    let mut table = Table::new(
        "Groups",
        vec![
            words("group"),
            numbers("lag"),
            numbers("records"),
            words("size"),
            numbers("members"),
            numbers("partitions"),
            words("state"),
        ],
    );
    let (shown, text) = paged(&rows, view.query, "groups");
    for (group, lag) in shown {
        let is_bad = lag.seconds.is_some_and(|seconds| seconds >= BEHIND_SECONDS);
        table.row(vec![
            Cell::from(link(address("groups", &group.group_id), name(&group.group_id))),
            seconds_of(*lag).into(),
            count(lag.records.max(0) as u64).into(),
            Cell::Bar {
                share: lag.records as f64 / most as f64,
                is_bad,
            },
            count(group.members.len() as u64).into(),
            count(group.offsets.len() as u64).into(),
            group.state.clone().unwrap_or_else(|| String::from("–")).into(),
        ]);
    }
    table.draw(page);
    draw_pager(&text, view.query, rows.len(), page);
}

/// `None`: there is no group of this name.
pub fn one(view: &View<'_>, group_id: &str) -> Option<Page> {
    let groups = view.source.groups().ok()?;
    let group = groups.into_iter().find(|group| group.group_id == group_id)?;
    let now_ms = view.source.now_ms();
    let lag = lag(&group, now_ms);
    let members = verdicts(view, &group);
    let lead = lead_of_one(&group, lag, &members);
    let topics: std::collections::BTreeSet<&str> =
        group.offsets.iter().map(|offset| offset.topic.as_str()).collect();
    let aside = format!(
        "group · {} · {}",
        counted(group.members.len(), "member"),
        counted(topics.len(), "topic")
    );
    let document = document(json!({
        "summary": plain(&lead),
        "group": group,
        "lag_records": lag.records,
        "lag_seconds": lag.seconds,
    }));
    let blocks = vec![
        head(&name(group_id), &aside, &lead, &[]),
        lag_block(&group, now_ms, view),
        members_block(&group, &members),
        departures_block(&group),
    ];
    Some(Page {
        title: name(group_id),
        place: "/groups",
        blocks,
        json: document,
    })
}

type Judged = Vec<(String, Option<std::sync::Arc<Diagnosis>>)>;

/// The members with the doctor's verdict on the client of that name.
fn verdicts(view: &View<'_>, group: &Group) -> Judged {
    let examination = view.source.examination().ok();
    let verdict = |client_id: &str| {
        let clients = &examination.as_ref()?.clients;
        let is_it = |client: &&std::sync::Arc<Diagnosis>| {
            client.client_id == client_id && client.role == ottla_lab::doctor::snapshot::Role::Consumer
        };
        clients.iter().find(is_it).cloned()
    };
    let members = group.members.iter();
    members
        .map(|member| (member.client_id.clone(), verdict(&member.client_id)))
        .collect()
}

fn lead_of_one(group: &Group, lag: Lag, members: &Judged) -> Vec<Piece> {
    let mut pieces = match lag {
        Lag { records: 0, .. } if group.offsets.is_empty() => {
            vec![text("The group has committed nothing yet.")]
        }
        Lag { records: 0, .. } => vec![text("The group has read everything there is.")],
        Lag {
            seconds: Some(seconds),
            records,
        } => vec![
            text("The group is "),
            strong(format!("{} behind", short(seconds))),
            text(format!(", {} records.", count(records.max(0) as u64))),
        ],
        Lag {
            seconds: None,
            records,
        } => vec![
            text("The group is "),
            strong(format!("{} records behind", count(records.max(0) as u64))),
            text("."),
        ],
    };
    if group.members.is_empty() {
        pieces.push(text(" It has no member: nothing is being read."));
    }
    let limited = members.iter().filter_map(|(_, verdict)| verdict.as_ref());
    if let Some(worst) = limited
        .filter(|client| client.severity().is_bad())
        .max_by_key(|client| client.severity())
    {
        pieces.push(text(" "));
        let id = worst.instance_id.as_deref().unwrap_or(&worst.client_id);
        pieces.push(link(address("clients", id), name(&worst.client_id)));
        pieces.push(text(format!(": {}", worst.summary)));
    }
    pieces
}

fn lag_block(group: &Group, now_ms: i64, view: &View<'_>) -> Block {
    let note = "Worst first. Records that retention has deleted are not counted: they can no longer be read. “–” where the record’s time is not at hand.";
    block("lag", "Lag by partition", note, |page| {
        if group.offsets.is_empty() {
            return nothing(
                "It has committed no offset: lag is counted from the committed one.",
                page,
            );
        }
        let mut offsets: Vec<&GroupOffset> = group.offsets.iter().collect();
        offsets.sort_by(|one, other| {
            let key = |offset: &GroupOffset| (offset.lag_seconds(now_ms).unwrap_or(-1.0), offset.lag());
            let (one_key, other_key) = (key(one), key(other));
            let order = other_key
                .0
                .total_cmp(&one_key.0)
                .then(other_key.1.cmp(&one_key.1));
            order.then_with(|| (&one.topic, one.partition).cmp(&(&other.topic, other.partition)))
        });
        let most = offsets
            .iter()
            .map(|offset| offset.lag())
            .max()
            .unwrap_or(0)
            .max(1);
        let mut table = Table::new(
            "Lag by partition",
            vec![
                words("partition"),
                numbers("lag"),
                numbers("records"),
                words("size"),
                numbers("committed"),
                numbers("log end"),
            ],
        );
        let (shown, text) = paged(&offsets, view.query, "partitions");
        for offset in shown {
            let seconds = offset.lag_seconds(now_ms);
            table.row(vec![
                format!("{} {}", name(&offset.topic), offset.partition).into(),
                seconds.map_or_else(|| String::from("–"), short).into(),
                count(offset.lag() as u64).into(),
                Cell::Bar {
                    share: offset.lag() as f64 / most as f64,
                    is_bad: seconds.is_some_and(|seconds| seconds >= BEHIND_SECONDS),
                },
                count(offset.committed.max(0) as u64).into(),
                count(offset.log_end.max(0) as u64).into(),
            ]);
        }
        let all = lag(group, now_ms);
        table.sum(vec![
            "all".into(),
            seconds_of(all).into(),
            count(all.records.max(0) as u64).into(),
            "".into(),
            "".into(),
            "".into(),
        ]);
        table.draw(page);
        draw_pager(&text, view.query, offsets.len(), page);
    })
}

fn members_block(group: &Group, members: &Judged) -> Block {
    block(
        "members",
        "Members",
        "The verdict is the doctor’s on the client of this name.",
        |page| {
            if group.members.is_empty() {
                return nothing("It has no member.", page);
            }
            let mut table = Table::new(
                "Members",
                vec![
                    words("client"),
                    words("verdict"),
                    words("host"),
                    words("member id"),
                ],
            );
            for (member, (client_id, verdict)) in group.members.iter().zip(members) {
                let verdict = match verdict {
                    None => Cell::from("–"),
                    Some(client) => {
                        let (sign, class) = mark(client.severity());
                        Cell::Mark {
                            class,
                            mark: sign,
                            word: client.summary.clone(),
                        }
                    }
                };
                table.row(vec![
                    Cell::from(link(address("clients", client_id), name(client_id))),
                    verdict,
                    name(&member.host).into(),
                    name(&member.member_id).into(),
                ]);
            }
            table.draw(page);
        },
    )
}

fn departures_block(group: &Group) -> Block {
    let note = "The last members that left or were removed, since the broker started.";
    block("departures", "Who left, and why", note, |page| {
        if group.departures.is_empty() {
            return nothing("No member has left.", page);
        }
        let mut table = Table::new("Departures", vec![words("when"), words("client"), words("why")]);
        for gone in &group.departures {
            table.row(vec![
                clock(gone.at_ms).into(),
                name(&gone.client_id).into(),
                name(&gone.why).into(),
            ]);
        }
        table.draw(page);
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offset(committed: i64, log_start: i64, log_end: i64, next_at_ms: Option<i64>) -> GroupOffset {
        GroupOffset {
            topic: "t".into(),
            partition: 0,
            committed,
            log_start,
            log_end,
            next_at_ms,
        }
    }

    #[test]
    fn what_retention_deleted_is_no_lag_and_a_commit_beyond_the_end_is_none() {
        assert_eq!(offset(10, 80, 100, None).lag(), 20);
        assert_eq!(offset(120, 0, 100, None).lag(), 0);
        assert_eq!(offset(100, 0, 100, None).lag_seconds(5_000), Some(0.0));
        assert_eq!(offset(90, 0, 100, Some(3_000)).lag_seconds(5_000), Some(2.0));
        assert_eq!(
            offset(90, 0, 100, Some(9_000)).lag_seconds(5_000),
            Some(0.0),
            "a clock that jumped"
        );
    }

    #[test]
    fn a_group_is_as_late_as_its_latest_partition_if_all_are_known() {
        let mut group = Group {
            offsets: vec![offset(90, 0, 100, Some(3_000)), offset(99, 0, 100, Some(4_500))],
            ..Group::default()
        };
        assert_eq!(
            lag(&group, 5_000),
            Lag {
                records: 11,
                seconds: Some(2.0)
            }
        );
        group.offsets.push(offset(0, 0, 5, None));
        assert_eq!(lag(&group, 5_000).seconds, None);
    }
}
