//! Our own client's part of the interop suite: the same cases and the same lines as the other
//! clients.
//!
//! The suite starts `cargo xtask interop-client PHASE BOOTSTRAP [ARGUMENT...]` as a separate
//! process, like the other clients, so that a hanging client is a failed case and does not hang the
//! suite.

mod suite;
mod records;
mod drain;
mod data;
mod admin;
mod groups;
mod java;
mod membership;
mod transactions;
mod load;
mod crash_transactions;

use anyhow::{Context, Result, bail, ensure};
use suite::Suite;

pub fn run(arguments: &[String]) -> Result<()> {
    let (phase, rest) = arguments
        .split_first()
        .context("usage: interop-client PHASE BOOTSTRAP")?;
    let (bootstrap, rest) = rest
        .split_first()
        .context("usage: interop-client PHASE BOOTSTRAP")?;
    if phase == "load" {
        return load::run(bootstrap, rest.first().context("load wants a file")?);
    }
    let mut suite = Suite::new(bootstrap)?;
    match phase.as_str() {
        "write" => records::write_all(&mut suite),
        "read" => records::read_all(&mut suite, rest),
        "cases" => {
            data::run(&mut suite);
            admin::run(&mut suite);
            groups::run(&mut suite);
        }
        "drain" => suite.run("drain", |suite| drain::run(suite, rest)),
        "beside-java" => java::run(&mut suite)?,
        "transactions" => java::transactions(&mut suite)?,
        "consumer-protocol" => membership::run(&mut suite),
        "transactional-producer" => {
            transactions::run(&mut suite, rest.first().map_or("", String::as_str));
        }
        "crash-transactions" => crash_transactions::load(&suite, rest)?,
        "old" => data::old_broker(&mut suite),
        other => bail!("unknown phase {other}"),
    }
    ensure!(suite.failures() == 0, "{} cases failed", suite.failures());
    Ok(())
}
