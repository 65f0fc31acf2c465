//! A clean stop: closes every log, many at a time, so that it opens without recovery.

use std::sync::Arc;

use ottla_log::{CloseJob, LogError};
use tracing::error;

use super::Storage;
use crate::partition::Partition;
use crate::shortage::outlast_shortage;

/// At most this many logs are made durable together. Until then their pending writes are kept in
/// memory, about a kilobyte each.
const TOGETHER_MAX: usize = 4_096;

/// Closes the logs of all partitions; false if one of them needs recovery. Waits for the disk.
pub(crate) fn close_logs(storage: &Storage) -> bool {
    let partitions = storage.partitions.all();
    let mut failures = 0;
    for some in partitions.chunks(TOGETHER_MAX) {
        failures += close_together(storage, some);
    }
    if failures > 0 {
        error!(
            partitions = failures,
            "some logs could not be closed; the next start will check all"
        );
    }
    failures == 0
}

/// Closes these logs together and returns how many could not be closed.
fn close_together(storage: &Storage, partitions: &[Arc<Partition>]) -> usize {
    let is_shortage = |_: &Shortage| true;
    let closed = outlast_shortage(&*storage.disk, is_shortage, || try_to_close(storage, partitions));
    closed.unwrap_or(partitions.len())
}

/// No descriptors were left; nothing was done.
struct Shortage;

fn try_to_close(storage: &Storage, partitions: &[Arc<Partition>]) -> Result<usize, Shortage> {
    let mut failures = 0;
    let mut tell = |partition: &Partition, error: &LogError| {
        failures += 1;
        if let Some(suppressed) = storage
            .services
            .complaints
            .failures
            .pass(storage.services.clock.moment())
        {
            let (topic, partition) = (&*partition.topic, partition.index);
            error!(topic, partition, %error, suppressed, "cannot close a log");
        }
    };
    let (mut open, mut jobs) = (Vec::new(), Vec::new());
    for partition in partitions {
        match partition.with_log(|log| log.begin_close()) {
            Ok(None) => {}
            Ok(Some(job)) => {
                open.push(partition);
                jobs.push(job);
            }
            Err(error) => tell(partition, &error),
        }
    }
    let result = CloseJob::run_all(&*storage.disk, &jobs, &*storage.crew);
    let is_shortage = result.as_ref().is_err_and(LogError::is_shortage);
    for (partition, job) in open.iter().zip(jobs) {
        let finished = partition.with_log(|log| log.finish_close(job, result.clone()));
        if let Err(error) = finished
            && !is_shortage
        {
            tell(partition, &error);
        }
    }
    if is_shortage { Err(Shortage) } else { Ok(failures) }
}
