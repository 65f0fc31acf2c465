//! One client with the reasoning behind its verdict: steps, arithmetic, the change, refused changes
//! and missing data.

use ottla_lab::doctor::diagnosis::{Diagnosis, Evidence, Recommendation, Step};
use ottla_lab::doctor::glossary;
use ottla_lab::doctor::time::TimeShare;
use ottla_lab::numbers::{number, percent};

use super::{Paper, clean, letters, promise, quantity, wrap};

pub fn render(client: &Diagnosis, paper: Paper) -> String {
    let mut page = Page {
        paper,
        out: String::new(),
    };
    page.head(client);
    page.steps(&client.reasoning);
    if !client.evidence.is_empty() {
        page.title("The arithmetic");
        for evidence in &client.evidence {
            page.evidence(evidence);
        }
    }
    if let Some(recommendation) = &client.recommendation {
        page.recommendation(recommendation);
    }
    let refused = client
        .refused
        .iter()
        .map(|refusal| (&*refusal.set, &*refusal.why));
    page.pairs("What would not help", refused.collect());
    let own = client.findings.iter().filter(|finding| !finding.is_contributing);
    let own: Vec<(String, &str)> = own
        .map(|finding| (format!("{:?}", finding.id), finding.text.as_str()))
        .collect();
    page.pairs(
        "Findings",
        own.iter().map(|(id, text)| (id.as_str(), *text)).collect(),
    );
    let others = client.findings.iter().filter(|finding| finding.is_contributing);
    let others: Vec<(String, &str)> = others
        .map(|finding| (format!("{:?}", finding.id), finding.text.as_str()))
        .collect();
    page.pairs(
        "Contributing",
        others.iter().map(|(id, text)| (id.as_str(), *text)).collect(),
    );
    page.list("What is missing to be sure", &client.missing);
    page.list("Notes", &client.notes);
    page.out
}

/// Renders lines of arithmetic only.
pub fn arithmetic(lines: &[Evidence], paper: Paper) -> String {
    let mut page = Page {
        paper,
        out: String::new(),
    };
    for line in lines {
        page.evidence(line);
    }
    page.out
}

struct Page {
    paper: Paper,
    out: String,
}

impl Page {
    fn line(&mut self, text: impl AsRef<str>) {
        self.out.push_str(text.as_ref().trim_end());
        self.out.push('\n');
    }

    fn title(&mut self, text: &str) {
        let title = self.paper.bold(text);
        self.line("");
        self.line(title);
    }

    /// Writes wrapped text with every line indented by `indent` columns.
    fn text(&mut self, indent: usize, text: &str) {
        for line in wrap(text, self.paper.width.saturating_sub(indent).max(20)) {
            self.line(format!("{:indent$}{line}", ""));
        }
    }

    /// Writes `head` at the indent and the wrapped text beside it.
    fn beside(&mut self, indent: usize, width: usize, head: &str, text: &str) {
        let begin = indent + width + 2;
        let lines = wrap(text, self.paper.width.saturating_sub(begin).max(20));
        let head = clean(head);
        if letters(&head) > width || lines.is_empty() {
            self.line(format!("{:indent$}{head}", ""));
        }
        for (index, line) in lines.iter().enumerate() {
            let shown = if index == 0 && letters(&head) <= width {
                head.as_str()
            } else {
                ""
            };
            self.line(format!("{:indent$}{shown:width$}  {line}", ""));
        }
    }

    fn head(&mut self, client: &Diagnosis) {
        let instance = client
            .instance_id
            .as_ref()
            .map_or_else(String::new, |id| format!(", instance {}", clean(id)));
        let name = self.paper.bold(&clean(&client.client_id));
        self.line(format!("{name}  {}{instance}", client.role.name()));
        let verdict = self.paper.severe(client.severity(), client.verdict.name());
        self.line(format!("{verdict}  {} confidence", client.confidence.name()));
        self.line("");
        self.text(0, &client.summary);
        let meaning = client.verdict.meaning();
        if !client.summary.contains(meaning) {
            self.text(0, meaning);
        }
        if !client.time.is_empty() {
            self.line("");
            self.beside(0, 8, "its time", &time_text(&client.time));
        }
    }

    fn steps(&mut self, steps: &[Step]) {
        if steps.is_empty() {
            return;
        }
        self.title("How this was found");
        let width = steps.iter().map(|step| letters(&step.rule)).max().unwrap_or(0);
        for step in steps {
            self.beside(2, width, &step.rule, &step.question);
            self.text(width + 4, &step.numbers.to_string());
            self.text(width + 4, &format!("→ {}", step.answer));
        }
    }

