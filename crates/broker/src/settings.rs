//! What the operator wrote: the core's configuration, and what of it the shell needs.

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::Duration;

use ottla_core::config::{ConfigError, NodeConfig};
use ottla_core::random::Seed;

use crate::net::event_loop::NetSettings;
use crate::net::listener::ConnectionLimits;
use crate::net::memory_budget::MemoryBudget;
use crate::properties::Properties;

/// Beyond this, threads that only move bytes would compete with each other.
const LOOPS_MAX: usize = 16;

/// Everything a broker is started with.
#[derive(Debug)]
pub struct Settings {
    pub node: NodeConfig,
    pub net: NetSettings,
    pub limits: ConnectionLimits,
    pub loop_count: usize,
    /// `None`: the operating system's default.
    pub backlog: Option<i32>,
    /// `queued.max.request.bytes`: memory of requests of all connections together.
    pub request_memory_bytes_max: usize,
}

impl Settings {
    pub fn read(properties: &Properties, seed: Seed) -> Result<Settings, ConfigError> {
        let node = NodeConfig::from_properties(properties, seed)?;
        let network = &node.network;
        let slow_request_ms = number(properties, "ottla.slow.request.ms", 500)?;
        // The kernel tunes buffers better than a constant does, so Kafka's default counts only when it is written down.
        let explicit = |key: &str, bytes: i32| {
            let is_given = properties.contains_key(key);
            usize::try_from(bytes).ok().filter(|_| is_given)
        };
        let net = NetSettings {
            request_bytes_max: network.request_bytes_max,
            idle_max: u64::try_from(network.connection_idle_ms_max)
                .ok()
                .map(Duration::from_millis),
            send_buffer_bytes: explicit("socket.send.buffer.bytes", network.send_buffer_bytes),
            receive_buffer_bytes: explicit("socket.receive.buffer.bytes", network.receive_buffer_bytes),
            slow_request: u64::try_from(slow_request_ms).ok().map(Duration::from_millis),
        };
        let limits = ConnectionLimits {
            connections_max: network.connections_max as usize,
            connections_max_per_ip: network.connections_per_ip_max as usize,
            overrides: ip_overrides(properties)?,
        };
        let loop_count = loop_count(properties, network.network_threads);
        let backlog = properties
            .contains_key("socket.listen.backlog.size")
            .then_some(network.listen_backlog);
        Ok(Settings {
            request_memory_bytes_max: request_memory_bytes_max(&node, loop_count)?,
            net,
            limits,
            loop_count,
            backlog,
            node,
        })
    }
}

/// `num.network.threads` when it is given, otherwise one loop per core.
fn loop_count(properties: &Properties, network_threads: i32) -> usize {
    if properties.contains_key("num.network.threads") {
        return network_threads.clamp(1, LOOPS_MAX as i32) as usize;
    }
    std::thread::available_parallelism()
        .map_or(1, |cores| cores.get())
        .min(LOOPS_MAX)
}

/// Without a number of the operator's an eighth of the machine's memory, but room for two of the largest requests.
fn request_memory_bytes_max(node: &NodeConfig, loop_count: usize) -> Result<usize, ConfigError> {
    let network = &node.network;
    let request_bytes_max = usize::try_from(network.request_bytes_max).unwrap_or(0);
    let bytes_min = MemoryBudget::limit_bytes_min(loop_count, request_bytes_max);
    let configured = usize::try_from(network.queued_request_bytes_max).unwrap_or(0);
    if configured == 0 {
        let eighth = usize::try_from(machine_memory_bytes() / 8).unwrap_or(usize::MAX);
        return Ok(eighth.max(2 * request_bytes_max).max(bytes_min));
    }
    if configured < bytes_min {
        let problem = format!(
            "is less than {bytes_min}: the largest request (socket.request.max.bytes, {request_bytes_max}) and a \
             megabyte for each of {loop_count} event loops, and no less than four for each"
        );
        return Err(error(
            "queued.max.request.bytes",
            &configured.to_string(),
            &problem,
        ));
    }
    Ok(configured)
}

fn machine_memory_bytes() -> u64 {
    let system = rustix::system::sysinfo();
    system.totalram.saturating_mul(u64::from(system.mem_unit))
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

/// `max.connections.per.ip.overrides`: `host:count`, separated by commas.
fn ip_overrides(properties: &Properties) -> Result<HashMap<IpAddr, usize>, ConfigError> {
    const KEY: &str = "max.connections.per.ip.overrides";
    let value = properties.get(KEY).map_or("", |value| value.as_str());
    let pairs = value.split(',').map(str::trim).filter(|pair| !pair.is_empty());
    pairs
        .map(|pair| {
            let parsed = pair.rsplit_once(':').and_then(|(address, count)| {
                let address = address.trim().trim_start_matches('[').trim_end_matches(']');
                Some((address.parse().ok()?, count.trim().parse().ok()?))
            });
            parsed.ok_or_else(|| error(KEY, value, "is not a list of address:count"))
        })
        .collect()
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
        Settings::read(&properties, [1, 2, 3, 4])
    }

    #[test]
    fn an_empty_file_is_enough() {
        let settings = read(&[]).unwrap();
        assert_eq!(settings.node.warnings, Vec::<String>::new());
        assert_eq!(settings.net.request_bytes_max, 104_857_600);
        assert_eq!(settings.net.idle_max, Some(Duration::from_secs(600)));
    }

    #[test]
    fn misspelt_keys_are_told_with_the_nearest_one() {
        let settings = read(&[("log.retention.huors", "1")]).unwrap();
        assert_eq!(
            settings.node.warnings,
            ["log.retention.huors is not a known key, did you mean log.retention.hours?"]
        );
    }

    #[test]
    fn keys_without_effect_are_told() {
        let settings = read(&[("num.io.threads", "8")]).unwrap();
        assert_eq!(settings.node.warnings.len(), 1);
        assert!(
            settings.node.warnings[0].starts_with("num.io.threads has no effect: "),
            "{}",
            settings.node.warnings[0]
        );
    }

    #[test]
    fn a_negative_idle_time_is_for_ever() {
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
    fn overrides_per_address() {
        let settings = read(&[("max.connections.per.ip.overrides", "127.0.0.1:5, [::1]:7")]).unwrap();
        assert_eq!(
            settings.limits.overrides[&"127.0.0.1".parse::<IpAddr>().unwrap()],
            5
        );
        assert_eq!(settings.limits.overrides[&"::1".parse::<IpAddr>().unwrap()], 7);
        assert!(read(&[("max.connections.per.ip.overrides", "nonsense")]).is_err());
    }
}
