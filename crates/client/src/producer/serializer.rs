//! Serializers for keys and values: the formats of Kafka's own serializers.

use std::cell::RefCell;

use super::completion::SendFuture;
use super::front::Producer;
use super::record::Record;
use crate::error::Error;

/// Turns values into the bytes of keys or values. Any closure of this shape is a serializer.
pub trait Serializer<T: ?Sized>: Send + Sync {
    /// Appends the serialized `value` to `into`.
    ///
    /// - Errors: `Serialization`; the record is not sent.
    fn serialize(&self, topic: &str, value: &T, into: &mut Vec<u8>) -> Result<(), Error>;
}

impl<T: ?Sized, F> Serializer<T> for F
where
    F: Fn(&str, &T, &mut Vec<u8>) -> Result<(), Error> + Send + Sync,
{
    fn serialize(&self, topic: &str, value: &T, into: &mut Vec<u8>) -> Result<(), Error> {
        self(topic, value, into)
    }
}

/// Bytes unchanged and strings as UTF-8: Kafka's `ByteArraySerializer` and `StringSerializer`.
#[derive(Clone, Copy, Debug, Default)]
pub struct Bytes;

impl<T: AsRef<[u8]> + ?Sized> Serializer<T> for Bytes {
    fn serialize(&self, _topic: &str, value: &T, into: &mut Vec<u8>) -> Result<(), Error> {
        into.extend_from_slice(value.as_ref());
        Ok(())
    }
}

/// Numbers, big-endian: Kafka's `ShortSerializer`, `IntegerSerializer`, `LongSerializer`,
/// `FloatSerializer` and `DoubleSerializer`.
#[derive(Clone, Copy, Debug, Default)]
pub struct BigEndian;

macro_rules! big_endian {
    ($($number:ty),*) => {
        $(impl Serializer<$number> for BigEndian {
            fn serialize(&self, _topic: &str, value: &$number, into: &mut Vec<u8>) -> Result<(), Error> {
                into.extend_from_slice(&value.to_be_bytes());
                Ok(())
            }
        })*
    };
}

big_endian!(i16, i32, i64, f32, f64);

/// A producer for one topic, with fixed serializers for its keys and values.
///
/// ```no_run
/// # use ottla_client::producer::Producer;
/// use ottla_client::producer::{BigEndian, Bytes, TopicSender};
///
/// # fn example(producer: &Producer) -> Result<(), ottla_client::Error> {
/// let orders = TopicSender::new(producer, "orders", BigEndian, Bytes);
/// let sent = orders.send(Some(&42i64), Some("two coffees"))?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct TopicSender<'a, K, V> {
    producer: &'a Producer,
    topic: &'a str,
    keys: K,
    values: V,
}

thread_local! {
    /// Key and value of the record that this thread is sending.
    static SCRATCH: RefCell<(Vec<u8>, Vec<u8>)> = const { RefCell::new((Vec::new(), Vec::new())) };
}

impl<'a, K, V> TopicSender<'a, K, V> {
    /// Sends to this topic with these serializers.
    pub fn new(producer: &'a Producer, topic: &'a str, keys: K, values: V) -> TopicSender<'a, K, V> {
        TopicSender {
            producer,
            topic,
            keys,
            values,
        }
    }

    /// Sends a record; `None` is a null key or a null value (a tombstone).
    ///
    /// - Errors: as `Producer::send`, and the serializers'.
    pub fn send<Key, Value>(&self, key: Option<&Key>, value: Option<&Value>) -> Result<SendFuture, Error>
    where
        Key: ?Sized,
        Value: ?Sized,
        K: Serializer<Key>,
        V: Serializer<Value>,
    {
        // Taken, not borrowed: a serializer may send, too.
        let (mut key_bytes, mut value_bytes) = SCRATCH.try_with(RefCell::take).unwrap_or_default();
        key_bytes.clear();
        value_bytes.clear();
        let result = self.send_through(key, value, &mut key_bytes, &mut value_bytes);
        let _ = SCRATCH.try_with(|scratch| scratch.replace((key_bytes, value_bytes)));
        result
    }

    fn send_through<Key, Value>(
        &self,
        key: Option<&Key>,
        value: Option<&Value>,
        key_bytes: &mut Vec<u8>,
        value_bytes: &mut Vec<u8>,
    ) -> Result<SendFuture, Error>
    where
        Key: ?Sized,
        Value: ?Sized,
        K: Serializer<Key>,
        V: Serializer<Value>,
    {
        if let Some(key) = key {
            self.keys.serialize(self.topic, key, key_bytes)?;
        }
        if let Some(value) = value {
            self.values.serialize(self.topic, value, value_bytes)?;
        }
        self.producer.send(&Record {
            topic: self.topic,
            key: key.map(|_| &key_bytes[..]),
            value: value.map(|_| &value_bytes[..]),
            ..Record::default()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes<T: ?Sized>(serializer: &impl Serializer<T>, value: &T) -> Vec<u8> {
        let mut bytes = Vec::new();
        serializer.serialize("topic", value, &mut bytes).unwrap();
        bytes
    }

    #[test]
    fn formats_are_kafkas() {
        assert_eq!(bytes(&BigEndian, &1i16), [0, 1]);
        assert_eq!(bytes(&BigEndian, &-2i32), [0xFF, 0xFF, 0xFF, 0xFE]);
        assert_eq!(
            bytes(&BigEndian, &0x0102_0304_0506_0708i64),
            [1, 2, 3, 4, 5, 6, 7, 8]
        );
        assert_eq!(bytes(&BigEndian, &1.0f32), [0x3F, 0x80, 0, 0]);
        assert_eq!(bytes(&BigEndian, &1.0f64), [0x3F, 0xF0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(bytes(&Bytes, "Größe"), "Größe".as_bytes());
        assert_eq!(bytes(&Bytes, &[1u8, 2][..]), [1, 2]);
    }

    #[test]
    fn a_closure_is_a_serializer() {
        let upper = |_: &str, text: &str, into: &mut Vec<u8>| {
            into.extend(text.to_uppercase().bytes());
            Ok(())
        };
        assert_eq!(bytes::<str>(&upper, "abc"), b"ABC");
    }
}
