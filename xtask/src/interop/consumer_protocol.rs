//! Groups of KIP-848: members of Java, librdkafka, franz-go and ours that come, go, die and outlive
//! a restart of the broker, and Kafka's tools for such groups.

use std::time::Duration;

use anyhow::{Result, ensure};

use super::clients::{Client, Clients};
use super::groups::{Bench, Maker, NEW_PROTOCOL, create, strategy};
use super::server::{Programs, Server, Site, Target};
use super::table::Table;
use super::tools::{CONFIGS, GROUPS, Tools, contains};

/// Short times, and the limits that Apache Kafka wants around them.
const SETTINGS: [(&str, &str); 5] = [
    ("group.consumer.heartbeat.interval.ms", "500"),
    ("group.consumer.min.heartbeat.interval.ms", "500"),
    ("group.consumer.session.timeout.ms", "15000"),
    ("group.consumer.min.session.timeout.ms", "15000"),
    ("group.consumer.assignment.interval.ms", "0"),
];

type Case = fn(&Programs, &str) -> Result<()>;

const CASES: [(&str, Case); 7] = [
    ("a Java consumer is restarted and goes on", go_on),
    ("Java consumers join, leave and die", come_and_go),
    ("a static member of Java returns", return_to_place),
    ("a pattern finds a new topic", find_topic),
    ("a group changes its protocol member by member, and back", migrate),
    (
        "static members change their protocol and keep their places",
        migrate_static,
    ),
    ("kafka-consumer-groups and kafka-configs", use_tools),
];

pub fn run(table: &mut Table, programs: &Programs, clients: &Clients, target: Target) -> Result<()> {
    let site = Site::create("consumer-protocol", &SETTINGS)?;
    let mut server = site.start(programs, target)?;
    for (name, case) in CASES {
        report(table, name, case(programs, &server.bootstrap()));
    }
    let name = "clients of four kinds share a group and change its protocol";
    report(table, name, share(programs, clients, &server.bootstrap()));
    let name = "a group of both protocols goes on at the other broker, on the same directory, and back";
    report(table, name, take_over(programs, clients, target));
    let name = "Java consumers outlive a restart of the broker";
    let restarted = outlive(programs, &site, server, target);
    server = match restarted {
        Ok(server) => {
            report(table, name, Ok(()));
            server
        }
        Err(error) => {
            report(table, name, Err(error));
            site.start(programs, target)?
        }
    };
    let arguments = ["consumer-protocol", &server.bootstrap()];
    let cases = clients.run(
        &programs.kafka,
        Client::Librdkafka,
        &arguments,
        Duration::from_secs(180),
    )?;
    for (name, outcome) in cases {
        println!("consumer protocol: librdkafka: {name}: {outcome:?}");
        table.add_other(format!("consumer protocol: librdkafka: {name}"), outcome);
    }
    report(table, "clean stop", server.stop());
    Ok(())
}

fn report(table: &mut Table, name: &str, outcome: Result<()>) {
    let outcome = outcome.map_err(|error| format!("{error:#}"));
    println!(
        "consumer protocol: {name}: {}",
        outcome.as_ref().err().map_or("ok", String::as_str)
    );
    table.add_other(format!("consumer protocol: {name}"), outcome);
}

/// The thinnest path: read, commit, close; the next one begins where the first has ended.
fn go_on(programs: &Programs, bootstrap: &str) -> Result<()> {
    let mut bench = Bench::create(programs, bootstrap, "kip848-go-on")?;
    for _ in 0..2 {
        bench.join(Maker::Java, &[NEW_PROTOCOL])?;
        bench.settle(&[6])?;
        bench.write(60)?;
        bench.all_read()?;
        bench.nothing_read_twice()?;
        bench.close(0)?;
    }
    Ok(())
}

