//! The connections of one client: who is connected, who is authenticated, which answer belongs to which request.
//!
//! `Cluster` is what the machines of producer, consumer and admin client are built on.
//!
//! The trail of a request: a machine asks `Cluster::readiness` (cluster.rs), which starts a connection where there is
//! none; `Action::Connect` (io.rs) goes to the driver, `Event::Connected` comes back; ApiVersions is negotiated
//! (api_versions.rs), then the client authenticates (authentication.rs, sasl/); now `Cluster::send` puts the header in front (connection.rs) and
//! notes the request (in_flight.rs); the driver writes the frame and reads the answer; `Event::Received` finds its
//! request by correlation id (in_flight.rs) and becomes a `Reply`. Whatever breaks on the way ends in
//! `Cluster::broken` (lifecycle.rs): all requests of the connection fail, and it rests for a while (backoff.rs). Metadata requests
//! take the same way (discovery.rs, metadata/refresh.rs).

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
