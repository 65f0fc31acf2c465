//! Grows one Ottla broker into a cluster of Apache Kafka: `ottla grow`, a separate controller, a
//! broker on the same directory, a second broker that takes over everything, and the death of the
//! first. A producer and a group run throughout; a transaction is begun before the hand-over and
//! committed after it.
//!
//! Settings and commands are those printed by `ottla grow`.

use super::directories::contents;
use super::server::{Programs, Server, Site, Target};
use super::table::Table;
use super::toolchain::{self, output_of};
use super::tools::{FEATURES, REASSIGN, TOPICS, Tools, contains};
use anyhow::{Context, Result, bail, ensure};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const TOPIC: &str = "orders";
/// Of the transactions.
const PAYMENTS: &str = "payments";
const PARTITIONS: &str = "3";
const CONTROLLER_ID: &str = "3001";

type Report<'a> = &'a mut dyn FnMut(&str, Result<()>);

pub fn run(table: &mut Table, programs: &Programs) -> Result<()> {
    let started = Instant::now();
    let growth = Growth {
        programs,
        site: Site::create("grow", &[("log.segment.bytes", "1048576")])?,
        second_port: toolchain::free_port()?,
    };
    let mut report = |name: &str, outcome: Result<()>| {
        println!("grow: {name}");
        let outcome = outcome.map_err(|error| format!("{error:#}").replace('\n', " "));
        table.add_other(format!("grow: {name}"), outcome);
    };
    if let Err(error) = growth.steps(&mut report) {
        report("every step", Err(error));
    }
    println!("grow: {} s", started.elapsed().as_secs());
    Ok(())
}

struct Growth<'a> {
    programs: &'a Programs,
    /// The site of Ottla, and then of Apache Kafka's first broker.
    site: Site,
    second_port: u16,
}

/// The output of `ottla grow`.
struct Steps {
    cluster_id: String,
    controller_properties: String,
    broker_properties: String,
    /// Source and target of the old metadata log's move.
    moved: (PathBuf, PathBuf),
}

