//! `ottla quota suggest`: quotas from observed use, as kafka-configs.sh commands.

use std::fmt::Write;

use clap::Args;
use ottla_broker::text::is_printable;

use super::page::{Client, Page, Use};
use super::{Broker, Failure};

#[derive(Args)]
pub struct Suggest {
    #[command(flatten)]
    broker: Broker,

    /// Head room above a client's rate in its busiest ten seconds, in percent
    #[arg(long, value_name = "PERCENT", default_value_t = 50, value_parser = clap::value_parser!(u32).range(0..=10_000))]
    head_room: u32,
}

/// The quotas that are suggested, in the order in which they are printed.
const KEYS: [&str; 3] = ["producer_byte_rate", "consumer_byte_rate", "request_percentage"];

const ANONYMOUS: &str = "ANONYMOUS";

impl Suggest {
    pub fn run(self) -> Result<String, Failure> {
        let (_, page) = self.broker.page()?;
        Ok(script(&page, self.head_room))
    }
}

fn script(page: &Page, head_room_percent: u32) -> String {
    let mut text = format!(
        "# Each client's rate in its busiest ten seconds plus {head_room_percent} %, and at least that of its busiest second.\n"
    );
    let mut greatest_percentage: f64 = 0.0;
    for client in &page.clients {
        let wanted = |key: &str| {
            let value = value(client.quotas.get(key)?, head_room_percent)?;
            // Kafka accepts only whole bytes.
            Some(if key.ends_with("byte_rate") {
                value.ceil()
            } else {
                value
            })
        };
        let values: Vec<String> = KEYS
            .iter()
            .filter_map(|key| Some(format!("{key}={}", wanted(key)?)))
            .collect();
        greatest_percentage = greatest_percentage.max(wanted("request_percentage").unwrap_or(0.0));
        if values.is_empty() {
            continue;
        }
        match entity(client) {
            Some(entity) => {
                let _ = writeln!(text, "{}", command(page, &values.join(","), &entity));
            }
            None => {
                let _ = writeln!(
                    text,
                    "# A client without a client id, to which only a default quota applies: {}",
                    values.join(",")
                );
            }
        }
    }
    if greatest_percentage > 0.0 {
        text.push_str(
            "# The default for all other clients: the event loop time of the heaviest client above.\n",
        );
        let values = format!("request_percentage={greatest_percentage}");
        let _ = writeln!(
            text,
            "{}",
            command(page, &values, "--entity-type clients --entity-default")
        );
    } else {
        text.push_str("# No client has sent requests yet.\n");
    }
    text
}

/// Returns the rate with head room, at least that of the busiest second so that it would not have
/// been throttled, rounded up to two digits.
fn value(of: &Use, head_room_percent: u32) -> Option<f64> {
    let head_room = 1.0 + f64::from(head_room_percent) / 100.0;
    let wanted = (of.rate_max * head_room).max(of.rate_of_one_second_max);
    if wanted <= 0.0 {
        return None;
    }
    let unit = 10f64.powf(wanted.log10().floor() - 1.0);
    let rounded = (wanted / unit - 1e-9).ceil() * unit;
    // A share of an event loop keeps four decimals of a percent: one microsecond per second.
    Some(if rounded >= 10.0 {
        rounded.round()
    } else {
        (rounded * 1e4 - 1e-6).ceil() / 1e4
    })
}

/// Returns the kafka-configs.sh options that name the client; `None` without a client id.
fn entity(client: &Client) -> Option<String> {
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

fn command(page: &Page, values: &str, entity: &str) -> String {
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

    fn used(rate_max: f64, rate_of_one_second_max: f64) -> Use {
        Use {
            rate_max,
            rate_of_one_second_max,
            ..Use::default()
        }
    }

    #[test]
    fn a_value_has_head_room_and_covers_the_busiest_second() {
        let check = |rate_max, second, head_room, expected: Option<f64>| {
            assert_eq!(value(&used(rate_max, second), head_room), expected);
        };
        check(1_000_000.0, 1_000_000.0, 50, Some(1_500_000.0));
        check(1_000_000.0, 4_010_000.0, 50, Some(4_100_000.0));
        check(123.0, 0.0, 0, Some(130.0));
        check(0.5, 0.0, 0, Some(0.5));
        check(0.123, 0.0, 0, Some(0.13));
        check(0.000_01, 0.0, 0, Some(0.0001));
        check(0.0, 0.0, 50, None);
    }

    #[test]
    fn the_commands_are_kafka_configs_and_names_cannot_break_out_of_quotes() {
        let client = |user: &str, client_id: &str, produced| Client {
            user: user.to_owned(),
            client_id: client_id.to_owned(),
            is_connected: true,
            quotas: BTreeMap::from([
                (KEYS[0].to_owned(), used(produced, produced)),
                (KEYS[2].to_owned(), used(4.0, 5.0)),
            ]),
        };
        let page = Page {
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
