//! The flags of `ottla bench run`.

use std::path::PathBuf;

use clap::Args;

use crate::cli::admin_address::TokenFile;
use crate::cli::command_config::CommandConfig;
use crate::cli::output::Format;

#[derive(Args, Debug)]
pub struct Run {
    /// A name from `ottla bench list`, or a file: a scenario, an OpenMessaging Benchmark workload
    /// or a Kafka Trogdor spec
    pub scenario: String,

    /// Cluster to measure, `host:port,...`; repeat it to measure several in turn. Without it an
    /// embedded broker is started
    #[arg(id = "bootstrap_server", long = "bootstrap-server", value_name = "SERVERS")]
    pub bootstrap_servers: Vec<String>,

    /// Measure an embedded broker too, in turn with the clusters of --bootstrap-server
    #[arg(long)]
    pub embedded: bool,

    #[command(flatten)]
    pub client: CommandConfig,

    /// Kafka driver file that belongs to an OpenMessaging Benchmark workload
    #[arg(long, value_name = "FILE")]
    pub driver: Option<PathBuf>,

    /// Process id of a broker on this machine, whose CPU time and memory are then reported; one per
    /// --bootstrap-server, in the same order
    #[arg(long, value_name = "PID")]
    pub broker_pid: Vec<u32>,

    /// Admin address of the first cluster, `host:port`, if it is an Ottla broker, whose time per
    /// request stage is then reported
    #[arg(long, value_name = "ADDRESS")]
    pub admin: Option<String>,

    #[command(flatten)]
    pub token: TokenFile,

    /// Factor on the size of the scenario's source; 1 runs it at full size [default: the scenario's
    /// own factor, for a small machine]
    #[arg(long)]
    pub scale: Option<f64>,

    /// Number of measurements of every point, interleaved [default: the scenario's own]
    #[arg(long)]
    pub rounds: Option<u32>,

    /// Set one value of the scenario by its path, e.g. producers.load.settings.linger.ms=5; may be
    /// repeated
    #[arg(long, value_name = "PATH=VALUE", value_parser = pair)]
    pub set: Vec<(String, String)>,

    /// Directory of the report files NAME-TIME.json and NAME-TIME.html
    #[arg(long, value_name = "DIRECTORY", default_value = "ottla-bench")]
    pub output: PathBuf,

    /// Output on the terminal: text for people, or JSON
    #[arg(long, default_value = "text")]
    pub format: Format,
}

fn pair(text: &str) -> Result<(String, String), String> {
    let (path, value) = text.split_once('=').ok_or("must be PATH=VALUE")?;
    Ok((path.to_owned(), value.to_owned()))
}

/// Returns the command line of this process, quoted where a shell needs it.
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
