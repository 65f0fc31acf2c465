//! What clients without security lose by it: the same producer without TLS and SASL at two Ottlas,
//! one without any security, one with an authorizer, ACLs, and listeners with TLS and SASL.

use std::fs;

use anyhow::{Context, Result, ensure};
use ottla_client::admin::{Acl, Admin};
use ottla_client::config::Config;
use ottla_wire::acl::{Operation, PatternType, ResourceType};

use super::metrics::{METRICS, Samples};
use super::session::{self, MILLION, figure, generate};
use super::{Durability, Lab, Plan};
use crate::interop::security::broker::add_listeners;
use crate::interop::security::certificates::Authority;
use crate::interop::server::{Server, Site, Target};
use crate::interop::toolchain;

/// ACLs of other principals, for other topics.
const OTHER_ACLS: usize = 1_000;
const CLIENT: &str = "User:ANONYMOUS";
const TOPICS: [&str; 2] = ["plain-paced", "plain-full"];
const PREFIX: &str = "plain-";
/// Ottla needs no longer; the JVM is not here.
const WARMUP_SECONDS: &str = "2";
const FULL_RECORDS: &str = "1000000";

/// One load: its name, topic, and the metrics without security, with it, and of both.
struct Load {
    name: &'static str,
    topic: &'static str,
    metrics: [&'static str; 2],
    ratio: &'static str,
}

const LOADS: [Load; 2] = [
    Load {
        name: "20,000 records/s",
        topic: TOPICS[0],
        metrics: ["open_paced_cpu", "beside_paced_cpu"],
        ratio: "beside_paced_ratio",
    },
    Load {
        name: "full batches",
        topic: TOPICS[1],
        metrics: ["open_full_cpu", "beside_full_cpu"],
        ratio: "beside_full_ratio",
    },
];

/// The metrics of this page that Apache Kafka has no column for.
pub fn metrics() -> impl Iterator<Item = &'static super::metrics::Metric> {
    let keys = LOADS.map(|load| [load.metrics[0], load.metrics[1], load.ratio]);
    let is_ours = move |key| keys.iter().flatten().any(|own| *own == key);
    METRICS.iter().filter(move |metric| is_ours(metric.key))
}

/// Both brokers run at the same time and are loaded in turn, the first in one pair and the second
/// in the next.
pub fn run(lab: &Lab, plan: &Plan, samples: &mut Samples) -> Result<()> {
    let open = Site::create("bench-open", &[])?;
    let secured = secured_site()?;
    prepare(lab, &open, false)?;
    prepare(lab, &secured, true)?;
    let durability = Durability::PageCache;
    let mut servers = [
        session::start(lab, &open, Target::Ottla, durability)?,
        session::start(lab, &secured, Target::Ottla, durability)?,
    ];
    let is_odd = samples.of(LOADS[0].ratio, Target::Ottla).len() % 2 == 1;
    let order = if is_odd { [1, 0] } else { [0, 1] };
    for load in LOADS {
        let mut used = [f64::NAN; 2];
        for which in order {
            let result = produce(lab, plan, &servers[which], &load)?;
            let security = ["without security", "beside security"][which];
            samples.keep(Target::Ottla, &format!("{}, {security}", load.name), &result);
            let millions = figure(&result, "/acknowledged") / MILLION;
            used[which] = figure(&result, "/broker_cpu_s") / millions;
        }
        for (metric, used) in load.metrics.into_iter().zip(used) {
            samples.add(Target::Ottla, metric, used);
        }
        samples.add(Target::Ottla, load.ratio, used[1] / used[0]);
    }
    for server in &mut servers {
        server.check_alive()?;
    }
    servers.into_iter().try_for_each(Server::stop)?;
    session::clear(&open);
    session::clear(&secured);
    Ok(())
}

fn produce(lab: &Lab, plan: &Plan, server: &Server, load: &Load) -> Result<serde_json::Value> {
    let seconds = plan.security_seconds.to_string();
    if load.topic == TOPICS[0] {
        let paced = ["-rate", "20000", "-seconds", &seconds, "-warmup", WARMUP_SECONDS];
        return generate(lab, "bench-paced", server, load.topic, &paced);
    }
    let full = [
        "-records",
        FULL_RECORDS,
        "-linger",
        "5",
        "-warmup",
        WARMUP_SECONDS,
    ];
    generate(lab, "bench-saturate", server, load.topic, &full)
}

/// An authorizer, and beside the listener without security one with TLS and one with TLS and SASL.
fn secured_site() -> Result<Site> {
    let folder = toolchain::target_directory().join("data/bench-certificates");
    fs::create_dir_all(&folder)?;
    let authority = Authority::create(&folder, "authority")?;
    let store = authority.sign("beside", &["localhost", "127.0.0.1"], |_| {})?;
    let (store, trust) = (store.display().to_string(), authority.file.display().to_string());
    let settings = [
        (
            "authorizer.class.name",
            "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        ),
        ("ssl.keystore.type", "PEM"),
        ("ssl.keystore.location", &store),
        ("ssl.truststore.type", "PEM"),
        ("ssl.truststore.location", &trust),
        ("listener.name.saslssl.sasl.enabled.mechanisms", "SCRAM-SHA-512"),
        (
            "listener.name.saslssl.scram-sha-512.sasl.jaas.config",
            "org.apache.kafka.common.security.scram.ScramLoginModule required;",
        ),
    ];
    let site = Site::create("bench-beside-security", &settings)?;
    let listeners = [
        ("SSL", "SSL", toolchain::free_port()?),
        ("SASLSSL", "SASL_SSL", toolchain::free_port()?),
    ];
    add_listeners(&site, listeners)?;
    Ok(site)
}

/// Creates the topics and, by a client that for now may do everything, the ACLs.
fn prepare(lab: &Lab, site: &Site, has_acls: bool) -> Result<()> {
    let overrides = [Durability::PageCache.ottla(), "super.users=User:ANONYMOUS"];
    let server = site.start_with(
        &lab.programs,
        Target::Ottla,
        &overrides[..1 + usize::from(has_acls)],
    )?;
    for topic in TOPICS {
        generate(lab, "bench-create", &server, topic, &[])?;
    }
    if has_acls {
        let admin = Admin::new(&Config::new().set("bootstrap.servers", site.bootstrap()))?;
        let results = admin.create_acls(acls()).wait()?;
        ensure!(results.len() > OTHER_ACLS, "{} ACLs", results.len());
        for result in results {
            result.context("an ACL")?;
        }
    }
    server.stop()
}

fn acls() -> Vec<Acl> {
    let topic = ResourceType::Topic.code();
    let (write, describe) = (Operation::Write.code(), Operation::Describe.code());
    let mut acls: Vec<Acl> = [write, describe]
        .map(|operation| {
            let mut acl = Acl::allowing(CLIENT, operation, topic, PREFIX);
            acl.pattern_type = PatternType::Prefixed.code();
            acl
        })
        .into();
    acls.extend((0..OTHER_ACLS).map(|number| {
        let (user, name) = (format!("User:user-{number}"), format!("topic-{number}"));
        Acl::allowing(user, write, topic, name)
    }));
    acls
}
