//! What existing dashboards ask: metrics and labels by panel, read from their repositories. The
//! panels are described in our own words, and queries are reduced to what decides whether there is
//! an answer.

/// A dashboard of others.
pub struct Dashboard {
    pub name: &'static str,
    pub source: &'static str,
    /// What fills its drop-down lists; without them no panel shows anything.
    pub selectors: Vec<Panel>,
    pub panels: Vec<Panel>,
}

pub struct Panel {
    pub shows: String,
    pub queries: Vec<String>,
    /// Why it has no answer here, and never will.
    pub never: Option<&'static str>,
}

const JVM: &str = "there is no JVM";
const KUBERNETES: &str = "metrics of Kubernetes, not of the broker";
const TIERED: &str = "tiered storage is not implemented";
const FETCHER: &str = "there are no other replicas to fetch from";
const BLOCKED: &str = "not measured: how long an acceptor is blocked";

pub fn dashboards() -> Vec<Dashboard> {
    vec![
        strimzi("_total", false),
        strimzi_exporter(),
        kafka_exporter(),
        confluent_cluster(),
        confluent_topics(),
        confluent_quotas(),
        lag_exporter(),
        strimzi("persec_total", true),
        kminion(),
    ]
}

/// Panels under one set of labels.
struct Board {
    labels: &'static str,
    panels: Vec<Panel>,
}

impl Board {
    fn new(labels: &'static str) -> Board {
        Board {
            labels,
            panels: Vec::new(),
        }
    }

    /// - `queries`: in them `$` stands for the labels of the board.
    fn asks<const N: usize>(&mut self, shows: &str, queries: [&str; N]) -> &mut Board {
        self.add(shows, &queries, None)
    }

    fn never<const N: usize>(&mut self, why: &'static str, shows: &str, queries: [&str; N]) -> &mut Board {
        self.add(shows, &queries, Some(why))
    }

    fn add(&mut self, shows: &str, queries: &[&str], never: Option<&'static str>) -> &mut Board {
        let labelled = |query: &&str| query.replace('$', self.labels);
        self.panels.push(Panel {
            shows: shows.to_owned(),
            queries: queries.iter().map(labelled).collect(),
            never,
        });
        self
    }

    /// Metrics whose value is shown as it is.
    fn values(&mut self, metrics: &[(&str, &str)]) -> &mut Board {
        for (shows, metric) in metrics {
            self.asks(shows, [&format!("{metric}{{$}}")]);
        }
        self
    }

    /// Counters by topic, as rates.
    fn topic_rates(&mut self, ending: &str, counters: &[(&str, &[&str])]) -> &mut Board {
        for (shows, names) in counters {
            let rate = |name: &&str| {
                format!(
                    "sum(irate(kafka_server_brokertopicmetrics_{name}{ending}{{{},topic!=\"\"}}[5m]))",
                    self.labels
                )
            };
            let queries = names.iter().map(rate).collect();
            self.panels.push(Panel {
                shows: (*shows).to_owned(),
                queries,
                never: None,
            });
        }
        self
    }

    fn take(&mut self) -> Vec<Panel> {
        std::mem::take(&mut self.panels)
    }
}

const STRIMZI: &str = "namespace=\"kafka\",strimzi_io_cluster=\"ottla\",kubernetes_pod_name=~\"ottla-.*\"";

