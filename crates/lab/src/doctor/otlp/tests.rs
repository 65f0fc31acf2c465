//! The reader against the client's own encoder, and against hostile bytes.

use ottla_client::machine::metrics::otlp::{
    Any, AnyValue, Data, Gauge, KeyValue, MetricsData, Number, NumberDataPoint, OtlpMetric, Resource,
    ResourceMetrics, ScopeMetrics, Sum,
};
use proptest::prelude::*;
use prost::Message as _;

use super::*;

fn points(payload: &[u8]) -> Result<Vec<(String, Kind, f64)>, Malformed> {
    let mut found = Vec::new();
    visit(payload, |_, point| {
        found.push((point.name.to_owned(), point.kind, point.value));
    })?;
    Ok(found)
}

fn payload(metrics: Vec<OtlpMetric>) -> Vec<u8> {
    let data = MetricsData {
        resource_metrics: vec![ResourceMetrics {
            resource: Some(Resource {
                attributes: vec![KeyValue::new("group_id", "g"), KeyValue::new("member_id", "m-1")],
            }),
            scope_metrics: vec![ScopeMetrics { metrics }],
        }],
    };
    data.encode_to_vec()
}

fn point(value: Number, attributes: Vec<KeyValue>) -> NumberDataPoint {
    NumberDataPoint {
        start_time_unix_nano: 5,
        time_unix_nano: 9,
        value: Some(value),
        attributes,
    }
}

#[test]
fn gauges_and_sums_are_read_as_they_were_encoded() {
    let sum = |temporality| {
        Data::Sum(Sum {
            data_points: vec![point(
                Number::Double(2.5),
                vec![
                    KeyValue::new("node_id", "node-1"),
                    KeyValue::new("topic", "t"),
                    KeyValue::new("partition", "7"),
                ],
            )],
            aggregation_temporality: temporality,
            is_monotonic: true,
        })
    };
    let gauge = Data::Gauge(Gauge {
        data_points: vec![
            point(Number::Int(-3), vec![]),
            point(Number::Double(f64::NAN), vec![]),
        ],
    });
    let metric = |name: &str, data| OtlpMetric {
        name: name.to_owned(),
        data: Some(data),
    };
    let bytes = payload(vec![metric("a", sum(1)), metric("b", sum(2)), metric("c", gauge)]);
    let mut found = Vec::new();
    visit(&bytes, |source, point| {
        assert_eq!((source.group_id, source.member_id), ("g", "m-1"));
        assert_eq!((point.start_nanos, point.end_nanos), (5, 9));
        found.push((point.name, point.kind, point.value.to_string(), point.labels));
    })
    .unwrap();
    let labels = Labels {
        node: Some(NodeLabel::Text("node-1")),
        topic: Some("t"),
        partition: Some(7),
    };
    let none = Labels::default();
    assert_eq!(
        found,
        [
            ("a", Kind::Delta, "2.5".to_owned(), labels),
            ("b", Kind::Cumulative, "2.5".to_owned(), labels),
            ("c", Kind::Gauge, "-3".to_owned(), none),
            ("c", Kind::Gauge, "NaN".to_owned(), none),
        ]
    );
}

/// A field of bytes.
fn bytes_field(number: u8, bytes: &[u8]) -> Vec<u8> {
    let mut field = vec![number << 3 | 2];
    let mut length = bytes.len();
    while length >= 0x80 {
        field.push(length as u8 | 0x80);
        length >>= 7;
    }
    field.push(length as u8);
    field.extend_from_slice(bytes);
    field
}

#[test]
fn fields_may_be_in_any_order_and_unknown_ones_are_skipped() {
    let point = [&[0x21][..], &4.0f64.to_le_bytes(), &bytes_field(11, b"exemplar")].concat();
    let sum = [bytes_field(1, &point), vec![0x10, 1]].concat();
    let metric = [
        bytes_field(7, &sum),
        bytes_field(3, b"ms"),
        bytes_field(1, b"name"),
    ]
    .concat();
    let scope = [bytes_field(1, b"s#producer-1"), bytes_field(2, b"2.16.0")].concat();
    let scope_metrics = [bytes_field(2, &metric), bytes_field(1, &scope)].concat();
    let attribute = [
        bytes_field(2, &bytes_field(1, b"c-1")),
        bytes_field(1, b"client_id"),
    ]
    .concat();
    let resource = bytes_field(1, &attribute);
    let resource_metrics = [bytes_field(2, &scope_metrics), bytes_field(1, &resource)].concat();
    let payload = bytes_field(1, &resource_metrics);
    let mut found = 0;
    visit(&payload, |source, point| {
        found += 1;
        assert_eq!((source.client_id, source.scope_version), ("c-1", "2.16.0"));
        assert_eq!((point.name, point.kind, point.value), ("name", Kind::Delta, 4.0));
    })
    .unwrap();
    assert_eq!(found, 1);
}

