//! Encodes values at the end of a buffer.

use super::Uuid;
use super::varint::{zigzag_i32, zigzag_i64};
use crate::text;

pub fn put_bool(buffer: &mut Vec<u8>, value: bool) {
    buffer.push(u8::from(value));
}

pub fn put_i8(buffer: &mut Vec<u8>, value: i8) {
    buffer.extend_from_slice(&value.to_be_bytes());
}

pub fn put_i16(buffer: &mut Vec<u8>, value: i16) {
    buffer.extend_from_slice(&value.to_be_bytes());
}

pub fn put_u16(buffer: &mut Vec<u8>, value: u16) {
    buffer.extend_from_slice(&value.to_be_bytes());
}

pub fn put_i32(buffer: &mut Vec<u8>, value: i32) {
    buffer.extend_from_slice(&value.to_be_bytes());
}

pub fn put_u32(buffer: &mut Vec<u8>, value: u32) {
    buffer.extend_from_slice(&value.to_be_bytes());
}

pub fn put_i64(buffer: &mut Vec<u8>, value: i64) {
    buffer.extend_from_slice(&value.to_be_bytes());
}

pub fn put_f64(buffer: &mut Vec<u8>, value: f64) {
    buffer.extend_from_slice(&value.to_be_bytes());
}

pub fn put_uuid(buffer: &mut Vec<u8>, value: Uuid) {
    buffer.extend_from_slice(&value.0);
}

pub fn put_uvarint(buffer: &mut Vec<u8>, value: u32) {
    put_uvarlong(buffer, value.into());
}

pub fn put_uvarlong(buffer: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        buffer.push(value as u8 | 0x80);
        value >>= 7;
    }
    buffer.push(value as u8);
}

/// A zigzag varint, as in records.
pub fn put_varint(buffer: &mut Vec<u8>, value: i32) {
    put_uvarint(buffer, zigzag_i32(value));
}

/// A zigzag varint, as in records.
pub fn put_varlong(buffer: &mut Vec<u8>, value: i64) {
    put_uvarlong(buffer, zigzag_i64(value));
}

/// A string, or null.
///
/// - Shape: at most [`super::STRING_BYTES_MAX`] bytes. Decoded strings have no more; a longer one
///   is a
///   bug of the caller.
pub fn put_nullable_string(buffer: &mut Vec<u8>, value: Option<&str>, flexible: bool) {
    match value {
        Some(text) if flexible => put_compact_length(buffer, text.len()),
        Some(text) => put_i16(
            buffer,
            i16::try_from(text.len()).expect("a string has at most STRING_BYTES_MAX bytes"),
        ),
        None if flexible => buffer.push(0),
        None => put_i16(buffer, -1),
    }
    buffer.extend_from_slice(value.unwrap_or_default().as_bytes());
}

pub fn put_string(buffer: &mut Vec<u8>, value: &str, flexible: bool) {
    put_nullable_string(buffer, Some(value), flexible);
}

/// An answer beyond this size gets no more error messages, only error codes: otherwise a request
/// with a few bytes for each of a million entries would be answered with a sentence for each.
const WORDS_END_BYTES: usize = 16 * 1024 * 1024;

/// An error message, or null; cut to [`text::MESSAGE_BYTES_MAX`], because it may quote a client's
/// text.
pub fn put_nullable_message(buffer: &mut Vec<u8>, value: Option<&str>, flexible: bool) {
    let value = value.filter(|_| buffer.len() < WORDS_END_BYTES);
    put_nullable_string(buffer, value.map(text::message).as_deref(), flexible);
}

/// Bytes, or null.
pub fn put_nullable_bytes(buffer: &mut Vec<u8>, value: Option<&[u8]>, flexible: bool) {
    put_nullable_count(buffer, value.map(<[u8]>::len), flexible);
    buffer.extend_from_slice(value.unwrap_or_default());
}

pub fn put_bytes(buffer: &mut Vec<u8>, value: &[u8], flexible: bool) {
    put_nullable_bytes(buffer, Some(value), flexible);
}

/// The count before an array, or the length before bytes; `None` is null.
pub fn put_nullable_count(buffer: &mut Vec<u8>, count: Option<usize>, flexible: bool) {
    match count {
        Some(count) if flexible => put_compact_length(buffer, count),
        Some(count) => put_i32(
            buffer,
            i32::try_from(count).expect("a message is smaller than 2 GiB"),
        ),
        None if flexible => buffer.push(0),
        None => put_i32(buffer, -1),
    }
}

pub fn put_count(buffer: &mut Vec<u8>, count: usize, flexible: bool) {
    put_nullable_count(buffer, Some(count), flexible);
}

fn put_compact_length(buffer: &mut Vec<u8>, length: usize) {
    put_uvarint(
        buffer,
        u32::try_from(length + 1).expect("a message is smaller than 2 GiB"),
    );
}

/// The marker before a nullable struct in a normal position.
pub fn put_presence(buffer: &mut Vec<u8>, is_present: bool) {
    put_i8(buffer, if is_present { 1 } else { -1 });
}

/// The marker before a nullable struct in a tagged field.
pub fn put_presence_in_tag(buffer: &mut Vec<u8>, is_present: bool) {
    buffer.push(u8::from(is_present));
}

/// Puts the size of a tagged field in front of its value, which is everything from `start` on.
pub fn insert_tagged_size(buffer: &mut Vec<u8>, start: usize) {
    let size = buffer.len() - start;
    put_uvarint(
        buffer,
        u32::try_from(size).expect("a message is smaller than 2 GiB"),
    );
    let size_bytes = buffer.len() - start - size;
    buffer[start..].rotate_right(size_bytes);
}