impl Growth<'_> {
    fn steps(&self, report: Report<'_>) -> Result<()> {
        let ottla = self.site.start(self.programs, Target::Ottla)?;
        let tools = self.tools(self.site.port);
        for topic in [TOPIC, PAYMENTS] {
            tools.run(
                TOPICS,
                &["--create", "--topic", topic, "--partitions", PARTITIONS],
                "",
            )?;
        }
        self.cases(&["leave", TOPIC, "left", PARTITIONS])?;
        let mut producer = self.client("crash-load", &[TOPIC, PARTITIONS, &self.acknowledged()?])?;
        let member = self.client("follow", &[TOPIC, "followers", PARTITIONS])?;
        let mut transactions = self.client("transact", &[PAYMENTS, PARTITIONS])?;
        transactions.wait_for_case()?;
        self.some_more(&mut producer)?;
        report("Ottla stops under load", ottla.stop());

        let controller_port = toolchain::free_port()?;
        let out = self.site.home().join("controller");
        let steps = self.grow(controller_port, &out, report)?;
        let properties = with_defaults(&steps.controller_properties);
        let controller = self
            .site
            .beside("controller", &out, controller_port, &properties)?;
        let mut controller = controller.spawn(self.programs, Target::Kafka, &[])?;
        fs::rename(&steps.moved.0, &steps.moved.1).context("moving the old metadata log")?;
        let first = self.first_broker(&steps)?;
        report(
            "the controller leads, and a broker serves the directory under load",
            self.some_more(&mut producer),
        );
        report_cases(report, transactions.finish()?);

        let second = self.second_broker(&steps, controller_port)?;
        report(
            "kafka-reassign-partitions moves every partition under load",
            self.move_everything(&tools)
                .and_then(|()| self.some_more(&mut producer)),
        );
        first.kill()?;
        report(
            "the load goes on without the first broker",
            self.some_more(&mut producer),
        );
        let tools = self.tools(self.second_port);
        report(
            "kafka-features raises levels that all must support",
            raise_levels(&tools),
        );

        producer.finish()?;
        report_cases(report, member.finish()?);
        let acknowledged = self.acknowledged()?;
        report_cases(report, self.cases(&["verify", TOPIC, PARTITIONS, &acknowledged])?);
        report_cases(report, self.cases(&["resume", TOPIC, "left", PARTITIONS])?);
        report_cases(report, self.cases(&["transacted", PAYMENTS, PARTITIONS])?);
        report("the second broker stops", second.stop());
        controller.check_alive()?;
        report("the controller stops", controller.stop());
        Ok(())
    }

    /// Both addresses, so that clients find the running broker.
    fn bootstrap(&self) -> String {
        format!("{},127.0.0.1:{}", self.site.bootstrap(), self.second_port)
    }

    fn tools(&self, port: u16) -> Tools<'_> {
        Tools {
            kafka: &self.programs.kafka,
            bootstrap: format!("127.0.0.1:{port}"),
        }
    }

    fn acknowledged(&self) -> Result<String> {
        text_of(&self.site.home().join("acknowledged"))
    }

    fn client(&self, phase: &str, arguments: &[&str]) -> Result<Client> {
        let file = |kind: &str| self.site.home().join(format!("{phase}.{kind}"));
        let out = file("out");
        let child = self
            .programs
            .kafka
            .tool("interop.Main")
            .args([phase, &self.bootstrap()])
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(File::create(&out)?)
            .stderr(File::create(file("err"))?)
            .spawn()
            .with_context(|| format!("cannot start the client's phase {phase}"))?;
        Ok(Client {
            name: phase.to_owned(),
            child,
            out,
        })
    }

    /// Runs one phase to its end and returns its cases.
    fn cases(&self, arguments: &[&str]) -> Result<Vec<Case>> {
        self.client(arguments[0], &arguments[1..])?.finish()
    }

    /// Waits until five thousand more records are acknowledged.
    fn some_more(&self, producer: &mut Client) -> Result<()> {
        let acknowledged = self.acknowledged()?;
        let bytes = || fs::metadata(&acknowledged).map_or(0, |metadata| metadata.len());
        // `0 1234 k7:89`
        let wanted = bytes() + 5_000 * 12;
        let asked = Instant::now();
        while bytes() < wanted {
            producer.check_running()?;
            ensure!(
                asked.elapsed() < Duration::from_secs(60),
                "nothing more is acknowledged"
            );
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    fn grow(&self, controller_port: u16, out: &Path, report: Report<'_>) -> Result<Steps> {
        let before = contents(&self.site.directory)?;
        let program = self
            .programs
            .ottla
            .as_ref()
            .context("the ottla binary was not built")?;
        let command = |more: &[&str]| {
            let mut command = Command::new(program);
            command
                .arg("grow")
                .arg(self.site.properties())
                .args([
                    "--controller",
                    &format!("{CONTROLLER_ID}@127.0.0.1:{controller_port}"),
                ])
                .arg("--out")
                .arg(out)
                .args(more);
            command
        };
        let checked = output_of(&mut command(&["--check"]))?;
        report(
            "ottla grow --check finds it fit and writes nothing",
            contains(&checked, "Every check passed").and_then(|()| {
                ensure!(!out.exists(), "it wrote {}", out.display());
                Ok(())
            }),
        );
        let printed = output_of(&mut command(&[]))?;
        let is_same = contents(&self.site.directory)? == before;
        let unchanged = is_same
            .then_some(())
            .context("the broker's directory was changed");
        report("ottla grow leaves the broker's directory as it is", unchanged);
        Steps::parse(&printed)
    }

    fn first_broker(&self, steps: &Steps) -> Result<Server> {
        let directory = &self.site.directory;
        let port = self.site.port;
        let site = self.site.beside(
            "broker-1",
            directory,
            port,
            &with_defaults(&steps.broker_properties),
        )?;
        let mut server = site.spawn(self.programs, Target::Kafka, &[])?;
        server
            .wait_ready()
            .context("Apache Kafka's broker on Ottla's directory")?;
        Ok(server)
    }

    fn second_broker(&self, steps: &Steps, controller_port: u16) -> Result<Server> {
        let directory = self.site.home().join("broker-2");
        let port = self.second_port;
        let properties = format!(
            "process.roles=broker
node.id=2
listeners=PLAINTEXT://127.0.0.1:{port}
controller.listener.names=CONTROLLER
controller.quorum.bootstrap.servers=127.0.0.1:{controller_port}
log.dirs={}
",
            directory.display()
        );
        let site = self
            .site
            .beside("broker-2", &directory, port, &with_defaults(&properties))?;
        self.programs
            .kafka
            .format_member(site.properties(), &steps.cluster_id)?;
        let mut server = site.spawn(self.programs, Target::Kafka, &[])?;
        server.wait_ready().context("the second broker")?;
        Ok(server)
    }

    fn move_everything(&self, tools: &Tools<'_>) -> Result<()> {
        let described = tools.run(TOPICS, &["--describe"], "")?;
        let partitions = partitions_of(&described);
        for topic in [TOPIC, PAYMENTS, "__consumer_offsets", "__transaction_state"] {
            ensure!(
                partitions.iter().any(|(name, _)| name == topic),
                "no {topic} in {described}"
            );
        }
        let moves: Vec<String> = partitions
            .iter()
            .map(|(topic, index)| format!(r#"{{"topic":"{topic}","partition":{index},"replicas":[2]}}"#))
            .collect();
        let file = self.site.home().join("move.json");
        fs::write(
            &file,
            format!(r#"{{"version":1,"partitions":[{}]}}"#, moves.join(",")),
        )?;
        let file = text_of(&file)?;
        let run = |action: &str| tools.run(REASSIGN, &[action, "--reassignment-json-file", &file], "");
        contains(&run("--execute")?, "Successfully started partition reassignments")?;
        let asked = Instant::now();
        loop {
            let output = run("--verify")?;
            let completed = output
                .lines()
                .filter(|line| line.ends_with("is completed."))
                .count();
            if completed == moves.len() {
                break;
            }
            ensure!(
                asked.elapsed() < Duration::from_secs(120),
                "not moved within two minutes: {output}"
            );
        }
        let described = tools.run(TOPICS, &["--describe"], "")?;
        let elsewhere = described
            .lines()
            .find(|line| line.contains("Partition: ") && !line.contains("Leader: 2\tReplicas: 2\tIsr: 2"));
        match elsewhere {
            None => Ok(()),
            Some(line) => bail!("not on broker 2: {line}"),
        }
    }
}

/// Raises feature levels. Every registered controller must support a level, even one that is gone.
/// 31 is above Ottla's maximum; for Apache Kafka 4.3 it is an unstable level of the next version,
/// which must be enabled.
fn raise_levels(tools: &Tools<'_>) -> Result<()> {
    let output = tools.run(FEATURES, &["upgrade", "--feature", "share.version=1"], "")?;
    contains(&output, "share.version was upgraded to 1")?;
    let output = tools.run(FEATURES, &["upgrade", "--release-version", "4.3"], "")?;
    contains(&output, "metadata.version was upgraded to 30")?;
    let output = tools.run(FEATURES, &["upgrade", "--feature", "metadata.version=31"], "")?;
    contains(&output, "metadata.version was upgraded to 31")
}

/// Adds the settings of the suite's single nodes, and enables the next version's levels.
fn with_defaults(properties: &str) -> String {
    format!(
        "{properties}unstable.feature.versions.enable=true\noffsets.topic.replication.factor=1\ngroup.initial.rebalance.delay.ms=0\nlog.segment.bytes=1048576\n"
    )
}

/// Returns topic and partition index, from `kafka-topics --describe`.
fn partitions_of(described: &str) -> Vec<(String, String)> {
    let partition = |line: &str| {
        let field = |name: &str| {
            let mut fields = line.split('\t').map(str::trim);
            fields.find_map(|field| Some(field.strip_prefix(name)?.to_owned()))
        };
        Some((field("Topic: ")?, field("Partition: ")?))
    };
    described.lines().filter_map(partition).collect()
}

fn text_of(path: &Path) -> Result<String> {
    let text = path.to_str().context("the target directory is not UTF-8")?;
    Ok(text.to_owned())
}

impl Steps {
    fn parse(printed: &str) -> Result<Steps> {
        let find = |prefix: &str| {
            let mut lines = printed.lines().map(str::trim);
            lines.find_map(|line| line.strip_prefix(prefix))
        };
        let section = |number: usize| {
            let from = printed.split(&format!("\n{number}. ")).nth(1)?;
            from.split(&format!("\n{}. ", number + 1)).next()
        };
        let settings = |number| {
            let lines = section(number).context("a step is missing")?.lines();
            let lines = lines.filter_map(|line| line.strip_prefix("     "));
            Ok::<_, anyhow::Error>(lines.map(|line| format!("{line}\n")).collect())
        };
        let paths = find("mv ").context("nothing is to be moved")?;
        let (from, to) = paths.split_once(' ').context("mv takes two paths")?;
        Ok(Steps {
            cluster_id: find("cluster.id").context("no cluster.id")?.trim().to_owned(),
            controller_properties: settings(1)?,
            broker_properties: settings(3)?,
            moved: (from.into(), to.into()),
        })
    }
}

/// A result line of the Java client: name and outcome.
type Case = (String, std::result::Result<(), String>);

fn report_cases(report: Report<'_>, cases: Vec<Case>) {
    for (name, outcome) in cases {
        report(&name, outcome.map_err(anyhow::Error::msg));
    }
}

/// A Java client that runs until its standard input is closed; killed when dropped.
struct Client {
    name: String,
    child: Child,
    out: PathBuf,
}

impl Client {
    fn check_running(&mut self) -> Result<()> {
        match self.child.try_wait()? {
            None => Ok(()),
            Some(status) => bail!("{} ended early with {status}", self.name),
        }
    }

    /// Waits until the first case has ended.
    fn wait_for_case(&mut self) -> Result<()> {
        let asked = Instant::now();
        while super::clients::parse(&fs::read_to_string(&self.out)?).is_empty() {
            self.check_running()?;
            ensure!(
                asked.elapsed() < Duration::from_secs(120),
                "{} ends no case",
                self.name
            );
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    fn finish(mut self) -> Result<Vec<Case>> {
        drop(self.child.stdin.take());
        let asked = Instant::now();
        let status = loop {
            if let Some(status) = self.child.try_wait()? {
                break status;
            }
            ensure!(
                asked.elapsed() < Duration::from_secs(150),
                "{} does not end",
                self.name
            );
            std::thread::sleep(Duration::from_millis(20));
        };
        let cases: Vec<Case> = super::clients::parse(&fs::read_to_string(&self.out)?)
            .into_iter()
            .collect();
        let has_failed = cases.iter().any(|(_, outcome)| outcome.is_err());
        ensure!(
            status.success() || has_failed,
            "{} ended with {status} (log: {})",
            self.name,
            self.out.with_extension("err").display()
        );
        Ok(cases)
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
