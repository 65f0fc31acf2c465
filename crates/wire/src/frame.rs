//! The frame of every request and response: a length, then a header and a body.
//!
//! A frame is a signed 32-bit length, then that many bytes: a header and a body.

use crate::api_key::ApiKey;
use crate::primitives::{DecodeError, Reader, put_i16, put_i32, put_nullable_string};

/// The length in front of a frame; it does not count itself.
pub const LENGTH_BYTES: usize = 4;

/// The smallest request header: API key 2, API version 2, correlation id 4, client id's length 2.
pub const MIN_REQUEST_HEADER_BYTES: usize = 2 + 2 + 4 + 2;

/// The header of a request: API, version, correlation id and client id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestHeader<'a> {
    pub api_key: ApiKey,
    pub api_version: i16,
    /// The client's number for this request; its response repeats it.
    pub correlation_id: i32,
    pub client_id: Option<&'a str>,
}

impl<'a> RequestHeader<'a> {
    /// Reads a header and leaves `reader` at the body.
    ///
    /// - Shape: does not check whether `api_version` is served: ApiVersions answers unknown ones
    ///   too.
    /// - Errors: `UnknownKey`: without the API's schema the end of its header is unknown.
    /// - Source: KIP-482 for header version 2.
    pub fn decode(reader: &mut Reader<'a>) -> Result<RequestHeader<'a>, DecodeError> {
        let key = reader.i16()?;
        let api_version = reader.i16()?;
        let correlation_id = reader.i32()?;
        let api_key = ApiKey::from_i16(key).ok_or(DecodeError::UnknownKey { key: key.into() })?;
        // The client id is not compact even in the flexible header, so that every broker can read
        // the header of every ApiVersions request.
        let client_id = reader.nullable_string(false)?;
        if api_key.is_flexible(api_version) {
            reader.skip_tagged_fields()?;
        }
        Ok(RequestHeader {
            api_key,
            api_version,
            correlation_id,
            client_id,
        })
    }

    pub fn encode(&self, buffer: &mut Vec<u8>) {
        put_i16(buffer, self.api_key.code());
        put_i16(buffer, self.api_version);
        put_i32(buffer, self.correlation_id);
        put_nullable_string(buffer, self.client_id, false);
        if self.api_key.is_flexible(self.api_version) {
            buffer.push(0);
        }
    }
}

/// Whether a response's header ends with tagged fields (header version 1).
fn has_tagged_response_header(api_key: ApiKey, api_version: i16) -> bool {
    // KIP-511: a client that does not know the broker's versions must be able to read the answer to
    // ApiVersions.
    api_key != ApiKey::ApiVersions && api_key.is_flexible(api_version)
}

/// Writes a response's header; the body follows.
pub fn encode_response_header(buffer: &mut Vec<u8>, api_key: ApiKey, api_version: i16, correlation_id: i32) {
    put_i32(buffer, correlation_id);
    if has_tagged_response_header(api_key, api_version) {
        buffer.push(0);
    }
}

/// Reads the header of the response to a request of this API and version, and returns its
/// correlation id.
pub fn decode_response_header(
    reader: &mut Reader<'_>,
    api_key: ApiKey,
    api_version: i16,
) -> Result<i32, DecodeError> {
    let correlation_id = reader.i32()?;
    if has_tagged_response_header(api_key, api_version) {
        reader.skip_tagged_fields()?;
    }
    Ok(correlation_id)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check_request(header: RequestHeader<'_>, expected: &[u8]) {
        let mut buffer = Vec::new();
        header.encode(&mut buffer);
        assert_eq!(buffer, expected);
        let mut reader = Reader::new(&buffer);
        assert_eq!(RequestHeader::decode(&mut reader), Ok(header));
        assert_eq!(reader.finish(), Ok(()));
    }

    #[test]
    fn a_plain_header_ends_with_the_client_id() {
        check_request(
            RequestHeader {
                api_key: ApiKey::Metadata,
                api_version: 8,
                correlation_id: 7,
                client_id: Some("me"),
            },
            &[0, 3, 0, 8, 0, 0, 0, 7, 0, 2, b'm', b'e'],
        );
    }

    #[test]
    fn a_flexible_header_ends_with_tagged_fields_and_keeps_the_plain_client_id() {
        check_request(
            RequestHeader {
                api_key: ApiKey::Metadata,
                api_version: 9,
                correlation_id: 7,
                client_id: None,
            },
            &[0, 3, 0, 9, 0, 0, 0, 7, 0xff, 0xff, 0],
        );
    }

    #[test]
    fn an_unknown_api_key_is_refused() {
        let header = [0x7f, 0, 0, 0, 0, 0, 0, 1, 0xff, 0xff];
        assert_eq!(
            RequestHeader::decode(&mut Reader::new(&header)),
            Err(DecodeError::UnknownKey { key: 0x7f00 })
        );
    }

    #[test]
    fn a_header_cut_anywhere_is_refused() {
        let header = [0, 3, 0, 9, 0, 0, 0, 7, 0, 2, b'm', b'e', 1, 5, 1, 9];
        assert!(RequestHeader::decode(&mut Reader::new(&header)).is_ok());
        for end in 0..header.len() {
            assert!(
                RequestHeader::decode(&mut Reader::new(&header[..end])).is_err(),
                "cut at {end}"
            );
        }
    }

    fn check_response(api_key: ApiKey, api_version: i16, expected: &[u8]) {
        let mut buffer = Vec::new();
        encode_response_header(&mut buffer, api_key, api_version, 5);
        assert_eq!(buffer, expected);
        assert_eq!(
            decode_response_header(&mut Reader::new(&buffer), api_key, api_version),
            Ok(5)
        );
    }

    #[test]
    fn a_response_header_is_tagged_when_flexible_but_for_api_versions() {
        check_response(ApiKey::Metadata, 8, &[0, 0, 0, 5]);
        check_response(ApiKey::Metadata, 9, &[0, 0, 0, 5, 0]);
        check_response(ApiKey::ApiVersions, 3, &[0, 0, 0, 5]);
    }
}
