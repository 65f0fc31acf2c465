//! Keys that all three clients, or two of them, share.

use super::super::key::{
    Allowed,
    ClientKind::{Admin, Consumer, Producer},
    ConfigKey, boolean, int, list, long, string,
};

const CLASSES: &str = "classes of a Java program cannot be loaded here";

pub(super) const CLIENT_KEYS: &[ConfigKey] = &[
    list(
        "bootstrap.servers",
        "",
        "Where the cluster is asked for its brokers first, as host:port, host:port; [::1]:9092 for IPv6.",
    )
    .of(&[Producer, Consumer])
    .required()
    .allowed(Allowed::NotEmptyList),
    list(
        "bootstrap.servers",
        "",
        "Where the cluster is asked for its brokers first, as host:port, host:port; [::1]:9092 for IPv6.",
    )
    .of(&[Admin]),
    list(
        "bootstrap.controllers",
        "",
        "Where controllers are asked, past the brokers.",
    )
    .of(&[Admin])
    .refused("this client talks to brokers, which pass requests on to the controller"),
    string(
        "client.id",
        "",
        "The name under which the broker logs, counts and limits this client; numbered by itself when not set.",
    ),
    string(
        "client.rack",
        "",
        "The rack or zone this consumer is in, so that it can read from a replica nearby.",
    )
    .of(&[Consumer]),
    string(
        "client.dns.lookup",
        "use_all_dns_ips",
        "Whether every address of a broker's name is tried, or its canonical names.",
    )
    .one_of(&["use_all_dns_ips", "resolve_canonical_bootstrap_servers_only"])
    .no_effect(
        "every address of a name is tried, in the order of the answer; canonical names serve only Kerberos",
    ),
    int(
        "request.timeout.ms",
        "30000",
        "How long a request may go unanswered; then its connection is closed and it is retried.",
    )
    .ms()
    .at_least(0)
    .costs("lower: a slow broker gets the same work twice; higher: a dead one is noticed late"),
    int(
        "default.api.timeout.ms",
        "60000",
        "How long a call may take that names no limit of its own, retries included.",
    )
    .ms()
    .at_least(0)
    .of(&[Consumer, Admin]),
    int(
        "retries",
        "2147483647",
        "How often a call is tried again before default.api.timeout.ms ends it.",
    )
    .between(0, 2_147_483_647)
    .of(&[Admin]),
    long(
        "retry.backoff.ms",
        "100",
        "How long to wait before a request is tried again; doubles with every failure (KIP-580).",
    )
    .ms()
    .at_least(0),
    long(
        "retry.backoff.max.ms",
        "1000",
        "The longest wait before a request is tried again.",
    )
    .ms()
    .at_least(0),
    long(
        "reconnect.backoff.ms",
        "50",
        "How long to wait before a broker is connected to again; doubles with every failure.",
    )
    .ms()
    .at_least(0),
    long(
        "reconnect.backoff.max.ms",
        "1000",
        "The longest wait before a broker is connected to again.",
    )
    .ms()
    .at_least(0),
    long(
        "socket.connection.setup.timeout.ms",
        "10000",
        "How long making a connection may take; doubles with every failure.",
    )
    .ms(),
    long(
        "socket.connection.setup.timeout.max.ms",
        "30000",
        "The longest that making a connection may take.",
    )
    .ms(),
    long(
        "connections.max.idle.ms",
        "540000",
        "After how long without a request a connection is closed; negative: never.",
    )
    .ms()
    .of(&[Producer, Consumer]),
    long(
        "connections.max.idle.ms",
        "300000",
        "After how long without a request a connection is closed; negative: never.",
    )
    .ms()
    .of(&[Admin]),
    int(
        "send.buffer.bytes",
        "131072",
        "The kernel's buffer for what is sent (SO_SNDBUF); -1 leaves it to the system.",
    )
    .bytes()
    .at_least(-1)
    .costs("a connection carries at most this per round trip"),
    int(
        "receive.buffer.bytes",
        "32768",
        "The kernel's buffer for what is received (SO_RCVBUF); -1 leaves it to the system.",
    )
    .bytes()
    .at_least(-1)
    .of(&[Producer]),
    int(
        "receive.buffer.bytes",
        "65536",
        "The kernel's buffer for what is received (SO_RCVBUF); -1 leaves it to the system.",
    )
    .bytes()
    .at_least(-1)
    .costs("a connection carries at most this per round trip; -1 lets the kernel grow it")
    .of(&[Consumer, Admin]),
    long(
        "metadata.max.age.ms",
        "300000",
        "After how long the brokers and partitions are asked for again, though nothing failed.",
    )
    .ms()
    .at_least(0),
    long(
        "metadata.max.idle.ms",
        "300000",
        "After how long without a record a producer forgets a topic.",
    )
    .ms()
    .at_least(5000)
    .of(&[Producer]),
    string(
        "metadata.recovery.strategy",
        "rebootstrap",
        "Whether bootstrap.servers are asked again when no known broker answers (KIP-899).",
    )
    .allowed(Allowed::OneOfIgnoringCase(&["REBOOTSTRAP", "NONE"])),
    long(
        "metadata.recovery.rebootstrap.trigger.ms",
        "300000",
        "After how long without fresh metadata bootstrap.servers are asked again (KIP-1102).",
    )
    .ms()
    .at_least(0),
    boolean(
        "enable.metrics.push",
        "true",
        "Whether the broker may ask this client for metrics (KIP-714).",
    )
    .of(&[Producer, Consumer]),
    boolean(
        "enable.metrics.push",
        "false",
        "Whether the broker may ask this client for metrics (KIP-714).",
    )
    .of(&[Admin]),
    long(
        "metrics.sample.window.ms",
        "30000",
        "How long one sample of a rate or an average is.",
    )
    .ms()
    .at_least(0),
    int(
        "metrics.num.samples",
        "2",
        "How many samples a rate or an average looks back.",
    )
    .at_least(1),
    string(
        "metrics.recording.level",
        "INFO",
        "How many metrics are recorded.",
    )
    .one_of(&["INFO", "DEBUG", "TRACE"])
    .no_effect("every metric is always recorded; they are made to cost next to nothing"),
    list(
        "metric.reporters",
        "org.apache.kafka.common.metrics.JmxReporter",
        "Where metrics are reported.",
    )
    .no_effect("metrics are read from the client, as Prometheus text or OTLP"),
    list("interceptor.classes", "", "What sees every record on its way.")
        .of(&[Producer, Consumer])
        .no_effect(CLASSES),
    list("config.providers", "", "What fills placeholders in the settings.").refused(CLASSES),
];
