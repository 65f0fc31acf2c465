//! The cost of quotas per request: `cargo bench -p ottla-broker --bench quotas`.
//!
//! First the accounting alone: CPU time of the thread, minimum of several rounds. Then whole
//! requests over a socket: CPU time of the broker's only event loop per request, alternating
//! between a client with quotas that it never reaches and a client without; the median of the
//! ratios.

#![allow(
    clippy::unwrap_used,
    reason = "a failed step of a measurement is a failed measurement"
)]

#[path = "../tests/support/mod.rs"]
mod support;

use std::hint::black_box;
use std::sync::Arc;

use ottla_broker::Broker;
use ottla_broker::clock::SystemClock;
use ottla_core::quota::limits::{CLIENT_ID, ClientQuotas};
use ottla_core::quota::{QuotaConfig, QuotaKind, Quotas};
use ottla_core::request::ConnectionContext;
use ottla_core::tenant::TenantId;
use ottla_core::time::Moment;
use ottla_wire::api_key::ApiKey;
use ottla_wire::messages::alter_client_quotas::{
    AlterClientQuotasRequest, AlterClientQuotasRequestEntityData, AlterClientQuotasRequestEntryData,
    AlterClientQuotasResponse, OpData,
};
use ottla_wire::primitives::Reader;
use support::{Client, frame_of};

const BOOKINGS: u64 = 2_000_000;
const ROUNDS: usize = 9;
const REQUESTS: usize = 20_000;
const PAIRS: usize = 31;

/// Far more than any client uses.
const UNREACHED: f64 = 9e15;

fn main() {
    println!("quotas set  the client has  ns/request");
    for (others, has_quota) in [(0, false), (10_000, false), (0, true), (10_000, true)] {
        let nanos = (0..ROUNDS)
            .map(|_| booking_nanos(others, has_quota))
            .fold(f64::INFINITY, f64::min);
        let words = if has_quota { "all four" } else { "none" };
        println!(
            "{:>10}  {words:>14}  {nanos:>10.1}",
            others + usize::from(has_quota)
        );
    }
    request_ratio();
}

/// The cost of accounting for a request and its answer.
fn booking_nanos(others: usize, has_quota: bool) -> f64 {
    let mut quotas = ClientQuotas::new();
    let mut set = |client_id: String| {
        let entity = vec![(Arc::from(CLIENT_ID), Some(Arc::from(client_id)))];
        let values = QuotaKind::ALL.map(|kind| (Arc::from(kind.key()), UNREACHED));
        quotas.insert(entity, values.into());
    };
    (0..others).for_each(|number| set(format!("c{number}")));
    if has_quota {
        set("measured".to_owned());
    }
    let clock = Arc::new(SystemClock::default());
    let quotas = Quotas::new(QuotaConfig::default(), Arc::new(quotas), clock, true);
    let mut connection = ConnectionContext {
        connection_id: 1,
        peer_address: "127.0.0.1".parse().unwrap(),
        peer_port: 1,
        listener_name: "PLAINTEXT".into(),
        principal: "User:ANONYMOUS".into(),
        identity: Arc::default(),
        permitted: Arc::default(),
        tenant: TenantId(1),
        quota: None,
    };
    let start = cpu_nanos(rustix::time::ClockId::ThreadCPUTime);
    for number in 0..BOOKINGS {
        let now = Moment::from_micros(black_box(number));
        connection.refresh_quota(&quotas, black_box(Some("measured")));
        let quota = connection.quota.as_ref().unwrap();
        let of_request = quota.handled(ApiKey::Produce, 1_000, 3, now);
        let of_answer = quota.answered(ApiKey::Produce, 60, now);
        quota.worked(2, now);
        assert_eq!(black_box(of_request.max(of_answer)), 0);
    }
    (cpu_nanos(rustix::time::ClockId::ThreadCPUTime) - start) as f64 / BOOKINGS as f64
}

fn request_ratio() {
    let broker = Broker::start_temporary(&[("num.network.threads", "1")]).unwrap();
    let mut clients = ["free", "limited"].map(|client_id| (client_id, Client::connect(broker.address())));
    set_quotas(&mut clients[0].1, "limited");
    let mut ratios = Vec::new();
    let mut least = [f64::INFINITY; 2];
    for pair in 0..PAIRS {
        let mut nanos = [0.0; 2];
        // The order alternates from pair to pair.
        for turn in [pair % 2, 1 - pair % 2] {
            let (client_id, client) = &mut clients[turn];
            nanos[turn] = request_nanos(client_id, client);
            least[turn] = least[turn].min(nanos[turn]);
        }
        // The first pair is a warm-up.
        if pair > 0 {
            ratios.push(nanos[1] / nanos[0]);
        }
    }
    ratios.sort_by(f64::total_cmp);
    let quarter = ratios.len() / 4;
    println!(
        "a request: {:.0} ns without quotas, {:.0} ns with; ratio {:.4}, half of the pairs {:.4} to {:.4}",
        least[0],
        least[1],
        ratios[ratios.len() / 2],
        ratios[quarter],
        ratios[ratios.len() - 1 - quarter]
    );
}

/// CPU time of the broker's threads per pipelined request.
fn request_nanos(client_id: &str, client: &mut Client) -> f64 {
    let request = frame_of(client_id, ApiKey::ApiVersions, 0, 1, |_| ());
    let all = request.repeat(REQUESTS / 20);
    let process = cpu_nanos(rustix::time::ClockId::ProcessCPUTime);
    let own = cpu_nanos(rustix::time::ClockId::ThreadCPUTime);
    for _ in 0..20 {
        client.send(&all);
        for _ in 0..REQUESTS / 20 {
            client.receive(ApiKey::ApiVersions, 0, 1);
        }
    }
    let own = cpu_nanos(rustix::time::ClockId::ThreadCPUTime) - own;
    let process = cpu_nanos(rustix::time::ClockId::ProcessCPUTime) - process;
    (process - own) as f64 / REQUESTS as f64
}

fn set_quotas(client: &mut Client, client_id: &str) {
    let request = AlterClientQuotasRequest {
        entries: vec![AlterClientQuotasRequestEntryData {
            entity: vec![AlterClientQuotasRequestEntityData {
                entity_type: CLIENT_ID,
                entity_name: Some(client_id),
            }],
            ops: QuotaKind::ALL
                .iter()
                .map(|kind| OpData {
                    key: kind.key(),
                    value: UNREACHED,
                    remove: false,
                })
                .collect(),
        }],
        validate_only: false,
    };
    client.send(&frame_of("admin", ApiKey::AlterClientQuotas, 1, 1, |bytes| {
        request.encode(bytes, 1)
    }));
    let body = client.receive(ApiKey::AlterClientQuotas, 1, 1);
    let response = AlterClientQuotasResponse::decode(&mut Reader::new(&body), 1).unwrap();
    assert_eq!(
        response.entries[0].error_code, 0,
        "{:?}",
        response.entries[0].error_message
    );
}

fn cpu_nanos(clock: rustix::time::ClockId) -> u64 {
    let time = rustix::time::clock_gettime(clock);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}
