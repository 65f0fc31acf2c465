//! Transactions as a table, as a page about one, and as JSON.

use std::fmt::Write;

use ottla_lab::numbers::duration;
use serde_json::{Value, json};

use super::survey::Row;
use crate::cli::doctor::text::clean;
use crate::cli::output::{self, Failure};
use crate::cli::table::align;

/// Version of the JSON; it changes when a field is removed or changes its meaning.
const VERSION: u32 = 1;

const HEADINGS: [&str; 7] = [
    "ID",
    "PRODUCER",
    "EPOCH",
    "STATE",
    "OPEN-FOR",
    "TIMES-OUT-IN",
    "PARTITIONS",
];

/// Partitions named in a row; `show` names all.
const NAMED_MAX: usize = 3;

const UNKNOWN: &str = "-";

pub fn text(rows: &[Row], now_ms: i64) -> String {
    if rows.is_empty() {
        return String::from("no transaction is open\n");
    }
    let mut cells = vec![HEADINGS.map(str::to_owned)];
    cells.extend(rows.iter().map(|row| row_cells(row, now_ms)));
    let mut text = String::new();
    for line in align(&cells, HEADINGS.len()) {
        let _ = writeln!(text, "{}", line.trim_end());
    }
    text
}

fn row_cells(row: &Row, now_ms: i64) -> [String; HEADINGS.len()] {
    let id = row.transactional_id.as_deref().map_or(UNKNOWN.to_owned(), clean);
    let mut named: Vec<String> = row
        .partitions
        .iter()
        .take(NAMED_MAX)
        .map(|(partition, start)| match start {
            Some(start) => format!("{partition}@{start}"),
            None => partition.to_string(),
        })
        .collect();
    if row.partitions.len() > NAMED_MAX {
        named.push(format!("and {} more", row.partitions.len() - NAMED_MAX));
    }
    [
        id,
        row.producer_id.to_string(),
        row.producer_epoch.to_string(),
        clean(&row.state),
        open_for(row, now_ms).unwrap_or_else(|| UNKNOWN.to_owned()),
        times_out_in(row, now_ms).unwrap_or_else(|| UNKNOWN.to_owned()),
        clean(&named.join(", ")),
    ]
}

fn open_for(row: &Row, now_ms: i64) -> Option<String> {
    let started_ms = row.started_ms.filter(|_| row.is_open())?;
    Some(duration((now_ms - started_ms).max(0) as f64 / 1e3))
}

/// A transaction that is being ended no longer times out.
fn times_out_in(row: &Row, now_ms: i64) -> Option<String> {
    let started_ms = row.started_ms.filter(|_| row.state == "Ongoing")?;
    let rest_ms = started_ms + i64::from(row.timeout_ms?) - now_ms;
    Some(match rest_ms {
        ..=0 => String::from("now"),
        rest_ms => duration(rest_ms as f64 / 1e3),
    })
}

/// Everything about one transactional id.
pub fn details(row: &Row, now_ms: i64) -> String {
    let mut text = format!(
        "{}: {}\n  producer id {}, epoch {}",
        clean(row.transactional_id.as_deref().unwrap_or(UNKNOWN)),
        clean(&row.state),
        row.producer_id,
        row.producer_epoch
    );
    if let Some(timeout_ms) = row.timeout_ms {
        let _ = write!(text, ", transaction.timeout.ms={timeout_ms}");
    }
    text.push('\n');
    if let Some(open_for) = open_for(row, now_ms) {
        let _ = write!(text, "  open for {open_for}");
        if let Some(rest) = times_out_in(row, now_ms) {
            let _ = write!(text, "; its coordinator aborts it in {rest}");
        }
        text.push('\n');
    }
    for (partition, start) in &row.partitions {
        let partition = clean(&partition.to_string());
        let _ = match start {
            Some(start) => writeln!(
                text,
                "  {partition}: consumers of committed records read no further than offset {start}"
            ),
            None => writeln!(text, "  {partition}: nothing was written yet"),
        };
    }
    text
}

pub fn json(rows: &[Row]) -> Result<String, Failure> {
    output::json(&json!({
        "version": VERSION,
        "transactions": rows.iter().map(of_row).collect::<Vec<Value>>(),
    }))
}

fn of_row(row: &Row) -> Value {
    let partitions = row.partitions.iter().map(|(partition, start)| {
        json!({
            "topic": &*partition.topic,
            "partition": partition.partition,
            "start_offset": start,
        })
    });
    json!({
        "transactional_id": row.transactional_id,
        "producer_id": row.producer_id,
        "producer_epoch": row.producer_epoch,
        "state": row.state,
        "timeout_ms": row.timeout_ms,
        "started_ms": row.started_ms,
        "partitions": partitions.collect::<Vec<Value>>(),
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use ottla_client::admin::TopicPartition;

    use super::*;

    fn ongoing() -> Row {
        Row {
            transactional_id: Some(String::from("billing\u{1b}[31m")),
            producer_id: 4_001,
            producer_epoch: 7,
            state: String::from("Ongoing"),
            timeout_ms: Some(60_000),
            started_ms: Some(1_000),
            partitions: BTreeMap::from([
                (TopicPartition::new("orders", 0), Some(41)),
                (TopicPartition::new("orders", 1), None),
            ]),
        }
    }

    #[test]
    fn a_row_tells_how_long_it_is_open_and_when_it_times_out() {
        let table = text(&[ongoing()], 13_000);
        let row = table.lines().nth(1).unwrap();
        for part in ["4001", "Ongoing", "12 s", "48 s", "orders-0@41, orders-1"] {
            assert!(row.contains(part), "{row}");
        }
        assert!(!table.contains('\u{1b}'), "a name is no command for the terminal");
    }

    #[test]
    fn only_an_ongoing_transaction_times_out() {
        let mut row = ongoing();
        row.state = String::from("PrepareCommit");
        assert_eq!(times_out_in(&row, 2_000), None);
        assert!(open_for(&row, 2_000).is_some());
        row.state = String::from("CompleteCommit");
        assert_eq!(open_for(&row, 2_000), None);
        assert_eq!(times_out_in(&ongoing(), 90_000).as_deref(), Some("now"));
    }

    #[test]
    fn the_details_say_what_readers_wait_for() {
        let text = details(&ongoing(), 13_000);
        assert!(text.contains("orders-0: consumers of committed records read no further than offset 41"));
        assert!(text.contains("orders-1: nothing was written yet"));
        assert!(text.contains("transaction.timeout.ms=60000"));
    }
}
