//! Turns a broker's counters per connection into the doctor's readings per client: a sliding window
//! of one minute over all connections of a client, with its heaviest neighbours.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};
use std::net::IpAddr;
use std::ops::Range;
use std::sync::Arc;

use super::committed::Committed;
use super::counts::{
    BrokerCounts, ConnectionCounts, DeniedWhat, FetchLimits, OpenTransactionCounts, RequestCounts,
};
use super::host::HostSums;
use super::instances;
use super::membership::Memberships;
use super::written::Written;
use crate::doctor::history::Observed;
use crate::doctor::snapshot::{
    BrokerSide, Client, Codec, ConsumedPartition, Denied, HeldPartition, Host, Neighbour, Origin, Role,
    Setting, Settings, UnknownTopic,
};

/// Slices of a window: twelve of five seconds are a minute.
const SLICES_MAX: usize = 12;

/// A client's first slice counts at least this long.
const RATE_SECONDS_MIN: f64 = 1.0;

/// Past windows kept for each client, one per minute.
const PAST_MAX: usize = 60;

/// Clients whose past is kept: bounded, because ids and addresses come from the network.
const CLIENTS_MAX: usize = 16_384;

/// A connection on which the broker was sending for this share of a slice shows what queues on the
/// way; otherwise a delayed acknowledgement looks the same.
const SENDING_SHARE: f64 = 0.5;
/// In a slice with more of its time in which a producer's requests arrived, the client acknowledges
/// with each packet that it sends, and the smoothed round trip contains no delay of its own.
const ARRIVING_SHARE: f64 = 0.8;

/// A client that asks for a topic this often in a window does not only look whether it is there.
const ASKED_AGAIN: u64 = 5;

/// A client that goes this often in a window before it hears an answer did not only look whether
/// the port is open.
const UNHEARD_AGAIN: u64 = 5;

/// At most this many neighbours are named, each with at least this share of the event loops' time.
const NEIGHBOURS_MAX: usize = 3;
const NEIGHBOUR_SHARE_MIN: f64 = 0.02;

/// One client in one role: its client instance where that is known, else all connections with the
/// same client id and principal from one host.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Key {
    pub(super) client_id: Arc<str>,
    principal: Arc<str>,
    pub(super) address: IpAddr,
    pub(super) role: Role,
    instance_id: Option<String>,
}

impl Key {
    fn of(connection: &ConnectionCounts, role: Role) -> Key {
        Key {
            client_id: connection.client_id.clone(),
            principal: connection.principal.clone(),
            address: connection.address,
            role,
            instance_id: connection.instance_id.clone(),
        }
    }
}

/// One client's counters over a slice, or over a window of several.
#[derive(Clone, Debug, Default)]
pub(super) struct ClientSums {
    /// In a window: from the client's first request to the end of the last slice in which it had a
    /// connection.
    seconds: f64,
    /// In a slice: how much of it had passed at its first request.
    late_micros: Option<u64>,
    /// In a window: since then.
    seconds_away: f64,
    /// In a window: it is in the slice that is being added.
    is_here: bool,
    /// In a window: the first slice in which it was there from the beginning on.
    first_whole_slice: usize,
    software: Option<(Arc<str>, Arc<str>)>,
    tls: Option<Arc<str>>,
    /// Its produce requests, or its fetches.
    api: RequestCounts,
    written: Written,
    other_micros: u64,
    /// A consumer's commits of offsets, and the broker's time for them.
    commits: u64,
    commit_micros: u64,
    /// A producer's ends of transactions by EndTxn before version 5.
    nameless_ends: u64,
    connections: u64,
    is_local: bool,
    push_interval_ms: Option<u32>,
    is_off_at_broker: bool,
    round_trip_micros: Option<u32>,
    loaded_micros: Option<u32>,
    /// The least smoothed round trip of slices in which a producer's requests arrived all the time:
    /// with what always queues on the way.
    queued_micros: Option<u32>,
    /// Connections that ended before their first answer can have reached it.
    unheard: u64,
    /// How often each operation was denied.
    denied: BTreeMap<DeniedWhat, u64>,
    /// How often it asked for each topic that does not exist.
    unknown_topics: BTreeMap<Arc<str>, u64>,
    /// A consumer's first and last position in each partition.
    pub(super) positions: BTreeMap<(Arc<str>, i32), (Stand, Stand)>,
}

