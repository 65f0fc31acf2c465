//! `/topics` and `/topics/T`.

use ottla_lab::markup::Markup;
use ottla_lab::numbers::{bytes, count, number};
use serde::Serialize;
use serde_json::json;

use super::partition::address_of;
use super::{Now, Page, Query, View, draw_pager, draw_search, lead_of, paged};
use crate::draw::block::{Block, block, facts, head, nothing};
use crate::draw::table::{Cell, Table, numbers, words};
use crate::draw::text::{Piece, address, counted, encoded, link, name, plain, rate, strong, text};
use crate::series::TopicRates;
use crate::source::{Part, Told, Topic, TopicDetail, Untold};

/// A topic with its rates of the last minute.
struct Row<'a> {
    topic: &'a Topic,
    rates: Option<TopicRates>,
}

/// A list may have 40,000 rows: they are written as they are, without a copy as a tree of values.
#[derive(Serialize)]
struct List<'a> {
    summary: String,
    untold: Option<&'a Untold>,
    topics: Vec<Listed<'a>>,
}

#[derive(Serialize)]
struct Listed<'a> {
    topic: &'a Topic,
    records_in_per_second: Option<f64>,
    bytes_in_per_second: Option<f64>,
    bytes_out_per_second: Option<f64>,
    requests_per_second: Option<f64>,
    failed_requests_per_second: Option<f64>,
}

pub fn list(view: &View<'_>) -> Page {
    let topics = view.source.topics();
    let rows = topics
        .as_deref()
        .map(|topics| rows(topics, view))
        .map_err(Clone::clone);
    let lead = lead_of(&rows, |rows| lead(rows));
    let document = view.document(|| {
        let listed = rows.iter().flatten().map(|row| {
            let rate = |of: fn(&TopicRates) -> f64| row.rates.as_ref().map(of);
            Listed {
                topic: row.topic,
                records_in_per_second: rate(|rates| rates.records_in),
                bytes_in_per_second: rate(|rates| rates.bytes_in),
                bytes_out_per_second: rate(|rates| rates.bytes_out),
                requests_per_second: rate(TopicRates::requests),
                failed_requests_per_second: rate(TopicRates::failed_requests),
            }
        });
        List {
            summary: plain(&lead),
            untold: rows.as_ref().err(),
            topics: listed.collect(),
        }
    });
    Page {
        title: String::from("Topics"),
        place: "/topics",
        json: document,
        blocks: vec![
            head("Topics", "", &lead, &view.since(Part::Topics)),
            table(&rows, view.query),
        ],
    }
}

fn rows<'a>(topics: &'a [Topic], view: &View<'_>) -> Vec<Row<'a>> {
    let minute = view.now().ok().and_then(|Now { minute, .. }| minute);
    let rate_of = |name: &str| minute.as_ref()?.topics.get(name).copied();
    let mut rows: Vec<Row<'_>> = topics
        .iter()
        .map(|topic| Row {
            rates: rate_of(&topic.name),
            topic,
        })
        .collect();
    let by_name = view.query.get("sort") == Some("name");
    let by_size = view.query.get("sort") == Some("size");
    rows.sort_by(|one, other| {
        let records = |row: &Row<'_>| row.rates.map_or(-1.0, |rates| rates.records_in);
        let order = match (by_name, by_size) {
            (true, _) => std::cmp::Ordering::Equal,
            (_, true) => other.topic.bytes.cmp(&one.topic.bytes),
            _ => records(other).total_cmp(&records(one)),
        };
        order.then_with(|| one.topic.name.cmp(&other.topic.name))
    });
    rows
}

