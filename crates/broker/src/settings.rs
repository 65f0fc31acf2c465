//! The operator's settings: the core's configuration, and the part of it that the shell needs.

use std::sync::Arc;
use std::time::Duration;

use ottla_core::config::{ConfigError, NodeConfig};
use ottla_core::random::Seed;

use crate::machine_memory::MachineMemory;
use crate::net::loop_context::{AuthenticationSettings, NetSettings};
use crate::net::memory_budget::MemoryBudget;
use crate::properties::Properties;
use crate::tls::config::TlsSettings;
use crate::tls::settings::SslSettings;

/// Above this, threads that only move bytes compete with each other.
const LOOPS_MAX: usize = 16;

/// An event loop has buffers of its own, and at least 4 MiB of the request memory.
const MEMORY_BYTES_PER_LOOP_MIN: u64 = 32 << 20;

/// The fraction of the memory that the newest records of all logs may occupy.
const LOG_MEMORY_DIVISOR: u64 = 4;

/// The fraction of the memory that data read for lagging consumers may occupy.
const COLD_READ_CACHE_DIVISOR: u64 = 4;

/// Everything a broker is started with.
#[derive(Debug)]
pub struct Settings {
    pub node: NodeConfig,
    pub net: Arc<NetSettings>,
    pub loop_count: usize,
    /// Threads that open and close logs.
    pub recovery_threads: usize,
    /// Of the listeners with TLS.
    pub tls: Vec<TlsSettings>,
    /// `ottla.authentication.timeout.ms`: how long a client may take from its connection on.
    pub authentication_timeout: Duration,
    /// `None`: the operating system's default.
    pub backlog: Option<i32>,
    /// `queued.max.request.bytes`: the memory for requests of all connections together.
    pub request_memory_bytes_max: usize,
    /// The memory from which the shares were computed.
    pub memory: MachineMemory,
}

impl Settings {
    pub fn read(properties: &Properties, seed: Seed) -> Result<Settings, ConfigError> {
        Settings::read_for(MachineMemory::look(), properties, seed)
    }

    /// Reads the settings for a machine with `memory`.
    fn read_for(memory: MachineMemory, properties: &Properties, seed: Seed) -> Result<Settings, ConfigError> {
        let mut node = NodeConfig::from_properties(properties, seed)?;
        let slow_request_ms = number(properties, "ottla.slow.request.ms", 500)?;
        let loop_count = loop_count(properties, node.network.network_threads, memory.bytes);
        let request_memory = RequestMemory::share(&node, loop_count, &memory)?;
        node.warnings.extend(request_memory.warning);
        if !properties.contains_key("ottla.cold.read.cache.bytes") {
            let cache_bytes = &mut node.storage.cold_read_cache_bytes;
            *cache_bytes = (*cache_bytes).min(memory.bytes / COLD_READ_CACHE_DIVISOR);
        }
        if !properties.contains_key("ottla.log.memory.bytes") {
            let log_bytes = &mut node.storage.log_memory_bytes;
            *log_bytes = (*log_bytes).min(memory.bytes / LOG_MEMORY_DIVISOR);
        }
        let network = &node.network;
        // The kernel tunes socket buffers better than a constant does, so only an explicit value
        // counts, not Kafka's default.
        let explicit = |key: &str, bytes: i32| {
            let is_given = properties.contains_key(key);
            usize::try_from(bytes).ok().filter(|_| is_given)
        };
        let net = NetSettings {
            request_bytes_max: request_memory.request_bytes_max,
            idle_max: u64::try_from(network.connection_idle_ms_max)
                .ok()
                .map(Duration::from_millis),
            send_buffer_bytes: explicit("socket.send.buffer.bytes", network.send_buffer_bytes),
            receive_buffer_bytes: explicit("socket.receive.buffer.bytes", network.receive_buffer_bytes),
            slow_request: u64::try_from(slow_request_ms).ok().map(Duration::from_millis),
            authentication: AuthenticationSettings {
                failed_delay: milliseconds(network.failed_authentication_delay_ms),
                timeout: milliseconds(network.authentication_timeout_ms),
            },
        };
        let backlog = properties
            .contains_key("socket.listen.backlog.size")
            .then_some(network.listen_backlog);
        let timeout_ms = number(properties, "ottla.authentication.timeout.ms", 10_000)?;
        Ok(Settings {
            tls: tls_settings(properties, &node)?,
            authentication_timeout: Duration::from_millis(u64::try_from(timeout_ms).unwrap_or(0).max(1)),
            request_memory_bytes_max: request_memory.limit_bytes,
            net: Arc::new(net),
            loop_count,
            recovery_threads: recovery_threads(properties)?,
            backlog,
            memory,
            node,
        })
    }
}

