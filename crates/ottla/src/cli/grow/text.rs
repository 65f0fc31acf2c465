//! The output of `ottla grow` for people: what was written, and the next steps.

use std::fmt::Write;
use std::path::{Path, PathBuf};

use ottla_broker::growth::{EndpointImage, Growth, METADATA_VERSION, SHARE_VERSION, STREAMS_VERSION};

/// Kafka's security protocols by their number in a registration record.
const PROTOCOLS: [&str; 4] = ["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"];

pub fn of_check(growth: &Growth, out: &Path) -> String {
    let facts = facts(growth);
    let written = written(growth, out);
    format!("{facts}would write       {written}\n\nEvery check passed, nothing was written.\n")
}

pub fn of_growth(growth: &Growth, out: &Path) -> String {
    let facts = facts(growth);
    let written = written(growth, out);
    let steps = steps(growth, &absolute(out));
    format!("{facts}written           {written}; read back\n\n{steps}")
}

fn written(growth: &Growth, out: &Path) -> String {
    let controller = growth.controller();
    let (out, id, listener) = (out.display(), controller.node_id, &controller.listener);
    format!("{out}: controller {id} at {listener}, the only voter")
}

fn facts(growth: &Growth) -> String {
    let broker = growth.broker();
    let endpoints: Vec<String> = broker.endpoints.iter().map(endpoint).collect();
    let levels: Vec<String> = growth
        .levels()
        .iter()
        .map(|(name, level)| format!("{name}={level}"))
        .collect();
    let (topics, partitions) = growth
        .partition_counts()
        .fold((0, 0), |(topics, partitions), (_, count)| {
            (topics + 1, partitions + count)
        });
    let lines = [
        ("cluster.id", growth.cluster_id().to_owned()),
        (
            "broker",
            format!("{} at {}", broker.broker_id, endpoints.join(",")),
        ),
        (
            "metadata",
            format!(
                "topics: {topics}, partitions: {partitions}, up to offset {} of epoch {}",
                growth.end_offset(),
                growth.last_epoch()
            ),
        ),
        ("levels", levels.join(" ")),
        ("needs", format!("Apache Kafka {} or newer", oldest_kafka(growth))),
    ];
    let damaged = growth.damaged_records().iter().map(|(partition, finding)| {
        let (topic, index) = (&partition.topic, partition.index);
        let (file, position, detail) = (finding.path.display(), finding.position, &finding.detail);
        (
            "damaged",
            format!("{topic}-{index}: {file} at position {position}: {detail}"),
        )
    });
    let mut text = String::new();
    for (name, value) in lines.into_iter().chain(damaged) {
        let _ = writeln!(text, "{name:<18}{value}");
    }
    text
}

/// Returns the first version that supports all finalized feature levels.
fn oldest_kafka(growth: &Growth) -> &'static str {
    let level = |name: &str| growth.levels().get(name).copied().unwrap_or(0);
    match level(METADATA_VERSION) {
        30.. => "4.3",
        28.. => "4.2",
        _ if level(SHARE_VERSION) > 0 || level(STREAMS_VERSION) > 0 => "4.2",
        26.. => "4.1",
        _ => "4.0",
    }
}

fn steps(growth: &Growth, out: &Path) -> String {
    let version = oldest_kafka(growth);
    let old_log = absolute(&growth.old_metadata_log());
    let kept = kept_beside(&old_log);
    let (old_log, kept) = (old_log.display(), kept.display());
    let broker = growth.broker();
    let bootstrap = broker.endpoints.first().map(address).unwrap_or_default();
    let controller = controller_properties(growth, out);
    let broker_properties = broker_properties(growth);
    format!(
        "The broker's own directory was not changed. Next, with Apache Kafka {version} or newer:

1. Start the controller with these settings. It leads within seconds. Controllers that are to be added later belong into
   controller.quorum.bootstrap.servers of every node now: brokers find the next leader by it alone.

   bin/kafka-server-start.sh controller.properties
{controller}
2. Move the old metadata log out of the broker's directory. With it there, Apache Kafka's broker would elect itself the
   leader of the old quorum, and never find the new controller.

   mv {old_log} {kept}

3. Start Apache Kafka's broker on the same directory, under the same id, with these settings and what else
   the broker's own server.properties sets. Clients go on.

   bin/kafka-server-start.sh broker.properties
{broker_properties}
4. See that it is there, then add brokers and controllers, and raise replication: docs/guides/growing.md.

   bin/kafka-metadata-quorum.sh --bootstrap-server {bootstrap} describe --replication

Back, until step 3: stop the controller for good, move the old metadata log back, start ottla serve.
"
    )
}