/// A consumer's position in a partition, and the partition's end at that moment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stand {
    pub at_micros: u64,
    pub offset: i64,
    pub end: i64,
}

impl ClientSums {
    /// Adds the next slice of the same client.
    fn merge(&mut self, later: &ClientSums) {
        self.api.merge(&later.api);
        self.other_micros += later.other_micros;
        self.commits += later.commits;
        self.commit_micros += later.commit_micros;
        self.nameless_ends += later.nameless_ends;
        self.written.merge(&later.written);
        self.connections = later.connections;
        self.unheard += later.unheard;
        self.is_local = later.is_local;
        self.push_interval_ms = later.push_interval_ms.or(self.push_interval_ms);
        self.is_off_at_broker = later.is_off_at_broker;
        self.round_trip_micros = later.round_trip_micros.or(self.round_trip_micros);
        self.loaded_micros = later.loaded_micros.or(self.loaded_micros);
        let queued = self.queued_micros.into_iter().chain(later.queued_micros);
        self.queued_micros = queued.min();
        for (what, count) in &later.denied {
            *self.denied.entry(what.clone()).or_default() += count;
        }
        for (topic, count) in &later.unknown_topics {
            *self.unknown_topics.entry(topic.clone()).or_default() += count;
        }
        self.software = later.software.clone().or_else(|| self.software.take());
        self.tls = later.tls.clone().or_else(|| self.tls.take());
        // A partition that is no longer fetched was reassigned to another member.
        if !later.positions.is_empty() {
            let before = std::mem::take(&mut self.positions);
            self.positions = later
                .positions
                .iter()
                .map(|(partition, (first, last))| {
                    let first = before.get(partition).map_or(first, |(first, _)| first);
                    (partition.clone(), (*first, *last))
                })
                .collect();
        }
    }

    /// How much of a slice had passed before the client began. A rate wants a second at least.
    fn late_seconds(&self, slice_seconds: f64) -> f64 {
        let late = self.late_micros.unwrap_or(0) as f64 / 1e6;
        late.min(slice_seconds - RATE_SECONDS_MIN).max(0.0)
    }

    /// A slice of the window has passed. A client that is gone says nothing by what it does not do
    /// any more.
    fn pass(&mut self, seconds: f64) {
        self.seconds_away += seconds;
        if std::mem::take(&mut self.is_here) {
            self.seconds += std::mem::take(&mut self.seconds_away);
        }
    }

    /// Adds the operations that a connection was denied since `before`.
    fn add_denied(&mut self, now: &ConnectionCounts, before: Option<&ConnectionCounts>) {
        let before = before.map_or(&[][..], |before| &before.denied);
        for denied in &now.denied {
            let earlier = before.iter().find(|earlier| earlier.what == denied.what);
            let earlier = earlier.map_or(0, |earlier| earlier.count);
            let more = more(denied.count, earlier);
            if more > 0 {
                *self.denied.entry(denied.what.clone()).or_default() += more;
            }
        }
    }

    /// Adds the missing topics that a connection asked for since `before`.
    fn add_unknown_topics(&mut self, now: &ConnectionCounts, before: Option<&ConnectionCounts>) {
        let before = before.map_or(&[][..], |before| &before.unknown_topics);
        for (topic, count) in &now.unknown_topics {
            let earlier = before.iter().find(|(earlier, _)| earlier == topic);
            let more = more(*count, earlier.map_or(0, |(_, count)| *count));
            if more > 0 {
                *self.unknown_topics.entry(topic.clone()).or_default() += more;
            }
        }
    }

    /// Whether it says something: it moves records, or tries and gets nowhere.
    fn is_told(&self) -> bool {
        let asks_again = self.unknown_topics.values().any(|count| *count >= ASKED_AGAIN);
        let goes_unheard = self.unheard >= UNHEARD_AGAIN;
        self.api.requests > 0 || !self.denied.is_empty() || asks_again || goes_unheard
    }

    /// Event loop time that the client took, in microseconds.
    fn loop_micros(&self) -> u64 {
        self.api.handled_micros + self.other_micros
    }
}

/// What was added to a count. A smaller one was displaced meanwhile, and counts from zero.
fn more(now: u64, before: u64) -> u64 {
    now.checked_sub(before).unwrap_or(now)
}

