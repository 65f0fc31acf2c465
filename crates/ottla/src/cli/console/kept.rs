//! Answers of the cluster are kept for some seconds: a page that is viewed is made once a second.

use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use ottla_console::source::{AsOf, Told, Untold};

use crate::cli::doctor::now_ms;

/// Answers that are kept of one kind, by what was asked: 32 looks at records are 25 MB at most.
const ANSWERS_MAX: usize = 32;

/// An answer of the cluster, for as long as it counts as new.
#[derive(Debug)]
pub struct Kept<T> {
    for_at_most: Duration,
    state: Mutex<State<T>>,
    /// The asker has its answer.
    answered: Condvar,
}

#[derive(Debug)]
struct State<T> {
    /// The last answer that was one, and when it came, in milliseconds since 1970.
    last: Option<(i64, T)>,
    /// Why the last question had no answer.
    problem: Option<Untold>,
    /// When the last question was over.
    asked: Option<Instant>,
    is_asked: bool,
}

impl<T> State<T> {
    fn is_new(&self, for_at_most: Duration) -> bool {
        self.asked.is_some_and(|at| at.elapsed() < for_at_most)
    }
}

impl<T: Clone> State<T> {
    /// The last value, also if the cluster has not answered since.
    fn told(&self) -> Option<Told<T>> {
        match (&self.last, &self.problem) {
            (Some((_, value)), _) => Some(Ok(value.clone())),
            (None, Some(problem)) => Some(Err(problem.clone())),
            (None, None) => None,
        }
    }
}

impl<T: Clone> Kept<T> {
    pub fn new(for_at_most: Duration) -> Kept<T> {
        Kept {
            for_at_most,
            state: Mutex::new(State {
                last: None,
                problem: None,
                asked: None,
                is_asked: false,
            }),
            answered: Condvar::new(),
        }
    }

    /// Returns the answer, asking if there is none or the last one is too old. While one asks, all
    /// others get the last value at once; without one they wait for the asker.
    ///
    /// - Errors: the cluster has never answered. After an answer, the last one stays.
    pub fn get(&self, ask: impl FnOnce() -> Told<T>) -> Told<T> {
        let mut state = self.lock();
        while state.is_asked {
            if let Some(told) = state.told() {
                return told;
            }
            state = self.answered.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        if state.is_new(self.for_at_most)
            && let Some(told) = state.told()
        {
            return told;
        }
        state.is_asked = true;
        drop(state);
        let _asking = Asking(self);
        let told = ask();
        let mut state = self.lock();
        match &told {
            Ok(value) => {
                state.last = Some((now_ms(), value.clone()));
                state.problem = None;
            }
            Err(problem) => state.problem = Some(problem.clone()),
        }
        state.told().unwrap_or(told)
    }

    /// The age of the last value; `None`: there is none.
    pub fn as_of(&self) -> Option<AsOf> {
        let state = self.lock();
        let (at_ms, _) = state.last.as_ref()?;
        Some(AsOf {
            at_ms: *at_ms,
            problem: state.problem.clone(),
        })
    }

    fn lock(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One asks. Ends also when the question panics, so that others do not wait for ever.
struct Asking<'a, T: Clone>(&'a Kept<T>);

impl<T: Clone> Drop for Asking<'_, T> {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.is_asked = false;
        state.asked = Some(Instant::now());
        drop(state);
        self.0.answered.notify_all();
    }
}

/// Answers by what was asked.
#[derive(Debug)]
pub struct KeptBy<K, T> {
    for_at_most: Duration,
    all: Mutex<BTreeMap<K, Arc<Kept<T>>>>,
}

impl<K: Ord + Clone, T: Clone> KeptBy<K, T> {
    pub fn new(for_at_most: Duration) -> KeptBy<K, T> {
        KeptBy {
            for_at_most,
            all: Mutex::default(),
        }
    }

