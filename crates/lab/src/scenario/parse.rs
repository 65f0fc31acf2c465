//! Reads a scenario from YAML and refuses, before anything runs, what could not be run.

use super::check::{Problem, check};
use super::error::{ScenarioError, hint};
use super::model::Scenario;
use super::yaml::Tree;

/// A scenario is about a page long; a much longer text is another kind of file.
const TEXT_BYTES_MAX: usize = 1 << 20;

/// Reads and checks a scenario.
///
/// - `origin`: the file's name, for messages; a scenario without `name` is called after it.
/// - Errors: name file, line and key; for a misspelled key also the nearest known one.
pub fn parse(text: &str, origin: &str) -> Result<Scenario, ScenarioError> {
    if text.len() > TEXT_BYTES_MAX {
        let message = format!("{} bytes; a scenario has at most {TEXT_BYTES_MAX}", text.len());
        return Err(ScenarioError::new(origin, message));
    }
    let tree = Tree::read(text);
    let mut scenario: Scenario =
        serde_saphyr::from_str(text).map_err(|error| unreadable(&error, origin, &tree))?;
    if scenario.name.is_empty() {
        scenario.name = stem(origin);
    }
    check(&scenario).map_err(|problem| located(&problem, origin, &tree))?;
    Ok(scenario)
}

/// Returns a scenario that was not read from YAML, if it can be run.
pub fn checked(scenario: Scenario, origin: &str) -> Result<Scenario, ScenarioError> {
    match check(&scenario) {
        Ok(()) => Ok(scenario),
        Err(problem) => Err(located(&problem, origin, &Tree::default())),
    }
}

/// Renders the scenario as YAML that `parse` reads.
pub fn render(scenario: &Scenario) -> String {
    serde_saphyr::to_string(scenario).expect("a scenario has only texts and finite numbers")
}

fn located(problem: &Problem, origin: &str, tree: &Tree) -> ScenarioError {
    let path: Vec<&str> = problem
        .path
        .iter()
        .map(String::as_str)
        .filter(|part| !part.is_empty())
        .collect();
    let line = tree.line(&path);
    ScenarioError::new(origin, problem.message.as_str())
        .at(path.join("."))
        .on_line(line)
}

fn unreadable(error: &serde_saphyr::Error, origin: &str, tree: &Tree) -> ScenarioError {
    let line = error.location().map(|location| location.line());
    let error = error.without_snippet();
    let serde_saphyr::Error::SerdeUnknownField { field, expected, .. } = error else {
        return ScenarioError::new(origin, error.to_string()).on_line(line);
    };
    let path = line.and_then(|line| tree.path_of(field, line));
    let message = format!(
        "unknown key{}; known here: {}",
        hint(field, expected.iter().copied()),
        expected.join(", ")
    );
    ScenarioError::new(origin, message)
        .at(path.unwrap_or_else(|| field.clone()))
        .on_line(line)
}

