//! `/groups` and `/groups/G`: lag in seconds and in records, members, who left and why.

use std::cmp::Ordering;

use ottla_lab::doctor::diagnosis::Diagnosis;
use ottla_lab::numbers::{count, duration, number};
use serde_json::{Value, json};

use super::overview::mark;
use super::{Page, View, draw_pager, draw_search, lead_of, paged};
use crate::draw::block::{Block, block, head, nothing};
use crate::draw::table::{Cell, Table, numbers, words};
use crate::draw::text::{Piece, address, clock, counted, link, name, plain, strong, text};
use crate::source::{Group, GroupOffset, GroupRebalance, Part, Untold};

/// Less lag than this is the time that records are on their way.
const BEHIND_SECONDS: f64 = 10.0;

/// Records behind, and the age of the oldest record that is still to be read.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Lag {
    records: i64,
    seconds: Option<f64>,
    /// Committed partitions were left out: there are these records and more.
    is_at_least: bool,
}

impl Lag {
    /// There is something to read, and it is not known since when.
    fn is_age_unknown(self) -> bool {
        self.records > 0 && self.seconds.is_none()
    }

    /// `418,461`, or `≥ 418,461`.
    fn records(self) -> String {
        let sign = if self.is_at_least { "≥ " } else { "" };
        format!("{sign}{}", count(self.records.max(0) as u64))
    }
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
        is_at_least: group.cut_partitions > 0,
    }
}

fn of_partition(offset: &GroupOffset, now_ms: i64) -> Lag {
    Lag {
        records: offset.lag(),
        seconds: offset.lag_seconds(now_ms),
        is_at_least: false,
    }
}

/// Worst first: by age where all ages are known, by records where one is not: the two have no order
/// with each other.
fn worst_first<T>(rows: &mut [(T, Lag)], name: impl Fn(&T, &T) -> Ordering) {
    let is_by_age = !rows.iter().any(|(_, lag)| lag.is_age_unknown());
    let age = |lag: Lag| lag.seconds.filter(|_| is_by_age).unwrap_or(0.0);
    rows.sort_by(|(one, one_lag), (other, other_lag)| {
        let order = age(*other_lag).total_cmp(&age(*one_lag));
        order
            .then(other_lag.records.cmp(&one_lag.records))
            .then_with(|| name(one, other))
    });
}

/// The groups with their lag, worst first.
fn judged(groups: &[Group], now_ms: i64) -> Vec<(&Group, Lag)> {
    let mut rows: Vec<(&Group, Lag)> = groups.iter().map(|group| (group, lag(group, now_ms))).collect();
    worst_first(&mut rows, |one, other| one.group_id.cmp(&other.group_id));
    rows
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
    let told = view.source.groups();
    let now_ms = view.source.now_ms();
    let rows = told
        .as_deref()
        .map(|groups| judged(&groups.groups, now_ms))
        .map_err(Clone::clone);
    let cut = told.as_deref().map_or(0, |groups| groups.cut);
    let lead = lead_of(&rows, |rows| lead_of_all(rows, cut));
    let document = view.document(|| {
        let shown = rows.iter().flatten();
        json!({
            "summary": plain(&lead),
            "untold": rows.as_ref().err(),
            "groups_cut": cut,
            "groups": shown.map(|(group, lag)| json_of(group, *lag)).collect::<Vec<Value>>(),
        })
    });
    let note = "Seconds: the age of the oldest record that is still to be read, by its own timestamp; “–” where it is not known. If one is not known, records decide the order.";
    let table = block("groups", "Groups, worst first", note, |page| match &rows {
        Err(untold) => nothing(&untold.to_string(), page),
        Ok(rows) if rows.is_empty() => {
            nothing(
                "No group has members or committed offsets. A consumer with a group.id makes one.",
                page,
            );
        }
        Ok(rows) => table(rows, view, page),
    });
    Page {
        title: String::from("Groups"),
        place: "/groups",
        json: document,
        blocks: vec![head("Groups", "", &lead, &view.since(Part::Groups)), table],
    }
}

fn json_of(group: &Group, lag: Lag) -> Value {
    json!({
        "group": group,
        "lag_records": lag.records,
        "lag_seconds": lag.seconds,
    })
}