impl Settings {
    /// Returns the number of event loops with `num.network.threads` as set at run time, before this
    /// start: as many as the memory for requests allows.
    pub fn loops_with(&self, set_at_run_time: Option<i64>) -> usize {
        let Some(wanted) = set_at_run_time.and_then(|count| usize::try_from(count).ok()) else {
            return self.loop_count;
        };
        let request_bytes_max = usize::try_from(self.net.request_bytes_max).unwrap_or(0);
        let fits = |count: &usize| {
            MemoryBudget::limit_bytes_min(*count, request_bytes_max) <= self.request_memory_bytes_max
        };
        (1..=wanted.min(LOOPS_MAX)).rev().find(fits).unwrap_or(1)
    }
}

fn tls_settings(properties: &Properties, node: &NodeConfig) -> Result<Vec<TlsSettings>, ConfigError> {
    let with_tls = node
        .listeners
        .iter()
        .filter(|listener| listener.security_protocol.has_tls());
    with_tls
        .map(|listener| {
            let has_sasl = listener.security_protocol.has_sasl();
            TlsSettings::read(SslSettings::of_listener(properties, &listener.name), has_sasl)
        })
        .collect()
}

/// `num.network.threads` if given, otherwise one loop per core, as far as memory allows for their
/// buffers.
fn loop_count(properties: &Properties, network_threads: i32, memory_bytes: u64) -> usize {
    if properties.contains_key("num.network.threads") {
        return network_threads.clamp(1, LOOPS_MAX as i32) as usize;
    }
    let fitting = usize::try_from(memory_bytes / MEMORY_BYTES_PER_LOOP_MIN).unwrap_or(LOOPS_MAX);
    processors().min(LOOPS_MAX).min(fitting.max(1))
}

fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, |cores| cores.get())
}

/// `num.recovery.threads.per.data.dir` if given, otherwise one thread per processor.
fn recovery_threads(properties: &Properties) -> Result<usize, ConfigError> {
    const KEY: &str = "num.recovery.threads.per.data.dir";
    if properties.contains_key(KEY) {
        let threads = number(properties, KEY, 1)?;
        return Ok(usize::try_from(threads).unwrap_or(1).clamp(1, LOOPS_MAX));
    }
    Ok(processors().min(LOOPS_MAX))
}

/// The memory limit for the requests and answers of all connections together, and the largest
/// single request.
#[derive(Debug)]
struct RequestMemory {
    limit_bytes: usize,
    request_bytes_max: i32,
    /// Set when the machine has too little memory for a request of the configured maximum.
    warning: Option<String>,
}