/// - `ending`: of the counters by topic.
/// - `is_reporter`: the variant for Strimzi's metrics reporter instead of the JMX exporter.
fn strimzi(ending: &str, is_reporter: bool) -> Dashboard {
    let mut board = Board::new(STRIMZI);
    board.values(&[("brokers online", "kafka_server_replicamanager_leadercount")]);
    board.values(&[(
        "active controllers",
        "kafka_controller_kafkacontroller_activecontrollercount",
    )]);
    let elections = match is_reporter {
        true => "uncleanleaderelectionspersec_total",
        false => "uncleanleaderelections_total",
    };
    let elections = format!("irate(kafka_controller_controllerstats_{elections}{{$}}[5m])");
    board.asks("unclean elections", [&elections]);
    board.values(&[
        ("replicas online", "kafka_server_replicamanager_partitioncount"),
        (
            "under-replicated partitions",
            "kafka_server_replicamanager_underreplicatedpartitions",
        ),
        (
            "partitions at the minimum ISR",
            "kafka_cluster_partition_atminisr",
        ),
        (
            "partitions under the minimum ISR",
            "kafka_cluster_partition_underminisr",
        ),
        (
            "offline partitions",
            "kafka_controller_kafkacontroller_offlinepartitionscount",
        ),
    ]);
    strimzi_machine(&mut board);
    strimzi_traffic(&mut board, ending, is_reporter);
    let mut selectors = Board::new(STRIMZI);
    selectors.values(&[
        ("clusters and brokers", "kafka_server_replicamanager_leadercount"),
        ("topics", "kafka_cluster_partition_replicascount"),
        ("partitions", "kafka_log_log_size"),
    ]);
    Dashboard {
        name: match is_reporter {
            true => "Strimzi Kafka, for its metrics reporter",
            false => "Strimzi Kafka",
        },
        source: match is_reporter {
            true => {
                "strimzi-kafka-operator 8541da1e, strimzi-metrics-reporter/grafana-dashboards/strimzi-kafka.json"
            }
            false => "strimzi-kafka-operator 8541da1e, metrics/grafana-dashboards/strimzi-kafka.json",
        },
        selectors: selectors.take(),
        panels: board.take(),
    }
}

fn strimzi_machine(board: &mut Board) {
    let pod = "namespace=\"kafka\",pod=~\"ottla-.*\"";
    for (shows, metric) in [
        ("memory of the container", "container_memory_usage_bytes"),
        ("CPU of the container", "container_cpu_usage_seconds_total"),
        ("free space of the volume", "kubelet_volume_stats_available_bytes"),
    ] {
        board.never(KUBERNETES, shows, [&format!("{metric}{{{pod}}}")]);
    }
    board.asks("open descriptors", ["process_open_fds{$,container=\"kafka\"}"]);
    for (shows, metric) in [
        ("memory of the JVM", "jvm_memory_used_bytes"),
        ("time of the collector", "jvm_gc_collection_seconds_sum"),
        ("runs of the collector", "jvm_gc_collection_seconds_count"),
        ("threads of the JVM", "jvm_threads_current"),
    ] {
        board.never(JVM, shows, [&format!("{metric}{{$}}")]);
    }
}

fn strimzi_traffic(board: &mut Board, ending: &str, is_reporter: bool) {
    board.topic_rates(
        ending,
        &[
            ("bytes in, in total", &["bytesin"]),
            ("bytes out, in total", &["bytesout"]),
            ("messages in, in total", &["messagesin"]),
            ("produce requests, in total", &["totalproducerequests"]),
            ("bytes in and out", &["bytesin", "bytesout"]),
            ("messages in", &["messagesin"]),
            (
                "produce requests and failed ones",
                &["totalproducerequests", "failedproducerequests"],
            ),
            (
                "fetch requests and failed ones",
                &["totalfetchrequests", "failedfetchrequests"],
            ),
        ],
    );
    let (network, handlers) = match is_reporter {
        true => (
            "kafka_network_socketserver_networkprocessoravgidlepercent{$}",
            "irate(kafka_server_kafkarequesthandlerpool_requesthandleravgidlepercent_total{$}[1m])",
        ),
        false => (
            "kafka_network_socketserver_networkprocessoravgidle_percent{$}",
            "kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent{$}",
        ),
    };
    board
        .asks("idle share of network threads", [network])
        .asks("idle share of request handlers", [handlers])
        .asks(
            "writes to the disk",
            ["irate(kafka_server_kafkaserver_linux_disk_write_bytes{$}[5m])"],
        )
        .asks(
            "reads from the disk",
            ["irate(kafka_server_kafkaserver_linux_disk_read_bytes{$}[5m])"],
        )
        .asks(
            "connections by listener",
            ["kafka_server_socket_server_metrics_connection_count{$,listener!=\"\"}"],
        )
        .asks(
            "size of logs",
            ["kafka_log_log_size{$,topic!=\"\",partition!=\"\"}"],
        );
}

