//! Finished requests, as one event loop counts them.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};

use ottla_core::seen::ErrorsSeen;
use ottla_core::time::Moment;
use ottla_wire::api_key::ApiKey;

use super::activity::Activities;
use super::histogram::Histogram;
use super::stage::{STAGE_COUNT, Stage, StageTimes};
use crate::tls::spoken::Spoken;

/// Client ids come from the network: at most this many are counted separately, the rest together.
pub const CLIENTS_MAX: usize = 128;
pub const OTHER_CLIENTS: &str = "other";

/// Versions of an API that are counted separately: Apache Kafka's newest is 18. Clients may ask
/// with any number; the others are counted together.
pub const VERSIONS_MAX: usize = 32;

const WINDOW_COUNT: usize = 6;
const WINDOW_MICROS: u64 = 10_000_000;
const SLOWEST_PER_WINDOW: usize = 16;

/// A client id's number in one [`LoopRecords`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientIndex(u32);

/// One finished request.
#[derive(Clone, Debug)]
pub struct Finished {
    pub api_key: ApiKey,
    pub api_version: i16,
    pub correlation_id: i32,
    pub client: ClientIndex,
    pub connection_id: u64,
    pub request_bytes: u32,
    pub reply_bytes: u64,
    pub times: StageTimes,
    /// When the socket had taken the last byte of the reply.
    pub finished: Moment,
}

#[derive(Clone, Debug)]
pub struct ApiRecords {
    pub count: u64,
    pub request_bytes: u64,
    pub reply_bytes: u64,
    /// By version; the last one counts all beyond [`VERSIONS_MAX`].
    pub versions: [u64; VERSIONS_MAX + 1],
    /// Only values above zero; `count` minus their number is the number of zeros.
    pub stages: [Histogram; STAGE_COUNT],
    pub total: Histogram,
    /// The total without the waits that clients ask for.
    pub own: Histogram,
}

impl Default for ApiRecords {
    fn default() -> ApiRecords {
        ApiRecords {
            count: 0,
            request_bytes: 0,
            reply_bytes: 0,
            versions: [0; VERSIONS_MAX + 1],
            stages: Default::default(),
            total: Histogram::default(),
            own: Histogram::default(),
        }
    }
}

#[derive(Clone, Copy, Debug, Default)]
pub struct ClientApiRecords {
    pub count: u64,
    pub stage_micros: [u64; STAGE_COUNT],
    pub total_micros: u64,
    pub max_micros: u64,
}

#[derive(Clone, Debug, Default)]
pub struct ClientRecords {
    pub apis: BTreeMap<ApiKey, ClientApiRecords>,
    pub total: Histogram,
}

/// One of the slowest requests of its window.
#[derive(Clone, Debug)]
pub struct SlowRequest {
    pub client_id: Arc<str>,
    pub principal: Arc<str>,
    /// `None`: it came without TLS.
    pub spoken: Option<Spoken>,
    pub request: Finished,
}

/// Whose request it was, and how it came.
#[derive(Clone, Copy, Debug)]
pub struct Origin<'a> {
    pub principal: &'a Arc<str>,
    /// `None`: without TLS.
    pub spoken: Option<Spoken>,
}

#[derive(Clone, Debug, Default)]
struct Window {
    number: u64,
    slowest: Vec<SlowRequest>,
    /// What a request must exceed to enter a full window.
    entry_micros: u64,
}

/// What one event loop has counted.
#[derive(Debug)]
pub struct LoopRecords {
    apis: BTreeMap<ApiKey, Box<ApiRecords>>,
    client_names: Vec<Arc<str>>,
    client_indexes: HashMap<Arc<str>, ClientIndex>,
    clients: Vec<ClientRecords>,
    windows: [Window; WINDOW_COUNT],
    /// Total time the loop was not waiting.
    pub busy_micros: u64,
    /// Connections that ended, by reason.
    closed: BTreeMap<&'static str, u64>,
    /// Errors in answers, by API and error code.
    errors: BTreeMap<(ApiKey, i16), u64>,
    /// What the clients of its connections do.
    pub activities: Activities,
}

impl Default for LoopRecords {
    fn default() -> Self {
        LoopRecords {
            apis: BTreeMap::new(),
            client_names: vec![Arc::from(OTHER_CLIENTS)],
            client_indexes: HashMap::new(),
            clients: vec![ClientRecords::default()],
            windows: Default::default(),
            busy_micros: 0,
            closed: BTreeMap::new(),
            errors: BTreeMap::new(),
            activities: Activities::default(),
        }
    }
}

/// Truncates a client id to what is kept: a name becomes a label and a log field, and comes from
/// the network.
pub fn bounded_name(client_id: &str) -> &str {
    let end = client_id.char_indices().map(|(start, _)| start).nth(128);
    &client_id[..end.unwrap_or(client_id.len())]
}

