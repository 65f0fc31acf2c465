//! Tenants: another client of the same brokers that takes their time.

use super::super::diagnosis::{Evidence, Finding, FindingId, Promise, Recommendation, Refusal};
use super::super::snapshot::{Neighbour, Snapshot};
use super::broker;
use crate::formulas::queueing::{utilisation_without, wait_factor};
use crate::numbers::{number, percent};

/// Shares of all threads' time vary by this much from minute to minute.
pub const GROWTH_MIN: f64 = 0.05;

/// The affected client's D over its own median of the last hour.
const VICTIM_GROWTH_MIN: f64 = 2.0;

/// The share of a tenant's requests that larger batches save: ten records in a request instead of
/// one.
const REMOVED_SHARE: f64 = 0.9;

/// A tenant that is to blame, with the gain from limiting it.
#[derive(Clone, Debug, PartialEq)]
pub struct Judgement {
    pub finding: Finding,
    pub evidence: Vec<Evidence>,
    pub recommendation: Recommendation,
    pub refused: Vec<Refusal>,
    pub missing: Vec<String>,
}

/// Returns T1 if another client is to blame.
pub fn blame(snapshot: &Snapshot) -> Option<Finding> {
    judge(snapshot).map(|judgement| judgement.finding)
}

/// The other clients by the time that they take of the brokers' threads, most first: the scarce
/// resource is time, not bytes.
pub fn rank(neighbours: &[Neighbour]) -> Vec<&Neighbour> {
    let mut ranked: Vec<&Neighbour> = neighbours
        .iter()
        .filter(|neighbour| neighbour.time_share.is_finite())
        .collect();
    ranked.sort_by(|one, other| {
        other
            .time_share
            .total_cmp(&one.time_share)
            .then_with(|| one.client_id.cmp(&other.client_id))
    });
    ranked
}

/// T1 Does another client take the brokers' time?
///
/// A client costs handler and network thread time; its share is that cost over all threads' time.
/// It is to blame when this client is affected, and when its own cost grew in the same window by
/// more than half of the total growth. The danger is many small requests, not many bytes.
///
/// - Numbers: this client's D over its own median of the last hour; every neighbour's share of
///   time, now and before; idle shares of the brokers' threads, and Kingman's factor on what would
///   be freed (F24).
/// - Thresholds: D doubled; more than half of the total growth, and at least 0.05 of all threads'
///   time.
/// - Says: "client X of user Y takes 41 % of request time with 18,200 requests/s of 3 records each;
///   before it took 6 %. Removing 90 % of its requests lowers utilisation 0.92 -> 0.55, queueing
///   factor 11.5 -> 1.2."
/// - Source: LINE talk (more than 50 systems on one cluster; a default request quota for every
///   client).
pub fn judge(snapshot: &Snapshot) -> Option<Judgement> {
    let growth = |neighbour: &Neighbour| {
        neighbour
            .time_share_before
            .map(|before| (neighbour.time_share - before).max(0.0))
    };
    let suffers = snapshot
        .neighbours
        .iter()
        .filter_map(|neighbour| neighbour.victim_growth)
        .any(|victim| victim > VICTIM_GROWTH_MIN);
    if !suffers {
        return None;
    }
    let ranked = rank(&snapshot.neighbours);
    let total: f64 = ranked.iter().filter_map(|neighbour| growth(neighbour)).sum();
    let culprit = ranked.into_iter().find(|neighbour| {
        growth(neighbour).is_some_and(|grown| grown >= GROWTH_MIN && grown > total / 2.0)
    })?;
    Some(judgement(snapshot, culprit))
}

fn judgement(snapshot: &Snapshot, culprit: &Neighbour) -> Judgement {
    let utilisation = snapshot
        .brokers
        .iter()
        .filter_map(broker::utilisation)
        .reduce(f64::max)
        .filter(|rho| *rho < 1.0);
    let mut text = sentence(culprit);
    let mut evidence = vec![
        Evidence::new(
            "T1",
            "growth",
            "share - before",
            culprit.time_share - culprit.time_share_before.unwrap_or(0.0),
            "of request time",
        )
        .measured("share", culprit.time_share, "")
        .measured("before", culprit.time_share_before.unwrap_or(0.0), ""),
    ];
    let mut missing = Vec::new();
    let (now, after) = match utilisation {
        Some(rho) => {
            let freed = utilisation_without(rho, REMOVED_SHARE, culprit.time_share);
            let (now, after) = (wait_factor(rho), wait_factor(freed));
            text.push_str(&format!(
                ". Removing 90 % of its requests lowers utilisation {} -> {}, queueing factor {} -> {}",
                number((rho * 100.0).round() / 100.0),
                number((freed * 100.0).round() / 100.0),
                number(now),
                number(after)
            ));
            evidence.push(
                Evidence::new("F24", "rho'", "rho - removed * share", freed, "")
                    .measured("rho", rho, "")
                    .with("removed", REMOVED_SHARE, "", "assumed")
                    .measured("share", culprit.time_share, ""),
            );
            evidence.push(
                Evidence::new("F24", "wait", "rho' / (1 - rho')", after, "service times").with(
                    "rho'",
                    freed,
                    "",
                    "worked out",
                ),
            );
            (Some(now), after)
        }
        None => {
            missing.push(String::from(
                "idle shares of the brokers' threads: without them no gain can be promised",
            ));
            (None, 0.0)
        }
    };
    Judgement {
        finding: Finding {
            id: FindingId::T1,
            text,
            is_contributing: true,
        },
        evidence,
        recommendation: recommendation(culprit, now, after),
        refused: vec![Refusal {
            set: "settings of this client".into(),
            why: "its requests wait behind another client's; larger batches here change little".into(),
        }],
        missing,
    }
}

