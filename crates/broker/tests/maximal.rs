//! Requests with the longest possible strings and the fullest arrays: every served API answers in
//! every version, and nothing panics.

#![allow(clippy::unwrap_used, reason = "a failed step of a test is a failed test")]

#[path = "maximal/sample.rs"]
mod sample;
#[path = "../../wire/tests/golden/samples.rs"]
#[allow(dead_code, reason = "only requests are made, and only responses read")]
mod samples;
mod support;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Once};

use ottla_broker::broker::{Additions, Broker};
use ottla_core::telemetry::receiver::{ClientTelemetryReceiver, Malformed, Pushed};
use ottla_log::disk::memory::MemoryDisk;
use ottla_wire::api_key::ApiKey;
use ottla_wire::primitives::put_string;
use support::large::create_topic;
use support::{Client, frame, frame_of};

use sample::{Entry, Fields, Kind, Long, Recipe, make};
use samples::MESSAGES;

pub const TOPIC: &str = "t";

/// Used in turn, so that each small enumeration gets each of its values in some request.
const NUMBERS: [i64; 8] = [-1, 0, 1, 2, 3, 4, 16, 32];

/// Two- and three-byte characters, cut only between characters; digits where a number is expected;
/// control characters.
const FILLINGS: [&str; 4] = ["é", "€", "7", "\x1b\n"];

const MANY: usize = 20_000;

static PANICS: AtomicUsize = AtomicUsize::new(0);

/// Accepts what clients push, so that their subscription requests are answered.
struct Receiver;

impl ClientTelemetryReceiver for Receiver {
    fn receive(&self, _: &Pushed, _: &[u8]) -> Result<(), Malformed> {
        Ok(())
    }
}

/// A broker that counts panics, including those that are caught.
struct Subject {
    broker: Broker,
}

impl Subject {
    fn start() -> Subject {
        static HOOK: Once = Once::new();
        HOOK.call_once(|| {
            let usual = std::panic::take_hook();
            std::panic::set_hook(Box::new(move |info| {
                let is_brokers = std::thread::current()
                    .name()
                    .is_some_and(|name| name.starts_with("ottla-"));
                PANICS.fetch_add(usize::from(is_brokers), Ordering::SeqCst);
                usual(info);
            }));
        });
        let properties = [
            ("num.network.threads", "1"),
            ("offsets.topic.num.partitions", "1"),
            ("group.initial.rebalance.delay.ms", "0"),
            ("group.min.session.timeout.ms", "1"),
        ];
        let additions = Additions {
            telemetry: Some(Arc::new(Receiver)),
            // On a real disk, 160 brokers would wait for a thousand syncs.
            disk: Some(MemoryDisk::new(1).shared()),
            ..Additions::default()
        };
        let broker = Broker::start_temporary_with(&properties, additions).unwrap();
        create_topic(&broker, TOPIC, 1);
        // From now on groups have a coordinator.
        let mut client = Client::connect(broker.address());
        client.send(&frame(ApiKey::FindCoordinator, 0, 7, |bytes| {
            put_string(bytes, "x", false)
        }));
        client.receive(ApiKey::FindCoordinator, 0, 7);
        Subject { broker }
    }

    fn check(&self, client: &mut Client, asked: &Asked<'_>, recipe: Recipe, kind: Kind) {
        let Asked { api_key, version, .. } = *asked;
        let (body, _) = make(asked.request, version, kind, recipe.clone());
        let client_id = match recipe.long {
            Long::All | Long::ClientId => sample::longest(recipe.filling),
            _ => "test",
        };
        let before = PANICS.load(Ordering::SeqCst);
        client.send(&frame_of(client_id, api_key, version, 7, |bytes| {
            bytes.extend_from_slice(&body)
        }));
        let (context, client) = (format!("{api_key} version {version} {kind:?}"), client);
        let answer = client
            .try_receive(api_key, version, 7)
            .unwrap_or_else(|error| panic!("{context} was not answered: {error}; {recipe:?}"));
        let decoded = (asked.response.decode)(&answer, version);
        assert_eq!(decoded, Ok(()), "{context}: {recipe:?}");
        assert_eq!(PANICS.load(Ordering::SeqCst), before, "{context}: {recipe:?}");
    }
}

/// One version of an API, and its messages.
struct Asked<'m> {
    api_key: ApiKey,
    version: i16,
    request: &'m Entry,
    response: &'m Entry,
}

impl Asked<'_> {
    fn fields(&self) -> Fields {
        make(self.request, self.version, Kind::Populated, Recipe::default()).1
    }
}

fn each_version(mut check: impl FnMut(&Asked<'_>)) {
    let entry = |api_key: &ApiKey, end: &str| {
        let name = format!("{}{end}", api_key.name());
        MESSAGES.iter().find(|entry| entry.name == name).unwrap()
    };
    let mut count = 0;
    for api_key in ApiKey::ALL {
        let Some(served) = api_key.served_versions() else {
            continue;
        };
        for version in served.min..=served.max {
            count += 1;
            check(&Asked {
                api_key: *api_key,
                version,
                request: entry(api_key, "Request"),
                response: entry(api_key, "Response"),
            });
        }
    }
    assert!(count > 150, "only {count} versions of APIs are served");
}

#[test]
fn a_string_of_the_maximum_length_in_any_field_of_any_request_is_answered() {
    let mut sent = 0;
    each_version(|asked| {
        let subject = Subject::start();
        let mut client = Client::connect(subject.broker.address());
        let mut longs: Vec<Long> = asked.fields().strings.into_iter().map(Long::One).collect();
        longs.extend([Long::None, Long::All, Long::ClientId]);
        for (index, number) in NUMBERS.into_iter().enumerate() {
            for long in &longs {
                let recipe = Recipe {
                    long: long.clone(),
                    filling: FILLINGS[index % FILLINGS.len()],
                    number,
                    many: None,
                };
                for kind in [Kind::Populated, Kind::Nulls] {
                    subject.check(&mut client, asked, recipe.clone(), kind);
                    sent += 1;
                }
            }
        }
    });
    println!("{sent} requests");
}

#[test]
fn an_array_of_many_elements_in_any_field_of_any_request_is_answered() {
    each_version(|asked| {
        let subject = Subject::start();
        let mut client = Client::connect(subject.broker.address());
        for array in asked.fields().arrays {
            for number in [0, 2] {
                let recipe = Recipe {
                    number,
                    many: Some((array.clone(), MANY)),
                    ..Recipe::default()
                };
                subject.check(&mut client, asked, recipe, Kind::Populated);
            }
        }
    });
}

#[test]
fn long_strings_in_many_elements_are_answered() {
    each_version(|asked| {
        let subject = Subject::start();
        let mut client = Client::connect(subject.broker.address());
        for array in asked.fields().arrays {
            let recipe = Recipe {
                long: Long::All,
                filling: "é",
                number: 2,
                many: Some((array.clone(), 100)),
            };
            subject.check(&mut client, asked, recipe, Kind::Populated);
        }
    });
}