/// Returns the role of the client that was denied something: that in which it moves records, or
/// else the one whose operations were denied.
fn denied_role(now: &ConnectionCounts) -> Option<Role> {
    let is_reading = |what: &DeniedWhat| what.operation == "Read" || what.resource_type == "Group";
    match (&now.produce, &now.fetch) {
        _ if now.denied.is_empty() => None,
        (Some(_), _) => Some(Role::Producer),
        (None, Some(_)) => Some(Role::Consumer),
        _ if now.denied.iter().any(|denied| is_reading(&denied.what)) => Some(Role::Consumer),
        _ => Some(Role::Producer),
    }
}

/// Adds the difference between `now` and `before`, two readings of the same connection, to its
/// client as a producer and as a consumer.
fn add_connection(
    clients: &mut HashMap<Key, ClientSums>,
    now: &ConnectionCounts,
    before: Option<&ConnectionCounts>,
    slice: &Range<u64>,
    members: &HashSet<&str>,
) {
    let elapsed_micros = slice.end - slice.start;
    let sending = before.map_or(0, |before| {
        now.sending_micros.saturating_sub(before.sending_micros)
    });
    let is_sending = sending as f64 >= SENDING_SHARE * elapsed_micros.max(1) as f64;
    let none = RequestCounts::default();
    let denied_role = denied_role(now);
    let asks_to_write =
        !now.unknown_topics.is_empty() && now.fetch.is_none() && !members.contains(&*now.client_id);
    let produce_before = before.and_then(|before| before.produce.as_ref());
    let fetch_before = before.and_then(|before| before.fetch.as_ref());
    let mut other_micros = now.other_micros - before.map_or(0, |before| before.other_micros);
    // They may have a connection of their own, to the group's coordinator.
    let commits = now.commits - before.map_or(0, |before| before.commits);
    if commits > 0 {
        let sums = clients.entry(Key::of(now, Role::Consumer)).or_default();
        sums.commits += commits;
        sums.commit_micros += now.commit_micros - before.map_or(0, |before| before.commit_micros);
    }
    // So may these, to the transaction coordinator.
    let nameless_ends = now.nameless_ends - before.map_or(0, |before| before.nameless_ends);
    if nameless_ends > 0 {
        let sums = clients.entry(Key::of(now, Role::Producer)).or_default();
        sums.nameless_ends += nameless_ends;
    }
    for (role, api, api_before) in [
        (Role::Producer, now.produce.as_ref(), produce_before),
        (Role::Consumer, now.fetch.as_ref(), fetch_before),
    ] {
        let is_denied = denied_role == Some(role);
        let is_asking = asks_to_write && role == Role::Producer;
        // What it would do is not known; it stands with the producers.
        let is_unheard = now.is_unheard && role == Role::Producer;
        let Some(api) = api.or((is_denied || is_asking || is_unheard).then_some(&none)) else {
            continue;
        };
        let sums = clients.entry(Key::of(now, role)).or_default();
        if is_denied {
            sums.add_denied(now, before);
        }
        sums.unheard += u64::from(is_unheard);
        if is_asking {
            sums.add_unknown_topics(now, before);
        }
        let late_micros = match (api_before, api.began_micros) {
            (None, Some(began)) => began.saturating_sub(slice.start),
            _ => 0,
        };
        sums.late_micros = Some(
            sums.late_micros
                .map_or(late_micros, |first| first.min(late_micros)),
        );
        let since = api.since(api_before.unwrap_or(&none));
        let is_arriving = since.read_micros as f64 >= ARRIVING_SHARE * elapsed_micros.max(1) as f64;
        sums.queued_micros = (sums.queued_micros).max(now.smoothed_micros.filter(|_| is_arriving));
        sums.api.merge(&since);
        sums.round_trip_micros = sums.round_trip_micros.max(now.round_trip_micros);
        sums.loaded_micros = sums.loaded_micros.max(now.smoothed_micros.filter(|_| is_sending));
        sums.other_micros += std::mem::take(&mut other_micros);
        sums.connections += u64::from(!now.is_closed);
        sums.is_local = now.is_local;
        sums.push_interval_ms = now.push_interval_ms.or(sums.push_interval_ms);
        sums.is_off_at_broker = now.is_off_at_broker;
        if let (Role::Producer, Some(written)) = (role, &now.written) {
            sums.written
                .add(written, before.and_then(|before| before.written.as_ref()));
        }
        if let Some((at, fetched)) = now.fetched.as_ref().filter(|_| role == Role::Consumer) {
            for partition in fetched {
                let stand = Stand {
                    at_micros: *at,
                    offset: partition.offset,
                    end: partition.end,
                };
                let key = (partition.topic.clone(), partition.partition);
                sums.positions.insert(key, (stand, stand));
            }
        }
        if now.tls.is_some() {
            sums.tls.clone_from(&now.tls);
        }
        if now.software.is_some() {
            sums.software.clone_from(&now.software);
        }
    }
}

