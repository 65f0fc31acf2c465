//! The result of one rule.

use super::super::diagnosis::{
    Confidence, Evidence, Finding, FindingId, Promise, Recommendation, Refusal, Verdict, Words,
};
use super::super::used::UsedNumbers;

/// A rule's answer, with everything that it adds to the diagnosis.
#[derive(Clone, Debug, Default)]
pub struct Found {
    pub numbers: UsedNumbers,
    pub answer: Words,
    /// The rule matches: this is what limits the client.
    pub verdict: Option<(Verdict, Confidence)>,
    pub summary: String,
    /// The verdict's own findings; contributing where there is no verdict.
    pub findings: Vec<Finding>,
    /// Findings that contribute whether or not the verdict is this one.
    pub contributing: Vec<Finding>,
    pub evidence: Vec<Evidence>,
    pub recommendation: Option<Recommendation>,
    pub refused: Vec<Refusal>,
    pub missing: Vec<String>,
    pub notes: Vec<String>,
}

impl Found {
    /// The result of a test that does not match.
    pub fn nothing(numbers: impl Into<UsedNumbers>, answer: impl Into<Words>) -> Found {
        Found {
            numbers: numbers.into(),
            answer: answer.into(),
            ..Found::default()
        }
    }

    /// The result of a test that matches; the answer is the summary.
    pub fn verdict(
        numbers: impl Into<UsedNumbers>,
        verdict: Verdict,
        confidence: Confidence,
        summary: String,
    ) -> Found {
        Found {
            numbers: numbers.into(),
            answer: summary.clone().into(),
            verdict: Some((verdict, confidence)),
            summary,
            ..Found::default()
        }
    }

    #[must_use]
    pub fn finding(mut self, id: FindingId, text: impl Into<String>) -> Found {
        self.findings.push(Finding {
            id,
            text: text.into(),
            is_contributing: false,
        });
        self
    }

    /// Lowers the confidence in the verdict to this at most.
    #[must_use]
    pub fn no_surer_than(mut self, most: Confidence) -> Found {
        let verdict = self.verdict;
        self.verdict = verdict.map(|(verdict, confidence)| (verdict, confidence.min(most)));
        self
    }

    /// Adds a finding that only contributes to the verdict.
    #[must_use]
    pub fn contributing(mut self, finding: impl IntoIterator<Item = Finding>) -> Found {
        self.contributing
            .extend(finding.into_iter().map(|finding| Finding {
                is_contributing: true,
                ..finding
            }));
        self
    }

    #[must_use]
    pub fn evidence(mut self, lines: impl IntoIterator<Item = Evidence>) -> Found {
        self.evidence.extend(lines);
        self
    }

    #[must_use]
    pub fn recommend(mut self, recommendation: Option<Recommendation>) -> Found {
        self.recommendation = recommendation;
        self
    }

    #[must_use]
    pub fn refuse(mut self, set: impl Into<Words>, why: impl Into<Words>) -> Found {
        self.refused.push(Refusal {
            set: set.into(),
            why: why.into(),
        });
        self
    }

    /// Adds refusals that were written elsewhere.
    #[must_use]
    pub fn refusals(mut self, refusals: impl IntoIterator<Item = Refusal>) -> Found {
        self.refused.extend(refusals);
        self
    }

    #[must_use]
    pub fn missing(mut self, what: impl Into<String>) -> Found {
        self.missing.push(what.into());
        self
    }

    #[must_use]
    pub fn note(mut self, text: impl Into<String>) -> Found {
        self.notes.push(text.into());
        self
    }
}

/// A promise with its bounds in order.
pub fn promise(figure: &str, now: Option<f64>, bounds: (f64, f64), unit: &str, assumption: &str) -> Promise {
    Promise {
        figure: figure.to_owned(),
        now,
        low: bounds.0.min(bounds.1),
        high: bounds.0.max(bounds.1),
        unit: unit.to_owned(),
        assumption: assumption.to_owned(),
        unknown: None,
    }
}

/// Returns `name 12.6 unit`, or that the value is not known.
pub fn known(name: &str, value: Option<f64>, unit: &str) -> String {
    match value {
        Some(value) if unit.is_empty() => format!("{name} {}", crate::numbers::number(value)),
        Some(value) => format!("{name} {} {unit}", crate::numbers::number(value)),
        None => format!("{name} unknown"),
    }
}
