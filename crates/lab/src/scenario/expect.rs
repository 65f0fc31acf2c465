//! What must hold: sentences such as `latency_p99_ms < 20`, parsed before a run and judged after
//! it.

use std::collections::BTreeMap;
use std::fmt;

use super::error::hint;
use crate::numbers::number;
use crate::report::Expectation;

/// All numbers that a measurement may have, with descriptions.
pub const FIGURES: &[(&str, &str)] = &[
    ("records_per_second", "acknowledged; without producers: received"),
    ("mib_per_second", "keys and values of those records"),
    ("requests_per_second", "all requests of all producers"),
    (
        "latency_p50_ms",
        "from the intended time to the answer; only with a rate",
    ),
    ("latency_p95_ms", "as above"),
    ("latency_p99_ms", "as above"),
    ("latency_p99_9_ms", "as above"),
    ("latency_max_ms", "as above, the slowest record"),
    ("service_p50_ms", "from the actual send to the answer"),
    ("service_p95_ms", "as above"),
    ("service_p99_ms", "as above"),
    ("service_p99_9_ms", "as above"),
    ("service_max_ms", "as above, the slowest record"),
    (
        "sender_latency_ms",
        "mean time from the append of a record to its answer",
    ),
    ("send_micros", "mean time inside `send()`"),
    ("queue_ms", "mean time that a batch waits before it is sent"),
    ("request_latency_ms", "mean time from a request to its answer"),
    ("batch_bytes", "mean size of a batch"),
    ("request_bytes", "mean size of a request"),
    ("records_per_request", "mean count"),
    ("compression_rate", "compressed over uncompressed size"),
    (
        "in_flight_use",
        "mean requests under way over what the settings allow",
    ),
    (
        "end_to_end_p50_ms",
        "from the intended time to the consumer; only with a rate",
    ),
    ("end_to_end_p95_ms", "as above"),
    ("end_to_end_p99_ms", "as above"),
    ("end_to_end_p99_9_ms", "as above"),
    ("end_to_end_max_ms", "as above, the slowest record"),
    (
        "received_per_second",
        "records that consumers received, all groups together",
    ),
    (
        "answered_per_second",
        "requests of `requests` groups that were answered",
    ),
    (
        "answer_p99_ms",
        "from the intended time of such a request to its answer, with a rate; else from its sending",
    ),
    (
        "broker_read_mib_per_second",
        "what the broker read from the disk; only with its process id",
    ),
    (
        "cpu_seconds_per_million",
        "processor time of the generator per million records",
    ),
    (
        "broker_cpu_seconds_per_million",
        "processor time of the broker per million records",
    ),
    ("failed", "records that were sent and not acknowledged"),
    ("lost", "acknowledged records that a reader did not receive"),
    ("duplicated", "records that a reader received twice"),
    ("disordered", "records that a reader received out of order"),
    ("errors", "records and fetches that failed"),
];

