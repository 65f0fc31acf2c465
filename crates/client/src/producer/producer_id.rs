//! Gets the producer id: InitProducerId (KIP-98), which any broker answers.

use bytes::Bytes;
use ottla_wire::api_key::ApiKey;
use ottla_wire::error_code::ErrorCode;
use ottla_wire::messages::init_producer_id::{InitProducerIdRequest, InitProducerIdResponse};
use ottla_wire::primitives::Reader;
use ottla_wire::records::batch::{NO_PRODUCER_EPOCH, NO_PRODUCER_ID};

use super::answers::{Source, malformed};
use super::sender::{ProducerMachine, SenderTicket};
use super::sequence::{Identity, ProducerId};
use crate::error::Error;
use crate::network::cluster::Request;
use crate::network::io::Action;
use crate::time::Moment;

impl ProducerMachine {
    pub(super) fn request_producer_id(&mut self, now: Moment, actions: &mut Vec<Action>) {
        let Identity::Wanted { attempts, not_before } = self.identity else {
            return;
        };
        // With transactions the coordinator gives it.
        if self.transactions.is_some() {
            return;
        }
        if not_before > now {
            return self.due_at(not_before);
        }
        let Some(node) = self.cluster.least_loaded(now) else {
            return;
        };
        let version = match self.cluster.version(node, ApiKey::InitProducerId, 0) {
            Ok(version) => version,
            Err(error) => return self.fail_for_good(error),
        };
        let message = InitProducerIdRequest {
            transactional_id: None,
            // Kafka's client sends this value when there are no transactions.
            transaction_timeout_ms: i32::MAX,
            producer_id: NO_PRODUCER_ID,
            producer_epoch: NO_PRODUCER_EPOCH,
        };
        let mut body = Vec::with_capacity(32);
        message.encode(&mut body, version);
        let mut parts = Vec::with_capacity(2);
        parts.push(body.into());
        let request = Request {
            api_key: ApiKey::InitProducerId,
            api_version: version,
            body: parts,
            timeout_ms: self.config.client.request_timeout_ms,
            expects_answer: true,
        };
        self.identity = Identity::Asked { attempts };
        self.cluster
            .send(now, node, request, SenderTicket::InitProducerId, actions);
    }

    pub(super) fn identified(&mut self, now: Moment, source: Source, result: Result<Bytes, Error>) {
        let attempts = match self.identity {
            Identity::Asked { attempts } => attempts + 1,
            _ => return,
        };
        let error = match result.and_then(|body| self.decode_identity(now, source, &body)) {
            Ok(producer) => {
                self.identity = Identity::Known(producer);
                return;
            }
            Err(error) => error,
        };
        let not_before = self.retry_at(now, attempts);
        self.identity = Identity::Wanted { attempts, not_before };
        self.due_at(not_before);
        match error {
            // The rights may be granted later, so the producer stays usable; the waiting records
            // fail.
            Error::Broker {
                code: ErrorCode::ClusterAuthorizationFailed | ErrorCode::TransactionalIdAuthorizationFailed,
                ..
            } => self.fail_all(&error),
            // A failed connection or authentication concerns one node; another may answer.
            Error::Disconnected { .. }
            | Error::Malformed { .. }
            | Error::Authentication { .. }
            | Error::Tls { .. } => {}
            error if error.is_retriable() => {}
            error => self.fail_for_good(error),
        }
    }

    fn decode_identity(&mut self, now: Moment, source: Source, body: &Bytes) -> Result<ProducerId, Error> {
        let malformed = |reason: String| malformed(source.node, format!("InitProducerId: {reason}"));
        let mut reader = Reader::new(body);
        let answer = InitProducerIdResponse::decode(&mut reader, source.version)
            .map_err(|error| malformed(error.to_string()))?;
        self.throttled(now, source.node, answer.throttle_time_ms);
        if let Some(error) = Error::from_code(answer.error_code, || "producer id".into()) {
            return Err(error);
        }
        if answer.producer_id < 0 || answer.producer_epoch < 0 {
            return Err(malformed(format!(
                "producer id {} and epoch {}",
                answer.producer_id, answer.producer_epoch
            )));
        }
        Ok(ProducerId {
            id: answer.producer_id,
            epoch: answer.producer_epoch,
        })
    }
}
