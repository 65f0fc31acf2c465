//! Incremental fetch sessions (KIP-227): the broker remembers what a consumer reads, so that a
//! request names only changes, and an answer only partitions with news.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ottla_wire::error_code::ErrorCode;
use ottla_wire::primitives::Uuid;
use ottla_wire::random::Random;

use crate::request::ENTRIES_MAX;
use crate::time::Moment;

/// How a request names a topic: by name up to version 12, by id from version 13.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum TopicRef {
    Name(Arc<str>),
    Id(Uuid),
}

/// One partition of a fetch, as the client requested it.
#[derive(Clone, Debug)]
pub struct FetchPartition {
    pub topic: TopicRef,
    pub index: i32,
    pub current_leader_epoch: i32,
    pub fetch_offset: i64,
    pub last_fetched_epoch: i32,
    pub bytes_max: i32,
    /// What the last answer said; kept by a session.
    pub(crate) sent: SentState,
}

impl FetchPartition {
    pub fn new(topic: TopicRef, index: i32, fetch_offset: i64, bytes_max: i32) -> FetchPartition {
        FetchPartition {
            topic,
            index,
            current_leader_epoch: -1,
            fetch_offset,
            last_fetched_epoch: -1,
            bytes_max,
            sent: SentState::default(),
        }
    }
}

/// What an answer says about a partition; an incremental answer leaves out unchanged partitions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SentState {
    pub high_watermark: i64,
    pub last_stable_offset: i64,
    pub log_start_offset: i64,
}

impl Default for SentState {
    fn default() -> Self {
        SentState {
            high_watermark: -1,
            last_stable_offset: -1,
            log_start_offset: -1,
        }
    }
}

/// The session part of a fetch request.
#[derive(Clone, Copy, Debug)]
pub struct SessionRequest {
    pub session_id: i32,
    /// 0 opens a session, −1 closes it, anything else continues it.
    pub session_epoch: i32,
    pub uses_topic_ids: bool,
}

/// The partitions that a request reads, after its session was consulted.
#[derive(Debug)]
pub struct SessionFetch {
    /// Sent in the answer; 0 without a session.
    pub session_id: i32,
    /// False for an incremental answer, which leaves out what did not change.
    pub is_full: bool,
    pub partitions: Vec<FetchPartition>,
    session: Option<Arc<SharedSession>>,
    /// Sessions that ended with this request.
    gone: Vec<Arc<SharedSession>>,
}

#[derive(Debug)]
struct SharedSession {
    /// Moment of the last use, as a [`Moment`]: atomic, so that the search for an idle session does
    /// not wait for one that is being read.
    used: AtomicU64,
    session: Mutex<Session>,
}

#[derive(Debug)]
struct Session {
    epoch: i32,
    uses_topic_ids: bool,
    /// In serving order: a partition that returned data moves to the end, so that it does not
    /// starve the others.
    order: BTreeMap<u64, FetchPartition>,
    places: BTreeMap<(TopicRef, i32), u64>,
    next_place: u64,
}

/// All sessions of the broker, at most `slots`.
///
/// - Memory: proportional to the partitions named by the sessions.
/// - The lock of all sessions is not held while one is created, read or dropped.
#[derive(Debug)]
pub struct FetchSessions {
    slots: usize,
    cache: Mutex<Cache>,
}

#[derive(Debug, Default)]
struct Cache {
    sessions: BTreeMap<i32, Arc<SharedSession>>,
    ids_given: u64,
    evicted: u64,
}

/// When all slots are taken, a session that was not used for this long is evicted for a new one.
const EVICTION_IDLE_MS: u64 = 120_000;
const EPOCH_INITIAL: i32 = 0;
const EPOCH_FINAL: i32 = -1;

impl FetchSessions {
    pub fn new(slots: usize) -> FetchSessions {
        FetchSessions {
            slots,
            cache: Mutex::default(),
        }
    }

    pub fn count(&self) -> usize {
        lock(&self.cache).sessions.len()
    }

    /// How many idle sessions gave way to new ones.
    pub fn evicted(&self) -> u64 {
        lock(&self.cache).evicted
    }

