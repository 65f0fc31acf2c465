//! The thread that serves a group's connections.

use std::collections::VecDeque;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::event::{Timespec, epoll};

use super::RequestLoad;
use super::connection::{Connection, Sent};
use super::pace::Pace;
use super::payload::Requests;
use crate::load::Course;
use crate::load::clock::{Span, now_nanos};
use crate::load::errors::Errors;
use crate::load::outcome::RequestOutcome;
use crate::load::schedule::{be_punctual, wait_until};

const EVENTS_PER_WAIT: usize = 256;
const READ_BYTES: usize = 64 << 10;
/// The interval at which the thread checks whether it should stop.
const LOOK_NANOS: u64 = 50_000_000;
/// A connection that was refused or lost is reopened after this time.
const AFTER_FAILURE_NANOS: u64 = 10_000_000;
/// Requests that are begun before answers are read again: without a rate there would always be
/// connections with room.
const BEGUN_PER_TURN: usize = 4_096;

/// A running group.
pub(super) struct Crowd<'a> {
    load: &'a RequestLoad,
    stop: &'a AtomicBool,
    span: Span,
    requests: Requests,
    pace: Pace,
    epoll: OwnedFd,
    connections: Vec<Connection>,
    /// Connections with room for a request, each once, the longest idle first.
    ready: VecDeque<usize>,
    /// Connections with something to write.
    touched: Vec<usize>,
    /// When failed connections may retry; all wait equally long, so they are in order.
    resting: VecDeque<(u64, usize)>,
    /// Connections opened over the whole course: each has the next client id.
    opened: u64,
    errors: Errors,
    outcome: RequestOutcome,
}

