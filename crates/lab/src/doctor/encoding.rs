//! HTTP content encodings, decoded within a limit.

use std::borrow::Cow;

use ottla_wire::records::compression::{Codec, decompress};

/// Returns the decoded body.
///
/// - Shape: `encoding` as in the header; empty and `identity` mean none. Kafka's names are accepted
///   too: what a plug-in forwards may still be in the client's own codec.
/// - Errors: the name is unknown, the bytes are not in that encoding, or they decompress to more
///   than `limit_bytes`; in words.
pub fn decode<'a>(encoding: &str, body: &'a [u8], limit_bytes: usize) -> Result<Cow<'a, [u8]>, String> {
    let name = encoding.trim().to_ascii_lowercase();
    let codec = match name.as_str() {
        "" | "identity" => Codec::None,
        // HTTP's old name for gzip.
        "x-gzip" => Codec::Gzip,
        name => Codec::from_name(name).ok_or_else(|| {
            format!(
                "Content-Encoding {encoding:?} is unknown; identity, gzip, zstd, lz4 and snappy are taken"
            )
        })?,
    };
    if codec == Codec::None && body.len() <= limit_bytes {
        return Ok(Cow::Borrowed(body));
    }
    let mut out = Vec::new();
    decompress(codec, body, limit_bytes, &mut out).map_err(|error| error.to_string())?;
    Ok(Cow::Owned(out))
}

/// The codec of a pushed payload that comes without a codec's name: Apache Kafka 3.7 hands its
/// plug-ins what the client sent, later versions the decompressed payload (KIP-714).
///
/// - Shape: recognised by the first bytes. Plain metrics begin with the tag of their only field,
///   which no codec begins with.
pub fn of_payload(payload: &[u8]) -> &'static str {
    const XERIAL: &[u8] = b"\x82SNAPPY\0";
    let codec = match payload {
        [0x28, 0xB5, 0x2F, 0xFD, ..] => Codec::Zstd,
        [0x1F, 0x8B, ..] => Codec::Gzip,
        [0x04, 0x22, 0x4D, 0x18, ..] => Codec::Lz4,
        payload if payload.starts_with(XERIAL) => Codec::Snappy,
        _ => Codec::None,
    };
    codec.name()
}

#[cfg(test)]
mod tests {
    use super::*;
    use ottla_wire::records::compression::{Compression, compress};

    #[test]
    fn every_codec_is_decoded() {
        for codec in Codec::ALL {
            let mut body = Vec::new();
            compress(Compression::from(codec), &[7; 5_000], &mut body);
            assert_eq!(
                decode(codec.name(), &body, 5_000).unwrap(),
                &[7; 5_000][..],
                "{codec}"
            );
            let error = decode(codec.name(), &body, 4_999).unwrap_err();
            assert!(error.contains("limit of 4999 bytes"), "{error}");
        }
        assert_eq!(decode("identity", b"x", 1).unwrap(), &b"x"[..]);
    }

    #[test]
    fn a_payload_s_codec_is_recognised_by_its_bytes() {
        for codec in Codec::ALL {
            let mut payload = Vec::new();
            compress(Compression::from(codec), b"\x0A\x02\x08\x01", &mut payload);
            assert_eq!(of_payload(&payload), codec.name());
        }
        assert_eq!(of_payload(b""), "none");
    }

    #[test]
    fn bytes_in_another_encoding_are_refused() {
        assert!(decode("gzip", b"plain", 100).is_err());
        let error = decode("br", b"x", 100).unwrap_err();
        assert!(error.contains("\"br\" is unknown"), "{error}");
    }
}