fn come_and_go(programs: &Programs, bootstrap: &str) -> Result<()> {
    for assignor in ["uniform", "range"] {
        let mut bench = Bench::create(programs, bootstrap, &format!("kip848-{assignor}"))?;
        let remote = format!("group.remote.assignor={assignor}");
        let settings = [NEW_PROTOCOL, &remote];
        for counts in [&[6][..], &[3, 3], &[2, 2, 2]] {
            bench.join(Maker::Java, &settings)?;
            bench.settle(counts)?;
            bench.write(60)?;
            bench.all_read()?;
        }
        bench.nothing_read_twice()?;
        bench.close(1)?;
        bench.settle(&[3, 3])?;
        bench.write(60)?;
        bench.all_read()?;
        bench.nothing_read_twice()?;
        bench.kill(0)?;
        bench.settle(&[6])?;
        bench.write(60)?;
        bench.all_read()?;
        bench.close_all()?;
    }
    Ok(())
}

fn return_to_place(programs: &Programs, bootstrap: &str) -> Result<()> {
    let mut bench = Bench::create(programs, bootstrap, "kip848-static")?;
    for instance_id in ["group.instance.id=one", "group.instance.id=two"] {
        bench.join(Maker::Java, &[NEW_PROTOCOL, instance_id])?;
    }
    bench.settle(&[3, 3])?;
    let before = bench.place(1);
    bench.close(1)?;
    bench.join(Maker::Java, &[NEW_PROTOCOL, "group.instance.id=two"])?;
    bench.settle(&[3, 3])?;
    let after = bench.place(1);
    ensure!(before == after, "{after:?} instead of {before:?}");
    bench.write(60)?;
    bench.all_read()?;
    bench.close_all()
}

fn find_topic(programs: &Programs, bootstrap: &str) -> Result<()> {
    let mut bench = Bench::create(programs, bootstrap, "kip848-pattern")?;
    let settings = [NEW_PROTOCOL, "metadata.max.age.ms=1000"];
    bench.join_on(Maker::Java, "^kip848-pattern(-more)?", &settings)?;
    bench.settle(&[6])?;
    create(bootstrap, "kip848-pattern-more", 2)?;
    create(bootstrap, "kip848-pattern-more-than-asked", 2)?;
    bench.settle(&[8])?;
    bench.write(12)?;
    bench.all_read()?;
    bench.close_all()
}

/// A rolling change of the clients: no record is lost or read twice, and no member loses its
/// partitions without being asked for them.
fn migrate(programs: &Programs, bootstrap: &str) -> Result<()> {
    for assignor in ["CooperativeStickyAssignor", "RangeAssignor"] {
        let mut bench = Bench::create(programs, bootstrap, &format!("kip848-migrate-{assignor}"))?;
        let classic = strategy(assignor);
        bench.join(Maker::Java, &[&classic])?;
        bench.join(Maker::Ours, &[&classic])?;
        bench.settle(&[3, 3])?;
        bench.write(60)?;
        bench.all_read()?;
        check_type(programs, bootstrap, &bench.group, "classic")?;
        // A member more first: nothing waits for one that has to start.
        for (maker, protocol, kind) in [
            (Maker::Java, NEW_PROTOCOL, "consumer"),
            (Maker::Ours, NEW_PROTOCOL, "consumer"),
            (Maker::Ours, &classic, "consumer"),
            (Maker::Java, &classic, "classic"),
        ] {
            bench.join(maker, &[protocol])?;
            bench.settle(&[2, 2, 2])?;
            bench.write(60)?;
            bench.all_read()?;
            bench.close(0)?;
            bench.settle(&[3, 3])?;
            bench.write(60)?;
            bench.all_read()?;
            bench.nothing_read_twice()?;
            check_type(programs, bootstrap, &bench.group, kind)?;
        }
        bench.close_all()?;
    }
    Ok(())
}

