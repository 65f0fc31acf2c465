//! `/groups/G`: the lag of a group by partition, its members, who left and why.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ottla_lab::doctor::Snapshot;
use ottla_lab::doctor::diagnosis::Diagnosis;
use ottla_lab::doctor::snapshot::{Role, host_of};
use ottla_lab::markup::Markup;
use ottla_lab::numbers::count;
use serde_json::json;

use super::lag::{Lag, json_of, short, trend_of, worst_first};
use super::overview::mark;
use super::{Page, View, draw_pager, paged};
use crate::draw::block::{Block, block, facts, head, nothing};
use crate::draw::table::{Cell, Table, numbers, words};
use crate::draw::text::{Piece, address, clock, counted, link, name, plain, ranges, strong, text};
use crate::source::{Group, GroupOffset, GroupRebalance, Member, Part, Told, Untold};
use crate::trend::{Direction, Trend};

/// `None`: there is no group of this name.
pub fn page(view: &View<'_>, group_id: &str) -> Option<Page> {
    let groups = view.source.groups().ok()?;
    let group = (groups.groups.iter()).find(|group| group.group_id == group_id)?;
    let now_ms = view.source.now_ms();
    let lag = Lag::of(group, now_ms);
    let trend = trend_of(view, group);
    let members = verdicts(view, group);
    let lead = lead(group, (&lag, &trend), &members, now_ms);
    let topics: BTreeSet<&str> = group.offsets.iter().map(|offset| offset.topic.as_str()).collect();
    let aside = format!(
        "group · {} · {}",
        counted(group.members.len(), "member"),
        counted(topics.len(), "topic")
    );
    let document = view.document(|| {
        let mut fields = json_of(group, &lag, &trend);
        fields.insert(String::from("summary"), json!(plain(&lead)));
        fields
    });
    let blocks = vec![
        head(&name(group_id), &aside, &lead, &view.since(Part::Groups)),
        lag_block(group, &lag, &trend, view),
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

/// The doctor's verdict on each member's client, in the order of the members. Of several clients of
/// one name it is that of the member's host.
type Judged = Vec<Option<Arc<Diagnosis>>>;

fn verdicts(view: &View<'_>, group: &Group) -> Judged {
    let examination = view.source.examination().ok();
    let mut by_name: BTreeMap<&str, Vec<&Arc<Diagnosis>>> = BTreeMap::new();
    for client in examination.iter().flat_map(|examination| &examination.clients) {
        if client.role == Role::Consumer {
            by_name.entry(&client.client_id).or_default().push(client);
        }
    }
    // Without them no host is known, and the first client of a name counts.
    let snapshots = view.source.snapshots().unwrap_or_default();
    let hosts: BTreeMap<&str, &str> = snapshots.iter().filter_map(host_by_instance).collect();
    let verdict = |member: &Member| {
        let named = by_name.get(member.client_id.as_str())?;
        let is_there = |client: &&&Arc<Diagnosis>| {
            let host = client.instance_id.as_deref().and_then(|id| hosts.get(id));
            host.is_some_and(|host| **host == member.host)
        };
        named.iter().find(is_there).or(named.first()).copied().cloned()
    };
    group.members.iter().map(verdict).collect()
}

fn host_by_instance(snapshot: &Snapshot) -> Option<(&str, &str)> {
    let client = &snapshot.client;
    Some((
        client.instance_id.as_deref()?,
        host_of(client.address.as_deref()?),
    ))
}

fn lead(group: &Group, (lag, trend): (&Lag, &Told<Trend>), members: &Judged, now_ms: i64) -> Vec<Piece> {
    let mut pieces = how_late(group, lag);
    if lag.records > 0 {
        pieces.push(text(match trend {
            Ok(trend) => format!(" It {}.", in_a_sentence(trend)),
            Err(untold) => format!(" Its trend is {untold}."),
        }));
    }
    if lag.is_at_least {
        pieces.push(text(format!(
            " Not counted: {}.",
            counted(group.cut_partitions, "partition")
        )));
    }
    if group.members.is_empty() {
        pieces.push(text(" It has no member: nothing is being read."));
    }
    pieces.extend(cause(group, members, now_ms));
    pieces
}

/// Why the worst partition is behind: the verdict on the member that holds it.
fn cause(group: &Group, members: &Judged, now_ms: i64) -> Vec<Piece> {
    let rows = by_partition(group, now_ms);
    let Some((worst, _)) = rows.first().filter(|(_, lag)| lag.records > 0) else {
        return Vec::new();
    };
    let partition = format!("{} {}", name(&worst.topic), worst.partition);
    let holder = (group.members.iter()).position(|member| member.has(&worst.topic, worst.partition));
    let Some(holder) = holder else {
        // While a group rebalances, Kafka tells no member's partitions.
        let are_told = group.members.iter().any(|member| !member.holds.is_empty());
        return match are_told {
            true => vec![text(format!(
                " No member holds the worst partition, {partition}."
            ))],
            false => Vec::new(),
        };
    };
    let client_id = &group.members[holder].client_id;
    let verdict = members.get(holder).and_then(Option::as_ref);
    let (page, summary) = match verdict {
        None => (client_id, "the doctor knows nothing of it yet."),
        Some(client) => (
            client.instance_id.as_ref().unwrap_or(client_id),
            client.summary.as_str(),
        ),
    };
    let held_by = match verdict {
        None => text(name(client_id)),
        Some(_) => link(address("clients", page), name(client_id)),
    };
    vec![
        text(format!(" The worst partition, {partition}, is with ")),
        held_by,
        text(format!(": {summary}")),
    ]
}

/// Worst first.
fn by_partition(group: &Group, now_ms: i64) -> Vec<(&GroupOffset, Lag)> {
    let offsets = group.offsets.iter();
    let mut rows: Vec<(&GroupOffset, Lag)> = offsets
        .map(|offset| (offset, Lag::of_partition(offset, now_ms)))
        .collect();
    worst_first(&mut rows, |one, other| {
        (&one.topic, one.partition).cmp(&(&other.topic, other.partition))
    });
    rows
}

fn in_a_sentence(trend: &Trend) -> String {
    match trend.direction {
        Direction::AsBefore => String::from("is as far behind as a minute ago"),
        Direction::Grows | Direction::Shrinks => trend.words(),
    }
}

fn how_late(group: &Group, lag: &Lag) -> Vec<Piece> {
    if lag.records == 0 {
        return vec![text(match group.offsets.is_empty() {
            true => "The group has committed nothing yet.",
            false => "The group has read everything there is.",
        })];
    }
    let mut pieces = vec![text("The group is ")];
    match lag.seconds_in_words() {
        Some(seconds) => {
            pieces.push(strong(format!("{seconds} behind")));
            pieces.push(text(format!(", {} records.", lag.records())));
        }
        None => {
            pieces.push(strong(format!("{} records behind", lag.records())));
            pieces.push(text("."));
        }
    }
    if let Some(unknown) = lag.what_is_unknown() {
        pieces.push(text(format!(" Since when: {unknown}.")));
    }
    pieces
}

fn lag_block(group: &Group, all: &Lag, trend: &Told<Trend>, view: &View<'_>) -> Block {
    let note = "Worst first. Records that retention has deleted are not counted: they can no longer be read. “–” where the record’s time is not known. The trend compares the lag of now and of a minute ago.";
    block("lag", "Lag by partition", note, |page| {
        if group.offsets.is_empty() {
            return nothing(
                "It has committed no offset: lag is counted from the committed one.",
                page,
            );
        }
        trend_facts(trend, page);
        let offsets = by_partition(group, view.source.now_ms());
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
                lag.seconds().into(),
                lag.records().into(),
                Cell::Bar {
                    share: lag.records as f64 / most as f64,
                    is_bad: lag.is_bad(),
                },
                count(offset.committed.max(0) as u64).into(),
                count(offset.log_end.max(0) as u64).into(),
            ]);
        }
        table.sum(vec![
            "all".into(),
            all.seconds().into(),
            all.records().into(),
            "".into(),
            "".into(),
            "".into(),
        ]);
        table.draw(page);
        draw_pager(&text, view.query, offsets.len(), page);
    })
}

