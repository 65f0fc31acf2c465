//! What the fuzz target `tls_session` does, with seeded scripts.

#![allow(clippy::unwrap_used, reason = "a failed step of a test is a failed test")]

#[path = "driven/tls_session.rs"]
mod tls_session;

use ottla_wire::random::Random;
use tls_session::{Outcome, Peers, drive};

/// - `operations`: those that occur.
fn outcomes(seeds: u64, operations: &[u8]) -> Vec<Outcome> {
    let peers = Peers::new();
    let outcomes = (0..seeds).map(|seed| {
        let mut random = Random::new(seed);
        let mut script = vec![seed as u8];
        for _ in 0..random.below(60) {
            let operation = operations[random.below(operations.len() as u64) as usize];
            let upper = random.below(32) as u8;
            script.push(upper << 3 | operation);
            script.extend((0..2 + upper).map(|_| random.next_u64() as u8));
            if operation != 0 {
                script.truncate(script.len() - usize::from(upper));
            }
        }
        println!("seed {seed}");
        drive(&peers, &script)
    });
    outcomes.collect()
}

#[test]
fn records_in_any_pieces_give_what_the_client_wrote() {
    let outcomes = outcomes(60, &[2, 3, 4, 5, 6, 7]);
    let is_good = |one: &Outcome| one.has_shaken_hands && one.is_genuine && !one.is_refused;
    assert!(outcomes.iter().all(is_good), "{outcomes:?}");
    assert!(outcomes.iter().any(|one| one.content_bytes > 100_000));
}

/// A client that does nothing but change its keys makes the broker work for nothing.
#[test]
fn keys_that_change_without_content_are_refused_at_some_time() {
    let peers = Peers::new();
    let script = |updates: usize| {
        let mut script = vec![1];
        // The whole handshake, then the changes.
        for _ in 0..6 {
            script.extend([6, 0x3f, 0xff]);
        }
        script.extend([2, 0, 0].repeat(updates));
        script
    };
    let outcome = drive(&peers, &script(32));
    assert!(outcome.has_shaken_hands && !outcome.is_refused, "{outcome:?}");
    let outcome = drive(&peers, &script(33));
    assert!(outcome.has_shaken_hands && outcome.is_refused, "{outcome:?}");
}

#[test]
fn changed_and_added_bytes_are_refused_and_give_no_other_plaintext() {
    let outcomes = outcomes(300, &[0, 1, 3, 4, 5, 6, 7]);
    let count = |is: fn(&Outcome) -> bool| outcomes.iter().filter(|one| is(one)).count();
    let in_handshake = count(|one| one.is_refused && !one.has_shaken_hands);
    let afterwards = count(|one| one.is_refused && one.content_bytes > 0);
    assert!(
        in_handshake > 10 && afterwards > 10,
        "{in_handshake}, {afterwards}"
    );
}
