//! One pushed payload over HTTP: headers, encoding, body.

use axum::http::{HeaderMap, StatusCode};
use ottla_lab::doctor::encoding;
use ottla_lab::doctor::history::{Collector, PushedFrom};
use ottla_lab::doctor::otlp::PAYLOAD_BYTES_MAX;

/// Why a push was refused: a status and a line for the sender's log.
pub type Refusal = (StatusCode, String);

/// Takes a push from the plug-in of an Apache Kafka broker: one client's payload, with the client's
/// identity in headers.
pub fn from_plugin(
    collector: &Collector,
    headers: &HeaderMap,
    body: &[u8],
    at_ms: i64,
) -> Result<(), Refusal> {
    let texts = Texts::of(headers)?;
    let Some(client_id) = texts.client_id.as_deref() else {
        return Err(bad_request("the header Kafka-Client-Id is missing"));
    };
    let Some(instance_id) = texts.instance_id.as_deref().filter(|id| !id.is_empty()) else {
        return Err(bad_request("the header Kafka-Client-Instance-Id is missing"));
    };
    let from = PushedFrom {
        client_id,
        instance_id,
        ..texts.pushed_from()
    };
    keep(collector, from, headers, body, at_ms)
}

/// Takes a push from an OTLP exporter: the payload's resource attributes, or the same headers,
/// identify the client.
pub fn from_exporter(
    collector: &Collector,
    headers: &HeaderMap,
    body: &[u8],
    at_ms: i64,
) -> Result<(), Refusal> {
    let kind = text(headers, "content-type")?.unwrap_or_default();
    let kind = kind
        .split(';')
        .next()
        .unwrap_or_default()
        .trim()
        .to_ascii_lowercase();
    if kind != "application/x-protobuf" {
        let reason =
            format!("Content-Type is {kind:?}: only application/x-protobuf is accepted, not OTLP in JSON");
        return Err((StatusCode::UNSUPPORTED_MEDIA_TYPE, reason));
    }
    let texts = Texts::of(headers)?;
    keep(collector, texts.pushed_from(), headers, body, at_ms)
}

fn keep(
    collector: &Collector,
    from: PushedFrom<'_>,
    headers: &HeaderMap,
    body: &[u8],
    at_ms: i64,
) -> Result<(), Refusal> {
    let named = text(headers, "content-encoding")?;
    let encoding = named.as_deref().unwrap_or(encoding::of_payload(body));
    let payload = encoding::decode(encoding, body, PAYLOAD_BYTES_MAX).map_err(bad_request)?;
    collector.push(from, &payload, at_ms).map_err(bad_request)
}

fn bad_request(reason: impl std::fmt::Display) -> Refusal {
    (StatusCode::BAD_REQUEST, reason.to_string())
}

/// The plug-in's headers, decoded.
#[derive(Debug, Default)]
struct Texts {
    client_id: Option<String>,
    instance_id: Option<String>,
    principal: Option<String>,
    address: Option<String>,
    software_name: Option<String>,
    software_version: Option<String>,
    node_id: Option<i32>,
    push_interval_ms: Option<f64>,
    is_terminating: bool,
}

impl Texts {
    /// Decodes the headers.
    ///
    /// - Errors: names the header that cannot be decoded.
    fn of(headers: &HeaderMap) -> Result<Texts, Refusal> {
        Ok(Texts {
            client_id: text(headers, "kafka-client-id")?,
            instance_id: text(headers, "kafka-client-instance-id")?,
            principal: text(headers, "kafka-principal")?,
            address: text(headers, "kafka-client-address")?,
            software_name: text(headers, "kafka-software-name")?,
            software_version: text(headers, "kafka-software-version")?,
            node_id: parsed(headers, "kafka-node-id")?,
            push_interval_ms: parsed(headers, "kafka-push-interval-ms")?.filter(|ms: &f64| *ms > 0.0),
            is_terminating: parsed(headers, "kafka-terminating")?.unwrap_or(false),
        })
    }

    fn pushed_from(&self) -> PushedFrom<'_> {
        PushedFrom {
            client_id: self.client_id.as_deref().unwrap_or_default(),
            instance_id: self.instance_id.as_deref().unwrap_or_default(),
            principal: self.principal.as_deref(),
            address: self.address.as_deref(),
            software_name: self.software_name.as_deref(),
            software_version: self.software_version.as_deref(),
            node_id: self.node_id,
            push_interval_ms: self.push_interval_ms,
            is_terminating: self.is_terminating,
        }
    }
}

fn parsed<T: std::str::FromStr>(headers: &HeaderMap, name: &str) -> Result<Option<T>, Refusal> {
    match text(headers, name)? {
        None => Ok(None),
        Some(text) => match text.parse() {
            Ok(value) => Ok(Some(value)),
            Err(_) => Err(bad_request(format_args!("the header {name} holds {text:?}"))),
        },
    }
}

fn text(headers: &HeaderMap, name: &str) -> Result<Option<String>, Refusal> {
    let Some(value) = headers.get(name) else {
        return Ok(None);
    };
    match decoded(value.as_bytes()) {
        Some(text) => Ok(Some(text)),
        None => Err(bad_request(format_args!(
            "the header {name} is not percent-encoded UTF-8"
        ))),
    }
}