impl<'a> Crowd<'a> {
    pub fn new(load: &'a RequestLoad, course: &'a Course) -> io::Result<Crowd<'a>> {
        let span = Span::of(course);
        let count = load.connections as usize;
        let mut connections = Vec::new();
        connections.resize_with(count, Connection::default);
        let mut crowd = Crowd {
            load,
            stop: &course.stop,
            span,
            requests: Requests::new(load),
            pace: Pace::new(span.begin_nanos, load.rate, load.burst_every),
            epoll: epoll::create(epoll::CreateFlags::CLOEXEC)?,
            connections,
            ready: VecDeque::with_capacity(count),
            touched: Vec::with_capacity(count),
            resting: VecDeque::new(),
            opened: 0,
            errors: Errors::default(),
            outcome: RequestOutcome {
                name: load.name.clone(),
                ..RequestOutcome::default()
            },
        };
        (0..count).for_each(|number| crowd.offer(number));
        Ok(crowd)
    }

    pub fn run(mut self) -> RequestOutcome {
        be_punctual();
        let mut now = wait_until(self.span.begin_nanos, now_nanos(), self.stop);
        let mut events = Vec::with_capacity(EVENTS_PER_WAIT);
        let mut buffer = vec![0; READ_BYTES];
        while now < self.span.end_nanos && !self.stop.load(Ordering::Relaxed) {
            self.wake_rested(now);
            let has_more = self.begin_due(now);
            self.flush_touched();
            if let Err(error) = self.wait(&mut events, now, has_more) {
                self.errors.add(&format!("the generator cannot wait: {error}"), 1);
                break;
            }
            for event in &events {
                let number = event.data.u64() as usize;
                self.on_socket(number, &mut buffer);
            }
            now = now_nanos();
        }
        self.end(now)
    }

    fn offer(&mut self, number: usize) {
        let connection = &mut self.connections[number];
        let room = match self.load.reconnects {
            true => 1,
            false => self.load.in_flight as usize,
        };
        if !connection.is_ready && connection.waiting.len() < room {
            connection.is_ready = true;
            self.ready.push_back(number);
        }
    }

    fn wake_rested(&mut self, now: u64) {
        while let Some((at, number)) = self.resting.front().copied()
            && at <= now
        {
            self.resting.pop_front();
            self.offer(number);
        }
    }

    /// Assigns due requests to connections with room; returns true if there are more to begin at
    /// once.
    fn begin_due(&mut self, now: u64) -> bool {
        for _ in 0..BEGUN_PER_TURN {
            let due = self.pace.due_nanos().unwrap_or(now);
            if due > now {
                return false;
            }
            let Some(number) = self.ready.pop_front() else {
                return false;
            };
            self.connections[number].is_ready = false;
            if !self.connections[number].is_open()
                && let Err(error) = self.open(number)
            {
                self.lost(number, &error, now);
                continue;
            }
            self.pace.advance();
            let connection = &mut self.connections[number];
            connection.push(due, now);
            if !std::mem::replace(&mut connection.is_touched, true) {
                self.touched.push(number);
            }
            self.offer(number);
        }
        true
    }

    fn open(&mut self, number: usize) -> io::Result<()> {
        let client_id = format!(
            "{}-{}",
            self.load.name,
            self.opened % u64::from(self.load.client_ids)
        );
        self.opened += 1;
        let frame = self.requests.frame(number, &client_id);
        let connection = &mut self.connections[number];
        connection.open(self.load.address, self.load.source, frame)?;
        let flags =
            epoll::EventFlags::IN | epoll::EventFlags::OUT | epoll::EventFlags::RDHUP | epoll::EventFlags::ET;
        if let Some(socket) = connection.socket() {
            epoll::add(
                &self.epoll,
                socket,
                epoll::EventData::new_u64(number as u64),
                flags,
            )?;
        }
        if self.span.is_measured(now_nanos()) {
            self.outcome.opened += 1;
        }
        Ok(())
    }

    fn flush_touched(&mut self) {
        let mut touched = std::mem::take(&mut self.touched);
        for number in touched.drain(..) {
            self.connections[number].is_touched = false;
            if let Err(error) = self.connections[number].flush() {
                self.lost(number, &error, now_nanos());
            }
        }
        self.touched = touched;
    }

    fn wait(&mut self, events: &mut Vec<epoll::Event>, now: u64, has_more: bool) -> io::Result<()> {
        events.clear();
        let is_blocked = self.ready.is_empty();
        let due = self.pace.due_nanos().filter(|_| !is_blocked);
        let rested = self.resting.front().map(|(at, _)| *at);
        let look = now.saturating_add(LOOK_NANOS).min(self.span.end_nanos);
        let until = due.into_iter().chain(rested).fold(look, u64::min);
        let nanos = if has_more { 0 } else { until.saturating_sub(now) };
        let timeout = Timespec {
            tv_sec: (nanos / 1_000_000_000).cast_signed(),
            tv_nsec: (nanos % 1_000_000_000).cast_signed(),
        };
        match epoll::wait(
            &self.epoll,
            rustix::buffer::spare_capacity(events),
            Some(&timeout),
        ) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    fn on_socket(&mut self, number: usize, buffer: &mut [u8]) {
        let now = now_nanos();
        let is_measured = self.span.is_measured(now);
        let has_rate = self.load.rate.is_some();
        let (requests, outcome, errors) = (&self.requests, &mut self.outcome, &mut self.errors);
        let mut answered = 0;
        let take = |sent: Sent, answer: &[u8]| {
            answered += 1;
            match requests.judge(answer, sent.correlation_id) {
                Ok(()) if is_measured => count(outcome, sent, answer, now, has_rate),
                Ok(()) => {}
                Err(why) => {
                    outcome.failed += u64::from(is_measured);
                    errors.add(&why, 1);
                }
            }
        };
        let connection = &mut self.connections[number];
        let done = connection.read(buffer, take).and_then(|()| connection.flush());
        match done {
            Err(error) => self.lost(number, &error, now),
            Ok(()) if answered > 0 => {
                if self.load.reconnects {
                    self.connections[number].close();
                }
                self.offer(number);
            }
            Ok(()) => {}
        }
    }

    /// A connection could not be opened, or has ended: what was under way on it is lost.
    fn lost(&mut self, number: usize, error: &io::Error, now: u64) {
        let connection = &mut self.connections[number];
        if self.span.is_measured(now) {
            self.outcome.failed += connection.waiting.len() as u64;
        }
        self.errors.add(&error.to_string(), 1);
        connection.close();
        // It may still be in the queue of connections with room: then it is opened when its turn
        // comes.
        if !connection.is_ready {
            self.resting.push_back((now + AFTER_FAILURE_NANOS, number));
        }
    }

    fn end(mut self, now: u64) -> RequestOutcome {
        let ended = now.min(self.span.end_nanos);
        self.outcome.seconds = ended.saturating_sub(self.span.measured_nanos) as f64 / 1e9;
        let waiting = self
            .connections
            .iter()
            .map(|connection| connection.waiting.len() as u64);
        self.outcome.unanswered = waiting.sum();
        while let Some(due) = self.pace.due_nanos()
            && due < ended
        {
            self.pace.advance();
            self.outcome.unanswered += 1;
        }
        self.connections.iter_mut().for_each(Connection::close);
        self.outcome.errors = self.errors.into_map();
        self.outcome
    }
}

fn count(outcome: &mut RequestOutcome, sent: Sent, answer: &[u8], now: u64, has_rate: bool) {
    outcome.answered += 1;
    outcome.bytes += answer.len() as u64;
    if has_rate {
        outcome.latency.record(now.saturating_sub(sent.due_nanos) / 1_000);
    }
    outcome
        .service
        .record(now.saturating_sub(sent.sent_nanos) / 1_000);
}
