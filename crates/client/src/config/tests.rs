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
fn idempotence_is_dropped_only_where_it_is_not_set() {
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
fn a_default_delivery_timeout_is_raised_to_fit_longer_waits() {
    let config = ProducerConfig::from_config(&producer().set("linger.ms", "100000")).unwrap();
    assert_eq!(config.delivery_timeout_ms, 130_000);
    assert_eq!(config.client.warnings.len(), 1);
}

#[test]
fn unknown_keys_give_a_warning_with_the_nearest_known_key() {
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
fn strict_settings_refuse_unknown_keys() {
    let strict = producer().set("linger.msec", "5").strict();
    assert_eq!(
        message(ProducerConfig::from_config(&strict)),
        "linger.msec is no setting of Kafka; linger.ms may be meant"
    );
    assert!(ProducerConfig::from_config(&producer().set("linger.ms", "5").strict()).is_ok());
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

#[test]
fn unsupported_guarantees_are_refused_and_ignored_keys_give_a_warning() {
    let refused = |key: &str, value: &str| message(ProducerConfig::from_config(&producer().set(key, value)));
    assert_eq!(
        refused("transaction.two.phase.commit.enable", "true"),
        "Invalid value true for configuration transaction.two.phase.commit.enable: transactions that are part \
         of an outer one are not supported"
    );
    let told = producer().set(
        "key.serializer",
        "org.apache.kafka.common.serialization.StringSerializer",
    );
    let told = told.warnings(ClientKind::Producer).unwrap();
    assert!(
        told[0]
            .message
            .starts_with("key.serializer has no effect: records are bytes here")
    );
    let default = producer()
        .set("metrics.recording.level", "INFO")
        .set("transaction.timeout.ms", "60000");
    assert_eq!(default.warnings(ClientKind::Producer), Ok(Vec::new()));
}

#[test]
fn a_transactional_id_needs_idempotence_and_its_timeout_needs_the_id() {
    let with_id = producer().set("transactional.id", "payments");
    let config = ProducerConfig::from_config(&with_id).unwrap();
    assert_eq!(config.transactional_id.as_deref(), Some("payments"));
    for (key, value) in [("enable.idempotence", "false"), ("acks", "1"), ("retries", "0")] {
        assert_eq!(
            message(ProducerConfig::from_config(&with_id.clone().set(key, value))),
            "Cannot set a transactional.id without also enabling idempotence.",
            "{key}"
        );
    }
    let without = producer().set("transaction.timeout.ms", "1000");
    let told = without.warnings(ClientKind::Producer).unwrap();
    assert!(
        told[0]
            .message
            .starts_with("transaction.timeout.ms has no effect")
    );
    assert_eq!(
        with_id
            .set("transaction.timeout.ms", "1000")
            .warnings(ClientKind::Producer),
        Ok(Vec::new())
    );
}

#[test]
fn each_group_protocol_refuses_the_settings_of_the_other() {
    let consumer = producer().set("group.id", "g").set("group.protocol", "Consumer");
    let config = consumer.clone().set("group.remote.assignor", "range");
    let config = ConsumerConfig::from_config(&config).unwrap();
    assert_eq!(config.group_protocol, GroupProtocol::Consumer);
    assert_eq!(config.remote_assignor.as_deref(), Some("range"));
    for (key, value) in [
        ("session.timeout.ms", "45000"),
        ("heartbeat.interval.ms", "3000"),
        ("partition.assignment.strategy", "range"),
    ] {
        assert_eq!(
            message(ConsumerConfig::from_config(&consumer.clone().set(key, value))),
            format!("{key} cannot be set when group.protocol=CONSUMER")
        );
    }
}

#[test]
fn a_store_is_pem_or_one_of_javas_with_its_password() {
    let tls = producer()
        .set("security.protocol", "SSL")
        .set("ssl.truststore.location", "trust.jks");
    let read = |config: &Config| {
        let config = ProducerConfig::from_config(config)?;
        Ok(config.client.security.tls.clone().unwrap())
    };
    let trust_password = |config: Config| config.set("ssl.truststore.password", "s3cret");
    for (config, password) in [(tls.clone(), None), (trust_password(tls.clone()), Some("s3cret"))] {
        let expected = StoreSource::JavaStore {
            path: "trust.jks".into(),
            password: password.map(Password::new),
        };
        assert_eq!(read(&config).unwrap().trust, Some(expected));
    }
    let pem = tls.clone().set("ssl.truststore.type", "PEM");
    let said = message(read(&trust_password(pem.clone())));
    assert!(
        said.contains("cannot be set with PEM") && !said.contains("s3cret"),
        "{said}"
    );
    let said = message(read(&tls.set("ssl.truststore.type", "BKS")));
    assert!(said.contains("not PEM, PKCS12 or JKS"), "{said}");
    let made = read(&pem).unwrap();
    assert_eq!(made.trust, Some(StoreSource::Pem("trust.jks".into())));
    assert!(made.checks_name && made.identity.is_none());
    let own = pem.set("ssl.keystore.type", "PEM").set("ssl.keystore.key", "k3y");
    let said = message(ProducerConfig::from_config(&own));
    assert!(
        said.contains("certificate chain is not specified") && !said.contains("k3y"),
        "{said}"
    );
}

#[test]
fn a_line_of_jaas_is_read_with_its_quotes() {
    let read = |jaas: &str| {
        let config = producer()
            .set("security.protocol", "SASL_SSL")
            .set("sasl.mechanism", "SCRAM-SHA-256")
            .set("sasl.jaas.config", jaas);
        let made = ProducerConfig::from_config(&config)?
            .client
            .security
            .sasl
            .clone()
            .unwrap();
        Ok((made.username.to_string(), made.password.reveal().to_owned()))
    };
    const MODULE: &str = "org.apache.kafka.common.security.scram.ScramLoginModule";
    for (rest, username, password) in [
        (r#"required username="a" password="b";"#, "a", "b"),
        (r#"REQUIRED username='a b' password="it's;=";"#, "a b", "it's;="),
        (r#"optional username=a password="q\"u\\o" ; "#, "a", r#"q"u\o"#),
        (
            "required\n  // a comment\n  username=\"a\" /* and; another */ password=\"\";",
            "a",
            "",
        ),
    ] {
        let expected = (username.to_owned(), password.to_owned());
        assert_eq!(read(&format!("{MODULE} {rest}")), Ok(expected), "{rest}");
    }
    for rest in [
        "",
        "required",
        "sometimes username=a password=b;",
        "required username=a password=b",
        "required username=a password=;",
        "required username=a password;",
        "required username=a;",
        "required username=\"a password=b;",
        "required username=a password=b; x.Y required;",
        "required username=a password=b tokenauth=true;",
    ] {
        let said = message(read(&format!("{MODULE} {rest}")));
        assert!(
            said.starts_with("Invalid value [hidden] for configuration sasl.jaas.config: "),
            "{rest}: {said}"
        );
    }
    let other = "org.apache.kafka.common.security.plain.PlainLoginModule required username=a password=b;";
    assert!(message(read(other)).contains("SCRAM-SHA-256 needs the login module"));
}

#[test]
fn a_token_comes_from_a_file_or_from_the_settings() {
    let oauth = || {
        producer()
            .set("security.protocol", "SASL_SSL")
            .set("sasl.mechanism", "OAUTHBEARER")
    };
    let read = |config: &Config| {
        let security = ProducerConfig::from_config(config)?.client.security.clone();
        Ok(security.sasl.unwrap().oauth.unwrap())
    };
    const URL: &str = "sasl.oauthbearer.token.endpoint.url";
    const TOKEN: &str = "sasl.oauthbearer.token";
    const JAAS: &str = "sasl.jaas.config";
    for url in [
        "file:///run/token",
        "file:/run/token",
        "file://localhost/run/token",
    ] {
        let made = read(&oauth().set(URL, url)).unwrap();
        assert_eq!(made.source, TokenSource::File("/run/token".into()), "{url}");
    }
    let module = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule";
    let handler = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler";
    let inline = oauth()
        .set(TOKEN, "s3cret.b.c")
        .set("sasl.login.callback.handler.class", handler)
        .set(JAAS, format!("{module} required extension_pool=\"p\" other=x;"));
    let made = read(&inline).unwrap();
    assert_eq!(made.source, TokenSource::Inline(Password::new("s3cret.b.c")));
    assert_eq!(made.extensions, [("pool".to_owned(), "p".to_owned())]);
    assert!(!format!("{made:?}").contains("s3cret"));

    let check = |config: Config, part: &str| {
        let said = message(read(&config));
        assert!(said.contains(part) && !said.contains("s3cret"), "{said}");
    };
    check(
        oauth(),
        "OAUTHBEARER needs sasl.oauthbearer.token.endpoint.url (https://",
    );
    check(
        inline.clone().set(URL, "file:///run/token"),
        "cannot be set together",
    );
    check(oauth().set(URL, "login.example/token"), "no URL of https://");
    let retriever = "sasl.oauthbearer.jwt.retriever.class";
    check(
        inline.clone().set(retriever, "a.JwtBearerJwtRetriever"),
        "by a client's id and secret",
    );
    check(oauth().set(URL, "file:token"), "must be absolute");
    check(oauth().set(URL, "file://host/token"), "must be absolute");
    check(oauth().set(URL, "file:///run/a%20b"), "percent signs");
    check(
        inline.clone().set("sasl.username", "a"),
        "sasl.username is not for OAUTHBEARER",
    );
    check(
        inline.clone().set("sasl.login.callback.handler.class", "a.B"),
        "cannot be loaded",
    );
    for (options, part) in [
        ("unsecuredLoginStringClaim_sub=s3cret", "without a signature"),
        ("clientId=s3cret clientSecret=s3cret", "for fetching tokens"),
        ("ssl.truststore.password=s3cret", "SSL_CERT_FILE"),
        ("extension_auth=s3cret", "no extension may have"),
        ("extension_a1=s3cret", "no extension may have"),
        ("extension_a=\"s3cret\u{1}\"", "no extension may have"),
    ] {
        let jaas = format!("{module} required {options};");
        check(inline.clone().set(JAAS, jaas), part);
    }
    let plain = "org.apache.kafka.common.security.plain.PlainLoginModule required;";
    check(inline.set(JAAS, plain), "OAUTHBEARER needs the login module");
}

#[test]
fn a_file_of_properties_is_read() {
    let path = std::env::temp_dir().join(format!("ottla-client-{}.properties", std::process::id()));
    std::fs::write(
        &path,
        "bootstrap.servers=a:1,\\\n  b:2\n# nothing\nlinger.ms: 20\n",
    )
    .unwrap();
    let config = ProducerConfig::from_config(&Config::from_file(&path).unwrap()).unwrap();
    assert_eq!((config.linger_ms, config.client.bootstrap_servers.len()), (20, 2));
    std::fs::write(&path, "a=1\nb=\\u12\n").unwrap();
    assert!(message(Config::from_file(&path)).contains("line 2"));
    std::fs::remove_file(&path).unwrap();
    assert!(matches!(Config::from_file(&path), Err(Error::Config { .. })));
}

/// `cargo xtask features` runs these in a build without features.
#[cfg(not(any(feature = "tls", feature = "zstd", feature = "telemetry")))]
mod without_features {
    use super::*;

    #[test]
    fn tls_and_scram_are_refused_with_the_feature_that_is_missing() {
        let lacks = "this build of ottla-client lacks the cargo feature tls";
        for protocol in ["SSL", "SASL_SSL"] {
            let config = producer().set("security.protocol", protocol);
            let expected = format!("Invalid value {protocol} for configuration security.protocol: {lacks}");
            assert_eq!(message(ProducerConfig::from_config(&config)), expected);
        }
        let sasl = producer()
            .set("security.protocol", "SASL_PLAINTEXT")
            .set("sasl.username", "tim")
            .set("sasl.password", "secret");
        for mechanism in ["SCRAM-SHA-256", "SCRAM-SHA-512"] {
            let config = sasl.clone().set("sasl.mechanism", mechanism);
            let expected = format!("Invalid value {mechanism} for configuration sasl.mechanism: {lacks}");
            assert_eq!(message(AdminConfig::from_config(&config)), expected);
        }
        AdminConfig::from_config(&sasl.set("sasl.mechanism", "PLAIN")).unwrap();
    }

    #[test]
    fn zstd_is_refused_with_the_feature_that_is_missing() {
        let config = producer().set("compression.type", "zstd");
        assert_eq!(
            message(ProducerConfig::from_config(&config)),
            "Invalid value zstd for configuration compression.type: this build of ottla-client lacks the cargo feature zstd"
        );
        ProducerConfig::from_config(&producer().set("compression.type", "lz4")).unwrap();
    }

    #[test]
    fn tokens_of_a_server_are_refused_with_the_feature_that_is_missing() {
        const URL: &str = "sasl.oauthbearer.token.endpoint.url";
        let oauth = producer()
            .set("security.protocol", "SASL_PLAINTEXT")
            .set("sasl.mechanism", "OAUTHBEARER");
        let said = message(ProducerConfig::from_config(
            &oauth.clone().set(URL, "http://login.example/token"),
        ));
        assert_eq!(
            said,
            format!(
                "Invalid value http://login.example/token for configuration {URL}: this build of ottla-client lacks the \
                 cargo feature oauth"
            )
        );
        ProducerConfig::from_config(&oauth.set(URL, "file:///run/token")).unwrap();
    }

    #[test]
    fn pushing_metrics_is_refused_only_where_it_is_set() {
        const KEY: &str = "enable.metrics.push";
        assert!(
            !ProducerConfig::from_config(&producer())
                .unwrap()
                .client
                .metrics_push_enabled
        );
        assert_eq!(
            message(ProducerConfig::from_config(&producer().set(KEY, "true"))),
            "Invalid value true for configuration enable.metrics.push: this build of ottla-client lacks the cargo feature telemetry"
        );
    }
}
