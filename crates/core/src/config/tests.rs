//! Configuration files: what is accepted, and the resulting configuration.

use std::collections::BTreeMap;

use super::*;

fn read(lines: &[(&str, &str)]) -> Result<NodeConfig, ConfigError> {
    let properties: BTreeMap<String, String> = lines
        .iter()
        .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
        .collect();
    NodeConfig::from_properties(&properties, [0; 4])
}

fn check_refused(lines: &[(&str, &str)], key: &str, problem: &str) {
    let error = read(lines).unwrap_err();
    assert_eq!(error.key, key);
    assert!(error.to_string().contains(problem), "{error}");
}

#[test]
fn without_a_file_the_broker_listens_on_loopback() {
    let config = read(&[]).unwrap();
    assert_eq!(config.node_id, 1);
    assert_eq!(config.listeners[0].to_string(), "PLAINTEXT://127.0.0.1:9092");
    assert_eq!(config.advertised_listeners, config.listeners);
    assert_eq!(
        config.controller_listener.to_string(),
        "CONTROLLER://127.0.0.1:9093"
    );
    assert_eq!(config.admin_listener, Some(("127.0.0.1".into(), 9644)));
    assert_eq!(config.log_directories, [PathBuf::from("./ottla-data")]);
    assert_eq!(config.metadata_directory, PathBuf::from("./ottla-data"));
    assert_eq!(config.durability, Durability::Disk);
    assert_eq!(
        (
            config.partition_count_default,
            config.offsets_topic.partition_count
        ),
        (1, 50)
    );
    assert_eq!(config.network.request_bytes_max, 104_857_600);
    assert_eq!(config.warnings, Vec::<String>::new());
}

#[test]
fn the_file_shipped_with_kafka_is_accepted_unchanged() {
    let config = read(&[
        ("process.roles", "broker,controller"),
        ("node.id", "7"),
        ("controller.quorum.bootstrap.servers", "localhost:9093"),
        ("listeners", "PLAINTEXT://:9092,CONTROLLER://:9093"),
        ("inter.broker.listener.name", "PLAINTEXT"),
        (
            "advertised.listeners",
            "PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093",
        ),
        ("controller.listener.names", "CONTROLLER"),
        (
            "listener.security.protocol.map",
            "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL",
        ),
        ("log.dirs", " /tmp/a "),
        ("num.partitions", "3"),
        ("log.retention.hours", "168"),
        ("metadata.log.dir", "/tmp/m"),
    ])
    .unwrap();
    assert_eq!(config.node_id, 7);
    // The controller's listener belongs to Kafka's controller; it is not served.
    assert_eq!(config.listeners.len(), 1);
    assert_eq!(
        config.advertised_listeners[0].to_string(),
        "PLAINTEXT://localhost:9092"
    );
    assert_eq!(
        (&*config.controller_listener.name, config.controller_listener.port),
        ("CONTROLLER", 9093)
    );
    assert_eq!(config.log_directories, [PathBuf::from("/tmp/a")]);
    assert_eq!(config.metadata_directory, PathBuf::from("/tmp/m"));
    assert_eq!(config.partition_count_default, 3);
}

#[test]
fn port_zero_and_an_empty_host_are_advertised_as_the_actual_address() {
    let mut config = read(&[("listeners", "PLAINTEXT://:0")]).unwrap();
    config.bound("PLAINTEXT", 43_210, "box.example");
    assert_eq!(config.listeners[0].port, 43_210);
    assert_eq!(
        config.advertised_listeners[0].to_string(),
        "PLAINTEXT://box.example:43210"
    );
    let mut config = read(&[
        ("listeners", "PLAINTEXT://[::1]:0"),
        ("advertised.listeners", "PLAINTEXT://out:99"),
    ])
    .unwrap();
    config.bound("PLAINTEXT", 43_210, "box.example");
    assert_eq!(config.listeners[0].to_string(), "PLAINTEXT://[::1]:43210");
    assert_eq!(config.advertised_listeners[0].to_string(), "PLAINTEXT://out:99");
}

#[test]
fn an_address_that_leads_nowhere_is_not_advertised() {
    let everywhere = ("listeners", "PLAINTEXT://0.0.0.0:9092");
    check_refused(&[everywhere], "listeners", "0.0.0.0");
    check_refused(
        &[everywhere, ("advertised.listeners", "PLAINTEXT://0.0.0.0:9092")],
        "advertised.listeners",
        "0.0.0.0",
    );
    let one = ("advertised.listeners", "PLAINTEXT://box:9092");
    let config = read(&[everywhere, one]).unwrap();
    assert_eq!(&*config.listeners[0].host, "0.0.0.0");
    assert_eq!(config.advertised_listeners[0].to_string(), "PLAINTEXT://box:9092");
}