    fn evidence(&mut self, evidence: &Evidence) {
        let (head, name) = (clean(&evidence.formula), clean(&evidence.name));
        let begin = format!("  {head}  {name} ");
        let indent = letters(&begin);
        let expression = clean(&evidence.expression);
        if !expression.is_empty() {
            self.line(format!("{begin}= {expression}"));
            let substituted = clean(&evidence.substituted());
            if substituted != expression {
                self.line(format!("{:indent$}= {substituted}", ""));
            }
        }
        let result = quantity(evidence.result, &evidence.unit);
        match expression.is_empty() {
            true => self.line(format!("{begin}= {result}")),
            false => self.line(format!("{:indent$}= {result}", "")),
        }
        let under = letters(&head) + 4;
        let names = evidence.symbols.iter().map(|symbol| letters(&symbol.name));
        let name_width = names.max().unwrap_or(0);
        let values: Vec<String> = evidence
            .symbols
            .iter()
            .map(|symbol| quantity(symbol.value, &symbol.unit))
            .collect();
        let value_width = values.iter().map(|value| letters(value)).max().unwrap_or(0);
        for (symbol, value) in evidence.symbols.iter().zip(&values) {
            let meaning = match glossary::symbol(&symbol.name) {
                Some(meaning) if symbol.origin.is_empty() => meaning.to_owned(),
                Some(meaning) => format!("{meaning} ({})", symbol.origin),
                None if symbol.origin.is_empty() => String::new(),
                None => format!("({})", symbol.origin),
            };
            let head = format!("{:name_width$}  {value:value_width$}", clean(&symbol.name));
            self.beside(under, name_width + 2 + value_width, &head, &meaning);
        }
    }

    fn recommendation(&mut self, recommendation: &Recommendation) {
        self.title("The one change");
        let set = self.paper.bold(&clean(&recommendation.set));
        self.line(format!("  {set}"));
        self.text(2, &recommendation.why);
        let promised = &recommendation.promise;
        let figure = match promised.figure.as_str() {
            "records_per_second" | "" => String::new(),
            figure => format!("{}: ", figure.replace('_', " ")),
        };
        let assumption = match promised.assumption.as_str() {
            "" => String::new(),
            assumption => format!(" ({assumption})"),
        };
        self.beside(
            2,
            7,
            "promise",
            &format!("{figure}{}{assumption}", promise(promised)),
        );
        for (head, text) in [
            ("then", &recommendation.next_ceiling),
            ("cost", &recommendation.cost),
        ] {
            if !text.is_empty() {
                self.beside(2, 7, head, text);
            }
        }
    }

    fn pairs(&mut self, title: &str, pairs: Vec<(&str, &str)>) {
        if pairs.is_empty() {
            return;
        }
        self.title(title);
        // A long name gets its own line instead of widening the column for all.
        let names = pairs
            .iter()
            .map(|(name, _)| letters(name))
            .filter(|width| *width <= 24);
        let width = names.max().unwrap_or(0);
        for (name, text) in pairs {
            self.beside(2, width, name, text);
        }
    }

    fn list(&mut self, title: &str, lines: &[String]) {
        if lines.is_empty() {
            return;
        }
        self.title(title);
        for line in lines {
            self.beside(2, 1, "-", line);
        }
    }
}

/// `queue 1,710 ms (99.2 %), request 12.9 ms (0.7 %), broker 0.6 ms (<0.1 %)`
fn time_text(time: &[TimeShare]) -> String {
    let sum: f64 = time.iter().map(|share| share.ms).sum();
    let part = |share: &TimeShare| {
        let of_sum = percent(share.ms / sum.max(f64::MIN_POSITIVE));
        format!("{} {} ms ({of_sum})", share.part.name(), number(share.ms))
    };
    time.iter().map(part).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::doctor::sample;

    const PAPER: Paper = Paper {
        width: 100,
        is_coloured: false,
    };

    #[test]
    fn the_complete_reasoning_is_printed() {
        let expected = "\
orders-writer  producer, instance 5tqAxl0GTx2WJmZ2cqxIVw
SENDER_RATE  high confidence

Requests leave at 91 % of the rate that their round trips allow, and every batch is full.
The client sends as many requests as answers come back; only bigger requests carry more.

its time  queue 14,000 ms (99.9 %), request 9.3 ms (0.1 %), broker 0.5 ms (<0.1 %)

How this was found
  S0  Is there evidence?
      6 pushes, 83,460 requests
      → yes
  S1  Is the pipe full?
      U = 0.908, from 0.85 on it is full
      → yes

The arithmetic
  F8  R_max = 1000 / L * M * N
            = 1000 / 9.8 * 5 * 3
            = 1,531 requests/s
      L  9.8 ms  mean time from a request to its answer (measured)
      M  5       requests that may be under way on a connection (default)
      N  3       brokers that are written to (measured)

The one change
  batch.size=32768
  Batches are full, so a batch of twice the size doubles what each request carries.
  promise  83,550 → 100,000 records/s (at unchanged latency)
  then     the rate that the application asks for, 100,000 records/s
  cost     up to 32 KiB of buffer memory for each partition

What would not help
  linger.ms          batches are full before linger expires
  send.buffer.bytes  49 kB are under way, far less than the buffer holds

Findings
  N2  the request rate is at its ceiling and batches are full

Contributing
  W1  the thread is busy 97 % of the time, of which most is waiting for the buffer

What is missing to be sure
  -  the link's bandwidth

Notes
  -  batch.size inferred from the largest batch
";
        assert_eq!(render(&sample::limited(), PAPER), expected);
    }

    #[test]
    fn a_diagnosis_without_anything_has_a_head() {
        let text = render(&Diagnosis::default(), PAPER);
        assert!(text.contains("NOT_ENOUGH_DATA  low confidence"), "{text}");
        assert!(!text.contains("The arithmetic"), "{text}");
    }

    #[test]
    fn the_width_of_narrow_paper_is_respected() {
        let text = render(&sample::limited(), Paper { width: 60, ..PAPER });
        assert!(text.lines().all(|line| letters(line) <= 60), "{text}");
    }
}
