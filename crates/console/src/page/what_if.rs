//! What if: the doctor's calculator on one client. Nothing is changed; it only calculates.

use ottla_lab::doctor::Snapshot;
use ottla_lab::doctor::calculator::Invalid;
use ottla_lab::doctor::calculator::predict::{KNOWN, Prediction, as_kafka_writes, predict};
use ottla_lab::doctor::in_librdkafkas_words;
use ottla_lab::doctor::snapshot::{Origin, Role, Setting, Settings};
use ottla_lab::markup::Markup;
use ottla_lab::numbers::{number, plain};

use super::Query;
use super::client::draw_lines;
use crate::draw::block::{Block, block, nothing};
use crate::draw::table::{Cell, Table, numbers, words};
use crate::draw::text::{Piece, address, encoded};

/// The settings of a form; the calculator knows more (`?set=`).
const OF_PRODUCER: [&str; 6] = [
    "batch.size",
    "linger.ms",
    "max.in.flight.requests.per.connection",
    "acks",
    "compression.type",
    "buffer.memory",
];
const OF_CONSUMER: [&str; 6] = [
    "fetch.min.bytes",
    "fetch.max.wait.ms",
    "fetch.max.bytes",
    "max.partition.fetch.bytes",
    "max.poll.records",
    "consumers",
];

/// What was asked, and the answer.
pub struct Question {
    /// `batch.size=65536`
    pub sets: Vec<String>,
    pub prediction: Option<Result<Prediction, Invalid>>,
}

impl Question {
    /// - Shape: `?set=linger.ms=5`, as `ottla doctor predict --set`, or fields by name, as the form
    ///   sends them; empty fields ask nothing.
    pub fn read(snapshot: Option<&Snapshot>, query: &Query) -> Question {
        let by_name = query
            .0
            .iter()
            .filter(|(name, value)| is_known(name) && !value.is_empty());
        let by_name = by_name.map(|(name, value)| format!("{name}={value}"));
        let sets: Vec<String> = query
            .all("set")
            .into_iter()
            .map(str::to_owned)
            .chain(by_name)
            .collect();
        let prediction = snapshot
            .filter(|_| !sets.is_empty())
            .map(|snapshot| predict(snapshot, &sets));
        Question { sets, prediction }
    }

    fn value(&self, setting: &str) -> &str {
        let found = self
            .sets
            .iter()
            .rev()
            .find_map(|set| set.strip_prefix(setting)?.strip_prefix('='));
        found.unwrap_or_default()
    }
}

fn is_known(name: &str) -> bool {
    KNOWN.iter().any(|known| known.name == name)
}

/// A client by its instance id, or the first by its client id.
pub fn find<'a>(snapshots: &'a [Snapshot], id: &str) -> Option<&'a Snapshot> {
    let by_instance = snapshots
        .iter()
        .find(|snapshot| snapshot.client.instance_id.as_deref() == Some(id));
    by_instance.or_else(|| snapshots.iter().find(|snapshot| snapshot.client.client_id == id))
}

pub fn block_of(id: &str, snapshot: Option<&Snapshot>, question: &Question) -> Block {
    let note = "Nothing is changed: it only calculates. Empty fields stay as they are.";
    block("what-if", "What if", note, |page| {
        let Some(snapshot) = snapshot else {
            return nothing("There are no readings of this client to calculate with.", page);
        };
        let to = format!("{}#what-if", address("clients", id));
        page.nest("form", &[("class", &"form"), ("action", &to)], |page| {
            page.nest("div", &[], |page| fields(snapshot, question, page));
            page.nest("div", &[], |page| match &question.prediction {
                None => nothing(
                    "Enter a value and calculate: the answer stands here, with the next limit.",
                    page,
                ),
                Some(Err(invalid)) => {
                    page.nest("p", &[], |page| {
                        page.inline("b", &[("class", &"bad")], "▲ Not calculated: ");
                        page.text(invalid);
                    });
                }
                Some(Ok(prediction)) => {
                    answer(prediction, page);
                    draw_forms(&forms(snapshot.client.role, &question.sets), page);
                    draw_link(id, &question.sets, page);
                }
            });
        });
        if let Some(Ok(prediction)) = &question.prediction {
            page.nest("details", &[], |page| {
                page.leaf("summary", &[], "The arithmetic of this answer");
                draw_lines(&prediction.lines, page);
            });
        }
    })
}

