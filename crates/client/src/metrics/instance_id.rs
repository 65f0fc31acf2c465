//! The id that a broker gives a client whose metrics it wants (KIP-714).

use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use ottla_wire::primitives::Uuid;

use crate::error::{Error, Feature};

/// The id under which the brokers know this client instance; shared with every reader of it.
#[derive(Debug, Default)]
pub struct InstanceId {
    state: Mutex<InstanceState>,
    changed: Condvar,
}

#[derive(Clone, Copy, Debug, Default)]
#[cfg_attr(not(feature = "telemetry"), expect(dead_code, reason = "no broker is asked"))]
pub(super) enum InstanceState {
    #[default]
    Unknown,
    Known(Uuid),
    /// `enable.metrics.push` is off, no broker wants telemetry, or the client is closed.
    Never,
}

impl InstanceId {
    /// The id, if a broker has given one.
    pub fn get(&self) -> Option<Uuid> {
        match *self.state.lock().unwrap_or_else(PoisonError::into_inner) {
            InstanceState::Known(id) => Some(id),
            InstanceState::Unknown | InstanceState::Never => None,
        }
    }

    /// Waits for the id.
    ///
    /// - Errors: `Timeout`; `IllegalState` when telemetry is off.
    pub fn wait(&self, limit: Duration) -> Result<Uuid, Error> {
        let start = Instant::now();
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            match *state {
                InstanceState::Known(id) => return Ok(id),
                InstanceState::Never => {
                    return Err(Error::IllegalState {
                        message: off().into(),
                    });
                }
                InstanceState::Unknown => {}
            }
            let Some(left) = limit.checked_sub(start.elapsed()).filter(|left| !left.is_zero()) else {
                return Err(Error::Timeout {
                    what: "the client instance id".into(),
                    limit_ms: limit.as_millis() as u64,
                    setting: "the call's timeout",
                });
            };
            state = self
                .changed
                .wait_timeout(state, left)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
    }

    pub(super) fn set(&self, new: InstanceState) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if !matches!((&*state, &new), (InstanceState::Known(_), InstanceState::Never)) {
            *state = new;
        }
        drop(state);
        self.changed.notify_all();
    }
}

fn off() -> String {
    let why = match Feature::Telemetry.is_built() {
        true => "telemetry is off (enable.metrics.push)".to_owned(),
        false => Feature::Telemetry.missing(),
    };
    format!("there is no client instance id: {why}")
}
