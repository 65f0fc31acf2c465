//! The result: one row per case, one column per client.

use super::cases::{CASES, CODECS};
use super::clients::{CLIENTS, Client, Outcome};
use std::collections::BTreeMap;
use std::fmt::Write;

#[derive(Default)]
pub struct Table {
    clients: BTreeMap<Client, BTreeMap<String, Outcome>>,
    others: Vec<(String, Outcome)>,
}

impl Table {
    pub fn add(&mut self, client: Client, cases: BTreeMap<String, Outcome>) {
        self.clients.entry(client).or_default().extend(cases);
    }

    /// Adds a case without a client: a tool, a takeover step.
    pub fn add_other(&mut self, name: impl Into<String>, outcome: Outcome) {
        self.others.push((name.into(), outcome));
    }

    /// Marks as failed those of `names` that `client` did not report.
    pub fn expect(&mut self, client: Client, names: impl IntoIterator<Item = String>) {
        let reported = self.clients.entry(client).or_default();
        for name in names {
            reported
                .entry(name)
                .or_insert_with(|| Err("did not run".to_string()));
        }
    }

    /// Marks as failed every case that `clients` should have reported and did not.
    pub fn expect_cases(&mut self) {
        for client in CLIENTS {
            let mut expected: Vec<String> = Vec::new();
            for codec in CODECS {
                expected.push(format!("write {codec}"));
                for writer in CLIENTS {
                    expected.push(format!("read {} {codec}", writer.name()));
                }
            }
            let offered = CASES.iter().filter(|case| case.clients.contains(&client));
            expected.extend(offered.map(|case| case.name.to_string()));
            self.expect(client, expected);
        }
    }

    /// Returns the table as Markdown, followed by the failures with their reasons, and the number
    /// of
    /// failures.
    pub fn render(&self) -> (String, usize) {
        let mut text = String::new();
        let mut failures = Vec::new();
        if !self.clients.is_empty() {
            self.render_clients(&mut text, &mut failures);
        }
        if !self.others.is_empty() {
            text.push_str("\n| Kafka's tools, takeover, security | |\n|---|---|\n");
            for (name, outcome) in &self.others {
                let _ = writeln!(text, "| {name} | {} |", cell(Some(outcome)));
                if let Err(reason) = outcome {
                    failures.push(format!("{name}: {reason}"));
                }
            }
        }
        for failure in &failures {
            let _ = writeln!(text, "\nFAILED {failure}");
        }
        (text, failures.len())
    }

    fn render_clients(&self, text: &mut String, failures: &mut Vec<String>) {
        text.push_str("| case | java | librdkafka | franz-go | ottla |\n|---|---|---|---|---|\n");
        let mut names: Vec<String> = Vec::new();
        names.extend(CODECS.iter().map(|codec| format!("write {codec}")));
        for writer in CLIENTS {
            names.extend(
                CODECS
                    .iter()
                    .map(|codec| format!("read {} {codec}", writer.name())),
            );
        }
        names.extend(CASES.iter().map(|case| case.name.to_string()));
        for cases in self.clients.values() {
            let extra: Vec<&String> = cases.keys().filter(|name| !names.contains(name)).collect();
            let extra: Vec<String> = extra.into_iter().cloned().collect();
            names.extend(extra);
        }
        for name in names {
            let outcomes: Vec<Option<&Outcome>> = CLIENTS
                .iter()
                .map(|client| self.clients.get(client).and_then(|cases| cases.get(&name)))
                .collect();
            if outcomes.iter().all(Option::is_none) {
                continue;
            }
            let cells: Vec<&str> = outcomes.iter().map(|outcome| cell(*outcome)).collect();
            let _ = writeln!(text, "| {name} | {} |", cells.join(" | "));
            for (client, outcome) in CLIENTS.iter().zip(outcomes) {
                if let Some(Err(reason)) = outcome {
                    failures.push(format!("{} {name}: {reason}", client.name()));
                }
            }
        }
        for case in CASES.iter().filter(|case| !case.why_not.is_empty()) {
            let _ = writeln!(text, "\n- {}: {}", case.name, case.why_not);
        }
    }
}

fn cell(outcome: Option<&Outcome>) -> &'static str {
    match outcome {
        None => "-",
        Some(Ok(())) => "ok",
        Some(Err(_)) => "**FAILED**",
    }
}
