//! What producers with ids may rely on after a damage: nothing of a transaction is visible before
//! it is committed, all of it afterwards, and no batch is taken for another one.

use std::path::Path;

use ottla_log::disk::damage::DamageKind;

use super::*;
use crate::inhabited::producers::{EARLY, End, LATE, Producer, TILL, Transaction};
use crate::inhabited::{LEDGER, PAYMENTS};

/// What readers of committed records see.
type Committed = BTreeMap<Place, Found>;

impl<M: Machine> Trial<'_, M> {
    fn read_committed(&mut self) -> Verdict<Committed> {
        let mut all = Committed::new();
        for place in PLACES.into_iter().filter(|place| place.0 == PAYMENTS) {
            let found = read_as(self.machine, place, Isolation::Committed)?;
            all.insert(place, found);
        }
        Ok(all)
    }

    /// Returns true if a committed record is missing and that was reported.
    pub(super) fn judge_transactions(&mut self, all: &BTreeMap<Place, Found>) -> Verdict<bool> {
        let committed = self.read_committed()?;
        for (place, found) in &committed {
            let of_all = |(offset, value): (&i64, &String)| all[place].records.get(offset) == Some(value);
            ensure(found.records.iter().all(of_all), || {
                format!("{place:?} shows other records to a reader of committed ones")
            })?;
        }
        let mut is_said = false;
        for transaction in &self.expected.transactions {
            if transaction.end == End::Committed {
                is_said |= self.judge_committed(transaction)?;
            } else if !self.is_hidden(transaction, &committed)? {
                is_said = true;
            }
        }
        Ok(is_said)
    }

    /// Whether no record of a transaction is visible that was not committed. One may be if a
    /// `.txnindex` lacks lines (docs/guides/damage.md).
    fn is_hidden(&self, transaction: &Transaction, committed: &Committed) -> Verdict<bool> {
        for (place, records) in &transaction.records {
            let is_visible =
                |(offset, value): (&i64, &String)| committed[place].records.get(offset) == Some(value);
            if let Some((offset, _)) = records.iter().find(|record| is_visible(*record)) {
                ensure(self.is_index_of_aborts(), || {
                    let end = transaction.end;
                    format!("{place:?} offset {offset} of a transaction that is {end:?} is visible")
                })?;
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn is_index_of_aborts(&self) -> bool {
        let is_it = |path: &Path| path.extension().is_some_and(|extension| extension == "txnindex");
        match &self.damage.kind {
            DamageKind::Emptied
            | DamageKind::FlippedBit { .. }
            | DamageKind::Zeroed { .. }
            | DamageKind::Noise
            | DamageKind::Grown { .. } => false,
            DamageKind::Swapped { with } => is_it(&self.damage.path) || is_it(with),
            _ => is_it(&self.damage.path),
        }
    }

    /// Returns true if a record of a committed transaction is not visible and that was reported.
    fn judge_committed(&mut self, transaction: &Transaction) -> Verdict<bool> {
        let mut hidden = None;
        // The coordinator may have markers to write first.
        for _ in 0..200 {
            let committed = self.read_committed()?;
            let is_hidden = |place: &Place, (offset, value): (&i64, &String)| {
                let found = &committed[place];
                found.records.get(offset) != Some(value) && !self.may_hide(*place, *offset, found)
            };
            hidden = transaction.records.iter().find_map(|(place, records)| {
                Some((
                    *place,
                    *records.iter().find(|record| is_hidden(place, *record))?.0,
                ))
            });
            if hidden.is_none() {
                let is_visible = |(place, records): (&Place, &BTreeMap<i64, String>)| {
                    records
                        .keys()
                        .all(|offset| committed[place].records.contains_key(offset))
                };
                return Ok(!transaction.records.iter().all(is_visible));
            }
            self.machine.pause();
        }
        Err(format!("a committed record is hidden in silence: {hidden:?}"))
    }

    /// Whether damage to the partition's log was reported that explains why a record is not
    /// visible. A lost marker leaves its transaction open, and all records behind it hidden.
    fn may_hide(&self, place: Place, offset: i64, found: &Found) -> bool {
        found.refusal.is_some()
            || found.unreadable.contains_key(&offset)
            || self.said_of(place, "records are damaged")
            || self.said_of(place, "cannot read records")
            || self.is_cut(place)
            || self.is_held_up(place)
    }

    /// Whether a transaction of which the coordinator knows nothing any more holds up the readers.
    /// After a kill, the newest records of its log may be gone as an unfinished append would.
    fn is_held_up(&self, place: Place) -> bool {
        let path = self.damage.path.to_string_lossy();
        let is_told = self.said(&["__transaction_state"])
            || self.stop == Stop::Killed && path.contains("__transaction_state");
        is_told && self.said_of(place, "a transaction is open")
    }

    /// Goes on as the producer of `ledger`, and starts a new one: what is acknowledged is noted and
    /// must be there later.
    pub(super) fn write_to_ledger(
        &mut self,
        first: &BTreeMap<Place, Found>,
        written: &mut Written,
    ) -> Verdict<bool> {
        let place = (LEDGER, 0);
        let (found, Some(mut ledger)) = (&first[&place], self.expected.ledger.clone()) else {
            return Ok(false);
        };
        if found.refusal.is_some() {
            return Ok(true);
        }
        let is_said = self.repeat_last(&ledger, found)?;
        if !is_said {
            let values = [("more".to_owned(), "of the same producer".to_owned())];
            let offset = ledger
                .send(self.machine, place, &values)
                .map_err(|error| format!("the producer of {place:?} cannot go on: {error:?}"))?;
            note_new(written, place, found, offset, &values)?;
        }
        let mut other = Producer::new(self.machine, None)
            .map_err(|error| format!("no producer id is given out: {error:?}"))?;
        let is_new = !self.expected.producer_ids.contains(&other.id);
        ensure(is_new, || format!("producer id {} is given out again", other.id))?;
        let values = [("other".to_owned(), "of a new producer".to_owned())];
        let offset = other
            .send(self.machine, place, &values)
            .map_err(|error| format!("a new producer cannot write to {place:?}: {error:?}"))?;
        note_new(written, place, found, offset, &values)?;
        Ok(is_said)
    }

    /// Sends the last batch of `ledger` again. Returns true if it was lost and that was reported;
    /// else it must be answered with the offset that it has.
    fn repeat_last(&mut self, ledger: &Producer, found: &Found) -> Verdict<bool> {
        let place = (LEDGER, 0);
        let (values, offset) = self.expected.last_of_ledger.clone();
        if !found.records.contains_key(&offset) {
            return Ok(true);
        }
        let answer = ledger.repeat(self.machine, place, &values);
        ensure(answer == Ok(offset), || {
            format!("{place:?} answers {answer:?} to its batch at {offset} sent again")
        })?;
        Ok(false)
    }

    /// Ends the open transactions as their producers do when they come back, and commits a new one.
    /// Returns the new one, unless damage to the log of transactions was reported.
    pub(super) fn transact(
        &mut self,
        first: &BTreeMap<Place, Found>,
        written: &mut Written,
    ) -> Verdict<Option<Transaction>> {
        match self.try_transact(first, written)? {
            Ok(transaction) => Ok(Some(transaction)),
            Err(ErrorCode::ConcurrentTransactions) if waits_for_markers(first) => Ok(None),
            Err(error) => {
                ensure(self.said(&["__transaction_state"]), || {
                    format!("transactions fail in silence: {error:?}")
                })?;
                Ok(None)
            }
        }
    }

    fn try_transact(
        &mut self,
        first: &BTreeMap<Place, Found>,
        written: &mut Written,
    ) -> Verdict<Result<Transaction, ErrorCode>> {
        let waits = waits_for_markers(first);
        let patience = if waits { 1 } else { 400 };
        for transactional_id in [EARLY, LATE] {
            match Producer::with_patience(self.machine, Some(transactional_id), patience) {
                Err(ErrorCode::ConcurrentTransactions) if waits => {}
                Err(error) => return Ok(Err(error)),
                Ok(_) => {}
            }
        }
        let mut till = match Producer::with_patience(self.machine, Some(TILL), patience) {
            Ok(till) => till,
            Err(error) => return Ok(Err(error)),
        };
        let mut transaction = Transaction {
            end: End::Committed,
            records: BTreeMap::new(),
        };
        let healthy: Vec<Place> = first
            .iter()
            .filter(|(place, found)| place.0 == PAYMENTS && found.refusal.is_none())
            .map(|(place, _)| *place)
            .collect();
        let partitions: Vec<i32> = healthy.iter().map(|(_, index)| *index).collect();
        if let Err(error) = till.add(self.machine, &partitions) {
            return Ok(Err(error));
        }
        for place in healthy {
            let values = [("paid".to_owned(), format!("after the damage in {place:?}"))];
            let offset = till
                .send(self.machine, place, &values)
                .map_err(|error| format!("{place:?} answers {error:?} in a transaction"))?;
            note_new(written, place, &first[&place], offset, &values)?;
            transaction
                .records
                .insert(place, written[&place].range(offset..).map(owned).collect());
        }
        Ok(till.end(self.machine, true).map(|()| transaction))
    }

    /// A transaction that was committed after the damage is visible, unless damage was reported
    /// that keeps an older one open.
    pub(super) fn judge_new_transaction(&mut self, transaction: Option<Transaction>) -> Verdict<bool> {
        match transaction {
            Some(transaction) => self.judge_committed(&transaction),
            None => Ok(true),
        }
    }
}

/// Markers for a refused partition wait until it is restored, and their producer with them.
fn waits_for_markers(found: &BTreeMap<Place, Found>) -> bool {
    let is_refused = |place: &Place| place.0 == PAYMENTS && found[place].refusal.is_some();
    PLACES.iter().any(is_refused)
}

fn owned((offset, value): (&i64, &String)) -> (i64, String) {
    (*offset, value.clone())
}
