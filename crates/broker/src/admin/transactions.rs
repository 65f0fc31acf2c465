//! The metrics of open transactions: `read_committed` readers of a partition wait for its oldest.

use ottla_core::partition::Partition;
use ottla_core::time::Timestamp;
use ottla_core::transaction::state::Status;

use super::AdminView;
use super::exposition::Page;

/// Upper bounds of the classes, in seconds since the producer last wrote to the partition, and
/// their names. Beyond the last one, a quarter of an hour and five minutes as in Apache Kafka
/// (KIP-664), a transaction is late: `transaction.max.timeout.ms` has passed by default.
const IDLE: [(i64, &str); 3] = [(60, "1m"), (300, "5m"), (1_200, "20m")];
const LATE: &str = "+Inf";

/// Open transactions by class, and partitions with a late one.
#[derive(Debug, Default, PartialEq, Eq)]
struct Open {
    by_idle: [u64; IDLE.len() + 1],
    partitions_with_late: u64,
}

impl Open {
    /// Counts the transactions of one partition, by when their producers last wrote.
    fn count(&mut self, last_written_ms: impl Iterator<Item = i64>, now: Timestamp) {
        let mut is_late = false;
        for last_ms in last_written_ms {
            let idle_s = now.0.saturating_sub(last_ms) / 1_000;
            let class = IDLE.partition_point(|(bound_s, _)| idle_s > *bound_s);
            self.by_idle[class] += 1;
            is_late |= class == IDLE.len();
        }
        self.partitions_with_late += u64::from(is_late);
    }
}

pub fn write_metrics(page: &mut Page, view: &AdminView) {
    let now = view.node.clock().timestamp();
    let mut open = Open::default();
    for partition in &view.node.storage.partitions.all() {
        let producers = Partition::with_log(partition, |log| log.open_transactions());
        open.count(producers.iter().map(|producer| producer.last_timestamp), now);
    }
    const OPEN: &str = "ottla_open_transactions";
    page.metric(
        OPEN,
        "gauge",
        "Transactions open in a partition, by the time since their producer wrote there, at most `idle`.",
    );
    let names = IDLE.iter().map(|(_, name)| *name).chain([LATE]);
    for (name, count) in names.zip(open.by_idle) {
        page.sample(OPEN, &[("idle", name)], count);
    }
    page.single(
        "kafka_server_replicamanager_partitionswithlatetransactionscount",
        "gauge",
        "Partitions with a transaction whose producer has not written for 20 minutes.",
        open.partitions_with_late,
    );
    write_coordinators(page, view, now);
}

/// What the coordinators know.
fn write_coordinators(page: &mut Page, view: &AdminView, now: Timestamp) {
    const BY_STATE: &str = "ottla_transactions";
    let open = view.node.transactions.open();
    let count = |status: Status| open.iter().filter(|one| one.state.status == status).count() as u64;
    page.metric(BY_STATE, "gauge", "Transactions that are not complete, by state.");
    for status in [Status::Ongoing, Status::PrepareCommit, Status::PrepareAbort] {
        page.sample(BY_STATE, &[("state", status.name())], count(status));
    }
    let oldest_ms = open.iter().map(|one| one.state.started.0).min();
    page.single(
        "ottla_oldest_transaction_seconds",
        "gauge",
        "Age of the oldest transaction that is not complete; 0 if there is none.",
        oldest_ms.map_or(0, |ms| now.0.saturating_sub(ms).max(0) as u64 / 1_000),
    );
    page.single(
        "ottla_transaction_markers_waiting",
        "gauge",
        "Markers of decided transactions that are not durable yet.",
        view.node.transactions.unfinished().len() as u64,
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transactions_are_counted_by_the_time_since_their_producer_wrote() {
        let now = Timestamp(10_000_000);
        let ago = |seconds: i64| now.0 - seconds * 1_000;
        let mut open = Open::default();
        open.count([ago(0), ago(60), ago(61)].into_iter(), now);
        open.count([ago(1_200)].into_iter(), now);
        open.count([ago(1_201), ago(9_000)].into_iter(), now);
        let expected = Open {
            by_idle: [2, 1, 1, 2],
            partitions_with_late: 1,
        };
        assert_eq!(open, expected);
    }
}
