//! Recommendations for a slow broker: what to change, the gain, and what would not help.

use super::super::super::diagnosis::{Promise, Recommendation, Refusal};
use super::parts::{Part, Parts};
use crate::formulas::queueing::wait_factor;

fn promise(parts: &Parts, best_ms: f64, worst_ms: f64, assumption: &str) -> Promise {
    let now = parts.total_ms();
    Promise {
        figure: String::from("broker_ms"),
        now: Some(now),
        low: best_ms.clamp(0.0, now),
        high: worst_ms.clamp(0.0, now),
        unit: String::from("ms"),
        assumption: assumption.to_owned(),
        unknown: None,
    }
}

fn refusal(set: &'static str, why: &'static str) -> Refusal {
    Refusal {
        set: set.into(),
        why: why.into(),
    }
}

/// The recommendation for B3: busy handlers or processor.
pub fn fewer_requests(parts: &Parts, utilisation: Option<f64>, is_burst: bool) -> Recommendation {
    let (now, queue) = (parts.total_ms(), parts.ms(Part::Queue));
    // Half of the requests are half of the utilisation; the remaining wait follows Kingman's
    // formula.
    let remaining = utilisation
        .filter(|rho| *rho > 0.0 && *rho < 1.0)
        .map_or(1.0, |rho| wait_factor(rho / 2.0) / wait_factor(rho));
    let (set, why) = if is_burst {
        (
            "spread the bursts: linger.ms at the clients, jitter in what they do at the same time",
            "the mean load is low; only requests that come together wait for each other",
        )
    } else {
        (
            "half as many requests of the heaviest clients: larger batch.size or linger.ms there",
            "a handler's time goes by request, not by byte",
        )
    };
    Recommendation {
        set: set.to_owned(),
        why: why.to_owned(),
        promise: promise(
            parts,
            now - queue,
            now - queue * (1.0 - remaining),
            "the same bytes in half as many requests, at an unchanged service time",
        ),
        next_ceiling: String::from("the next largest part of D; then more handlers or brokers"),
        cost: String::from("latency of the clients that linger"),
    }
}

pub fn refused_for_handlers() -> Vec<Refusal> {
    vec![
        refusal(
            "max.in.flight.requests.per.connection",
            "more requests under way only stand in the same queue",
        ),
        refusal(
            "send.buffer.bytes",
            "the bytes have arrived; they wait for a handler",
        ),
    ]
}

/// The recommendation for B4: a slow log.
pub fn faster_log(parts: &Parts) -> Recommendation {
    let now = parts.total_ms();
    Recommendation {
        set: String::from(
            "free the broker's disks and page cache: fewer partitions on it, no other programs, more or faster disks",
        ),
        why: String::from("most of the time passes in the log"),
        promise: promise(
            parts,
            now - parts.ms(Part::Local),
            now,
            "only the local part goes, all of it at best",
        ),
        next_ceiling: String::from("the next largest part of D"),
        cost: String::from("partitions that are moved are copied over the network"),
    }
}

pub fn refused_for_log() -> Vec<Refusal> {
    vec![
        refusal(
            "num.io.threads",
            "requests do not wait for a handler, handlers wait for the log",
        ),
        refusal("send.buffer.bytes", "the network is not what they wait for"),
    ]
}

/// The recommendation for B4 where requests wait for the flush.
pub fn faster_flush(parts: &Parts) -> Recommendation {
    let now = parts.total_ms();
    Recommendation {
        set: String::from("a disk that flushes faster (fdatasync), or one of the log's own"),
        why: String::from("most of the time is the disk's, and every answer waits for it"),
        promise: promise(
            parts,
            now - parts.ms(Part::Remote),
            now,
            "only the flush goes, all of it at best",
        ),
        next_ceiling: String::from("the next largest part of D"),
        cost: String::from("hardware"),
    }
}

pub fn refused_for_flush() -> Vec<Refusal> {
    vec![
        refusal(
            "num.replica.fetchers",
            "no follower is waited for: it is the broker's own disk",
        ),
        refusal(
            "acks=1",
            "it hides the wait by giving up durability: a decision about lost records, not about speed",
        ),
    ]
}

/// The recommendation for B5: slow followers.
pub fn faster_followers(parts: &Parts) -> Recommendation {
    let now = parts.total_ms();
    Recommendation {
        set: String::from(
            "num.replica.fetchers: more (1 by default); leaders spread evenly; fewer partitions per broker",
        ),
        why: String::from(
            "requests with acks=all wait for the slowest in-sync follower, whose fetch walks all partitions",
        ),
        promise: promise(
            parts,
            now - parts.ms(Part::Remote),
            now,
            "only the remote part goes, all of it at best",
        ),
        next_ceiling: String::from("the network round trip to the followers stays"),
        cost: String::from("more fetchers are more connections and requests between brokers"),
    }
}

pub fn refused_for_followers() -> Vec<Refusal> {
    vec![
        refusal(
            "min.insync.replicas",
            "it decides when writes are refused, not how long they take: every in-sync replica is waited for",
        ),
        refusal(
            "acks=1",
            "it hides the wait by giving up durability: a decision about lost records, not about speed",
        ),
        refusal(
            "replication.factor",
            "each replica costs its share of network and disk; fewer of them is a decision about lost records",
        ),
    ]
}

/// The recommendation for B6: busy or blocked network threads.
pub fn free_network_threads(parts: &Parts, utilisation: Option<f64>, is_cold: bool) -> Recommendation {
    let (now, response) = (parts.total_ms(), parts.ms(Part::Response));
    let (set, why) = if is_cold {
        (
            "serve cold reads elsewhere: throttle or move the lagging group, warm its pages before they are sent, more memory",
            "a network thread that sends pages from the disk makes all its connections wait",
        )
    } else {
        (
            "num.network.threads: more, if they are busy; otherwise find the reader that takes its answers slowly",
            "answers wait to be sent",
        )
    };
    // The wait that is proportional to the threads' utilisation disappears with it.
    let best = now - response * utilisation.unwrap_or(1.0);
    Recommendation {
        set: set.to_owned(),
        why: why.to_owned(),
        promise: promise(
            parts,
            best,
            now,
            "waiting falls with the utilisation of the network threads",
        ),
        next_ceiling: String::from("the next largest part of D; then the network's bandwidth"),
        cost: if is_cold {
            String::from("the lagging group takes longer to catch up")
        } else {
            String::new()
        },
    }
}

pub fn refused_for_network() -> Vec<Refusal> {
    vec![
        refusal(
            "num.io.threads",
            "handlers have done their part when an answer waits to be sent",
        ),
        refusal(
            "batch.size",
            "the request has been served; its size is not what the answer waits for",
        ),
    ]
}
