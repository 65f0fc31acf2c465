//! The coordinator of the groups in one partition of `__consumer_offsets`.

use std::collections::BTreeMap;
use std::sync::Arc;

use ottla_log::AppendError;
use ottla_wire::error_code::ErrorCode;
use ottla_wire::records::builder::BatchOptions;
use ottla_wire::records::compression::Codec;
use ottla_wire::records::control::{TransactionMarker, TransactionResult};

use crate::coordinator::batch;
use crate::coordinator::call;
use crate::coordinator::replay::Replayed;
use crate::coordinator::runtime::{self, Kind, Ready, Submitted, Ticket};
use crate::image::topics::TopicsImage;
use crate::partition::{Appended, Partition};
use crate::random::Random;
use crate::services::Services;
use crate::storage::Storage;
use crate::time::{Moment, Now};

use super::config::GroupConfig;
use super::groups::OFFSETS_TOPIC;
use super::held::Spread;
use super::machine::Machine;
use super::overview::{GroupOverview, GroupReading};
use super::progress::{OffsetRoom, Progress};
use super::reply::{GroupReply, Step};
use super::request::{GroupRequest, OffsetCommitRequest};

pub(super) type Coordinator = runtime::Coordinator<OfGroups>;

/// A request to a group's coordinator.
pub(crate) type Call = call::Call<OfGroups>;
/// A coordinator's answer, or the reason why there is none.
pub(crate) type GroupAnswer = call::Answer<GroupReply>;

/// What a coordinator of groups needs besides its log.
pub(crate) struct OfGroups {
    pub config: Arc<GroupConfig>,
    pub codec: Codec,
    /// Makes member ids.
    pub random: Arc<Random>,
}

impl Kind for OfGroups {
    const TOPIC: &'static str = OFFSETS_TOPIC;
    const AFTER_DAMAGE: &'static str = "its groups may go back to earlier offsets";

    type Machine = Machine;
    type Loading = Machine;
    type Step = Step;
    type Reply = GroupReply;
    type Context = ();
    /// The group.
    type Key = String;

    fn context(_: &Storage) {}

    fn machine(&self) -> Machine {
        Machine::new(self.config.clone(), self.random.next())
    }

    fn loading(&self, _: &Storage) -> Machine {
        self.machine()
    }

    fn loaded(loading: Machine, _: &Replayed) -> Machine {
        loading
    }

    fn arm(machine: &mut Machine, now: Now, (): ()) -> Step {
        machine.arm(now)
    }

    fn abandon(machine: &mut Machine, now: Now, group_id: &String, ticket: Ticket) {
        machine.abandon(now, group_id, ticket);
    }

    fn next_deadline(machine: &Machine) -> Option<Moment> {
        machine.next_deadline()
    }

    fn carry_out(
        &self,
        services: &Services,
        (): (),
        ready: &mut Ready<Machine>,
        step: Step,
    ) -> Result<Vec<(Ticket, GroupReply)>, AppendError> {
        if !step.records.is_empty() {
            let timestamp = services.clock.timestamp();
            let batches = batch::build(&step.records, timestamp, self.codec, self.config.batch_bytes_max);
            let appended = ready.partition.append_internal(services, &batches)?;
            ready.end_offset = appended.last_offset + 1;
        }
        Ok(step.replies)
    }
}

impl Coordinator {
    /// Hands a request to the machine.
    pub(super) fn ask(
        self: &Arc<Self>,
        storage: &Storage,
        request: GroupRequest<'_>,
    ) -> Submitted<GroupReply> {
        self.submit(storage, |machine, now, ticket| {
            machine.handle(now, ticket, request)
        })
    }

    /// Appends the marker that ends a producer's transaction in this partition, and settles the
    /// offsets in it. Both under one lock: a load between them would find the marker and settle,
    /// too.
    ///
    /// - Errors: NOT_LEADER_OR_FOLLOWER while the log is not loaded, which coordinators retry.
    pub(super) fn complete_transaction(
        self: &Arc<Self>,
        storage: &Storage,
        marker: TransactionMarker,
        transaction_version: i8,
    ) -> Result<(Arc<Partition>, Appended), ErrorCode> {
        let appended = self.write(storage, |ready| {
            let appended = ready
                .partition
                .append_marker(&storage.services, marker, transaction_version)?;
            ready.end_offset = appended.last_offset + 1;
            let is_commit = marker.result == TransactionResult::Commit;
            ready.machine.apply_marker(marker.producer_id, is_commit);
            Ok((ready.partition.clone(), appended))
        });
        appended.map_err(|error| match error {
            ErrorCode::CoordinatorLoadInProgress | ErrorCode::CoordinatorNotAvailable => {
                ErrorCode::NotLeaderOrFollower
            }
            error => error,
        })
    }

    /// Appends offsets to a producer's transaction: they take effect with its marker.
    ///
    /// - `log_ticket`: taken before the transaction coordinator was asked.
    pub(super) fn commit_in_transaction(
        self: &Arc<Self>,
        storage: &Storage,
        commit: OffsetCommitRequest<'_>,
        producer: (i64, i16),
        log_ticket: ottla_log::Ticket,
    ) -> Submitted<GroupReply> {
        let services = &storage.services;
        let delivery = self.write(storage, |ready| {
            let now = Now::of(&*services.clock);
            let request = GroupRequest::OffsetCommit(commit);
            let mut step = ready.machine.handle(now, Ticket(u64::MAX), request);
            let (_, reply) = step.replies.pop().expect("a commit is answered at once");
            debug_assert!(step.records.is_empty(), "nothing but its offsets");
            let offsets = std::mem::take(&mut step.transactional);
            if !offsets.is_empty() {
                let options = BatchOptions {
                    compression: self.kind.codec.into(),
                    producer_id: producer.0,
                    producer_epoch: producer.1,
                    is_transactional: true,
                    ..BatchOptions::default()
                };
                let bytes_max = self.kind.config.batch_bytes_max;
                let batches = batch::build_with(&offsets, now.timestamp, options, bytes_max);
                let appended = ready.partition.append_offsets(services, log_ticket, &batches);
                let appended = appended.map_err(|error| ready.partition.refusal_code(&error))?;
                ready.end_offset = appended.last_offset + 1;
                for offset in offsets {
                    ready.machine.apply_transactional(producer.0, offset);
                }
            }
            Ok(ready.deliver(reply))
        });
        match delivery {
            Ok(delivery) => Submitted::Delivered(delivery),
            Err(error) => Submitted::Refused(error),
        }
    }

    /// Returns overviews of the known groups; none while they are being loaded.
    pub(super) fn overview(&self, partitions_of: &impl Fn(&str) -> usize) -> Vec<GroupOverview> {
        self.read(|machine| machine.overview(partitions_of))
    }

    /// Adds the progress of the known groups; nothing while they are being loaded.
    pub(super) fn add_progress(&self, progress: &mut Progress, room: &mut OffsetRoom) {
        self.read(|machine| machine.add_progress(progress, room));
    }

    /// As [`Coordinator::overview`], with groups that have no members.
    ///
    /// - `rest`: how many committed offsets may still be read.
    pub(super) fn readings(&self, topics: &TopicsImage, rest: &mut usize) -> Vec<GroupReading> {
        self.read(|machine| machine.readings(topics, rest))
    }

    /// Adds how the known groups' partitions are spread; nothing while they are being loaded.
    pub(super) fn add_spreads(&self, topics: &TopicsImage, spreads: &mut BTreeMap<Arc<str>, Spread>) {
        self.read(|machine| machine.add_spreads(topics, spreads));
    }
}