fn strimzi_exporter() -> Dashboard {
    let mut board = Board::new("topic=~\".+\",namespace=\"kafka\"");
    board.values(&[
        ("topics", "kafka_topic_partitions"),
        ("partitions", "kafka_topic_partitions"),
        ("replicas", "kafka_topic_partition_replicas"),
        ("replicas in sync", "kafka_topic_partition_in_sync_replica"),
        (
            "under-replicated partitions",
            "kafka_topic_partition_under_replicated_partition",
        ),
        (
            "partitions at the minimum ISR",
            "kafka_cluster_partition_atminisr",
        ),
        (
            "partitions under the minimum ISR",
            "kafka_cluster_partition_underminisr",
        ),
        (
            "partitions not on their preferred node",
            "kafka_topic_partition_leader_is_preferred",
        ),
    ]);
    board
        .asks(
            "messages in per second",
            ["rate(kafka_topic_partition_current_offset{$}[5m])"],
        )
        .asks(
            "messages consumed per second",
            ["delta(kafka_consumergroup_current_offset{$,consumergroup=~\".+\"}[5m])"],
        );
    board.values(&[
        ("lag by group", "kafka_consumergroup_lag"),
        ("offsets of groups", "kafka_consumergroup_current_offset"),
        ("lag by group and partition", "kafka_consumergroup_lag"),
        ("number of partitions", "kafka_topic_partitions"),
        ("latest offsets", "kafka_topic_partition_current_offset"),
        ("oldest offsets", "kafka_topic_partition_oldest_offset"),
    ]);
    let mut selectors = Board::new("namespace=\"kafka\"");
    selectors.values(&[
        ("clusters", "kafka_broker_info"),
        ("groups", "kafka_consumergroup_current_offset"),
        ("topics", "kafka_topic_partition_current_offset"),
    ]);
    Dashboard {
        name: "Strimzi Kafka Exporter",
        source: "strimzi-kafka-operator 8541da1e, metrics/grafana-dashboards/strimzi-kafka-exporter.json",
        selectors: selectors.take(),
        panels: board.take(),
    }
}

fn kafka_exporter() -> Dashboard {
    let mut board = Board::new("job=\"kafka-exporter\",topic=~\".+\"");
    board
        .asks(
            "messages in per second",
            ["rate(kafka_topic_partition_current_offset{$}[1m])"],
        )
        .asks("lag by group", ["kafka_consumergroup_lag{$}"])
        .asks(
            "messages in per minute",
            ["delta(kafka_topic_partition_current_offset{$}[5m])"],
        )
        .asks(
            "messages consumed per minute",
            ["delta(kafka_consumergroup_current_offset{$}[5m])"],
        )
        .asks("partitions by topic", ["kafka_topic_partitions{$}"]);
    let mut selectors = Board::new("job=\"kafka-exporter\",instance!=\"\"");
    selectors.values(&[
        ("instances", "kafka_consumergroup_current_offset"),
        ("topics", "kafka_topic_partition_current_offset"),
    ]);
    Dashboard {
        name: "kafka_exporter overview (7589)",
        source: "danielqsj/kafka_exporter 953e2f1, kafka_exporter_overview.json",
        selectors: selectors.take(),
        panels: board.take(),
    }
}

const BROKER: &str = "job=\"kafka-broker\",env=\"dev\"";
const CONTROLLER: &str = "job=\"kafka-controller\",env=\"dev\"";

/// What fills the lists of Confluent's dashboards.
fn confluent_selectors() -> Vec<Panel> {
    let mut selectors = Board::new("env=\"dev\",instance!=\"\"");
    selectors
        .asks("instances", ["kafka_server_kafkaserver_brokerstate{$}"])
        .asks("topics", ["kafka_log_log_size{$,topic!=\"\"}"])
        .asks(
            "percentiles",
            ["kafka_network_requestmetrics_totaltimems{$,quantile!=\"\"}"],
        );
    selectors.take()
}

fn confluent_cluster() -> Dashboard {
    let mut controller = Board::new(CONTROLLER);
    let mut panels = controller
        .values(&[
            (
                "active controllers",
                "kafka_controller_kafkacontroller_activecontrollercount",
            ),
            (
                "replicas not at their preferred place",
                "kafka_controller_kafkacontroller_preferredreplicaimbalancecount",
            ),
        ])
        .take();
    let mut board = Board::new(BROKER);
    confluent_health(&mut board);
    confluent_traffic(&mut board);
    confluent_request_times(&mut board);
    confluent_connections(&mut board);
    confluent_groups(&mut board);
    for (shows, metric) in [
        ("tiered bytes", "kafka_log_log_tiersize"),
        (
            "upload of tiers",
            "kafka_tier_tasks_archive_tierarchiver_bytespersec",
        ),
        (
            "repeated uploads",
            "kafka_tier_tasks_archive_tierarchiver_retriespersec",
        ),
        ("lag of uploads", "kafka_tier_tasks_archive_tierarchiver_totallag"),
        (
            "partitions whose upload fails",
            "kafka_tier_tasks_tiertasks_numpartitionsinerror",
        ),
        ("tiered beside local bytes", "kafka_log_log_tiersize"),
    ] {
        board.never(TIERED, shows, [&format!("{metric}{{$}}")]);
    }
    panels.extend(board.take());
    Dashboard {
        name: "Confluent kafka-cluster-kraft",
        source: "confluentinc/jmx-monitoring-stacks 9707c1a, dashboards/kafka-cluster-kraft.json",
        selectors: confluent_selectors(),
        panels,
    }
}

