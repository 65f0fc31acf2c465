//! The connections of one client: connecting, authenticating, matching answers with requests.
//!
//! `Cluster` is the base of the producer's, the consumer's and the admin client's machine.
//!
//! The life of a request: a machine calls `Cluster::readiness` (cluster.rs), which starts a
//! connection where there is none; `Action::Connect` (io.rs) goes to the driver, `Event::Connected`
//! comes back; ApiVersions is negotiated (api_versions.rs), then the client authenticates
//! (authentication.rs, sasl/). Now `Cluster::send` prepends the header (connection.rs) and records
//! the request (in_flight.rs); the driver writes the frame and reads the answer; `Event::Received`
//! is matched with its request by correlation id (in_flight.rs) and becomes a `Reply`. Any failure
//! on the way ends in `Cluster::broken` (lifecycle.rs): all requests of the connection fail, and it
//! backs off (backoff.rs). Metadata requests take the same way (discovery.rs, metadata/refresh.rs).

pub mod io;
pub mod cluster;
mod lifecycle;
mod discovery;
mod connection;
mod in_flight;
mod api_versions;
mod authentication;
pub(crate) mod sasl;
pub mod backoff;
#[cfg(test)]
pub mod testing;
#[cfg(test)]
mod tests;
