//! Apache Kafka 2.1, the oldest broker that our client supports, with its ZooKeeper.

use super::toolchain::{self, run_quietly};
use anyhow::{Context, Result, bail, ensure};
use std::fs::{self, File};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const VERSION: &str = "2.1.1";

/// Both processes; killed when dropped.
pub struct OldKafka {
    zookeeper: Child,
    broker: Option<Child>,
    port: u16,
}

impl OldKafka {
    /// Fetches the jars, unless an earlier run did, and starts on an empty directory.
    pub fn start() -> Result<OldKafka> {
        let home = toolchain::target_directory().join("old-kafka");
        prepare(&home)?;
        let data = toolchain::target_directory().join("data/old-kafka");
        if data.exists() {
            fs::remove_dir_all(&data)?;
        }
        fs::create_dir_all(&data)?;
        let (zookeeper_port, port) = (toolchain::free_port()?, toolchain::free_port()?);
        let keeper = format!(
            "dataDir={}\nclientPort={zookeeper_port}\nmaxClientCnxns=0\nadmin.enableServer=false\n",
            data.join("zookeeper").display()
        );
        let broker = format!(
            "broker.id=1\nlisteners=PLAINTEXT://127.0.0.1:{port}\nadvertised.listeners=PLAINTEXT://127.0.0.1:{port}\n\
             zookeeper.connect=127.0.0.1:{zookeeper_port}\nlog.dirs={}\nnum.partitions=1\n\
             offsets.topic.replication.factor=1\noffsets.topic.num.partitions=5\n\
             transaction.state.log.replication.factor=1\ntransaction.state.log.min.isr=1\n\
             group.initial.rebalance.delay.ms=0\n",
            data.join("logs").display()
        );
        fs::write(data.join("zookeeper.properties"), keeper)?;
        fs::write(data.join("server.properties"), broker)?;
        fs::write(data.join("log4j.properties"), LOG4J)?;
        let java = |class: &str, file: &str| java(&home, &data, class, file);
        let mut old = OldKafka {
            zookeeper: java(
                "org.apache.zookeeper.server.quorum.QuorumPeerMain",
                "zookeeper.properties",
            )?,
            broker: None,
            port,
        };
        wait_for_port(zookeeper_port, &mut old.zookeeper)?;
        let mut broker = java("kafka.Kafka", "server.properties")?;
        let ready = wait_for_port(port, &mut broker);
        old.broker = Some(broker);
        ready.map(|()| old)
    }

    pub fn bootstrap(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }
}

fn prepare(home: &Path) -> Result<()> {
    let source = toolchain::root().join("tests/interop/old-kafka");
    let stamp = home.join("prepared");
    toolchain::build_once(&format!("maven: Apache Kafka {VERSION}"), &stamp, &source, || {
        let mut command = Command::new("mvn");
        command
            .args(["-q", "-B", "package"])
            .arg(format!("-Doutput.directory={}", home.display()));
        run_quietly(command.current_dir(&source)).context("maven could not fetch the jars of Kafka 2.1")?;
        ensure!(
            home.join(format!("jars/kafka_2.12-{VERSION}.jar")).exists(),
            "maven did not bring Kafka {VERSION}"
        );
        Ok(())
    })
}

fn java(home: &Path, data: &Path, class: &str, file: &str) -> Result<Child> {
    let log = File::create(data.join(PathBuf::from(file).with_extension("log")))?;
    Command::new("java")
        .args(["-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"])
        .arg(format!(
            "-Dlog4j.configuration=file:{}",
            data.join("log4j.properties").display()
        ))
        .arg("-cp")
        .arg(format!("{}/jars/*", home.display()))
        .arg(class)
        .arg(data.join(file))
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log)
        .spawn()
        .context("cannot start java")
}

fn wait_for_port(port: u16, child: &mut Child) -> Result<()> {
    let started = Instant::now();
    while TcpStream::connect(("127.0.0.1", port)).is_err() {
        if let Some(status) = child.try_wait()? {
            bail!("ended with {status} while starting");
        }
        ensure!(
            started.elapsed() < Duration::from_secs(120),
            "no one listens on port {port}"
        );
        std::thread::sleep(Duration::from_millis(50));
    }
    Ok(())
}

impl Drop for OldKafka {
    fn drop(&mut self) {
        for child in self.broker.iter_mut().chain([&mut self.zookeeper]) {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

const LOG4J: &str = "log4j.rootLogger=WARN, stderr
log4j.appender.stderr=org.apache.log4j.ConsoleAppender
log4j.appender.stderr.target=System.err
log4j.appender.stderr.layout=org.apache.log4j.PatternLayout
log4j.appender.stderr.layout.ConversionPattern=[%d] %p %m (%c)%n
";
