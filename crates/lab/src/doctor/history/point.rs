//! What is kept of a push: sixteen bytes per number, and the names that the numbers are about.

use super::super::adapters::{Fold, Measure, Subject};

/// One number. `subject` is an index into `Subjects`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    pub value: f64,
    /// For a sum its seconds, for a mean its weight.
    pub weight: f32,
    pub subject: u16,
    pub measure: Measure,
}

impl Point {
    pub fn key(&self) -> (Measure, u16) {
        (self.measure, self.subject)
    }

    /// The same as one number, which is compared at once.
    pub(super) fn order(&self) -> u32 {
        u32::from(self.measure as u8) << 16 | u32::from(self.subject)
    }

    /// Combines both by `Measure::fold`; which of the two is newer matters only for `Fold::Last`.
    pub(super) fn fold(&mut self, newer: &Point) {
        match self.measure.fold() {
            Fold::Sum => {
                self.value += newer.value;
                self.weight += newer.weight;
            }
            Fold::Mean(_) => {
                let (before, after) = (f64::from(self.weight), f64::from(newer.weight));
                let both = before + after;
                if both > 0.0 {
                    self.value = (self.value * before + newer.value * after) / both;
                }
                self.weight += newer.weight;
            }
            Fold::Max | Fold::Peak => self.value = self.value.max(newer.value),
            Fold::Last => *self = *newer,
        }
    }
}

/// Combines both by `Measure::fold`; both are sorted by key.
pub fn merged(older: &[Point], newer: &[Point]) -> Vec<Point> {
    let mut all = Vec::with_capacity(older.len().max(newer.len()));
    let (mut older, mut newer) = (older.iter().peekable(), newer.iter().peekable());
    while let (Some(one), Some(other)) = (older.peek(), newer.peek()) {
        match one.order().cmp(&other.order()) {
            std::cmp::Ordering::Less => all.extend(older.next()),
            std::cmp::Ordering::Greater => all.extend(newer.next()),
            std::cmp::Ordering::Equal => {
                let mut point = **one;
                point.fold(other);
                all.push(point);
                older.next();
                newer.next();
            }
        }
    }
    all.extend(older);
    all.extend(newer);
    all
}

/// The index of `Subject::Client`.
pub const CLIENT: u16 = 0;

#[derive(Clone, Debug, PartialEq, Eq)]
enum Name {
    Client,
    Node(i32),
    Topic(Box<str>),
    /// The index of its topic, and the partition.
    Partition(u16, i32),
}

/// Names, each kept once.
#[derive(Clone, Debug)]
pub struct Subjects {
    names: Vec<Name>,
    text_bytes: usize,
    /// The expected next index: pushes name the same subjects in the same order.
    next: u16,
}

impl Default for Subjects {
    fn default() -> Subjects {
        Subjects {
            names: vec![Name::Client],
            text_bytes: 0,
            next: 1,
        }
    }
}

impl Subjects {
    /// At most this many are kept. A consumer's partitions need their topics as well.
    pub const COUNT_MAX: usize = 384;
    const TEXT_BYTES_MAX: usize = 32 << 10;

    pub fn is_half_full(&self) -> bool {
        self.names.len() > Subjects::COUNT_MAX / 2 || self.text_bytes > Subjects::TEXT_BYTES_MAX / 2
    }

    pub fn get(&self, place: u16) -> Subject<'_> {
        match &self.names[usize::from(place)] {
            Name::Client => Subject::Client,
            Name::Node(id) => Subject::Node(*id),
            Name::Topic(topic) => Subject::Topic(topic),
            Name::Partition(topic, partition) => match self.get(*topic) {
                Subject::Topic(topic) => Subject::Partition(topic, *partition),
                _ => unreachable!("a partition's topic is a topic"),
            },
        }
    }

    /// Returns the index of a subject; a new one while there is room.
    pub fn place(&mut self, subject: Subject<'_>) -> Option<u16> {
        if subject == Subject::Client {
            return Some(CLIENT);
        }
        let guess = usize::from(self.next);
        let place = if guess < self.names.len() && self.get(self.next) == subject {
            self.next
        } else if let Some(place) = self.find(subject) {
            place
        } else {
            self.add(subject)?
        };
        self.next = place + 1;
        Some(place)
    }

    fn find(&self, subject: Subject<'_>) -> Option<u16> {
        (1..self.names.len() as u16).find(|place| self.get(*place) == subject)
    }

    fn add(&mut self, subject: Subject<'_>) -> Option<u16> {
        let name = match subject {
            Subject::Client => return Some(CLIENT),
            Subject::Node(id) => Name::Node(id),
            Subject::Topic(topic) => Name::Topic(topic.into()),
            Subject::Partition(topic, partition) => {
                let topic = Subject::Topic(topic);
                let place = self.find(topic).or_else(|| self.add(topic))?;
                Name::Partition(place, partition)
            }
        };
        let text_bytes = match &name {
            Name::Topic(topic) => topic.len(),
            _ => 0,
        };
        if self.names.len() >= Subjects::COUNT_MAX || self.text_bytes + text_bytes > Subjects::TEXT_BYTES_MAX
        {
            return None;
        }
        self.text_bytes += text_bytes;
        self.names.push(name);
        Some(self.names.len() as u16 - 1)
    }

    /// Bytes on the heap.
    pub fn bytes(&self) -> usize {
        self.names.capacity() * size_of::<Name>() + self.text_bytes
    }
}
