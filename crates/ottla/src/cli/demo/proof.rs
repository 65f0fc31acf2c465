//! The result of an act: the diagnosis, its promise, and the measurement after the change.

use std::fmt;

use ottla_lab::doctor::Diagnosis;
use ottla_lab::doctor::diagnosis::Promise;
use serde_json::json;

/// Evidence lines shown from the beginning (the pipe) and from the end (the cause); `ottla doctor
/// explain` shows all of them.
const EVIDENCE_SHOWN: usize = 2;

/// Relative tolerance: a result within 10 % of the promise keeps it.
const TOLERANCE: f64 = 0.1;

pub struct Proof {
    pub question: String,
    /// The measurement as text: `29971 records/s, 1200.0 ms from send() to the answer`.
    pub before: String,
    pub diagnosis: Diagnosis,
    /// The change as it was applied here.
    pub applied: String,
    pub after: String,
    pub promised: Promise,
    /// The promised figure after the change.
    pub result: f64,
}

impl Proof {
    /// Whether the result is at least as good as promised, within the tolerance.
    pub fn is_kept(&self) -> bool {
        match self.promised.is_better_when_lower() {
            true => self.result <= self.promised.high * (1.0 + TOLERANCE),
            false => self.result >= self.promised.low * (1.0 - TOLERANCE),
        }
    }

    fn judgement(&self) -> &'static str {
        match (
            self.is_kept(),
            self.result > self.promised.high * (1.0 + TOLERANCE),
        ) {
            (false, _) => "NOT KEPT",
            (true, true) if !self.promised.is_better_when_lower() => "kept, and more",
            (true, _) => "kept",
        }
    }
}

trait Direction {
    fn is_better_when_lower(&self) -> bool;
}

impl Direction for Promise {
    fn is_better_when_lower(&self) -> bool {
        // A noisy neighbour is asked to send the same records in fewer requests.
        self.unit == "ms" || self.figure == "requests_per_second"
    }
}

impl fmt::Display for Proof {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let diagnosis = &self.diagnosis;
        writeln!(out, "  {}", self.question)?;
        line(out, "measured", &self.before)?;
        line(out, "doctor", &diagnosis.summary)?;
        let count = diagnosis.evidence.len();
        for (index, evidence) in diagnosis.evidence.iter().enumerate() {
            if index < EVIDENCE_SHOWN || index + EVIDENCE_SHOWN >= count {
                line(out, "", &evidence.to_string())?;
            }
        }
        for refusal in diagnosis.refused.iter().take(2) {
            line(
                out,
                "would not help",
                &format!("{}: {}", refusal.set, refusal.why),
            )?;
        }
        line(out, "change", &self.applied)?;
        line(out, "promise", &promise(&self.promised))?;
        line(out, "measured", &self.after)?;
        line(out, "", &format!("promise {}", self.judgement()))
    }
}

fn line(out: &mut fmt::Formatter<'_>, name: &str, text: &str) -> fmt::Result {
    writeln!(out, "  {name:15} {text}")
}

fn promise(promise: &Promise) -> String {
    match &promise.unknown {
        Some(_) => promise.range(),
        None => format!("{} {}, {}", promise.range(), promise.unit, promise.assumption),
    }
}

/// Returns the JSON document.
///
/// - `proofs`: each with the title of its act.
pub fn json(proofs: &[(&str, Proof)]) -> String {
    let proofs: Vec<_> = (proofs.iter())
        .map(|(title, proof)| {
            json!({
                "title": title,
                "question": proof.question,
                "before": proof.before,
                "diagnosis": proof.diagnosis,
                "applied": proof.applied,
                "after": proof.after,
                "promised": proof.promised,
                "result": proof.result,
                "is_kept": proof.is_kept(),
            })
        })
        .collect();
    let document = json!({ "version": 1, "proofs": proofs });
    serde_json::to_string_pretty(&document).expect("texts and finite numbers")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn proof(figure: &str, unit: &str, low: f64, high: f64, result: f64) -> Proof {
        Proof {
            question: String::from("q"),
            before: String::from("b"),
            diagnosis: Diagnosis::default(),
            applied: String::from("batch.size=1"),
            after: String::from("a"),
            promised: Promise {
                figure: figure.to_owned(),
                now: None,
                low,
                high,
                unit: unit.to_owned(),
                assumption: String::from("at unchanged latency"),
                unknown: None,
            },
            result,
        }
    }

    #[test]
    fn a_rate_keeps_its_promise_from_below_and_a_latency_from_above() {
        let rate = |result| proof("records_per_second", "records/s", 100.0, 200.0, result).judgement();
        assert_eq!(
            [80.0, 95.0, 200.0, 300.0].map(rate),
            ["NOT KEPT", "kept", "kept", "kept, and more"]
        );
        let latency = |result| proof("sender_latency_ms", "ms", 10.0, 20.0, result).judgement();
        assert_eq!([5.0, 20.0, 30.0].map(latency), ["kept", "kept", "NOT KEPT"]);
        let requests =
            |result| proof("requests_per_second", "requests/s", 100.0, 1_200.0, result).judgement();
        assert_eq!(
            [50.0, 1_200.0, 9_000.0].map(requests),
            ["kept", "kept", "NOT KEPT"]
        );
    }

    #[test]
    fn a_proof_names_its_promise_and_its_result() {
        let text = proof("records_per_second", "records/s", 40_000.0, 40_000.0, 39_000.0).to_string();
        assert!(
            text.contains("promise         40,000 records/s, at unchanged latency"),
            "{text}"
        );
        assert!(text.contains("promise kept"), "{text}");
        let document: serde_json::Value =
            serde_json::from_str(&json(&[("t", proof("x", "u", 1.0, 2.0, 3.0))])).unwrap();
        assert_eq!(document["proofs"][0]["title"], "t");
        assert_eq!(document["proofs"][0]["is_kept"], true);
        assert_eq!(document["proofs"][0]["promised"]["high"], 2.0);
    }
}
