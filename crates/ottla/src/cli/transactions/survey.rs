//! What coordinators and partitions tell of transactions.

use std::collections::{BTreeMap, BTreeSet};

use ottla_client::admin::{ActiveProducer, Admin, TopicPartition, TransactionDescription};
use ottla_client::{Error, ErrorCode};

/// A transactional id, or a hanging transaction.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Row {
    /// `None`: no coordinator knows it.
    pub transactional_id: Option<String>,
    pub producer_id: i64,
    pub producer_epoch: i32,
    pub state: String,
    /// `None`: it has none open, or is hanging.
    pub timeout_ms: Option<i32>,
    /// When the open transaction began. Of a hanging one: its last batch.
    pub started_ms: Option<i64>,
    /// Its partitions, each with the first offset of the open transaction if that is known.
    pub partitions: BTreeMap<TopicPartition, Option<i64>>,
}

/// The state of a transaction that no coordinator knows.
pub const HANGING: &str = "Hanging";

impl Row {
    pub fn is_open(&self) -> bool {
        ["Ongoing", "PrepareCommit", "PrepareAbort", HANGING].contains(&self.state.as_str())
    }

    fn of(id: String, described: TransactionDescription) -> Row {
        Row {
            transactional_id: Some(id),
            producer_id: described.producer_id,
            producer_epoch: described.producer_epoch.into(),
            timeout_ms: Some(described.timeout_ms),
            started_ms: described.started_ms,
            partitions: described.partitions.into_iter().map(|key| (key, None)).collect(),
            state: described.state,
        }
    }
}

/// Returns every transactional id that a coordinator knows.
pub fn known(admin: &Admin) -> Result<Vec<Row>, Error> {
    let ids = admin.list_transactions().wait()?.into_keys().collect();
    let described = admin.describe_transactions(ids).wait()?;
    let rows = described
        .into_iter()
        .filter_map(|(id, described)| match described {
            Ok(described) => Some(Ok(Row::of(id, described))),
            // It has expired meanwhile.
            Err(error) if is_unknown(&error) => None,
            Err(error) => Some(Err(error)),
        });
    rows.collect()
}

fn is_unknown(error: &Error) -> bool {
    matches!(
        error,
        Error::Broker {
            code: ErrorCode::TransactionalIdNotFound,
            ..
        }
    )
}

/// Returns one transactional id; `None`: there is none of this name.
pub fn one(admin: &Admin, id: &str) -> Result<Option<Row>, Error> {
    let described = admin.describe_transactions(vec![id.to_owned()]).wait()?;
    match described.into_values().next() {
        Some(Ok(described)) => Ok(Some(Row::of(id.to_owned(), described))),
        Some(Err(error)) if !is_unknown(&error) => Err(error),
        _ => Ok(None),
    }
}

/// Fills in where the open transaction begins in each of its partitions.
pub fn locate(admin: &Admin, row: &mut Row) -> Result<(), Error> {
    let partitions = row.partitions.keys().cloned().collect();
    for (partition, producers) in admin.describe_producers(partitions).wait()? {
        let mut own = producers?
            .into_iter()
            .filter(|producer| producer.producer_id == row.producer_id);
        let start = own.find_map(|producer| producer.transaction_start_offset);
        row.partitions.insert(partition, start);
    }
    Ok(())
}

/// Returns the open transactions of partitions that are in none of the known ones. A transaction
/// that ends between the two questions is not taken for one: the coordinators are asked first, so
/// that it is still among the known.
pub fn hanging(admin: &Admin, known: &[Row]) -> Result<Vec<Row>, Error> {
    let topics = admin.list_topics().wait()?.into_keys().collect();
    let mut partitions = Vec::new();
    for (topic, description) in admin.describe_topics(topics).wait()? {
        let indexes = description
            .into_iter()
            .flat_map(|topic| topic.partitions.into_keys());
        partitions.extend(indexes.map(|index| TopicPartition::new(topic.as_str(), index)));
    }
    let mut open = BTreeMap::new();
    for (partition, producers) in admin.describe_producers(partitions).wait()? {
        // A partition without a leader cannot tell; the others can.
        open.insert(partition, producers.unwrap_or_default());
    }
    Ok(unclaimed(&open, known))
}

/// Returns what is open in a partition and in no coordinator's transaction.
fn unclaimed(open: &BTreeMap<TopicPartition, Vec<ActiveProducer>>, known: &[Row]) -> Vec<Row> {
    let claimed: BTreeSet<(i64, &TopicPartition)> = known
        .iter()
        .filter(|row| row.is_open())
        .flat_map(|row| {
            row.partitions
                .keys()
                .map(|partition| (row.producer_id, partition))
        })
        .collect();
    let mut rows = Vec::new();
    for (partition, producers) in open {
        for producer in producers {
            let Some(start) = producer.transaction_start_offset else {
                continue;
            };
            if claimed.contains(&(producer.producer_id, partition)) {
                continue;
            }
            rows.push(Row {
                transactional_id: None,
                producer_id: producer.producer_id,
                producer_epoch: producer.producer_epoch,
                state: HANGING.to_owned(),
                timeout_ms: None,
                started_ms: Some(producer.last_timestamp),
                partitions: BTreeMap::from([(partition.clone(), Some(start))]),
            });
        }
    }
    rows
}

/// Returns the producer whose open transaction begins at this offset.
pub fn producer_at(
    admin: &Admin,
    partition: &TopicPartition,
    start_offset: i64,
) -> Result<Option<ActiveProducer>, Error> {
    let described = admin.describe_producers(vec![partition.clone()]).wait()?;
    let producers = described.into_values().next().unwrap_or(Ok(Vec::new()))?;
    Ok(producers
        .into_iter()
        .find(|producer| producer.transaction_start_offset == Some(start_offset)))
}
