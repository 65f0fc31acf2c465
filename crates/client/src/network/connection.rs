//! One node's connection: its stage, its requests in flight, and when the next attempt is allowed.

use bytes::Bytes;
use ottla_wire::api_key::ApiKey;
use ottla_wire::frame::{LENGTH_BYTES, RequestHeader};

use crate::error::Error;
use crate::network::api_versions::ApiVersions;
use crate::network::authentication::Authentication;
use crate::network::in_flight::{InFlight, InFlights, Purpose};
use crate::network::io::{Action, Address, ConnectionId, Frame};
use crate::time::Moment;

use super::cluster::Request;

/// A connection's progress.
#[derive(Debug)]
pub enum ConnectionStage {
    /// Not connected; `not_before` is when the next attempt is allowed.
    Idle,
    /// The driver resolves, connects, does the TLS handshake.
    Connecting {
        deadline: Moment,
    },
    /// ApiVersions is in flight.
    Negotiating,
    /// SASL is in progress, for the first time or again; nothing else is sent meanwhile.
    Authenticating(Box<Authentication>),
    Ready,
}

/// A node and the connection to it.
#[derive(Debug)]
pub struct Connection<T> {
    pub address: Address,
    pub stage: ConnectionStage,
    pub id: Option<ConnectionId>,
    /// From the last negotiation; kept while the node is reconnected.
    pub versions: Option<Box<ApiVersions>>,
    pub in_flight: InFlights<T>,
    next_correlation_id: i32,
    /// Attempts that failed since the last one that became ready.
    pub failures: u32,
    pub not_before: Moment,
    pub last_attempt: Moment,
    pub last_used: Moment,
    /// Whether a request after negotiation and authentication was answered.
    pub has_answered: bool,
    /// When the session must be re-authenticated (KIP-368).
    pub renew_at: Moment,
    /// When re-authentication began, while it is in progress.
    pub renewing_since: Option<Moment>,
    /// The broker asked for a pause until then (KIP-219).
    pub throttled_until: Moment,
    /// Why the last attempt failed.
    pub trouble: Option<Error>,
    /// Not in the metadata, but added by `Cluster::add_node`.
    pub is_extra: bool,
    /// No longer in the metadata: closed as soon as nothing is in flight.
    pub is_retired: bool,
}

impl<T> Connection<T> {
    pub fn new(address: Address) -> Connection<T> {
        Connection {
            address,
            stage: ConnectionStage::Idle,
            id: None,
            versions: None,
            in_flight: InFlights::default(),
            next_correlation_id: 0,
            failures: 0,
            not_before: Moment::from_nanos(0),
            last_attempt: Moment::from_nanos(0),
            last_used: Moment::from_nanos(0),
            has_answered: false,
            renew_at: Moment::NEVER,
            renewing_since: None,
            throttled_until: Moment::from_nanos(0),
            trouble: None,
            is_extra: false,
            is_retired: false,
        }
    }

    pub fn is_ready(&self) -> bool {
        matches!(self.stage, ConnectionStage::Ready)
    }

    pub fn is_idle(&self) -> bool {
        matches!(self.stage, ConnectionStage::Idle)
    }

    /// Neither usable nor idle.
    pub fn is_becoming_ready(&self) -> bool {
        !self.is_ready() && !self.is_idle()
    }

    /// Whether the last attempt failed for a reason that another attempt is unlikely to fix.
    pub fn is_refused(&self) -> bool {
        matches!(
            self.trouble,
            Some(Error::Authentication { .. } | Error::Tls { .. } | Error::UnsupportedVersion { .. })
        )
    }

