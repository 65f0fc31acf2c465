//! `--only matrix`: every API that asks for a permission, in every version, as a user without
//! permissions, with each alone, with those that it needs, with all, and with all but one, on Ottla
//! and on Apache Kafka with its StandardAuthorizer.
//!
//! Both run on copies of one directory, so that ids are the same, too. Every error code of an
//! answer counts, with the names and permitted operations that the answer tells.

mod differences;
mod rows;
mod tokens;
mod users;

use std::collections::{BTreeMap, BTreeSet};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, anyhow, ensure};
use ottla_wire::api_key::ApiKey;
use ottla_wire::frame::decode_response_header;
use ottla_wire::messages::{create_acls, create_topics, find_coordinator, init_producer_id, offset_commit};
use ottla_wire::primitives::{Reader, Uuid};

use super::refusals::{Ask, Said, Wire, answer, is_led, wait_for};
use super::security::add_listeners;
use super::server::{Programs, Server, Site, Target, copy_directory};
use super::table::Table;
use super::toolchain;
use rows::{Names, Row, deletion_rows, lasting_rows};
use users::{User, users};

const PASSWORD: &str = "password";
/// Timeout of one answer, and of the preparations.
const PATIENCE: Duration = Duration::from_secs(60);
/// Differences printed for one row.
const SHOWN_MAX: usize = 4;

