//! The task runner: `cargo xtask <task>`.

mod bench_client;
mod bench_kafka;
mod bench_report;
mod codegen;
mod commit_paths;
mod console;
mod crash;
mod damage;
mod dashboards;
mod dist;
mod docs;
mod doctor_rules;
mod doctor_truth;
mod features;
mod fuzz;
mod golden;
mod interop;
mod kafka;
mod memory_pressure;
mod module_circles;
mod mutants;
mod partitions;
mod source_experiments;
mod tenant_experiments;
mod tidy;

use std::process::ExitCode;

const USAGE: &str = "usage: cargo xtask <task>

tasks:
  codegen [--check]   generate the wire messages from the schemas in Apache Kafka's jars (--check: compare only)
  docs [--check]      generate the pages of docs/reference from tables in the code (--check: compare only)
  golden [--verify]   have Apache Kafka write the golden bytes (--verify: have it read ours)
  features            check ottla-client with every set of its cargo features, and for Windows and macOS
  fuzz TARGET [--minutes N] [--seeds DIRECTORY]
                      random inputs for a target of fuzz/, ten minutes by default, with the project's compiler
  tidy                check the repository's own style rules
  interop [--target ottla|kafka] [--only PART,PART] [--except PART,PART] [--all-versions] [--jobs N] [--seeds A..B]
                      run other clients and Kafka's tools against a broker; takeover by Apache Kafka and back; our client
                      against Ottla, Apache Kafka 4.3 and 2.1, and one with TLS and SASL
  crash [--rounds N] [--target ottla|kafka] [--seed N] [--transactional-clients java,librdkafka,franz-go]
                      kill -9 under load, then check that every acknowledged record is there once and in order, and that
                      every transaction is visible whole or not at all; ours always, those of other clients on request
  partitions [--partitions N] [--per-topic N] [--descriptors N] [--durability disk|page-cache]
                      many partitions with few file descriptors: creation, records, kill -9, stops; prints times and memory
  damage [--seeds N] [--from N] [--written-by ottla|kafka]
                      damage any file of directories written by Ottla and Apache Kafka, then start, read, write, kill, read
  mutants --package NAME [--only FILE,FOLDER] [--except FILE,FOLDER] [--with NAME,NAME] [--skip TEST,TEST] [--jobs N] [--resume] [--again]
                      which changes of a crate no test of it notices; one build holds all of them
  commit-paths [--rounds N] [--directory DIRECTORY] [--processor N]
                      what a group commit costs through the page cache and without it; the directory may be on another file system
  memory-pressure [--limit-mib N] [--half N] [--unread N] [--kinds fetch,metadata,versions,polls] [--seconds N] [--override KEY=VALUE]
                      a broker with little memory (control group) and many peers that send incomplete requests or read no answers
  bench-kafka [--quick] [--pairs N] [--tail-seconds N] [--idle-seconds N] [--paced-seconds N] [--only-tails | --only-transactions | --only-security]
                      measure Ottla and Apache Kafka side by side; writes docs/measurements/benchmarks.md, transactions.md,
                      security.md and tails.md
  console [--brief | --screenshots | --render [--partitions N,N]]
                      open every page of the console in Chromium: accessibility, keyboard, narrow screens, without script; --brief: only pages of
                      invented brokers, in two sizes;
                      --screenshots writes four pages to docs/images; --render prints what each page costs a broker with many partitions
  dashboards [--publish]
                      ask the questions of existing Grafana dashboards of a real Prometheus (Debian: prometheus) that scrapes
                      an Ottla; --publish writes docs/measurements/dashboards.md
  bench-report [FILE...]
                      check reports of ottla bench in a real browser, light and dark; without files a made-up report
  source-experiments [--rounds N] [--only a,b] [--from DIRECTORY] [--output FILE]
                      repeat published experiments on Apache Kafka and on Ottla; writes docs/measurements/source-experiments.md
  tenant-experiments [--rounds N] [--only a,b] [--targets kafka,ottla,ottla-synced] [--pin] [--set [SCENARIO:]PATH=VALUE]
                     [--from DIRECTORY] [--output FILE]
                      a victim beside four noisy neighbours on Apache Kafka and on Ottla; writes docs/measurements/tenant-experiments.md
  doctor-truth [--only a,b*] [--brokers ottla,kafka] [--clients java,librdkafka,franz-go,ottla] [--lanes N] [--resume] [--strict] [--publish] [--page]
                      clients with a bottleneck that was built: is the doctor right, does its change help, does the true remedy
                      (network namespaces: needs root); --strict fails when the doctor was wrong about a client;
                      --publish writes docs/measurements/doctor-truth.md
  dist [--binary FILE] [--only archive,wheel,npm,deb,image,jar] [--check | --no-check]
                      make the packages of a release in target/dist, each from one static binary, then install each in an empty
                      place and run a real client against the broker that it starts (--check: only that)
  bench-client [--quick | --full] [--pairs N] [--clients a,b] [--only case,case*] [--target ottla|kafka] [--publish] [--as-built]
                      compare our client with Java's, librdkafka, franz-go, krafka and confluent-kafka on one broker";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (task, rest) = match arguments.split_first() {
        Some((task, rest)) => (task.as_str(), rest),
        None => ("", &[][..]),
    };
    let outcome = match task {
        "codegen" => codegen::run(rest),
        "docs" => docs::run(rest),
        "golden" => golden::run(rest),
        "interop-client" => interop::ours::run(rest),
        "interop" => interop::run(rest),
        "crash" => crash::run(rest),
        "partitions" => partitions::run(rest),
        "damage" => damage::run(rest),
        "mutants" => mutants::run(rest),
        "commit-paths" => commit_paths::run(rest),
        "dist" => dist::run(rest),
        "console" => console::run(rest),
        "dashboards" => dashboards::run(rest),
        "doctor-truth" => doctor_truth::run(rest),
        "memory-pressure" => memory_pressure::run(rest),
        "bench-client" => bench_client::run(rest),
        "bench-kafka" => bench_kafka::run(rest),
        "source-experiments" => source_experiments::run(rest),
        "tenant-experiments" => tenant_experiments::run(rest),
        "bench-report" => bench_report::run(rest),
        "fuzz" => fuzz::run(rest),
        "features" => features::run(tidy::repository(), rest),
        "tidy" => tidy::run(tidy::repository()),
        _ => {
            eprintln!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask {task}: {error:#}");
            ExitCode::FAILURE
        }
    }
}
