//! The two kinds of time, and the clocks that the shell provides.

pub use ottla_wire::time::{Clock, Moment, Timestamp};

/// Both clocks at one instant: deadlines use the first, records the second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Now {
    pub moment: Moment,
    pub timestamp: Timestamp,
}

impl Now {
    pub fn of(clock: &dyn Clock) -> Now {
        Now {
            moment: clock.moment(),
            timestamp: clock.timestamp(),
        }
    }
}