    /// Whether a request continues a session whose partitions are too many for an event loop. A
    /// request that is small enough for one adds a thousand partitions at most.
    pub fn continues_large(&self, request: SessionRequest) -> bool {
        if matches!(request.session_epoch, EPOCH_INITIAL | EPOCH_FINAL) {
            return false;
        }
        let found = lock(&self.cache).sessions.get(&request.session_id).cloned();
        found.is_some_and(|shared| shared.is_large())
    }

    /// Removes a session.
    pub fn close(&self, session_id: i32) {
        lock(&self.cache).sessions.remove(&session_id);
    }

    /// Resolves a request to the list of partitions to read.
    ///
    /// - Errors: `FetchSessionIdNotFound`, `InvalidFetchSessionEpoch`, `FetchSessionTopicIdError`:
    ///   the client opens a new session.
    /// - Source: KIP-227, KIP-516.
    pub fn begin(
        &self,
        request: SessionRequest,
        partitions: Vec<FetchPartition>,
        forgotten: &[(TopicRef, i32)],
        now: Moment,
    ) -> Result<SessionFetch, ErrorCode> {
        match request.session_epoch {
            EPOCH_INITIAL | EPOCH_FINAL => {
                let opens = request.session_epoch == EPOCH_INITIAL && !partitions.is_empty();
                let mut gone = Vec::new();
                let has_room = {
                    let mut cache = lock(&self.cache);
                    gone.extend(cache.sessions.remove(&request.session_id));
                    opens && cache.make_room(self.slots, now, &mut gone)
                };
                let opened = has_room.then(|| SharedSession::new(request, &partitions, now));
                let opened = opened.and_then(|session| lock(&self.cache).add(self.slots, session, now));
                let (session_id, session) = opened.map_or((0, None), |(id, session)| (id, Some(session)));
                Ok(SessionFetch {
                    session_id,
                    is_full: true,
                    partitions,
                    session,
                    gone,
                })
            }
            _ => self.resume(request, partitions, forgotten, now),
        }
    }

    fn resume(
        &self,
        request: SessionRequest,
        partitions: Vec<FetchPartition>,
        forgotten: &[(TopicRef, i32)],
        now: Moment,
    ) -> Result<SessionFetch, ErrorCode> {
        let found = lock(&self.cache).sessions.get(&request.session_id).cloned();
        let shared = found.ok_or(ErrorCode::FetchSessionIdNotFound)?;
        let mut session = lock(&shared.session);
        if session.epoch != request.session_epoch {
            return Err(ErrorCode::InvalidFetchSessionEpoch);
        }
        if session.uses_topic_ids != request.uses_topic_ids {
            return Err(ErrorCode::FetchSessionTopicIdError);
        }
        for partition in partitions {
            session.put(partition);
        }
        for key in forgotten {
            session.forget(key);
        }
        session.epoch = next_epoch(session.epoch);
        shared.used.store(now.nanos(), Ordering::Relaxed);
        let count = session.order.len();
        let mut fetch = SessionFetch {
            session_id: request.session_id,
            is_full: false,
            partitions: session.order.values().cloned().collect(),
            session: None,
            gone: Vec::new(),
        };
        drop(session);
        if count == 0 {
            lock(&self.cache).sessions.remove(&request.session_id);
            (fetch.session_id, fetch.is_full) = (0, true);
        } else {
            fetch.session = Some(shared);
        }
        Ok(fetch)
    }
}