/// Decodes percent-encoding; `None` if it is malformed or the result is not UTF-8.
fn decoded(text: &[u8]) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.iter();
    while let Some(byte) = rest.next() {
        if *byte != b'%' {
            bytes.push(*byte);
            continue;
        }
        let mut digit = || char::from(*rest.next()?).to_digit(16);
        let code = digit()? * 16 + digit()?;
        bytes.push(u8::try_from(code).ok()?);
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::HeaderValue;

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        let pair = |(name, value): &(&'static str, &str)| {
            (
                axum::http::HeaderName::from_static(name),
                HeaderValue::from_str(value).unwrap(),
            )
        };
        pairs.iter().map(pair).collect()
    }

    fn refused(outcome: Result<(), Refusal>, status: StatusCode, part: &str) {
        let (found, reason) = outcome.unwrap_err();
        assert!(found == status && reason.contains(part), "{found} {reason}");
    }

    const WHO: [(&str, &str); 2] = [
        ("kafka-client-id", "%C3%B6rders%20x"),
        ("kafka-client-instance-id", "abc"),
    ];

    #[test]
    fn a_client_is_known_by_its_headers() {
        let collector = Collector::default();
        let mut all = WHO.to_vec();
        all.extend([
            ("kafka-principal", "User:alice"),
            ("kafka-software-name", "apache-kafka-java"),
            ("kafka-software-version", "4.3.0"),
            ("kafka-push-interval-ms", "5000"),
            ("kafka-node-id", "1"),
        ]);
        from_plugin(&collector, &headers(&all), b"", 1_000).unwrap();
        let snapshots = collector.snapshots(1_001);
        let [snapshot] = snapshots.as_slice() else {
            panic!("{snapshots:?}")
        };
        assert_eq!(snapshot.client.client_id, "örders x");
        assert_eq!(snapshot.client.instance_id.as_deref(), Some("abc"));
        assert_eq!(snapshot.client.principal.as_deref(), Some("User:alice"));
        assert_eq!(snapshot.telemetry.pushes, Some(1));
        assert_eq!(snapshot.telemetry.push_interval_ms, Some(5_000.0));
    }

    #[test]
    fn refusals_name_what_is_wrong() {
        let collector = Collector::default();
        let push = |more: &[(&'static str, &str)], body: &[u8]| {
            let mut all = WHO.to_vec();
            all.extend(more);
            from_plugin(&collector, &headers(&all), body, 0)
        };
        refused(push(&[], &[0xff]), StatusCode::BAD_REQUEST, "no OTLP");
        refused(
            push(&[("content-encoding", "br")], b""),
            StatusCode::BAD_REQUEST,
            "\"br\"",
        );
        refused(
            push(&[("content-encoding", "gzip")], b"plain"),
            StatusCode::BAD_REQUEST,
            "gzip",
        );
        refused(
            push(&[("kafka-node-id", "one")], b""),
            StatusCode::BAD_REQUEST,
            "kafka-node-id holds \"one\"",
        );
        refused(
            push(&[("kafka-principal", "%zz")], b""),
            StatusCode::BAD_REQUEST,
            "kafka-principal is not",
        );
        let nobody = from_plugin(&collector, &headers(&WHO[..1]), b"", 0);
        refused(
            nobody,
            StatusCode::BAD_REQUEST,
            "Kafka-Client-Instance-Id is missing",
        );
        assert_eq!(collector.instance_count(), 0);
    }

    #[test]
    fn a_decompression_bomb_is_refused_before_it_is_decompressed() {
        let bomb = gzip_of_zeros(PAYLOAD_BYTES_MAX + 1);
        assert!(bomb.len() < 100_000);
        let mut all = WHO.to_vec();
        all.push(("content-encoding", "gzip"));
        let outcome = from_plugin(&Collector::default(), &headers(&all), &bomb, 0);
        refused(outcome, StatusCode::BAD_REQUEST, "limit of");
    }

    /// Returns a gzip stream of zeros, made by the gzip program.
    fn gzip_of_zeros(count: usize) -> Vec<u8> {
        let mut command = std::process::Command::new("gzip");
        let mut child = command
            .arg("-c")
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let mut stdin = child.stdin.take().unwrap();
        let writer = std::thread::spawn(move || std::io::Write::write_all(&mut stdin, &vec![0; count]));
        let output = child.wait_with_output().unwrap();
        writer.join().unwrap().unwrap();
        output.stdout
    }

    #[test]
    fn only_protobuf_is_accepted_from_exporters() {
        let json = headers(&[("content-type", "application/json; charset=utf-8")]);
        let outcome = from_exporter(&Collector::default(), &json, b"{}", 0);
        refused(outcome, StatusCode::UNSUPPORTED_MEDIA_TYPE, "application/json");
    }

    #[test]
    fn percent_encoding_is_decoded() {
        assert_eq!(decoded(b"a%20b%25").as_deref(), Some("a b%"));
        for wrong in [&b"%"[..], b"%2", b"%g0", b"%ff"] {
            assert_eq!(decoded(wrong), None);
        }
    }
}