/// For example: client X of user Y takes 41 % of request time with 18,200 requests/s of 3 records
/// each; before it took 6 %.
fn sentence(culprit: &Neighbour) -> String {
    let mut text = format!("client {}", culprit.client_id);
    if let Some(user) = &culprit.principal {
        text.push_str(&format!(" of user {user}"));
    }
    if let Some(group) = &culprit.group_id {
        text.push_str(&format!(" (group {group})"));
    }
    text.push_str(&format!(" takes {} of request time", percent(culprit.time_share)));
    if let Some(requests) = culprit.requests_per_second {
        text.push_str(&format!(" with {} requests/s", number(requests)));
        if let Some(records) = culprit.records_per_request {
            text.push_str(&format!(" of {} records each", number(records)));
        }
    }
    if let Some(before) = culprit.time_share_before {
        text.push_str(&format!("; before it took {}", percent(before)));
    }
    text
}

fn recommendation(culprit: &Neighbour, now: Option<f64>, after: f64) -> Recommendation {
    Recommendation {
        set: format!(
            "a request quota (request_percentage) for client {}, larger batches there",
            culprit.client_id
        ),
        why: String::from(
            "requests, not bytes, take the threads' time; a quota for everybody keeps the next one away",
        ),
        promise: Promise {
            figure: String::from("queueing_factor"),
            now,
            low: after,
            // Nothing is gained where it cannot send fewer requests.
            high: now.unwrap_or(after),
            unit: String::from("service times"),
            assumption: String::from("90 % of its requests go, the others' stay as they are"),
            unknown: None,
        },
        next_ceiling: String::from("the threads' utilisation by all the others"),
        cost: String::from("that client is slowed down until it batches"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::snapshot::BrokerSide;
    use crate::formulas::tables::within;

    fn neighbour(client_id: &str, time_share: f64, before: f64) -> Neighbour {
        Neighbour {
            client_id: client_id.to_owned(),
            time_share,
            time_share_before: Some(before),
            victim_growth: Some(3.0),
            ..Neighbour::default()
        }
    }

    fn shared(neighbours: Vec<Neighbour>) -> Snapshot {
        Snapshot {
            neighbours,
            brokers: vec![BrokerSide {
                handler_idle: Some(0.08),
                network_idle: Some(0.4),
                ..BrokerSide::default()
            }],
            ..Snapshot::default()
        }
    }

    #[test]
    fn the_talk_s_sentence() {
        let heavy = Neighbour {
            principal: Some(String::from("Y")),
            requests_per_second: Some(18_200.0),
            records_per_request: Some(3.0),
            ..neighbour("X", 0.41, 0.06)
        };
        let judged = judge(&shared(vec![neighbour("quiet", 0.2, 0.19), heavy])).unwrap();
        assert_eq!(
            judged.finding.text,
            "client X of user Y takes 41 % of request time with 18,200 requests/s of 3 records each; before it took 6 %. \
             Removing 90 % of its requests lowers utilisation 0.92 -> 0.55, queueing factor 11.5 -> 1.23"
        );
        within(judged.recommendation.promise.low, 1.2, 3.0);
        within(judged.recommendation.promise.now.unwrap(), 11.5, 1.0);
    }

    #[test]
    fn requests_rank_not_bytes() {
        let neighbours = [neighbour("bytes", 0.1, 0.1), neighbour("requests", 0.3, 0.3)];
        assert_eq!(rank(&neighbours)[0].client_id, "requests");
    }

    #[test]
    fn no_client_is_blamed_that_did_not_change_or_hurt() {
        // As heavy as before.
        assert_eq!(blame(&shared(vec![neighbour("X", 0.41, 0.40)])), None);
        // Two that grew alike: neither has more than half of the growth.
        assert_eq!(
            blame(&shared(vec![neighbour("X", 0.3, 0.1), neighbour("Y", 0.3, 0.1)])),
            None
        );
        // No client is affected.
        let calm = Neighbour {
            victim_growth: Some(1.2),
            ..neighbour("X", 0.41, 0.06)
        };
        assert_eq!(blame(&shared(vec![calm])), None);
        // Without its earlier share, no growth is known.
        let unknown = Neighbour {
            time_share_before: None,
            ..neighbour("X", 0.41, 0.0)
        };
        assert_eq!(blame(&shared(vec![unknown])), None);
    }
}
