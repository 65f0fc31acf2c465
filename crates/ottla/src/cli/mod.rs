//! The command line: the subcommands, one module each.
//!
//! Reading order: the modules below, from the entry point down to the foundations.

mod bench;
mod console;
mod demo;
mod grow;
mod perf;
mod quota;
mod tenants;
mod top;
mod access;
mod transactions;
mod doctor;
mod serve;
mod server_properties;
mod admin_address;
mod servers;
mod command_config;
mod live;
mod table;
mod output;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// A Kafka broker for one machine that tells you which client is slow, why, and which setting to
/// change
#[derive(Parser)]
#[command(name = "ottla", version = env!("OTTLA_VERSION"))]
struct Command {
    #[command(subcommand)]
    job: Job,
}

#[derive(Subcommand)]
enum Job {
    Serve(serve::Serve),
    Grow(grow::Grow),
    Perf(perf::Perf),
    Bench(bench::Bench),
    Doctor(doctor::Doctor),
    Tenants(tenants::TenantsJob),
    Top(top::Top),
    Demo(demo::Demo),
    Console(console::Console),
    Quota(quota::Quota),
    Access(access::Access),
    Transactions(transactions::Transactions),
}

/// The commit that the binary was built from, with `-dirty` appended if tracked files were changed;
/// `None` without a repository.
const COMMIT: Option<&str> = option_env!("OTTLA_COMMIT");

/// Runs the command line of this process. Exit status: 0 success, 1 failure, 2 wrong usage.
pub fn run() -> ExitCode {
    match Command::parse().job {
        Job::Serve(serve) => serve.run(),
        Job::Grow(grow) => grow.run(),
        Job::Perf(perf) => perf.run(),
        Job::Bench(bench) => bench.run(),
        Job::Doctor(doctor) => doctor.run(),
        Job::Tenants(tenants) => tenants.run(),
        Job::Top(top) => top.run(),
        Job::Demo(demo) => demo.run(),
        Job::Console(console) => console.run(),
        Job::Quota(quota) => quota.run(),
        Job::Access(access) => access.run(),
        Job::Transactions(transactions) => transactions.run(),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::Command;

    #[test]
    fn the_help_says_what_the_readme_says() {
        let help = Command::command().render_long_help().to_string();
        let tagline = help.split("\n\n").next().unwrap_or_default();
        let tagline = tagline.split_whitespace().collect::<Vec<_>>().join(" ");
        let readme = include_str!("../../../../README.md");
        assert!(readme.contains(&format!("**{tagline}.**")), "{tagline}");
    }
}
