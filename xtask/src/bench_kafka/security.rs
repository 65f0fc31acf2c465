//! What TLS costs, both brokers with the page cache: handshakes, full batches, reading, small
//! requests beside the same without TLS, the memory of idle connections, and clients that stop in
//! the middle of their handshakes.

use std::fs;

use anyhow::{Context, Result};
use rcgen::{KeyPair, PKCS_ECDSA_P256_SHA256, PKCS_RSA_SHA256};

use super::machine::memory_mib;
use super::metrics::Samples;
use super::session::{self, MILLION, figure, generate, generate_at, listening};
use super::{Durability, Lab, Plan, beside_security};
use crate::interop::security::broker::add_listeners;
use crate::interop::security::certificates::Authority;
use crate::interop::server::{Server, Site, Target};
use crate::interop::toolchain;

/// The generator takes TLS 1.3 only; the names are of listeners.
const KEYS: [(&str, &str, &str); 2] = [
    ("P256", "handshakes, P-256", "handshake_p256_cpu"),
    ("RSA", "handshakes, RSA-2048", "handshake_rsa_cpu"),
];

const IDLE: u32 = 1_000;
const BYTES: f64 = 256.0;

/// Clients that begin a handshake and stop, a second, and from how many addresses they come.
const HALF_HELLOS: &str = "10000";
/// Of the producer beside them.
const FLOOD_WARMUP: u32 = 2;
const FLOODS: [Flood; 2] = [
    Flood {
        addresses: "1",
        name: "half hellos from one address",
        rate: "flood_1_rate",
        p99: "flood_1_p99",
        ratio: "flood_1_ratio",
    },
    Flood {
        addresses: "200",
        name: "half hellos from 200 addresses",
        rate: "flood_200_rate",
        p99: "flood_200_p99",
        ratio: "flood_200_ratio",
    },
];

/// Clients that stop in the middle of a handshake, and the keys of their metrics.
struct Flood {
    addresses: &'static str,
    name: &'static str,
    rate: &'static str,
    p99: &'static str,
    ratio: &'static str,
}

/// A running broker with a listener for each key, beside the one without TLS.
struct Secured {
    site: Site,
    server: Server,
    /// The file of the authority.
    trust: String,
    ports: [u16; 2],
}

impl Secured {
    fn start(lab: &Lab, target: Target) -> Result<Secured> {
        let folder = toolchain::target_directory().join("data/bench-certificates");
        fs::create_dir_all(&folder)?;
        let authority = Authority::create(&folder, "authority")?;
        let mut more = vec![
            (
                "ssl.truststore.location".to_owned(),
                authority.file.display().to_string(),
            ),
            ("ssl.truststore.type".to_owned(), "PEM".to_owned()),
        ];
        for ((name, ..), algorithm) in KEYS.iter().zip([&PKCS_ECDSA_P256_SHA256, &PKCS_RSA_SHA256]) {
            let key = KeyPair::generate_for(algorithm).context("a key of the broker")?;
            let local = ["localhost", "127.0.0.1"];
            let store = authority.sign_key(name, &key, &local, |_| {})?;
            let listener = format!("listener.name.{}", name.to_lowercase());
            more.push((format!("{listener}.ssl.keystore.type"), "PEM".to_owned()));
            more.push((
                format!("{listener}.ssl.keystore.location"),
                store.display().to_string(),
            ));
        }
        let more: Vec<(&str, &str)> = more.iter().map(|(key, value)| (&**key, &**value)).collect();
        let site = session::site(target, Durability::PageCache, &more)?;
        let ports = [toolchain::free_port()?, toolchain::free_port()?];
        let names = KEYS.iter().zip(ports);
        add_listeners(&site, names.map(|((name, ..), port)| (*name, "SSL", port)))?;
        let server = session::start(lab, &site, target, Durability::PageCache)?;
        Ok(Secured {
            site,
            server,
            trust: authority.file.display().to_string(),
            ports,
        })
    }

    /// Runs the generator on the listener of a key.
    fn generate(
        &self,
        lab: &Lab,
        kind: &str,
        key: usize,
        topic: &str,
        more: &[&str],
    ) -> Result<serde_json::Value> {
        let address = format!("localhost:{}", self.ports[key]);
        let more = [more, &["-trust", &self.trust]].concat();
        generate_at(lab, kind, &address, self.server.pid(), topic, &more)
    }
}

