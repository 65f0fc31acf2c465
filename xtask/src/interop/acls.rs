//! Access control: the same tools do the same on Ottla and on Apache Kafka with its
//! StandardAuthorizer, and ACLs survive a takeover in both directions.
//!
//! All clients are `User:ANONYMOUS`. It is no super user: on a resource without ACLs it may do
//! everything by `allow.everyone.if.no.acl.found`, elsewhere what the ACLs say. No step makes an
//! ACL for the cluster, which would shut Kafka's own broker out.

use anyhow::{Context, Result, bail, ensure};

use super::server::{Programs, Site, Target};
use super::table::Table;
use super::tools::{CONSOLE_CONSUMER, TOPICS, Tools, contains};

/// What a client says when it was denied.
const DENIAL: &str = "Not authorized";
const ACLS: &str = "org.apache.kafka.tools.AclCommand";
const CONSOLE_PRODUCER: &str = "org.apache.kafka.tools.ConsoleProducer";
const SETTINGS: [(&str, &str); 3] = [
    (
        "authorizer.class.name",
        "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    ),
    ("super.users", "User:admin;User:CN=ops,O=example"),
    ("allow.everyone.if.no.acl.found", "true"),
];

/// A tool, its arguments and its input.
type Step = (&'static str, &'static [&'static str], &'static str);

const PRODUCE: Step = (CONSOLE_PRODUCER, &["--topic", "orders"], "one\n");
const CONSUME: Step = (
    CONSOLE_CONSUMER,
    &[
        "--topic",
        "orders",
        "--group",
        "billing",
        "--from-beginning",
        "--max-messages",
        "1",
        "--timeout-ms",
        "15000",
    ],
    "",
);
const DESCRIBE: Step = (TOPICS, &["--describe", "--topic", "orders"], "");
const LIST: Step = (ACLS, &["--list"], "");

/// What the tools show counts; the text in the last place must be in it.
const STEPS: &[(&str, Step, &str)] = &[
    ("no ACLs are listed", LIST, ""),
    (
        "topics are created while there is no ACL",
        (
            TOPICS,
            &["--create", "--topic", "orders", "--partitions", "1"],
            "",
        ),
        "Created topic",
    ),
    ("a topic without ACLs takes records", PRODUCE, ""),
    (
        "an ACL of another user closes a topic",
        (
            ACLS,
            &[
                "--add",
                "--allow-principal",
                "User:bob",
                "--operation",
                "Read",
                "--topic",
                "orders",
            ],
            "",
        ),
        "operation=READ, permissionType=ALLOW",
    ),
    (
        "the same ACL again changes nothing",
        (
            ACLS,
            &[
                "--add",
                "--allow-principal",
                "User:bob",
                "--operation",
                "Read",
                "--topic",
                "orders",
            ],
            "",
        ),
        "operation=READ, permissionType=ALLOW",
    ),
    ("it is listed once", LIST, "principal=User:bob"),
    ("a closed topic is not listed", (TOPICS, &["--list"], ""), ""),
    (
        "a closed topic is not described",
        DESCRIBE,
        "does not exist as expected",
    ),
    (
        "a closed topic takes no records",
        PRODUCE,
        "Not authorized to access topics: [orders]",
    ),
    (
        "a closed topic gives no records",
        CONSUME,
        "Not authorized to access topics: [orders]",
    ),
    (
        "a prefix opens it for writing",
        (
            ACLS,
            &[
                "--add",
                "--allow-principal",
                "User:ANONYMOUS",
                "--operation",
                "Write",
                "--topic",
                "ord",
                "--resource-pattern-type",
                "prefixed",
            ],
            "",
        ),
        "patternType=PREFIXED",
    ),
    ("it takes records", PRODUCE, ""),
    (
        "a description needs a permission for the settings, too",
        DESCRIBE,
        "Topic authorization failed",
    ),
    (
        "permission to write allows no reading",
        CONSUME,
        "Not authorized to access topics: [orders]",
    ),
    (
        "the options for a consumer",
        (
            ACLS,
            &[
                "--add",
                "--allow-principal",
                "User:ANONYMOUS",
                "--consumer",
                "--topic",
                "orders",
                "--group",
                "billing",
            ],
            "",
        ),
        "resourceType=GROUP",
    ),
    ("it gives records", CONSUME, "one"),
    (
        "a denial for this address",
        (
            ACLS,
            &[
                "--add",
                "--deny-principal",
                "User:*",
                "--deny-host",
                "127.0.0.1",
                "--operation",
                "Read",
                "--group",
                "billing",
            ],
            "",
        ),
        "permissionType=DENY",
    ),
    (
        "a denied group is refused",
        CONSUME,
        "Not authorized to access group: billing",
    ),
    (
        "the ACLs that match a topic",
        (
            ACLS,
            &["--list", "--topic", "orders", "--resource-pattern-type", "match"],
            "",
        ),
        "patternType=PREFIXED",
    ),
    (
        "the ACLs of a principal",
        (ACLS, &["--list", "--principal", "User:ANONYMOUS"], ""),
        "resourceType=GROUP",
    ),
    (
        "no ACL without a type in its principal",
        (
            ACLS,
            &[
                "--add",
                "--allow-principal",
                "bob",
                "--operation",
                "Read",
                "--topic",
                "orders",
            ],
            "",
        ),
        "bob",
    ),
    (
        "removal by filter",
        (
            ACLS,
            &[
                "--remove",
                "--force",
                "--deny-principal",
                "User:*",
                "--deny-host",
                "127.0.0.1",
                "--operation",
                "Read",
                "--group",
                "billing",
            ],
            "",
        ),
        "",
    ),
    (
        "ACLs of all kinds",
        (
            ACLS,
            &[
                "--add",
                "--allow-principal",
                "User:CN=ops,O=example",
                "--allow-host",
                "10.0.0.1",
                "--operation",
                "All",
                "--transactional-id",
                "tx",
                "--delegation-token",
                "token",
                "--user-principal",
                "User:carol",
            ],
            "",
        ),
        "",
    ),
    ("all of them are listed", LIST, "principal=User:CN=ops,O=example"),
];

/// Runs the steps on both brokers, each on a directory of its own, then swaps the directories.
pub fn run(table: &mut Table, programs: &Programs) -> Result<()> {
    println!("acls: kafka-acls and denied tools against Ottla and Apache Kafka");
    let (ottla, kafka) = (
        Site::create("acls-ottla", &SETTINGS)?,
        Site::create("acls-kafka", &SETTINGS)?,
    );
    let mut add = |name: String, outcome: Result<()>| {
        let outcome = outcome.map_err(|error| format!("{error:#}").replace('\n', " "));
        println!(
            "acls: {name}: {}",
            outcome.as_ref().err().map_or("ok", String::as_str)
        );
        table.add_other(format!("acls: {name}"), outcome);
    };
    let ours = ottla.start(programs, Target::Ottla)?;
    let theirs = kafka.start(programs, Target::Kafka)?;
    for (name, step, wanted) in STEPS {
        let shown = [&ottla, &kafka].map(|site| shown(programs, site, step));
        add((*name).to_owned(), compare(shown, wanted));
    }
    ours.stop()?;
    theirs.stop()?;
    for (site, taker) in [(&ottla, Target::Kafka), (&kafka, Target::Ottla)] {
        let name = taker.name();
        let server = site
            .start(programs, taker)
            .with_context(|| format!("{name} on the other's directory"))?;
        add(
            format!("{name} has the ACLs of the other"),
            survivors(programs, site),
        );
        add(
            format!("{name} removes the ACLs of the other"),
            remove_all(programs, site),
        );
        server.stop()?;
    }
    let server = ottla
        .start(programs, Target::Ottla)
        .context("Ottla after Kafka removed ACLs")?;
    let listed = shown(programs, &ottla, &LIST);
    add(
        "Ottla lists none after Apache Kafka removed them".to_owned(),
        none(&listed),
    );
    server.stop()
}

/// The lines that a tool prints, sorted, since neither broker promises an order.
fn shown(programs: &Programs, site: &Site, (class, arguments, input): &Step) -> Vec<String> {
    let tools = Tools {
        kafka: &programs.kafka,
        bootstrap: site.bootstrap(),
    };
    let output = match tools.run_for_all(class, arguments, input) {
        Ok((true, output)) => output,
        Ok((false, output)) => format!("failed\n{output}"),
        Err(error) => format!("not started\n{error:#}"),
    };
    let mut lines: Vec<String> = output.lines().filter_map(told).collect();
    lines.sort();
    lines.dedup_by(|line, other| line == other && line.starts_with(DENIAL));
    lines
}

/// Of log lines, which come as often as the client tries, only the denial counts.
fn told(line: &str) -> Option<String> {
    let line = line.trim();
    if let Some(at) = line.find(DENIAL) {
        return Some(line[at..].to_owned());
    }
    let is_noise = line.is_empty() || line.starts_with("at ") || line.starts_with('[');
    (!is_noise).then(|| without_ids(line))
}

/// Replaces what differs from run to run: ids of topics.
fn without_ids(line: &str) -> String {
    let words = line.split('\t').map(|word| {
        if word.starts_with("TopicId:") {
            "TopicId"
        } else {
            word
        }
    });
    words.collect::<Vec<_>>().join(" ")
}

fn compare([ours, theirs]: [Vec<String>; 2], wanted: &str) -> Result<()> {
    contains(&theirs.join("\n"), wanted).context("Apache Kafka")?;
    contains(&ours.join("\n"), wanted).context("Ottla")?;
    ensure!(ours == theirs, "Ottla shows {ours:?}, Apache Kafka {theirs:?}");
    Ok(())
}

fn survivors(programs: &Programs, site: &Site) -> Result<()> {
    let listed = shown(programs, site, &LIST);
    let (_, _, wanted) = STEPS.last().expect("there are steps");
    contains(&listed.join("\n"), wanted)?;
    let count = listed
        .iter()
        .filter(|line| line.contains("permissionType="))
        .count();
    ensure!(count == 8, "{count} ACLs, not 8: {listed:?}");
    Ok(())
}

fn remove_all(programs: &Programs, site: &Site) -> Result<()> {
    const REMOVALS: [&[&str]; 5] = [
        &["--remove", "--force", "--topic", "orders"],
        &[
            "--remove",
            "--force",
            "--topic",
            "ord",
            "--resource-pattern-type",
            "prefixed",
        ],
        &["--remove", "--force", "--group", "billing"],
        &[
            "--remove",
            "--force",
            "--transactional-id",
            "tx",
            "--delegation-token",
            "token",
        ],
        &["--remove", "--force", "--user-principal", "User:carol"],
    ];
    for arguments in REMOVALS {
        let lines = shown(programs, site, &(ACLS, arguments, ""));
        if lines.iter().any(|line| line == "failed") {
            bail!("{arguments:?}: {lines:?}");
        }
    }
    none(&shown(programs, site, &LIST))
}

fn none(listed: &[String]) -> Result<()> {
    ensure!(listed.is_empty(), "ACLs are left: {listed:?}");
    Ok(())
}
