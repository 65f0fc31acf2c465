//! `ottla console`: the console of any Kafka cluster, which is asked over the wire, with the
//! collector of its clients' metrics in the same process.

mod cluster;
mod topics;
mod partition;
mod groups;
mod records;
mod settings;
mod access;
mod kept;
mod server;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use ottla_console::reports::Reports;
use ottla_console::site::Site;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use self::cluster::Cluster;
use self::server::Server;
use super::command_config::CommandConfig;
use super::doctor::collect::{Collecting, Kept};
use super::doctor::place;
use super::output::{Failure, print};

const PROGRAM: &str = "ottla console";

/// Show any Kafka cluster and its clients in a browser
///
/// The pages are those of Ottla's admin address. What only an Ottla measures is said where it would
/// stand. The doctor sees clients whose metrics reach --telemetry (see `ottla doctor collect`), and
/// the members of all groups.
#[derive(Args)]
pub struct Console {
    /// A Kafka address of the cluster, `host:port`
    #[arg(long, value_name = "SERVERS")]
    bootstrap_server: String,

    #[command(flatten)]
    client: CommandConfig,

    /// Address of the pages, `host:port`
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:9646")]
    listen: String,

    /// File with a token that browsers must show as a password, and scripts as a bearer token;
    /// required if other machines reach --listen
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,

    /// Address at which clients' metrics are received, as `ottla doctor collect` does. There is no
    /// authentication: any process that can connect can push metrics and read those of others
    #[arg(long, value_name = "ADDRESS", default_value = place::COLLECTOR_ADDRESS)]
    telemetry: String,

    /// Directory with reports of `ottla bench`, which `/bench` lists, shows and compares
    #[arg(long, value_name = "DIRECTORY")]
    reports: Option<PathBuf>,

    #[command(flatten)]
    kept: Kept,
}

impl Console {
    pub fn run(self) -> ExitCode {
        match self.serve() {
            Ok(()) => ExitCode::SUCCESS,
            Err(failure) => failure.report(PROGRAM),
        }
    }

    fn serve(&self) -> Result<(), Failure> {
        // Registered before the ready line, so that an early signal is not lost.
        let mut signals = Signals::new([SIGTERM, SIGINT])
            .map_err(|error| Failure::unanswered(format!("cannot handle signals: {error}")))?;
        let config = self
            .client
            .read()?
            .set("bootstrap.servers", &self.bootstrap_server);
        let reports = self.reports.as_deref().map(reports_of).transpose()?;
        let address = server::bind(&self.listen, self.token_file.as_deref())?;
        let collecting = Collecting::start(PROGRAM, &self.telemetry, &self.kept, Some(config.clone()))?;
        let cluster = Cluster::ask(
            &self.bootstrap_server,
            config,
            collecting.collector.clone(),
            address.shows_records(),
            reports,
        )?;
        let site = Site::start(cluster)
            .map_err(|error| Failure::unanswered(format!("cannot start a thread: {error}")))?;
        let server = Server::start(address, site).map_err(Failure::unanswered)?;
        print(&format!(
            "{PROGRAM} ready http://{} telemetry http://{}\n",
            server.address(),
            collecting.address()
        ))?;
        signals.forever().next();
        Ok(())
    }
}

/// - Errors: it cannot be listed now. Where that comes later, the page says so.
fn reports_of(directory: &Path) -> Result<Reports, Failure> {
    let reports = Reports::of(directory);
    match reports.list() {
        Ok(_) => Ok(reports),
        Err(untold) => Err(Failure::usage(format!("--reports: {untold}"))),
    }
}