/// The time between two readings.
#[derive(Debug, Default)]
struct Slice {
    seconds: f64,
    loop_micros_available: f64,
    busy_micros: u64,
    processor_micros: u64,
    host: Option<HostSums>,
    clients: HashMap<Key, ClientSums>,
}

/// A client's history, one value per minute.
#[derive(Debug, Default)]
struct Past {
    shares: VecDeque<f32>,
    total_micros: VecDeque<f32>,
}

/// Turns successive readings into windows.
#[derive(Default)]
pub struct Windows {
    previous: Option<BrokerCounts>,
    slices: VecDeque<Slice>,
    past: HashMap<Key, Past>,
    committed: Committed,
    readings: u64,
}

/// Totals of the whole broker over the window.
struct Whole {
    node_id: i32,
    loop_micros_available: f64,
    idle: f64,
    processor_use: f64,
    loop_count: usize,
    hosts: Vec<Option<Host>>,
    at_ms: i64,
    open_transactions: Vec<OpenTransactionCounts>,
    transaction_version: Option<i16>,
}

impl Whole {
    /// The machine while the client was there.
    fn host(&self, sums: &ClientSums) -> Option<Host> {
        let newest = self.hosts.len().checked_sub(1)?;
        self.hosts[sums.first_whole_slice.min(newest)]
    }
}

impl Windows {
    /// Takes the next reading and returns an observation for every client with requests in the
    /// window.
    pub fn take(&mut self, mut reading: BrokerCounts) -> Vec<Observed> {
        let previous = self.previous.take();
        let before = previous
            .as_ref()
            .map_or(&[][..], |previous| &previous.connections);
        instances::name(&mut reading.connections, before);
        let Some(previous) = previous else {
            self.previous = Some(reading);
            return Vec::new();
        };
        let memberships = Memberships::of(&reading.groups, reading.at_ms);
        let mut slice = slice(&previous, &reading);
        self.committed.tell(&mut slice.clients, &memberships, &reading);
        self.slices.push_back(slice);
        if self.slices.len() > SLICES_MAX {
            self.slices.pop_front();
        }
        let whole = self.whole(&reading);
        let mut clients: BTreeMap<Key, ClientSums> = BTreeMap::new();
        for (number, slice) in self.slices.iter().enumerate() {
            for (key, sums) in &slice.clients {
                let late = sums.late_seconds(slice.seconds);
                let whole = clients.entry(key.clone()).or_insert_with(|| ClientSums {
                    seconds_away: -late,
                    first_whole_slice: number + usize::from(late > 0.0),
                    ..ClientSums::default()
                });
                whole.merge(sums);
                whole.is_here = true;
            }
            clients.values_mut().for_each(|sums| sums.pass(slice.seconds));
        }
        name_what_came_before(&mut clients, &self.slices[self.slices.len() - 1]);
        // A client that is only in earlier slices has no connection any more.
        let newest = &self.slices[self.slices.len() - 1].clients;
        for (key, sums) in &mut clients {
            if !newest.contains_key(key) {
                sums.connections = 0;
            }
        }
        clients.retain(|_, sums| sums.is_told());
        let observed = self.observe(&whole, &clients, &memberships);
        self.previous = Some(reading);
        self.remember(&whole, &clients);
        observed
    }

