//! Incremental fetch sessions (KIP-227): after the first request to a node, only changes are sent.

use std::collections::BTreeMap;
use std::sync::Arc;

use ottla_wire::primitives::Uuid;

use super::topic_partition::TopicPartition;

/// The epoch of a request for a new session.
const FIRST_EPOCH: i32 = 0;
/// The epoch of a request that closes its session.
pub const FINAL_EPOCH: i32 = -1;
/// The session id for "no session".
const NO_SESSION: i32 = 0;

/// The fetch parameters of one partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ask {
    /// Zero where the broker or the metadata know topics by name only.
    pub topic_id: Uuid,
    pub fetch_offset: i64,
    pub leader_epoch: i32,
    pub bytes_max: i32,
    /// `PartitionState::version`: an answer for another version is void.
    pub version: u64,
}

/// The client's view of the session with one node.
#[derive(Debug, Default)]
pub struct FetchSession {
    session_id: i32,
    next_epoch: i32,
    uses_topic_ids: bool,
    /// The partitions that the broker remembers.
    partitions: BTreeMap<TopicPartition, Ask>,
    /// The names of topics that were requested by id.
    topics: BTreeMap<Uuid, Arc<str>>,
}

/// The session part of one request.
#[derive(Debug, PartialEq, Eq)]
pub struct SessionRequest {
    pub session_id: i32,
    pub session_epoch: i32,
    /// All partitions of a full request; the new or changed ones of an incremental one.
    pub named: Vec<(TopicPartition, Ask)>,
    /// With the topic id under which the broker knows them.
    pub forgotten: Vec<(TopicPartition, Uuid)>,
}

/// Why a response does not fit its session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Misfit {
    /// A full response left out requested partitions.
    Missing,
    /// A partition that is not in the session.
    Unasked,
}

impl FetchSession {
    /// The next request, for exactly these partitions, which then make up the session; if the
    /// request fails, call `fail`.
    pub fn next_request(
        &mut self,
        wanted: BTreeMap<TopicPartition, Ask>,
        uses_topic_ids: bool,
    ) -> SessionRequest {
        // KIP-516: a session identifies topics by id or by name, never both.
        if self.uses_topic_ids != uses_topic_ids {
            self.next_epoch = FIRST_EPOCH;
        }
        self.uses_topic_ids = uses_topic_ids;
        if self.next_epoch == FIRST_EPOCH {
            // Naming the old session lets the broker free it in its cache.
            let named = wanted.iter().map(|(name, ask)| (name.clone(), *ask)).collect();
            self.partitions = wanted;
            self.topics.clear();
            return self.request(named, Vec::new());
        }
        let before = std::mem::replace(&mut self.partitions, wanted);
        let is_kept = |name: &TopicPartition, ask: &Ask| {
            self.partitions
                .get(name)
                .is_some_and(|now| now.topic_id == ask.topic_id)
        };
        let forgotten = before.iter().filter(|(name, ask)| !is_kept(name, ask));
        let forgotten = forgotten
            .map(|(name, ask)| (name.clone(), ask.topic_id))
            .collect();
        let changed = self
            .partitions
            .iter()
            .filter(|(name, ask)| before.get(name) != Some(ask));
        let named = changed.map(|(name, ask)| (name.clone(), *ask)).collect();
        self.request(named, forgotten)
    }

    fn request(
        &mut self,
        named: Vec<(TopicPartition, Ask)>,
        forgotten: Vec<(TopicPartition, Uuid)>,
    ) -> SessionRequest {
        if self.uses_topic_ids {
            for (name, ask) in &named {
                self.topics.insert(ask.topic_id, Arc::clone(&name.topic));
            }
        }
        SessionRequest {
            session_id: self.session_id,
            session_epoch: self.next_epoch,
            named,
            forgotten,
        }
    }

    /// The topic that was requested under this id.
    pub fn topic(&self, topic_id: &Uuid) -> Option<&Arc<str>> {
        self.topics.get(topic_id)
    }

    pub fn partitions(&self) -> impl Iterator<Item = (&TopicPartition, &Ask)> {
        self.partitions.iter()
    }

    /// What the last request wanted of this partition, whether it was sent again or not.
    pub fn asked(&self, topic_partition: &TopicPartition) -> Option<&Ask> {
        self.partitions.get(topic_partition)
    }

