//! `ottla doctor collect`: receives the metrics that clients of Apache Kafka push, and serves the
//! same doctor pages as Ottla's admin address.

mod serve;
mod cluster;
mod machine;
mod push;

use std::net::{SocketAddr, TcpListener};
use std::process::ExitCode;
use std::sync::Arc;

use clap::Args;
use ottla_broker::machine_memory::MachineMemory;
use ottla_client::config::Config;
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

    /// A Kafka address of the cluster whose clients push: it is asked every ten seconds for what no
    /// client pushes (members of groups, committed offsets, quotas)
    #[arg(long, value_name = "SERVERS")]
    bootstrap_server: Option<String>,

    #[command(flatten)]
    client: CommandConfig,

    #[command(flatten)]
    kept: Kept,
}

/// What a collector keeps of clients.
#[derive(Args)]
pub(in crate::cli) struct Kept {
    /// Maximum number of client instances kept in memory, at most 64 KiB each; beyond it the one
    /// silent for longest is evicted [default: 16384, or less if 1/16 of the memory is too small]
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..))]
    instances: Option<u32>,

    #[command(flatten)]
    stated: Stated,
}

impl Collect {
    pub fn run(self) -> Result<ExitCode, Failure> {
        let signals = Signals::new([SIGTERM, SIGINT]);
        // Registered before the ready line, so that an early signal is not lost.
        let mut signals =
            signals.map_err(|error| Failure::unanswered(format!("cannot handle signals: {error}")))?;
        let cluster = match &self.bootstrap_server {
            Some(servers) => Some(self.client.read()?.set("bootstrap.servers", servers)),
            None => None,
        };
        let collecting = Collecting::start("ottla doctor collect", &self.listen, &self.kept, cluster)?;
        print(&format!(
            "ottla doctor collect ready http://{}\n",
            collecting.address()
        ))?;
        signals.forever().next();
        Ok(ExitCode::SUCCESS)
    }
}

/// A running collector. Dropping it stops it.
pub(in crate::cli) struct Collecting {
    pub collector: Arc<history::Collector>,
    server: serve::Server,
    _scorekeeper: Scorekeeper,
}

impl Collecting {
    /// Listens, and asks the cluster for what no client pushes.
    ///
    /// - `program`: what lines on standard error begin with.
    /// - Errors: a wrong setting or statement, or the address cannot be listened on.
    pub fn start(
        program: &'static str,
        listen: &str,
        kept: &Kept,
        cluster: Option<Config>,
    ) -> Result<Collecting, Failure> {
        let statements = kept.stated.read()?;
        let socket =
            TcpListener::bind(listen).map_err(|error| Failure::unanswered(format!("{listen}: {error}")))?;
        let instances = match kept.instances {
            Some(instances) => instances as usize,
            None => history::instances_within(MachineMemory::look().bytes),
        };
        let collector = Arc::new(history::Collector::new(instances).stating(statements));
        if let Some(config) = cluster {
            cluster::watch(program, &config, collector.clone())?;
        }
        machine::watch(collector.clone())?;
        let scorekeeper = Scorekeeper::start(collector.clone())
            .map_err(|error| Failure::unanswered(format!("cannot start a thread: {error}")))?;
        let server = serve::Server::start(program, socket, collector.clone()).map_err(Failure::unanswered)?;
        Ok(Collecting {
            collector,
            server,
            _scorekeeper: scorekeeper,
        })
    }

    pub fn address(&self) -> SocketAddr {
        self.server.address()
    }
}