    fn whole(&self, reading: &BrokerCounts) -> Whole {
        let sum = |of: fn(&Slice) -> f64| -> f64 { self.slices.iter().map(of).sum() };
        let seconds = sum(|slice| slice.seconds).max(0.001);
        let available = sum(|slice| slice.loop_micros_available).max(1.0);
        let busy = sum(|slice| slice.busy_micros as f64);
        let processor = sum(|slice| slice.processor_micros as f64);
        Whole {
            node_id: reading.node_id,
            loop_micros_available: available,
            idle: (1.0 - busy / available).clamp(0.0, 1.0),
            processor_use: (processor / (seconds * 1e6 * reading.processor_count as f64)).clamp(0.0, 1.0),
            loop_count: reading.loop_count,
            hosts: self.hosts(),
            at_ms: reading.at_ms,
            open_transactions: reading.open_transactions.clone(),
            transaction_version: reading.transaction_version,
        }
    }

    /// The machine from each slice on: what it did before a client began slows no client.
    fn hosts(&self) -> Vec<Option<Host>> {
        let mut hosts: Vec<Option<HostSums>> = Vec::with_capacity(self.slices.len());
        for slice in self.slices.iter().rev() {
            let sums = match hosts.last() {
                None => slice.host,
                Some(later) => slice.host.zip(*later).map(|(mut sums, later)| {
                    sums.merge(&later);
                    sums
                }),
            };
            hosts.push(sums);
        }
        let hosts = hosts.into_iter().rev();
        hosts.map(|sums| sums.map(|sums| sums.host())).collect()
    }

    fn observe(
        &self,
        whole: &Whole,
        clients: &BTreeMap<Key, ClientSums>,
        memberships: &Memberships<'_>,
    ) -> Vec<Observed> {
        let mut heavy: Vec<(&Key, &ClientSums)> = clients.iter().collect();
        heavy.sort_by_key(|(_, sums)| std::cmp::Reverse(sums.loop_micros()));
        heavy.truncate(NEIGHBOURS_MAX + 1);
        let told = clients.iter().map(|(key, sums)| {
            let growth = self.growth(key, sums);
            let others = heavy.iter().filter(|(other, _)| *other != key);
            let neighbours = others
                .map(|(other, sums)| self.neighbour(whole, other, sums, growth))
                .filter(|neighbour| neighbour.time_share >= NEIGHBOUR_SHARE_MIN)
                .take(NEIGHBOURS_MAX);
            let mut observed = Observed {
                client: client(key, sums),
                seconds: sums.seconds,
                broker: side(whole, key.role, sums),
                settings: settings(sums),
                host: whole.host(sums).filter(|_| sums.is_local),
                partitions: partitions(sums),
                has_subscription: key.instance_id.is_some(),
                push_interval_ms: sums.push_interval_ms.map(f64::from),
                is_off_at_broker: sums.is_off_at_broker,
                neighbours: neighbours.collect(),
                ..Observed::default()
            };
            if key.role == Role::Consumer {
                memberships.tell(&mut observed, key.address);
            }
            observed
        });
        told.collect()
    }

    fn neighbour(
        &self,
        whole: &Whole,
        key: &Key,
        sums: &ClientSums,
        victim_growth: Option<f64>,
    ) -> Neighbour {
        let api = &sums.api;
        let past = self.past.get(key);
        Neighbour {
            client_id: key.client_id.to_string(),
            principal: Some(key.principal.to_string()),
            time_share: sums.loop_micros() as f64 / whole.loop_micros_available,
            time_share_before: past.and_then(|past| median(&past.shares)),
            requests_per_second: Some(api.requests as f64 / sums.seconds.max(0.001)),
            records_per_request: ratio(api.records as f64, api.requests),
            cold_bytes_per_second: Some(api.cold_bytes as f64 / sums.seconds.max(0.001)),
            victim_growth,
            ..Neighbour::default()
        }
    }

    /// Returns this client's time per request, divided by its median of the last hour.
    fn growth(&self, key: &Key, sums: &ClientSums) -> Option<f64> {
        let before = median(&self.past.get(key)?.total_micros)?;
        let now = ratio(sums.api.own_micros() as f64, sums.api.requests)?;
        (before > 0.0).then(|| now / before)
    }

