//! What is done over each way in.

use anyhow::{Context, Result};
use ottla_client::Error;
use ottla_client::admin::{Admin, NewTopic};
use ottla_client::config::Config;

/// One call, to see whether this client gets in at all.
pub fn attempt(config: &Config) -> Result<(), Error> {
    let admin = Admin::new(config)?;
    admin.describe_cluster().wait().map(drop)
}

/// Makes a topic, and works for longer than a session lasts.
pub fn run(config: &Config, topic: &str) -> Result<()> {
    let admin = Admin::new(config)?;
    let created = admin.create_topics(vec![NewTopic::new(topic)]).wait()?;
    for result in created.into_values() {
        result.context("the topic")?;
    }
    Ok(())
}