#[test]
fn a_listener_that_is_not_advertised_sends_its_clients_to_its_own_address() {
    let two = |second: &str| {
        let listeners = format!("PLAINTEXT://0.0.0.0:9092,SSL://{second}:9093");
        let mut config = read(&[
            ("listeners", &listeners),
            ("advertised.listeners", "PLAINTEXT://box:9092"),
        ])
        .unwrap();
        config.bound("SSL", 9093, "here.example");
        config.advertised_listeners[1].to_string()
    };
    assert_eq!(two("127.0.0.1"), "SSL://127.0.0.1:9093");
    // As Apache Kafka, which starts with such a file.
    for everywhere in ["0.0.0.0", ""] {
        assert_eq!(two(everywhere), "SSL://here.example:9093");
    }
}

#[test]
fn listeners_share_a_port_only_as_ipv4_and_ipv6() {
    let read_two = |hosts: [&str; 2], ports: [u16; 2]| {
        let listeners = format!(
            "PLAINTEXT://{}:{},SSL://{}:{}",
            hosts[0], ports[0], hosts[1], ports[1]
        );
        read(&[("listeners", &listeners)]).map(drop)
    };
    for hosts in [
        ["127.0.0.1", "127.0.0.2"],
        ["a", "b"],
        ["127.0.0.1", "b"],
        ["", "[::1]"],
    ] {
        let problem = read_two(hosts, [9092, 9092]).unwrap_err().to_string();
        assert!(
            problem.contains("PLAINTEXT and SSL have the same port, 9092"),
            "{problem}"
        );
        assert!(read_two(hosts, [9092, 9093]).is_ok());
        assert!(read_two(hosts, [0, 0]).is_ok());
    }
    assert!(read_two(["127.0.0.1", "[::1]"], [9092, 9092]).is_ok());
}

#[test]
fn an_invalid_line_is_reported_by_name() {
    check_refused(&[("num.partitions", "many")], "num.partitions", "many");
    check_refused(&[("num.partitions", "0")], "num.partitions", "at least 1");
    check_refused(&[("ottla.durability", "hope")], "ottla.durability", "page-cache");
    check_refused(&[("log.retention.hours", "x")], "log.retention.hours", "x");
    check_refused(&[("node.id", "1"), ("broker.id", "2")], "broker.id", "node.id=1");
    check_refused(
        &[("listeners", "PLAINTEXT:9092")],
        "listeners",
        "NAME://host:port",
    );
    check_refused(&[("listeners", "PLAINTEXT://x:99999")], "listeners", "port");
    check_refused(&[("listeners", "FRONT://x:1")], "listeners", "FRONT");
    check_refused(
        &[("listeners", "PLAINTEXT://x:1,PLAINTEXT://x:2")],
        "listeners",
        "twice",
    );
    check_refused(
        &[("advertised.listeners", "OTHER://x:1")],
        "advertised.listeners",
        "OTHER",
    );
    check_refused(&[("log.dirs", "/a,/b")], "log.dirs", "2 log directories");
    check_refused(
        &[("ottla.admin.listener", "9644")],
        "ottla.admin.listener",
        "host:port",
    );
}

#[test]
fn tenants_are_told_apart_as_the_key_says() {
    use crate::tenant::TenantKind::{Address, ClientId, User};
    let tenants = read(&[]).unwrap().tenants;
    assert_eq!(&*tenants.key, [User, ClientId, Address]);
    assert_eq!((tenants.limits.known_max, tenants.metrics_max), (10_000, 20));
    let tenants = read(&[
        ("ottla.tenant.key", "address, user"),
        ("ottla.tenant.known.max", "7"),
    ]);
    let tenants = tenants.unwrap().tenants;
    assert_eq!(&*tenants.key, [Address, User]);
    assert_eq!(tenants.limits.known_max, 7);
    let refused = |key: &str, value: &str, problem: &str| check_refused(&[(key, value)], key, problem);
    refused("ottla.tenant.key", "client.id", "client-id");
    refused("ottla.tenant.key", "user,user", "user");
    refused("ottla.tenant.key", ",", "names nothing");
    refused("ottla.tenant.known.max", "0", "1");
    refused("ottla.tenant.known.max", "1000000000", "100000");
    refused("ottla.tenant.new.per.minute", "-5", "at least 1");
}