pub fn run(lab: &Lab, plan: &Plan, target: Target, samples: &mut Samples) -> Result<()> {
    let (seconds, warmup) = (plan.security_seconds.to_string(), plan.warmup_seconds.to_string());
    let times: &[&str] = &["-seconds", &seconds, "-warmup", &warmup];
    let mut broker = Secured::start(lab, target)?;
    idle_connections(lab, &broker, target, samples)?;
    handshakes(lab, times, &broker, target, samples)?;
    bytes(lab, plan, &broker, target, samples)?;
    small_requests(lab, times, &broker, target, samples)?;
    half_hellos(lab, plan, &broker, target, samples)?;
    broker.server.check_alive()?;
    broker.server.stop()?;
    session::clear(&broker.site);
    match target {
        Target::Ottla => beside_security::run(lab, plan, samples),
        Target::Kafka => Ok(()),
    }
}

fn idle_connections(lab: &Lab, broker: &Secured, target: Target, samples: &mut Samples) -> Result<()> {
    let (count, plain) = (IDLE.to_string(), broker.server.bootstrap());
    let load = ["-connections", &count, "-plain", &plain];
    let result = broker.generate(lab, "bench-idle-connections", 0, "none", &load)?;
    let each = |path| figure(&result, path) / f64::from(IDLE);
    samples.add(target, "idle_plain_kib", each("/broker_growth_plain_kib"));
    samples.add(target, "idle_tls_kib", each("/broker_growth_kib"));
    Ok(())
}

fn handshakes(
    lab: &Lab,
    times: &[&str],
    broker: &Secured,
    target: Target,
    samples: &mut Samples,
) -> Result<()> {
    let load = [&["-connections", "8"], times].concat();
    for (key, (_, name, cpu)) in KEYS.iter().enumerate() {
        let result = broker.generate(lab, "bench-connect", key, "none", &load)?;
        samples.keep(target, name, &result);
        let thousands = figure(&result, "/acknowledged") / 1_000.0;
        samples.add(target, cpu, figure(&result, "/broker_cpu_s") / thousands);
    }
    Ok(())
}

/// Full batches over TLS, and the newest million of them read again.
fn bytes(lab: &Lab, plan: &Plan, broker: &Secured, target: Target, samples: &mut Samples) -> Result<()> {
    generate(lab, "bench-create", &broker.server, "full", &[])?;
    let records = plan.records.to_string();
    let warm = (plan.warmup_seconds * 10).to_string();
    let load = ["-records", &records, "-linger", "5", "-warmup", &warm];
    let written = broker.generate(lab, "bench-saturate", 0, "full", &load)?;
    samples.keep(target, "full batches over TLS", &written);
    let gigabytes = figure(&written, "/acknowledged") * BYTES / 1e9;
    samples.add(
        target,
        "tls_full_cpu",
        figure(&written, "/broker_cpu_s") / gigabytes,
    );

    generate(lab, "bench-create", &broker.server, "read", &[])?;
    let records = session::CONSUMED_RECORDS.to_string();
    let fill = ["-records", &records, "-linger", "5", "-warmup", "0"];
    generate(lab, "bench-saturate", &broker.server, "read", &fill)?;
    broker.generate(lab, "bench-consume", 0, "read", &["-records", &records])?;
    let passes = plan.consume_passes.to_string();
    let load = ["-records", &records, "-passes", &passes];
    let read = broker.generate(lab, "bench-consume", 0, "read", &load)?;
    samples.keep(target, "consume over TLS", &read);
    let gigabytes = figure(&read, "/received") * BYTES / 1e9;
    samples.add(
        target,
        "tls_consume_cpu",
        figure(&read, "/broker_cpu_s") / gigabytes,
    );
    Ok(())
}

/// 20,000 records/s in requests of their own, without TLS and with it.
fn small_requests(
    lab: &Lab,
    times: &[&str],
    broker: &Secured,
    target: Target,
    samples: &mut Samples,
) -> Result<()> {
    generate(lab, "bench-create", &broker.server, "paced", &[])?;
    let load = [&["-rate", "20000"], times].concat();
    let plain = generate(lab, "bench-paced", &broker.server, "paced", &load)?;
    let secured = broker.generate(lab, "bench-paced", 0, "paced", &load)?;
    for (result, name, p99, cpu) in [
        (
            &plain,
            "20,000 records/s without TLS",
            "plain_paced_p99",
            "plain_paced_cpu",
        ),
        (
            &secured,
            "20,000 records/s over TLS",
            "tls_paced_p99",
            "tls_paced_cpu",
        ),
    ] {
        samples.keep(target, name, result);
        samples.add(target, p99, figure(result, "/intended/p99"));
        let millions = figure(result, "/acknowledged") / MILLION;
        samples.add(target, cpu, figure(result, "/broker_cpu_s") / millions);
    }
    let ratio = figure(&secured, "/intended/p99") / figure(&plain, "/intended/p99");
    samples.add(target, "tls_paced_ratio", ratio);
    Ok(())
}