#[test]
fn a_point_that_says_it_has_no_value_is_not_a_number() {
    let point = [&[0x21][..], &4.0f64.to_le_bytes(), &[0x40, 1]].concat();
    let metric = [bytes_field(1, b"name"), bytes_field(5, &bytes_field(1, &point))].concat();
    let payload = bytes_field(1, &bytes_field(2, &bytes_field(2, &metric)));
    let found = points(&payload).unwrap();
    assert!(found.len() == 1 && found[0].2.is_nan());
}

#[test]
fn bytes_that_are_not_metrics_data_are_refused_with_the_reason() {
    assert_eq!(
        points(b"{\"metrics\": []}"),
        Err(Malformed::WrongKind { field: 15 })
    );
    assert_eq!(points(&[0x0a, 200, 1, 0]), Err(Malformed::CutOff));
    assert_eq!(points(&[0xff; 12]), Err(Malformed::CutOff));
    assert_eq!(points(&[0x08, 1]), Err(Malformed::WrongKind { field: 1 }));
    let name = bytes_field(
        1,
        &bytes_field(2, &bytes_field(2, &bytes_field(1, &[0xc3, 0x28]))),
    );
    assert_eq!(points(&name), Err(Malformed::NotText));
    let long = vec![0; PAYLOAD_BYTES_MAX + 1];
    assert_eq!(
        points(&long),
        Err(Malformed::TooLong {
            bytes: PAYLOAD_BYTES_MAX + 1
        })
    );
}

#[test]
fn the_number_of_points_and_the_length_of_names_are_bounded() {
    let many = vec![point(Number::Double(1.0), vec![]); POINTS_MAX + 1];
    let gauge = |data_points| Some(Data::Gauge(Gauge { data_points }));
    let bytes = payload(vec![OtlpMetric {
        name: String::from("a"),
        data: gauge(many),
    }]);
    assert_eq!(points(&bytes), Err(Malformed::TooManyPoints));
    let long = "n".repeat(NAME_BYTES_MAX + 1);
    let topic = vec![KeyValue::new("topic", &long)];
    let bytes = payload(vec![
        OtlpMetric {
            name: long,
            data: gauge(vec![point(Number::Double(1.0), vec![])]),
        },
        OtlpMetric {
            name: String::from("a"),
            data: gauge(vec![point(Number::Double(1.0), topic)]),
        },
    ]);
    assert_eq!(points(&bytes), Ok(vec![]));
}

fn any_metric() -> impl Strategy<Value = OtlpMetric> {
    let attribute = ("[a-z_.]{0,9}", "[a-z0-9-]{0,9}").prop_map(|(key, text)| KeyValue {
        key,
        value: Some(AnyValue {
            value: Some(Any::Text(text)),
        }),
    });
    let number = prop_oneof![
        (-1e300..1e300f64).prop_map(Number::Double),
        any::<i64>().prop_map(Number::Int)
    ];
    let data_point = (
        any::<u64>(),
        any::<u64>(),
        number,
        prop::collection::vec(attribute, 0..3),
    )
        .prop_map(|(start, end, value, attributes)| NumberDataPoint {
            start_time_unix_nano: start,
            time_unix_nano: end,
            value: Some(value),
            attributes,
        });
    let points = prop::collection::vec(data_point, 0..4);
    ("[a-z.]{1,20}", points, 0..4i32).prop_map(|(name, data_points, temporality)| OtlpMetric {
        name,
        data: Some(match temporality {
            3 => Data::Gauge(Gauge { data_points }),
            _ => Data::Sum(Sum {
                data_points,
                aggregation_temporality: temporality,
                is_monotonic: true,
            }),
        }),
    })
}

proptest! {
    #[test]
    fn every_encoded_point_is_visited(metrics in prop::collection::vec(any_metric(), 0..8)) {
        let mut expected = Vec::new();
        for metric in &metrics {
            let (points, kind) = match metric.data.as_ref().unwrap() {
                Data::Gauge(gauge) => (&gauge.data_points, Kind::Gauge),
                Data::Sum(sum) => (&sum.data_points, match sum.aggregation_temporality {
                    1 => Kind::Delta,
                    2 => Kind::Cumulative,
                    _ => Kind::Gauge,
                }),
            };
            for point in points {
                let value = match point.value.unwrap() {
                    Number::Double(value) => value,
                    Number::Int(value) => value as f64,
                };
                expected.push((metric.name.clone(), kind, value));
            }
        }
        prop_assert_eq!(points(&payload(metrics)), Ok(expected));
    }

    #[test]
    fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let _ = points(&bytes);
    }

    #[test]
    fn no_damage_makes_it_panic(
        metrics in prop::collection::vec(any_metric(), 1..5),
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        cut in any::<prop::sample::Index>(),
    ) {
        let mut bytes = payload(metrics);
        for (place, byte) in damage {
            let place = place.index(bytes.len());
            bytes[place] = byte;
        }
        bytes.truncate(cut.index(bytes.len()) + 1);
        let _ = points(&bytes);
    }
}