    /// Accepts a response without a top-level error. `answered` are its partitions.
    ///
    /// - Errors: the response must not be used; the next request will be a full one.
    pub fn accept<'a>(
        &mut self,
        session_id: i32,
        answered: impl IntoIterator<Item = &'a TopicPartition>,
    ) -> Result<(), Misfit> {
        let was_full = self.next_epoch == FIRST_EPOCH;
        let mut count = 0;
        for name in answered {
            if !self.partitions.contains_key(name) {
                self.fail();
                return Err(Misfit::Unasked);
            }
            count += 1;
        }
        if was_full && count < self.partitions.len() {
            self.fail();
            return Err(Misfit::Missing);
        }
        if session_id == NO_SESSION {
            // The broker keeps no session (its cache is full, or it is older than KIP-227).
            self.session_id = NO_SESSION;
            self.next_epoch = FIRST_EPOCH;
        } else {
            self.session_id = session_id;
            // Epochs wrap from the maximum to 1, because 0 asks for a new session.
            self.next_epoch = self.next_epoch.checked_add(1).unwrap_or(1);
        }
        Ok(())
    }

    /// The request got no usable answer, so the broker's state of the session is unknown.
    pub fn fail(&mut self) {
        self.next_epoch = FIRST_EPOCH;
    }

    /// The broker does not know the session any more.
    pub fn forget(&mut self) {
        self.session_id = NO_SESSION;
        self.next_epoch = FIRST_EPOCH;
    }

    /// The id of a session that should be closed.
    pub fn open_id(&self) -> Option<i32> {
        (self.session_id != NO_SESSION).then_some(self.session_id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(fetch_offset: i64) -> Ask {
        Ask {
            topic_id: Uuid::ZERO,
            fetch_offset,
            leader_epoch: 0,
            bytes_max: 1000,
            version: 1,
        }
    }

    fn wanted(offsets: &[(i32, i64)]) -> BTreeMap<TopicPartition, Ask> {
        let named = |&(partition, offset): &(i32, i64)| (TopicPartition::new("t", partition), ask(offset));
        offsets.iter().map(named).collect()
    }

    fn partitions(named: &[(TopicPartition, Ask)]) -> Vec<i32> {
        named.iter().map(|(name, _)| name.partition).collect()
    }

    fn opened(offsets: &[(i32, i64)]) -> FetchSession {
        let mut session = FetchSession::default();
        let all = wanted(offsets);
        session.next_request(all.clone(), false);
        session.accept(7, all.keys()).unwrap();
        session
    }

    #[test]
    fn only_changes_are_sent_again() {
        let mut session = opened(&[(0, 5), (1, 6), (2, 7)]);
        let request = session.next_request(wanted(&[(0, 5), (1, 9), (3, 0)]), false);
        assert_eq!((request.session_id, request.session_epoch), (7, 1));
        assert_eq!(partitions(&request.named), [1, 3]);
        let forgotten: Vec<i32> = request.forgotten.iter().map(|(name, _)| name.partition).collect();
        assert_eq!(forgotten, [2]);
        assert_eq!(
            session.asked(&TopicPartition::new("t", 0)).unwrap().fetch_offset,
            5
        );
    }

    #[test]
    fn epochs_grow_and_wrap_to_one() {
        let mut session = opened(&[(0, 5)]);
        session.next_epoch = i32::MAX;
        session.accept(7, []).unwrap();
        assert_eq!(session.next_request(wanted(&[(0, 5)]), false).session_epoch, 1);
    }

    #[test]
    fn without_a_session_every_request_is_full() {
        let mut session = FetchSession::default();
        for _ in 0..2 {
            let all = wanted(&[(0, 5), (1, 6)]);
            let request = session.next_request(all.clone(), false);
            assert_eq!((request.session_id, request.session_epoch), (0, 0));
            assert_eq!(partitions(&request.named), [0, 1]);
            session.accept(0, all.keys()).unwrap();
        }
    }

    #[test]
    fn answers_that_do_not_fit_start_over() {
        let mut session = opened(&[(0, 5)]);
        session.next_request(wanted(&[(0, 6)]), false);
        assert_eq!(
            session.accept(7, [&TopicPartition::new("t", 1)]),
            Err(Misfit::Unasked)
        );
        let request = session.next_request(wanted(&[(0, 6)]), false);
        // The old id is sent along, so that the broker can drop that session.
        assert_eq!((request.session_id, request.session_epoch), (7, 0));
        assert_eq!(session.accept(8, []), Err(Misfit::Missing));
    }

    #[test]
    fn a_recreated_topic_is_forgotten_under_its_old_id() {
        let mut session = FetchSession::default();
        let with_id = |id: u8| {
            let topic_id = Uuid([id; 16]);
            BTreeMap::from([(TopicPartition::new("t", 0), Ask { topic_id, ..ask(0) })])
        };
        let first = with_id(1);
        session.next_request(first.clone(), true);
        session.accept(7, first.keys()).unwrap();
        let request = session.next_request(with_id(2), true);
        assert_eq!(request.forgotten, [(TopicPartition::new("t", 0), Uuid([1; 16]))]);
        assert_eq!(partitions(&request.named), [0]);
    }

    #[test]
    fn ids_and_names_do_not_share_a_session() {
        let mut session = opened(&[(0, 5)]);
        assert_eq!(session.next_request(wanted(&[(0, 6)]), true).session_epoch, 0);
    }
}
