//! What the fuzz target `sasl` does, with seeded scripts.

#![allow(clippy::unwrap_used, reason = "a failed step of a test is a failed test")]

#[path = "driven/sasl.rs"]
mod sasl;

use ottla_wire::random::Random;
use sasl::{World, drive};

#[test]
fn no_order_of_messages_authenticates_without_a_password() {
    let world = World::new();
    let (mut answers, mut challenges, mut tokens, mut refused, mut closed) = (0, 0, 0, 0, 0);
    for seed in 0..20_000 {
        let mut random = Random::new(seed);
        let script: Vec<u8> = (0..random.below(200)).map(|_| random.next_u64() as u8).collect();
        // Most begin as clients do, so that they come further.
        // The last byte is a signed token, where tokens are taken.
        let mechanism = random.below(5) as u8;
        let begin = [0x1b, 0, 0, 0, 1 + 8 * mechanism, 7 + 32 * random.below(8) as u8];
        let begin = &begin[..random.below(7) as usize];
        println!("seed {seed}");
        let outcome = drive(&world, &[begin, &script].concat());
        answers += outcome.answers;
        challenges += outcome.challenges;
        tokens += outcome.tokens;
        refused += usize::from(outcome.is_refused);
        closed += usize::from(outcome.is_closed);
    }
    assert!(
        answers > 1_000 && challenges > 100 && tokens > 50 && refused > 1_000 && closed > 1_000,
        "{answers} answers, {challenges} challenges, {tokens} tokens, {refused} refused, {closed} closed"
    );
}
