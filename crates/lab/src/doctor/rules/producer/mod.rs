//! The producer's decision tree, S0 to S6: the first match is the bottleneck, others contribute.
//!
//! Evaluated for each producer instance over one window: the last complete 60 s, or the last three
//! pushes if they span more. Every step is one pure function that prints the numbers it used.
//!
//! S0 evidence → S1 failing → S2 throttled → S3 backlog → (yes) S4 pipe → S5 what of | (no) S6
//! limit.

mod silent;
mod missing;
mod checks;
mod throttled;
mod thread_levers;
mod sums;
mod refusals;
mod limit;
mod contention;
mod pipes;
mod network_levers;
mod levers;
mod broker_levers;
mod promise;
mod pipe;
mod failing;
mod cause;
mod backlog;
mod evidence;
pub(crate) mod reading;

#[cfg(test)]
mod tests;

use crate::doctor::diagnosis::{Diagnosis, Finding, FindingId, Recommendation, Refusal, Step, Verdict};
use crate::doctor::snapshot::Snapshot;

use super::{broker, tenant};
use backlog::Backlog;
use cause::Cause;
use evidence::Evidence;
use failing::Failing;
use levers::Case;
use pipe::Fullness;
use reading::Reading;
use throttled::Throttle;

/// A verdict and what led to it, before evidence, recommendation and refusals are added.
struct Found {
    verdict: Verdict,
    finding: Option<Finding>,
    text: String,
    contributing: Vec<Finding>,
    doubts: Vec<String>,
    backlog: Backlog,
    spare: Option<f64>,
}

/// Diagnoses one producer.
///
/// - Shape: any snapshot; numbers that are negative or not finite count as missing.
pub fn diagnose(snapshot: &Snapshot) -> Diagnosis {
    let reading = Reading::of(snapshot);
    let mut reasoning = Vec::new();
    let (evidence, step) = evidence::judge(&reading);
    reasoning.push(step);
    let (failing, step) = failing::judge(&reading);
    reasoning.push(step);
    let (throttle, step) = throttled::judge(&reading);
    reasoning.push(step);
    let found = match evidence {
        Evidence::TooLittle(words) => too_little(&reading, words, throttle.as_ref()),
        Evidence::Silent => silent(&reading, throttle.as_ref(), &mut reasoning),
        Evidence::Enough => judge(&reading, &failing, throttle.as_ref(), &mut reasoning),
    };
    write(&reading, found, &failing, throttle.as_ref(), reasoning)
}

/// Runs S3 to S6.
fn judge(
    reading: &Reading<'_>,
    failing: &Failing,
    throttle: Option<&Throttle>,
    reasoning: &mut Vec<Step>,
) -> Found {
    let (backlog, step) = backlog::judge(reading);
    reasoning.push(step);
    let is_satisfied = backlog == Backlog::Soft && reading.is_offer_met() == Some(true);
    let mut found = if backlog == Backlog::None || is_satisfied {
        without_backlog(reading, backlog, reasoning)
    } else {
        with_backlog(reading, backlog, failing, reasoning)
    };
    if let Some(throttle) = throttle {
        found = overruled(found, Verdict::Quota, throttle.finding.clone());
        // The throttle explains what S4 left unexplained.
        found.doubts.clear();
    }
    if !matches!(found.verdict, Verdict::SmallRequests | Verdict::Synchronous) {
        found
            .contributing
            .extend(limit::small_requests(reading).map(|text| Finding {
                id: FindingId::B1,
                text,
                is_contributing: true,
            }));
    }
    found
}

/// Turns a later step's verdict into a contributing finding of an earlier match.
fn overruled(mut found: Found, verdict: Verdict, finding: Finding) -> Found {
    found
        .contributing
        .extend(found.finding.take().filter(|later| later.id != FindingId::O2));
    found.verdict = verdict;
    found.text.clone_from(&finding.text);
    found.finding = Some(finding);
    found
}

fn with_backlog(
    reading: &Reading<'_>,
    backlog: Backlog,
    failing: &Failing,
    reasoning: &mut Vec<Step>,
) -> Found {
    let (fullness, step) = pipe::judge(reading, backlog, failing);
    reasoning.push(step);
    let mut found = match fullness {
        Fullness::Near if limit::worker_use(reading).is_some_and(|used| reading::reaches(used, 0.8)) => {
            without_backlog(reading, backlog, reasoning)
        }
        Fullness::Full | Fullness::Near => of_cause(reading, backlog, reasoning),
        Fullness::Skewed(finding) => overruled(of_cause(reading, backlog, reasoning), Verdict::Skew, finding),
        Fullness::ThreadBusy => busy_thread(reading, backlog),
        Fullness::NotThePipe => without_backlog(reading, backlog, reasoning),
        Fullness::Blocked(words) => blocked(backlog, failing, &words),
    };
    if backlog == Backlog::Soft && refusals::is_of_pipe(found.verdict) {
        let load = reading.load().map_or_else(String::new, |load| {
            format!(" (Z = {})", crate::numbers::percent(load))
        });
        found.text = format!("near its ceiling{load}, latency already rises: {}", found.text);
    }
    let is_worker_too = backlog == Backlog::Soft
        && refusals::is_of_pipe(found.verdict)
        && limit::worker_use(reading).is_some_and(|used| reading::reaches(used, 0.8));
    if is_worker_too {
        let used = limit::worker_use(reading).unwrap_or(1.0);
        let text = format!(
            "the sending threads are {} busy in send() as well",
            crate::numbers::percent(used)
        );
        found.contributing.push(contention::finding(reading, &text));
    }
    found
}