fn trend_facts(trend: &Told<Trend>, page: &mut Markup) {
    let rows = match trend {
        Ok(trend) => vec![
            (
                "trend",
                format!("{} {}; {}", trend.arrow(), trend.course(), trend.sum()),
            ),
            ("catches up", trend.catches_up()),
        ],
        Err(untold) => vec![("trend", untold.to_string())],
    };
    facts(&rows, page);
}

fn members_block(group: &Group, members: &Judged) -> Block {
    let note = "The verdict is the doctor’s on the client of this name; of several with one name, on the one of this host. A state is told by groups of the protocol “consumer” (KIP-848).";
    block("members", "Members", note, |page| {
        if group.members.is_empty() {
            return nothing("It has no member.", page);
        }
        let columns = vec![
            words("client"),
            words("holds"),
            words("state"),
            words("verdict"),
            words("host"),
            words("member id"),
        ];
        let mut table = Table::new("Members", columns);
        for (member, verdict) in group.members.iter().zip(members) {
            table.row(vec![
                client_cell(member, verdict.as_deref()),
                holds(member).into(),
                member.state.clone().unwrap_or_else(|| String::from("–")).into(),
                verdict_cell(verdict.as_deref()),
                name(&member.host).into(),
                name(&member.member_id).into(),
            ]);
        }
        table.draw(page);
    })
}

