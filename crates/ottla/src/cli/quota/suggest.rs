//! `ottla quota suggest`: quotas from observed use, as kafka-configs.sh commands.

use std::fmt::Write;

use clap::Args;
use ottla_broker::text::is_printable;
use ottla_lab::tenants::quota::{QuotaClient, QuotaPage, default_request_percentage, suggest};

use super::{Failure, page};
use crate::cli::admin_address::AdminAddress;

#[derive(Args)]
pub struct Suggest {
    #[command(flatten)]
    broker: AdminAddress,

    /// Head room above a client's rate in its busiest ten seconds, in percent
    #[arg(long, value_name = "PERCENT", default_value_t = 50, value_parser = clap::value_parser!(u32).range(0..=10_000))]
    head_room: u32,
}

const ANONYMOUS: &str = "ANONYMOUS";

impl Suggest {
    pub fn run(self) -> Result<String, Failure> {
        let (_, page) = page(&self.broker)?;
        Ok(script(&page, self.head_room))
    }
}

fn script(page: &QuotaPage, head_room_percent: u32) -> String {
    let mut text = format!(
        "# Each client's rate in its busiest ten seconds plus {head_room_percent} %, and at least that of its busiest second.\n"
    );
    let suggestions = suggest(page, head_room_percent);
    for suggestion in &suggestions {
        let values: Vec<String> = (suggestion.quotas.iter())
            .map(|(key, value)| format!("{key}={value}"))
            .collect();
        let values = values.join(",");
        let _ = match entity(suggestion.client) {
            Some(entity) => writeln!(text, "{}", command(page, &values, &entity)),
            None => writeln!(
                text,
                "# A client without a client id, to which only a default quota applies: {values}"
            ),
        };
    }
    match default_request_percentage(&suggestions) {
        Some(percentage) => {
            text.push_str(
                "# The default for all other clients: the event loop time of the heaviest client above.\n",
            );
            let values = format!("request_percentage={percentage}");
            let _ = writeln!(
                text,
                "{}",
                command(page, &values, "--entity-type clients --entity-default")
            );
        }
        None => text.push_str("# No client has sent requests yet.\n"),
    }
    text
}

/// Returns the kafka-configs.sh options that name the client; `None` without a client id.
fn entity(client: &QuotaClient) -> Option<String> {
    if client.client_id.is_empty() {
        return None;
    }
    let of_client = format!(
        "--entity-type clients --entity-name {}",
        quoted(&client.client_id)
    );
    Some(match client.user.as_str() {
        ANONYMOUS => of_client,
        user => format!("--entity-type users --entity-name {} {of_client}", quoted(user)),
    })
}

fn command(page: &QuotaPage, values: &str, entity: &str) -> String {
    let servers = &page.bootstrap_servers;
    format!(
        "kafka-configs.sh --bootstrap-server {servers} --alter --add-config {} {entity}",
        quoted(values)
    )
}

/// Quotes a word for a shell, because names come from the network.
fn quoted(word: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.,:=@/".contains(&byte);
    if word.bytes().all(is_plain) && !word.starts_with('-') {
        return word.to_owned();
    }
    // A line break would end the comment or the command.
    let word: String = word.chars().filter(|letter| is_printable(*letter)).collect();
    format!("'{}'", word.replace('\'', "'\\''"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    use ottla_lab::tenants::quota::{KEYS, QuotaUse};

    fn used(rate_max: f64, rate_of_one_second_max: f64) -> QuotaUse {
        QuotaUse {
            rate_max,
            rate_of_one_second_max,
            ..QuotaUse::default()
        }
    }

    #[test]
    fn the_commands_are_kafka_configs_and_names_cannot_break_out_of_quotes() {
        let client = |user: &str, client_id: &str, produced| QuotaClient {
            user: user.to_owned(),
            client_id: client_id.to_owned(),
            is_connected: true,
            quotas: BTreeMap::from([
                (KEYS[0].to_owned(), used(produced, produced)),
                (KEYS[2].to_owned(), used(4.0, 5.0)),
            ]),
        };
        let page = QuotaPage {
            version: 1,
            bootstrap_servers: "h:9092".to_owned(),
            is_dry_run: false,
            connections_throttled: 0,
            clients: vec![
                client(ANONYMOUS, "etl", 1e6),
                client("alice", "a'b; rm -rf x\n", 0.0),
                client(ANONYMOUS, "", 0.2),
            ],
        };
        let script = script(&page, 0);
        let lines: Vec<&str> = script.lines().skip(1).collect();
        let alter = "kafka-configs.sh --bootstrap-server h:9092 --alter --add-config";
        assert_eq!(
            lines,
            [
                format!("{alter} producer_byte_rate=1000000,request_percentage=5 --entity-type clients --entity-name etl"),
                format!(
                    "{alter} request_percentage=5 --entity-type users --entity-name alice --entity-type clients \
                     --entity-name 'a'\\''b; rm -rf x'"
                ),
                "# A client without a client id, to which only a default quota applies: producer_byte_rate=1,request_percentage=5".to_owned(),
                "# The default for all other clients: the event loop time of the heaviest client above.".to_owned(),
                format!("{alter} request_percentage=5 --entity-type clients --entity-default"),
            ]
        );
    }
}
