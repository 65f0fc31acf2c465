//! Following the end of a partition: the records that came since the last look, at most twenty of
//! them for each look, and how many were skipped.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};

use crate::source::{Filter, Peek, PeekFrom, Peeked, PeekedRecord, Told};

/// Records of one look; a browser is shown no more of them in a second.
pub const LOOK_RECORDS_MAX: usize = 20;

/// Records and gaps that stay on the page.
const ENTRIES_MAX: usize = 40;

/// Bytes of a key or a value: a page is sent at most 10 KB a second.
pub const FIELD_BYTES_MAX: usize = 80;

/// Partitions that are followed at the same time: as many as there are viewers.
const TAILS_MAX: usize = 16;

/// What is followed: topic, partition and filter.
type Place = (String, i32, Filter);

/// The partitions that are followed.
#[derive(Debug, Default)]
pub struct Tails(Mutex<BTreeMap<Place, Arc<Mutex<Tail>>>>);

/// The time of a look, and how long it counts as new.
#[derive(Clone, Copy, Debug)]
pub struct Now {
    /// Milliseconds since 1970.
    pub at_ms: i64,
    pub interval_ms: u64,
}

#[derive(Clone, Debug, Default)]
pub struct Tail {
    looked_at_ms: Option<i64>,
    next_offset: i64,
    /// Newest last.
    pub entries: VecDeque<Entry>,
    pub log_start: i64,
    pub log_end: i64,
    /// Offsets that were skipped since the partition is followed.
    pub skipped: u64,
    pub note: Option<String>,
}

#[derive(Clone, Debug)]
pub enum Entry {
    Record(PeekedRecord),
    /// Offsets from this one on, which came faster than they can be read.
    Skipped {
        from: i64,
        offsets: u64,
    },
}

impl Tails {
    /// Looks at what came, unless the last look was a moment ago.
    ///
    /// - `ask`: where it says to look from does not matter.
    /// - Errors: those of `look`; what was seen before stays for the next one.
    pub fn follow(&self, ask: &Peek, now: Now, look: impl FnOnce(&Peek) -> Told<Peeked>) -> Told<Tail> {
        let tail = self.of(ask);
        // Two viewers of the same page are shown the same look.
        let mut tail = tail.lock().unwrap_or_else(PoisonError::into_inner);
        let is_due = |at_ms: i64| now.at_ms.abs_diff(at_ms) >= now.interval_ms;
        if tail.looked_at_ms.is_none_or(is_due) {
            let peeked = look(&tail.next(ask))?;
            tail.add(peeked, now.at_ms);
        }
        Ok(tail.clone())
    }

    fn of(&self, ask: &Peek) -> Arc<Mutex<Tail>> {
        let place = (ask.topic.clone(), ask.partition, ask.filter.clone());
        let mut tails = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if !tails.contains_key(&place) && tails.len() >= TAILS_MAX {
            // Those that are still viewed begin again with the last records.
            tails.clear();
        }
        tails.entry(place).or_default().clone()
    }
}

impl Tail {
    fn next(&self, ask: &Peek) -> Peek {
        Peek {
            from: match self.looked_at_ms {
                None => PeekFrom::End,
                Some(_) => PeekFrom::Since(self.next_offset),
            },
            records_max: LOOK_RECORDS_MAX,
            field_bytes_max: FIELD_BYTES_MAX,
            ..ask.clone()
        }
    }

    fn add(&mut self, peeked: Peeked, now_ms: i64) {
        if peeked.log_end < self.next_offset {
            // The topic was deleted and created again.
            *self = Tail::default();
            return;
        }
        let is_first = self.looked_at_ms.is_none();
        let skipped = (peeked.from_offset - self.next_offset).max(0).unsigned_abs();
        if skipped > 0 && !is_first {
            self.skip(self.next_offset, skipped);
        }
        self.entries.extend(peeked.records.into_iter().map(Entry::Record));
        while self.entries.len() > ENTRIES_MAX {
            self.entries.pop_front();
        }
        self.looked_at_ms = Some(now_ms);
        self.next_offset = peeked.next_offset;
        (self.log_start, self.log_end) = (peeked.log_start, peeked.log_end);
        self.note = peeked.note;
    }