/// `orders 0 to 2, 5; payments 1`.
fn holds(member: &Member) -> String {
    const TOPICS_MAX: usize = 8;
    let topics = member.holds.iter().take(TOPICS_MAX);
    let mut held: Vec<String> = topics
        .map(|(topic, partitions)| format!("{} {}", name(topic), ranges(partitions)))
        .collect();
    let more: usize = member.holds.values().skip(TOPICS_MAX).map(Vec::len).sum();
    let more = more + member.holds_more;
    if more > 0 {
        held.push(format!("and {} more", counted(more, "partition")));
    }
    match held.is_empty() {
        true => String::from("nothing"),
        false => held.join("; "),
    }
}

fn client_cell(member: &Member, verdict: Option<&Diagnosis>) -> Cell {
    let client_id = &member.client_id;
    let page = verdict.and_then(|client| client.instance_id.as_ref());
    Cell::from(link(
        address("clients", page.unwrap_or(client_id)),
        name(client_id),
    ))
}

fn verdict_cell(verdict: Option<&Diagnosis>) -> Cell {
    let Some(client) = verdict else {
        return Cell::from("–");
    };
    let (sign, class) = mark(client.severity());
    Cell::Mark {
        class,
        mark: sign,
        word: client.summary.clone(),
    }
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
    use ottla_lab::doctor::diagnosis::Verdict;

    #[test]
    fn a_sum_without_all_partitions_says_so() {
        let offset = GroupOffset {
            committed: 90,
            log_end: 100,
            ..GroupOffset::default()
        };
        let cut = Group {
            offsets: vec![offset],
            cut_partitions: 3,
            ..Group::default()
        };
        let untold = Err(Untold(String::from("not known yet")));
        let lead = lead(&cut, (&Lag::of(&cut, 0), &untold), &Vec::new(), 0);
        assert!(
            plain(&lead).contains("The group is ≥ 10 records behind. Since when: 1 of 1 partition not known. Its trend is not known yet. Not counted: 3 partitions."),
            "{}",
            plain(&lead)
        );
    }

    /// The page named the member with the worst verdict, whatever it held.
    #[test]
    fn the_cause_is_the_verdict_on_the_member_that_holds_the_worst_partition() {
        let offset = |partition: i32, committed: i64| GroupOffset {
            topic: String::from("orders"),
            partition,
            committed,
            log_end: 100,
            ..GroupOffset::default()
        };
        let member = |client_id: &str, partition: i32| Member {
            client_id: client_id.to_owned(),
            holds: [(String::from("orders"), vec![partition])].into(),
            ..Member::default()
        };
        let judged = |verdict, summary: &str| {
            Some(Arc::new(Diagnosis {
                verdict,
                summary: summary.to_owned(),
                ..Diagnosis::default()
            }))
        };
        let mut group = Group {
            members: vec![member("failing", 0), member("slow", 1)],
            offsets: vec![offset(0, 95), offset(1, 10), offset(2, 100)],
            ..Group::default()
        };
        let members = vec![
            judged(Verdict::Failing, "Its requests fail."),
            judged(Verdict::Processing, "Its application is slow."),
        ];
        assert_eq!(
            plain(&cause(&group, &members, 0)),
            " The worst partition, orders 1, is with slow: Its application is slow."
        );
        assert_eq!(
            plain(&cause(&group, &vec![None, None], 0)),
            " The worst partition, orders 1, is with slow: the doctor knows nothing of it yet."
        );
        group.members.pop();
        assert_eq!(
            plain(&cause(&group, &members, 0)),
            " No member holds the worst partition, orders 1."
        );
        // While the group rebalances no assignment is told.
        group.members[0].holds.clear();
        assert_eq!(cause(&group, &members, 0), []);
        group.offsets = vec![offset(0, 100)];
        assert_eq!(cause(&group, &members, 0), [], "nothing is behind");
    }

    #[test]
    fn what_a_member_holds_is_listed_by_topic_and_not_without_end() {
        let member = |topics: usize, more: usize| Member {
            holds: (0..topics)
                .map(|topic| (format!("t{topic}"), vec![0, 1, 3]))
                .collect(),
            holds_more: more,
            ..Member::default()
        };
        assert_eq!(holds(&member(0, 0)), "nothing");
        assert_eq!(holds(&member(2, 0)), "t0 0 to 1, 3; t1 0 to 1, 3");
        assert!(holds(&member(9, 4)).ends_with("t7 0 to 1, 3; and 7 partitions more"));
    }
}
