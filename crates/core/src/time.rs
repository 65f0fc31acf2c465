//! The two kinds of time, and the clocks that the shell provides.

pub use ottla_wire::time::{Clock, Moment, Timestamp};
