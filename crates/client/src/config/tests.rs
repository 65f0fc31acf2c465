//! Settings against Kafka's rules, one behaviour each.

use super::*;

fn producer() -> Config {
    Config::new().set("bootstrap.servers", "localhost:9092")
}

#[track_caller]
fn message<T: fmt::Debug>(result: Result<T, Error>) -> String {
    result.unwrap_err().to_string()
}

#[test]
fn every_client_can_be_made_from_bootstrap_servers_alone() {
    let producer = ProducerConfig::from_config(&producer()).unwrap();
    assert_eq!(
        (producer.linger_ms, producer.batch_bytes, producer.acks),
        (5, 16384, Acks::All)
    );
    assert!(producer.enable_idempotence && producer.client.warnings.is_empty());
    let consumer = ConsumerConfig::from_config(&self::producer().set("group.id", "g")).unwrap();
    assert_eq!(
        consumer.assignors,
        [AssignorKind::Range, AssignorKind::CooperativeSticky]
    );
    assert!(consumer.auto_commit_enabled && consumer.auto_offset_reset == OffsetReset::Latest);
    let admin = AdminConfig::from_config(&self::producer()).unwrap();
    assert_eq!(admin.client.connections_idle_ms_max, 300_000);
}

#[test]
fn idempotence_gives_way_only_where_it_is_not_written() {
    let config = ProducerConfig::from_config(&producer().set("acks", "1")).unwrap();
    assert!(!config.enable_idempotence);
    assert_eq!(
        config.client.warnings[0].message,
        "Idempotence will be disabled because acks is set to 1, not set to 'all'."
    );
    let written = producer().set("acks", "1").set("enable.idempotence", "true");
    assert!(message(ProducerConfig::from_config(&written)).starts_with("Must set acks to all"));
}

#[test]
fn a_default_delivery_timeout_gives_way_to_longer_waits() {
    let config = ProducerConfig::from_config(&producer().set("linger.ms", "100000")).unwrap();
    assert_eq!(config.delivery_timeout_ms, 130_000);
    assert_eq!(config.client.warnings.len(), 1);
}

#[test]
fn unknown_keys_are_warned_of_with_the_nearest() {
    let config = producer()
        .set("linger.msec", "5")
        .set("group.id", "g")
        .set("zookeeper.connect", "z");
    let warnings = config.warnings(ClientKind::Producer).unwrap();
    let warnings: Vec<String> = warnings.iter().map(Warning::to_string).collect();
    assert_eq!(
        warnings,
        [
            "linger.msec is no setting of Kafka; linger.ms may be meant",
            "group.id has no effect: it is a setting of consumer",
            "zookeeper.connect is no setting of Kafka",
        ]
    );
}

#[test]
fn secrets_are_not_shown() {
    let config = producer()
        .set("security.protocol", "SASL_PLAINTEXT")
        .set("sasl.mechanism", "PLAIN")
        .set("sasl.username", "alice")
        .set("sasl.password", "tr0mb0ne")
        .set("sasl.pasword", "tr0mb0ne");
    assert!(!format!("{config:?}").contains("tr0mb0ne"));
    let made = ProducerConfig::from_config(&config).unwrap();
    assert!(!format!("{made:?}").contains("tr0mb0ne"));
    assert_eq!(
        made.client.security.sasl.as_ref().unwrap().password.reveal(),
        "tr0mb0ne"
    );
    let jaas = producer()
        .set("security.protocol", "SASL_PLAINTEXT")
        .set("sasl.mechanism", "PLAIN")
        .set("sasl.jaas.config", "a.B required password=\"tr0mb0ne\"");
    assert!(!message(ProducerConfig::from_config(&jaas)).contains("tr0mb0ne"));
}

#[test]
fn addresses_of_both_families() {
    let config = producer().set("bootstrap.servers", "a.example:1, [::1]:9092 ,SSL://b:3");
    let servers = ProducerConfig::from_config(&config)
        .unwrap()
        .client
        .bootstrap_servers
        .clone();
    let servers: Vec<(&str, u16)> = servers.iter().map(|a| (&*a.host, a.port)).collect();
    assert_eq!(servers, [("a.example", 1), ("::1", 9092), ("b", 3)]);
}