fn of_cause(reading: &Reading<'_>, backlog: Backlog, reasoning: &mut Vec<Step>) -> Found {
    let (cause, step) = cause::judge(reading);
    reasoning.push(step);
    from_cause(reading, cause, backlog)
}

fn from_cause(reading: &Reading<'_>, cause: Cause, backlog: Backlog) -> Found {
    let finding = finding_of(reading, &cause);
    Found {
        verdict: cause.verdict,
        finding,
        text: cause.text,
        contributing: Vec::new(),
        doubts: cause.doubt.into_iter().collect(),
        backlog,
        spare: None,
    }
}

/// The finding that names a cause: for the broker by the parts of D, for the sender by how full its
/// batches are.
fn finding_of(reading: &Reading<'_>, cause: &Cause) -> Option<Finding> {
    let of = |id: FindingId| {
        Some(Finding {
            id,
            text: cause.text.clone(),
            is_contributing: false,
        })
    };
    match (cause.verdict, cause.finding) {
        (Verdict::Broker, _) => {
            let pipe = reading.hottest()?;
            broker_levers::recompresses(reading, pipe)
                .or_else(|| broker::blame(&pipe.broker.as_ref()?.side))
                .map(|finding| Finding {
                    is_contributing: false,
                    ..finding
                })
        }
        (_, Some(id)) => of(id),
        (Verdict::SenderRate, None) => {
            let fill = reading.fill()?;
            if reading::reaches(fill, 0.85) {
                return of(FindingId::N2);
            }
            (fill < 0.5).then(|| of(FindingId::N3)).flatten()
        }
        _ => None,
    }
}

fn busy_thread(reading: &Reading<'_>, backlog: Backlog) -> Found {
    let text = sums::busy_thread(reading);
    Found {
        verdict: Verdict::SenderThread,
        finding: Some(Finding {
            id: FindingId::N1,
            text: text.clone(),
            is_contributing: false,
        }),
        text,
        contributing: Vec::new(),
        doubts: Vec::new(),
        backlog,
        spare: None,
    }
}

/// A hard backlog, a pipe with room and an idle thread: broker errors, or SENDER_RATE with the
/// cause as far as S4 can name it.
fn blocked(backlog: Backlog, failing: &Failing, words: &str) -> Found {
    let is_broker = failing.has_retries && !failing.errors.is_empty();
    let verdict = if is_broker {
        Verdict::Broker
    } else {
        Verdict::SenderRate
    };
    Found {
        verdict,
        finding: None,
        text: format!("batches wait although the pipe has room: {words}"),
        contributing: Vec::new(),
        doubts: vec!["what holds the batches is not measured".to_owned()],
        backlog,
        spare: None,
    }
}

fn without_backlog(reading: &Reading<'_>, backlog: Backlog, reasoning: &mut Vec<Step>) -> Found {
    let (limit, step) = limit::judge(reading, backlog);
    reasoning.push(step);
    let finding = match limit.verdict {
        Verdict::Worker => Some(contention::finding(reading, &limit.text)),
        _ => limit.finding.map(|id| Finding {
            id,
            text: limit.text.clone(),
            is_contributing: false,
        }),
    };
    let is_worker = limit.verdict == Verdict::Worker;
    Found {
        verdict: limit.verdict,
        finding,
        text: limit.text,
        contributing: contention::slow_codec(reading)
            .into_iter()
            .filter(|_| is_worker)
            .collect(),
        doubts: Vec::new(),
        backlog,
        spare: limit.spare,
    }
}

/// S0 failed: only the broker's part is reported, as contributing findings. A quota is certain even
/// without telemetry.
fn too_little(reading: &Reading<'_>, words: String, throttle: Option<&Throttle>) -> Found {
    let found = Found {
        verdict: Verdict::NotEnoughData,
        finding: None,
        text: words,
        contributing: reading
            .nodes
            .iter()
            .filter_map(|pipe| broker::blame(&pipe.broker.as_ref()?.side))
            .take(1)
            .collect(),
        doubts: Vec::new(),
        backlog: Backlog::None,
        spare: None,
    };
    match throttle.filter(|_| !reading.snapshot.telemetry.restarted) {
        Some(throttle) => overruled(found, Verdict::Quota, throttle.finding.clone()),
        None => found,
    }
}