#[test]
fn nothing_is_ignored_silently() {
    let config = read(&[
        ("num.partition", "3"),
        ("num.io.threads", "8"),
        ("ssl.provider", "x"),
        ("ottla.durability", "page-cache"),
        ("ottla.admin.listener", ""),
    ])
    .unwrap();
    assert_eq!(config.admin_listener, None);
    let all = config.warnings.join("\n");
    for expected in [
        "did you mean num.partitions?",
        "num.io.threads has no effect",
        "ssl.provider has no effect",
        "power cut",
    ] {
        assert!(all.contains(expected), "{expected} is not in {all}");
    }
}

#[test]
fn topic_settings_are_checked_as_kafka_checks_them() {
    let check = |key: &str, value: &str, expected: Option<&str>| {
        let values = [(Arc::from(key), Arc::from(value))].into();
        match (topic_values_error(&values), expected) {
            (None, None) => {}
            (Some(problem), Some(part)) => assert!(problem.contains(part), "{problem}"),
            (got, _) => panic!("{key}={value}: {got:?}"),
        }
    };
    check("retention.ms", "-1", None);
    check("retention.ms", "-2", Some("retention.ms"));
    check("retention.ms", "soon", Some("soon"));
    check("cleanup.policy", "compact,delete", None);
    check("cleanup.policy", "compost", Some("compost"));
    check("segment.bytes", "1024", Some("1048576"));
    check("compression.type", "lzma", Some("zstd"));
    check("compression.gzip.level", "0", Some("0"));
    check("no.such.key", "1", Some("Unknown topic config name: no.such.key"));
    check("remote.storage.enable", "true", Some("tiered storage"));
    let lag = [("min.compaction.lag.ms", "5"), ("max.compaction.lag.ms", "4")];
    let values = lag
        .iter()
        .map(|(key, value)| (Arc::from(*key), Arc::from(*value)))
        .collect();
    assert!(topic_values_error(&values).is_some());
}

#[test]
fn names_of_listeners_are_the_same_in_any_case() {
    let config = read(&[
        ("listeners", "front://x:1,Sasl_Plaintext://x:2,control://x:3"),
        ("advertised.listeners", "FRONT://out:1"),
        (
            "listener.security.protocol.map",
            "Front:sasl_plaintext,SASL_PLAINTEXT:PLAINTEXT,CONTROL:SSL",
        ),
        ("controller.listener.names", "Control"),
        ("inter.broker.listener.name", "fronT"),
        ("sasl.enabled.mechanisms", "SCRAM-SHA-256"),
    ])
    .unwrap();
    let names: Vec<String> = config.listeners.iter().map(Listener::to_string).collect();
    assert_eq!(names, ["FRONT://x:1", "SASL_PLAINTEXT://x:2"]);
    assert_eq!(config.advertised_listeners[0].to_string(), "FRONT://out:1");
    let protocols: Vec<SecurityProtocol> = config
        .listeners
        .iter()
        .chain([&config.controller_listener])
        .map(|listener| listener.security_protocol)
        .collect();
    // The controller's is recorded for Apache Kafka, not served.
    assert_eq!(
        protocols,
        [
            SecurityProtocol::SaslPlaintext,
            SecurityProtocol::Plaintext,
            SecurityProtocol::Ssl
        ]
    );
    assert_eq!(&*config.inter_broker_listener_name, "FRONT");
    assert!(config.security["FRONT"].sasl.is_some() && config.security["SASL_PLAINTEXT"].sasl.is_none());
    check_refused(
        &[
            ("listeners", "a://x:1,A://x:2"),
            ("listener.security.protocol.map", "A:PLAINTEXT"),
        ],
        "listeners",
        "A twice",
    );
}

#[test]
fn a_protocol_map_is_the_only_source_of_protocols() {
    const MAP: &str = "listener.security.protocol.map";
    let plain = ("listeners", "PLAINTEXT://x:1,CTL://x:2");
    let names = ("controller.listener.names", "CTL");
    check_refused(
        &[plain, names, (MAP, "CTL:PLAINTEXT")],
        "listeners",
        "PLAINTEXT is not in listener.security",
    );
    check_refused(
        &[plain, names, (MAP, "PLAINTEXT:PLAINTEXT")],
        "listeners",
        "CTL is not in",
    );
    // Also of a controller whose listener is elsewhere.
    let only = ("listeners", "PLAINTEXT://x:1");
    check_refused(
        &[only, names, (MAP, "PLAINTEXT:PLAINTEXT")],
        names.0,
        "CTL is not in",
    );
    check_refused(
        &[(MAP, "PLAINTEXT:PLAINTEXT,plaintext:SSL")],
        MAP,
        "two protocols",
    );
    check_refused(&[(MAP, "PLAINTEXT:TLS")], MAP, "no security protocol TLS");
    check_refused(&[(MAP, "PLAINTEXT")], MAP, "name:protocol");
    assert!(read(&[(MAP, "PLAINTEXT:PLAINTEXT,PLAINTEXT:PLAINTEXT")]).is_ok());
}