/// - `rows`: worst first.
/// - `cut`: groups that are not among them.
fn lead_of_all(rows: &[(&Group, Lag)], cut: usize) -> Vec<Piece> {
    let Some((group, lag)) = rows.first() else {
        return vec![text("There is no consumer group.")];
    };
    let all = match cut {
        0 => counted(rows.len(), "group"),
        cut => format!(
            "{} of {}",
            count(rows.len() as u64),
            counted(rows.len() + cut, "group")
        ),
    };
    let is_behind = lag.is_age_unknown() || lag.seconds.is_some_and(|seconds| seconds >= BEHIND_SECONDS);
    if !is_behind {
        let is = if cut > 0 { " are looked at" } else { "" };
        return vec![
            strong(all),
            text(format!("{is}; none is more than ten seconds behind.")),
        ];
    }
    let worst = link(address("groups", &group.group_id), name(&group.group_id));
    // By records, if the age of one of them is not known: it has no order with the others.
    if rows.iter().any(|(_, lag)| lag.is_age_unknown()) {
        return vec![
            worst,
            text(" is "),
            strong(format!("{} records behind", lag.records())),
            text(format!(
                "; it is the worst of {all}. How old they are is not known of every group."
            )),
        ];
    }
    vec![
        worst,
        text(" is "),
        strong(format!("{} behind", seconds_of(*lag))),
        text(format!(", {} records; it is the worst of {all}.", lag.records())),
    ]
}

fn table(rows: &[(&Group, Lag)], view: &View<'_>, page: &mut ottla_lab::markup::Markup) {
    draw_search(view.query, page);
    let found: Vec<&(&Group, Lag)> = rows
        .iter()
        .filter(|(group, _)| view.query.finds(&group.group_id))
        .collect();
    if found.is_empty() {
        return nothing("No group has this in its name.", page);
    }
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
    let (shown, text) = paged(&found, view.query, "groups");
    for (group, lag) in shown {
        let is_bad = lag.seconds.is_some_and(|seconds| seconds >= BEHIND_SECONDS);
        table.row(vec![
            Cell::from(link(address("groups", &group.group_id), name(&group.group_id))),
            seconds_of(*lag).into(),
            lag.records().into(),
            Cell::Bar {
                share: lag.records as f64 / most as f64,
                is_bad,
            },
            count(group.members.len() as u64).into(),
            count((group.offsets.len() + group.cut_partitions) as u64).into(),
            group.state.clone().unwrap_or_else(|| String::from("–")).into(),
        ]);
    }
    table.draw(page);
    draw_pager(&text, view.query, found.len(), page);
}