fn silent(reading: &Reading<'_>, throttle: Option<&Throttle>, reasoning: &mut Vec<Step>) -> Found {
    let (cause, step) = silent::judge(reading);
    reasoning.push(step);
    let found = from_cause(reading, cause, Backlog::Hard);
    match throttle {
        Some(throttle) => overruled(found, Verdict::Quota, throttle.finding.clone()),
        None => found,
    }
}

/// Assembles the diagnosis that is printed.
fn write(
    reading: &Reading<'_>,
    found: Found,
    failing: &Failing,
    throttle: Option<&Throttle>,
    reasoning: Vec<Step>,
) -> Diagnosis {
    let checks = checks::run(reading);
    let case = Case {
        verdict: found.verdict,
        failing,
        throttle,
        finding: found.finding.as_ref(),
    };
    let tenant = tenant::judge(reading.snapshot);
    let part = found
        .finding
        .as_ref()
        .filter(|_| found.verdict == Verdict::Broker);
    let part = part
        .filter(|finding| finding.id != FindingId::B7)
        .and(reading.hottest())
        .and_then(broker_levers::part);
    let mut recommendation = levers::recommend(reading, case);
    if let Some(tenant) = &tenant {
        // A tenant that takes the broker's time explains a BROKER verdict; with any other verdict
        // it is only added.
        if recommendation.is_none() || found.verdict == Verdict::Broker {
            recommendation = Some(tenant.recommendation.clone());
        }
    }
    let is_judged = found.verdict != Verdict::NotEnoughData;
    let refused = refused(
        reading,
        &found,
        failing,
        (part.as_ref(), tenant.as_ref()),
        recommendation.as_ref(),
    );
    let confidence = if is_judged {
        checks::confidence(
            reading,
            &checks,
            found.verdict,
            found.backlog,
            !found.doubts.is_empty(),
        )
    } else {
        Default::default()
    };
    let text = match (&found.finding, found.verdict) {
        (Some(finding), Verdict::Broker) => format!("{}; {}", found.text, finding.text),
        _ => found.text.clone(),
    };
    let summary = sums::summary(
        reading,
        found.verdict,
        &text,
        found.spare,
        recommendation.as_ref(),
    );
    let mut notes = checks.notes;
    notes.extend(found.doubts);
    notes.extend(sums::notes(reading, found.verdict, found.backlog));
    notes.extend(broker::pause(reading.snapshot));
    let mut evidence = sums::evidence(reading, found.verdict, found.backlog);
    let mut missing = missing::words(reading, found.verdict);
    if let Some(part) = part {
        evidence.extend(part.evidence);
        missing.extend(part.missing);
    }
    let mut findings: Vec<Finding> = found.finding.into_iter().collect();
    let mut later = found.contributing;
    later.extend(failing.findings.clone());
    if let Some(tenant) = tenant {
        later.push(tenant.finding);
        evidence.extend(tenant.evidence);
        missing.extend(tenant.missing);
    }
    findings.extend(later.into_iter().map(|finding| Finding {
        is_contributing: true,
        ..finding
    }));
    Diagnosis {
        client_id: reading.snapshot.client.client_id.clone(),
        instance_id: reading.snapshot.client.instance_id.clone(),
        role: reading.snapshot.client.role,
        verdict: found.verdict,
        confidence,
        summary,
        findings,
        evidence,
        recommendation,
        refused,
        missing,
        reasoning,
        notes,
        ..Diagnosis::default()
    }
}

/// Collects the changes that would not help: each setting once, and never the recommended one.
fn refused(
    reading: &Reading<'_>,
    found: &Found,
    failing: &Failing,
    (part, tenant): (Option<&broker::Judgement>, Option<&tenant::Judgement>),
    recommendation: Option<&Recommendation>,
) -> Vec<Refusal> {
    if found.verdict == Verdict::NotEnoughData {
        return Vec::new();
    }
    let mut refused = refusals::of(reading, found.verdict, found.backlog, failing);
    refused.extend(part.into_iter().flat_map(|part| part.refused.iter().cloned()));
    refused.extend(
        tenant
            .into_iter()
            .flat_map(|tenant| tenant.refused.iter().cloned()),
    );
    let mut settings = std::collections::BTreeSet::new();
    if let Some(recommendation) = recommendation {
        settings.insert(
            recommendation
                .set
                .split('=')
                .next()
                .unwrap_or_default()
                .to_owned(),
        );
    }
    refused.retain(|refusal| settings.insert(refusal.set.clone()));
    refused
}
