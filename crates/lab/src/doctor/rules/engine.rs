//! The one way from rules to a diagnosis: a table of questions for each role, asked in order; the
//! first rule that matches names the verdict, later matches contribute.
//!
//! What must hold for every diagnosis is checked here and nowhere else ([`finish`]): numbers are
//! finite, a change is not what is set already, no change is recommended and refused at once, and a
//! promise can fail.

use std::mem;

use super::super::diagnosis::{Diagnosis, Evidence, Finding, Promise, Step, Verdict};
use super::super::names::in_librdkafkas_words;
use super::super::snapshot::{Library, Snapshot};
use super::found::Found;
use super::inference;

/// The widest range that is still a promise, and a little less, to which ranges are cut.
const PROMISE_WIDTH_MAX: f64 = 2.0;
pub(crate) const PROMISE_WIDTH: f64 = 1.9;
/// A range counts as better than now from this change on.
const BETTER: f64 = 1.02;

/// What a table of rules is about: producers, or consumers.
pub(crate) trait Subject {
    /// The client's numbers, derived once and read by every rule.
    type Reading<'a>;
}

/// One question of a table.
pub(crate) struct Rule<S: Subject> {
    pub id: &'static str,
    pub question: &'static str,
    pub ask: for<'a, 'b> fn(&'b S::Reading<'a>) -> Found,
}

/// Asks the rules in order and collects what they find.
pub(crate) fn run<'r, S: Subject + 'r>(
    diagnosis: &mut Diagnosis,
    reading: &S::Reading<'_>,
    rules: impl Iterator<Item = &'r Rule<S>>,
) {
    for rule in rules {
        let mut found = (rule.ask)(reading);
        diagnosis.reasoning.push(Step {
            rule: rule.id.into(),
            question: rule.question.into(),
            numbers: mem::take(&mut found.numbers),
            answer: mem::take(&mut found.answer),
        });
        take(diagnosis, found);
    }
}

/// Keeps the first verdict with everything that belongs to it; later findings contribute.
pub(crate) fn take(diagnosis: &mut Diagnosis, found: Found) {
    let is_settled = diagnosis.verdict != Verdict::NotEnoughData;
    let is_first = found.verdict.is_some() && !is_settled;
    if let Some((verdict, confidence)) = found.verdict.filter(|_| is_first) {
        diagnosis.verdict = verdict;
        diagnosis.confidence = confidence;
        diagnosis.summary = found.summary;
        diagnosis.recommendation = found.recommendation;
    }
    // Rules after the verdict that match independently add information; those about the same
    // verdict do not.
    let is_later = found.verdict.filter(|_| !is_first).map(|(verdict, _)| verdict);
    if is_later.is_none_or(|later| is_worth_telling(diagnosis.verdict, later)) {
        diagnosis
            .findings
            .extend(found.findings.into_iter().map(|finding| Finding {
                is_contributing: !is_first,
                ..finding
            }));
        diagnosis.evidence.extend(found.evidence);
    }
    if is_later.is_none() {
        diagnosis.findings.extend(found.contributing);
    }
    // A change that would not help against one bottleneck may help against another: only the
    // verdict's own refusals are kept.
    if is_first || (found.verdict.is_none() && !found.notes.is_empty()) {
        diagnosis.refused.extend(found.refused);
    }
    if is_first || (!is_settled && found.verdict.is_none()) {
        diagnosis.missing.extend(found.missing);
    }
    if is_later.is_none_or(|later| is_worth_telling(diagnosis.verdict, later)) {
        diagnosis.notes.extend(found.notes);
    }
}

/// Verdicts that only say that nothing before them matched add nothing to one that did.
fn is_worth_telling(settled: Verdict, later: Verdict) -> bool {
    let is_rest = matches!(
        later,
        Verdict::KeepsUp | Verdict::CatchingUp | Verdict::SenderRate | Verdict::Application
    );
    // A window, a full link or a hot partition is felt as round trips.
    let is_same = later == Verdict::NetworkRtt
        && matches!(
            settled,
            Verdict::NetworkWindow | Verdict::NetworkBandwidth | Verdict::Skew
        );
    !is_rest && !is_same && settled != Verdict::KeepsUp
}

