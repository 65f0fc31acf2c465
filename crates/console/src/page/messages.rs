//! `/messages/T`: a look at records, with their batch's facts, and a key or a value as a file.
//! Bounded; nothing is filtered on the broker by code of a user.

use std::str::FromStr;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use ottla_lab::markup::Markup;
use ottla_lab::numbers::{bytes, count};
use serde_json::{Value, json};

use super::{Page, Query, View, draw_field, follow};
use crate::draw::block::{Block, block, head, nothing};
use crate::draw::text::{Piece, clock_ms, counted, date, encoded, link, name, plain, strong, text};
use crate::source::{Filter, JsonIs, Part, Peek, PeekFrom, Peeked, PeekedRecord, Source, Told, Untold};

/// Records of one page.
const RECORDS_MAX: usize = 50;

/// Bytes of a field that are shown.
const SHOWN_BYTES_MAX: usize = 4 * 1024;

/// Bytes of a field that is no text that are shown.
const HEXADECIMAL_BYTES_MAX: usize = 256;

/// Bytes of a field that are asked for: those of the JSON.
const FIELD_BYTES_MAX: usize = 64 * 1024;

/// The longest field that is sent as a file: as long as a batch may be.
const FILE_BYTES_MAX: usize = 16 << 20;

/// A complete key or value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    pub file_name: String,
    pub bytes: Vec<u8>,
}

/// Returns a field of the record at an offset: `part` is `key` or `value`.
///
/// - Errors: an HTTP status, and why.
pub fn field(source: &dyn Source, topic: &str, part: &str, query: &Query) -> Result<Field, (u16, String)> {
    let missing = |why: &str| (404, String::from(why));
    let asked = ask(topic, query).map_err(|wrong| (400, wrong))?;
    let PeekFrom::Offset(offset) = asked.from else {
        return Err((400, String::from("?partition=N&offset=N names the record")));
    };
    let asked = Peek {
        records_max: 1,
        filter: Filter::default(),
        field_bytes_max: FILE_BYTES_MAX,
        ..asked
    };
    let peeked = source.peek(&asked).map_err(|untold| missing(&untold.0))?;
    let record = peeked.records.into_iter().find(|record| record.offset == offset);
    let record = record.ok_or_else(|| missing("there is no record at this offset"))?;
    let bytes = match part {
        "key" => record.key,
        "value" => record.value,
        _ => return Err(missing("a record has a key and a value")),
    };
    let is_plain = |letter: &char| letter.is_ascii_alphanumeric() || "._-".contains(*letter);
    let plain: String = topic.chars().filter(is_plain).collect();
    Ok(Field {
        file_name: format!("{plain}-{}-{offset}.{part}", asked.partition),
        bytes: bytes.ok_or_else(|| missing("the record has none"))?,
    })
}

/// `None`: there is no topic of this name.
pub fn page(view: &View<'_>, topic: &str) -> Option<Page> {
    if let Ok(None) = view.source.topic(topic) {
        return None;
    }
    let asked = ask(topic, view.query);
    if let (Ok(ask), Some(_)) = (&asked, view.query.get("follow")) {
        return Some(follow::page(view, ask));
    }
    let peeked = match &asked {
        Ok(ask) => view.source.peek(ask),
        Err(wrong) => Err(Untold(wrong.clone())),
    };
    let ask = asked.unwrap_or_else(|_| first(topic));
    let lead = lead(&ask, &peeked);
    let document = view.document(|| {
        let known = peeked.as_ref().ok();
        json!({
            "summary": plain(&lead),
            "untold": peeked.as_ref().err(),
            "partition": ask.partition,
            "log_start": known.map(|peeked| peeked.log_start),
            "log_end": known.map(|peeked| peeked.log_end),
            "looked_at": known.map(|peeked| peeked.looked_at),
            "next_offset": known.map(|peeked| peeked.next_offset),
            "records": known.iter().flat_map(|peeked| &peeked.records).map(json_of).collect::<Vec<Value>>(),
        })
    });
    let mut more = vec![link(of_filter(&ask, "follow=1"), "Follow the end")];
    let since = view.since(Part::Records(&ask));
    if !since.is_empty() {
        more.push(text(". "));
        more.extend(since);
    }
    Some(Page {
        title: format!("Records of {}", name(topic)),
        place: "/topics",
        json: document,
        blocks: vec![
            head(
                &name(topic),
                &format!("records of partition {}", ask.partition),
                &lead,
                &more,
            ),
            records(&ask, &peeked, view.query),
        ],
    })
}

