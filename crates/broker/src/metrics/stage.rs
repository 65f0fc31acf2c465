//! The stages of a request. Their times sum to the request's total, except for the throttle, which
//! comes after the answer.

use ottla_core::reply::WaitKind;

/// A part of a request's life on the broker, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Stage {
    /// From its first byte to its last, if it did not arrive at once.
    Read,
    /// Complete, while other requests are served first.
    Queued,
    /// In its handler, without the append.
    Handled,
    /// Bytes to the log.
    Appended,
    /// Waiting for the group commit.
    Synced,
    /// Long poll.
    WaitedForData,
    ColdRead,
    /// Waiting for other members of the group.
    WaitedForGroup,
    /// Waiting for the transaction coordinator.
    WaitedForTransaction,
    Controller,
    /// Answered, while the connection is muted because its client is over a quota.
    Throttled,
    /// Answered, while an earlier request of the connection is not.
    Behind,
    /// Until the socket took the last byte of the answer.
    Written,
}

pub const STAGE_COUNT: usize = 13;

impl Stage {
    pub const ALL: [Stage; STAGE_COUNT] = [
        Stage::Read,
        Stage::Queued,
        Stage::Handled,
        Stage::Appended,
        Stage::Synced,
        Stage::WaitedForData,
        Stage::ColdRead,
        Stage::WaitedForGroup,
        Stage::WaitedForTransaction,
        Stage::Controller,
        Stage::Throttled,
        Stage::Behind,
        Stage::Written,
    ];

    /// The name in metric labels and JSON.
    pub fn name(self) -> &'static str {
        match self {
            Stage::Read => "read",
            Stage::Queued => "queued",
            Stage::Handled => "handled",
            Stage::Appended => "appended",
            Stage::Synced => "synced",
            Stage::WaitedForData => "waited_for_data",
            Stage::ColdRead => "cold_read",
            Stage::WaitedForGroup => "waited_for_group",
            Stage::WaitedForTransaction => "waited_for_transaction",
            Stage::Controller => "controller",
            Stage::Throttled => "throttled",
            Stage::Behind => "behind",
            Stage::Written => "written",
        }
    }

    /// Whether the client asked for this wait, so that it does not count as slowness.
    pub fn is_asked_for(self) -> bool {
        matches!(
            self,
            Stage::WaitedForData | Stage::WaitedForGroup | Stage::Throttled
        )
    }
}

impl From<WaitKind> for Stage {
    fn from(kind: WaitKind) -> Stage {
        match kind {
            WaitKind::Sync => Stage::Synced,
            WaitKind::Data => Stage::WaitedForData,
            WaitKind::ColdRead => Stage::ColdRead,
            WaitKind::Group => Stage::WaitedForGroup,
            WaitKind::Transaction => Stage::WaitedForTransaction,
            WaitKind::Controller => Stage::Controller,
            WaitKind::Throttle => Stage::Throttled,
            // Its handler continues on another thread.
            WaitKind::Reading => Stage::Handled,
        }
    }
}

/// Microseconds per stage of one request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StageTimes([u32; STAGE_COUNT]);

impl StageTimes {
    pub fn add(&mut self, stage: Stage, micros: u64) {
        let time = &mut self.0[stage as usize];
        *time = time.saturating_add(u32::try_from(micros).unwrap_or(u32::MAX));
    }

    pub fn get(&self, stage: Stage) -> u32 {
        self.0[stage as usize]
    }

    /// From the first byte read to the last written. KIP-219: the answer does not wait for the
    /// throttle time.
    pub fn total(&self) -> u64 {
        let all: u64 = self.0.iter().map(|micros| u64::from(*micros)).sum();
        all - u64::from(self.get(Stage::Throttled))
    }

    /// The total without the waiting that the client asked for.
    pub fn own_time(&self) -> u64 {
        Stage::ALL
            .iter()
            .filter(|stage| !stage.is_asked_for())
            .map(|stage| u64::from(self.get(*stage)))
            .sum()
    }

    /// The stage with the largest share of [`StageTimes::own_time`].
    pub fn dominant(&self) -> Stage {
        let own = Stage::ALL.into_iter().filter(|stage| !stage.is_asked_for());
        own.max_by_key(|stage| self.get(*stage))
            .expect("most stages are not asked for")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stages_are_indexed_in_their_order() {
        for (index, stage) in Stage::ALL.into_iter().enumerate() {
            assert_eq!(stage as usize, index);
        }
    }

    #[test]
    fn a_long_poll_is_no_slow_request() {
        let mut times = StageTimes::default();
        times.add(Stage::WaitedForData, 500_000);
        times.add(Stage::Handled, 7);
        times.add(Stage::Written, 9);
        assert_eq!(times.total(), 500_016);
        assert_eq!(times.own_time(), 16);
        assert_eq!(times.dominant(), Stage::Written);
    }
}
