//! Deficit round robin: payers take turns by the cost of their work.
//!
//! Each payer has a queue and a credit. If the payer at the front has enough credit for its first
//! piece of work, that work is handed out; if not, it gets one quantum more and goes to the end. So
//! payers with waiting work share evenly, in bytes rather than in pieces, and a newcomer waits for
//! one turn of each other payer, however much they have queued. (Shreedhar and Varghese, "Efficient
//! Fair Queuing using Deficit Round Robin", 1995.)

use std::collections::{BTreeMap, VecDeque};

/// No work counts for more than this many quanta: its estimate may be wrong.
const COST_TURNS_MAX: u64 = 16;

#[derive(Debug)]
pub struct FairQueue<K, T> {
    /// Payers with waiting or running work.
    payers: BTreeMap<K, Account<T>>,
    /// Payers with waiting work.
    ring: VecDeque<K>,
    quantum: i64,
    running_max: usize,
    waiting: usize,
}

#[derive(Debug)]
struct Account<T> {
    work: VecDeque<(i64, T)>,
    credit: i64,
    running: usize,
}

/// Work being done; must be handed back to [`FairQueue::finish`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Charge<K> {
    payer: K,
    cost: i64,
}

impl<K: Copy + Ord, T> FairQueue<K, T> {
    /// - Units: `quantum` is what a payer may spend in one turn; at most `running_max` pieces of
    ///   its work run at once.
    pub fn new(quantum: u64, running_max: usize) -> FairQueue<K, T> {
        FairQueue {
            payers: BTreeMap::new(),
            ring: VecDeque::new(),
            quantum: i64::try_from(quantum).unwrap_or(i64::MAX / COST_TURNS_MAX as i64),
            running_max,
            waiting: 0,
        }
    }

    /// The number of waiting pieces of work.
    pub fn len(&self) -> usize {
        self.waiting
    }

    pub fn is_empty(&self) -> bool {
        self.waiting == 0
    }

    pub fn push(&mut self, payer: K, cost: u64, work: T) {
        let cost = self.bounded(cost);
        let account = self.payers.entry(payer).or_insert_with(|| Account {
            work: VecDeque::new(),
            credit: self.quantum,
            running: 0,
        });
        if account.work.is_empty() {
            self.ring.push_back(payer);
        }
        account.work.push_back((cost, work));
        self.waiting += 1;
    }

    /// Returns the next piece of work; `None` when none waits, or all payers with waiting work are
    /// at their concurrency limit.
    pub fn pop(&mut self) -> Option<(Charge<K>, T)> {
        let mut blocked = 0;
        while blocked < self.ring.len() {
            let payer = *self.ring.front()?;
            let account = self
                .payers
                .get_mut(&payer)
                .expect("a payer in the ring has an account");
            let (cost, _) = account.work.front().expect("a payer in the ring has work");
            let cost = *cost;
            if account.running >= self.running_max {
                blocked += 1;
                self.ring.rotate_left(1);
                continue;
            }
            blocked = 0;
            if account.credit < cost {
                account.credit += self.quantum;
                self.ring.rotate_left(1);
                continue;
            }
            account.credit -= cost;
            account.running += 1;
            let (_, work) = account.work.pop_front().expect("seen above");
            if account.work.is_empty() {
                self.ring.pop_front();
            }
            self.waiting -= 1;
            return Some((Charge { payer, cost }, work));
        }
        None
    }

    /// Settles finished work that has cost `actual`: the difference to the announced cost goes to
    /// the payer's credit.
    pub fn finish(&mut self, charge: Charge<K>, actual: u64) {
        let actual = self.bounded(actual);
        let Some(account) = self.payers.get_mut(&charge.payer) else {
            return;
        };
        account.running -= 1;
        account.credit = (account.credit + charge.cost - actual).min(self.quantum);
        if account.running == 0 && account.work.is_empty() {
            self.payers.remove(&charge.payer);
        }
    }

    fn bounded(&self, cost: u64) -> i64 {
        let cost_max = self.quantum.saturating_mul(COST_TURNS_MAX as i64);
        i64::try_from(cost).unwrap_or(cost_max).min(cost_max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Takes and finishes `count` pieces one after the other; returns what each payer was served.
    fn serve(queue: &mut FairQueue<u32, u64>, count: usize) -> BTreeMap<u32, u64> {
        let mut served = BTreeMap::new();
        for _ in 0..count {
            let (charge, cost) = queue.pop().expect("there is work");
            queue.finish(charge, cost);
            *served.entry(charge.payer).or_default() += cost;
        }
        served
    }

    #[test]
    fn payers_share_by_cost_however_their_work_is_cut() {
        let mut queue = FairQueue::new(100, 1);
        for _ in 0..1_000 {
            queue.push(1, 100, 100);
            queue.push(2, 10, 10);
            queue.push(3, 33, 33);
        }
        let served = serve(&mut queue, 900);
        let (most, least) = (served.values().max().unwrap(), served.values().min().unwrap());
        assert!(most - least <= 200, "{served:?}");
    }

    #[test]
    fn a_newcomer_waits_for_one_turn_of_each_payer() {
        let mut queue = FairQueue::new(100, 1);
        for _ in 0..10_000 {
            queue.push(1, 50, 50);
            queue.push(2, 50, 50);
        }
        serve(&mut queue, 77);
        queue.push(3, 100, 100);
        let before = (0..100).position(|_| serve(&mut queue, 1).contains_key(&3));
        assert!(before.expect("it is served") <= 6, "{before:?}");
    }

    #[test]
    fn a_lone_payer_gets_everything() {
        let mut queue = FairQueue::new(100, 4);
        for _ in 0..10 {
            queue.push(7, 250, 250);
        }
        assert_eq!(serve(&mut queue, 10), BTreeMap::from([(7, 2_500)]));
        assert!(queue.is_empty() && queue.payers.is_empty() && queue.ring.is_empty());
    }

    #[test]
    fn no_payer_runs_more_than_its_limit() {
        let mut queue = FairQueue::new(100, 2);
        for _ in 0..5 {
            queue.push(1, 100, 0);
        }
        let first = queue.pop().expect("a place is free").0;
        queue.pop().expect("another one");
        assert!(queue.pop().is_none(), "a third one");
        queue.push(2, 100, 0);
        assert_eq!(queue.pop().expect("of another").0.payer, 2);
        queue.finish(first, 100);
        assert_eq!(queue.pop().expect("a place is free again").0.payer, 1);
    }

    #[test]
    fn a_payer_that_exceeds_its_estimate_pays_later() {
        let mut queue = FairQueue::new(100, 1);
        for _ in 0..100 {
            queue.push(1, 1, 1);
            queue.push(2, 100, 100);
        }
        let mut counts = [0; 3];
        for _ in 0..60 {
            let (charge, _) = queue.pop().expect("there is work");
            queue.finish(charge, 100);
            counts[charge.payer as usize] += 1;
        }
        assert!(counts[1] <= counts[2] + 2, "{counts:?}");
    }

    #[test]
    fn absurd_costs_do_not_stop_the_ring() {
        let mut queue = FairQueue::new(100, 1);
        queue.push(1, u64::MAX, u64::MAX);
        queue.push(2, 1, 1);
        serve(&mut queue, 2);
        assert!(queue.is_empty());
    }
}