impl RequestMemory {
    /// Without `queued.max.request.bytes`: an eighth of the memory, but enough for two of the
    /// largest requests. Where that would exceed a quarter of the memory, the largest request is
    /// made smaller.
    fn share(
        node: &NodeConfig,
        loop_count: usize,
        memory: &MachineMemory,
    ) -> Result<RequestMemory, ConfigError> {
        let network = &node.network;
        let request_bytes_max = usize::try_from(network.request_bytes_max).unwrap_or(0);
        let configured = usize::try_from(network.queued_request_bytes_max).unwrap_or(0);
        if configured > 0 {
            check_request_memory(configured, loop_count, request_bytes_max)?;
            return Ok(RequestMemory {
                limit_bytes: configured,
                request_bytes_max: network.request_bytes_max,
                warning: None,
            });
        }
        let part = |divisor: u64| usize::try_from(memory.bytes / divisor).unwrap_or(usize::MAX);
        let wanted = part(8).max((2 * request_bytes_max).min(part(4)));
        let limit_bytes = wanted.max(MemoryBudget::limit_bytes_min(loop_count, 0));
        let fitting = (limit_bytes / 2).min(request_bytes_max);
        let limited_by =
            (memory.limited_by.as_ref()).map_or_else(String::new, |file| format!(" ({})", file.display()));
        let warning = (fitting < request_bytes_max).then(|| {
            format!(
                "socket.request.max.bytes is {request_bytes_max}, but with {} bytes of memory{limited_by} no request of more \
                 than {fitting} bytes is taken; queued.max.request.bytes sets how much memory requests may have",
                memory.bytes
            )
        });
        Ok(RequestMemory {
            limit_bytes,
            request_bytes_max: i32::try_from(fitting).unwrap_or(i32::MAX),
            warning,
        })
    }
}

fn check_request_memory(
    configured: usize,
    loop_count: usize,
    request_bytes_max: usize,
) -> Result<(), ConfigError> {
    let bytes_min = MemoryBudget::limit_bytes_min(loop_count, request_bytes_max);
    if configured >= bytes_min {
        return Ok(());
    }
    let problem = format!(
        "is less than {bytes_min}: the largest request (socket.request.max.bytes, {request_bytes_max}) and a \
         megabyte for each of {loop_count} event loops, and no less than four for each"
    );
    Err(error(
        "queued.max.request.bytes",
        &configured.to_string(),
        &problem,
    ))
}

/// - Shape: the table limits `ms` to 0 and more.
fn milliseconds(ms: i32) -> Duration {
    Duration::from_millis(u64::try_from(ms).unwrap_or(0))
}

fn number(properties: &Properties, key: &str, default: i64) -> Result<i64, ConfigError> {
    let Some(value) = properties.get(key) else {
        return Ok(default);
    };
    value
        .trim()
        .parse()
        .map_err(|_| error(key, value, "is not a number"))
}

