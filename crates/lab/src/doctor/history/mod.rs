//! All clients of some brokers: what they pushed and what brokers saw of them, with every dimension
//! bounded.
//!
//! A push is reduced to a few dozen numbers at once; its payload is not kept. At most 64 KiB are
//! kept per client instance ([`instance::BYTES_MAX`]; a Java producer takes about 10), for as many
//! instances as the collector was created for.
//!
//! Reading order: the modules below, from the entry point down to the foundations.

mod score;
pub mod summary;
pub mod window;
pub mod instance;
mod lag;
mod kept;
mod point;

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::BuildHasher;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

pub use super::otlp::Malformed;
pub use instance::Instance;
use kept::{Inputs, Judged, Kept};

use super::adapters::{Hints, Reading, Software};
use super::diagnosis::{Examination, Seen};
use super::observe::paths::Speaking;
use super::observe::writers::Pushing;
use super::otlp;
use super::promises::Ledger;
use super::rules::inference::INTERVALS_SILENT;
use super::snapshot::{
    BrokerSide, Client, ClusterSide, ConsumedPartition, Consumer, Host, Library, Neighbour, Role, Settings,
    Snapshot, host_of,
};
use super::statements::Statements;

/// The same number as one Apache Kafka broker keeps.
pub const INSTANCES_MAX: usize = 16_384;

/// The most that one instance takes.
pub const INSTANCE_BYTES_MAX: u64 = 64 * 1024;

/// How many instances fit into a sixteenth of the available memory.
pub fn instances_within(memory_bytes: u64) -> usize {
    let fitting = memory_bytes / 16 / INSTANCE_BYTES_MAX;
    usize::try_from(fitting)
        .unwrap_or(INSTANCES_MAX)
        .clamp(1, INSTANCES_MAX)
}

/// Judging all clients locks one shard at a time, so that pushes hardly wait.
const SHARDS: usize = 16;

/// A broker's observation of a client covers the last minute; older observations are dropped.
const OBSERVATION_MS: i64 = 60_000;

/// A broker reports on all its clients one after the other, every few seconds; reports within this
/// time belong together.
const TOLD_TOGETHER_MS: i64 = 2_000;

/// At most this many brokers' observations are kept per client; `SOURCES_MAX` bounds the clients
/// that one payload of another exporter may name.
const BROKERS_MAX: usize = 32;
const SOURCES_MAX: usize = 64;

/// The origin of a payload, as the receiver knows it: clients leave most of it out.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PushedFrom<'a> {
    pub client_id: &'a str,
    /// KIP-714's id of the instance, in Kafka's notation. Empty: the payload's resources may name
    /// it.
    pub instance_id: &'a str,
    pub principal: Option<&'a str>,
    pub address: Option<&'a str>,
    pub software_name: Option<&'a str>,
    pub software_version: Option<&'a str>,
    /// The broker that it was pushed to.
    pub node_id: Option<i32>,
    pub push_interval_ms: Option<f64>,
    /// The client's last push.
    pub is_terminating: bool,
}

/// Who observes clients: what one leaves out of its next report is forgotten, whatever others say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Source {
    #[default]
    Broker,
    /// The kernel of the collector's machine.
    Machine,
}

/// The network between a client and its broker, by the kernel of the broker's machine.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Path {
    /// The shortest round trip.
    pub round_trip_ms: f64,
    /// While bytes flow: with what queues on the way.
    pub loaded_round_trip_ms: Option<f64>,
}

/// What one broker saw of one client over its last minute or less.
///
/// It belongs to the instance with `client.instance_id` where that is known, otherwise to the only
/// instance with this client id (and address, where both are known). An observation that matches no
/// instance makes a client of its own, one that pushes nothing.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Observed {
    pub client: Client,
    pub source: Source,
    /// The length of the broker's observation.
    pub seconds: f64,
    pub broker: BrokerSide,
    /// Settings that the broker reads in requests and batches.
    pub settings: Settings,
    /// The client's machine, where it is the broker's.
    pub host: Option<Host>,
    /// The client fetched a subscription, or could have.
    pub has_subscription: bool,
    /// The broker asks it for no metrics.
    pub is_off_at_broker: bool,
    pub push_interval_ms: Option<f64>,
    /// Other clients that took the broker's time, heaviest first.
    pub neighbours: Vec<Neighbour>,
    /// For a consumer: members and partitions of its group, and members expelled for not polling.
    pub group_members: Option<f64>,
    pub group_partitions: Option<f64>,
    pub expelled: Vec<String>,
    /// For a consumer whose own metrics have no lag: derived from committed offsets.
    pub partitions: Vec<ConsumedPartition>,
    /// How often the member left its group and joined it again, within the last minute.
    pub rejoined: Option<f64>,
    pub cluster: Option<ClusterSide>,
    /// Where the observer is not the broker, which measures it itself.
    pub path: Option<Path>,
    /// It only adds to what an instance pushes, and says nothing without it.
    pub is_complement: bool,
}

