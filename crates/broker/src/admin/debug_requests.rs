//! `GET /debug/requests`: the slowest requests of the last minute, and where the time of each API
//! and client went.

use ottla_core::time::{Moment, Timestamp};
use serde_json::{Map, Value, json};

use crate::metrics::recorder::{ApiRecords, ClientRecords, SlowRequest, Totals};
use crate::metrics::stage::{Stage, StageTimes};

/// The version of the document; raised when a field changes its meaning.
const VERSION: u32 = 1;

/// How many of the slowest requests are shown.
const SLOWEST_MAX: usize = 100;

/// Renders the document. All times are in microseconds; `now` is the same moment on both clocks.
pub fn render(totals: &Totals, now: (Moment, Timestamp)) -> String {
    let slowest: Vec<Value> = totals
        .slowest
        .iter()
        .take(SLOWEST_MAX)
        .map(|slow| slow_request(slow, now))
        .collect();
    let apis: Map<String, Value> = totals
        .apis
        .iter()
        .map(|(api_key, records)| (api_key.name().to_owned(), api(records)))
        .collect();
    let clients: Map<String, Value> = totals
        .clients
        .iter()
        .map(|(name, records)| (name.to_string(), client(records)))
        .collect();
    let document = json!({
        "version": VERSION,
        "unit": "microseconds",
        "stages": Stage::ALL.map(Stage::name),
        "slowest_of_last_minute": slowest,
        "apis": apis,
        "clients": clients,
    });
    format!("{document:#}\n")
}

fn slow_request(slow: &SlowRequest, (now, wall_clock): (Moment, Timestamp)) -> Value {
    let request = &slow.request;
    let age_ms = (now.micros_since(request.finished) / 1_000) as i64;
    json!({
        "api": request.api_key.name(),
        "api_version": request.api_version,
        "client_id": &*slow.client_id,
        "principal": &*slow.principal,
        "tls": slow.spoken.map(|spoken| spoken.to_string()),
        "connection_id": request.connection_id,
        "correlation_id": request.correlation_id,
        "finished_at_ms": wall_clock.0 - age_ms,
        "request_bytes": request.request_bytes,
        "reply_bytes": request.reply_bytes,
        "total": request.times.total(),
        "own": request.times.own_time(),
        "dominated_by": request.times.dominant().name(),
        "stages": stages(&request.times),
    })
}

fn stages(times: &StageTimes) -> Value {
    Stage::ALL
        .iter()
        .map(|stage| (stage.name().to_owned(), json!(times.get(*stage))))
        .collect::<Map<_, _>>()
        .into()
}

fn api(records: &ApiRecords) -> Value {
    let quantiles = |histogram: &crate::metrics::histogram::Histogram| {
        json!({
            "p50": histogram.quantile(0.5),
            "p99": histogram.quantile(0.99),
            "p999": histogram.quantile(0.999),
            "max": histogram.max(),
            "sum": histogram.sum(),
        })
    };
    let stages: Map<String, Value> = Stage::ALL
        .iter()
        .filter(|stage| records.stages[**stage as usize].sum() > 0)
        .map(|stage| {
            (
                stage.name().to_owned(),
                quantiles(&records.stages[*stage as usize]),
            )
        })
        .collect();
    json!({
        "count": records.count,
        "request_bytes": records.request_bytes,
        "reply_bytes": records.reply_bytes,
        "total": quantiles(&records.total),
        "stages": stages,
    })
}

fn client(records: &ClientRecords) -> Value {
    let apis: Map<String, Value> = records
        .apis
        .iter()
        .map(|(api_key, api)| {
            let stages: Map<String, Value> = Stage::ALL
                .iter()
                .filter(|stage| api.stage_micros[**stage as usize] > 0)
                .map(|stage| (stage.name().to_owned(), json!(api.stage_micros[*stage as usize])))
                .collect();
            let value = json!({
                "count": api.count,
                "total_sum": api.total_micros,
                "total_max": api.max_micros,
                "stage_sums": stages,
            });
            (api_key.name().to_owned(), value)
        })
        .collect();
    json!({
        "total_p50": records.total.quantile(0.5),
        "total_p99": records.total.quantile(0.99),
        "apis": apis,
    })
}
