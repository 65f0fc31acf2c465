//! The stages of a request: names, order, colours and what each one means.

/// A part of a request's life on the broker, in the order in which it happens. The broker counts
/// the same parts (`ottla_request_stage_seconds`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(usize)]
pub enum Stage {
    Read,
    Queued,
    Handled,
    Appended,
    Synced,
    WaitedForData,
    ColdRead,
    WaitedForGroup,
    WaitedForTransaction,
    Controller,
    Throttled,
    Behind,
    Written,
}

pub const STAGE_COUNT: usize = 13;

/// Microseconds by stage, indexed by [`Stage`].
pub type StageMicros = [u64; STAGE_COUNT];

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

    /// The name in metrics and JSON.
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

    pub fn of_name(name: &str) -> Option<Stage> {
        Stage::ALL.into_iter().find(|stage| stage.name() == name)
    }

    /// Whether the client asked for this wait, so that it does not count as slowness.
    pub fn is_asked_for(self) -> bool {
        matches!(
            self,
            Stage::WaitedForData | Stage::WaitedForGroup | Stage::Throttled
        )
    }

    /// Four hues by what the time is: on the way, in line, at work, on the disk.
    pub fn class(self) -> &'static str {
        match self {
            Stage::Read => "way",
            Stage::Queued => "line",
            Stage::Handled | Stage::Controller | Stage::WaitedForTransaction => "work",
            Stage::Appended => "work2",
            Stage::Synced => "disk",
            Stage::ColdRead => "cold",
            Stage::Behind => "line2",
            Stage::Written => "way2",
            Stage::WaitedForData | Stage::WaitedForGroup | Stage::Throttled => "wait",
        }
    }

    /// Whether a label in the ground's colour can be read on the stage's own.
    pub fn carries_text(self) -> bool {
        matches!(
            self,
            Stage::Read
                | Stage::Queued
                | Stage::Handled
                | Stage::WaitedForTransaction
                | Stage::Controller
                | Stage::Synced
                | Stage::ColdRead
        )
    }

    pub fn meaning(self) -> &'static str {
        match self {
            Stage::Read => "its bytes arrive from the network",
            Stage::Queued => "waits for a free thread",
            Stage::Handled => "is worked on",
            Stage::Appended => "its records are put into the log",
            Stage::Synced => "waits until the disk has them safe",
            Stage::WaitedForData => "waits for new records, as the consumer asked (fetch.max.wait.ms)",
            Stage::ColdRead => "waits for the disk, to read what is no longer in memory",
            Stage::WaitedForGroup => "waits for the other members of its group",
            Stage::WaitedForTransaction => "waits for the coordinator of its transaction",
            Stage::Controller => "waits for a change of the metadata",
            Stage::Throttled => "is muted after its answer, because the client is over a quota",
            Stage::Behind => "waits for an earlier answer on the same connection",
            Stage::Written => "its answer leaves for the network",
        }
    }

    /// Completes "most of it".
    pub fn spent(self) -> &'static str {
        match self {
            Stage::Read => "while its bytes arrive",
            Stage::Queued => "waiting for a free thread",
            Stage::Handled => "being worked on",
            Stage::Appended => "going into the log",
            Stage::Synced => "waiting for the disk",
            Stage::ColdRead => "reading from the disk",
            Stage::WaitedForTransaction => "waiting for the coordinator of its transaction",
            Stage::Controller => "waiting for the controller",
            Stage::Behind => "behind earlier answers",
            Stage::Written => "while its answer leaves",
            Stage::WaitedForData | Stage::WaitedForGroup | Stage::Throttled => "as the client asked",
        }
    }
}

/// The sum without the waits that clients ask for.
pub fn own_micros(stages: &StageMicros) -> u64 {
    let own = Stage::ALL.into_iter().filter(|stage| !stage.is_asked_for());
    own.map(|stage| stages[stage as usize]).sum()
}

/// The stage with the largest part of [`own_micros`]; `None` if there is none.
pub fn dominant(stages: &StageMicros) -> Option<Stage> {
    let own = Stage::ALL.into_iter().filter(|stage| !stage.is_asked_for());
    let largest = own.max_by_key(|stage| stages[*stage as usize])?;
    (stages[largest as usize] > 0).then_some(largest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stages_are_indexed_in_their_order_and_found_by_name() {
        for (index, stage) in Stage::ALL.into_iter().enumerate() {
            assert_eq!(stage as usize, index);
            assert_eq!(Stage::of_name(stage.name()), Some(stage));
        }
    }

    #[test]
    fn what_a_client_asked_for_is_not_its_own_time() {
        let mut stages = [0; STAGE_COUNT];
        stages[Stage::WaitedForData as usize] = 500_000;
        stages[Stage::Handled as usize] = 7;
        assert_eq!(
            (own_micros(&stages), dominant(&stages)),
            (7, Some(Stage::Handled))
        );
        assert_eq!(dominant(&[0; STAGE_COUNT]), None);
    }
}
