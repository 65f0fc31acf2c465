//! OTLP metrics (v1) as clients push them: data points of gauges and sums, read in place in the
//! payload.
//!
//! Nothing is copied or allocated, so a payload costs its bytes and no more, whatever it declares.
//! prost's messages (which the client encodes with, and which the tests compare this reader with)
//! take seven allocations for each of a Java client's 108 metrics, and 25 times the bytes of a
//! payload of empty messages. The nesting is that of the format, six levels; there is no recursion.
//! Field numbers are those of opentelemetry-proto's `metrics.proto`, `resource.proto` and
//! `common.proto`.

use std::fmt;

/// The longest payload that is read, decompressed. A Java consumer of 1000 partitions pushes about
/// 1.5 MB.
pub const PAYLOAD_BYTES_MAX: usize = 8 << 20;

/// The most data points in one payload.
pub const POINTS_MAX: usize = 100_000;

/// The longest name of a metric or topic; Kafka's own limit for topics is 249. Longer names are
/// skipped.
pub const NAME_BYTES_MAX: usize = 255;

/// Why a payload cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Malformed {
    TooLong {
        bytes: usize,
    },
    TooManyPoints,
    /// A field ends beyond the payload, or beyond the message that contains it.
    CutOff,
    /// A field of a wire type that protobuf does not have, or of the wrong wire type for its
    /// number.
    WrongKind {
        field: u64,
    },
    /// A name that is not UTF-8.
    NotText,
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Malformed::TooLong { bytes } => {
                write!(
                    f,
                    "the payload has {bytes} bytes; at most {PAYLOAD_BYTES_MAX} are read"
                )
            }
            Malformed::TooManyPoints => write!(f, "the payload has more than {POINTS_MAX} data points"),
            Malformed::CutOff => {
                f.write_str("the payload is no OTLP MetricsData: it ends in the middle of a field")
            }
            Malformed::WrongKind { field } => {
                write!(
                    f,
                    "the payload is no OTLP MetricsData: field {field} is of the wrong kind"
                )
            }
            Malformed::NotText => f.write_str("the payload is no OTLP MetricsData: a name is not UTF-8"),
        }
    }
}

impl std::error::Error for Malformed {}

/// The sender, as far as the payload names it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Source<'a> {
    /// `client_id`, which clients omit and other exporters send; if missing, their `service.name`.
    pub client_id: &'a str,
    /// `client_instance_id`, or `service.instance.id` of other exporters.
    pub instance_id: &'a str,
    pub group_id: &'a str,
    /// `group_member_id`; librdkafka calls it `member_id`.
    pub member_id: &'a str,
    pub scope_name: &'a str,
    pub scope_version: &'a str,
}

/// How a point's number is to be interpreted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Gauge,
    /// A sum since the point's start.
    Delta,
    /// A sum since the client's start.
    Cumulative,
}

/// How the library writes a broker's id, which tells the libraries apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeLabel<'a> {
    /// Java: `node_id="node-1"`.
    Text(&'a str),
    /// franz-go: `node_id=1`.
    Number(i64),
    /// librdkafka: `node.id=1`.
    Dotted(i64),
}

/// The attributes of a point that the doctor reads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Labels<'a> {
    pub node: Option<NodeLabel<'a>>,
    pub topic: Option<&'a str>,
    pub partition: Option<i32>,
}

/// One number.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DataPoint<'a> {
    pub name: &'a str,
    pub labels: Labels<'a>,
    pub kind: Kind,
    /// Nanoseconds since 1970 by the client's clock; 0: unknown.
    pub start_nanos: u64,
    pub end_nanos: u64,
    /// NaN if the point says that it has no value.
    pub value: f64,
}

/// Calls `visit` for every data point of every gauge and sum.
///
/// - Errors: the bytes are not a `MetricsData`; points before the malformed place have been visited
///   by then.
pub fn visit<'a>(
    payload: &'a [u8],
    mut visit: impl FnMut(&Source<'a>, &DataPoint<'a>),
) -> Result<(), Malformed> {
    if payload.len() > PAYLOAD_BYTES_MAX {
        return Err(Malformed::TooLong { bytes: payload.len() });
    }
    let mut visits = Visits {
        visit: &mut visit,
        points: 0,
    };
    for resource_metrics in messages(payload, 1) {
        visits.resource(resource_metrics?)?;
    }
    Ok(())
}

