//! `--set` and `--client-config`: settings of clients, which no metric shows, as their owner states
//! them.

use clap::Args;
use ottla_lab::doctor::Snapshot;
use ottla_lab::doctor::statements::Statements;

use super::Failure;

#[derive(Args, Debug, Default)]
pub struct Stated {
    /// State a client's setting: its client.id, or a pattern with `*`, and a key of Kafka's
    /// clients, of librdkafka or of franz-go; without CLIENT it is for all; may be repeated
    #[arg(long = "set", value_name = "[CLIENT.]KEY=VALUE")]
    set: Vec<String>,

    /// State a client's settings by its properties file; may be repeated; --set wins over it
    #[arg(long, value_name = "[CLIENT=]FILE")]
    client_config: Vec<String>,
}

impl Stated {
    /// For a command whose `--set` means something else.
    pub fn by_files(client_config: &[String]) -> Stated {
        Stated {
            set: Vec::new(),
            client_config: client_config.to_vec(),
        }
    }

    /// Reads and checks the statements.
    ///
    /// - Errors: name the setting and what it allows.
    pub fn read(&self) -> Result<Statements, Failure> {
        read(&self.client_config, &self.set)
    }
}

pub fn read(files: &[String], settings: &[String]) -> Result<Statements, Failure> {
    let mut statements = Statements::default();
    for named in files {
        let (pattern, path) = named.split_once('=').unwrap_or(("*", named));
        let of_file = |problem: &dyn std::fmt::Display| Failure::unanswered(format!("{path}: {problem}"));
        let text = std::fs::read_to_string(path).map_err(|error| of_file(&error))?;
        let unknown = statements
            .file(pattern, &text)
            .map_err(|refused| of_file(&refused))?;
        for key in unknown {
            eprintln!("ottla doctor: {path}: {key}");
        }
    }
    for text in settings {
        statements
            .set(text)
            .map_err(|refused| Failure::unanswered(format!("{text}: {refused}")))?;
    }
    Ok(statements)
}

/// Applies statements to readings that another process made.
pub fn apply(statements: &Statements, mut snapshots: Vec<Snapshot>) -> Vec<Snapshot> {
    for snapshot in &mut snapshots {
        statements.apply(snapshot);
    }
    snapshots
}