fn first(topic: &str) -> Peek {
    Peek {
        topic: topic.to_owned(),
        partition: 0,
        from: PeekFrom::End,
        filter: Filter::default(),
        records_max: RECORDS_MAX,
        field_bytes_max: FIELD_BYTES_MAX,
    }
}

/// - Errors: what a parameter wants, as a sentence.
fn ask(topic: &str, query: &Query) -> Result<Peek, String> {
    let mut ask = first(topic);
    if let Some(partition) = query.get("partition") {
        ask.partition = whole(partition).ok_or_else(|| wants("partition", "a number", partition))?;
    }
    if let Some(time) = query.get("time") {
        let form = "a time as 2026-11-27T14:30 (UTC), or milliseconds since 1970";
        ask.from = PeekFrom::Time(time_ms(time).ok_or_else(|| wants("time", form, time))?);
    }
    if let Some(offset) = query.get("offset") {
        ask.from = PeekFrom::Offset(whole(offset).ok_or_else(|| wants("offset", "a number", offset))?);
    }
    ask.filter = Filter {
        containing: query.get("containing").map(str::to_owned),
        key: query.get("key").map(str::to_owned),
        json: json_is(query)?,
    };
    Ok(ask)
}

/// - Errors: as of [`ask`].
fn json_is(query: &Query) -> Result<Option<JsonIs>, String> {
    let is = query.get("is").map(str::to_owned);
    match query.get("pointer") {
        None if is.is_some() => Err(String::from(
            "is wants a pointer beside it: the place in the JSON of the value, as /customer/id.",
        )),
        None => Ok(None),
        Some(pointer) if !pointer.starts_with('/') => {
            Err(wants("pointer", "a JSON pointer as /customer/id", pointer))
        }
        Some(pointer) => Ok(Some(JsonIs {
            pointer: pointer.to_owned(),
            is,
        })),
    }
}

/// What a filter wants, as the end of a sentence: ` with “x”`; empty if it wants everything.
pub fn wanted(filter: &Filter) -> String {
    let quoted = |text: &String| format!("“{}”", name(text));
    let of_json = |json: &JsonIs| {
        let place = name(&json.pointer);
        match &json.is {
            None => format!("something at {place}"),
            Some(is) => format!("{} at {place}", quoted(is)),
        }
    };
    let parts: Vec<String> = [
        filter.containing.as_ref().map(quoted),
        filter.key.as_ref().map(|key| format!("the key {}", quoted(key))),
        filter.json.as_ref().map(of_json),
    ]
    .into_iter()
    .flatten()
    .collect();
    match parts.is_empty() {
        true => String::new(),
        false => format!(" with {}", parts.join(" and ")),
    }
}

/// The address of the same partition and filter, with more parameters.
pub fn of_filter(ask: &Peek, more: &str) -> String {
    let filter = &ask.filter;
    let json = filter.json.as_ref();
    let parameters = [
        ("containing", filter.containing.as_ref()),
        ("key", filter.key.as_ref()),
        ("pointer", json.map(|json| &json.pointer)),
        ("is", json.and_then(|json| json.is.as_ref())),
    ];
    let mut address = format!("?partition={}", ask.partition);
    if !more.is_empty() {
        address.push_str(&format!("&{more}"));
    }
    for (parameter, value) in parameters {
        if let Some(value) = value {
            address.push_str(&format!("&{parameter}={}", encoded(value)));
        }
    }
    address
}

fn wants(parameter: &str, form: &str, found: &str) -> String {
    format!("{parameter} wants {form}, not {}.", name(found))
}

fn whole<N: FromStr>(text: &str) -> Option<N> {
    text.trim().parse().ok()
}

/// A time with an offset from UTC, one without (which is UTC), or milliseconds since 1970.
fn time_ms(text: &str) -> Option<i64> {
    let text = text.trim();
    let with_offset = || text.parse::<Timestamp>().ok();
    let civil = || text.parse::<DateTime>().ok()?.to_zoned(TimeZone::UTC).ok();
    whole(text)
        .or_else(|| with_offset().map(Timestamp::as_millisecond))
        .or_else(|| civil().map(|time| time.timestamp().as_millisecond()))
}

