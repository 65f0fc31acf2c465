//! `/groups`: lag in seconds and in records, and where it goes.

use ottla_lab::numbers::count;
use serde_json::{Value, json};

use super::lag::{Lag, json_of, trend_cell, trend_of, worst_first};
use super::{Page, View, draw_pager, draw_search, lead_of, paged};
use crate::draw::block::{block, head, nothing};
use crate::draw::table::{Cell, Table, numbers, words};
use crate::draw::text::{Piece, address, counted, link, name, plain, strong, text};
use crate::source::{Group, Part};

/// The groups with their lag, worst first.
fn judged(groups: &[Group], now_ms: i64) -> Vec<(&Group, Lag)> {
    let groups = groups.iter();
    let mut rows: Vec<(&Group, Lag)> = groups.map(|group| (group, Lag::of(group, now_ms))).collect();
    worst_first(&mut rows, |one, other| one.group_id.cmp(&other.group_id));
    rows
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
            "groups": shown
                .map(|(group, lag)| Value::Object(json_of(group, lag, &trend_of(view, group))))
                .collect::<Vec<Value>>(),
        })
    });
    let note = "Lag: the age of the oldest record that is still to be read, by its own timestamp; “≥” where it is not known of every partition, “–” of none. If one is not known, records decide the order. Trend: over the last minute.";
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
    let is_behind = lag.is_age_unknown() || lag.is_bad();
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
        let time = lag.seconds_in_words().map(|seconds| format!(", {seconds}"));
        return vec![
            worst,
            text(" is "),
            strong(format!("{} records behind", lag.records())),
            text(format!(
                "{}; it is the worst of {all}. How old they are is not known of every group.",
                time.unwrap_or_default()
            )),
        ];
    }
    vec![
        worst,
        text(" is "),
        strong(format!("{} behind", lag.seconds())),
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
            words("trend"),
            words("catches up"),
            numbers("members"),
            numbers("partitions"),
            words("state"),
        ],
    );
    let (shown, text) = paged(&found, view.query, "groups");
    for (group, lag) in shown {
        let trend = trend_of(view, group);
        table.row(vec![
            Cell::from(link(address("groups", &group.group_id), name(&group.group_id))),
            lag.seconds().into(),
            lag.records().into(),
            Cell::Bar {
                share: lag.records as f64 / most as f64,
                is_bad: lag.is_bad(),
            },
            trend_cell(&trend),
            trend
                .map_or_else(|_| String::from("–"), |trend| trend.catches_up())
                .into(),
            count(group.members.len() as u64).into(),
            count((group.offsets.len() + group.cut_partitions) as u64).into(),
            group.state.clone().unwrap_or_else(|| String::from("–")).into(),
        ]);
    }
    table.draw(page);
    draw_pager(&text, view.query, found.len(), page);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::GroupOffset;

    fn offset(committed: i64, log_start: i64, log_end: i64, next_at_ms: Option<i64>) -> GroupOffset {
        GroupOffset {
            topic: "t".into(),
            partition: 0,
            committed,
            log_start,
            log_end,
            next_at_ms,
            time_unknown: None,
        }
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
}
