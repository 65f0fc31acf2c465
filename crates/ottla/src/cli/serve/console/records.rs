//! Records, and transactions that are open.

use std::collections::BTreeMap;
use std::net::IpAddr;

use ottla_broker::admin::records::{self, LookFor, LookFrom, LookedRecord};
use ottla_broker::hanging::{self, Start};
use ottla_broker::transactions::OpenTransaction as KnownTransaction;
use ottla_broker::{AdminView, NodeConfig};
use ottla_console::source::{OpenTransaction, Peek, PeekFrom, Peeked, PeekedRecord, Told, Untold};

/// Records are shown to this machine, and to those who have the token.
pub fn peek(view: &AdminView, ask: &Peek) -> Told<Peeked> {
    if !shows_records(view.node.config()) {
        return Err(Untold(String::from(
            "Records are shown only where ottla.admin.listener is a loopback address or has a token: this one can be reached from other machines.",
        )));
    }
    let look = records::look(
        &view.node,
        &LookFor {
            topic: &ask.topic,
            partition: ask.partition,
            from: match ask.from {
                PeekFrom::End => tail(ask, 0),
                PeekFrom::Since(offset) => tail(ask, offset),
                PeekFrom::Offset(offset) => LookFrom::Offset(offset),
                PeekFrom::Time(at_ms) => LookFrom::Time(at_ms),
            },
            is_wanted: &|record| {
                let headers = record.headers.iter().map(|header| header.value);
                ask.filter.wants(record.key, record.value, headers)
            },
            records_max: ask.records_max,
            field_bytes_max: ask.field_bytes_max,
        },
    );
    let look = look.map_err(Untold)?;
    Ok(Peeked {
        partition_count: i32::try_from(look.partition_count).unwrap_or(i32::MAX),
        log_start: look.log_start,
        log_end: look.end,
        from_offset: look.from_offset,
        records: look.records.into_iter().map(record).collect(),
        looked_at: look.looked_at,
        next_offset: look.next_offset,
        note: look.note,
    })
}

fn tail(ask: &Peek, not_before: i64) -> LookFrom {
    LookFrom::Tail {
        offsets: ask.tail_offsets(),
        not_before,
    }
}

fn shows_records(config: &NodeConfig) -> bool {
    let listener = config.admin_listener.as_ref();
    config.admin_token_file.is_some() || listener.is_some_and(|(host, _)| is_loopback(host))
}

fn is_loopback(host: &str) -> bool {
    let address = host.parse::<IpAddr>();
    host == "localhost" || address.is_ok_and(|address| address.is_loopback())
}

fn record(record: LookedRecord) -> PeekedRecord {
    PeekedRecord {
        offset: record.offset,
        timestamp_ms: record.timestamp_ms,
        key: record.key,
        value: record.value,
        key_bytes: record.key_bytes,
        value_bytes: record.value_bytes,
        headers: record.headers,
        codec: Some(record.codec.to_owned()),
        producer_id: record.producer_id,
    }
}

/// Those that coordinators know, and those that are open in a partition and that none knows
/// (hanging ones), by producer id.
pub fn open_transactions(view: &AdminView) -> Vec<OpenTransaction> {
    let look = || -> BTreeMap<Start, i64> {
        let found = hanging::look(&view.node.storage, &view.node.transactions);
        found.into_iter().map(|(start, last)| (start, last.0)).collect()
    };
    let known = view.node.transactions.open();
    let mut unknown = look();
    if !unknown.is_empty() {
        // A transaction may have begun or ended during the look.
        let again = look();
        unknown.retain(|start, _| again.contains_key(start));
    }
    let mut all: Vec<OpenTransaction> = known.into_iter().map(known_to_coordinator).collect();
    all.extend(by_producer(unknown));
    all
}

fn known_to_coordinator(open: KnownTransaction) -> OpenTransaction {
    let partitions = open.state.partitions.iter();
    OpenTransaction {
        transactional_id: open.id.to_string(),
        producer_id: open.state.producer_id,
        state: String::from(open.state.status.name()),
        since_ms: Some(open.state.started.0).filter(|ms| *ms >= 0),
        partitions: partitions
            .map(|(topic, index)| format!("{topic} {index}"))
            .collect(),
    }
}

fn by_producer(unknown: BTreeMap<Start, i64>) -> impl Iterator<Item = OpenTransaction> {
    let mut open: BTreeMap<i64, OpenTransaction> = BTreeMap::new();
    for (start, last_ms) in unknown {
        let transaction = open.entry(start.producer_id).or_insert_with(|| OpenTransaction {
            transactional_id: String::from("no coordinator knows it"),
            producer_id: start.producer_id,
            state: String::from("Hanging"),
            since_ms: Some(last_ms),
            partitions: Vec::new(),
        });
        transaction.since_ms = transaction.since_ms.map(|since_ms| since_ms.min(last_ms));
        let place = format!("{} {}", start.topic, start.partition);
        transaction.partitions.push(place);
    }
    open.into_values()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_this_machine_s_own_addresses_show_records() {
        for (host, expected) in [
            ("127.0.0.1", true),
            ("::1", true),
            ("localhost", true),
            ("0.0.0.0", false),
            ("", false),
            ("::", false),
            ("10.0.0.5", false),
            ("broker", false),
        ] {
            assert_eq!(is_loopback(host), expected, "{host}");
        }
    }
}
