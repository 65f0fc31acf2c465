//! A group of connections that send the same small request again and again, without a client
//! library: floods, storms, bursts.
//!
//! The point is to do what a client library would prevent: no batching, no backoff, no shared
//! connection. One thread serves all of them, so that thousands of connections cost the machine
//! little compared with their cost on the broker.

mod crowd;
mod connection;
mod pace;
mod payload;

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use ottla_client::Error;

use self::crowd::Crowd;
use super::outcome::RequestOutcome;
use super::{Course, TopicLoad};

pub use self::payload::Api;

/// A group of identical connections.
#[derive(Clone, Debug)]
pub struct RequestLoad {
    /// Client ids are this name with a number.
    pub name: String,
    pub address: SocketAddr,
    /// The source address of connections, if not the system's default: each neighbour has its own
    /// address.
    pub source: Option<IpAddr>,
    /// What produce requests write to, partition by partition, and what metadata requests ask for.
    pub topics: Vec<TopicLoad>,
    pub api: Api,
    /// The size of the value of a produce request's one record.
    pub record_bytes: u32,
    pub connections: u32,
    /// The maximum number of unanswered requests on a connection.
    pub in_flight: u32,
    /// The number of different client ids, used in turn, connection by connection.
    pub client_ids: u32,
    /// Requests per second of the whole group; `None`: as fast as they are answered.
    pub rate: Option<f64>,
    /// All requests of an interval of this length are due at its start; zero: evenly.
    pub burst_every: Duration,
    /// Every request has its own connection.
    pub reconnects: bool,
}

/// Runs a group through a course and ends with it. Requests that are not answered by then are
/// counted as such.
///
/// - Errors: a group without connections or topics, or no epoll instance available; later errors
///   are counted instead.
pub fn run(load: &RequestLoad, course: &Course) -> Result<RequestOutcome, Error> {
    check(load)?;
    let crowd = Crowd::new(load, course).map_err(|error| Error::IllegalState {
        message: format!("load {}: {error}", load.name).into(),
    })?;
    Ok(crowd.run())
}

fn check(load: &RequestLoad) -> Result<(), Error> {
    let problem = if load.connections == 0 || load.in_flight == 0 || load.client_ids == 0 {
        "it has no connections, or they may send nothing"
    } else if load.topics.iter().all(|topic| topic.partitions == 0) {
        "it has no topic with partitions"
    } else if load.rate.is_some_and(|rate| !(rate.is_finite() && rate > 0.0)) {
        "its rate is not above 0"
    } else {
        return Ok(());
    };
    Err(Error::InvalidArgument {
        message: format!("load {}: {problem}", load.name).into(),
    })
}

#[cfg(test)]
mod tests;
