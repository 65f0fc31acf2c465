//! The threads of a broker as queues of work; the seed picks what runs next.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use ottla_core::executor::{ChargedJob, ColdRead, Executor, Job, LongAnswer};
use ottla_core::node::Node;
use ottla_core::partition::{GroupCommit, Partition};
use ottla_log::disk::memory::Random;

#[derive(Default)]
pub struct SimExecutor {
    lists: Mutex<Lists>,
}

#[derive(Default)]
struct Lists {
    syncs: Vec<Arc<Partition>>,
    /// Syncs in progress: appends, checkpoints and reads may happen before and after the disk's
    /// part.
    commits: Vec<Commit>,
    cold_reads: Vec<ChargedJob>,
    long_answers: Vec<ChargedJob>,
    /// The controller's work, in order.
    control: VecDeque<Job>,
}

enum Commit {
    Begun(GroupCommit),
    Synced(GroupCommit),
}

enum Task {
    Sync(Arc<Partition>),
    Commit(Commit),
    Charged(ChargedJob),
    Job(Job),
}

impl SimExecutor {
    /// Runs one piece of work; false when there is none.
    pub fn run_one(&self, node: &Node, random: &mut Random) -> bool {
        match self.pick(random) {
            Some(Task::Sync(partition)) => self.go_on_later(Commit::Begun(partition.begin_commit())),
            Some(Task::Commit(Commit::Begun(mut commit))) => {
                commit.run();
                self.go_on_later(Commit::Synced(commit));
            }
            Some(Task::Commit(Commit::Synced(commit))) => commit.finish(node),
            Some(Task::Charged(job)) => {
                job(node);
            }
            Some(Task::Job(job)) => job(node),
            None => return false,
        }
        true
    }

    fn go_on_later(&self, commit: Commit) {
        let mut lists = self.lists.lock().expect("nothing panics under this lock");
        lists.commits.push(commit);
    }

    fn pick(&self, random: &mut Random) -> Option<Task> {
        let mut lists = self.lists.lock().expect("nothing panics under this lock");
        let counts = [
            lists.syncs.len(),
            lists.commits.len(),
            lists.cold_reads.len(),
            lists.long_answers.len(),
            usize::from(!lists.control.is_empty()),
        ];
        let mut chosen = random.below(counts.iter().sum::<usize>() as u64) as usize;
        if counts.iter().sum::<usize>() == 0 {
            return None;
        }
        if chosen < counts[0] {
            return Some(Task::Sync(lists.syncs.swap_remove(chosen)));
        }
        chosen -= counts[0];
        if chosen < counts[1] {
            return Some(Task::Commit(lists.commits.swap_remove(chosen)));
        }
        chosen -= counts[1];
        if chosen < counts[2] {
            return Some(Task::Charged(lists.cold_reads.swap_remove(chosen)));
        }
        chosen -= counts[2];
        if chosen < counts[3] {
            return Some(Task::Charged(lists.long_answers.swap_remove(chosen)));
        }
        lists.control.pop_front().map(Task::Job)
    }
}

impl Executor for SimExecutor {
    fn sync(&self, partition: Arc<Partition>) {
        self.lists
            .lock()
            .expect("nothing panics under this lock")
            .syncs
            .push(partition);
    }

    fn cold_read(&self, read: ColdRead) {
        self.lists
            .lock()
            .expect("nothing panics under this lock")
            .cold_reads
            .push(read.job);
    }

    fn long_answer(&self, answer: LongAnswer) {
        self.lists
            .lock()
            .expect("nothing panics under this lock")
            .long_answers
            .push(answer.job);
    }

    fn control(&self, job: Job) {
        self.lists
            .lock()
            .expect("nothing panics under this lock")
            .control
            .push_back(job);
    }

    fn telemetry(&self, job: Job) {
        // In order, like the controller's; a crash cannot lose any of it.
        self.lists
            .lock()
            .expect("nothing panics under this lock")
            .control
            .push_back(job);
    }

    fn deadline_changed(&self) {
        // Not needed: the world asks for the next deadline at every step.
    }
}
