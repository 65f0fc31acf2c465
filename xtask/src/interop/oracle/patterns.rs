//! Regular expressions of subscriptions (KIP-848), judged by RE2/J and by ours: which are taken,
//! and which names they match.

use anyhow::{Result, ensure};
use ottla_core::group::regex::compile;

use super::ask;
use super::expressions::{DEVIATIONS, NAMES, all};
use crate::interop::table::Table;
use crate::kafka::Kafka;

pub fn run(table: &mut Table, kafka: &Kafka) -> Result<()> {
    let expressions: Vec<&str> = all().collect();
    let input = format!("{}\n{}\n", NAMES.join("\t"), expressions.join("\n"));
    let output = ask(kafka, "TopicPatterns", &input)?;
    let verdicts: Vec<&str> = output.lines().collect();
    ensure!(verdicts.len() == expressions.len(), "{} verdicts", verdicts.len());
    let mut different = Vec::new();
    for (expression, kafkas) in expressions.iter().zip(verdicts) {
        let ours = judge(expression);
        let is_same = ours == *kafkas || ours.starts_with(REFUSED) && kafkas.starts_with(REFUSED);
        let deviates = DEVIATIONS.iter().any(|(known, _)| known == expression);
        if is_same == deviates {
            different.push(format!("{expression}: {ours}, by RE2/J {kafkas}"));
        }
    }
    let outcome = match different.len() {
        0 => Ok(()),
        count => Err(format!("{count} expressions:\n{}", different.join("\n"))),
    };
    let name = format!("oracle: {} expressions, {} names", expressions.len(), NAMES.len());
    table.add_other(name, outcome);
    Ok(())
}

const REFUSED: &str = "refused";

/// In the words of `TopicPatterns`.
fn judge(expression: &str) -> String {
    match compile(expression) {
        Err(reason) => format!("{REFUSED}\t{}", reason.lines().last().unwrap_or_default()),
        Ok(regex) => {
            let digits = NAMES.map(|name| if regex.is_match(name.as_bytes()) { '1' } else { '0' });
            format!("accepted\t{}", digits.iter().collect::<String>())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_deviation_is_in_the_list_of_expressions() {
        for (expression, _) in DEVIATIONS {
            assert!(all().any(|listed| listed == expression), "{expression}");
        }
    }
}