fn stem(origin: &str) -> String {
    let path = std::path::Path::new(origin);
    path.file_stem()
        .map_or(String::new(), |stem| stem.to_string_lossy().into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::model::Scalar;

    const EXAMPLE: &str = "\
name: example
question: Does it work?
topics:
  - name: orders
    partitions: 3
producers:
  - name: load
    rate: 1000
    record_bytes: 100
    settings:
      linger.ms: 5
      acks: all
expect:
  - latency_p99_ms < 20
";

    fn why(from: &str, to: &str) -> String {
        assert!(EXAMPLE.contains(from), "{from}");
        parse(&EXAMPLE.replace(from, to), "example.yaml")
            .unwrap_err()
            .to_string()
    }

    fn check(from: &str, to: &str, expected: &str) {
        assert_eq!(why(from, to), expected, "{from} -> {to}");
    }

    #[test]
    fn an_example_is_read_with_defaults() {
        let scenario = parse(EXAMPLE, "example.yaml").unwrap();
        assert_eq!(scenario.producers[0].rate, Some(1_000.0));
        assert_eq!(scenario.producers[0].settings["linger.ms"], Scalar::Whole(5));
        assert_eq!((scenario.rounds, scenario.producers[0].threads), (1, 1));
        assert!(scenario.duration_seconds > 0.0);
    }

    #[test]
    fn what_is_rendered_can_be_read() {
        let scenario = parse(EXAMPLE, "example.yaml").unwrap();
        assert_eq!(parse(&render(&scenario), "again").unwrap(), scenario);
    }

    #[test]
    fn a_scenario_without_a_name_has_the_file_s() {
        let text = EXAMPLE.replace("name: example\n", "");
        assert_eq!(
            parse(&text, "/somewhere/linger-ms.yaml").unwrap().name,
            "linger-ms"
        );
    }

    #[test]
    fn a_misspelt_key_is_reported_with_file_line_path_and_the_nearest_one() {
        let told = why("    rate:", "    rat:");
        assert!(
            told.starts_with(
                "example.yaml:8: producers.load.rat: unknown key; rate may be meant; known here: "
            ),
            "{told}"
        );
        let told = why("question:", "qestion:");
        assert!(
            told.starts_with("example.yaml:2: qestion: unknown key; question may be meant"),
            "{told}"
        );
    }

    #[test]
    fn security_goes_with_nothing_that_reads_what_passes() {
        let told = why("question:", "security: ssl\nlink: {round_trip_ms: 5}\nquestion:");
        assert!(told.contains("security: the link replaces"), "{told}");
        let flood = "security: mtls\nrequests: [{name: flood, api: metadata}]\nquestion:";
        let told = why("question:", flood);
        assert!(told.contains("security: bare connections"), "{told}");
        let told = why("question:", "security: tls\nquestion:");
        assert!(told.contains("sasl_ssl"), "{told}");
    }

    #[test]
    fn a_value_of_the_wrong_kind_has_a_line() {
        let told = why("partitions: 3", "partitions: three");
        assert!(
            told.starts_with("example.yaml:5: ") && !told.contains('\n'),
            "{told}"
        );
        let told = why("partitions: 3", "partitions: [");
        assert!(told.starts_with("example.yaml:"), "{told}");
    }

    #[test]
    fn settings_are_judged_as_the_client_judges_them() {
        check(
            "linger.ms: 5",
            "lingr.ms: 5",
            "example.yaml:11: producers.load.settings.lingr.ms: is no setting of a producer; linger.ms may be meant",
        );
        check(
            "linger.ms: 5",
            "fetch.min.bytes: 5",
            "example.yaml:11: producers.load.settings.fetch.min.bytes: is no setting of a producer",
        );
        check(
            "acks: all",
            "acks: 1\n      enable.idempotence: true",
            "example.yaml:13: producers.load.settings.enable.idempotence: Must set acks to all in order to use the \
             idempotent producer. Otherwise we cannot guarantee idempotence.",
        );
        assert!(why("linger.ms: 5", "linger.ms: -5").contains("producers.load.settings.linger.ms: "));
        check(
            "partitions: 3",
            "settings: {retention.sm: 1}",
            "example.yaml:5: topics.orders.settings.retention.sm: is no setting of a topic; retention.ms may be meant",
        );
        assert!(
            why("topics:", "broker: {log.dri: x}\ntopics:")
                .contains("broker.log.dri: is no setting of a broker; log.dir")
        );
    }

    #[test]
    fn what_cannot_be_run_is_refused() {
        check(
            "rate: 1000",
            "rate: 0",
            "example.yaml:8: producers.load.rate: 0 is not above 0; leave it out to go as fast as possible",
        );
        check(
            "record_bytes: 100",
            "record_bytes: 10",
            "example.yaml:9: producers.load.record_bytes: 10 is less than the 32 bytes of the stamp that every record carries",
        );
        check(
            "rate: 1000",
            "topics: [ordres]",
            "example.yaml:8: producers.load.topics: ordres is not among the scenario's topics; orders may be meant",
        );
        check(
            "latency_p99_ms < 20",
            "latency_p99ms < 20",
            "example.yaml:14: expect.0: `latency_p99ms` is not a figure of a measurement; latency_p99_ms may be meant",
        );
        check(
            "Does it work?",
            "It works.",
            "example.yaml:2: question: does not end with a question mark",
        );
        assert!(
            why("rate: 1000", "partitioning: sticky").contains("sticky is none of client, round-robin, own")
        );
        assert!(why("rate: 1000", "threads: 0").contains("0 is not between 1 and 256"));
        assert!(
            why("topics:\n  - name: orders\n    partitions: 3\n", "").contains("topics: there is no topic")
        );
        assert!(why("expect:", "link: {stall_ms: 5}\nexpect:").contains("belong together"));
    }

    #[test]
    fn bare_requests_that_contradict_themselves_are_refused() {
        let check = |group: &str, words: &str| {
            let told = why(
                "expect:",
                &format!("requests: [{{name: flood, {group}}}]\nexpect:"),
            );
            assert!(told.contains(words), "{told}");
        };
        check("api: prodce", "requests.flood.api: prodce is none of");
        check("api: prodce", "produce may be meant");
        check("in_fligt: 5", "in_flight may be meant");
        check("connections: 0", "0 is not between 1 and 10000");
        check(
            "reconnect: true, in_flight: 2",
            "every connection has one request",
        );
        check("burst_every_ms: 1000", "a burst is made of a rate");
        check("rate: 0", "0 is not above 0");
        check("topics: [ordres]", "orders may be meant");
        let told = why("expect:", "requests: [{name: load}]\nexpect:");
        assert!(told.contains("two groups have this name"), "{told}");
    }

    #[test]
    fn a_comparison_with_a_missing_point_is_refused() {
        let told = why(
            "expect:",
            "points:\n  - name: alone\n  - name: beside\n    expect: [latency_p99_ms <= 1.2 * alon]\nexpect:",
        );
        assert!(
            told.contains("points.beside.expect") && told.contains("alone may be meant"),
            "{told}"
        );
        let told = why(
            "expect:",
            "points:\n  - name: alone\n    without: [laod]\nexpect:",
        );
        assert!(told.contains("load may be meant"), "{told}");
    }

    #[test]
    fn every_point_is_checked_before_the_first_is_run() {
        let told = why(
            "expect:",
            "sweep:\n  producers.load.settings.acks: [all, 2]\nexpect:",
        );
        assert!(
            told.contains("producers.load.settings.acks: at the point acks=2: "),
            "{told}"
        );
        let told = why("expect:", "sweep: {producers.load.rate: [100, -1]}\nexpect:");
        assert!(
            told.contains("at the point load.rate=-1: -1 is not above 0"),
            "{told}"
        );
        let told = why(
            "expect:",
            "points:\n  - name: a\n    reported: {records: 5}\nexpect:",
        );
        assert!(
            told.starts_with("example.yaml:15: points.a.reported.records: "),
            "{told}"
        );
        let told = why(
            "expect:",
            "scale: {default: 0.1, of: [producers.lod.rate]}\nexpect:",
        );
        assert!(told.contains("load may be meant"), "{told}");
    }

    #[test]
    fn readers_need_a_producer() {
        let text = "topics: [{name: t}]\nconsumers: [{name: readers}]\n";
        let told = parse(text, "x.yaml").unwrap_err().to_string();
        assert!(
            told.starts_with("x.yaml:2: consumers: no producer writes"),
            "{told}"
        );
        let text = text.replace("{name: t}", "{name: t, prefilled_records: 1000}");
        assert_eq!(parse(&text, "x.yaml").unwrap().topics[0].prefilled_records, 1_000);
    }

    #[test]
    fn a_file_of_another_kind_is_refused_at_once() {
        let told = parse(&"#".repeat(TEXT_BYTES_MAX + 1), "x")
            .unwrap_err()
            .to_string();
        assert_eq!(told, "x: 1048577 bytes; a scenario has at most 1048576");
    }
}
