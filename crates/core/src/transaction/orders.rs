//! The decided transactions of one coordinator, in memory.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// While markers are written, orders are taken out. If the machine was dropped meanwhile, its
/// successor orders its markers again, and the old orders must not come back, nor be reported to
/// the successor: an order that is carried out twice, the second time late, would end the *next*
/// transaction of a producer whose epoch stays.
pub(super) struct Orders<T> {
    /// Raised whenever the machine is dropped.
    generation: u64,
    open: Vec<T>,
}

impl<T> Default for Orders<T> {
    fn default() -> Orders<T> {
        Orders {
            generation: 0,
            open: Vec::new(),
        }
    }
}

impl<T> Orders<T> {
    pub fn push(&mut self, order: T) {
        self.open.push(order);
    }

    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.open.iter()
    }

    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// Forgets all orders, also those that are taken out.
    pub fn drop_all(&mut self) {
        self.generation += 1;
        self.open.clear();
    }
}

/// Orders that are taken out. What is left in here goes back when this is dropped, also by a panic,
/// unless the orders have been forgotten meanwhile.
pub(super) struct Taken<'o, T> {
    home: &'o Mutex<Orders<T>>,
    generation: u64,
    pub orders: Vec<T>,
}

impl<'o, T> Taken<'o, T> {
    pub fn out_of(home: &'o Mutex<Orders<T>>) -> Taken<'o, T> {
        let mut open = lock(home);
        Taken {
            home,
            generation: open.generation,
            orders: std::mem::take(&mut open.open),
        }
    }

    /// Of the machine that gave the orders.
    pub fn generation(&self) -> u64 {
        self.generation
    }
}

impl<T> Drop for Taken<'_, T> {
    fn drop(&mut self) {
        let mut home = lock(self.home);
        if home.generation == self.generation {
            home.open.append(&mut self.orders);
        }
    }
}

pub(super) fn lock<T>(orders: &Mutex<Orders<T>>) -> MutexGuard<'_, Orders<T>> {
    orders.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::*;

    fn orders() -> Mutex<Orders<i32>> {
        let mut orders = Orders::default();
        orders.push(1);
        Mutex::new(orders)
    }

    fn open(orders: &Mutex<Orders<i32>>) -> Vec<i32> {
        lock(orders).iter().copied().collect()
    }

    #[test]
    fn orders_of_a_machine_that_was_dropped_do_not_come_back() {
        let orders = orders();
        let taken = Taken::out_of(&orders);
        assert!(open(&orders).is_empty());
        drop(taken);
        assert_eq!(open(&orders), [1]);
        let taken = Taken::out_of(&orders);
        lock(&orders).drop_all();
        lock(&orders).push(2);
        drop(taken);
        assert_eq!(open(&orders), [2]);
    }

    /// They were lost: their transactions stayed in Prepare until a restart.
    #[test]
    fn orders_that_a_panic_interrupts_come_back() {
        let orders = orders();
        let interrupted = catch_unwind(AssertUnwindSafe(|| {
            let taken = Taken::out_of(&orders);
            assert!(taken.orders.is_empty(), "a bug while the markers are written");
        }));
        assert!(interrupted.is_err());
        assert_eq!(open(&orders), [1]);
    }
}