#[test]
fn beside_a_secured_listener_the_protocol_of_the_controllers_must_be_said() {
    let sasl = [
        ("listeners", "SASL_PLAINTEXT://x:1,CTL://x:2"),
        ("controller.listener.names", "CTL"),
        ("sasl.enabled.mechanisms", "SCRAM-SHA-512"),
    ];
    check_refused(
        &sasl,
        "listeners",
        "listener.security.protocol.map must name its protocol",
    );
    check_refused(
        &[("listeners", "SASL_PLAINTEXT://x:1"), sasl[1], sasl[2]],
        "controller.listener.names",
        "CTL is no security protocol",
    );
    let plain = [("listeners", "PLAINTEXT://x:1,CTL://x:2"), sasl[1]];
    let controller = read(&plain).unwrap().controller_listener;
    assert_eq!(controller.security_protocol, SecurityProtocol::Plaintext);
}

#[test]
fn the_listener_between_brokers_is_named_or_found_by_its_protocol() {
    const NAME: &str = "inter.broker.listener.name";
    const PROTOCOL: &str = "security.inter.broker.protocol";
    let map = (
        "listener.security.protocol.map",
        "FRONT:PLAINTEXT,PLAINTEXT:PLAINTEXT",
    );
    let both = ("listeners", "FRONT://x:1,PLAINTEXT://x:2");
    let found = |lines: &[(&str, &str)]| read(lines).unwrap().inter_broker_listener_name.to_string();
    assert_eq!(found(&[map, both]), "PLAINTEXT");
    assert_eq!(found(&[map, both, (NAME, "FRONT")]), "FRONT");
    check_refused(
        &[map, both, (NAME, "FRONT"), (PROTOCOL, "PLAINTEXT")],
        NAME,
        PROTOCOL,
    );
    check_refused(&[map, both, (NAME, "BACK")], NAME, "not the name of a listener");
    let one = read(&[map, ("listeners", "FRONT://x:1"), (PROTOCOL, "SSL")]).unwrap();
    assert_eq!(&*one.inter_broker_listener_name, "FRONT");
    assert!(one.warnings[0].contains("FRONT stands in"), "{:?}", one.warnings);
}

#[test]
fn a_setting_of_a_listener_that_does_not_exist_is_reported() {
    let config = read(&[
        ("listener.name.plaintext.sasl.enabled.mechanisms", "PLAIN"),
        ("listener.name.controller.sasl.enabled.mechanisms", "PLAIN"),
        ("listener.name.PLAINTEXT.sasl.enabled.mechanisms", "PLAIN"),
        ("listener.name.back.plain.sasl.jaas.config", "x"),
    ])
    .unwrap();
    assert_eq!(config.warnings.len(), 2, "{:?}", config.warnings);
    assert!(config.warnings[0].contains("no listener is named PLAINTEXT in lower case"));
    assert!(config.warnings[1].contains("no listener is named back in lower case"));
}

#[test]
fn the_stores_of_one_listener_can_be_set_while_the_broker_runs() {
    for name in [
        "keystore.type",
        "keystore.location",
        "keystore.password",
        "keystore.key",
        "keystore.certificate.chain",
        "key.password",
        "truststore.type",
        "truststore.location",
        "truststore.password",
        "truststore.certificates",
    ] {
        let own = format!("listener.name.outside.ssl.{name}");
        assert_eq!(super::broker_update_problem(&own, false), None);
        let of_all_brokers = super::broker_update_problem(&own, true).unwrap();
        assert!(
            of_all_brokers.contains("default cluster level"),
            "{of_all_brokers}"
        );
        let general = super::broker_update_problem(&format!("ssl.{name}"), false).unwrap();
        assert!(general.contains("using the listener prefix"), "{general}");
    }
    for name in ["allow.dn.changes", "principal.mapping.rules"] {
        for name in [format!("listener.name.outside.ssl.{name}"), format!("ssl.{name}")] {
            let problem = super::broker_update_problem(&name, false).unwrap();
            assert!(
                problem.contains("Cannot update these configs dynamically"),
                "{problem}"
            );
        }
    }
}