/// A figure, a comparison and a number; or a number times the same figure of another point.
#[derive(Clone, Debug, PartialEq)]
pub struct Sentence {
    pub figure: String,
    pub comparison: Comparison,
    pub limit: f64,
    /// `alone` in `latency_p99_ms <= 1.2 * alone`.
    pub of_point: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Comparison {
    Below,
    AtMost,
    Above,
    AtLeast,
    Equal,
    Unequal,
}

/// Longer signs first, so that `<=` is not read as `<`.
const SIGNS: [(&str, Comparison); 6] = [
    ("<=", Comparison::AtMost),
    (">=", Comparison::AtLeast),
    ("==", Comparison::Equal),
    ("!=", Comparison::Unequal),
    ("<", Comparison::Below),
    (">", Comparison::Above),
];

/// Parses a sentence.
///
/// - Errors: what is wrong, in words; for a misspelled figure with the nearest one.
pub fn parse(text: &str) -> Result<Sentence, String> {
    let found = SIGNS
        .iter()
        .find_map(|(sign, comparison)| Some((text.split_once(sign)?, *comparison)));
    let Some(((figure, limit), comparison)) = found else {
        return Err(format!(
            "`{text}` is not a figure, one of < <= > >= == != and a number"
        ));
    };
    let (limit, of_point) = match limit.split_once('*') {
        Some((factor, point)) => (factor, Some(point.trim().to_owned())),
        None => (limit, None),
    };
    let (figure, limit) = (figure.trim(), limit.trim());
    check_figure(figure)?;
    let parsed: f64 = match limit.replace('_', "").parse() {
        Ok(number) if f64::is_finite(number) => number,
        _ => return Err(format!("`{limit}` in `{text}` is not a number")),
    };
    Ok(Sentence {
        figure: figure.to_owned(),
        comparison,
        limit: parsed,
        of_point,
    })
}

/// - Errors: no measurement ever has this figure.
pub fn check_figure(name: &str) -> Result<(), String> {
    if FIGURES.iter().any(|(known, _)| *known == name) {
        return Ok(());
    }
    let near = hint(name, FIGURES.iter().map(|(known, _)| *known));
    Err(format!("`{name}` is not a figure of a measurement{near}"))
}

impl Sentence {
    /// Whether the sentence holds.
    ///
    /// - `elsewhere`: the same figure of the point that the sentence names, if it names one.
    /// - Errors: the figure was not measured: a latency without a rate, a loss without a reader.
    pub fn judge(
        &self,
        figures: &BTreeMap<String, f64>,
        elsewhere: Option<f64>,
    ) -> Result<Expectation, String> {
        let Some(measured) = figures.get(&self.figure).copied().filter(|value| !value.is_nan()) else {
            return Err(format!(
                "`{self}` cannot be judged: {} was not measured",
                self.figure
            ));
        };
        let (text, limit) = match (&self.of_point, elsewhere) {
            (None, _) => (self.to_string(), self.limit),
            (Some(_), Some(other)) => (
                format!("{self} ({})", number(self.limit * other)),
                self.limit * other,
            ),
            (Some(point), None) => {
                return Err(format!(
                    "`{self}` cannot be judged: {} was not measured at {point}",
                    self.figure
                ));
            }
        };
        Ok(Expectation {
            text,
            measured,
            holds: self.comparison.holds(measured, limit),
        })
    }
}

impl Comparison {
    fn holds(self, measured: f64, limit: f64) -> bool {
        match self {
            Comparison::Below => measured < limit,
            Comparison::AtMost => measured <= limit,
            Comparison::Above => measured > limit,
            Comparison::AtLeast => measured >= limit,
            Comparison::Equal => measured == limit,
            Comparison::Unequal => measured != limit,
        }
    }
}

impl fmt::Display for Sentence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = SIGNS
            .iter()
            .find(|(_, comparison)| *comparison == self.comparison);
        let (sign, _) = sign.expect("every comparison has a sign");
        write!(f, "{} {sign} {}", self.figure, self.limit)?;
        match &self.of_point {
            Some(point) => write!(f, " * {point}"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, measured: f64, holds: bool) {
        let sentence = parse(text).unwrap();
        let figures = BTreeMap::from([(sentence.figure.clone(), measured)]);
        let expectation = sentence.judge(&figures, None).unwrap();
        assert_eq!(
            (expectation.holds, expectation.measured),
            (holds, measured),
            "{text}"
        );
    }

    #[test]
    fn sentences_are_judged() {
        check("latency_p99_ms < 20", 19.9, true);
        check("latency_p99_ms<20", 20.0, false);
        check("latency_p99_ms <= 20", 20.0, true);
        check("records_per_second >= 100_000", 99_999.0, false);
        check("records_per_second > 1e5", 100_001.0, true);
        check("lost == 0", 0.0, true);
        check("errors != 0", 0.0, false);
    }

    #[test]
    fn a_point_is_compared_with_another() {
        let sentence = parse("latency_p99_ms <= 1.2 * alone").unwrap();
        assert_eq!(sentence.of_point.as_deref(), Some("alone"));
        let figures = BTreeMap::from([(String::from("latency_p99_ms"), 11.9)]);
        let judged = sentence.judge(&figures, Some(10.0)).unwrap();
        assert!(judged.holds);
        assert_eq!(judged.text, "latency_p99_ms <= 1.2 * alone (12)");
        assert!(!sentence.judge(&figures, Some(9.0)).unwrap().holds);
        assert_eq!(
            sentence.judge(&figures, None).unwrap_err(),
            "`latency_p99_ms <= 1.2 * alone` cannot be judged: latency_p99_ms was not measured at alone"
        );
    }

    #[test]
    fn a_figure_that_was_not_measured_is_not_zero() {
        let sentence = parse("lost == 0").unwrap();
        assert_eq!(
            sentence.judge(&BTreeMap::new(), None).unwrap_err(),
            "`lost == 0` cannot be judged: lost was not measured"
        );
    }

    #[test]
    fn text_that_is_no_sentence_is_refused() {
        let why = |text| parse(text).unwrap_err();
        assert!(
            why("latency_p99 < 20").ends_with("not a figure of a measurement; latency_p99_ms may be meant")
        );
        assert!(why("lost").contains("< <= > >= == !="));
        assert!(why("lost == none").contains("`none` in `lost == none` is not a number"));
        assert!(why("lost < NaN").contains("not a number"));
    }
}