    /// Prepends length and header to the request and records it as in flight.
    ///
    /// - Shape: `purpose` is `None` where no answer is expected. The correlation id wraps from
    ///   2^31−1 to 0, as in Kafka's client.
    pub fn send(
        &mut self,
        now: Moment,
        client_id: &str,
        request: Request,
        purpose: Option<Purpose<T>>,
    ) -> Option<Action> {
        let connection = self.id?;
        let correlation_id = self.next_correlation_id;
        self.next_correlation_id = correlation_id.checked_add(1).unwrap_or(0);
        let body_bytes = request.body.iter().map(Bytes::len).sum();
        let header = RequestHeader {
            api_key: request.api_key,
            api_version: request.api_version,
            correlation_id,
            client_id: Some(client_id),
        };
        let mut parts = request.body;
        parts.insert(0, encode_head(&header, body_bytes));
        self.last_used = now;
        if let Some(purpose) = purpose {
            self.in_flight.push(InFlight {
                correlation_id,
                api_key: request.api_key,
                api_version: request.api_version,
                sent_at: now,
                deadline: now.after_ms(request.timeout_ms),
                purpose,
            });
        }
        Some(Action::Send {
            connection,
            frame: Frame { parts },
        })
    }

    /// When this connection needs a turn on its own account. `idle_ms_max`: how long it may stay
    /// unused.
    pub fn deadline(&self, idle_ms_max: u64) -> Option<Moment> {
        match self.stage {
            ConnectionStage::Idle => None,
            ConnectionStage::Connecting { deadline } => Some(deadline),
            ConnectionStage::Negotiating | ConnectionStage::Authenticating(_) | ConnectionStage::Ready => {
                match self.in_flight.deadline() {
                    Some(deadline) => Some(deadline),
                    None if self.is_retired => Some(Moment::from_nanos(0)),
                    None => Some(self.last_used.after_ms(idle_ms_max)),
                }
            }
        }
    }
}

/// Length and header in one allocation of exact size.
fn encode_head(header: &RequestHeader<'_>, body_bytes: usize) -> Bytes {
    let client_id_bytes = header.client_id.map_or(0, str::len);
    let is_flexible = header.api_key.is_flexible(header.api_version);
    // API key 2, version 2, correlation id 4, client id 2 and its text, no tagged fields 1.
    let header_bytes = 2 + 2 + 4 + 2 + client_id_bytes + usize::from(is_flexible);
    let mut head = Vec::with_capacity(LENGTH_BYTES + header_bytes);
    let length =
        u32::try_from(header_bytes + body_bytes).expect("a request is bounded by settings below 2^31");
    head.extend_from_slice(&length.to_be_bytes());
    header.encode(&mut head);
    debug_assert_eq!(head.len(), LENGTH_BYTES + header_bytes);
    Bytes::from(head)
}

/// A request that this module sends for itself: no caller waits for it.
pub fn own_request(api_key: ApiKey, api_version: i16, body: Vec<u8>, timeout_ms: u64) -> Request {
    let mut parts = Vec::with_capacity(2);
    parts.push(Bytes::from(body));
    Request {
        api_key,
        api_version,
        body: parts,
        timeout_ms,
        expects_answer: true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ottla_wire::primitives::Reader;

    fn check_head(api_version: i16) {
        let header = RequestHeader {
            api_key: ApiKey::Metadata,
            api_version,
            correlation_id: 77,
            client_id: Some("walker"),
        };
        let head = encode_head(&header, 100);
        let mut reader = Reader::new(&head);
        assert_eq!(reader.i32(), Ok((head.len() - LENGTH_BYTES + 100) as i32));
        assert_eq!(RequestHeader::decode(&mut reader), Ok(header));
        assert_eq!(reader.finish(), Ok(()));
    }

    #[test]
    fn the_head_announces_itself_and_the_body() {
        check_head(7);
        check_head(9);
    }

    #[test]
    fn correlation_ids_count_up_and_wrap_to_zero() {
        let mut connection = Connection::<u8>::new(Address {
            host: "h".into(),
            port: 1,
        });
        connection.id = Some(ConnectionId(1));
        connection.next_correlation_id = i32::MAX;
        for expected in [i32::MAX, 0, 1] {
            let request = own_request(ApiKey::Metadata, 9, vec![1], 10);
            let sent = connection.send(Moment::from_nanos(5), "c", request, Some(Purpose::Metadata));
            let Some(Action::Send { frame, .. }) = sent else {
                panic!("not sent");
            };
            assert_eq!(frame.parts[0][8..12], expected.to_be_bytes());
        }
        assert_eq!(connection.in_flight.len(), 3);
    }
}