fn confluent_health(board: &mut Board) {
    board.values(&[
        ("brokers online", "kafka_server_replicamanager_leadercount"),
        ("partitions online", "kafka_server_replicamanager_partitioncount"),
        (
            "unclean elections",
            "kafka_controller_controllerstats_uncleanleaderelectionspersec",
        ),
        (
            "under-replicated partitions",
            "kafka_server_replicamanager_underreplicatedpartitions",
        ),
        (
            "partitions under the minimum ISR",
            "kafka_cluster_partition_underminisr",
        ),
        (
            "offline partitions",
            "kafka_controller_kafkacontroller_offlinepartitionscount",
        ),
        (
            "stray partitions",
            "kafka_server_replicamanager_straypartitionscount",
        ),
        (
            "stray partitions, wrongly taken for such",
            "kafka_server_replicamanager_straypartitionsmisclassifiedcount",
        ),
        ("partitions led", "kafka_server_replicamanager_leadercount"),
        (
            "bytes of stray partitions",
            "kafka_server_replicamanager_straypartitionstotalsize",
        ),
        ("size of logs by topic", "kafka_log_log_size"),
        ("size of logs by broker", "kafka_log_log_size"),
    ]);
    board
        .asks("CPU", ["irate(process_cpu_seconds_total{$}[5m])"])
        .never(JVM, "memory of the JVM", ["jvm_memory_used_bytes{$}"])
        .never(JVM, "time of the collector", ["jvm_gc_collection_seconds_sum{$}"])
        .asks(
            "reads from the disk",
            ["kafka_server_kafkaserver_linux_disk_read_bytes{$}"],
        )
        .asks(
            "writes to the disk",
            ["rate(kafka_server_kafkaserver_linux_disk_write_bytes{$}[5m])"],
        );
    for (shows, metric) in [
        ("shrinking ISRs", "isrshrinkspersec"),
        ("expanding ISRs", "isrexpandspersec"),
    ] {
        board.asks(
            shows,
            [&format!("rate(kafka_server_replicamanager_{metric}{{$}}[5m])")],
        );
    }
    board
        .never(
            FETCHER,
            "slowest fetch of replicas",
            ["kafka_server_replicafetchermanager_minfetchrate{$}"],
        )
        .never(
            FETCHER,
            "largest lag of replicas",
            ["kafka_server_replicafetchermanager_maxlag{$}"],
        );
}

fn confluent_traffic(board: &mut Board) {
    board.topic_rates(
        "persec",
        &[
            ("bytes in and out", &["bytesin", "bytesout"]),
            ("messages in", &["messagesin"]),
            ("bytes in", &["bytesin"]),
            ("bytes out", &["bytesout"]),
            ("messages in by broker", &["messagesin"]),
            ("messages in by broker, again", &["messagesin"]),
            ("bytes out by broker", &["bytesout"]),
        ],
    );
    board.asks(
        "all requests",
        ["sum(rate(kafka_network_requestmetrics_requestspersec{$}[5m]))"],
    );
    for (shows, request) in [
        ("produce requests", "Produce"),
        ("fetches of consumers", "FetchConsumer"),
        ("fetches of brokers", "Fetch"),
        ("commits of offsets", "OffsetCommit"),
        ("metadata requests", "Metadata"),
        ("metadata requests, again", "Metadata"),
    ] {
        board.asks(
            shows,
            [&format!(
                "rate(kafka_network_requestmetrics_requestspersec{{$,request=\"{request}\"}}[5m])"
            )],
        );
    }
    board.asks(
        "errors",
        ["rate(kafka_network_requestmetrics_errorspersec{error!=\"NONE\"}[5m])"],
    );
    board.values(&[
        ("queued requests", "kafka_network_requestchannel_requestqueuesize"),
        ("queued answers", "kafka_network_requestchannel_responsequeuesize"),
        (
            "use of network threads",
            "kafka_network_socketserver_networkprocessoravgidlepercent",
        ),
        (
            "use of request handlers",
            "kafka_server_kafkarequesthandlerpool_requesthandleravgidlepercent_oneminuterate",
        ),
        (
            "converted batches of producers",
            "kafka_server_brokertopicmetrics_producemessageconversionspersec",
        ),
        (
            "converted batches for consumers",
            "kafka_server_brokertopicmetrics_fetchmessageconversionspersec",
        ),
    ]);
}