impl LoopRecords {
    pub fn client(&mut self, client_id: &str) -> ClientIndex {
        if let Some(index) = self.client_indexes.get(client_id) {
            return *index;
        }
        if self.client_names.len() > CLIENTS_MAX {
            return ClientIndex(0);
        }
        let name: Arc<str> = Arc::from(bounded_name(client_id));
        let index = ClientIndex(self.client_names.len() as u32);
        self.client_names.push(name.clone());
        self.clients.push(ClientRecords::default());
        self.client_indexes.insert(name, index);
        index
    }

    /// Counts a connection that ended, by reason.
    pub fn closed(&mut self, reason: &'static str) {
        *self.closed.entry(reason).or_default() += 1;
    }

    /// Counts errors of an answer.
    pub fn failed(&mut self, api_key: ApiKey, errors: &ErrorsSeen) {
        for (code, count) in errors.iter() {
            *self.errors.entry((api_key, code)).or_default() += u64::from(count);
        }
    }

    pub fn client_name(&self, client: ClientIndex) -> &Arc<str> {
        &self.client_names[client.0 as usize]
    }

    pub fn record(&mut self, request: &Finished, origin: Origin<'_>) {
        let total = request.times.total();
        let total_capped = u32::try_from(total).unwrap_or(u32::MAX);
        let api = self.apis.entry(request.api_key).or_default();
        api.count += 1;
        api.request_bytes += u64::from(request.request_bytes);
        api.reply_bytes += request.reply_bytes;
        let version = usize::try_from(request.api_version).unwrap_or(VERSIONS_MAX);
        api.versions[version.min(VERSIONS_MAX)] += 1;
        api.total.record(total_capped);
        api.own
            .record(u32::try_from(request.times.own_time()).unwrap_or(u32::MAX));
        let client = &mut self.clients[request.client.0 as usize];
        client.total.record(total_capped);
        let client_api = client.apis.entry(request.api_key).or_default();
        client_api.count += 1;
        client_api.total_micros += total;
        client_api.max_micros = client_api.max_micros.max(total);
        for stage in Stage::ALL {
            let micros = request.times.get(stage);
            if micros > 0 {
                api.stages[stage as usize].record(micros);
                client_api.stage_micros[stage as usize] += u64::from(micros);
            }
        }
        self.remember_if_slow(request, origin);
    }

    fn remember_if_slow(&mut self, request: &Finished, origin: Origin<'_>) {
        let number = request.finished.micros() / WINDOW_MICROS;
        let window = &mut self.windows[number as usize % WINDOW_COUNT];
        if window.number != number {
            *window = Window {
                number,
                ..Window::default()
            };
        }
        let own_time = request.times.own_time();
        if window.slowest.len() == SLOWEST_PER_WINDOW {
            if own_time <= window.entry_micros {
                return;
            }
            window.slowest.pop();
        }
        let client_id = self.client_names[request.client.0 as usize].clone();
        let at = window
            .slowest
            .partition_point(|slow| slow.request.times.own_time() >= own_time);
        window.slowest.insert(
            at,
            SlowRequest {
                client_id,
                principal: origin.principal.clone(),
                spoken: origin.spoken,
                request: request.clone(),
            },
        );
        window.entry_micros = window
            .slowest
            .last()
            .map_or(0, |slow| slow.request.times.own_time());
    }
}

/// The sum over all event loops at one moment.
#[derive(Clone, Debug, Default)]
pub struct Totals {
    pub apis: BTreeMap<ApiKey, ApiRecords>,
    pub clients: BTreeMap<Arc<str>, ClientRecords>,
    /// Slowest first.
    pub slowest: Vec<SlowRequest>,
    /// Connections that ended, by reason.
    pub closed: BTreeMap<&'static str, u64>,
    /// Errors in answers, by API and error code; one for each partition that had it.
    pub errors: BTreeMap<(ApiKey, i16), u64>,
}

/// The records of all event loops.
#[derive(Clone, Debug, Default)]
pub struct Records(pub Vec<Arc<Mutex<LoopRecords>>>);

impl Records {
    /// Total time the loops were not waiting.
    pub fn busy_micros(&self) -> u64 {
        let of_loop = |records: &Arc<Mutex<LoopRecords>>| {
            records.lock().unwrap_or_else(PoisonError::into_inner).busy_micros
        };
        self.0.iter().map(of_loop).sum()
    }

    /// Merges the counts of all loops; `now` decides which slow requests belong to the last minute.
    pub fn totals(&self, now: Moment) -> Totals {
        let mut totals = Totals::default();
        for records in &self.0 {
            let records = records.lock().unwrap_or_else(PoisonError::into_inner);
            totals.add(&records);
        }
        for api in totals.apis.values_mut() {
            for stage in &mut api.stages {
                stage.record_zeros(api.count - stage.count());
            }
        }
        totals.slowest = self.slowest(now);
        totals
    }

    /// The slowest requests of the last minute, slowest first.
    pub fn slowest(&self, now: Moment) -> Vec<SlowRequest> {
        let newest = now.micros() / WINDOW_MICROS;
        let mut slowest = Vec::new();
        for records in &self.0 {
            let records = records.lock().unwrap_or_else(PoisonError::into_inner);
            let recent = records
                .windows
                .iter()
                .filter(|window| window.number + (WINDOW_COUNT as u64) > newest);
            slowest.extend(recent.flat_map(|window| window.slowest.iter().cloned()));
        }
        slowest.sort_by_key(|slow| std::cmp::Reverse(slow.request.times.own_time()));
        slowest
    }
}

