//! S6: no backlog: who limits the rate?
//!
//! **Asks**, where the sender takes all it is given, whether anything else limits the rate or is
//! wasteful. The first test that holds is the verdict:
//!
//! | order | test | verdict |
//! |---|---|---|
//! | 0 | X_r × C ≥ 0.8, where C is measured: callbacks run one after another, and confirmations fall behind sending | SENDER_THREAD (N1) |
//! | 1 | records outstanding, X_r × (q + L), equal T within 15 %, and requests hold no more records than there are threads (T unknown: one) | SYNCHRONOUS (F28, O1) |
//! | 2 | n_req < 5 at more than 100 requests/s and broker; or phi < 0.1 at more than 100 requests/s in all, where nothing lingers or the broker's handlers are busy | SMALL_REQUESTS (B1) |
//! | 3 | the application's own rate is known and met, within a tenth | KEEPS_UP (O2) |
//! | 4 | X_r × W / T ≥ 0.80, W and T known; from 0.70 on where the standard deviation of the acknowledgement time exceeds its mean | WORKER (W1, W2) |
//! | 5 | neither the offered rate nor W and T tell whether the application is the limit, and at least four times as much would fit | KEEPS_UP |
//! | 6 | else | APPLICATION: the application or its threads, which cannot be observed from here |
//!
//! **Spare capacity** is 1 / max(U, 1 − i_wait): the sender's two ceilings.
//!
//! **Why 5 and 6**: without W, T and an offered rate it is not known whether the application wants
//! to send more. Far from every ceiling the question is idle, and an operator's screen full of
//! "limited by the application" would hide the clients that really are. From a quarter of a ceiling
//! on, the question is asked: "the producer could carry X_r / U; one send() takes at most T / X_r;
//! how many threads are there?". Measured: 2,000 records/s at U = 0.04 (keeps up), and 777,700
//! records/s at U = 0.5 through one thread that was not reported (its own work was the limit).
//!
//! **Why 0.70**: a thread that sends without a limit also creates its records; three threads at
//! 0.73 with an unsteady latency (189 ± 221 ms) had reached their limit.
//!
//! **Why SYNCHRONOUS comes first**: a sender that waits for each answer has one record in a request
//! too.

use crate::doctor::diagnosis::{FindingId, Step, Verdict};
use crate::formulas::{ceiling, latency};

use super::super::words::{known, step};
use super::backlog::Backlog;
use super::pipe::served_share;
use super::reading::{Reading, clean, reaches};
use crate::numbers::{number, percent};

const SYNCHRONOUS: f64 = 0.15;
const FEW_RECORDS: f64 = 5.0;
const MANY_REQUESTS: f64 = 100.0;
const EMPTY_BATCHES: f64 = 0.1;
const BUSY_HANDLERS: f64 = 0.3;
const WORKER: f64 = 0.8;
const WORKER_WITH_SPREAD: f64 = 0.7;
const SPARE: f64 = 4.0;

#[derive(Clone, Debug)]
pub(crate) struct Limit {
    pub verdict: Verdict,
    pub finding: Option<FindingId>,
    pub text: String,
    /// `None`: neither U nor the thread's wait is known.
    pub spare: Option<f64>,
}

pub(crate) fn judge(reading: &Reading<'_>, backlog: Backlog) -> (Limit, Step) {
    let spare = spare(reading);
    let (verdict, finding, text) = weigh(reading, backlog, spare);
    let numbers = [
        known("X_r", reading.records_per_second, "records/s"),
        known("offered", reading.offered, "records/s"),
        known("X_r × W / T", worker_use(reading), ""),
        known("n_req", reading.records_per_request, ""),
        known("phi", reading.fill(), ""),
        known("spare capacity", spare, "times"),
    ];
    let step = step("S6", "No backlog: who limits the rate?", &numbers, text.clone());
    let limit = Limit {
        verdict,
        finding,
        text,
        spare,
    };
    (limit, step)
}

/// Returns `1 / max(U, 1 - i_wait)`; where neither is known, the headroom left by the broker's
/// serial service (F14).
pub(crate) fn spare(reading: &Reading<'_>) -> Option<f64> {
    let busy = reading.io_wait.map(|wait| 1.0 - wait);
    let served = reading
        .nodes
        .iter()
        .filter_map(served_share)
        .fold(None, |most: Option<f64>, share| {
            Some(most.map_or(share, |most| most.max(share)))
        });
    let used = match (reading.used(), busy) {
        (Some(used), Some(busy)) => used.max(busy),
        (Some(used), None) => used,
        (None, Some(busy)) => busy,
        (None, None) => served?,
    };
    clean(Some(1.0 / used.max(1e-3)))
}

/// `X_r * W / T` (F6).
pub(crate) fn worker_use(reading: &Reading<'_>) -> Option<f64> {
    clean(Some(latency::worker_use(
        reading.records_per_second?,
        reading.send_micros?,
        reading.threads?,
    )))
}

fn weigh(
    reading: &Reading<'_>,
    backlog: Backlog,
    spare: Option<f64>,
) -> (Verdict, Option<FindingId>, String) {
    if reading.has_slow_callbacks() {
        let text = super::sums::busy_thread(reading);
        return (Verdict::SenderThread, Some(FindingId::N1), text);
    }
    if let Some(text) = synchronous(reading) {
        return (Verdict::Synchronous, Some(FindingId::O1), text);
    }
    if let Some(text) = small_requests(reading) {
        return (Verdict::SmallRequests, Some(FindingId::B1), text);
    }
    if reading.is_offer_met() == Some(true) {
        return (Verdict::KeepsUp, Some(FindingId::O2), offer_met(reading, backlog));
    }
    if let Some(text) = worker(reading) {
        return (Verdict::Worker, Some(FindingId::W1), text);
    }
    if reading.offered.is_none() && spare.is_none_or(|spare| spare >= SPARE) {
        let text = match (reading.records_per_second, spare) {
            (Some(rate), _) if rate <= 0.0 => "nothing was sent in the window".to_owned(),
            (_, Some(spare)) => format!("no backlog, and {} times as much would fit", number(spare)),
            (_, None) => "no backlog that anybody can see".to_owned(),
        };
        return (Verdict::KeepsUp, Some(FindingId::O2), text);
    }
    (Verdict::Application, None, application(reading, spare))
}

