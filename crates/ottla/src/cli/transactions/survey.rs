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

/// Returns the open transactions of partitions that are in none of the known ones.
///
/// - Shape: `known` was asked for before. What looks hanging is asked for a second time: a
///   transaction may have begun or ended between the questions.
pub fn hanging(admin: &Admin, known: &[Row]) -> Result<Vec<Row>, Error> {
    let topics = admin.list_topics().wait()?.into_keys().collect();
    let mut partitions = Vec::new();
    for (topic, description) in admin.describe_topics(topics).wait()? {
        let indexes = description
            .into_iter()
            .flat_map(|topic| topic.partitions.into_keys());
        partitions.extend(indexes.map(|index| TopicPartition::new(topic.as_str(), index)));
    }
    let first = unclaimed(open(admin, partitions)?, known);
    if first.is_empty() {
        return Ok(first);
    }
    let known = self::known(admin)?;
    let partitions = first.iter().flat_map(|row| row.partitions.keys().cloned());
    let second = unclaimed(open(admin, partitions.collect())?, &known);
    Ok(in_both(&first, second))
}

/// Returns what is open in each partition, as if no coordinator knew it. A partition without a
/// leader cannot tell; the others can.
fn open(admin: &Admin, partitions: Vec<TopicPartition>) -> Result<Vec<Row>, Error> {
    let mut rows = Vec::new();
    for (partition, producers) in admin.describe_producers(partitions).wait()? {
        for producer in producers.unwrap_or_default() {
            let Some(start) = producer.transaction_start_offset else {
                continue;
            };
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
    Ok(rows)
}

/// Returns what is in no coordinator's open transaction.
fn unclaimed(mut open: Vec<Row>, known: &[Row]) -> Vec<Row> {
    let claimed: BTreeSet<(i64, &TopicPartition)> = known
        .iter()
        .filter(|row| row.is_open())
        .flat_map(|row| {
            row.partitions
                .keys()
                .map(|partition| (row.producer_id, partition))
        })
        .collect();
    open.retain(|row| {
        let mut partitions = row.partitions.keys();
        !partitions.any(|partition| claimed.contains(&(row.producer_id, partition)))
    });
    open
}

/// Returns those of `second` that are in `first`: the same transaction begins at the same offset.
fn in_both(first: &[Row], mut second: Vec<Row>) -> Vec<Row> {
    second.retain(|row| {
        first
            .iter()
            .any(|other| (other.producer_id, &other.partitions) == (row.producer_id, &row.partitions))
    });
    second
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

#[cfg(test)]
mod tests {
    use super::*;

    fn row(id: Option<&str>, producer_id: i64, state: &str, start: Option<i64>) -> Row {
        Row {
            transactional_id: id.map(str::to_owned),
            producer_id,
            state: state.to_owned(),
            partitions: BTreeMap::from([(TopicPartition::new("orders", 1), start)]),
            ..Row::default()
        }
    }

    fn open(producer_id: i64, start: i64) -> Vec<Row> {
        vec![row(None, producer_id, HANGING, Some(start))]
    }

    fn known(producer_id: i64, state: &str) -> Row {
        row(Some("ledger"), producer_id, state, None)
    }

    #[test]
    fn what_no_coordinator_has_open_is_hanging() {
        assert_eq!(unclaimed(open(7, 3), &[known(7, "Ongoing")]), []);
        for others in [
            vec![],
            vec![known(7, "CompleteCommit")],
            vec![known(8, "Ongoing")],
        ] {
            assert_eq!(unclaimed(open(7, 3), &others), open(7, 3), "{others:?}");
        }
    }

    #[test]
    fn a_transaction_that_began_or_ended_between_the_questions_is_not_hanging() {
        let first = unclaimed(open(7, 3), &[]);
        let hanging = |open, known: &[Row]| in_both(&first, unclaimed(open, known));
        assert_eq!(hanging(open(7, 3), &[known(8, "Ongoing")]), open(7, 3));
        assert_eq!(hanging(open(7, 3), &[known(7, "Ongoing")]), [], "begun");
        assert_eq!(hanging(Vec::new(), &[]), [], "ended");
        assert_eq!(hanging(open(7, 9), &[]), [], "ended, and the next one began");
    }
}