/// The history of many clients; every method may be called from any thread.
#[derive(Debug)]
pub struct Collector {
    shards: Vec<Mutex<Shard>>,
    hasher: std::hash::RandomState,
    instances_max: usize,
    statements: Statements,
    observed: Mutex<HashMap<ObservedKey, ObservedClient>>,
    ledger: Mutex<Ledger>,
}

type Shard = HashMap<String, Instance>;

impl Default for Collector {
    fn default() -> Collector {
        Collector::new(INSTANCES_MAX)
    }
}

impl Collector {
    /// - `instances_max`: beyond it, a new instance replaces the one that has been silent longest.
    pub fn new(instances_max: usize) -> Collector {
        Collector {
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            hasher: std::hash::RandomState::new(),
            instances_max: instances_max.max(1),
            statements: Statements::default(),
            observed: Mutex::default(),
            ledger: Mutex::default(),
        }
    }

    /// The collector with what owners of clients state of their settings.
    #[must_use]
    pub fn stating(self, statements: Statements) -> Collector {
        Collector { statements, ..self }
    }

    /// Takes a payload, decompressed OTLP `MetricsData`, that arrived at `at_ms` (milliseconds
    /// since 1970 by this machine's clock).
    ///
    /// - Errors: nothing of the payload is kept.
    pub fn push(&self, from: PushedFrom<'_>, payload: &[u8], at_ms: i64) -> Result<(), Malformed> {
        if !from.instance_id.is_empty() {
            let software = (from.software_name, from.software_version);
            let reading = Reading::of_push(payload, software, |_| true)?;
            self.keep(&from, &reading, at_ms);
            return Ok(());
        }
        let mut sources = BTreeSet::new();
        otlp::visit(payload, |source, _| {
            if sources.len() < SOURCES_MAX {
                sources.insert((source.instance_id, source.client_id));
            }
        })?;
        for (instance_id, client_id) in sources {
            let software = (from.software_name, from.software_version);
            let reading = Reading::of_push(payload, software, |source| {
                (source.instance_id, source.client_id) == (instance_id, client_id)
            })?;
            let one = PushedFrom {
                client_id: if client_id.is_empty() {
                    from.client_id
                } else {
                    client_id
                },
                instance_id,
                ..from
            };
            self.keep(&one, &reading, at_ms);
        }
        Ok(())
    }