/// What one broker said: by row, version and user.
type Facts = BTreeMap<(&'static str, i16, String), Vec<String>>;

/// A broker, and the port where users authenticate.
struct Stand {
    site: Site,
    login_port: u16,
}

pub fn run(table: &mut Table, programs: &Programs) -> Result<()> {
    let users = users();
    let rows = [lasting_rows(), deletion_rows()];
    println!(
        "matrix: {} requests as {} users on both brokers",
        rows[0].len() + rows[1].len(),
        users.len()
    );
    let (ottla, kafka) = (
        Stand::create("matrix-ottla", &users)?,
        Stand::create("matrix-kafka", &users)?,
    );
    let names = prepare(&ottla, programs, &users)?;
    copy_directory(&ottla.site.directory, &kafka.site.directory)?;
    let servers = [
        ottla.start(programs, Target::Ottla)?,
        kafka.start(programs, Target::Kafka)?,
    ];
    for stand in [&ottla, &kafka] {
        stand.wait_until_served(&names)?;
    }
    let (ours, theirs) = thread::scope(|scope| {
        let ours = scope.spawn(|| ottla.questioned(&rows, &users, &names));
        let theirs = kafka.questioned(&rows, &users, &names);
        (ours.join(), theirs)
    });
    let (ours, theirs) = (ours.map_err(|_| anyhow!("a thread panicked"))??, theirs?);
    println!("matrix: {} answers", ours.len());
    let mut seen = BTreeSet::new();
    for row in rows.iter().flatten() {
        let outcome = compared(row, &ours, &theirs, &mut seen).map_err(|error| format!("{error:#}"));
        println!(
            "matrix: {}: {}",
            row.name,
            outcome.as_ref().err().map_or("ok", String::as_str)
        );
        table.add_other(format!("matrix: {}", row.name), outcome);
    }
    for difference in differences::ALL.iter().filter(|known| !seen.contains(known.row)) {
        let outcome = Err(format!("is not there any more: {}", difference.why));
        table.add_other(format!("matrix: the difference in {}", difference.row), outcome);
    }
    tokens::run(table, programs, [&ottla, &kafka]);
    servers.into_iter().try_for_each(Server::stop)
}

/// Compares the answers of both brokers to one row, except for known differences.
fn compared(row: &Row, ours: &Facts, theirs: &Facts, seen: &mut BTreeSet<&'static str>) -> Result<()> {
    let mut different = Vec::new();
    let mut kinds = BTreeSet::new();
    for (asked, our_facts) in ours.iter().filter(|((name, ..), _)| *name == row.name) {
        let their_facts = &theirs[asked];
        kinds.insert(their_facts);
        if our_facts == their_facts {
            continue;
        }
        let (_, version, user) = asked;
        let known = differences::ALL
            .iter()
            .find(|known| known.is(row.name, their_facts, our_facts));
        match known {
            Some(known) => {
                seen.insert(known.row);
            }
            None => different.push(format!(
                "\n  version {version} as {user}: Kafka: {}; Ottla: {}",
                shown(row, their_facts, our_facts),
                shown(row, our_facts, their_facts)
            )),
        }
    }
    // A row that answers everybody alike would show nothing.
    ensure!(
        kinds.len() > 1 || is_for_all(row),
        "every user gets the same answer"
    );
    let told: String = different.iter().take(SHOWN_MAX).map(String::as_str).collect();
    ensure!(different.is_empty(), "{} answers differ:{told}", different.len());
    Ok(())
}

/// Whether no permission counts: as long as there are no delegation tokens, only one for another
/// principal asks for any.
fn is_for_all(row: &Row) -> bool {
    match row.api_key {
        ApiKey::SaslHandshake
        | ApiKey::RenewDelegationToken
        | ApiKey::ExpireDelegationToken
        | ApiKey::DescribeDelegationToken => true,
        _ => row.name == rows::OWN_TOKEN,
    }
}

/// What is to be read of an answer that differs from another: of a list, what is not in the other.
fn shown(row: &Row, facts: &[String], other: &[String]) -> String {
    let told = facts.iter().filter(|fact| !row.is_list || !other.contains(fact));
    told.map(String::as_str).collect::<Vec<_>>().join(", ")
}

impl Stand {
    fn create(name: &str, users: &[User]) -> Result<Stand> {
        let passwords: String = users
            .iter()
            .map(|user| format!(" user_{}=\"{PASSWORD}\"", user.name))
            .collect();
        let module = "org.apache.kafka.common.security.plain.PlainLoginModule";
        let settings = [
            (
                "authorizer.class.name",
                "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            ),
            ("super.users", "User:ANONYMOUS"),
            ("listener.name.login.sasl.enabled.mechanisms", "PLAIN"),
            (
                "listener.name.login.plain.sasl.jaas.config",
                &format!("{module} required{passwords};"),
            ),
        ];
        let site = Site::create(name, &settings)?;
        let login_port = toolchain::free_port()?;
        add_listeners(&site, [("LOGIN", "SASL_PLAINTEXT", login_port)])?;
        Ok(Stand { site, login_port })
    }

    fn start(&self, programs: &Programs, target: Target) -> Result<Server> {
        self.site
            .start_with(programs, target, &["ottla.durability=page-cache"])
            .with_context(|| format!("{} for the matrix", target.name()))
    }

    /// Waits until every topic has a leader, and the coordinators know what they need.
    fn wait_until_served(&self, names: &[Names]) -> Result<()> {
        let began = Instant::now();
        for names in names {
            while !is_led(self.site.port, &names.topic, 1)? {
                ensure!(began.elapsed() < PATIENCE, "{} has no leader", names.topic);
                thread::sleep(Duration::from_millis(50));
            }
            wait_for_coordinators(self.site.port, names)?;
        }
        Ok(())
    }

    /// Asks everything as every user. Nothing is deleted before everything else has been asked.
    fn questioned(&self, rows: &[Vec<Row>; 2], users: &[User], names: &[Names]) -> Result<Facts> {
        let mut facts = Facts::new();
        for rows in rows {
            for (user, names) in users.iter().zip(names) {
                self.question(rows, user, names, &mut facts)
                    .with_context(|| user.name.clone())?;
            }
        }
        Ok(facts)
    }

    fn question(&self, rows: &[Row], user: &User, names: &Names, facts: &mut Facts) -> Result<()> {
        let mut wire = Wire::connect_as(self.login_port, PATIENCE, &user.name, PASSWORD)?;
        for row in rows {
            for version in row.versions() {
                let ask = row.ask(names, version);
                let said = Said::of(&ask, wire.ask(&ask).context(row.name)?);
                ensure!(said.is_answer(), "{} version {version}: {}", row.name, said.short);
                let mut said = said.facts();
                if row.is_list {
                    said.sort();
                }
                if row.has_new_id {
                    said.retain(|fact| !fact.starts_with("topic_id"));
                }
                facts.insert((row.name, version, user.name.clone()), said);
            }
        }
        Ok(())
    }
}

/// Has Ottla create the topics, a committed offset and a transactional id of every user, and all
/// ACLs.
fn prepare(stand: &Stand, programs: &Programs, users: &[User]) -> Result<Vec<Names>> {
    let server = stand.start(programs, Target::Ottla)?;
    let port = stand.site.port;
    let ids = create_topics(port, users)?;
    let now_ms = i64::try_from(SystemTime::now().duration_since(UNIX_EPOCH)?.as_millis())?;
    let mut all = Vec::new();
    for user in users {
        let names = Names {
            topic: user.topic(),
            topic_id: ids[&user.topic()],
            other_topic: user.other_topic(),
            other_topic_id: ids[&user.other_topic()],
            absent: format!("{}.absent", user.name),
            impossible: format!("{}.im/possible", user.name),
            group: user.group(),
            transactional_id: user.transactional_id(),
            now_ms,
        };
        wait_for_coordinators(port, &names)?;
        all.push(names);
    }
    create_acls(port, users)?;
    server.stop()?;
    Ok(all)
}

fn create_topics(port: u16, users: &[User]) -> Result<BTreeMap<String, Uuid>> {
    let names: Vec<String> = users
        .iter()
        .flat_map(|user| [user.topic(), user.other_topic()])
        .collect();
    let topic = |name| create_topics::CreatableTopic {
        name,
        num_partitions: 1,
        replication_factor: 1,
        ..Default::default()
    };
    let request = create_topics::CreateTopicsRequest {
        topics: names.iter().map(|name| topic(name)).collect(),
        timeout_ms: 30_000,
        validate_only: false,
    };
    let frame = sent(port, ApiKey::CreateTopics, 7, |body| request.encode(body, 7))?;
    let mut reader = Reader::new(&frame);
    decode_response_header(&mut reader, ApiKey::CreateTopics, 7)?;
    let response = create_topics::CreateTopicsResponse::decode(&mut reader, 7)?;
    let mut ids = BTreeMap::new();
    for made in &response.topics {
        ensure!(made.error_code == 0, "{}: {:?}", made.name, made.error_message);
        ids.insert(made.name.to_owned(), made.topic_id);
    }
    Ok(ids)
}

fn create_acls(port: u16, users: &[User]) -> Result<()> {
    let acls: Vec<_> = users.iter().flat_map(User::acls).collect();
    let request = create_acls::CreateAclsRequest {
        creations: acls.iter().map(users::OwnedAcl::creation).collect(),
    };
    let frame = sent(port, ApiKey::CreateAcls, 3, |body| request.encode(body, 3))?;
    let mut reader = Reader::new(&frame);
    decode_response_header(&mut reader, ApiKey::CreateAcls, 3)?;
    let response = create_acls::CreateAclsResponse::decode(&mut reader, 3)?;
    ensure!(
        response.results.len() == acls.len() && response.results.iter().all(|result| result.error_code == 0),
        "an ACL was not created"
    );
    Ok(())
}

fn commit(port: u16, names: &Names) -> Result<()> {
    let request = offset_commit::OffsetCommitRequest {
        group_id: &names.group,
        generation_id_or_member_epoch: -1,
        // Of two topics: the group outlives the deletion of one's offset.
        topics: [&names.topic, &names.other_topic]
            .map(|name| offset_commit::OffsetCommitRequestTopic {
                name,
                partitions: vec![offset_commit::OffsetCommitRequestPartition::default()],
                ..Default::default()
            })
            .into(),
        ..Default::default()
    };
    let began = Instant::now();
    loop {
        let frame = sent(port, ApiKey::OffsetCommit, 8, |body| request.encode(body, 8))?;
        let mut reader = Reader::new(&frame);
        decode_response_header(&mut reader, ApiKey::OffsetCommit, 8)?;
        let response = offset_commit::OffsetCommitResponse::decode(&mut reader, 8)?;
        let code = response.topics[0].partitions[0].error_code;
        if code == 0 {
            return Ok(());
        }
        ensure!(began.elapsed() < PATIENCE, "{}: error {code}", names.group);
        thread::sleep(Duration::from_millis(20));
    }
}

/// Has the coordinators know the group, by an offset, and the transactional id.
fn wait_for_coordinators(port: u16, names: &Names) -> Result<()> {
    wait_for(port, &coordinator_of(&names.group, 0))?;
    wait_for(port, &coordinator_of(&names.transactional_id, 1))?;
    commit(port, names)?;
    wait_for(port, &producer_of(None))?;
    wait_for(port, &producer_of(Some(&names.transactional_id)))
}

fn coordinator_of(key: &str, key_type: i8) -> Ask {
    let request = find_coordinator::FindCoordinatorRequest {
        key,
        key_type,
        ..Default::default()
    };
    let mut body = Vec::new();
    request.encode(&mut body, 2);
    Ask::new(ApiKey::FindCoordinator, 2, body)
}

fn producer_of(transactional_id: Option<&str>) -> Ask {
    let request = init_producer_id::InitProducerIdRequest {
        transactional_id,
        transaction_timeout_ms: 60_000,
        producer_id: -1,
        producer_epoch: -1,
    };
    let mut body = Vec::new();
    request.encode(&mut body, 1);
    Ask::new(ApiKey::InitProducerId, 1, body)
}

pub(super) fn sent(
    port: u16,
    api_key: ApiKey,
    version: i16,
    encode: impl FnOnce(&mut Vec<u8>),
) -> Result<Vec<u8>> {
    let mut body = Vec::new();
    encode(&mut body);
    answer(port, &Ask::new(api_key, version, body))
}
