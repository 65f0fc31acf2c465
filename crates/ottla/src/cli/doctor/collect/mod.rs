//! `ottla doctor collect`: receives the metrics that clients of Apache Kafka push, and serves the
//! same doctor pages as Ottla's admin address.

mod serve;
mod cluster;
mod push;

use std::net::TcpListener;
use std::process::ExitCode;
use std::sync::Arc;

use clap::Args;
use ottla_broker::machine_memory::MachineMemory;
use ottla_lab::doctor::history;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use super::scorekeeper::Scorekeeper;
use super::stated::Stated;
use super::{Failure, place, print};
use crate::cli::command_config::CommandConfig;

#[derive(Args)]
pub struct Collect {
    /// Address to listen on, `host:port`. There is no authentication: any process that can connect
    /// can push metrics and read those of others
    #[arg(long, value_name = "ADDRESS", default_value = place::COLLECTOR_ADDRESS)]
    listen: String,

    /// Maximum number of client instances kept in memory, at most 64 KiB each; beyond it the one
    /// silent for longest is evicted [default: 16384, or less if 1/16 of the memory is too small]
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..))]
    instances: Option<u32>,

    /// A Kafka address of the cluster whose clients push: it is asked every ten seconds for what no
    /// client pushes (members of groups, committed offsets, quotas)
    #[arg(long, value_name = "SERVERS")]
    bootstrap_server: Option<String>,

    #[command(flatten)]
    client: CommandConfig,

    #[command(flatten)]
    stated: Stated,
}

impl Collect {
    pub fn run(self) -> Result<ExitCode, Failure> {
        let statements = self.stated.read()?;
        // Registered before the ready line, so that an early signal is not lost.
        let mut signals = Signals::new([SIGTERM, SIGINT])
            .map_err(|error| Failure::unanswered(format!("cannot handle signals: {error}")))?;
        let socket = TcpListener::bind(&self.listen)
            .map_err(|error| Failure::unanswered(format!("{}: {error}", self.listen)))?;
        let instances = match self.instances {
            Some(instances) => instances as usize,
            None => history::instances_within(MachineMemory::look().bytes),
        };
        let collector = Arc::new(history::Collector::new(instances).stating(statements));
        if let Some(servers) = &self.bootstrap_server {
            let config = self.client.read()?;
            cluster::watch(&config.set("bootstrap.servers", servers), collector.clone())?;
        }
        let _scorekeeper = Scorekeeper::start(collector.clone())
            .map_err(|error| Failure::unanswered(format!("cannot start a thread: {error}")))?;
        let server = serve::Server::start(socket, collector).map_err(Failure::unanswered)?;
        print(&format!(
            "ottla doctor collect ready http://{}\n",
            server.address()
        ))?;
        signals.forever().next();
        drop(server);
        Ok(ExitCode::SUCCESS)
    }
}
