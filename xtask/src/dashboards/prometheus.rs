//! A real Prometheus that scrapes the broker as the guide tells.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use ottla_lab::ask::Door;
use serde_json::Value;

use crate::interop::toolchain;

const MISSING: &str = "Prometheus is needed (apt-get install prometheus)";

const ANSWER_BYTES_MAX: u64 = 16 << 20;

/// The jobs of `docs/guides/dashboards.md`, scraped every second.
const CONFIG: &str = "global:
  scrape_interval: 1s
  scrape_timeout: 1s
scrape_configs:
  - job_name: strimzi
    params: {names: [reporter]}
    static_configs:
      - targets: [ADMIN]
        labels: {namespace: kafka, strimzi_io_cluster: ottla, strimzi_io_name: ottla-kafka,
                 kubernetes_pod_name: ottla-0, container: kafka}
  - job_name: kafka-exporter
    params: {names: [kminion]}
    static_configs:
      - targets: [ADMIN]
  - job_name: kafka-broker
    params: {names: [confluent]}
    static_configs:
      - targets: [ADMIN]
        labels: {env: dev}
  - job_name: kafka-controller
    static_configs:
      - targets: [ADMIN]
        labels: {env: dev}
";

/// Returns the first line of `prometheus --version`.
pub fn version() -> Result<String> {
    let asked = Command::new("prometheus").arg("--version").output();
    let output = asked.context(MISSING)?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let line = text.lines().next().unwrap_or_default();
    let words: Vec<&str> = line.split_whitespace().take(3).collect();
    Ok(words.join(" ").trim_end_matches(',').to_owned())
}

pub struct Prometheus {
    child: Child,
    door: Door,
}

impl Prometheus {
    /// - `admin`: host and port of the broker's admin address.
    pub fn start(home: &Path, admin: &str) -> Result<Prometheus> {
        let config = home.join("prometheus.yml");
        fs::write(&config, CONFIG.replace("ADMIN", &format!("{admin:?}")))?;
        let port = toolchain::free_port()?;
        let child = Command::new("prometheus")
            .arg(format!("--config.file={}", config.display()))
            .arg(format!("--storage.tsdb.path={}", home.join("tsdb").display()))
            .arg(format!("--web.listen-address=127.0.0.1:{port}"))
            .stdout(Stdio::null())
            .stderr(fs::File::create(home.join("prometheus.log"))?)
            .spawn()
            .context(MISSING)?;
        let door = Door::new(format!("127.0.0.1:{port}"));
        let prometheus = Prometheus { child, door };
        let started = Instant::now();
        while prometheus.door.ask("GET", "/-/ready", ANSWER_BYTES_MAX).is_err() {
            ensure!(
                started.elapsed() < Duration::from_secs(60),
                "Prometheus does not get ready, see {}",
                home.join("prometheus.log").display()
            );
            std::thread::sleep(Duration::from_millis(100));
        }
        Ok(prometheus)
    }

    /// Whether a query returns a number.
    pub fn is_answered(&self, query: &str) -> Result<bool> {
        let path = format!("/api/v1/query?query={}", percent_encoded(query));
        let answer = self.door.ask("GET", &path, ANSWER_BYTES_MAX);
        let answer: Value = serde_json::from_str(&answer.with_context(|| query.to_owned())?)?;
        let series = answer["data"]["result"].as_array().context("no result")?;
        let is_number = |one: &Value| one["value"][1].as_str().is_some_and(|value| value != "NaN");
        Ok(series.iter().any(is_number))
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn percent_encoded(query: &str) -> String {
    query.bytes().map(|byte| format!("%{byte:02X}")).collect()
}