/// Sessions that take long to drop.
pub struct Gone(#[expect(dead_code, reason = "held to be dropped")] Vec<Arc<SharedSession>>);

impl SessionFetch {
    /// Returns large sessions that ended with this request, for another thread to drop.
    pub fn take_large_gone(&mut self) -> Option<Gone> {
        self.gone.retain(|shared| shared.is_large());
        (!self.gone.is_empty()).then(|| Gone(std::mem::take(&mut self.gone)))
    }

    /// Decides whether an answer mentions a partition, and records what it says.
    pub fn mentions(&self, partition: &FetchPartition, has_error: bool, bytes: u64, sent: SentState) -> bool {
        let Some(shared) = &self.session else { return true };
        let mut session = lock(&shared.session);
        let key = (partition.topic.clone(), partition.index);
        let Some(place) = session.places.get(&key).copied() else {
            return true;
        };
        let Some(cached) = session.order.get_mut(&place) else {
            return true;
        };
        let mentioned = self.is_full || has_error || bytes > 0 || cached.sent != sent;
        // After an error the next answer mentions the partition again, even if its offsets did not
        // move.
        cached.sent = if has_error { SentState::default() } else { sent };
        if bytes > 0 {
            session.move_to_end(&key, place);
        }
        mentioned
    }
}

impl SharedSession {
    /// Whether listing or dropping its partitions would hold up an event loop.
    fn is_large(&self) -> bool {
        match self.session.try_lock() {
            Ok(session) => session.order.len() as u64 > ENTRIES_MAX,
            // Locked by a reader, which is slow for a large session only.
            Err(_) => true,
        }
    }

    fn new(request: SessionRequest, partitions: &[FetchPartition], now: Moment) -> SharedSession {
        let mut session = Session {
            epoch: next_epoch(EPOCH_INITIAL),
            uses_topic_ids: request.uses_topic_ids,
            order: BTreeMap::new(),
            places: BTreeMap::new(),
            next_place: 0,
        };
        for partition in partitions {
            session.put(partition.clone());
        }
        SharedSession {
            used: AtomicU64::new(now.nanos()),
            session: Mutex::new(session),
        }
    }
}

impl Session {
    fn put(&mut self, mut partition: FetchPartition) {
        let key = (partition.topic.clone(), partition.index);
        if let Some(existing) = self.places.get(&key).and_then(|place| self.order.get_mut(place)) {
            partition.sent = existing.sent;
            *existing = partition;
            return;
        }
        self.places.insert(key, self.next_place);
        self.order.insert(self.next_place, partition);
        self.next_place += 1;
    }

    fn forget(&mut self, key: &(TopicRef, i32)) {
        if let Some(place) = self.places.remove(key) {
            self.order.remove(&place);
        }
    }

    fn move_to_end(&mut self, key: &(TopicRef, i32), place: u64) {
        if let Some(partition) = self.order.remove(&place) {
            self.order.insert(self.next_place, partition);
            self.places.insert(key.clone(), self.next_place);
            self.next_place += 1;
        }
    }
}

impl Cache {
    /// Ensures a free slot, evicting the longest idle session if necessary; false when no session
    /// is idle enough.
    fn make_room(&mut self, slots: usize, now: Moment, gone: &mut Vec<Arc<SharedSession>>) -> bool {
        if self.sessions.len() < slots {
            return true;
        }
        let used = |shared: &SharedSession| Moment::from_nanos(shared.used.load(Ordering::Relaxed));
        let oldest = self.sessions.iter().map(|(id, shared)| (used(shared), *id)).min();
        let Some((used, id)) = oldest else { return false };
        let gives_way = now.micros_since(used) >= EVICTION_IDLE_MS * 1_000;
        if gives_way {
            self.evicted += 1;
            gone.extend(self.sessions.remove(&id));
        }
        gives_way
    }

    /// Adds a session; `None` when the slot was taken meanwhile.
    fn add(
        &mut self,
        slots: usize,
        session: SharedSession,
        now: Moment,
    ) -> Option<(i32, Arc<SharedSession>)> {
        if self.sessions.len() >= slots {
            return None;
        }
        let id = self.unused_id(now);
        let session = Arc::new(session);
        self.sessions.insert(id, session.clone());
        Some((id, session))
    }

    /// Draws an id from the clock and a counter, rather than counting up from 1: ids must not
    /// repeat after a restart, or an old client would continue another client's session.
    fn unused_id(&mut self, now: Moment) -> i32 {
        loop {
            self.ids_given += 1;
            let mixed = Random::new(now.nanos() ^ self.ids_given.rotate_left(40)).next_u64();
            let id = (mixed >> 33) as i32;
            if id != 0 && !self.sessions.contains_key(&id) {
                return id;
            }
        }
    }
}

fn next_epoch(epoch: i32) -> i32 {
    if epoch == i32::MAX { 1 } else { epoch + 1 }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn partition(name: &str, index: i32, fetch_offset: i64) -> FetchPartition {
        FetchPartition::new(TopicRef::Name(name.into()), index, fetch_offset, 1024)
    }

    fn request(session_id: i32, session_epoch: i32) -> SessionRequest {
        SessionRequest {
            session_id,
            session_epoch,
            uses_topic_ids: false,
        }
    }

    fn open(sessions: &FetchSessions, names: &[&str]) -> SessionFetch {
        let partitions = names.iter().map(|name| partition(name, 0, 0)).collect();
        sessions
            .begin(request(0, 0), partitions, &[], Moment::from_micros(5))
            .unwrap()
    }

    fn names(fetch: &SessionFetch) -> Vec<String> {
        fetch
            .partitions
            .iter()
            .map(|partition| format!("{:?}", partition.topic))
            .collect()
    }

    fn sent(high_watermark: i64) -> SentState {
        SentState {
            high_watermark,
            last_stable_offset: high_watermark,
            log_start_offset: 0,
        }
    }

    #[test]
    fn an_incremental_fetch_reads_what_the_session_remembers() {
        let sessions = FetchSessions::new(10);
        let opened = open(&sessions, &["a", "b"]);
        assert!(opened.is_full && opened.session_id != 0);
        let next = sessions
            .begin(request(opened.session_id, 1), vec![], &[], Moment::from_micros(6))
            .unwrap();
        assert!(!next.is_full);
        assert_eq!(names(&next), names(&opened));
    }

    #[test]
    fn a_partition_is_mentioned_only_when_something_changed() {
        let sessions = FetchSessions::new(10);
        let opened = open(&sessions, &["a"]);
        assert!(opened.mentions(&opened.partitions[0], false, 0, sent(3)));
        let next = sessions
            .begin(request(opened.session_id, 1), vec![], &[], Moment::from_micros(6))
            .unwrap();
        assert!(!next.mentions(&next.partitions[0], false, 0, sent(3)));
        assert!(next.mentions(&next.partitions[0], false, 0, sent(4)));
        assert!(next.mentions(&next.partitions[0], true, 0, sent(4)));
        assert!(
            next.mentions(&next.partitions[0], false, 0, sent(4)),
            "mentioned again after an error"
        );
    }

    #[test]
    fn a_partition_that_returned_data_goes_to_the_end() {
        let sessions = FetchSessions::new(10);
        let opened = open(&sessions, &["a", "b"]);
        opened.mentions(&opened.partitions[0], false, 100, sent(1));
        let next = sessions
            .begin(request(opened.session_id, 1), vec![], &[], Moment::from_micros(6))
            .unwrap();
        assert_eq!(next.partitions[0].topic, TopicRef::Name("b".into()));
    }

    #[test]
    fn wrong_epochs_and_ids_are_refused() {
        let sessions = FetchSessions::new(10);
        let opened = open(&sessions, &["a"]);
        let begin = |id, epoch| {
            sessions
                .begin(request(id, epoch), vec![], &[], Moment::from_micros(6))
                .map(|_| ())
        };
        assert_eq!(
            begin(opened.session_id, 2),
            Err(ErrorCode::InvalidFetchSessionEpoch)
        );
        assert_eq!(
            begin(opened.session_id ^ 1, 1),
            Err(ErrorCode::FetchSessionIdNotFound)
        );
        let by_id = SessionRequest {
            session_id: opened.session_id,
            session_epoch: 1,
            uses_topic_ids: true,
        };
        let refused = sessions
            .begin(by_id, vec![], &[], Moment::from_micros(6))
            .map(|_| ());
        assert_eq!(refused, Err(ErrorCode::FetchSessionTopicIdError));
    }

    #[test]
    fn only_a_request_that_continues_a_session_of_very_many_partitions_is_large() {
        let sessions = FetchSessions::new(10);
        for count in [ENTRIES_MAX, ENTRIES_MAX + 1] {
            let partitions = (0..count).map(|index| partition("a", index as i32, 0)).collect();
            let opened = sessions
                .begin(request(0, 0), partitions, &[], Moment::from_micros(5))
                .unwrap();
            let is_large = |epoch| sessions.continues_large(request(opened.session_id, epoch));
            assert_eq!([-1, 0, 1].map(is_large), [false, false, count > ENTRIES_MAX]);
        }
        assert!(
            !sessions.continues_large(request(1, 1)),
            "an unknown session is refused at once"
        );
    }

    #[test]
    fn a_session_without_partitions_ends() {
        let sessions = FetchSessions::new(10);
        let opened = open(&sessions, &["a"]);
        let forgotten = [(TopicRef::Name("a".into()), 0)];
        let next = sessions
            .begin(
                request(opened.session_id, 1),
                vec![],
                &forgotten,
                Moment::from_micros(6),
            )
            .unwrap();
        assert_eq!(next.session_id, 0);
        assert_eq!(sessions.count(), 0);
    }

    #[test]
    fn sessions_are_bounded_and_idle_ones_are_evicted() {
        let sessions = FetchSessions::new(1);
        assert_ne!(open(&sessions, &["a"]).session_id, 0);
        assert_eq!(
            open(&sessions, &["b"]).session_id,
            0,
            "no slot: served without a session"
        );
        let later = Moment::from_micros(5 + EVICTION_IDLE_MS * 1_000);
        let opened = sessions
            .begin(request(0, 0), vec![partition("c", 0, 0)], &[], later)
            .unwrap();
        assert_ne!(opened.session_id, 0);
        assert_eq!(sessions.count(), 1);
    }

    #[test]
    fn partitions_with_records_take_turns_and_others_keep_their_place() {
        let sessions = FetchSessions::new(10);
        let mut fetch = open(&sessions, &["a", "b", "c"]);
        for (epoch, order) in [(1, ["b", "c", "a"]), (2, ["c", "a", "b"]), (3, ["a", "b", "c"])] {
            assert!(fetch.mentions(&fetch.partitions[0], false, 100, sent(1)));
            for partition in &fetch.partitions[1..] {
                fetch.mentions(partition, false, 0, sent(1));
            }
            fetch = sessions
                .begin(
                    request(fetch.session_id, epoch),
                    vec![],
                    &[],
                    Moment::from_micros(6),
                )
                .unwrap();
            let expected = order.map(|name| format!("{:?}", TopicRef::Name(name.into())));
            assert_eq!(names(&fetch), expected);
        }
        assert!(
            !fetch.mentions(&fetch.partitions[1], false, 0, sent(1)),
            "nothing is new"
        );
        assert!(
            fetch.mentions(&fetch.partitions[1], false, 1, sent(1)),
            "old records are told"
        );
    }

    #[test]
    fn the_epoch_after_the_last_one_is_1() {
        assert_eq!([1, i32::MAX - 1, i32::MAX].map(next_epoch), [2, i32::MAX, 1]);
    }

    #[test]
    fn only_sessions_that_take_long_to_drop_are_dropped_elsewhere() {
        let sessions = FetchSessions::new(10);
        for count in [ENTRIES_MAX, ENTRIES_MAX + 1] {
            let partitions = (0..count).map(|index| partition("a", index as i32, 0)).collect();
            let opened = sessions.begin(request(0, 0), partitions, &[], Moment::from_micros(5));
            let session_id = opened.unwrap().session_id;
            let mut last = sessions
                .begin(request(session_id, -1), vec![], &[], Moment::from_micros(6))
                .unwrap();
            assert_eq!(last.take_large_gone().is_some(), count > ENTRIES_MAX);
            assert!(last.take_large_gone().is_none());
        }
        assert_eq!(sessions.count(), 0);
    }

    #[test]
    fn a_session_is_evicted_after_two_minutes_and_counted() {
        let sessions = FetchSessions::new(1);
        open(&sessions, &["a"]);
        for (micros, is_opened) in [(119_999_999, false), (120_000_000, true)] {
            let now = Moment::from_micros(5 + micros);
            let opened = sessions.begin(request(0, 0), vec![partition("b", 0, 0)], &[], now);
            assert_eq!(opened.unwrap().session_id != 0, is_opened, "{micros}");
            assert_eq!(sessions.evicted(), u64::from(is_opened));
        }
    }

    /// Two requests may find room for one session each, while there is one slot.
    #[test]
    fn a_slot_is_given_once_and_an_id_too() {
        let sessions = FetchSessions::new(2);
        let first = open(&sessions, &["a"]).session_id;
        lock(&sessions.cache).ids_given = 0;
        let second = open(&sessions, &["b"]).session_id;
        assert!(second != 0 && second != first, "the same draw");
        let now = Moment::from_micros(6);
        let session = SharedSession::new(request(0, 0), &[], now);
        assert!(lock(&sessions.cache).add(2, session, now).is_none());
        sessions.close(first);
        assert_eq!(sessions.count(), 1);
    }
}
