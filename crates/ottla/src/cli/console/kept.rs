//! What was asked a moment ago is not asked again: a page is made once a second while it is viewed.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use ottla_console::source::Told;

/// An answer of the cluster, for as long as it counts as new.
#[derive(Debug)]
pub struct Kept<T> {
    for_at_most: Duration,
    last: Mutex<Option<(Instant, Told<T>)>>,
}

impl<T: Clone> Kept<T> {
    pub fn new(for_at_most: Duration) -> Kept<T> {
        Kept {
            for_at_most,
            last: Mutex::default(),
        }
    }

    /// Returns the answer, asking if there is none or the last one is too old. Others who need it
    /// meanwhile wait for the same answer. What was refused is kept as well.
    pub fn get(&self, ask: impl FnOnce() -> Told<T>) -> Told<T> {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((at, told)) = &*last
            && at.elapsed() < self.for_at_most
        {
            return told.clone();
        }
        let told = ask();
        *last = Some((Instant::now(), told.clone()));
        told
    }
}

#[cfg(test)]
mod tests {
    use ottla_console::source::Untold;

    use super::*;

    #[test]
    fn what_was_just_asked_is_not_asked_again() {
        let kept = Kept::new(Duration::MAX);
        assert_eq!(kept.get(|| Ok(1)), Ok(1));
        assert_eq!(kept.get(|| unreachable!()), Ok(1));
        let refused = Kept::<u32>::new(Duration::MAX);
        let untold = Untold(String::from("no"));
        assert_eq!(refused.get(|| Err(untold.clone())), Err(untold.clone()));
        assert_eq!(refused.get(|| unreachable!()), Err(untold));
    }

    #[test]
    fn what_is_old_is_asked_again() {
        let kept = Kept::new(Duration::ZERO);
        assert_eq!(kept.get(|| Ok(1)), Ok(1));
        assert_eq!(kept.get(|| Ok(2)), Ok(2));
    }
}
