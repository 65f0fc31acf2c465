//! Parses `bootstrap.servers` from `host:port` to addresses.

use super::settings::config_error;
use crate::error::Error;
use crate::network::io::Address;

const KEY: &str = "bootstrap.servers";

/// - Shape: `host:port`, `[::1]:port`, or either after `NAME://`, as Kafka accepts them. Names are
///   not resolved here.
/// - Errors: Kafka's texts.
pub(super) fn parse(urls: &[String]) -> Result<Vec<Address>, Error> {
    urls.iter().map(|url| parse_one(url)).collect()
}

fn parse_one(url: &str) -> Result<Address, Error> {
    let is_name = |text: &str, more: &str| {
        text.chars()
            .all(|c| c.is_ascii_alphanumeric() || "-%._".contains(c) || more.contains(c))
    };
    let rest = match url.split_once("://") {
        Some((scheme, rest)) if is_name(scheme, "") => rest,
        _ => url,
    };
    let parts = rest.rsplit_once(':').map(|(host, port)| {
        let host = host.strip_prefix('[').unwrap_or(host);
        (host.strip_suffix(']').unwrap_or(host), port)
    });
    let Some((host, port)) = parts.filter(|(host, port)| {
        is_name(host, ":") && !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit())
    }) else {
        return Err(config_error(KEY, format!("Invalid url in {KEY}: {url}")));
    };
    match port.parse() {
        Ok(port) => Ok(Address {
            host: host.into(),
            port,
        }),
        Err(_) => Err(config_error(KEY, format!("Invalid port in {KEY}: {url}"))),
    }
}