    /// As [`Kept::get`].
    pub fn get(&self, key: &K, ask: impl FnOnce() -> Told<T>) -> Told<T> {
        let mut all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        if !all.contains_key(key) && all.len() >= ANSWERS_MAX {
            // What is looked at now is asked again at once; what is not stays away.
            all.clear();
        }
        let kept = all
            .entry(key.clone())
            .or_insert_with(|| Arc::new(Kept::new(self.for_at_most)))
            .clone();
        drop(all);
        kept.get(ask)
    }

    pub fn as_of(&self, key: &K) -> Option<AsOf> {
        let all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        all.get(key)?.as_of()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::thread;

    use super::*;

    fn untold() -> Untold {
        Untold(String::from("no"))
    }

    #[test]
    fn what_was_just_asked_is_not_asked_again() {
        let kept = Kept::new(Duration::MAX);
        assert_eq!(kept.get(|| Ok(1)), Ok(1));
        assert_eq!(kept.get(|| unreachable!()), Ok(1));
        let refused = Kept::<u32>::new(Duration::MAX);
        assert_eq!(refused.get(|| Err(untold())), Err(untold()));
        assert_eq!(refused.get(|| unreachable!()), Err(untold()));
    }

    #[test]
    fn what_is_old_is_asked_again() {
        let kept = Kept::new(Duration::ZERO);
        assert_eq!(kept.get(|| Ok(1)), Ok(1));
        assert_eq!(kept.get(|| Ok(2)), Ok(2));
        assert_eq!(kept.as_of().unwrap().problem, None);
    }

    /// The error was kept in its place, and the page became empty.
    #[test]
    fn the_last_value_stays_when_the_cluster_does_not_answer_and_its_age_is_told() {
        let kept = Kept::new(Duration::ZERO);
        assert_eq!(kept.as_of(), None);
        assert_eq!(kept.get(|| Ok(1)), Ok(1));
        assert_eq!(kept.get(|| Err(untold())), Ok(1));
        assert_eq!(kept.as_of().unwrap().problem, Some(untold()));
        assert_eq!(kept.get(|| Ok(2)), Ok(2));
        assert_eq!(kept.as_of().unwrap().problem, None);
    }

    /// All viewers waited for the lock for as long as the cluster was asked.
    #[test]
    fn while_one_asks_others_get_the_last_value_at_once() {
        let kept = Kept::new(Duration::ZERO);
        assert_eq!(kept.get(|| Ok(1)), Ok(1));
        let (begun, is_begun) = mpsc::channel();
        let (answer, is_answered) = mpsc::channel();
        let kept = &kept;
        thread::scope(|scope| {
            let asker = scope.spawn(move || {
                kept.get(|| {
                    begun.send(()).unwrap();
                    Ok(is_answered.recv().unwrap())
                })
            });
            is_begun.recv().unwrap();
            assert_eq!(kept.get(|| unreachable!("one asks already")), Ok(1));
            answer.send(2).unwrap();
            assert_eq!(asker.join().unwrap(), Ok(2));
        });
    }

    #[test]
    fn a_question_that_panics_does_not_hold_up_the_next_one() {
        let kept = Kept::<u32>::new(Duration::ZERO);
        let asked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| kept.get(|| panic!("a bug"))));
        assert!(asked.is_err());
        assert_eq!(kept.get(|| Ok(1)), Ok(1));
    }

    #[test]
    fn answers_are_kept_by_what_was_asked_and_not_without_end() {
        let kept = KeptBy::new(Duration::MAX);
        for key in 0..1_000 {
            assert_eq!(kept.get(&key, || Ok(key * 2)), Ok(key * 2));
            assert_eq!(kept.get(&key, || unreachable!()), Ok(key * 2));
            assert!(kept.all.lock().unwrap().len() <= ANSWERS_MAX);
        }
        assert_eq!((kept.as_of(&0), kept.as_of(&999).is_some()), (None, true));
    }
}