/// `None`: there is no group of this name.
pub fn one(view: &View<'_>, group_id: &str) -> Option<Page> {
    let groups = view.source.groups().ok()?;
    let group = (groups.groups.iter()).find(|group| group.group_id == group_id)?;
    let now_ms = view.source.now_ms();
    let lag = lag(group, now_ms);
    let members = verdicts(view, group);
    let lead = lead_of_one(group, lag, &members);
    let topics: std::collections::BTreeSet<&str> =
        group.offsets.iter().map(|offset| offset.topic.as_str()).collect();
    let aside = format!(
        "group · {} · {}",
        counted(group.members.len(), "member"),
        counted(topics.len(), "topic")
    );
    let document = view.document(|| {
        json!({
            "summary": plain(&lead),
            "group": group,
            "lag_records": lag.records,
            "lag_seconds": lag.seconds,
        })
    });
    let blocks = vec![
        head(&name(group_id), &aside, &lead, &view.since(Part::Groups)),
        lag_block(group, now_ms, view),
        members_block(group, &members),
        rebalances_block(group),
        departures_block(group),
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
    let mut pieces = match (lag.records, lag.seconds) {
        (0, _) if group.offsets.is_empty() => vec![text("The group has committed nothing yet.")],
        (0, _) => vec![text("The group has read everything there is.")],
        (_, Some(seconds)) => vec![
            text("The group is "),
            strong(format!("{} behind", short(seconds))),
            text(format!(", {} records.", lag.records())),
        ],
        (_, None) => vec![
            text("The group is "),
            strong(format!("{} records behind", lag.records())),
            text("."),
        ],
    };
    if lag.is_at_least {
        pieces.push(text(format!(
            " Not counted: {}.",
            counted(group.cut_partitions, "partition")
        )));
    }
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
        let offsets = group.offsets.iter();
        let mut offsets: Vec<(&GroupOffset, Lag)> = offsets
            .map(|offset| (offset, of_partition(offset, now_ms)))
            .collect();
        worst_first(&mut offsets, |one, other| {
            (&one.topic, one.partition).cmp(&(&other.topic, other.partition))
        });
        let most = offsets
            .iter()
            .map(|(_, lag)| lag.records)
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
        for (offset, lag) in shown {
            table.row(vec![
                format!("{} {}", name(&offset.topic), offset.partition).into(),
                seconds_of(*lag).into(),
                lag.records().into(),
                Cell::Bar {
                    share: lag.records as f64 / most as f64,
                    is_bad: lag.seconds.is_some_and(|seconds| seconds >= BEHIND_SECONDS),
                },
                count(offset.committed.max(0) as u64).into(),
                count(offset.log_end.max(0) as u64).into(),
            ]);
        }
        let all = lag(group, now_ms);
        table.sum(vec![
            "all".into(),
            seconds_of(all).into(),
            all.records().into(),
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

fn rebalances_block(group: &Group) -> Block {
    let note = "The last ones since the broker started: what began each, and how long it took until every member had its partitions.";
    block("rebalances", "Rebalances", note, |page| {
        let rebalances = match &group.rebalances {
            None => return nothing(&Untold::by_kafka("when a group rebalanced").to_string(), page),
            Some(none) if none.is_empty() => return nothing("There has been none.", page),
            Some(rebalances) => rebalances,
        };
        let mut table = Table::new(
            "Rebalances",
            vec![
                words("when"),
                words("why"),
                numbers("took"),
                numbers("members"),
                numbers("generation"),
            ],
        );
        for rebalance in rebalances {
            let known = |value: Option<u64>| value.map_or_else(|| String::from("–"), count);
            table.row(vec![
                clock(rebalance.began_at_ms).into(),
                name(&rebalance.why).into(),
                took(rebalance),
                known(rebalance.members.map(|members| members as u64)).into(),
                known(rebalance.generation.map(|generation| generation.max(0) as u64)).into(),
            ]);
        }
        table.draw(page);
    })
}

fn took(rebalance: &GroupRebalance) -> Cell {
    match rebalance.ended_at_ms {
        None => Cell::Mark {
            class: "warn",
            mark: "…",
            word: String::from("under way"),
        },
        Some(ended_at_ms) => short((ended_at_ms - rebalance.began_at_ms).max(0) as f64 / 1e3).into(),
    }
}

fn departures_block(group: &Group) -> Block {
    let note = "The last members that left or were removed, since the broker started.";
    block("departures", "Who left, and why", note, |page| {
        let departures = match &group.departures {
            None => return nothing(&Untold::by_kafka("who left a group").to_string(), page),
            Some(none) if none.is_empty() => return nothing("No member has left.", page),
            Some(departures) => departures,
        };
        let mut table = Table::new("Departures", vec![words("when"), words("client"), words("why")]);
        for gone in departures {
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
                seconds: Some(2.0),
                is_at_least: false
            }
        );
        group.offsets.push(offset(0, 0, 5, None));
        assert_eq!(lag(&group, 5_000).seconds, None);
    }

    fn group(group_id: &str, offsets: Vec<GroupOffset>) -> Group {
        Group {
            group_id: group_id.to_owned(),
            offsets,
            ..Group::default()
        }
    }

    /// Apache Kafka does not tell the time of the next record: every group read as being in time.
    #[test]
    fn where_ages_are_not_known_records_say_which_group_is_the_worst() {
        let groups = [
            group("a", vec![offset(100, 0, 100, None)]),
            group("b", vec![offset(0, 0, 400_000, None)]),
            group("c", vec![offset(99, 0, 100, Some(-60_000))]),
        ];
        let rows = judged(&groups, 5_000);
        let order: Vec<&str> = rows.iter().map(|(group, _)| &*group.group_id).collect();
        assert_eq!(order, ["b", "c", "a"]);
        assert_eq!(
            plain(&lead_of_all(&rows, 0)),
            "b is 400,000 records behind; it is the worst of 3 groups. How old they are is not known of every group."
        );
        let rows = judged(&groups[..1], 5_000);
        assert_eq!(
            plain(&lead_of_all(&rows, 0)),
            "1 group; none is more than ten seconds behind."
        );
    }

    #[test]
    fn where_ages_are_known_the_oldest_record_says_which_group_is_the_worst() {
        let groups = [
            group("many", vec![offset(0, 0, 400_000, Some(4_000))]),
            group("old", vec![offset(99, 0, 100, Some(-60_000))]),
        ];
        let rows = judged(&groups, 5_000);
        assert_eq!(
            plain(&lead_of_all(&rows, 498)),
            "old is 65 s behind, 1 records; it is the worst of 2 of 500 groups."
        );
    }

    #[test]
    fn a_sum_without_all_partitions_says_so() {
        let mut cut = group("cut", vec![offset(90, 0, 100, None)]);
        cut.cut_partitions = 3;
        let lead = lead_of_one(&cut, lag(&cut, 0), &Vec::new());
        assert!(
            plain(&lead).starts_with("The group is ≥ 10 records behind. Not counted: 3 partitions."),
            "{}",
            plain(&lead)
        );
    }
}
