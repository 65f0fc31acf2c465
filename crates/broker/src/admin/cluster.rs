//! Kafka's gauges of a broker and its controller. This broker is a cluster of one node with one
//! replica of each partition: a good part of them is constant, and their help says so.

use super::AdminView;
use super::exposition::Page;
use crate::net::authentication_counts::End;

/// `BrokerState.RUNNING`: the admin address is served from then on.
const RUNNING: i32 = 3;

pub fn write_metrics(page: &mut Page, view: &AdminView) {
    write_controller(page, view);
    page.single(
        "kafka_server_kafkaserver_brokerstate",
        "gauge",
        "Always 3: running.",
        RUNNING,
    );
    page.single("kafka_brokers", "gauge", "Always 1: this broker.", 1);
    const INFO: &str = "kafka_broker_info";
    page.metric(INFO, "gauge", "Always 1; id and address of this broker.");
    let config = view.node.config();
    let listener = config.advertised_listeners.first();
    let address = listener.map_or(String::new(), |listener| {
        format!("{}:{}", listener.host, listener.port)
    });
    let labels = [("id", &*config.node_id.to_string()), ("address", &*address)];
    page.sample(INFO, &labels, 1);
}

fn write_controller(page: &mut Page, view: &AdminView) {
    let image = view.node.image();
    let partitions = &view.node.storage.partitions;
    let offline = partitions.all_unserved().len();
    for (name, help, value) in [
        (
            "activecontrollercount",
            "Always 1: this node is the controller.",
            1,
        ),
        (
            "offlinepartitionscount",
            "Partitions that are not served: damaged, or not opened yet.",
            offline,
        ),
        ("preferredreplicaimbalancecount", "Always 0: one replica each.", 0),
        ("globaltopiccount", "Topics.", image.topics.len()),
        (
            "globalpartitioncount",
            "Partitions of all topics.",
            image.topics.partition_count(),
        ),
    ] {
        let name = format!("kafka_controller_kafkacontroller_{name}");
        page.single(&name, "gauge", help, value);
    }
    write_unclean_elections(page, "uncleanleaderelections_total");
}

/// - `name`: differs between exporters.
pub fn write_unclean_elections(page: &mut Page, name: &str) {
    page.single(
        &format!("kafka_controller_controllerstats_{name}"),
        "counter",
        "Always 0: one replica each.",
        0,
    );
}

/// Writes connections by listener.
pub fn write_listeners(page: &mut Page, view: &AdminView) {
    let listeners = view.connections.by_listener();
    // Apache Kafka's group is "socket-server-metrics"; exporters spell it both ways.
    for name in [
        "kafka_server_socketservermetrics_connection_count",
        "kafka_server_socket_server_metrics_connection_count",
    ] {
        page.metric(name, "gauge", "Open connections.");
        for (listener, connections) in &listeners {
            page.sample(name, &[("listener", listener)], connections.open);
        }
    }
    const CREATED: &str = "kafka_server_socketservermetrics_connection_creation_total";
    page.metric(CREATED, "counter", "Connections accepted.");
    for (listener, connections) in &listeners {
        page.sample(CREATED, &[("listener", listener)], connections.accepted);
    }
    let authentications = view.connections.authentications();
    for end in End::ALL {
        let name = format!("kafka_server_socketservermetrics_{}_total", end.name());
        page.metric(
            &name,
            "counter",
            "Authentications that have ended so, by TLS or SASL.",
        );
        for listener in listeners.keys() {
            let count = authentications.of_listener(listener, end);
            page.sample(&name, &[("listener", listener)], count);
        }
    }
    const ENDED: &str = "ottla_authentications_total";
    page.metric(
        ENDED,
        "counter",
        "Authentications by what the client authenticated with.",
    );
    for (listener, means, end, count) in authentications.iter() {
        let labels = [
            ("listener", &**listener),
            ("mechanism", means.name()),
            ("end", end.name()),
        ];
        page.sample(ENDED, &labels, count);
    }
}

/// Writes what the process has read from and written to devices.
pub fn write_disk(page: &mut Page) {
    let Ok(counts) = std::fs::read_to_string("/proc/self/io") else {
        return;
    };
    let field = |name: &str| -> Option<u64> {
        let line = counts.lines().find_map(|line| line.strip_prefix(name));
        line?.trim().parse().ok()
    };
    for (name, help, value) in [
        ("read", "Bytes read from devices.", field("read_bytes:")),
        ("write", "Bytes written to devices.", field("write_bytes:")),
    ] {
        if let Some(value) = value {
            let name = format!("kafka_server_kafkaserver_linux_disk_{name}_bytes");
            page.single(&name, "counter", help, value);
        }
    }
}

/// Writes the open descriptors of the process.
pub fn write_open_files(page: &mut Page) {
    if let Ok(entries) = std::fs::read_dir("/proc/self/fd") {
        page.single("process_open_fds", "gauge", "Open descriptors.", entries.count());
    }
}