    fn keep(&self, from: &PushedFrom<'_>, reading: &Reading<'_>, at_ms: i64) {
        let id: Cow<'_, str> = match from.instance_id {
            "" => Cow::Owned(format!("{}@{}", from.client_id, from.address.unwrap_or_default())),
            id => Cow::Borrowed(id),
        };
        let key = instance::cut(&id);
        let shard = self.hasher.hash_one(key) as usize % SHARDS;
        let mut shard = lock(&self.shards[shard]);
        if let Some(instance) = shard.get_mut(key) {
            instance.push(from, reading, at_ms);
            return;
        }
        make_room(&mut shard, self.instances_max.div_ceil(SHARDS), at_ms);
        let mut instance = Instance::new(Client {
            client_id: instance::cut(from.client_id).to_owned(),
            instance_id: (!from.instance_id.is_empty()).then(|| key.to_owned()),
            ..Client::default()
        });
        instance.push(from, reading, at_ms);
        shard.insert(key.to_owned(), instance);
    }

    /// Takes what a broker saw of a client; it replaces the same broker's previous observation of
    /// it. An observing broker reports on all its clients together.
    pub fn observe(&self, observed: Observed, at_ms: i64) {
        let key = ObservedKey::of(&observed.client);
        let observer = (observed.source, observed.broker.node_id);
        let mut all = lock(&self.observed);
        if all.len() >= self.instances_max && !all.contains_key(&key) {
            all.retain(|_, client| client.at_ms > at_ms - OBSERVATION_MS);
            if all.len() >= self.instances_max {
                return;
            }
        }
        let client = all.entry(key).or_default();
        client.at_ms = at_ms;
        client
            .by_node
            .retain(|_, (heard_ms, _)| *heard_ms > at_ms - OBSERVATION_MS);
        if client.by_node.len() < BROKERS_MAX || client.by_node.contains_key(&observer) {
            let before = client.by_node.remove(&observer).map(|(_, before)| before);
            // The same again: a verdict that was made from it can be kept.
            let observed = match before.filter(|before| **before == observed) {
                Some(before) => before,
                None => Arc::new(observed),
            };
            client.by_node.insert(observer, (at_ms, observed));
        }
    }

    /// Returns one snapshot for every client that has pushed or was seen by a broker and has not
    /// expired, by client id.
    pub fn snapshots(&self, at_ms: i64) -> Vec<Snapshot> {
        let mut snapshots = self.each(SHARDS, at_ms, |_| None, |snapshot| (snapshot, None));
        snapshots.sort_by_cached_key(order_key);
        snapshots
    }

    /// The clients that push; producers with the topics that they name.
    pub fn pushing(&self, at_ms: i64) -> Vec<Pushing> {
        let mut pushing = Vec::new();
        for shard in &self.shards {
            let shard = lock(shard);
            let live = shard.values().filter(|instance| !is_expired(instance, at_ms));
            pushing.extend(live.map(|instance| Pushing {
                client: instance.client.clone(),
                topics: match instance.client.role {
                    Role::Producer => summary::topics_written(&instance.window()),
                    Role::Consumer => BTreeMap::new(),
                },
            }));
        }
        pushing
    }

    /// The clients that push, with the bytes per second of their last pushes.
    pub fn speaking(&self, at_ms: i64) -> Vec<Speaking> {
        let mut speaking = Vec::new();
        for shard in &self.shards {
            let shard = lock(shard);
            let live = shard.values().filter(|instance| !is_expired(instance, at_ms));
            speaking.extend(live.map(|instance| Speaking {
                client: instance.client.clone(),
                bytes_per_second: instance.bytes_per_second(),
            }));
        }
        speaking
    }

    /// Diagnoses every client, the worst first. A client of which everything that the rules read is
    /// what it was at its last verdict keeps that.
    pub fn examine(&self, at_ms: i64) -> Examination {
        let examined = self.judge(SHARDS, at_ms, Judged::clone);
        let mut seen = Seen::default();
        for judged in &examined {
            seen.add(&judged.seen);
        }
        let clients: Vec<_> = examined.into_iter().map(|judged| judged.diagnosis).collect();
        let mut examination = Examination::of(at_ms, clients);
        examination.seen = Some(seen);
        examination.sort();
        examination
    }

    /// What `of` takes of every client's verdict, in any order. Verdicts are kept.
    fn judge<T: Send>(&self, threads_max: usize, at_ms: i64, of: impl Fn(&Judged) -> T + Sync) -> Vec<T> {
        self.each(
            threads_max,
            at_ms,
            |judged| Some(of(judged)),
            |snapshot| {
                let judged = Judged::of(&snapshot);
                (of(&judged), Some(judged))
            },
        )
    }

    /// Applies `make` to every client's snapshot, in any order, on all processors where there are
    /// many clients. A snapshot is made under the lock of its shard and judged without it, one at a
    /// time: it stays in the cache, and pushes hardly wait.
    ///
    /// - `threads_max`: of those that judge, this one included.
    /// - `reuse`: takes a verdict that is kept in place of the snapshot.
    /// - `make`: its second result is kept.
    fn each<T: Send>(
        &self,
        threads_max: usize,
        at_ms: i64,
        reuse: impl Fn(&Judged) -> Option<T> + Sync,
        make: impl Fn(Snapshot) -> (T, Option<Judged>) + Sync,
    ) -> Vec<T> {
        const FEW: usize = 500;
        let make = |mut snapshot: Snapshot, inputs: Inputs| {
            self.statements.apply(&mut snapshot);
            let (one, judged) = make(snapshot);
            (one, judged.and_then(|judged| Kept::new(inputs, judged)))
        };
        let observations = Mutex::new(self.observations(at_ms));
        let next = AtomicUsize::new(0);
        let work = || {
            let mut made = Vec::new();
            while let Some(shard) = self.shards.get(next.fetch_add(1, Ordering::Relaxed)) {
                let fresh = fresh_of(&mut lock(shard), at_ms, &observations, &reuse, &mut made);
                for (key, mut inputs) in fresh {
                    let Some(snapshot) = lock(shard)
                        .get(&key)
                        .map(|instance| own_snapshot(instance, at_ms, &mut inputs))
                    else {
                        continue;
                    };
                    let (one, kept) = make(with_sides(snapshot, &inputs.sides), inputs);
                    made.push(one);
                    let before = kept.and_then(|kept| lock(shard).get_mut(&key)?.kept.replace(kept));
                    // Not under the lock.
                    drop(before);
                }
            }
            made
        };
        let threads = match self.instance_count() {
            0..FEW => 1,
            _ => std::thread::available_parallelism()
                .map_or(1, usize::from)
                .min(threads_max),
        };
        let mut made = match threads {
            1 => work(),
            _ => std::thread::scope(|scope| {
                let others: Vec<_> = (1..threads).map(|_| scope.spawn(work)).collect();
                let mut made = work();
                for other in others {
                    made.extend(other.join().expect("rules do not panic"));
                }
                made
            }),
        };
        let rest = observations
            .into_inner()
            .unwrap_or_else(PoisonError::into_inner)
            .rest();
        for (key, sides, last) in rest {
            let inputs = Inputs {
                news: 0,
                is_overdue: false,
                sides,
            };
            let known = last.as_ref().and_then(|kept| kept.judged(&inputs));
            if let Some(one) = known.and_then(&reuse) {
                made.push(one);
                continue;
            }
            let (one, kept) = make(silent(&inputs.sides), inputs);
            made.push(one);
            if let (Some(kept), Some(client)) = (kept, lock(&self.observed).get_mut(&key)) {
                client.kept = Some(Arc::new(kept));
            }
        }
        made
    }

    fn observations(&self, at_ms: i64) -> Observations {
        let mut all = lock(&self.observed);
        all.retain(|_, client| client.at_ms > at_ms - OBSERVATION_MS);
        let mut last_ms: HashMap<Observer, i64> = HashMap::new();
        for (observer, (heard_ms, _)) in all.values().flat_map(|client| &client.by_node) {
            let last = last_ms.entry(*observer).or_insert(*heard_ms);
            *last = (*last).max(*heard_ms);
        }
        let live = all.iter().map(|(key, client)| {
            let fresh = client.by_node.iter().filter(|(observer, (heard_ms, _))| {
                // A broker that left a client out of its latest report no longer has anything to
                // say about it.
                *heard_ms > at_ms - OBSERVATION_MS && *heard_ms > last_ms[*observer] - TOLD_TOGETHER_MS
            });
            let sides: Vec<Arc<Observed>> = fresh.map(|(_, (_, observed))| observed.clone()).collect();
            (key.clone(), (sides, client.kept.clone()))
        });
        let mut observations = Observations {
            sides: live.filter(|(_, (sides, _))| !sides.is_empty()).collect(),
            instances: HashMap::new(),
            members: HashMap::new(),
        };
        drop(all);
        let of_members = observations.sides.keys();
        observations.members = of_members
            .filter_map(|key| Some((key.member_id.clone()?, key.clone())))
            .collect();
        for key in observations.sides.keys().filter(|key| key.instance_id.is_none()) {
            observations
                .instances
                .insert((key.client_id.clone(), key.role), 0);
        }
        if !observations.instances.is_empty() {
            for shard in &self.shards {
                for instance in lock(shard)
                    .values()
                    .filter(|instance| !is_expired(instance, at_ms))
                {
                    let name = (instance.client.client_id.clone(), Some(instance.client.role));
                    if let Some(count) = observations.instances.get_mut(&name) {
                        *count += 1;
                    }
                }
            }
        }
        observations
    }

    pub fn instance_count(&self) -> usize {
        self.shards.iter().map(|shard| lock(shard).len()).sum()
    }

    /// Bytes that are kept of pushes.
    pub fn bytes(&self) -> usize {
        let shards = self.shards.iter().map(|shard| {
            let shard = lock(shard);
            let slots = shard.capacity() * (size_of::<String>() + 1);
            slots
                + shard
                    .iter()
                    .map(|(key, instance)| key.capacity() + instance.bytes())
                    .sum::<usize>()
        });
        shards.sum()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Adds the verdicts that are kept to `made`, and returns the other clients by their keys.
fn fresh_of<T>(
    shard: &mut Shard,
    at_ms: i64,
    observations: &Mutex<Observations>,
    reuse: impl Fn(&Judged) -> Option<T>,
    made: &mut Vec<T>,
) -> Vec<(String, Inputs)> {
    shard.retain(|_, instance| !is_expired(instance, at_ms));
    let mut observations = lock(observations);
    let sides: Vec<_> = (shard.values())
        .map(|instance| observations.take(&instance.client))
        .collect();
    drop(observations);
    made.reserve(shard.len());
    let mut fresh = Vec::new();
    for ((key, instance), sides) in shard.iter_mut().zip(sides) {
        let inputs = Inputs {
            news: instance.news,
            is_overdue: is_overdue(instance, at_ms),
            sides,
        };
        if let Some(kept) = &mut instance.kept {
            kept.heard(instance.heard_ms);
        }
        let known = instance.kept.as_ref().and_then(|kept| kept.judged(&inputs));
        match known.and_then(&reuse) {
            Some(one) => made.push(one),
            None => fresh.push((key.clone(), inputs)),
        }
    }
    fresh
}

/// What a client says itself, with what that is made from.
fn own_snapshot(instance: &Instance, at_ms: i64, inputs: &mut Inputs) -> Snapshot {
    inputs.news = instance.news;
    inputs.is_overdue = is_overdue(instance, at_ms);
    let mut snapshot = summary::snapshot(&instance.window());
    snapshot.telemetry.seconds_until_next_push = seconds_until_next_push(instance, at_ms);
    snapshot.telemetry.is_silent = inputs.is_overdue;
    snapshot
}

fn with_sides(mut snapshot: Snapshot, sides: &[Arc<Observed>]) -> Snapshot {
    let telemetry = snapshot.telemetry;
    let is_producing = sides
        .iter()
        .any(|side| side.client.role == Role::Producer && !side.is_complement);
    if telemetry.is_silent && telemetry.pushes == Some(1) && is_producing {
        // One push says nothing about the time since; brokers do.
        snapshot.producer = None;
        snapshot.seconds = seconds_seen(sides);
    }
    for side in sides {
        add_side(&mut snapshot, Observed::clone(side));
    }
    for path in sides.iter().filter_map(|side| side.path) {
        add_path(&mut snapshot, path);
    }
    snapshot
}

/// Where brokers measure no round trip, the kernel's of the one that it shares a machine with is
/// taken for all of them.
fn add_path(snapshot: &mut Snapshot, path: Path) {
    if snapshot.brokers.is_empty() {
        snapshot.brokers.push(BrokerSide::default());
    }
    for side in &mut snapshot.brokers {
        if side.round_trip_ms.is_none() {
            side.round_trip_ms = Some(path.round_trip_ms);
            side.loaded_round_trip_ms = path.loaded_round_trip_ms;
        }
    }
    let known = snapshot.network.round_trip_ms;
    snapshot.network.round_trip_ms = known.or(Some(path.round_trip_ms));
}

fn order_key(snapshot: &Snapshot) -> (String, Option<String>, Option<String>) {
    let client = &snapshot.client;
    (
        client.client_id.clone(),
        client.instance_id.clone(),
        client.address.clone(),
    )
}

fn is_expired(instance: &Instance, at_ms: i64) -> bool {
    instance.expires_ms().is_none_or(|expires_ms| expires_ms <= at_ms)
}

/// Drops expired instances; if that is not enough, those that have been silent longest.
fn make_room(shard: &mut Shard, count_max: usize, at_ms: i64) {
    if shard.len() < count_max {
        return;
    }
    shard.retain(|_, instance| !is_expired(instance, at_ms));
    while shard.len() >= count_max {
        let silent = shard.iter().min_by_key(|(_, instance)| instance.heard_ms);
        let Some(key) = silent.map(|(key, _)| key.clone()) else {
            return;
        };
        shard.remove(&key);
    }
}

fn seconds_until_next_push(instance: &Instance, at_ms: i64) -> Option<f64> {
    if instance.terminated_ms.is_some() {
        return None;
    }
    let due_ms = instance.heard_ms? as f64 + instance.push_interval_ms?;
    Some(((due_ms - at_ms as f64) / 1000.0).max(0.0))
}

/// Whether it has not pushed for several of its intervals, and did not say good-bye.
fn is_overdue(instance: &Instance, at_ms: i64) -> bool {
    let since_ms = instance.heard_ms.map(|heard_ms| (at_ms - heard_ms) as f64);
    let awaited = since_ms.zip(instance.push_interval_ms);
    instance.terminated_ms.is_none()
        && awaited.is_some_and(|(since_ms, interval_ms)| since_ms >= INTERVALS_SILENT * interval_ms)
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct ObservedKey {
    instance_id: Option<String>,
    client_id: String,
    /// A process may give the same client id to its producer and its consumer.
    role: Option<Role>,
    address: Option<String>,
    /// Of a consumer known as a member of its group only.
    member_id: Option<String>,
}

impl ObservedKey {
    fn of(client: &Client) -> ObservedKey {
        ObservedKey {
            instance_id: client.instance_id.clone(),
            client_id: client.client_id.clone(),
            role: Some(client.role).filter(|_| client.instance_id.is_none()),
            address: client.address.clone().filter(|_| client.instance_id.is_none()),
            member_id: client.member_id.clone().filter(|_| client.instance_id.is_none()),
        }
    }
}

/// A broker by its id, or what tells for the whole cluster.
type Observer = (Source, Option<i32>);

#[derive(Clone, Debug, Default)]
struct ObservedClient {
    at_ms: i64,
    by_node: BTreeMap<Observer, (i64, Arc<Observed>)>,
    /// Its last verdict, if it pushes nothing.
    kept: Option<Arc<Kept>>,
}

/// What brokers saw of one client, and its verdict if it pushes nothing.
type Sides = (Vec<Arc<Observed>>, Option<Arc<Kept>>);

/// Brokers' observations, until they are matched with clients.
struct Observations {
    sides: BTreeMap<ObservedKey, Sides>,
    /// How many instances share a name that brokers saw without an instance id.
    instances: HashMap<(String, Option<Role>), u32>,
    /// Observations of members of groups, by their member ids.
    members: HashMap<String, ObservedKey>,
}

impl Observations {
    /// Takes the observations of the instance; those of its name only if no other instance has the
    /// name.
    fn take(&mut self, client: &Client) -> Vec<Arc<Observed>> {
        if self.sides.is_empty() {
            return Vec::new();
        }
        let by_instance = ObservedKey {
            instance_id: client.instance_id.clone(),
            client_id: client.client_id.clone(),
            role: None,
            address: None,
            member_id: None,
        };
        let mut taken = Vec::new();
        if client.instance_id.is_some() {
            let own = self.sides.remove(&by_instance);
            taken.extend(own.into_iter().flat_map(|(sides, _)| sides));
        }
        let member = client.member_id.as_ref();
        if let Some(key) = member.and_then(|member_id| self.members.remove(member_id)) {
            let own = self.sides.remove(&key);
            taken.extend(own.into_iter().flat_map(|(sides, _)| sides));
        }
        let name = (client.client_id.clone(), Some(client.role));
        // The machine says nothing of what brokers know.
        let is_unknown = taken.iter().all(|side| side.source == Source::Machine);
        if is_unknown && self.instances.get(&name) == Some(&1) {
            let begin = ObservedKey {
                instance_id: None,
                client_id: client.client_id.clone(),
                role: Some(client.role),
                address: None,
                member_id: None,
            };
            let is_named = |key: &ObservedKey| {
                key.instance_id.is_none()
                    && key.client_id == client.client_id
                    && key.role == Some(client.role)
            };
            let own: Vec<ObservedKey> = self
                .sides
                .range(begin..)
                .take_while(|(key, _)| is_named(key))
                .filter(|(key, _)| is_same_host(key.address.as_deref(), client.address.as_deref()))
                .map(|(key, _)| key.clone())
                .collect();
            for key in own {
                let own = self.sides.remove(&key);
                taken.extend(own.into_iter().flat_map(|(sides, _)| sides));
            }
        }
        taken
    }

    fn rest(self) -> impl Iterator<Item = (ObservedKey, Vec<Arc<Observed>>, Option<Arc<Kept>>)> {
        let stands_alone =
            |(_, (sides, _)): &(ObservedKey, Sides)| sides.iter().any(|side| !side.is_complement);
        let rest = self.sides.into_iter().filter(stands_alone);
        rest.map(|(key, (sides, kept))| (key, sides, kept))
    }
}

/// Unknown addresses may be the same.
fn is_same_host(one: Option<&str>, other: Option<&str>) -> bool {
    one.zip(other)
        .is_none_or(|(one, other)| host_of(one) == host_of(other))
}

fn add_side(snapshot: &mut Snapshot, side: Observed) {
    let is_wordless = snapshot.producer.is_none() && snapshot.consumer.is_none();
    let client = &mut snapshot.client;
    let seen = side.client;
    if is_wordless {
        client.role = seen.role;
    }
    client.software_name = client.software_name.take().or(seen.software_name);
    client.software_version = client.software_version.take().or(seen.software_version);
    if client.library == Library::Unknown {
        let (name, version) = (
            client.software_name.as_deref(),
            client.software_version.as_deref(),
        );
        client.library = Software::recognise(name, version, &Hints::default()).library;
    }
    client.principal = client.principal.take().or(seen.principal);
    client.tls = client.tls.take().or(seen.tls);
    client.address = client.address.take().or(seen.address);
    client.group_id = client.group_id.take().or(seen.group_id);
    client.member_id = client.member_id.take().or(seen.member_id);
    snapshot.settings.merge(&side.settings);
    snapshot.host = snapshot.host.or(side.host);
    snapshot.telemetry.has_subscription |= side.has_subscription;
    snapshot.telemetry.is_off_at_broker |= side.is_off_at_broker;
    if let Some(round_trip_ms) = side.broker.round_trip_ms {
        let known = snapshot.network.round_trip_ms.unwrap_or(round_trip_ms);
        snapshot.network.round_trip_ms = Some(known.max(round_trip_ms));
    }
    // What the Admin protocol tells of a client is nothing that a broker measured.
    if side.broker != BrokerSide::default() {
        snapshot.brokers.push(side.broker);
    }
    snapshot.cluster = snapshot.cluster.take().or(side.cluster);
    for neighbour in side.neighbours {
        if snapshot
            .neighbours
            .iter()
            .all(|known| known.client_id != neighbour.client_id)
        {
            snapshot.neighbours.push(neighbour);
        }
    }
    snapshot
        .neighbours
        .sort_by(|one, other| other.time_share.total_cmp(&one.time_share));
    let is_about_group = side.group_members.is_some()
        || !side.partitions.is_empty()
        || !side.expelled.is_empty()
        || side.rejoined.is_some();
    if snapshot.client.role == Role::Consumer && (snapshot.consumer.is_some() || is_about_group) {
        let consumer = snapshot.consumer.get_or_insert_with(Consumer::default);
        consumer.group_members = consumer.group_members.or(side.group_members);
        consumer.group_partitions = consumer.group_partitions.or(side.group_partitions);
        consumer.expelled.extend(side.expelled);
        consumer.rejoined = consumer.rejoined.or(side.rejoined);
        lag::merge(consumer, side.partitions);
    }
}

fn seconds_seen(sides: &[Arc<Observed>]) -> f64 {
    sides.iter().map(|side| side.seconds).fold(0.0, f64::max)
}

/// A client known only from brokers.
fn silent(sides: &[Arc<Observed>]) -> Snapshot {
    let mut snapshot = Snapshot {
        client: sides[0].client.clone(),
        seconds: seconds_seen(sides),
        ..Snapshot::default()
    };
    snapshot.telemetry.pushes = Some(0);
    snapshot.telemetry.push_interval_ms = sides.iter().find_map(|side| side.push_interval_ms);
    snapshot = with_sides(snapshot, sides);
    let telemetry = &mut snapshot.telemetry;
    telemetry.is_silent = telemetry.has_subscription && !telemetry.is_off_at_broker;
    snapshot
}

#[cfg(test)]
mod tests;
