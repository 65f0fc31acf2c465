//! Cutting requests out of a byte stream.

use super::refusal::{CloseReason, Lookalike};

pub const LENGTH_BYTES: usize = 4;

/// What the next bytes of a stream are.
#[derive(Debug, PartialEq, Eq)]
pub enum Cut {
    /// A whole request of this many bytes behind its length.
    Whole(usize),
    /// At least this many bytes are missing.
    Missing(usize),
}

/// Looks at the first bytes of a request.
///
/// - Errors: the announced length is negative or beyond `bytes_max` (`socket.request.max.bytes`).
pub fn cut(bytes: &[u8], bytes_max: i32) -> Result<Cut, CloseReason> {
    let Some((first, rest)) = bytes.split_first_chunk::<LENGTH_BYTES>() else {
        return Ok(Cut::Missing(LENGTH_BYTES - bytes.len()));
    };
    let announced = i32::from_be_bytes(*first);
    let Ok(length) = usize::try_from(announced) else {
        return Err(CloseReason::NegativeLength {
            bytes: announced,
            lookalike: Lookalike::of(*first),
        });
    };
    if announced > bytes_max {
        return Err(CloseReason::FrameTooLarge {
            bytes: announced,
            bytes_max,
            lookalike: Lookalike::of(*first),
        });
    }
    Ok(if rest.len() >= length {
        Cut::Whole(length)
    } else {
        Cut::Missing(length - rest.len())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_whole_when_its_last_byte_is_there() {
        assert_eq!(cut(&[], 100), Ok(Cut::Missing(4)));
        assert_eq!(cut(&[0, 0, 0], 100), Ok(Cut::Missing(1)));
        assert_eq!(cut(&[0, 0, 0, 3, 1, 2], 100), Ok(Cut::Missing(1)));
        assert_eq!(cut(&[0, 0, 0, 3, 1, 2, 3, 9], 100), Ok(Cut::Whole(3)));
    }

    #[test]
    fn impossible_lengths_are_refused_by_what_they_look_like() {
        let lookalike = |bytes: &[u8]| match cut(bytes, 104_857_600) {
            Err(
                CloseReason::FrameTooLarge { lookalike, .. } | CloseReason::NegativeLength { lookalike, .. },
            ) => lookalike,
            other => panic!("not refused: {other:?}"),
        };
        assert_eq!(lookalike(b"GET / HTTP/1.1\r\n"), Lookalike::Http);
        assert_eq!(lookalike(&[0x16, 3, 1, 2, 0, 1]), Lookalike::TlsHello);
        assert_eq!(lookalike(&104_857_601i32.to_be_bytes()), Lookalike::Unknown);
        assert_eq!(lookalike(&(-1i32).to_be_bytes()), Lookalike::Unknown);
        assert_eq!(
            cut(&104_857_600i32.to_be_bytes(), 104_857_600),
            Ok(Cut::Missing(104_857_600))
        );
    }
}
