//! `ottla perf produce|consume|e2e`: the performance tools of Apache Kafka 4.3, with their flags
//! and output lines, on Ottla's client.

mod produce;
mod consume;
mod e2e;
mod java;

use std::collections::BTreeMap;
use std::io::Write;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use clap::{Args, Subcommand};
use ottla_client::config::{ClientKind, Config};
use ottla_client::metrics::Value;
use ottla_lab::perf::MetricLine;
use signal_hook::consts::{SIGINT, SIGTERM};

use crate::cli::doctor::text::clean;
use crate::cli::output::{Failure, Format};

/// Measure one producer or consumer, with the flags and output of Kafka's performance tools
///
/// Exit status: 0 success, 1 records failed or the run was interrupted, 2 wrong usage.
#[derive(Args)]
pub struct Perf {
    #[command(subcommand)]
    tool: Tool,
}

#[derive(Subcommand)]
enum Tool {
    Produce(produce::Produce),
    Consume(consume::Consume),
    E2e(e2e::EndToEnd),
}

impl Perf {
    pub fn run(self) -> ExitCode {
        let (name, result) = match self.tool {
            Tool::Produce(tool) => ("produce", tool.run()),
            Tool::Consume(tool) => ("consume", tool.run()),
            Tool::E2e(tool) => ("e2e", tool.run()),
        };
        match result {
            Ok(true) => ExitCode::SUCCESS,
            Ok(false) => ExitCode::from(1),
            Err(failure) => Failure {
                text: clean(&failure.text),
                ..failure
            }
            .report(&format!("ottla perf {name}")),
        }
    }
}

/// Prints a line; with JSON output it goes to standard error.
fn print(format: Format, line: &str) {
    // A closed output does not end the run.
    let _ = match format {
        Format::Text => writeln!(std::io::stdout(), "{line}"),
        Format::Json => writeln!(std::io::stderr(), "{line}"),
    };
}

/// Returns the file's settings, overridden by those of the command line.
fn config(file: Option<&str>, properties: &[String]) -> Result<Config, Failure> {
    let mut config = match file {
        Some(file) => Config::from_file(file)?,
        None => Config::new(),
    };
    for property in properties {
        let Some((key, value)) = property.split_once('=') else {
            return Err(Failure::usage(format!(
                "{property:?} is not of the form name=value"
            )));
        };
        config = config.set(key, value);
    }
    if config.get("transactional.id").is_some() {
        return Err(Failure::usage(String::from(
            "transactional.id: this tool sends outside of transactions; kafka-producer-perf-test.sh has them",
        )));
    }
    Ok(config)
}

/// Prints the warnings about the settings.
///
/// - Errors: `Usage` when the settings are wrong.
fn warn_of(config: &Config, kind: ClientKind) -> Result<(), Failure> {
    for warning in config.warnings(kind)? {
        eprintln!("warning: {warning}");
    }
    Ok(())
}

/// Returns a flag that the first signal sets; the second signal ends the process.
fn stop_on_signal() -> Result<Arc<AtomicBool>, Failure> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register_conditional_shutdown(signal, 1, Arc::clone(&stop))
            .and_then(|_| signal_hook::flag::register(signal, Arc::clone(&stop)))
            .map_err(|error| Failure::failed(format!("cannot handle signals: {error}")))?;
    }
    Ok(stop)
}

/// Returns the metrics table of Kafka's tools.
fn metrics_text(lines: &[MetricLine]) -> String {
    let width = lines.iter().map(|line| line.name.len()).max().unwrap_or(0);
    let mut text = format!("\n{:width$}   Value", "Metric Name");
    for line in lines {
        let value = match &line.value {
            Value::Number(number) => java::fixed(*number, 3),
            Value::Text(text) => text.to_string(),
        };
        text.push_str(&format!("\n{:width$} : {value}", line.name));
    }
    text
}

fn metrics_json(lines: &[MetricLine]) -> serde_json::Value {
    let values: BTreeMap<&str, serde_json::Value> = lines
        .iter()
        .map(|line| {
            let value = match &line.value {
                // NaN and infinities become null: JSON has no numbers for them.
                Value::Number(number) => serde_json::json!(number),
                Value::Text(text) => serde_json::json!(text.as_ref()),
            };
            (line.name.as_str(), value)
        })
        .collect();
    serde_json::json!(values)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_of_the_command_line_override_and_may_contain_equals_signs() {
        let properties = ["a=1", "sasl.jaas.config=x y=z;"].map(String::from);
        let config = config(None, &properties).unwrap();
        assert_eq!(config.get("sasl.jaas.config"), Some("x y=z;"));
    }

    #[test]
    fn malformed_and_transactional_settings_are_refused() {
        for property in ["linger.ms", "transactional.id=t"] {
            assert!(matches!(
                config(None, &[property.to_owned()]),
                Err(Failure { status: 2, .. })
            ));
        }
    }

    #[test]
    fn metrics_are_printed_in_columns() {
        let lines = [
            MetricLine {
                name: String::from("app-info:version:{client-id=p}"),
                value: Value::Text("4".into()),
            },
            MetricLine {
                name: String::from("g:n:{}"),
                value: Value::Number(1.5),
            },
        ];
        let expected = "
Metric Name                      Value
app-info:version:{client-id=p} : 4
g:n:{}                         : 1.500";
        assert_eq!(metrics_text(&lines), expected);
    }
}
