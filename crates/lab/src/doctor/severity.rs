//! The severity of a diagnosis: the order of display, and the exit status.

use serde::{Deserialize, Serialize};

use super::diagnosis::{Diagnosis, Examination, FindingId, Verdict};

/// Ascending.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// The client keeps up.
    Good,
    /// Not enough data.
    Unknown,
    /// The client does what is asked of it, at an avoidable cost.
    Inefficient,
    /// Something other than the application limits the rate.
    Limited,
    /// Records are lost or late: they expire, find no memory, or no leader.
    Failing,
}

impl Severity {
    pub fn name(self) -> &'static str {
        match self {
            Severity::Good => "good",
            Severity::Unknown => "unknown",
            Severity::Inefficient => "inefficient",
            Severity::Limited => "limited",
            Severity::Failing => "failing",
        }
    }

    /// Whether action is needed.
    pub fn is_bad(self) -> bool {
        self >= Severity::Limited
    }
}

impl Diagnosis {
    pub fn severity(&self) -> Severity {
        let is_failing = |id| matches!(id, FindingId::E1 | FindingId::E2 | FindingId::E3);
        if self.findings.iter().any(|finding| is_failing(finding.id)) {
            return Severity::Failing;
        }
        match self.verdict {
            Verdict::KeepsUp | Verdict::Application => Severity::Good,
            Verdict::NotEnoughData => Severity::Unknown,
            Verdict::Synchronous | Verdict::SmallRequests | Verdict::CatchingUp => Severity::Inefficient,
            Verdict::Failing | Verdict::Denied => Severity::Failing,
            Verdict::Quota
            | Verdict::Host
            | Verdict::Skew
            | Verdict::SenderThread
            | Verdict::SenderRate
            | Verdict::NetworkRtt
            | Verdict::NetworkWindow
            | Verdict::NetworkBandwidth
            | Verdict::Broker
            | Verdict::Worker
            | Verdict::Rebalancing
            | Verdict::Processing
            | Verdict::FetchWait
            | Verdict::FetchSize
            | Verdict::ColdRead
            | Verdict::Transaction => Severity::Limited,
        }
    }
}

impl Examination {
    /// Sorts the worst first; among equals the most certain, then by name.
    pub fn sort(&mut self) {
        self.clients.sort_by(|one, other| {
            let key = |client: &Diagnosis| (client.severity(), client.confidence);
            key(other)
                .cmp(&key(one))
                .then_with(|| one.client_id.cmp(&other.client_id))
                .then_with(|| one.instance_id.cmp(&other.instance_id))
        });
    }

    pub fn has_bad(&self) -> bool {
        self.clients.iter().any(|client| client.severity().is_bad())
    }

    /// Returns all instances of a client, by its client id or by one instance id.
    ///
    /// - Errors: no client has that name; the text names the nearest one.
    pub fn find(&self, name: &str) -> Result<Vec<&Diagnosis>, String> {
        let found: Vec<&Diagnosis> = self
            .clients
            .iter()
            .map(|client| &**client)
            .filter(|client| client.client_id == name || client.instance_id.as_deref() == Some(name))
            .collect();
        if found.is_empty() {
            return Err(unknown(
                name,
                self.clients.iter().map(|client| client.client_id.as_str()),
            ));
        }
        Ok(found)
    }
}

/// Returns `no client "ordres" among 3; orders may be meant`.
pub fn unknown<'a>(name: &str, known: impl Iterator<Item = &'a str> + Clone) -> String {
    let count = known.clone().count();
    let near = crate::scenario::error::hint(name, known);
    match count {
        0 => format!("no client {name:?}: there are no clients at all"),
        _ => format!("no client {name:?} among {count}{near}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::diagnosis::{Confidence, Finding};

    fn client(client_id: &str, verdict: Verdict) -> Diagnosis {
        Diagnosis {
            client_id: client_id.into(),
            verdict,
            ..Diagnosis::default()
        }
    }

    fn examination(clients: Vec<Diagnosis>) -> Examination {
        Examination::of(0, clients)
    }

    #[test]
    fn the_worst_comes_first_whatever_its_name() {
        let mut failing = client("z", Verdict::KeepsUp);
        failing.findings.push(Finding {
            id: FindingId::E2,
            text: String::new(),
            is_contributing: true,
        });
        let mut sure = client("y", Verdict::Broker);
        sure.confidence = Confidence::High;
        let mut all = examination(vec![
            client("a", Verdict::KeepsUp),
            client("b", Verdict::SenderRate),
            client("c", Verdict::Synchronous),
            client("d", Verdict::NotEnoughData),
            sure,
            failing,
        ]);
        all.sort();
        let names: Vec<&str> = all
            .clients
            .iter()
            .map(|client| client.client_id.as_str())
            .collect();
        assert_eq!(names, ["z", "y", "b", "c", "d", "a"]);
        assert!(all.has_bad());
        assert!(!examination(vec![client("a", Verdict::Application)]).has_bad());
    }

    #[test]
    fn a_client_is_found_by_either_id_and_a_misspelt_one_by_its_neighbour() {
        let mut orders = client("orders", Verdict::KeepsUp);
        orders.instance_id = Some("abc".into());
        let all = examination(vec![orders.clone(), orders, client("audit", Verdict::KeepsUp)]);
        assert_eq!(all.find("orders").unwrap().len(), 2);
        assert_eq!(all.find("abc").unwrap().len(), 2);
        let error = all.find("ordres").unwrap_err();
        assert_eq!(error, "no client \"ordres\" among 3; orders may be meant");
        let error = examination(vec![]).find("x").unwrap_err();
        assert_eq!(error, "no client \"x\": there are no clients at all");
    }
}
