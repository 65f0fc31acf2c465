//! Requests and tokens of a client without a password, of any content and in any order: no panic,
//! and no authentication.

#![no_main]

#[path = "../../crates/core/tests/driven/sasl.rs"]
mod driven;

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;

static WORLD: LazyLock<driven::World> = LazyLock::new(driven::World::new);

fuzz_target!(|script: &[u8]| {
    driven::drive(&WORLD, script);
});