/// Members of four clients in one group, of both protocols at a time; one of them dies.
fn share(programs: &Programs, clients: &Clients, bootstrap: &str) -> Result<()> {
    let mut bench = Bench::create(programs, bootstrap, "kip848-share")?.with(clients);
    let classic = strategy("CooperativeStickyAssignor");
    for (maker, counts) in [
        (Maker::FranzGo, &[6][..]),
        (Maker::Librdkafka, &[3, 3]),
        (Maker::Java, &[2, 2, 2]),
    ] {
        bench.join(maker, &[&classic])?;
        bench.settle(counts)?;
        bench.write(60)?;
        bench.all_read()?;
    }
    check_type(programs, bootstrap, &bench.group, "classic")?;
    // The oldest leaves for each that joins.
    for (maker, protocol, kind) in [
        (Maker::Librdkafka, NEW_PROTOCOL, "consumer"),
        (Maker::FranzGo, NEW_PROTOCOL, "consumer"),
        (Maker::Ours, NEW_PROTOCOL, "consumer"),
        (Maker::Java, NEW_PROTOCOL, "consumer"),
        (Maker::FranzGo, &classic, "consumer"),
        (Maker::Librdkafka, &classic, "consumer"),
        (Maker::Java, &classic, "classic"),
    ] {
        bench.join(maker, &[protocol])?;
        bench.settle(&[1, 1, 2, 2])?;
        bench.write(60)?;
        bench.all_read()?;
        bench.close(0)?;
        bench.settle(&[2, 2, 2])?;
        bench.write(60)?;
        bench.all_read()?;
        check_type(programs, bootstrap, &bench.group, kind)?;
    }
    bench.nothing_read_twice()?;
    // librdkafka's, without a farewell.
    bench.kill(1)?;
    bench.settle(&[3, 3])?;
    bench.write(60)?;
    bench.all_read()?;
    bench.close_all()
}

fn migrate_static(programs: &Programs, bootstrap: &str) -> Result<()> {
    let mut bench = Bench::create(programs, bootstrap, "kip848-migrate-static")?;
    let classic = strategy("RangeAssignor");
    let instances = ["group.instance.id=one", "group.instance.id=two"];
    // A member keeps its place until its session ends, and Java takes seconds to start.
    let of_classic = [&*classic, "session.timeout.ms=30000"];
    for instance_id in instances {
        bench.join(Maker::Java, &[&of_classic[..], &[instance_id]].concat())?;
    }
    bench.settle(&[3, 3])?;
    for protocol in [&[NEW_PROTOCOL][..], &of_classic] {
        for instance_id in instances {
            let before = [bench.place(0), bench.place(1)];
            bench.close(0)?;
            bench.join(Maker::Java, &[protocol, &[instance_id]].concat())?;
            bench.settle(&[3, 3])?;
            let after = [bench.place(1), bench.place(0)];
            ensure!(before == after, "{after:?} instead of {before:?}");
            bench.write(60)?;
            bench.all_read()?;
        }
    }
    check_type(programs, bootstrap, &bench.group, "classic")?;
    bench.close_all()
}

fn check_type(programs: &Programs, bootstrap: &str, group: &str, kind: &str) -> Result<()> {
    let tools = Tools {
        kafka: &programs.kafka,
        bootstrap: bootstrap.to_owned(),
    };
    contains(&tools.run(GROUPS, &["--list", "--type", kind], "")?, group)
}

fn use_tools(programs: &Programs, bootstrap: &str) -> Result<()> {
    let mut bench = Bench::create(programs, bootstrap, "kip848-tools")?;
    let tools = Tools {
        kafka: &programs.kafka,
        bootstrap: bootstrap.to_owned(),
    };
    let group = bench.group.clone();
    let of_group = |arguments: &[&str]| {
        let group = ["--group", group.as_str()];
        tools.run(GROUPS, &[arguments, &group].concat(), "")
    };
    bench.join(Maker::Java, &[NEW_PROTOCOL])?;
    bench.settle(&[6])?;
    bench.write(60)?;
    bench.all_read()?;
    contains(&tools.run(GROUPS, &["--list", "--type"], "")?, &group)?;
    contains(&tools.run(GROUPS, &["--list", "--type", "consumer"], "")?, &group)?;
    contains(&of_group(&["--describe", "--state"])?, "Stable")?;
    contains(&of_group(&["--describe", "--state"])?, "uniform")?;
    contains(
        &of_group(&["--describe", "--members", "--verbose"])?,
        "kip848-tools:0,1,2,3,4,5",
    )?;
    let topic = bench.topic.clone();
    let reset = ["--reset-offsets", "--all-topics", "--to-earliest", "--execute"];
    let refused = of_group(&reset);
    ensure!(
        refused.as_ref().map_or(true, |output| output.contains("Error")),
        "offsets of an active group were reset: {refused:?}"
    );
    let alter = ["--alter", "--entity-type", "groups", "--entity-name", &group];
    tools.run(
        CONFIGS,
        &[
            &alter[..],
            &["--add-config", "consumer.heartbeat.interval.ms=1000"],
        ]
        .concat(),
        "",
    )?;
    let describe = ["--describe", "--entity-type", "groups", "--entity-name", &group];
    contains(
        &tools.run(CONFIGS, &describe, "")?,
        "consumer.heartbeat.interval.ms=1000",
    )?;
    bench.close_all()?;
    contains(&of_group(&["--describe", "--state"])?, "Empty")?;
    contains(&of_group(&reset)?, &topic)?;
    contains(&of_group(&["--describe", "--offsets"])?, &topic)?;
    contains(&of_group(&["--delete"])?, "was successful")
}