fn lead(ask: &Peek, peeked: &Told<Peeked>) -> Vec<Piece> {
    let peeked = match peeked {
        Err(untold) => return vec![text(untold.to_string())],
        Ok(peeked) => peeked,
    };
    let (start, end) = (peeked.log_start, peeked.log_end);
    let range = |from: i64, to: i64| format!("{} to {}", shown_offset(from), shown_offset(to));
    let is_filtered = ask.filter != Filter::default();
    match (is_filtered, peeked.records.first(), peeked.records.last()) {
        _ if end <= start => vec![text(format!("Partition {} holds no record.", ask.partition))],
        (true, _, _) => vec![
            strong(counted(peeked.records.len(), "record")),
            text(format!(
                "{} among {} before offset {}; the partition has {}.",
                wanted(&ask.filter),
                counted(peeked.looked_at, "record"),
                shown_offset(peeked.next_offset),
                range(start, end - 1),
            )),
        ],
        (false, Some(first), Some(last)) => vec![
            text("Offsets "),
            strong(range(first.offset, last.offset)),
            text(format!(" of {}.", range(start, end - 1))),
        ],
        _ => vec![text(match ask.from {
            PeekFrom::Time(_) => "Every record is older.",
            _ => "There is no record at this offset.",
        })],
    }
}

pub fn shown_offset(offset: i64) -> String {
    count(offset.max(0) as u64)
}

pub fn json_of(record: &PeekedRecord) -> Value {
    let mut object = json!({
        "offset": record.offset,
        "timestamp_ms": record.timestamp_ms,
        "key_bytes": record.key_bytes,
        "value_bytes": record.value_bytes,
        "codec": record.codec,
        "producer_id": record.producer_id,
        "headers": record.headers.iter().map(header_of).collect::<Vec<Value>>(),
    });
    put(&mut object, "key", record.key.as_deref());
    put(&mut object, "value", record.value.as_deref());
    object
}

fn header_of((key, value): &(String, Option<Vec<u8>>)) -> Value {
    let mut object = json!({"key": key});
    put(&mut object, "value", value.as_deref());
    object
}

/// Sets a field as text; beside one that is no text, its bytes in base64, because U+FFFD stands for
/// any of them. A cut may be inside the last character of a text.
fn put(object: &mut Value, field: &str, bytes: Option<&[u8]>) {
    object[field] = json!(bytes.map(String::from_utf8_lossy));
    if let Some(bytes) = bytes.filter(|bytes| readable(bytes).is_none()) {
        object[format!("{field}_base64")] = json!(BASE64_STANDARD.encode(bytes));
    }
}

fn records(ask: &Peek, peeked: &Told<Peeked>, query: &Query) -> Block {
    let note = "The last records, or those from an offset or a time on; with a filter, those of the next 10,000 records or 1 MiB that meet it: \
                a text in key, value or header, a key, or what is at a JSON pointer of the value. Long fields are cut at 4 KiB; bytes that are no text \
                are shown as hexadecimal numbers.";
    block("records", "Records", note, |page| {
        form(ask, &["offset", "time"], query, page);
        let peeked = match peeked {
            Err(untold) => return nothing(&untold.to_string(), page),
            Ok(peeked) => peeked,
        };
        if let Some(note) = &peeked.note {
            page.leaf("p", &[("class", &"q")], note);
        }
        match peeked.records.is_empty() {
            true => nothing("Nothing to show here.", page),
            false => page.nest("ol", &[("class", &"no")], |page| {
                peeked.records.iter().for_each(|found| record(ask, found, page))
            }),
        }
        if peeked.next_offset < peeked.log_end && peeked.looked_at > 0 {
            let to = later(ask, peeked.next_offset);
            page.nest("p", &[("class", &"s")], |page| {
                page.inline("a", &[("href", &to), ("rel", &"next")], "later records")
            });
        }
    })
}

