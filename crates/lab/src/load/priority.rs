//! Priorities among the threads of one generator.

use thread_priority::{
    NormalThreadSchedulePolicy, ThreadPriority, ThreadSchedulePolicy, set_thread_priority_and_policy,
    thread_native_id,
};

/// From now on this thread, and every thread that it starts, runs only when no other thread wants
/// to, and is preempted as soon as one does (`SCHED_IDLE`). With mere niceness a thread that wakes
/// up would first wait until the time slice of the nice one is over.
///
/// - Errors: why the system does not allow it.
pub fn give_way() -> Result<(), String> {
    let idle = ThreadSchedulePolicy::Normal(NormalThreadSchedulePolicy::Idle);
    set_thread_priority_and_policy(thread_native_id(), ThreadPriority::Min, idle)
        .map_err(|error| format!("{error:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    /// `policy` in proc_pid_stat(5), the 41st field; the second one is a name in parentheses.
    fn policy_of_this_thread() -> u32 {
        let stat = std::fs::read_to_string("/proc/thread-self/stat").unwrap();
        let after_name = &stat[stat.rfind(')').unwrap() + 1..];
        after_name
            .split_whitespace()
            .nth(41 - 3)
            .unwrap()
            .parse()
            .unwrap()
    }

    const SCHED_OTHER: u32 = 0;
    const SCHED_IDLE: u32 = 5;

    #[test]
    fn a_thread_and_those_that_it_starts_give_way_but_others_do_not() {
        let (own, child) = thread::spawn(|| {
            give_way().unwrap();
            let child = thread::spawn(policy_of_this_thread).join().unwrap();
            (policy_of_this_thread(), child)
        })
        .join()
        .unwrap();
        assert_eq!((own, child), (SCHED_IDLE, SCHED_IDLE));
        assert_eq!(policy_of_this_thread(), SCHED_OTHER);
    }
}
