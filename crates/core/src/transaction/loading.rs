//! What a transaction machine takes from its partition of `__transaction_state`.

use ottla_wire::records::batch::BatchHeader;
use ottla_wire::records::record::Record;

use super::machine::Machine;
use super::record::TransactionRecord;
use crate::coordinator::replay::{LoadError, Replay, Taken};

impl Replay for Machine {
    fn take(&mut self, header: &BatchHeader, record: &Record<'_>) -> Result<Taken, LoadError> {
        if header.is_control() {
            return Ok(Taken::Control);
        }
        let Some(key) = record.key else {
            return Ok(Taken::Skipped);
        };
        let decoded = TransactionRecord::decode(key, record.value).map_err(|problem| LoadError::Content {
            offset: record.offset,
            problem: problem.to_string(),
        })?;
        match decoded {
            None => Ok(Taken::Skipped),
            Some(record) => {
                self.apply(record);
                Ok(Taken::Applied)
            }
        }
    }
}
