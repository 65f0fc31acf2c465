//! Whether a client has the recommended setting, and how that is known.
//!
//! In this order: what brokers read on the wire, and what the client itself tells, which only
//! Ottla's does; sizes that one value of the setting allows and the other does not; what the
//! client's owner states; and, of a new instance, figures that this setting moves and that are not
//! the promised ones. A setting without any of these is unknown: counting only the cases in which
//! the promised figure improved would make every promise a kept one.

use super::super::snapshot::Origin;
use super::change::{Change, Known};
use super::figures::Figures;
use super::sighting::{Sighting, Terms};
use crate::numbers::{bytes, number};

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Applied {
    /// How it is known: a clause for people.
    Yes(String),
    /// The setting is what it was.
    No,
    /// It was changed to something else; the same clause.
    Otherwise(String),
    Unknown,
}

/// Whether a client is the one that the promise was made to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Identity {
    Same,
    /// Another instance, or the same after a restart.
    New,
    /// It has no id of its instance: it may have restarted unnoticed.
    Unknown,
}

/// A figure has moved if it changed by at least this factor: less is within what windows of the
/// same client differ.
const MOVED: f64 = 1.2;

/// Sizes end at a limit if the largest is within this factor of it.
const AT_LIMIT: f64 = 1.05;

/// Mean over largest from which batches are full: `F18`.
const FULL: f64 = 0.85;

/// Compares the client with what it was when the promise was made.
pub fn applied(terms: &Terms, now: &Sighting, identity: Identity) -> Applied {
    let change = &terms.offer.change;
    let known = change.known(&now.settings);
    let who = |known: &Known| match known.origin {
        Origin::Seen => Some("the broker saw"),
        Origin::Told => Some("the client tells"),
        _ => None,
    };
    if let Some((known, who)) = known.as_ref().and_then(|known| Some((known, who(known)?))) {
        let how = format!("{who} {}={}", change.key, known.value);
        return match (
            known.agrees,
            terms.offer.value_before.as_ref() == Some(&known.value),
        ) {
            (true, _) => Applied::Yes(how),
            (false, true) => Applied::No,
            (false, false) => Applied::Otherwise(how),
        };
    }
    let may_be_new = identity != Identity::Same;
    let shown = match may_be_new {
        true => by_figures(change, &terms.before, &now.figures, identity == Identity::New),
        false => Applied::Unknown,
    };
    match (shown, known) {
        (Applied::Unknown, Some(known)) if may_be_new && known.agrees => {
            Applied::Yes(format!("its owner states {}={}", change.key, known.value))
        }
        (Applied::Unknown, Some(known)) if !known.agrees => Applied::No,
        (Applied::Unknown, None) if is_asked_again(terms, now) => Applied::No,
        (shown, _) => shown,
    }
}

/// The diagnosis recommends the same value of the same setting once more.
fn is_asked_again(terms: &Terms, now: &Sighting) -> bool {
    now.offer
        .as_ref()
        .is_some_and(|offer| offer.change == terms.offer.change)
}

fn by_figures(change: &Change, before: &Figures, now: &Figures, is_new: bool) -> Applied {
    let whose = if is_new { "a new instance; " } else { "" };
    match (change.key.as_str(), change.number()) {
        ("batch.size", Some(wanted)) => batch_size(before, now, wanted, whose),
        ("max.in.flight.requests.per.connection", Some(_)) => {
            grew((before.in_flight_max, now.in_flight_max), |from, to| {
                format!(
                    "{whose}up to {} requests were in flight, {} before",
                    number(to),
                    number(from)
                )
            })
        }
        ("partitions", Some(wanted)) => match now.partitions {
            Some(to) if to >= wanted => Applied::Yes(format!("it writes to {} partitions", number(to))),
            Some(_) => Applied::No,
            None => Applied::Unknown,
        },
        ("buffer.memory", Some(wanted)) => match (before.buffer_bytes, now.buffer_bytes) {
            (_, Some(to)) if (to / wanted - 1.0).abs() < 0.01 => {
                Applied::Yes(format!("the client reports {} of buffer memory", bytes(to)))
            }
            (Some(from), Some(to)) if from == to => Applied::No,
            (_, Some(to)) => Applied::Otherwise(format!("the client reports {} of buffer memory", bytes(to))),
            _ => Applied::Unknown,
        },
        _ if !is_new => Applied::Unknown,
        (key, wanted) => of_new_instance(key, wanted, before, now),
    }
}

fn batch_size(before: &Figures, now: &Figures, wanted: f64, whose: &str) -> Applied {
    let (Some(from), Some(to)) = (before.batch_bytes_max, now.batch_bytes_max) else {
        return grew((before.batch_bytes, now.batch_bytes), |from, to| {
            format!(
                "{whose}batches grew from {} to {} bytes",
                number(from),
                number(to)
            )
        });
    };
    let how = format!(
        "{whose}the largest batch grew from {} to {} bytes",
        number(from),
        number(to)
    );
    if to >= MOVED * from {
        // One record may be larger than a batch, so that more than the setting is no proof of
        // another one unless batches are usually so large.
        let is_beyond = now.batch_bytes.is_some_and(|mean| mean > AT_LIMIT * wanted);
        return match is_beyond {
            true => Applied::Otherwise(how),
            false => Applied::Yes(how),
        };
    }
    let is_full = now.batch_bytes.is_some_and(|mean| mean >= FULL * to);
    match is_full && to <= AT_LIMIT * from {
        true => Applied::No,
        false => Applied::Unknown,
    }
}

/// Settings that leave traces only in figures: those of another process are compared.
fn of_new_instance(key: &str, wanted: Option<f64>, before: &Figures, now: &Figures) -> Applied {
    let words = |what: &'static str| {
        move |from: f64, to: f64| {
            format!(
                "a new instance; {what} went from {} to {}",
                number(from),
                number(to)
            )
        }
    };
    match key {
        "linger.ms" if wanted == Some(0.0) => {
            fell((before.queue_ms, now.queue_ms), words("the time in a batch (ms)"))
        }
        "linger.ms" => grew((before.batch_bytes, now.batch_bytes), words("a batch (bytes)")),
        "compression.type" => fell(
            (before.compression_rate, now.compression_rate),
            words("the share of bytes that compression leaves"),
        ),
        "send.buffer.bytes" | "receive.buffer.bytes" => grew(
            (before.bytes_on_the_way(), now.bytes_on_the_way()),
            words("the bytes on the way"),
        ),
        "fetch.max.bytes" | "max.partition.fetch.bytes" => {
            grew((before.batch_bytes, now.batch_bytes), words("a fetch (bytes)"))
        }
        "fetch.min.bytes" => {
            let fetches = (before.requests_per_second, now.requests_per_second);
            match wanted.is_some_and(|wanted| wanted <= 1.0) {
                true => grew(fetches, words("fetches/s")),
                false => fell(fetches, words("fetches/s")),
            }
        }
        _ => Applied::Unknown,
    }
}

fn grew((from, to): (Option<f64>, Option<f64>), how: impl Fn(f64, f64) -> String) -> Applied {
    match from.zip(to) {
        Some((from, to)) if from > 0.0 && to >= MOVED * from => Applied::Yes(how(from, to)),
        _ => Applied::Unknown,
    }
}

fn fell((from, to): (Option<f64>, Option<f64>), how: impl Fn(f64, f64) -> String) -> Applied {
    match from.zip(to) {
        Some((from, to)) if from > 0.0 && to <= from / MOVED => Applied::Yes(how(from, to)),
        _ => Applied::Unknown,
    }
}
