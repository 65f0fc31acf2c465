//! The flags of `ottla bench run`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    Text,
    Json,
}

#[derive(Args, Debug)]
pub struct Run {
    /// A name of `ottla bench list`, or a file: a scenario, an OpenMessaging workload or a Trogdor spec.
    pub scenario: String,

    /// The cluster to measure, `host:port,...`; repeated, several take turns. Without it an embedded broker is started.
    #[arg(long = "bootstrap-server", value_name = "SERVERS")]
    pub bootstrap_servers: Vec<String>,

    /// Measure the embedded broker too, in turn with the clusters that are named.
    #[arg(long)]
    pub embedded: bool,

    /// A file with Kafka's client settings, for security.
    #[arg(long, value_name = "FILE")]
    pub command_config: Option<PathBuf>,

    /// The Kafka driver file that belongs to an OpenMessaging workload.
    #[arg(long, value_name = "FILE")]
    pub driver: Option<PathBuf>,

    /// Process id of the broker, if it runs on this machine: its processor time and memory become part of the report.
    /// One per --bootstrap-server, in the same order.
    #[arg(long, value_name = "PID")]
    pub broker_pid: Vec<u32>,

    /// Admin address of the first cluster, if that is an Ottla, `host:port`: its stage times become part of the report.
    #[arg(long, value_name = "ADDRESS")]
    pub admin: Option<String>,

    /// How much of the source's size: 1 runs what the source ran. Without it the scenario's own for a small machine.
    #[arg(long)]
    pub scale: Option<f64>,

    /// How often every point is run, in turn.
    #[arg(long)]
    pub rounds: Option<u32>,

    /// One value of the scenario, by path: producers.load.settings.linger.ms=5; may be repeated.
    #[arg(long, value_name = "PATH=VALUE", value_parser = pair)]
    pub set: Vec<(String, String)>,

    /// Where the report goes: NAME-TIME.json and NAME-TIME.html.
    #[arg(long, value_name = "DIRECTORY", default_value = "ottla-bench")]
    pub output: PathBuf,

    #[arg(long, default_value = "text")]
    pub format: Format,
}

fn pair(text: &str) -> Result<(String, String), String> {
    let (path, value) = text.split_once('=').ok_or("must be PATH=VALUE")?;
    Ok((path.to_owned(), value.to_owned()))
}

/// The command as it was typed, quoted where a shell needs it.
pub fn command_line() -> String {
    let quoted = std::env::args().enumerate().map(|(index, word)| {
        let is_plain = word
            .chars()
            .all(|letter| letter.is_ascii_alphanumeric() || "-_=./:,@%+".contains(letter));
        match (index, is_plain && !word.is_empty()) {
            (0, _) => String::from("ottla"),
            (_, true) => word,
            (_, false) => format!("'{}'", word.replace('\'', r"'\''")),
        }
    });
    quoted.collect::<Vec<_>>().join(" ")
}