impl Totals {
    fn add(&mut self, records: &LoopRecords) {
        for (api_key, from) in &records.apis {
            let into = self.apis.entry(*api_key).or_default();
            into.count += from.count;
            into.request_bytes += from.request_bytes;
            into.reply_bytes += from.reply_bytes;
            let versions = into.versions.iter_mut().zip(from.versions);
            versions.for_each(|(into, from)| *into += from);
            into.own.merge(&from.own);
            into.total.merge(&from.total);
            into.stages
                .iter_mut()
                .zip(&from.stages)
                .for_each(|(into, from)| into.merge(from));
        }
        for (name, from) in records.client_names.iter().zip(&records.clients) {
            if from.apis.is_empty() {
                continue;
            }
            let into = self.clients.entry(name.clone()).or_default();
            into.total.merge(&from.total);
            for (api_key, from) in &from.apis {
                let into = into.apis.entry(*api_key).or_default();
                into.count += from.count;
                into.total_micros += from.total_micros;
                into.max_micros = into.max_micros.max(from.max_micros);
                into.stage_micros
                    .iter_mut()
                    .zip(from.stage_micros)
                    .for_each(|(into, from)| *into += from);
            }
        }
        for (reason, count) in &records.closed {
            *self.closed.entry(reason).or_default() += count;
        }
        for (error, count) in &records.errors {
            *self.errors.entry(*error).or_default() += count;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn origin_of(principal: &Arc<str>) -> Origin<'_> {
        Origin {
            principal,
            spoken: None,
        }
    }

    fn finished(client: ClientIndex, micros: u64, at_s: u64) -> Finished {
        let mut times = StageTimes::default();
        times.add(Stage::Synced, micros);
        Finished {
            api_key: ApiKey::Produce,
            api_version: 9,
            correlation_id: 0,
            client,
            connection_id: 0,
            request_bytes: 100,
            reply_bytes: 50,
            times,
            finished: Moment::from_micros(at_s * 1_000_000),
        }
    }

    #[test]
    fn versions_that_no_api_has_are_counted_together() {
        let mut records = LoopRecords::default();
        for api_version in [9, 9, 0, 31, 32, i16::MAX, -1] {
            let request = Finished {
                api_version,
                ..finished(ClientIndex(0), 1, 0)
            };
            records.record(&request, origin_of(&"User:a".into()));
        }
        let one = Arc::new(Mutex::new(records));
        let totals = Records(vec![one.clone(), one]).totals(Moment::from_micros(0));
        let versions = &totals.apis[&ApiKey::Produce].versions;
        let counted: Vec<(usize, u64)> = (versions.iter().copied().enumerate())
            .filter(|(_, count)| *count > 0)
            .collect();
        assert_eq!(counted, [(0, 2), (9, 4), (31, 2), (VERSIONS_MAX, 6)]);
    }

    #[test]
    fn client_ids_beyond_the_limit_are_counted_together() {
        let mut records = LoopRecords::default();
        for number in 0..10_000 {
            let client = records.client(&format!("client-{number}"));
            records.record(&finished(client, 1, 0), origin_of(&"User:a".into()));
        }
        let totals = Records(vec![Arc::new(Mutex::new(records))]).totals(Moment::from_micros(0));
        assert_eq!(totals.clients.len(), CLIENTS_MAX + 1);
        assert_eq!(
            totals.clients[OTHER_CLIENTS].apis[&ApiKey::Produce].count,
            10_000 - CLIENTS_MAX as u64
        );
    }

    #[test]
    fn a_long_client_id_is_cut_at_a_character() {
        let mut records = LoopRecords::default();
        let client = records.client(&"å".repeat(30_000));
        assert_eq!(records.client_name(client).chars().count(), 128);
    }

    #[test]
    fn the_slowest_of_the_last_minute_come_first_and_older_ones_are_gone() {
        let mut records = LoopRecords::default();
        let client = records.client("me");
        records.record(&finished(client, 999_999, 5), origin_of(&"User:a".into()));
        for micros in 0..100 {
            records.record(&finished(client, micros, 70), origin_of(&"User:a".into()));
        }
        records.record(&finished(client, 500, 75), origin_of(&"User:b".into()));
        let totals = Records(vec![Arc::new(Mutex::new(records))]).totals(Moment::from_micros(76_000_000));
        let own_times: Vec<u64> = totals
            .slowest
            .iter()
            .map(|slow| slow.request.times.own_time())
            .collect();
        assert_eq!(own_times[..3], [500, 99, 98]);
        let principals: Vec<&str> = totals.slowest.iter().map(|slow| &*slow.principal).collect();
        assert_eq!(principals[..3], ["User:b", "User:a", "User:a"]);
        assert_eq!(own_times.len(), SLOWEST_PER_WINDOW);
        assert_eq!(
            totals.apis[&ApiKey::Produce].stages[Stage::Synced as usize].count(),
            102
        );
    }
}
