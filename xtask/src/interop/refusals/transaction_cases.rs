//! Produce: every combination of the fields that make a batch transactional.

use ottla_wire::api_key::ApiKey;
use ottla_wire::deviations::TRANSACTIONS;
use ottla_wire::records::batch::attributes;

use super::case::{Case, Expected, Scene, TOPIC, differ, produce_body};
use super::exchange::Ask;
use super::forged::Forged;

#[derive(Clone, Copy)]
struct Claim {
    is_transactional: bool,
    has_transactional_id: bool,
    producer_id: i64,
    producer_epoch: i16,
    base_sequence: i32,
    is_control: bool,
}

pub fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for is_transactional in [false, true] {
        for has_transactional_id in [false, true] {
            for producer_id in [-1, 4_000] {
                for producer_epoch in [-1, 0] {
                    for base_sequence in [-1, 0] {
                        for is_control in [false, true] {
                            cases.push(case(Claim {
                                is_transactional,
                                has_transactional_id,
                                producer_id,
                                producer_epoch,
                                base_sequence,
                                is_control,
                            }));
                        }
                    }
                }
            }
        }
    }
    cases
}

/// The expected answers. Without a transactional id the transaction could never be ended; with one,
/// Apache Kafka asks the id's coordinator, which does not know it.
fn expected(claim: Claim) -> Expected {
    let has_producer = claim.producer_id >= 0;
    let plain = match () {
        () if claim.is_control || has_producer && claim.base_sequence < 0 => "INVALID_RECORD",
        () => "NONE",
    };
    match (claim.is_transactional, claim.has_transactional_id) {
        (false, _) => Expected::Both(plain),
        (true, false) => Expected::Both("TRANSACTIONAL_ID_AUTHORIZATION_FAILED"),
        (true, true) if has_producer => Expected::Both("NOT_ENOUGH_REPLICAS"),
        (true, true) => differ(plain, "INVALID_TXN_STATE", &TRANSACTIONS),
    }
}

fn case(claim: Claim) -> Case {
    let yes = |is: bool, what: &'static str| if is { what } else { "" };
    let name = format!(
        "{}{}{}producer {}, epoch {}, sequence {}",
        yes(claim.is_transactional, "transactional, "),
        yes(claim.has_transactional_id, "transactional id, "),
        yes(claim.is_control, "control, "),
        claim.producer_id,
        claim.producer_epoch,
        claim.base_sequence,
    );
    Case::new(name, expected(claim), move |scene: &Scene| {
        let batch = Forged::new(scene.now_ms).with(|batch| {
            batch.producer_id = claim.producer_id;
            batch.producer_epoch = claim.producer_epoch;
            batch.base_sequence = claim.base_sequence;
            if claim.is_transactional {
                batch.attributes |= attributes::TRANSACTIONAL;
            }
            if claim.is_control {
                batch.attributes |= attributes::CONTROL;
            }
        });
        let id = claim.has_transactional_id.then_some("t");
        Ask::new(
            ApiKey::Produce,
            9,
            produce_body(id, -1, TOPIC, scene.partition, &batch.bytes()),
        )
    })
}