    /// Adds the window to the clients' history, once a minute.
    fn remember(&mut self, whole: &Whole, clients: &BTreeMap<Key, ClientSums>) {
        self.readings += 1;
        if !self.readings.is_multiple_of(SLICES_MAX as u64) {
            return;
        }
        for (key, past) in &mut self.past {
            if !clients.contains_key(key) {
                past.add(0.0, None);
            }
        }
        self.past
            .retain(|_, past| past.shares.iter().any(|share| *share > 0.0));
        for (key, sums) in clients {
            if self.past.len() >= CLIENTS_MAX && !self.past.contains_key(key) {
                continue;
            }
            let share = sums.loop_micros() as f64 / whole.loop_micros_available;
            let total = ratio(sums.api.own_micros() as f64, sums.api.requests);
            self.past.entry(key.clone()).or_default().add(share, total);
        }
    }
}

impl Past {
    fn add(&mut self, share: f64, total_micros: Option<f64>) {
        push_bounded(&mut self.shares, share as f32);
        if let Some(micros) = total_micros {
            push_bounded(&mut self.total_micros, micros as f32);
        }
    }
}

/// Attributes a connection's counters from before its first push to its client instance. Until the
/// first push tells the instance they are kept under the client id alone. They belong to the same
/// client if exactly one instance of that client id is known and no connection without an instance
/// goes on.
fn name_what_came_before(clients: &mut BTreeMap<Key, ClientSums>, newest: &Slice) {
    let goes_on = |key: &Key| newest.clients.get(key).is_some_and(|sums| sums.api.requests > 0);
    let bare: Vec<Key> = clients
        .keys()
        .filter(|key| key.instance_id.is_none() && !goes_on(key))
        .cloned()
        .collect();
    for key in bare {
        let is_it = |other: &&Key| {
            let named = Key {
                instance_id: other.instance_id.clone(),
                ..key.clone()
            };
            other.instance_id.is_some() && **other == named
        };
        let mut named = clients.keys().filter(is_it);
        let (Some(only), None) = (named.next().cloned(), named.next()) else {
            continue;
        };
        let (Some(mut whole), Some(later)) = (clients.remove(&key), clients.get_mut(&only)) else {
            continue;
        };
        whole.merge(later);
        whole.seconds += whole.seconds_away - later.seconds_away;
        whole.seconds_away = later.seconds_away;
        *later = whole;
    }
}

fn push_bounded(values: &mut VecDeque<f32>, value: f32) {
    if values.len() == PAST_MAX {
        values.pop_front();
    }
    values.push_back(value);
}

fn median(values: &VecDeque<f32>) -> Option<f64> {
    let mut sorted: Vec<f32> = values.iter().copied().collect();
    sorted.sort_by(f32::total_cmp);
    sorted.get(sorted.len() / 2).map(|value| f64::from(*value))
}

fn ratio(sum: f64, count: u64) -> Option<f64> {
    (count > 0).then(|| sum / count as f64)
}

fn positive(value: u32) -> Option<f64> {
    (value > 0).then(|| f64::from(value))
}

fn slice(before: &BrokerCounts, now: &BrokerCounts) -> Slice {
    let earlier: HashMap<u64, &ConnectionCounts> = before
        .connections
        .iter()
        .filter(|connection| !connection.is_closed)
        .map(|connection| (connection.connection_id, connection))
        .collect();
    let mut clients: HashMap<Key, ClientSums> = HashMap::new();
    let slice = before.moment_micros..now.moment_micros.max(before.moment_micros);
    let elapsed_micros = slice.end - slice.start;
    let members = now.groups.iter().flat_map(|group| &group.members);
    let members: HashSet<&str> = members.map(|member| &*member.client_id).collect();
    for connection in &now.connections {
        let before = earlier.get(&connection.connection_id).copied();
        add_connection(&mut clients, connection, before, &slice, &members);
    }
    for sums in clients.values_mut() {
        sums.written.end();
    }
    Slice {
        seconds: elapsed_micros as f64 / 1e6,
        loop_micros_available: elapsed_micros as f64 * now.loop_count as f64,
        busy_micros: now.busy_micros - before.busy_micros,
        processor_micros: now.processor_micros - before.processor_micros,
        host: (before.host.as_ref().zip(now.host.as_ref()))
            .map(|(before, now)| HostSums::between(before, now, elapsed_micros)),
        clients,
    }
}