struct Visits<'v, 'a> {
    visit: &'v mut dyn FnMut(&Source<'a>, &DataPoint<'a>),
    points: usize,
}

impl<'a> Visits<'_, 'a> {
    fn resource(&mut self, message: &'a [u8]) -> Result<(), Malformed> {
        let mut source = Source::default();
        let mut service_name = "";
        // The fields of a message may be in any order.
        for resource in messages(message, 1) {
            for attribute in messages(resource?, 1) {
                let (key, value) = key_value(attribute?)?;
                let Any::Text(text) = value else { continue };
                match key {
                    "client_id" | "client.id" => source.client_id = text,
                    "service.name" => service_name = text,
                    "client_instance_id" | "service.instance.id" => source.instance_id = text,
                    "group_id" => source.group_id = text,
                    "group_member_id" | "member_id" => source.member_id = text,
                    _ => {}
                }
            }
        }
        if source.client_id.is_empty() {
            source.client_id = service_name;
        }
        for scope_metrics in messages(message, 2) {
            self.scope(source, scope_metrics?)?;
        }
        Ok(())
    }

    fn scope(&mut self, mut source: Source<'a>, message: &'a [u8]) -> Result<(), Malformed> {
        for scope in messages(message, 1) {
            let scope = scope?;
            source.scope_name = text(scope, 1)?.unwrap_or(source.scope_name);
            source.scope_version = text(scope, 2)?.unwrap_or(source.scope_version);
        }
        for metric in messages(message, 2) {
            self.metric(&source, metric?)?;
        }
        Ok(())
    }

    fn metric(&mut self, source: &Source<'a>, message: &'a [u8]) -> Result<(), Malformed> {
        let name = text(message, 1)?.unwrap_or_default();
        if name.is_empty() || name.len() > NAME_BYTES_MAX {
            return Ok(());
        }
        for gauge in messages(message, 5) {
            self.points(source, name, Kind::Gauge, gauge?)?;
        }
        for sum in messages(message, 7) {
            let sum = sum?;
            let mut kind = Kind::Gauge;
            for field in Fields(sum) {
                kind = match field? {
                    (2, Field::Varint(1)) => Kind::Delta,
                    (2, Field::Varint(2)) => Kind::Cumulative,
                    _ => kind,
                };
            }
            self.points(source, name, kind, sum)?;
        }
        Ok(())
    }

    fn points(
        &mut self,
        source: &Source<'a>,
        name: &'a str,
        kind: Kind,
        message: &'a [u8],
    ) -> Result<(), Malformed> {
        for point in messages(message, 1) {
            self.points += 1;
            if self.points > POINTS_MAX {
                return Err(Malformed::TooManyPoints);
            }
            if let Some(point) = data_point(name, kind, point?)? {
                (self.visit)(source, &point);
            }
        }
        Ok(())
    }
}

/// Returns `None` if it holds no number, or an impossible topic name.
fn data_point<'a>(name: &'a str, kind: Kind, message: &'a [u8]) -> Result<Option<DataPoint<'a>>, Malformed> {
    const NO_RECORDED_VALUE: u64 = 1;
    let mut point = DataPoint {
        name,
        labels: Labels::default(),
        kind,
        start_nanos: 0,
        end_nanos: 0,
        value: f64::NAN,
    };
    let (mut has_value, mut has_no_sample) = (false, false);
    for field in Fields(message) {
        match field? {
            (2, Field::Fixed64(nanos)) => point.start_nanos = nanos,
            (3, Field::Fixed64(nanos)) => point.end_nanos = nanos,
            (4, Field::Fixed64(bits)) => (point.value, has_value) = (f64::from_bits(bits), true),
            (6, Field::Fixed64(bits)) => (point.value, has_value) = (bits as i64 as f64, true),
            (7, Field::Bytes(attribute)) => label(&mut point.labels, key_value(attribute)?),
            (8, Field::Varint(flags)) => has_no_sample = flags & NO_RECORDED_VALUE != 0,
            (field @ (2 | 3 | 4 | 6 | 7), _) => return Err(Malformed::WrongKind { field }),
            _ => {}
        }
    }
    if has_no_sample {
        point.value = f64::NAN;
    }
    let is_plausible = point
        .labels
        .topic
        .is_none_or(|topic| topic.len() <= NAME_BYTES_MAX);
    Ok(((has_value || has_no_sample) && is_plausible).then_some(point))
}