fn error(key: &str, value: &str, problem: &str) -> ConfigError {
    ConfigError {
        key: key.to_owned(),
        value: value.to_owned(),
        problem: problem.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(lines: &[(&str, &str)]) -> Result<Settings, ConfigError> {
        let properties = lines
            .iter()
            .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
            .collect();
        let memory = MachineMemory {
            bytes: 24 << 30,
            limited_by: None,
        };
        Settings::read_for(memory, &properties, [1, 2, 3, 4])
    }

    #[test]
    fn an_empty_file_is_enough() {
        let settings = read(&[]).unwrap();
        assert_eq!(settings.node.warnings, Vec::<String>::new());
        assert_eq!(settings.net.request_bytes_max, 104_857_600);
        assert_eq!(settings.net.idle_max, Some(Duration::from_secs(600)));
    }

    #[test]
    fn misspelt_keys_are_reported_with_the_nearest_one() {
        let settings = read(&[("log.retention.huors", "1")]).unwrap();
        assert_eq!(
            settings.node.warnings,
            ["log.retention.huors is not a known key, did you mean log.retention.hours?"]
        );
    }

    #[test]
    fn keys_without_effect_are_reported() {
        let settings = read(&[("num.io.threads", "8")]).unwrap();
        assert_eq!(settings.node.warnings.len(), 1);
        assert!(
            settings.node.warnings[0].starts_with("num.io.threads has no effect: "),
            "{}",
            settings.node.warnings[0]
        );
    }

    #[test]
    fn a_negative_idle_time_means_no_limit() {
        assert_eq!(
            read(&[("connections.max.idle.ms", "-1")]).unwrap().net.idle_max,
            None
        );
        assert_eq!(
            read(&[("ottla.slow.request.ms", "-1")]).unwrap().net.slow_request,
            None
        );
    }

    #[test]
    fn the_memory_of_requests_has_a_default_and_holds_the_largest_one() {
        const KEY: &str = "queued.max.request.bytes";
        for none in [&[][..], &[(KEY, "-1")], &[(KEY, "0")]] {
            assert!(read(none).unwrap().request_memory_bytes_max >= 2 * 104_857_600);
        }
        let settings = read(&[(KEY, "200000000"), ("num.network.threads", "2")]).unwrap();
        assert_eq!(settings.request_memory_bytes_max, 200_000_000);
        let error = read(&[(KEY, "104857600"), ("num.network.threads", "2")]).unwrap_err();
        let words = error.to_string();
        assert!(
            words.contains(KEY)
                && words.contains("is less than 106954752")
                && words.contains("socket.request.max.bytes"),
            "{words}"
        );
    }

    #[test]
    fn shares_are_taken_of_the_control_groups_limit() {
        let within = |mib: u64, more: &[(&str, &str)]| {
            let memory = MachineMemory {
                bytes: mib << 20,
                limited_by: Some("/sys/fs/cgroup/memory.max".into()),
            };
            let pairs = [&[("num.network.threads", "2")], more].concat();
            let properties = pairs
                .iter()
                .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
            Settings::read_for(memory, &properties.collect(), [1, 2, 3, 4]).unwrap()
        };
        let mib = |settings: &Settings| {
            let net = &settings.net;
            (
                settings.request_memory_bytes_max >> 20,
                net.request_bytes_max >> 20,
            )
        };
        assert_eq!(mib(&within(24 << 10, &[])), (3 << 10, 100));
        assert_eq!(mib(&within(1 << 10, &[])), (200, 100));
        assert!(within(1 << 10, &[]).node.warnings.is_empty());
        let small = within(256, &[]);
        assert_eq!(mib(&small), (64, 32));
        assert_eq!(small.node.storage.cold_read_cache_bytes, 64 << 20);
        let warning = &small.node.warnings[0];
        assert!(
            warning.contains("socket.request.max.bytes is 104857600")
                && warning.contains("268435456 bytes of memory (/sys/fs/cgroup/memory.max)")
                && warning.contains("33554432"),
            "{warning}"
        );
        assert_eq!(
            mib(&within(256, &[("socket.request.max.bytes", "1048576")])),
            (32, 1)
        );
        // An explicit value is used as it is.
        let said = within(
            256,
            &[
                ("queued.max.request.bytes", "150000000"),
                ("ottla.cold.read.cache.bytes", "134217728"),
            ],
        );
        assert_eq!(mib(&said), (143, 100));
        assert_eq!(said.node.storage.cold_read_cache_bytes, 128 << 20);
        // However little memory there is, loops can work.
        assert_eq!(mib(&within(1, &[])), (8, 4));
    }

    #[test]
    fn loops_set_at_run_time_are_bounded_by_the_memory_for_requests() {
        let settings = read(&[
            ("num.network.threads", "2"),
            ("queued.max.request.bytes", "115343360"),
        ]);
        let settings = settings.unwrap();
        assert_eq!(settings.loops_with(None), 2);
        assert_eq!(
            (settings.loops_with(Some(1)), settings.loops_with(Some(3))),
            (1, 3)
        );
        let most = settings.loops_with(Some(1_000_000));
        assert!((3..LOOPS_MAX).contains(&most), "{most}");
        assert_eq!(settings.loops_with(Some(0)), 1);
    }

    #[test]
    fn a_loop_needs_memory() {
        let count = |mib: u64| loop_count(&Properties::new(), 3, mib << 20);
        assert_eq!((count(1), count(32)), (1, 1));
        assert!(count(64) <= 2 && count(1 << 20) >= count(64));
        let given = Properties::from([("num.network.threads".to_owned(), "7".to_owned())]);
        assert_eq!(loop_count(&given, 7, 1 << 20), 7);
    }
}