fn lead(rows: &[Row<'_>]) -> Vec<Piece> {
    let own = rows.iter().filter(|row| !row.topic.is_internal).count();
    if own == 0 {
        return vec![text(
            "There is no topic. The first record that a client sends to a new name creates one, if auto.create.topics.enable allows it.",
        )];
    }
    let partitions: usize = rows.iter().map(|row| row.topic.partitions).sum();
    let failed: usize = rows.iter().map(|row| row.topic.failed_partitions).sum();
    let busiest = rows
        .iter()
        .filter(|row| row.rates.is_some_and(|rates| rates.records_in >= 0.005));
    let busiest = busiest.max_by(|one, other| {
        let records = |row: &Row<'_>| row.rates.map_or(0.0, |rates| rates.records_in);
        records(one).total_cmp(&records(other))
    });
    let mut pieces = vec![
        strong(counted(own, "topic")),
        text(format!(" with {}", counted(partitions, "partition"))),
    ];
    match busiest {
        // Without rates it is not known which.
        None if rows.iter().all(|row| row.rates.is_none()) => pieces.push(text(".")),
        None => pieces.push(text("; none is written to.")),
        Some(row) => {
            let rates = row.rates.unwrap_or_default();
            pieces.push(text("; most is written to "));
            pieces.push(link(address("topics", &row.topic.name), name(&row.topic.name)));
            pieces.push(text(": "));
            pieces.push(strong(format!("{} records/s", rate(rates.records_in))));
            pieces.push(text("."));
        }
    }
    if failed > 0 {
        pieces.push(text(" "));
        pieces.push(strong(counted(failed, "partition")));
        pieces.push(text(" cannot be written."));
    }
    pieces
}

fn table(rows: &Told<Vec<Row<'_>>>, query: &Query) -> Block {
    let note = "Rates are those of the last minute; a request counts once for each partition that it names. Size: all segments on the disk. Skew: records of the fullest partition over the mean, since the broker started.";
    block("topics", "Topics", note, |page| {
        let rows = match rows {
            Err(untold) => return nothing(&untold.to_string(), page),
            Ok(rows) if rows.is_empty() => return nothing("No topic has been created.", page),
            Ok(rows) => rows,
        };
        draw_search(query, page);
        let found: Vec<&Row<'_>> = rows.iter().filter(|row| query.finds(&row.topic.name)).collect();
        if found.is_empty() {
            return nothing("No topic has this in its name.", page);
        }
        let sort = query.get("sort");
        let sorted = |by: &str| query.with("sort", by);
        let mut table = Table::new(
            "Topics",
            vec![
                words("topic").sorted_by(sorted("name"), sort == Some("name")),
                numbers("partitions"),
                numbers("records/s in").sorted_by(sorted("rate"), !matches!(sort, Some("name" | "size"))),
                numbers("MB/s in"),
                numbers("MB/s out"),
                numbers("requests/s"),
                numbers("failed/s"),
                numbers("size").sorted_by(sorted("size"), sort == Some("size")),
                numbers("skew"),
                words("retention"),
            ],
        );
        let (shown, text) = paged(&found, query, "topics");
        for row in shown {
            let topic = row.topic;
            let shown =
                |of: fn(&TopicRates) -> String| row.rates.as_ref().map_or_else(|| String::from("–"), of);
            table.row(vec![
                Cell::from(link(address("topics", &topic.name), name(&topic.name))),
                count(topic.partitions as u64).into(),
                shown(|rates| rate(rates.records_in)).into(),
                shown(|rates| number(rates.bytes_in / 1e6)).into(),
                shown(|rates| number(rates.bytes_out / 1e6)).into(),
                shown(|rates| rate(rates.requests())).into(),
                shown(|rates| rate(rates.failed_requests())).into(),
                topic
                    .bytes
                    .map_or_else(|| String::from("–"), |size| bytes(size as f64))
                    .into(),
                skew_of(topic).unwrap_or_else(|| String::from("–")).into(),
                topic
                    .retention
                    .clone()
                    .unwrap_or_else(|| String::from("–"))
                    .into(),
            ]);
        }
        table.draw(page);
        draw_pager(&text, query, found.len(), page);
    })
}

/// `None`: there is no topic of this name.
pub fn one(view: &View<'_>, topic: &str) -> Option<Page> {
    let detail = match view.source.topic(topic) {
        Ok(None) => return None,
        Ok(Some(detail)) => Ok(detail),
        Err(untold) => Err(untold),
    };
    let rates = rates_of(view, topic);
    let known = rates.as_ref().ok().copied();
    let lead = lead_of(&detail, |detail| lead_of_one(detail, known));
    let document = view.document(|| {
        json!({
            "summary": plain(&lead),
            "untold": detail.as_ref().err(),
            "topic": detail.as_ref().ok(),
            "records_in_per_second": known.map(|rates| rates.records_in),
            "bytes_in_per_second": known.map(|rates| rates.bytes_in),
            "bytes_out_per_second": known.map(|rates| rates.bytes_out),
            "produce_requests_per_second": known.map(|rates| rates.produce_requests),
            "fetch_requests_per_second": known.map(|rates| rates.fetch_requests),
            "failed_produce_requests_per_second": known.map(|rates| rates.failed_produce_requests),
            "failed_fetch_requests_per_second": known.map(|rates| rates.failed_fetch_requests),
        })
    });
    let aside = detail.as_ref().map_or_else(
        |_| String::from("topic"),
        |detail| format!("topic · {}", counted(detail.topic.partitions, "partition")),
    );
    let mut more = vec![
        link(address("messages", topic), "Look at its records"),
        text(" · "),
        link(format!("/config?topic={}", encoded(topic)), "its settings"),
    ];
    let since = view.since(Part::Topic(topic));
    if !since.is_empty() {
        more.push(text(". "));
        more.extend(since);
    }
    let mut blocks = vec![head(&name(topic), &aside, &lead, &more)];
    if let Ok(detail) = &detail {
        blocks.push(partitions(detail, view.query));
        blocks.push(requests(&rates));
        blocks.push(clients(view, topic));
        blocks.push(settings(detail));
    }
    Some(Page {
        title: name(topic),
        place: "/topics",
        blocks,
        json: document,
    })
}

fn lead_of_one(detail: &TopicDetail, rates: Option<TopicRates>) -> Vec<Piece> {
    let records: i64 = (detail.partitions.iter())
        .map(|partition| partition.high_watermark - partition.log_start)
        .sum();
    let size = detail
        .topic
        .bytes
        .map(|size| format!(" in {}", bytes(size as f64)));
    let mut pieces = vec![
        text("It holds "),
        strong(format!("{} records", count(records.max(0) as u64))),
        text(size.unwrap_or_default()),
    ];
    match rates {
        Some(rates) if rates.records_in >= 0.005 => {
            pieces.push(text("; "));
            pieces.push(strong(format!("{} records/s", rate(rates.records_in))));
            pieces.push(text(" come in."));
        }
        Some(_) => pieces.push(text("; none has come in for a minute.")),
        None => pieces.push(text(".")),
    }
    if let Some(skew) = skew_of(&detail.topic).filter(|_| detail.topic.skew >= Some(2.0)) {
        pieces.push(text(format!(
            " Its fullest partition has {skew} times the records of the mean."
        )));
    }
    pieces
}

/// `2.4`.
fn skew_of(topic: &Topic) -> Option<String> {
    topic.skew.map(|skew| number((skew * 10.0).round() / 10.0))
}

/// - Errors: why they are not known, as a sentence.
fn rates_of(view: &View<'_>, topic: &str) -> Told<TopicRates> {
    let counts = (view.source.counts()).map_err(|_| Untold::by_kafka("what goes through a topic"))?;
    let minute = view.series.minute(&counts);
    let rates = minute.and_then(|minute| minute.topics.get(topic).copied());
    rates.ok_or_else(|| {
        Untold(String::from(
            "Not known yet: it takes two samples of its counts, five seconds apart.",
        ))
    })
}

fn requests(rates: &Told<TopicRates>) -> Block {
    let note = "Of the last minute; a request counts once for each partition that it names. Failed: answered with an error for the partition.";
    block("requests", "Requests", note, |page| {
        let rates = match rates {
            Err(untold) => return nothing(&untold.to_string(), page),
            Ok(rates) => rates,
        };
        let of = |all: f64, failed: f64| format!("{}/s, {}/s of them failed", rate(all), rate(failed));
        let rows = [
            (
                "produce",
                of(rates.produce_requests, rates.failed_produce_requests),
            ),
            ("fetch", of(rates.fetch_requests, rates.failed_fetch_requests)),
        ];
        facts(&rows, page);
    })
}

fn partitions(detail: &TopicDetail, query: &Query) -> Block {
    let note = "Consumers read up to the high watermark: what lies beyond is not on the disk yet. Bar: records since the start of the broker; skew is the longest over the mean.";
    block("partitions", "Partitions", note, |page| {
        let mut table = Table::new(
            "Partitions",
            vec![
                numbers("partition"),
                numbers("log start"),
                numbers("high watermark"),
                numbers("log end"),
                numbers("records"),
                words("written"),
                numbers("size"),
                words("state"),
            ],
        );
        let most = detail
            .partitions
            .iter()
            .filter_map(|partition| partition.records_in)
            .max();
        let (shown, text) = paged(&detail.partitions, query, "partitions");
        for partition in shown {
            let offset = |offset: i64| Cell::from(count(offset.max(0) as u64));
            let share = partition.records_in.unwrap_or(0) as f64 / most.unwrap_or(0).max(1) as f64;
            table.row(vec![
                Cell::from(link(
                    address_of(&detail.topic.name, partition.index),
                    partition.index.to_string(),
                )),
                offset(partition.log_start),
                offset(partition.high_watermark),
                offset(partition.log_end),
                offset(partition.high_watermark - partition.log_start),
                Cell::Bar { share, is_bad: false },
                partition
                    .bytes
                    .map_or_else(|| String::from("–"), |size| bytes(size as f64))
                    .into(),
                match &partition.failure {
                    None => Cell::Mark {
                        class: "good",
                        mark: "●",
                        word: String::from("served"),
                    },
                    Some(why) => Cell::Mark {
                        class: "bad",
                        mark: "▲",
                        word: why.clone(),
                    },
                },
            ]);
        }
        table.draw(page);
        if let Some(skew) = skew_of(&detail.topic) {
            facts(&[("skew", skew)], page);
        }
        draw_pager(&text, query, detail.partitions.len(), page);
    })
}

/// Who writes and reads it, by name.
fn clients(view: &View<'_>, topic: &str) -> Block {
    block(
        "who",
        "Who uses it",
        "Producers by the partitions that they wrote in the last minute; groups by their committed offsets.",
        |page| {
            let snapshots = view.source.snapshots().unwrap_or_default();
            let writes = snapshots.iter().filter(|snapshot| {
                let seen = snapshot.brokers.iter().flat_map(|broker| &broker.partitions);
                let pushed = snapshot
                    .producer
                    .iter()
                    .any(|producer| producer.topics.contains_key(topic));
                pushed || seen.into_iter().any(|partition| partition.topic == topic)
            });
            let producers: Vec<&str> = writes
                .map(|snapshot| snapshot.client.client_id.as_str())
                .collect();
            let groups = view.source.groups().unwrap_or_default();
            let reads = (groups.groups.iter())
                .filter(|group| group.offsets.iter().any(|offset| offset.topic == topic));
            let groups: Vec<&str> = reads.map(|group| group.group_id.as_str()).collect();
            if producers.is_empty() && groups.is_empty() {
                return nothing(
                    "No producer has been seen writing to it, and no group has committed an offset of it.",
                    page,
                );
            }
            names("producers", "clients", &producers, page);
            names("groups", "groups", &groups, page);
        },
    )
}

fn names(title: &str, place: &str, names: &[&str], page: &mut Markup) {
    const NAMES_MAX: usize = 20;
    page.nest("p", &[], |page| {
        page.inline("span", &[("class", &"q")], format_args!("{title}: "));
        if names.is_empty() {
            page.text("none seen");
        }
        for (index, shown) in names.iter().take(NAMES_MAX).enumerate() {
            if index > 0 {
                page.text(", ");
            }
            page.inline("a", &[("href", &address(place, shown))], name(shown));
        }
        if names.len() > NAMES_MAX {
            page.text(format_args!(" and {} more", names.len() - NAMES_MAX));
        }
    });
}

fn settings(detail: &TopicDetail) -> Block {
    block(
        "settings",
        "Its own settings",
        "What differs from the broker’s.",
        |page| {
            let own: Vec<_> = detail.settings.iter().filter(|setting| setting.is_set).collect();
            if own.is_empty() {
                return nothing("None: it follows the broker’s settings.", page);
            }
            page.nest("dl", &[("class", &"f")], |page| {
                for setting in own {
                    page.nest("dt", &[], |page| page.inline("code", &[], &setting.name));
                    page.leaf("dd", &[], setting.value.as_deref().unwrap_or("–"));
                }
            });
        },
    )
}