fn confluent_request_times(board: &mut Board) {
    const PARTS: [&str; 5] = [
        "requestqueuetimems",
        "localtimems",
        "remotetimems",
        "responsequeuetimems",
        "responsesendtimems",
    ];
    let mut ask = |request: &str, part: &str| {
        let query =
            format!("kafka_network_requestmetrics_{part}{{$,quantile=~\".+\",request=\"{request}\"}}");
        board.asks(&format!("{request}: {part}"), [&query]);
    };
    for request in ["Produce", "Fetch", "FetchFollower"] {
        for part in PARTS {
            ask(request, part);
        }
    }
    ask("Metadata", "requestqueuetimems");
    ask("Metadata", "totaltimems");
}

fn confluent_connections(board: &mut Board) {
    board.values(&[
        (
            "fetch sessions",
            "kafka_server_fetchsessioncache_numincrementalfetchsessions",
        ),
        (
            "evicted fetch sessions",
            "kafka_server_fetchsessioncache_incrementalfetchsessionevictionspersec",
        ),
    ]);
    for by in ["listener", "broker"] {
        for (shows, metric) in [
            ("connections", "connection_count"),
            ("new connections", "connection_creation_rate"),
            ("ended connections", "connection_close_rate"),
        ] {
            board.asks(
                &format!("{shows} by {by}"),
                [&format!(
                    "kafka_server_socketservermetrics_{metric}{{$,listener!=\"\"}}"
                )],
            );
        }
    }
    board.never(
        BLOCKED,
        "blocked acceptors",
        ["kafka_network_acceptor_acceptorblockedpercent{$}"],
    );
    for shows in ["connections by version of the client", "shares of versions"] {
        board.asks(
            shows,
            ["kafka_server_socketservermetrics_connections{$,client_software_name!=\"\"}"],
        );
    }
}

fn confluent_groups(board: &mut Board) {
    const GROUPS: &str = "kafka_coordinator_group_groupmetadatamanager_numgroups";
    board.asks("groups", [&format!("{GROUPS}{{$}}")]);
    let of_state = |state: &str| format!("{GROUPS}{state}{{$}}");
    let states = [
        "stable",
        "preparingrebalance",
        "dead",
        "completingrebalance",
        "empty",
    ]
    .map(of_state);
    let states: Vec<&str> = states.iter().map(String::as_str).collect();
    board.add("groups by state", &states, None);
}

fn confluent_topics() -> Dashboard {
    let mut controller = Board::new(CONTROLLER);
    let mut panels = controller
        .values(&[
            ("topics", "kafka_controller_kafkacontroller_globaltopiccount"),
            (
                "partitions",
                "kafka_controller_kafkacontroller_globalpartitioncount",
            ),
        ])
        .take();
    let mut board = Board::new(BROKER);
    board.topic_rates(
        "persec",
        &[
            ("messages in", &["messagesin"]),
            ("bytes in", &["bytesin"]),
            ("bytes out", &["bytesout"]),
            ("produce requests", &["totalproducerequests"]),
            ("fetch requests", &["totalfetchrequests"]),
        ],
    );
    board
        .asks("size of logs", ["kafka_log_log_size{$,topic!=\"\"}"])
        .asks("start offsets", ["kafka_log_log_logstartoffset{$}"])
        .asks("end offsets", ["kafka_log_log_logendoffset{$}"])
        .asks(
            "messages by topic",
            ["sum by(topic) (kafka_log_log_logendoffset{$}) - sum by(topic) (kafka_log_log_logstartoffset{$})"],
        )
        .never(TIERED, "tiered bytes", ["kafka_log_log_tiersize{$}"])
        .never(
            TIERED,
            "tiered beside local bytes",
            ["kafka_log_log_tiersize{$}"],
        );
    panels.extend(board.take());
    Dashboard {
        name: "Confluent kafka-topics-kraft",
        source: "confluentinc/jmx-monitoring-stacks 9707c1a, dashboards/kafka-topics-kraft.json",
        selectors: confluent_selectors(),
        panels,
    }
}