/// Makes the invariants of a diagnosis true.
pub(crate) fn finish(diagnosis: &mut Diagnosis, snapshot: &Snapshot) {
    diagnosis.evidence.retain(is_finite);
    distinct(&mut diagnosis.evidence, |one, other| one == other);
    // Advice follows from a verdict: a client that has just started has nothing to change.
    if diagnosis.verdict == Verdict::NotEnoughData {
        diagnosis.recommendation = None;
    }
    if diagnosis
        .recommendation
        .as_ref()
        .is_some_and(|change| is_set_already(snapshot, &change.set))
    {
        diagnosis.recommendation = None;
    }
    if let Some(change) = &mut diagnosis.recommendation {
        settle(&mut change.promise);
        let set = &change.set;
        diagnosis.refused.retain(|refusal| !is_named(set, &refusal.set));
    }
    distinct(&mut diagnosis.findings, |one, other| one.id == other.id);
    diagnosis.findings.sort_by_key(|finding| finding.is_contributing);
    distinct(&mut diagnosis.refused, |one, other| one.set == other.set);
    distinct(&mut diagnosis.missing, |one, other| one == other);
    distinct(&mut diagnosis.notes, |one, other| one == other);
    if snapshot.client.library == Library::Librdkafka {
        if let Some(change) = &mut diagnosis.recommendation {
            change.set = in_librdkafkas_words(&change.set);
        }
        for refusal in &mut diagnosis.refused {
            refusal.set = in_librdkafkas_words(&refusal.set).into();
        }
    }
}

/// `batch.size` of `batch.size=32768`; an action in words is its own name.
pub(crate) fn setting_of(set: &str) -> &str {
    set.split('=').next().unwrap_or(set)
}

/// Whether a change is of a setting, or names it in words. A name without a dot is a word too:
/// `fewer partitions` is not what a refusal of `partitions` means.
pub(crate) fn is_named(set: &str, setting: &str) -> bool {
    let is_of_a_name = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '.' | '_');
    let mut words = set.split(|letter| !is_of_a_name(letter));
    setting_of(set) == setting || (setting.contains('.') && words.any(|word| word == setting))
}

/// Whether a recommended value is the client's present one, as far as it is known or assumed.
fn is_set_already(snapshot: &Snapshot, set: &str) -> bool {
    let Some((name, value)) = set.split_once('=') else {
        return false;
    };
    let value: String = value
        .chars()
        .take_while(|character| character.is_ascii_digit() || *character == '.')
        .collect();
    let (Ok(value), Some(present)) = (value.parse::<f64>(), inference::present(snapshot, name)) else {
        return false;
    };
    (value - present).abs() <= 0.005 * present.abs()
}

/// Puts a promise's bounds in order, and says that the effect is unknown where no measurement could
/// break the promise.
fn settle(promise: &mut Promise) {
    promise.now = promise.now.filter(|now| now.is_finite());
    let now = promise.now.unwrap_or(0.0);
    for bound in [&mut promise.low, &mut promise.high] {
        if !bound.is_finite() {
            *bound = now;
        }
    }
    if promise.low > promise.high {
        std::mem::swap(&mut promise.low, &mut promise.high);
    }
    if promise.unknown.is_none() && !can_fail(promise) {
        promise.unknown = Some("how far away the next limit is".to_owned());
    }
}

/// Whether a measurement could break the promise: all of its range is better than now, and it is no
/// wider than a factor of two.
pub(crate) fn can_fail(promise: &Promise) -> bool {
    let (low, high) = (promise.low, promise.high);
    let is_narrow = high <= PROMISE_WIDTH_MAX * low;
    is_narrow
        && promise
            .now
            .is_none_or(|now| low >= BETTER * now || BETTER * high <= now)
}

fn is_finite(line: &Evidence) -> bool {
    line.result.is_finite() && line.symbols.iter().all(|symbol| symbol.value.is_finite())
}

/// Keeps the first of those that are the same.
fn distinct<T>(values: &mut Vec<T>, is_same: impl Fn(&T, &T) -> bool) {
    let all = mem::take(values);
    for value in all {
        if !values.iter().any(|known| is_same(known, &value)) {
            values.push(value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_in_words_names_its_settings() {
        let words = "fewer, larger requests: linger.ms and batch.size; then a larger request quota";
        assert!(is_named(words, "linger.ms") && is_named(words, "batch.size"));
        assert!(is_named("batch.size=32768", "batch.size"));
        assert!(!is_named("socket.send.buffer.bytes=65536", "send.buffer.bytes"));
        assert!(is_named("acks=1", "acks"));
        // Less of what is refused more of.
        assert!(!is_named("fewer partitions for each", "partitions"));
    }
}