/// Draws the form of a look: where, and which records.
///
/// - `places`: parameters that say from where.
pub fn form(ask: &Peek, places: &[&'static str], query: &Query, page: &mut Markup) {
    page.nest("form", &[("class", &"fil")], |page| {
        draw_field("partition", "numeric", &ask.partition.to_string(), page);
        for parameter in places.iter().chain(&["containing", "key", "pointer", "is"]) {
            let mode = if *parameter == "offset" { "numeric" } else { "text" };
            draw_field(parameter, mode, query.get(parameter).unwrap_or_default(), page);
        }
        if query.get("follow").is_some() {
            page.shape(
                "input",
                &[("type", &"hidden"), ("name", &"follow"), ("value", &"1")],
            );
        }
        page.leaf("button", &[], "Show");
    });
}

fn later(ask: &Peek, offset: i64) -> String {
    of_filter(ask, &format!("offset={offset}"))
}

fn record(ask: &Peek, record: &PeekedRecord, page: &mut Markup) {
    let file = |part: &str, page: &mut Markup| {
        let at = format!("partition={}&offset={}", ask.partition, record.offset);
        let to = format!("/messages/{}/{part}?{at}", encoded(&ask.topic));
        page.inline(
            "a",
            &[("href", &to), ("download", &"")],
            format_args!("the whole {part}"),
        );
    };
    let key = format!("o{}", record.offset);
    page.nest("li", &[("data-key", &key)], |page| {
        page.nest("span", &[], |page| {
            page.inline("b", &[], count(record.offset.max(0) as u64));
            page.literal("<br>");
            let time = format!("{} {}", date(record.timestamp_ms), clock_ms(record.timestamp_ms));
            page.inline("small", &[("class", &"n")], time);
            page.literal("<br>");
            let mut facts = vec![bytes(record.value_bytes as f64)];
            facts.extend(record.codec.clone().filter(|codec| codec != "none"));
            facts.extend(record.producer_id.map(|id| format!("producer {id}")));
            page.inline("small", &[], facts.join(" · "));
        });
        page.nest("div", &[], |page| {
            if let Some(key) = &record.key {
                page.nest("p", &[("class", &"s")], |page| {
                    page.inline("span", &[("class", &"q")], "key ");
                    page.inline("code", &[], shown(key, record.key_bytes));
                    if is_cut(key, record.key_bytes) {
                        page.text(" ");
                        file("key", page);
                    }
                });
            }
            match &record.value {
                None => page.leaf(
                    "p",
                    &[("class", &"q")],
                    "no value: with compaction it deletes the key",
                ),
                Some(value) => {
                    page.nest("pre", &[("tabindex", &"0")], |page| {
                        page.text(shown(value, record.value_bytes))
                    });
                    if is_cut(value, record.value_bytes) {
                        page.nest("p", &[("class", &"s")], |page| file("value", page));
                    }
                }
            }
            for (key, value) in &record.headers {
                page.nest("p", &[("class", &"s")], |page| {
                    page.inline("span", &[("class", &"q")], format_args!("header {} ", name(key)));
                    page.inline(
                        "code",
                        &[],
                        value
                            .as_ref()
                            .map_or_else(String::new, |value| shown(value, value.len())),
                    );
                });
            }
        });
    });
}

/// Whether [`shown`] leaves something out.
fn is_cut(field: &[u8], complete_bytes: usize) -> bool {
    let is_framed = field.first() == Some(&0);
    let is_text = !is_framed && readable(&field[..field.len().min(SHOWN_BYTES_MAX)]).is_some();
    complete_bytes
        > if is_text {
            SHOWN_BYTES_MAX
        } else {
            HEXADECIMAL_BYTES_MAX
        }
}

/// Text as it is, JSON indented, everything else as hexadecimal numbers.
pub fn shown(field: &[u8], complete_bytes: usize) -> String {
    let kept = &field[..field.len().min(SHOWN_BYTES_MAX)];
    let rest = complete_bytes.saturating_sub(kept.len());
    let more = if rest > 0 {
        format!(" … {} more", bytes(rest as f64))
    } else {
        String::new()
    };
    // Confluent's framing of records with a schema: a zero byte, and the schema's number.
    if let [0, a, b, c, d, ..] = kept {
        let schema = u32::from_be_bytes([*a, *b, *c, *d]);
        return format!("schema {schema}, {}{more}", hexadecimal(&kept[5..]));
    }
    if rest == 0 && matches!(kept.first(), Some(b'{' | b'[')) {
        let json: Result<Value, _> = serde_json::from_slice(kept);
        if let Ok(json) = json
            .as_ref()
            .map(|json| serde_json::to_string_pretty(json).unwrap_or_default())
        {
            return ottla_wire::text::printable_json(&json).into_owned();
        }
    }
    match readable(kept) {
        Some(text) => format!("{}{more}", ottla_wire::text::printable(text)),
        None => format!("{}{more}", hexadecimal(kept)),
    }
}

/// The field as text; a cut may be inside its last character.
fn readable(field: &[u8]) -> Option<&str> {
    match std::str::from_utf8(field) {
        Ok(text) => Some(text),
        Err(error) if error.error_len().is_none() => std::str::from_utf8(&field[..error.valid_up_to()]).ok(),
        Err(_) => None,
    }
}

fn hexadecimal(bytes: &[u8]) -> String {
    let mut text: Vec<String> = bytes
        .iter()
        .take(HEXADECIMAL_BYTES_MAX)
        .map(|byte| format!("{byte:02x}"))
        .collect();
    if bytes.len() > HEXADECIMAL_BYTES_MAX {
        text.push(String::from("…"));
    }
    text.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Binary values were U+FFFD, and nothing said so.
    #[test]
    fn a_field_that_is_no_text_has_its_bytes_in_base64_beside_it() {
        let json = json_of(&PeekedRecord {
            key: Some(b"plain".to_vec()),
            value: Some(vec![0xff, 0x00, b'a']),
            headers: vec![
                (String::from("h"), Some(vec![0xfe])),
                (String::from("none"), None),
            ],
            ..PeekedRecord::default()
        });
        assert_eq!((&json["key"], json.get("key_base64")), (&json!("plain"), None));
        assert_eq!(json["value_base64"], "/wBh");
        assert_eq!(json["headers"][0]["value_base64"], "/g==");
        assert_eq!(json["headers"][1], json!({"key": "none", "value": null}));
    }

    #[test]
    fn a_question_names_what_is_wrong_with_it() {
        let asked = |text: &str| {
            ask("orders", &Query::read(text)).map(|ask| (ask.partition, ask.from, ask.filter.containing))
        };
        assert_eq!(asked(""), Ok((0, PeekFrom::End, None)));
        assert_eq!(
            asked("partition=3&offset=+17"),
            Ok((3, PeekFrom::Offset(17), None))
        );
        assert_eq!(
            asked("containing=a%26b&offset="),
            Ok((0, PeekFrom::End, Some(String::from("a&b"))))
        );
        for (time, ms) in [
            ("2026-11-27", 1_795_737_600_000),
            ("2026-11-27T14:30", 1_795_789_800_000),
            ("2026-11-27T14:30:01.5Z", 1_795_789_801_500),
            ("2026-11-27T14:30-02:00", 1_795_797_000_000),
            ("1795789800000", 1_795_789_800_000),
        ] {
            assert_eq!(
                asked(&format!("time={time}")),
                Ok((0, PeekFrom::Time(ms), None)),
                "{time}"
            );
        }
        for (question, wrong) in [
            ("partition=x", "partition wants a number, not x."),
            ("offset=1e3", "offset wants a number, not 1e3."),
            ("time=noon", "time wants a time as"),
            (
                "pointer=customer",
                "pointer wants a JSON pointer as /customer/id, not customer.",
            ),
            ("is=7", "is wants a pointer beside it"),
        ] {
            let error = asked(question).unwrap_err();
            assert!(error.starts_with(wrong), "{error}");
        }
    }

    #[test]
    fn a_later_look_keeps_what_was_looked_for() {
        let ask = ask("orders", &Query::read("partition=2&containing=a%26b&time=0")).unwrap();
        assert_eq!(later(&ask, 70), "?partition=2&offset=70&containing=a%26b");
        let question = "key=k&pointer=/a~1b&is=1%262";
        let ask = super::ask("orders", &Query::read(question)).unwrap();
        assert_eq!(of_filter(&ask, ""), "?partition=0&key=k&pointer=%2Fa~1b&is=1%262");
        assert_eq!(wanted(&ask.filter), " with the key “k” and “1&2” at /a~1b");
    }

    #[test]
    fn fields_of_any_kind_are_shown_and_cut() {
        assert_eq!(shown(b"plain", 5), "plain");
        assert_eq!(shown(br#"{"a":1}"#, 7), "{\n  \"a\": 1\n}");
        assert_eq!(shown(&[0, 0, 0, 0, 7, 0xff], 6), "schema 7, ff");
        assert_eq!(shown(&[0xff, 0xfe], 2), "ff fe");
        let long = shown(&[b'x'; 100_000], 10_000_000);
        assert!(long.len() < 5_000 && long.ends_with("more"), "{}", long.len());
        for (field, complete_bytes, expected) in [
            (&b"plain"[..], 5, false),
            (&[b'x'; 4_096], 4_096, false),
            (&[b'x'; 4_096], 4_097, true),
            (&[0xff; 256], 256, false),
            (&[0xff; 257], 257, true),
            (&[0; 300], 300, true),
        ] {
            assert_eq!(is_cut(field, complete_bytes), expected, "{complete_bytes}");
        }
        assert!(!shown("a\u{202e}b\u{1b}[31m".as_bytes(), 9).contains(['\u{202e}', '\u{1b}']));
        assert_eq!(shown(&"å".as_bytes()[..1], 1), "");
    }
}
