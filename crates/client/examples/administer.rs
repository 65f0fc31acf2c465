//! Creates a topic, prints how far each consumer group lags behind, and which of the topic's
//! settings differ from the defaults.
//!
//! `cargo run -p ottla-client --example administer -- localhost:9092 orders`

use std::collections::BTreeMap;

use ottla_client::admin::{Admin, ConfigResource, ConfigSource, NewTopic, OffsetSpec};
use ottla_client::config::Config;
use ottla_client::{Error, ErrorCode};

fn main() -> Result<(), Error> {
    let mut arguments = std::env::args().skip(1);
    let bootstrap = arguments.next().unwrap_or_else(|| "localhost:9092".to_owned());
    let topic = arguments.next().unwrap_or_else(|| "orders".to_owned());
    let admin = Admin::new(&Config::new().set("bootstrap.servers", bootstrap))?;

    // The call as a whole succeeds; each topic has a result of its own.
    let new = NewTopic::new(&topic)
        .partitions(3)
        .config("retention.ms", 86_400_000);
    for (name, result) in admin.create_topics(vec![new]).wait()? {
        match result {
            Ok(created) => println!("{name}: made, with {} partitions", created.partitions),
            Err(Error::Broker {
                code: ErrorCode::TopicAlreadyExists,
                ..
            }) => println!("{name}: is there"),
            Err(error) => return Err(error),
        }
    }

    for group in admin.list_groups().wait()?.into_keys() {
        let committed = admin.list_group_offsets(&group).wait()?;
        let wanted: BTreeMap<_, _> = committed
            .keys()
            .map(|key| (key.clone(), OffsetSpec::Latest))
            .collect();
        for (partition, end) in admin.list_offsets(wanted).wait()? {
            let lag = end?.offset - committed[&partition].offset;
            println!("group {group}: {partition} is {lag} records behind");
        }
    }

    let resource = ConfigResource::topic(&topic);
    let described = admin.describe_configs(vec![resource.clone()]).wait()?;
    for (key, entry) in described[&resource].clone()? {
        if entry.source == ConfigSource::Topic {
            println!("{topic}: {key} = {}", entry.value.unwrap_or_default());
        }
    }
    Ok(())
}
