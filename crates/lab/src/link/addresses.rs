//! Broker addresses in answers: which answers contain them, and how they are replaced.

use std::fmt;

use ottla_wire::api_key::ApiKey;
use ottla_wire::frame::{decode_response_header, encode_response_header};
use ottla_wire::messages::describe_cluster::DescribeClusterResponse;
use ottla_wire::messages::fetch::FetchResponse;
use ottla_wire::messages::find_coordinator::FindCoordinatorResponse;
use ottla_wire::messages::metadata::MetadataResponse;
use ottla_wire::messages::produce::ProduceResponse;
use ottla_wire::primitives::{DecodeError, Reader};

/// Every listener of a relay has this address.
pub const RELAY_HOST: &str = "127.0.0.1";

/// Returns the relay's port for a broker at this host and port; an error if it cannot listen on
/// another port.
pub type PortOf<'a> = dyn FnMut(&str, u16) -> Result<u16, String> + 'a;

/// Why an answer cannot be rewritten.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unreadable(String);

impl fmt::Display for Unreadable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl From<DecodeError> for Unreadable {
    fn from(error: DecodeError) -> Unreadable {
        Unreadable(error.to_string())
    }
}

/// Whether the answer to such a request can contain a broker's address.
///
/// - Source: KIP-951 for the answers of produce (from 10) and fetch (from 16).
pub fn may_contain(api_key: ApiKey, version: i16) -> bool {
    match api_key {
        ApiKey::Metadata | ApiKey::FindCoordinator | ApiKey::DescribeCluster => true,
        ApiKey::Produce => version >= 10,
        ApiKey::Fetch => version >= 16,
        _ => false,
    }
}

/// Whether an answer contains addresses only in addition to other data, and is small if it does: a
/// partition has moved.
pub fn is_small(api_key: ApiKey) -> bool {
    matches!(api_key, ApiKey::Produce | ApiKey::Fetch)
}

/// Returns the answer with the relay's addresses; `None` if it contains none.
///
/// - Shape: header and body, without the length.
/// - Errors: the answer is of a version or format that this program does not know.
pub fn rewrite(
    api_key: ApiKey,
    version: i16,
    answer: &[u8],
    port_of: &mut PortOf<'_>,
) -> Result<Option<Vec<u8>>, Unreadable> {
    let mut reader = Reader::new(answer);
    let correlation_id = decode_response_header(&mut reader, api_key, version)?;
    let mut out = Vec::with_capacity(answer.len() + 64);
    encode_response_header(&mut out, api_key, version, correlation_id);
    match api_key {
        ApiKey::Metadata => {
            let mut body = MetadataResponse::decode(&mut reader, version)?;
            for broker in &mut body.brokers {
                replace(&mut broker.host, &mut broker.port, port_of)?;
            }
            body.encode(&mut out, version);
        }
        ApiKey::FindCoordinator => {
            let mut body = FindCoordinatorResponse::decode(&mut reader, version)?;
            replace(&mut body.host, &mut body.port, port_of)?;
            for coordinator in &mut body.coordinators {
                replace(&mut coordinator.host, &mut coordinator.port, port_of)?;
            }
            body.encode(&mut out, version);
        }
        ApiKey::DescribeCluster => {
            let mut body = DescribeClusterResponse::decode(&mut reader, version)?;
            for broker in &mut body.brokers {
                replace(&mut broker.host, &mut broker.port, port_of)?;
            }
            body.encode(&mut out, version);
        }
        ApiKey::Produce => {
            let mut body = ProduceResponse::decode(&mut reader, version)?;
            if body.node_endpoints.is_empty() {
                return Ok(None);
            }
            for node in &mut body.node_endpoints {
                replace(&mut node.host, &mut node.port, port_of)?;
            }
            body.encode(&mut out, version);
        }
        ApiKey::Fetch => {
            let mut body = FetchResponse::decode(&mut reader, version)?;
            if body.node_endpoints.is_empty() {
                return Ok(None);
            }
            for node in &mut body.node_endpoints {
                replace(&mut node.host, &mut node.port, port_of)?;
            }
            body.encode(&mut out, version);
        }
        _ => return Ok(None),
    }
    Ok(Some(out))
}

/// An empty host or an invalid port means that there is no such broker: those are left unchanged.
fn replace(host: &mut &str, port: &mut i32, port_of: &mut PortOf<'_>) -> Result<(), Unreadable> {
    if let Ok(broker_port) = u16::try_from(*port)
        && broker_port != 0
        && !host.is_empty()
    {
        *port = port_of(host, broker_port).map_err(Unreadable)?.into();
        *host = RELAY_HOST;
    }
    Ok(())
}