fn controller_properties(growth: &Growth, out: &Path) -> String {
    let controller = growth.controller();
    let listener = &controller.listener;
    indented(&[
        ("process.roles", "controller".to_owned()),
        ("node.id", controller.node_id.to_string()),
        ("listeners", listener.to_string()),
        ("controller.listener.names", listener.name.to_string()),
        ("controller.quorum.bootstrap.servers", controller_address(growth)),
        ("listener.security.protocol.map", protocol_map(growth)),
        ("log.dirs", out.display().to_string()),
    ])
}

fn broker_properties(growth: &Growth) -> String {
    let broker = growth.broker();
    let listeners: Vec<String> = broker.endpoints.iter().map(endpoint).collect();
    let paths: Vec<String> = growth
        .log_directories()
        .map(|path| absolute(path).display().to_string())
        .collect();
    let mut settings = vec![
        ("process.roles", "broker".to_owned()),
        ("node.id", broker.broker_id.to_string()),
        ("listeners", listeners.join(",")),
        (
            "inter.broker.listener.name",
            inter_broker_listener(growth).to_owned(),
        ),
        (
            "controller.listener.names",
            growth.controller().listener.name.to_string(),
        ),
        ("controller.quorum.bootstrap.servers", controller_address(growth)),
        ("listener.security.protocol.map", protocol_map(growth)),
        ("log.dirs", paths.join(",")),
    ];
    let metadata_directory = growth.metadata_directory();
    if growth.log_directories().all(|path| path != metadata_directory) {
        let path = absolute(metadata_directory).display().to_string();
        settings.push(("metadata.log.dir", path));
    }
    indented(&settings)
}

/// Returns the configured listener, if the broker was registered with it.
fn inter_broker_listener(growth: &Growth) -> &str {
    let configured = growth.inter_broker_listener_name();
    let endpoints = &growth.broker().endpoints;
    let registered = growth.broker().endpoint(configured).or(endpoints.first());
    registered.map_or(configured, |endpoint| &endpoint.listener_name)
}

fn indented(settings: &[(&str, String)]) -> String {
    settings.iter().fold("\n".to_owned(), |mut text, (key, value)| {
        let _ = writeln!(text, "     {key}={value}");
        text
    })
}

fn controller_address(growth: &Growth) -> String {
    let listener = &growth.controller().listener;
    host_and_port(&listener.host, listener.port)
}

fn protocol_map(growth: &Growth) -> String {
    let listener = &growth.controller().listener;
    let controller = (&*listener.name, listener.security_protocol.code());
    let brokers = growth.broker().endpoints.iter();
    let brokers = brokers.map(|endpoint| (&*endpoint.listener_name, endpoint.security_protocol));
    let entries: Vec<String> = std::iter::once(controller)
        .chain(brokers)
        .map(|(name, protocol)| format!("{name}:{}", protocol_name(protocol)))
        .collect();
    entries.join(",")
}

fn protocol_name(code: i16) -> &'static str {
    let index = usize::try_from(code).unwrap_or(usize::MAX);
    PROTOCOLS.get(index).copied().unwrap_or("PLAINTEXT")
}

fn endpoint(endpoint: &EndpointImage) -> String {
    format!("{}://{}", endpoint.listener_name, address(endpoint))
}

fn address(endpoint: &EndpointImage) -> String {
    host_and_port(&endpoint.host, endpoint.port)
}

fn host_and_port(host: &str, port: u16) -> String {
    match host.contains(':') {
        true => format!("[{host}]:{port}"),
        false => format!("{host}:{port}"),
    }
}

/// Returns a path for the old metadata log outside the log directory, in which Apache Kafka accepts
/// no other names.
fn kept_beside(metadata_log: &Path) -> PathBuf {
    let directory = metadata_log.parent().unwrap_or(Path::new("/"));
    let mut name = directory.file_name().unwrap_or_default().to_owned();
    name.push(".metadata-of-ottla");
    directory.with_file_name(name)
}

fn absolute(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
}