/// The panels of throttles show values above zero only: something while a client is throttled.
fn confluent_quotas() -> Dashboard {
    let mut board = Board::new("user=~\".*\",client_id=~\".+\",job=\"kafka-broker\",env=\"dev\"");
    board.values(&[
        ("bytes of producers", "kafka_server_produce_byte_rate"),
        ("bytes of consumers", "kafka_server_fetch_byte_rate"),
        ("time of requests", "kafka_server_request_request_time"),
        (
            "throttled producers, where there are any",
            "kafka_server_produce_throttle_time",
        ),
        (
            "throttled consumers, where there are any",
            "kafka_server_fetch_throttle_time",
        ),
        (
            "throttled requests, where there are any",
            "kafka_server_request_throttle_time",
        ),
    ]);
    Dashboard {
        name: "Confluent kafka-quotas",
        source: "confluentinc/jmx-monitoring-stacks 9707c1a, dashboards/kafka-quotas.json",
        selectors: confluent_selectors(),
        panels: board.take(),
    }
}

fn lag_exporter() -> Dashboard {
    let mut board = Board::new("cluster_name!=\"\",group=~\".+\"");
    board.values(&[
        (
            "largest lag in seconds",
            "kafka_consumergroup_group_max_lag_seconds",
        ),
        (
            "lag in seconds by partition",
            "kafka_consumergroup_group_lag_seconds",
        ),
        ("largest lag", "kafka_consumergroup_group_max_lag"),
        ("lag by partition", "kafka_consumergroup_group_lag"),
    ]);
    board
        .asks(
            "lag of one group",
            [
                "kafka_consumergroup_group_max_lag_seconds{$}",
                "kafka_consumergroup_group_max_lag{$}",
            ],
        )
        .asks(
            "offsets of one group beside the ends",
            [
                "max(kafka_consumergroup_group_lag_seconds{$}) by (group)",
                "sum(kafka_consumergroup_group_offset{$})",
                "sum((kafka_consumergroup_group_offset{$,job=\"kafka-exporter\"} * 0) + on(cluster_name,topic,partition) \
                 group_left() kafka_partition_latest_offset{job=\"kafka-exporter\"})",
            ],
        );
    for (shows, metric) in [
        ("memory of the JVM", "jvm_memory_used_bytes"),
        ("time of the collector", "jvm_gc_collection_seconds_sum"),
        ("runs of the collector", "jvm_gc_collection_seconds_count"),
    ] {
        board.never(JVM, shows, [metric]);
    }
    Dashboard {
        name: "Confluent kafka-lag-exporter",
        source: "confluentinc/jmx-monitoring-stacks 9707c1a, dashboards/kafka-lag-exporter.json",
        selectors: Vec::new(),
        panels: board.take(),
    }
}

/// The dashboards of kminion are not in its repository, so these are metrics instead of panels.
fn kminion() -> Dashboard {
    let mut board = Board::new("job=\"kafka-exporter\"");
    for metric in [
        "cluster_info",
        "broker_info",
        "broker_log_dir_size_total_bytes",
        "topic_info",
        "topic_partition_high_water_mark",
        "topic_high_water_mark_sum",
        "topic_partition_low_water_mark",
        "topic_low_water_mark_sum",
        "topic_log_dir_size_total_bytes",
        "consumer_group_info",
        "consumer_group_members",
        "consumer_group_topic_offset_sum",
        "consumer_group_topic_lag",
        "consumer_group_topic_partition_lag",
        "consumer_group_empty_members",
        "consumer_group_topic_members",
        "consumer_group_topic_assigned_partitions",
        "consumer_group_offset_commits_total",
    ] {
        board.asks(metric, [&format!("kminion_kafka_{metric}{{$}}")]);
    }
    Dashboard {
        name: "kminion, by metric",
        source: "redpanda-data/kminion, docs/metrics.md",
        selectors: Vec::new(),
        panels: board.take(),
    }
}