/// F28: the number of outstanding records equals the number of threads.
pub(crate) fn synchronous(reading: &Reading<'_>) -> Option<String> {
    let rate = reading.records_per_second.filter(|rate| *rate > 0.0)?;
    let request_ms = reading.request_ms?;
    let records = reading.records_per_request?;
    let threads = reading.threads.unwrap_or(1.0);
    // librdkafka does not send the time in the batch: use the answer's time alone, or add the
    // linger.
    let queues = match reading.queue_ms {
        Some(queue_ms) => vec![queue_ms],
        None => vec![0.0, reading.settings.linger_ms.value],
    };
    let is_alone = records <= threads.max(1.0) * 1.05;
    let queue_ms = queues.into_iter().find(|queue_ms| {
        let expected = ceiling::synchronous_records_per_second(threads, *queue_ms, request_ms.max(1e-3));
        (rate / expected - 1.0).abs() <= SYNCHRONOUS
    })?;
    is_alone.then(|| {
        let expected = ceiling::synchronous_records_per_second(threads, queue_ms, request_ms.max(1e-3));
        format!(
            "every record waits for the answer to the one before: {} records/s are T × 1000 / (wait + L) = {} × 1000 / ({} + {}) = {}",
            number(rate),
            number(threads),
            number(queue_ms),
            number(request_ms),
            number(expected)
        )
    })
}

/// B1: many requests with few records each, which could have shared one request.
pub(crate) fn small_requests(reading: &Reading<'_>) -> Option<String> {
    let records = reading.records_per_request?;
    let busiest = reading
        .nodes
        .iter()
        .map(|pipe| pipe.requests_per_second)
        .fold(0.0, f64::max);
    let all = reading.requests_per_second?;
    let is_many = records < FEW_RECORDS && busiest > MANY_REQUESTS;
    let lingers =
        reading.settings.linger_ms.value >= 1.0 && reading.queue_ms.is_none_or(|queue| queue >= 1.0);
    let has_busy_broker = reading
        .snapshot
        .brokers
        .iter()
        .any(|side| clean(side.handler_idle).is_some_and(|idle| idle < BUSY_HANDLERS));
    let is_empty = reading.fill().is_some_and(|fill| fill < EMPTY_BATCHES);
    let is_costly = is_empty && all > MANY_REQUESTS && (!lingers || has_busy_broker);
    // A record larger than a batch travels alone, whatever the settings are.
    let is_joinable = reading
        .record_bytes()
        .is_none_or(|bytes| bytes < reading.settings.batch_bytes.value / 2.0);
    ((is_many || is_costly) && is_joinable).then(|| {
        let fill = reading.fill().map_or_else(String::new, |fill| {
            format!(", batches are {} full", percent(fill))
        });
        format!(
            "{} requests/s of {} records each{fill}: it is not slow, and brokers pay for it",
            number(all),
            number(records)
        )
    })
}

fn offer_met(reading: &Reading<'_>, backlog: Backlog) -> String {
    let (rate, offered) = (
        reading.records_per_second.unwrap_or(0.0),
        reading.offered.unwrap_or(0.0),
    );
    let mut text = format!(
        "{} of the offered {} records/s are sent",
        number(rate),
        number(offered)
    );
    if backlog == Backlog::Soft {
        let load = reading
            .load()
            .map_or_else(String::new, |load| format!(": Z = {}", percent(load)));
        text.push_str(&format!(
            "; it is near its ceiling{load}, and latency already rises"
        ));
    }
    text
}

fn worker(reading: &Reading<'_>) -> Option<String> {
    let used = worker_use(reading)?;
    let application = &reading.snapshot.application;
    let comes_and_goes = application
        .acknowledged_deviation_ms
        .zip(application.acknowledged_ms)
        .is_some_and(|(deviation, mean)| deviation > mean);
    (reaches(used, WORKER) || (comes_and_goes && reaches(used, WORKER_WITH_SPREAD))).then(|| {
        format!(
            "threads spend {} of their time in send(): X_r × W / T = {} × {} µs / {}",
            percent(used),
            number(reading.records_per_second.unwrap_or(0.0)),
            number(reading.send_micros.unwrap_or(0.0)),
            number(reading.threads.unwrap_or(1.0))
        )
    })
}

fn application(reading: &Reading<'_>, spare: Option<f64>) -> String {
    let rate = reading.records_per_second.unwrap_or(0.0);
    let carried = spare.map_or_else(String::new, |spare| {
        format!(
            "; the producer could carry {} records/s",
            number(rate * spare.max(1.0))
        )
    });
    let bound = match (reading.threads, reading.send_micros) {
        (Some(_), Some(_)) => String::new(),
        (Some(threads), None) if rate > 0.0 => format!(
            "; one send() takes {} µs at most",
            number(latency::send_micros_max(threads, rate))
        ),
        _ if rate > 0.0 => format!(
            "; one send() takes T × {} µs at most: how many threads are there?",
            number(latency::send_micros_max(1.0, rate))
        ),
        _ => String::new(),
    };
    format!(
        "no backlog: the application or its threads limit the rate to {} records/s{carried}{bound}",
        number(rate)
    )
}
