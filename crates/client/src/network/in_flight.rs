//! Requests waiting for their answers, in the order sent: a broker answers in that order.

use std::collections::VecDeque;

use bytes::{Buf, Bytes};
use ottla_wire::api_key::ApiKey;
use ottla_wire::frame::decode_response_header;
use ottla_wire::primitives::Reader;

use crate::time::Moment;

/// The receiver of the answer.
#[derive(Debug)]
pub enum Purpose<T> {
    /// The machine above, with its context.
    Caller(T),
    ApiVersions,
    SaslHandshake,
    SaslAuthenticate,
    Metadata,
}

/// One request that was handed to the driver.
#[derive(Debug)]
pub struct InFlight<T> {
    pub correlation_id: i32,
    pub api_key: ApiKey,
    pub api_version: i16,
    pub sent_at: Moment,
    pub deadline: Moment,
    pub purpose: Purpose<T>,
}

/// The requests in flight on one connection.
#[derive(Debug)]
pub struct InFlights<T> {
    queue: VecDeque<InFlight<T>>,
}

impl<T> Default for InFlights<T> {
    fn default() -> InFlights<T> {
        InFlights {
            queue: VecDeque::new(),
        }
    }
}

impl<T> InFlights<T> {
    pub fn len(&self) -> usize {
        self.queue.len()
    }

    pub fn push(&mut self, request: InFlight<T>) {
        self.queue.push_back(request);
    }

    /// The earliest deadline: requests on one connection may have different limits.
    pub fn deadline(&self) -> Option<Moment> {
        self.queue.iter().map(|request| request.deadline).min()
    }

    /// Whether a broker may hold back one of the answers on purpose: until there are records, or
    /// until the group's other members have joined.
    pub fn has_long_poll(&self) -> bool {
        let is_long = |key| matches!(key, ApiKey::Fetch | ApiKey::JoinGroup | ApiKey::SyncGroup);
        self.queue.iter().any(|request| is_long(request.api_key))
    }

    /// The first request whose answer is overdue.
    pub fn overdue(&self, now: Moment) -> Option<&InFlight<T>> {
        self.queue.iter().find(|request| request.deadline <= now)
    }

    /// Finds the request that `frame` answers; returns it with the body behind the response header.
    ///
    /// - Errors: what is wrong with the frame; the connection is unusable from then on.
    pub fn answer(&mut self, mut frame: Bytes) -> Result<(InFlight<T>, Bytes), String> {
        let Some(request) = self.queue.pop_front() else {
            return Err(format!("{} bytes that no request asked for", frame.len()));
        };
        let mut reader = Reader::new(&frame);
        let header = decode_response_header(&mut reader, request.api_key, request.api_version);
        let body_at = frame.len() - reader.remaining();
        let trouble = match header {
            Ok(found) if found == request.correlation_id => {
                frame.advance(body_at);
                return Ok((request, frame));
            }
            Ok(found) => format!(
                "correlation id {found} where {} was expected ({})",
                request.correlation_id, request.api_key
            ),
            Err(error) => format!(
                "the answer to {} of {} bytes has no header: {error}",
                request.api_key,
                frame.len()
            ),
        };
        self.queue.push_front(request);
        Err(trouble)
    }

    /// Removes all requests, oldest first.
    pub fn drain(&mut self) -> impl Iterator<Item = InFlight<T>> {
        self.queue.drain(..)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ottla_wire::frame::encode_response_header;

    fn request(correlation_id: i32, deadline: u64) -> InFlight<u8> {
        InFlight {
            correlation_id,
            api_key: ApiKey::Metadata,
            api_version: 9,
            sent_at: Moment::from_nanos(0),
            deadline: Moment::from_nanos(deadline),
            purpose: Purpose::Caller(7),
        }
    }

    fn answer(correlation_id: i32) -> Bytes {
        let mut frame = Vec::new();
        encode_response_header(&mut frame, ApiKey::Metadata, 9, correlation_id);
        frame.extend_from_slice(b"body");
        frame.into()
    }

    #[test]
    fn answers_are_matched_in_order_and_lose_their_header() {
        let mut in_flights = InFlights::default();
        in_flights.push(request(1, 50));
        in_flights.push(request(2, 40));
        assert_eq!(in_flights.deadline(), Some(Moment::from_nanos(40)));
        assert_eq!(
            in_flights
                .overdue(Moment::from_nanos(39))
                .map(|found| found.correlation_id),
            None
        );
        assert_eq!(
            in_flights
                .overdue(Moment::from_nanos(40))
                .map(|found| found.correlation_id),
            Some(2)
        );
        let (first, body) = in_flights.answer(answer(1)).unwrap();
        assert_eq!((first.correlation_id, &body[..]), (1, &b"body"[..]));
        assert_eq!(in_flights.len(), 1);
    }

    #[test]
    fn a_wrong_correlation_id_is_named_and_takes_no_request_away() {
        let mut in_flights = InFlights::default();
        in_flights.push(request(1, 50));
        let trouble = in_flights.answer(answer(2)).unwrap_err();
        assert_eq!(trouble, "correlation id 2 where 1 was expected (Metadata)");
        assert_eq!(in_flights.len(), 1);
    }

    #[test]
    fn short_and_unasked_frames_are_refused() {
        let mut in_flights = InFlights::<u8>::default();
        assert_eq!(
            in_flights.answer(answer(2)).unwrap_err(),
            "9 bytes that no request asked for"
        );
        in_flights.push(request(1, 50));
        for length in 0..5 {
            assert!(
                in_flights.answer(answer(1).slice(..length)).is_err(),
                "{length} bytes"
            );
        }
    }
}
