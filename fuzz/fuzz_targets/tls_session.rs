//! The records of a client of TLS, in any pieces, changed, and between bytes of any content: no
//! panic, and no plaintext but what the client wrote.

#![no_main]

#[path = "../../crates/broker/tests/driven/tls_session.rs"]
mod driven;

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;

static PEERS: LazyLock<driven::Peers> = LazyLock::new(driven::Peers::new);

fuzz_target!(|script: &[u8]| {
    driven::drive(&PEERS, script);
});
