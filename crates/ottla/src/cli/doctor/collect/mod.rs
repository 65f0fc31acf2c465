//! `ottla doctor collect`: receives what clients of Apache Kafka push, and answers like Ottla's own admin address.

mod push;
mod serve;

use std::net::TcpListener;
use std::process::ExitCode;
use std::sync::Arc;

use clap::Args;
use ottla_broker::machine_memory::MachineMemory;
use ottla_lab::doctor::history;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use super::{Failure, place, print};

#[derive(Args)]
pub struct Collect {
    /// Where to listen, `host:port`. There is no password: who reaches it may push, and read what others pushed.
    #[arg(long, value_name = "ADDRESS", default_value = place::COLLECTOR_ADDRESS)]
    listen: String,

    /// Client instances that are kept; when one more comes, the one that has been silent longest goes. Each takes at most 64 KiB
    /// [default: 16384, or what fits into a sixteenth of the memory].
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..))]
    instances: Option<u32>,
}

impl Collect {
    pub fn run(self) -> Result<ExitCode, Failure> {
        // Before the ready line, so that a signal that comes early is not lost.
        let mut signals = Signals::new([SIGTERM, SIGINT])
            .map_err(|error| Failure(format!("cannot handle signals: {error}")))?;
        let socket =
            TcpListener::bind(&self.listen).map_err(|error| Failure(format!("{}: {error}", self.listen)))?;
        let instances = match self.instances {
            Some(instances) => instances as usize,
            None => history::instances_within(MachineMemory::look().bytes),
        };
        let collector = Arc::new(history::Collector::new(instances));
        let server = serve::Server::start(socket, collector).map_err(Failure::new)?;
        print(&format!(
            "ottla doctor collect ready http://{}\n",
            server.address()
        ))?;
        signals.forever().next();
        drop(server);
        Ok(ExitCode::SUCCESS)
    }
}
