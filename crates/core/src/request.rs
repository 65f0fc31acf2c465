//! What the shell hands to the core: one request and who sent it.

use std::net::IpAddr;
use std::sync::Arc;

use crate::time::Moment;

/// Facts about a connection that do not change from request to request.
#[derive(Clone, Debug)]
pub struct ConnectionContext {
    pub connection_id: u64,
    pub peer_address: IpAddr,
    pub peer_port: u16,
    /// Name of the listener that accepted the connection, e.g. `PLAINTEXT`.
    pub listener_name: Arc<str>,
    /// Kafka's form, e.g. `User:ANONYMOUS`.
    pub principal: Arc<str>,
}

/// One request as cut from the connection: header decoded, body not.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    pub connection: &'a ConnectionContext,
    pub api_key: i16,
    pub api_version: i16,
    pub correlation_id: i32,
    pub client_id: Option<&'a str>,
    /// The bytes behind the request header.
    pub body: &'a [u8],
    /// When the last byte of the request was read.
    pub received: Moment,
}
