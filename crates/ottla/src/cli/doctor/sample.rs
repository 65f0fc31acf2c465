//! Hand-made diagnoses for the tests of text and screen.

use ottla_lab::doctor::Diagnosis;
use ottla_lab::doctor::diagnosis::{
    Confidence, Evidence, Examination, Finding, FindingId, Promise, Recommendation, Refusal, Step, Symbol,
    Verdict,
};
use ottla_lab::doctor::time::{TimePart, TimeShare};

/// One limited client and one that keeps up, sorted.
pub fn examination() -> Examination {
    Examination::of(1_760_000_000_000, vec![limited(), well()])
}

pub fn well() -> Diagnosis {
    Diagnosis {
        client_id: "audit".into(),
        verdict: Verdict::KeepsUp,
        confidence: Confidence::Medium,
        summary: "It sends all that it is given and could send 20 times as much.".into(),
        time: vec![
            share(TimePart::Queue, 5.0),
            share(TimePart::Request, 1.0),
            share(TimePart::Broker, 0.5),
        ],
        ..Diagnosis::default()
    }
}

fn share(part: TimePart, ms: f64) -> TimeShare {
    TimeShare { part, ms }
}

/// Experiment I of the Kontur talk.
pub fn limited() -> Diagnosis {
    Diagnosis {
        client_id: "orders-writer".into(),
        instance_id: Some("5tqAxl0GTx2WJmZ2cqxIVw".into()),
        verdict: Verdict::SenderRate,
        confidence: Confidence::High,
        summary: "Requests leave at 91 % of the rate that their round trips allow, and every batch is full."
            .into(),
        time: vec![
            share(TimePart::Queue, 14_000.0),
            share(TimePart::Request, 9.3),
            share(TimePart::Broker, 0.5),
        ],
        findings: vec![
            finding(
                FindingId::N2,
                "the request rate is at its ceiling and batches are full",
                false,
            ),
            finding(
                FindingId::W1,
                "the thread is busy 97 % of the time, of which most is waiting for the buffer",
                true,
            ),
        ],
        evidence: vec![ceiling()],
        recommendation: Some(larger_batches()),
        refused: vec![
            refusal("linger.ms", "batches are full before linger expires"),
            refusal(
                "send.buffer.bytes",
                "49 kB are under way, far less than the buffer holds",
            ),
        ],
        missing: vec!["the link's bandwidth".into()],
        reasoning: vec![
            step("S0", "Is there evidence?", "6 pushes, 83,460 requests"),
            step("S1", "Is the pipe full?", "U = 0.908, from 0.85 on it is full"),
        ],
        notes: vec!["batch.size inferred from the largest batch".into()],
        ..Diagnosis::default()
    }
}

fn ceiling() -> Evidence {
    let symbol = |name: &'static str, value, unit: &'static str, origin: &'static str| Symbol {
        name: name.into(),
        value,
        unit: unit.into(),
        origin: origin.into(),
    };
    Evidence {
        formula: "F8".into(),
        expression: "1000 / L * M * N".into(),
        symbols: vec![
            symbol("L", 9.8, "ms", "measured"),
            symbol("M", 5.0, "", "default"),
            symbol("N", 3.0, "", "measured"),
        ],
        name: "R_max".into(),
        result: 1_530.6,
        unit: "requests/s".into(),
    }
}

fn larger_batches() -> Recommendation {
    Recommendation {
        set: "batch.size=32768".into(),
        why: "Batches are full, so a batch of twice the size doubles what each request carries.".into(),
        promise: Promise {
            figure: "records_per_second".into(),
            now: Some(83_550.0),
            low: 100_000.0,
            high: 100_000.0,
            unit: "records/s".into(),
            assumption: "at unchanged latency".into(),
            unknown: None,
        },
        next_ceiling: "the rate that the application asks for, 100,000 records/s".into(),
        cost: "up to 32 KiB of buffer memory for each partition".into(),
    }
}

fn finding(id: FindingId, text: &str, is_contributing: bool) -> Finding {
    Finding {
        id,
        text: text.into(),
        is_contributing,
    }
}

fn refusal(set: &'static str, why: &'static str) -> Refusal {
    Refusal {
        set: set.into(),
        why: why.into(),
    }
}

fn step(rule: &'static str, question: &'static str, numbers: &str) -> Step {
    Step {
        rule: rule.into(),
        question: question.into(),
        numbers: numbers.to_owned().into(),
        answer: "yes".into(),
    }
}