fn label<'a>(labels: &mut Labels<'a>, (key, value): (&'a str, Any<'a>)) {
    match (key, value) {
        ("node_id" | "node-id", Any::Text(text)) => labels.node = Some(NodeLabel::Text(text)),
        ("node_id" | "node-id", Any::Number(id)) => labels.node = Some(NodeLabel::Number(id)),
        ("node.id", Any::Number(id)) => labels.node = Some(NodeLabel::Dotted(id)),
        ("topic", Any::Text(text)) => labels.topic = Some(text),
        ("partition", Any::Text(text)) => labels.partition = text.parse().ok(),
        ("partition", Any::Number(number)) => labels.partition = i32::try_from(number).ok(),
        _ => {}
    }
}

enum Any<'a> {
    Text(&'a str),
    Number(i64),
    Other,
}

fn key_value(message: &[u8]) -> Result<(&str, Any<'_>), Malformed> {
    let key = text(message, 1)?.unwrap_or_default();
    let mut any = Any::Other;
    for value in messages(message, 2) {
        for field in Fields(value?) {
            any = match field? {
                (1, Field::Bytes(bytes)) => Any::Text(utf8(bytes)?),
                (3, Field::Varint(number)) => Any::Number(number as i64),
                _ => any,
            };
        }
    }
    Ok((key, any))
}

fn text(message: &[u8], number: u64) -> Result<Option<&str>, Malformed> {
    let mut found = None;
    for bytes in messages(message, number) {
        found = Some(utf8(bytes?)?);
    }
    Ok(found)
}

fn utf8(bytes: &[u8]) -> Result<&str, Malformed> {
    std::str::from_utf8(bytes).map_err(|_| Malformed::NotText)
}

/// The fields with that number, which must be messages, texts or bytes.
fn messages(message: &[u8], number: u64) -> impl Iterator<Item = Result<&[u8], Malformed>> {
    Fields(message).filter_map(move |field| match field {
        Ok((found, Field::Bytes(bytes))) if found == number => Some(Ok(bytes)),
        Ok((field, _)) if field == number => Some(Err(Malformed::WrongKind { field })),
        Ok(_) => None,
        Err(error) => Some(Err(error)),
    })
}

enum Field<'a> {
    Varint(u64),
    Fixed64(u64),
    Fixed32,
    Bytes(&'a [u8]),
}

/// The rest of a message. Iteration ends after the first error.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn varint(&mut self) -> Result<u64, Malformed> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let (byte, rest) = self.0.split_first().ok_or(Malformed::CutOff)?;
            self.0 = rest;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(Malformed::CutOff)
    }

    fn take(&mut self, count: usize) -> Result<&'a [u8], Malformed> {
        let (taken, rest) = self.0.split_at_checked(count).ok_or(Malformed::CutOff)?;
        self.0 = rest;
        Ok(taken)
    }

    fn field(&mut self) -> Result<(u64, Field<'a>), Malformed> {
        let tag = self.varint()?;
        let number = tag >> 3;
        let field = match tag & 7 {
            0 => Field::Varint(self.varint()?),
            1 => {
                let bytes = self.take(8)?.try_into().expect("eight were taken");
                Field::Fixed64(u64::from_le_bytes(bytes))
            }
            2 => {
                let count = usize::try_from(self.varint()?).map_err(|_| Malformed::CutOff)?;
                Field::Bytes(self.take(count)?)
            }
            5 => {
                self.take(4)?;
                Field::Fixed32
            }
            _ => return Err(Malformed::WrongKind { field: number }),
        };
        Ok((number, field))
    }
}

impl<'a> Iterator for Fields<'a> {
    type Item = Result<(u64, Field<'a>), Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let field = self.field();
        if field.is_err() {
            self.0 = &[];
        }
        Some(field)
    }
}

#[cfg(test)]
mod tests;
