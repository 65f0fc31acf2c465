//! `ottla doctor plugin`: writes the plug-in for Apache Kafka that the packages carry.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;

use super::place::COLLECTOR_ADDRESS;
use super::{Failure, print, write_file};

/// Empty in a program that was built from sources alone.
const JAR: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/kafka-plugin.jar"));
const FILE: &str = "ottla-kafka-telemetry.jar";

/// Write the plug-in with which Apache Kafka hands on its clients' metrics, and say how to install
/// it
#[derive(Args)]
pub struct Plugin {
    /// Directory for the jar: the `libs` of a broker, or any other
    #[arg(long, value_name = "DIRECTORY", default_value = ".")]
    output: PathBuf,

    /// Address of the collector as brokers reach it, `host:port`
    #[arg(long, value_name = "ADDRESS", default_value = COLLECTOR_ADDRESS)]
    collector: String,
}

impl Plugin {
    pub fn run(self) -> Result<ExitCode, Failure> {
        if JAR.is_empty() {
            return Err(Failure::failed(
                "this program was built without the plug-in; the packages have it, and Maven builds it from plugins/kafka-telemetry",
            ));
        }
        let path = self.output.join(FILE);
        write_file(&path, JAR)?;
        print(&format!(
            "wrote {}, {} bytes\n\n{}",
            path.display(),
            JAR.len(),
            steps(&self.collector)
        ))?;
        Ok(ExitCode::SUCCESS)
    }
}

fn steps(collector: &str) -> String {
    format!(
        "1. Put it into the libs of every broker.\n\
         2. Add to every broker's server.properties, and restart it:\n\
         \x20    metric.reporters=ottla.telemetry.TelemetryExporter\n\
         \x20    ottla.telemetry.collector=http://{collector}\n\
         \x20  Brokers of 3.7 to 4.1 take ottla.telemetry.TelemetryReceiver instead.\n\
         3. Once per cluster, so that brokers ask clients for metrics:\n\
         \x20    kafka-client-metrics.sh --bootstrap-server BROKER --alter --name doctor --interval 10000 \\\n\
         \x20      --metrics org.apache.kafka.producer.,org.apache.kafka.consumer.\n\
         4. Start the collector where brokers reach {collector}, alone or with the console:\n\
         \x20    ottla doctor collect --listen {collector} --bootstrap-server BROKER\n\
         \x20    ottla console --telemetry {collector} --bootstrap-server BROKER\n\
         5. Restart clients that were connected before step 2: they have asked once, and do not ask again.\n\
         6. After two of the clients' intervals:\n\
         \x20    ottla doctor --collector {collector}\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_step_names_the_collector_that_was_asked_for() {
        let text = steps("10.0.0.7:9645");
        assert!(
            text.contains("ottla.telemetry.collector=http://10.0.0.7:9645\n"),
            "{text}"
        );
        assert_eq!(text.matches("10.0.0.7:9645").count(), 5, "{text}");
    }
}