fn client(key: &Key, sums: &ClientSums) -> Client {
    let (name, version) = sums.software.clone().unzip();
    Client {
        client_id: key.client_id.to_string(),
        instance_id: key.instance_id.clone(),
        role: key.role,
        software_name: name.map(|name| name.to_string()),
        software_version: version.map(|version| version.to_string()),
        principal: Some(key.principal.to_string()),
        tls: sums.tls.as_deref().map(str::to_owned),
        address: Some(key.address.to_string()),
        ..Client::default()
    }
}

fn denied((what, count): (&DeniedWhat, &u64)) -> Denied {
    Denied {
        operation: what.operation.to_owned(),
        resource_type: what.resource_type.to_owned(),
        resource: what.resource.to_string(),
        is_by_acl: what.is_by_acl,
        count: *count as f64,
    }
}

fn unknown_topic((topic, count): (&Arc<str>, &u64)) -> UnknownTopic {
    UnknownTopic {
        topic: topic.to_string(),
        count: *count as f64,
    }
}

fn side(whole: &Whole, role: Role, sums: &ClientSums) -> BrokerSide {
    let api = &sums.api;
    let is_producer = role == Role::Producer;
    let per_second = |count: u64| Some(count as f64 / sums.seconds.max(0.001));
    let per_request = |sum: u64| ratio(sum as f64, api.requests);
    // Bytes on the wire: a producer's requests or a consumer's answers, with their 4-byte length.
    let wire_bytes = match is_producer {
        true => api.request_bytes + 4 * api.requests,
        false => api.reply_bytes,
    };
    let loaded = match is_producer {
        true => sums.queued_micros,
        false => sums.loaded_micros,
    };
    BrokerSide {
        node_id: Some(whole.node_id),
        requests_per_second: per_second(api.requests),
        bytes_per_second: per_second(wire_bytes),
        records_per_second: per_second(api.records),
        batches_per_second: per_second(api.batches).filter(|_| is_producer),
        request_bytes: per_request(wire_bytes),
        records_per_request: per_request(api.records),
        batch_bytes: ratio(api.batch_bytes as f64, api.batches),
        queue_micros: per_request(api.queued_micros),
        local_micros: per_request(api.local_micros()),
        remote_micros: per_request(api.remote_micros()),
        flush_micros: per_request(api.synced_micros),
        response_queue_micros: per_request(api.behind_micros),
        send_micros: per_request(api.written_micros),
        total_micros: per_request(api.total_micros()),
        throttle_ms: per_request(api.throttled_micros).map(|micros| micros / 1e3),
        round_trip_ms: sums.round_trip_micros.map(|micros| f64::from(micros) / 1e3),
        loaded_round_trip_ms: loaded.map(|micros| f64::from(micros) / 1e3),
        gap_ms: ratio(api.gap_micros as f64 / 1e3, api.gaps),
        back_to_back_share: (api.gaps_judged > 0).then(|| api.back_to_back as f64 / api.requests as f64),
        has_overlap: Some(api.overlaps > 0),
        connections: Some(sums.connections as f64),
        handler_idle: Some(whole.idle),
        network_idle: Some(whole.idle),
        cpu_use: Some(whole.processor_use),
        cold_reads_per_second: per_second(api.cold_reads),
        cold_read_ms: ratio(api.cold_read_micros as f64 / 1e3, api.cold_reads),
        cold_bytes_per_second: per_second(api.cold_bytes),
        network_threads: Some(whole.loop_count as f64),
        commits_per_second: per_second(sums.commits).filter(|_| !is_producer),
        commit_ms: ratio(sums.commit_micros as f64 / 1e3, sums.commits),
        errors: errors(api),
        host: whole.host(sums),
        request_bytes_max: positive(api.request_bytes_max).map(|bytes| bytes + 4.0),
        batch_bytes_max: positive(api.batch_bytes_max),
        partitions: sums.written.heaviest(sums.seconds),
        partitions_written: sums.written.count(),
        held: held(whole, sums),
        denied: sums.denied.iter().map(denied).collect(),
        unknown_topics: sums.unknown_topics.iter().map(unknown_topic).collect(),
        unheard_per_second: per_second(sums.unheard).filter(|unheard| *unheard > 0.0),
        in_flight_max: positive(api.in_flight_max.into()).filter(|_| is_producer),
        nameless_ends: (sums.nameless_ends > 0).then_some(sums.nameless_ends as f64),
        transaction_version: whole.transaction_version.filter(|_| sums.nameless_ends > 0),
        arriving_share: arriving(sums).filter(|_| is_producer),
        arrival_pause_ms: ratio(api.pause_squares as f64 / 1e3, api.read_micros).filter(|_| is_producer),
        ..BrokerSide::default()
    }
}

