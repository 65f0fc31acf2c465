//! A link between clients and a broker: round-trip time, bandwidth, window and stalls, without privileges.