/// The group's records are read by the other broker, changed there, and read by the first again.
fn take_over(programs: &Programs, clients: &Clients, first: Target) -> Result<()> {
    let other = match first {
        Target::Ottla => Target::Kafka,
        Target::Kafka => Target::Ottla,
    };
    let site = Site::create("consumer-protocol-takeover", &SETTINGS)?;
    let server = site.start(programs, first)?;
    let bootstrap = server.bootstrap();
    let mut bench = Bench::create(programs, &bootstrap, "kip848-takeover")?.with(clients);
    bench.join(Maker::Java, &[&strategy("CooperativeStickyAssignor")])?;
    bench.settle(&[6])?;
    bench.join(Maker::Librdkafka, &[NEW_PROTOCOL])?;
    bench.join(Maker::Java, &[NEW_PROTOCOL, "group.instance.id=one"])?;
    bench.settle(&[2, 2, 2])?;
    bench.write(60)?;
    bench.all_read()?;
    let places = |bench: &Bench<'_>| [0, 1, 2].map(|index| bench.place(index));
    let before = places(&bench);
    server.stop()?;
    let server = site.start(programs, other)?;
    bench.write(60)?;
    bench.all_read()?;
    bench.settle(&[2, 2, 2])?;
    ensure!(before == places(&bench), "the other broker moved partitions");
    bench.join(Maker::FranzGo, &[NEW_PROTOCOL])?;
    bench.settle(&[1, 1, 2, 2])?;
    // The classic member leaves: what remains is written by the other broker alone.
    bench.close(0)?;
    bench.settle(&[2, 2, 2])?;
    bench.write(60)?;
    bench.all_read()?;
    let before = places(&bench);
    server.stop()?;
    let server = site.start(programs, first)?;
    bench.write(60)?;
    bench.all_read()?;
    bench.settle(&[2, 2, 2])?;
    ensure!(before == places(&bench), "the first broker moved partitions");
    check_type(programs, &bootstrap, &bench.group, "consumer")?;
    bench.close_all()?;
    server.stop()
}

fn outlive(programs: &Programs, site: &Site, server: Server, target: Target) -> Result<Server> {
    let bootstrap = server.bootstrap();
    let mut bench = Bench::create(programs, &bootstrap, "kip848-restart")?;
    bench.join(Maker::Java, &[&strategy("CooperativeStickyAssignor")])?;
    bench.settle(&[6])?;
    bench.join(Maker::Java, &[NEW_PROTOCOL])?;
    bench.join(Maker::Java, &[NEW_PROTOCOL])?;
    bench.settle(&[2, 2, 2])?;
    let places = |bench: &Bench<'_>| [0, 1, 2].map(|index| bench.place(index));
    let before = places(&bench);
    server.stop()?;
    let server = site.start(programs, target)?;
    bench.write(60)?;
    bench.all_read()?;
    bench.settle(&[2, 2, 2])?;
    ensure!(before == places(&bench), "the restart moved partitions");
    server.kill()?;
    let server = site.start(programs, target)?;
    bench.write(60)?;
    bench.all_read()?;
    bench.close_all()?;
    Ok(server)
}