/// The producer beside as many new connections a second at a process that accepts and closes them:
/// what the generator and the kernel cost it, without the broker. Returns its p99.
fn beside_connections_elsewhere(
    lab: &Lab,
    plan: &Plan,
    broker: &Secured,
    target: Target,
    samples: &mut Samples,
    produce: &dyn Fn() -> Result<serde_json::Value>,
) -> Result<f64> {
    let (mut acceptor, address) = listening(lab, &["accept", "unused"])?;
    let seconds = (plan.security_seconds + FLOOD_WARMUP + 1).to_string();
    let load = [
        "-rate",
        HALF_HELLOS,
        "-connections",
        FLOODS[0].addresses,
        "-seconds",
        &seconds,
        "-trust",
        &broker.trust,
    ];
    let (flooded, loaded) = std::thread::scope(|scope| {
        let pid = acceptor.id();
        let flooding = scope.spawn(move || generate_at(lab, "bench-flood", &address, pid, "none", &load));
        let loaded = produce();
        (flooding.join().expect("a generator does not panic"), loaded)
    });
    let _ = acceptor.kill();
    acceptor.wait()?;
    let (flooded, loaded) = (flooded?, loaded?);
    samples.keep(target, "connections elsewhere", &flooded);
    samples.keep(target, "1,000 records/s beside connections elsewhere", &loaded);
    samples.add(target, "control_rate", figure(&flooded, "/rate_per_s"));
    let p99 = figure(&loaded, "/intended/p99");
    samples.add(target, "control_p99", p99);
    Ok(p99)
}

/// Few requests of one producer, alone and beside clients that begin a handshake and stop.
fn half_hellos(
    lab: &Lab,
    plan: &Plan,
    broker: &Secured,
    target: Target,
    samples: &mut Samples,
) -> Result<()> {
    let pid = broker.server.pid();
    generate(lab, "bench-create", &broker.server, "flooded", &[])?;
    let (seconds, warmup) = (plan.security_seconds.to_string(), FLOOD_WARMUP.to_string());
    let load = ["-rate", "1000", "-seconds", &seconds, "-warmup", &warmup];
    let produce = || broker.generate(lab, "bench-paced", 0, "flooded", &load);
    let quiet = produce()?;
    samples.keep(target, "1,000 records/s over TLS", &quiet);
    let quiet = figure(&quiet, "/intended/p99");
    samples.add(target, "flood_quiet_p99", quiet);
    let elsewhere = beside_connections_elsewhere(lab, plan, broker, target, samples, &produce)?;
    samples.add(target, "control_ratio", elsewhere / quiet);
    let before = memory_mib(pid, "VmRSS")?;
    let mut growth: f64 = 0.0;
    // A second longer than the producer.
    let seconds = (plan.security_seconds + FLOOD_WARMUP + 1).to_string();
    for flood in FLOODS {
        let load = [
            "-rate",
            HALF_HELLOS,
            "-connections",
            flood.addresses,
            "-seconds",
            &seconds,
        ];
        let (flooded, loaded, memory) = std::thread::scope(|scope| {
            let flooding = scope.spawn(|| broker.generate(lab, "bench-flood", 0, "none", &load));
            let loaded = produce();
            let memory = memory_mib(pid, "VmRSS");
            (
                flooding.join().expect("a generator does not panic"),
                loaded,
                memory,
            )
        });
        let (flooded, loaded) = (flooded?, loaded?);
        samples.keep(target, flood.name, &flooded);
        samples.keep(target, &format!("1,000 records/s beside {}", flood.name), &loaded);
        samples.add(target, flood.rate, figure(&flooded, "/rate_per_s"));
        let loaded = figure(&loaded, "/intended/p99");
        samples.add(target, flood.p99, loaded);
        samples.add(target, flood.ratio, loaded / quiet);
        if flood.addresses == FLOODS[0].addresses {
            samples.add(target, "flood_1_broker_ratio", loaded / elsewhere);
        }
        growth = growth.max(memory? - before);
    }
    samples.add(target, "flood_mib", growth);
    Ok(())
}