    /// Adds a gap, or to the gap that is the last entry.
    fn skip(&mut self, from: i64, skipped: u64) {
        self.skipped += skipped;
        match self.entries.back_mut() {
            Some(Entry::Skipped { offsets, .. }) => *offsets += skipped,
            _ => self.entries.push_back(Entry::Skipped {
                from,
                offsets: skipped,
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::Untold;

    /// A look at a partition of that many records.
    fn peeked(ask: &Peek, end: i64) -> Told<Peeked> {
        let last = end - ask.tail_offsets();
        let from = match ask.from {
            PeekFrom::Since(offset) => offset.max(last),
            _ => last,
        };
        let from = from.max(0);
        let record = |offset| PeekedRecord {
            offset,
            ..PeekedRecord::default()
        };
        Ok(Peeked {
            log_end: end,
            from_offset: from,
            next_offset: end.max(from),
            records: (from..end).map(record).collect(),
            ..Peeked::default()
        })
    }

    fn follow(tails: &Tails, at_ms: i64, end: i64) -> Tail {
        let interval_ms = 1_000;
        let now = Now { at_ms, interval_ms };
        tails.follow(&ask(), now, |ask| peeked(ask, end)).unwrap()
    }

    fn shown(tail: &Tail) -> Vec<String> {
        let of = |entry: &Entry| match entry {
            Entry::Record(record) => record.offset.to_string(),
            Entry::Skipped { from, offsets } => format!("{offsets} from {from}"),
        };
        tail.entries.iter().map(of).collect()
    }

    fn ask() -> Peek {
        Peek {
            topic: String::from("orders"),
            partition: 0,
            from: PeekFrom::End,
            filter: Filter::default(),
            records_max: 50,
            field_bytes_max: 1 << 20,
        }
    }

    #[test]
    fn what_came_is_added_and_what_came_too_fast_is_counted() {
        let tails = Tails::default();
        assert_eq!(shown(&follow(&tails, 0, 2)), ["0", "1"]);
        assert_eq!(
            shown(&follow(&tails, 999, 5)),
            ["0", "1"],
            "a second has not passed"
        );
        assert_eq!(shown(&follow(&tails, 1_000, 5)), ["0", "1", "2", "3", "4"]);
        let fast = follow(&tails, 2_000, 1_025);
        assert_eq!(fast.entries.len(), 5 + 1 + LOOK_RECORDS_MAX);
        assert_eq!((shown(&fast)[5].as_str(), fast.skipped), ("1000 from 5", 1_000));
        assert_eq!(shown(&fast)[6], "1005");
        let later = follow(&tails, 3_000, 2_045);
        assert_eq!((later.entries.len(), later.skipped), (ENTRIES_MAX, 2_000));
    }

    #[test]
    fn a_topic_that_was_created_again_is_followed_from_its_own_end() {
        let tails = Tails::default();
        follow(&tails, 0, 100);
        assert_eq!(shown(&follow(&tails, 1_000, 3)), [""; 0]);
        assert_eq!(shown(&follow(&tails, 1_001, 4)), ["0", "1", "2", "3"]);
    }

    #[test]
    fn a_look_that_fails_loses_nothing() {
        let tails = Tails::default();
        follow(&tails, 0, 1);
        let now = Now {
            at_ms: 1_000,
            interval_ms: 1_000,
        };
        let failed = tails.follow(&ask(), now, |_| Err(Untold(String::from("no"))));
        assert!(failed.is_err());
        assert_eq!(shown(&follow(&tails, 1_001, 3)), ["0", "1", "2"]);
    }

    #[test]
    fn a_clock_that_jumps_back_stops_nothing_and_tails_are_bounded() {
        let tails = Tails::default();
        follow(&tails, 1_000_000, 1);
        assert_eq!(shown(&follow(&tails, 5, 2)), ["0", "1"]);
        let now = Now {
            at_ms: 0,
            interval_ms: 0,
        };
        for partition in 0..100 {
            let ask = Peek { partition, ..ask() };
            tails.follow(&ask, now, |ask| peeked(ask, 1)).unwrap();
            assert!(tails.0.lock().unwrap().len() <= TAILS_MAX);
        }
    }
}