/// The share of the time in which a request was arriving, on each connection.
fn arriving(sums: &ClientSums) -> Option<f64> {
    let micros = 1e6 * sums.seconds * sums.connections.max(1) as f64;
    (sums.api.read_micros > 0).then(|| (sums.api.read_micros as f64 / micros).min(1.0))
}

/// The partitions in which the client has not moved, and a transaction begins where it stands. One
/// that reads uncommitted records too would have read on.
fn held(whole: &Whole, sums: &ClientSums) -> Vec<HeldPartition> {
    let open = whole.open_transactions.iter().filter_map(|open| {
        let (first, last) = sums.positions.get(&(open.topic.clone(), open.partition))?;
        let is_held = first.offset == open.first_offset && last.offset == first.offset;
        let held = HeldPartition {
            topic: open.topic.to_string(),
            partition: open.partition,
            offset: last.offset,
            lag: (last.end - last.offset) as f64,
            seconds: last.at_micros.saturating_sub(first.at_micros) as f64 / 1e6,
            transactional_id: open.transactional_id.as_deref().map(str::to_owned),
            producer_id: open.producer_id,
            idle_seconds: (whole.at_ms - open.written_ms).max(0) as f64 / 1e3,
        };
        is_held.then_some(held)
    });
    open.collect()
}

/// Returns the lag and its change per partition, taken from the client's own fetches.
fn partitions(sums: &ClientSums) -> Vec<ConsumedPartition> {
    let told = sums.positions.iter().map(|((topic, index), (first, last))| {
        let seconds = last.at_micros.saturating_sub(first.at_micros) as f64 / 1e6;
        let per_second = |count: i64| (seconds >= 1.0).then(|| count as f64 / seconds);
        let lag = last.end - last.offset;
        ConsumedPartition {
            topic: topic.to_string(),
            partition: *index,
            lag: Some(lag as f64),
            lag_slope: per_second(lag - (first.end - first.offset)),
            consumed_per_second: per_second(last.offset - first.offset),
            produced_per_second: per_second(last.end - first.end),
            lag_ms: None,
            is_own_gauge: false,
        }
    });
    told.collect()
}

fn errors(api: &RequestCounts) -> BTreeMap<String, f64> {
    let counted = api.errors.iter().filter(|(_, count)| **count > 0);
    counted
        .map(|(name, count)| (name.clone(), *count as f64))
        .collect()
}

pub(super) fn seen<T>(value: T) -> Option<Setting<T>> {
    Some(Setting {
        value,
        origin: Origin::Seen,
    })
}

fn settings(sums: &ClientSums) -> Settings {
    let api = &sums.api;
    let of_fetch = |of: fn(&FetchLimits) -> Option<i32>| {
        let limit = api.fetch_limits.as_ref().and_then(of).filter(|limit| *limit >= 0);
        limit.and_then(|limit| seen(f64::from(limit)))
    };
    let only = |codecs: &BTreeSet<Codec>| match codecs.len() {
        1 => codecs.first().copied().and_then(seen),
        _ => None,
    };
    // In the order of `RequestCounts::acks`.
    let acks = [-1, 0, 1].into_iter().zip(api.acks);
    let acks = acks
        .filter(|(_, requests)| *requests > 0)
        .max_by_key(|(_, requests)| *requests);
    Settings {
        acks: acks.and_then(|(acks, _)| seen(acks)),
        compression: only(&api.codecs),
        topic_compression: only(&api.recompressed),
        replication_factor: seen(1.0),
        fetch_max_wait_ms: of_fetch(|limits| Some(limits.max_wait_ms)),
        fetch_min_bytes: of_fetch(|limits| Some(limits.min_bytes)),
        fetch_max_bytes: of_fetch(|limits| Some(limits.max_bytes)),
        max_partition_fetch_bytes: of_fetch(|limits| limits.partition_bytes_max),
        ..Settings::default()
    }
}

#[cfg(test)]
mod tests;