fn fields(snapshot: &Snapshot, question: &Question, page: &mut Markup) {
    let settings = match snapshot.client.role {
        Role::Producer => &OF_PRODUCER,
        Role::Consumer => &OF_CONSUMER,
    };
    for (index, setting) in settings.iter().enumerate() {
        let field_id = format!("set-{index}");
        page.nest("div", &[("class", &"fld")], |page| {
            page.nest("label", &[("for", &field_id)], |page| {
                page.inline("code", &[], setting);
                page.literal("<br>");
                page.inline("small", &[], now(&snapshot.settings, setting));
            });
            let value = question.value(setting);
            let class = if value.is_empty() { "" } else { "ed" };
            let of_field: [(&'static str, &dyn std::fmt::Display); 5] = [
                ("id", &field_id),
                ("name", setting),
                ("value", &value),
                ("class", &class),
                ("autocomplete", &"off"),
            ];
            page.shape("input", &of_field);
        });
    }
    page.nest("p", &[], |page| {
        page.leaf("button", &[("class", &"p")], "Calculate");
    });
}

/// `now 16,384 · derived`.
fn now(settings: &Settings, name: &str) -> String {
    let origin = |origin: Origin| match origin {
        Origin::Stated => "stated",
        Origin::Told => "told by the client",
        Origin::Seen => "seen",
        Origin::Inferred => "derived",
        Origin::Default => "default",
    };
    let shown = |setting: Option<Setting<f64>>| {
        setting.map(|setting| format!("now {} · {}", plain(setting.value), origin(setting.origin)))
    };
    let found = match name {
        "batch.size" => shown(settings.batch_bytes),
        "linger.ms" => shown(settings.linger_ms),
        "max.in.flight.requests.per.connection" => shown(settings.in_flight),
        "buffer.memory" => shown(settings.buffer_bytes),
        "acks" => settings.acks.map(|acks| {
            let value = if acks.value == -1 {
                String::from("all")
            } else {
                acks.value.to_string()
            };
            format!("now {value} · {}", origin(acks.origin))
        }),
        "compression.type" => settings.compression.map(|codec| {
            format!(
                "now {} · {}",
                format!("{:?}", codec.value).to_lowercase(),
                origin(codec.origin)
            )
        }),
        "fetch.min.bytes" => shown(settings.fetch_min_bytes),
        "fetch.max.wait.ms" => shown(settings.fetch_max_wait_ms),
        "fetch.max.bytes" => shown(settings.fetch_max_bytes),
        "max.partition.fetch.bytes" => shown(settings.max_partition_fetch_bytes),
        "max.poll.records" => shown(settings.max_poll_records),
        _ => None,
    };
    found.unwrap_or_else(|| String::from("not known; the usual default is assumed"))
}

fn answer(prediction: &Prediction, page: &mut Markup) {
    let mut table = Table::new(
        "Prediction",
        vec![words("figure"), numbers("now"), numbers("then")],
    );
    for promise in &prediction.changed {
        table.row(vec![
            format!(
                "{} {}",
                promise.figure.replace('_', " "),
                unit(&promise.figure, &promise.unit)
            )
            .trim()
            .into(),
            promise.now.map_or_else(|| String::from("–"), number).into(),
            Cell::from(Piece::Strong(promise.range())),
        ]);
    }
    match prediction.changed.is_empty() {
        true => nothing("Nothing changes.", page),
        false => table.draw(page),
    }
    page.nest("ul", &[("class", &"no")], |page| {
        let mut line = |head: &str, words: &str| {
            page.nest("li", &[], |page| {
                page.leaf("span", &[("class", &"q")], head);
                page.leaf("span", &[], words);
            });
        };
        for refusal in &prediction.unchanged {
            line(&refusal.set, &refusal.why);
        }
        prediction
            .missing
            .iter()
            .for_each(|missing| line("cannot be known", missing));
        prediction.notes.iter().for_each(|note| line("note", note));
        if !prediction.next_ceiling.is_empty() {
            line("next limit", &prediction.next_ceiling);
        }
    });
}

/// The settings as an application's configuration has them.
struct Form {
    id: &'static str,
    title: &'static str,
    text: String,
}

/// - Returns: nothing if none of them is a setting of a client.
fn forms(role: Role, sets: &[String]) -> Vec<Form> {
    let written = sets.iter().filter_map(|set| as_kafka_writes(role, set));
    let written: Vec<(&str, String)> = written.collect();
    if written.is_empty() {
        return Vec::new();
    }
    let properties: Vec<String> = written
        .iter()
        .map(|(name, value)| format!("{name}={value}"))
        .collect();
    // Spring's brackets keep the dots of a name in one key.
    let spring = written
        .iter()
        .map(|(name, value)| format!("\n        \"[{name}]\": \"{value}\""));
    let client = match role {
        Role::Producer => "producer",
        Role::Consumer => "consumer",
    };
    let librdkafka = properties.iter().map(|set| in_librdkafkas_words(set));
    let form = |id, title, text| Form { id, title, text };
    vec![
        form("properties", "properties", properties.join("\n")),
        form(
            "spring",
            "Spring Boot",
            format!(
                "spring:\n  kafka:\n    {client}:\n      properties:{}",
                spring.collect::<String>()
            ),
        ),
        form(
            "librdkafka",
            "librdkafka",
            librdkafka.collect::<Vec<String>>().join("\n"),
        ),
    ]
}

fn draw_forms(forms: &[Form], page: &mut Markup) {
    const UNFOLDED: [(&str, &dyn std::fmt::Display); 1] = [("open", &"")];
    for (index, form) in forms.iter().enumerate() {
        let state = if index == 0 { &UNFOLDED[..] } else { &[] };
        page.nest("details", state, |page| {
            page.leaf("summary", &[], form.title);
            page.leaf("pre", &[("id", &form.id), ("tabindex", &"0")], &form.text);
            let button: [(&'static str, &dyn std::fmt::Display); 3] =
                [("type", &"button"), ("data-copy", &form.id), ("hidden", &"")];
            page.leaf("button", &button, format_args!("Copy for {}", form.title));
        });
    }
}

fn draw_link(id: &str, sets: &[String], page: &mut Markup) {
    let query: Vec<String> = sets.iter().map(|set| format!("set={}", encoded(set))).collect();
    let link = format!("{}?{}", address("clients", id), query.join("&"));
    page.nest("p", &[("class", &"q s")], |page| {
        page.text("Link to this question: ");
        page.inline(
            "a",
            &[("class", &"mono"), ("href", &link)],
            format_args!("?{}", query.join("&")),
        );
    });
}

/// The unit where the figure's name does not have it already.
fn unit<'a>(figure: &str, unit: &'a str) -> &'a str {
    let is_named = figure.ends_with("_ms") || figure.ends_with("per_second");
    if is_named { "" } else { unit }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_question_is_read_from_both_forms_of_the_address() {
        let query = Query::read("set=linger.ms%3D5&batch.size=32768&acks=&unknown=1");
        let question = Question::read(None, &query);
        assert_eq!(question.sets, ["linger.ms=5", "batch.size=32768"]);
        assert_eq!((question.value("linger.ms"), question.value("acks")), ("5", ""));
        assert!(question.prediction.is_none());
    }

    /// `linger.ms=20ms` was copied as it was typed, and no client reads that.
    #[test]
    fn settings_are_copied_as_each_kind_of_application_reads_them() {
        let sets = ["linger.ms=20ms", "buffer.memory=32MiB", "threads=4", "acks=all"].map(String::from);
        let texts: Vec<String> = forms(Role::Producer, &sets)
            .into_iter()
            .map(|form| form.text)
            .collect();
        assert_eq!(
            texts,
            [
                "linger.ms=20\nbuffer.memory=33554432\nacks=all",
                "spring:\n  kafka:\n    producer:\n      properties:\n        \"[linger.ms]\": \"20\"\n        \"[buffer.memory]\": \"33554432\"\n        \"[acks]\": \"all\"",
                "linger.ms=20\nqueue.buffering.max.kbytes=32768\nacks=all",
            ]
        );
        assert!(forms(Role::Consumer, &[String::from("consumers=3")]).is_empty());
    }

    #[test]
    fn every_field_is_a_setting_that_the_calculator_knows() {
        for (role, names) in [(Role::Producer, OF_PRODUCER), (Role::Consumer, OF_CONSUMER)] {
            for name in names {
                assert!(
                    KNOWN.iter().any(|known| known.name == name && known.role == role),
                    "{name}"
                );
            }
        }
    }

    #[test]
    fn an_instance_is_found_before_a_client_of_the_same_name() {
        let snapshot = |client: &str, instance: Option<&str>| {
            let mut snapshot = Snapshot::default();
            snapshot.client.client_id = client.into();
            snapshot.client.instance_id = instance.map(Into::into);
            snapshot
        };
        let all = [snapshot("x", None), snapshot("orders", Some("x"))];
        assert_eq!(find(&all, "x").unwrap().client.client_id, "orders");
        assert!(find(&all, "y").is_none());
    }
}
