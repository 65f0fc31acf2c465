//! A group of connections that send the same small request again and again, without a client: floods, storms, bursts.
//!
//! What a client library would prevent is the point: no batching, no back-off, no shared connection. One thread serves all of
//! them, so that thousands of connections cost the machine little beside what they cost the broker.

mod connection;
mod crowd;
mod pace;
mod payload;

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use ottla_client::Error;

use self::crowd::Crowd;
use super::outcome::RequestOutcome;
use super::{Course, TopicLoad};

pub use self::payload::Api;

/// A group of equal connections.
#[derive(Clone, Debug)]
pub struct RequestLoad {
    /// Client ids are this with a number.
    pub name: String,
    pub address: SocketAddr,
    /// Where connections come from, if not from where the system likes: neighbours have addresses of their own.
    pub source: Option<IpAddr>,
    /// What produce requests write to, partition by partition, and metadata requests ask for.
    pub topics: Vec<TopicLoad>,
    pub api: Api,
    /// Of the value of the one record of a produce request.
    pub record_bytes: u32,
    pub connections: u32,
    /// Requests of a connection that wait for their answers.
    pub in_flight: u32,
    /// Different client ids, in turn, connection by connection.
    pub client_ids: u32,
    /// Of the whole group, a second; `None`: as fast as they are answered.
    pub rate: Option<f64>,
    /// All requests of so long are due in its first moment; zero: evenly.
    pub burst_every: Duration,
    /// Every request has a connection of its own.
    pub reconnects: bool,
}

/// Runs a group through a course; ends with it. Requests that are not answered by then are counted as such.
///
/// - Errors: a group without connections or topics, or the machine has no epoll left; afterwards errors are counted instead.
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
