//! Random events in random order: an invariant that holds here holds always.

use std::collections::BTreeSet;

use super::world::*;
use crate::network::backoff::Random;

const SEEDS: u64 = 300;
const STEPS: usize = 400;

/// Random events on one world.
struct Storm {
    world: World,
    random: Random,
    next_ticket: u32,
    /// Sent and not replied to.
    open: BTreeSet<u32>,
    answered: usize,
    failed: usize,
}

impl Storm {
    fn new(seed: u64) -> Storm {
        let world = World::new(Interest::Named);
        world.metadata.want(["t"]);
        Storm {
            world,
            random: Random::new(seed),
            next_ticket: 0,
            open: BTreeSet::new(),
            answered: 0,
            failed: 0,
        }
    }

    fn pick(&mut self, count: usize) -> usize {
        self.random.below(count as u64) as usize
    }

    fn any_connection(&mut self) -> Option<ConnectionId> {
        let count = self.world.connections.len();
        let at = (count > 0).then(|| self.pick(count))?;
        self.world.connections.keys().nth(at).copied()
    }

    fn step(&mut self) {
        match self.pick(12) {
            0 => {
                if let Some(connection) = self.any_connection() {
                    let reason = Error::Disconnected {
                        address: "broker".into(),
                        reason: "storm".into(),
                    };
                    self.world.opening.remove(&connection);
                    self.world.connections.remove(&connection);
                    self.world.seen.retain(|seen| seen.connection != connection);
                    self.world.tell(Event::Closed { connection, reason });
                }
            }
            1 | 2 => {
                if let Some(connection) = self.world.opening.pop_first() {
                    self.world.tell(Event::Connected { connection });
                }
            }
            3..=6 => self.answer(),
            7 | 8 => self.send(),
            9 => {
                let far = self.world.now.after_ms(self.random.below(2000));
                let next = self.world.cluster.next_deadline().map_or(far, |at| at.min(far));
                self.world.now = self.world.now.max(next);
                self.world.turn();
            }
            10 => {
                self.world.cluster.request_metadata();
                self.world.turn();
            }
            _ => {
                let node = NodeId(1 + self.pick(2) as i32);
                self.world.cluster.throttle(self.world.now, node, 20);
            }
        }
        self.collect();
    }

    fn send(&mut self) {
        let node = NodeId(1 + self.pick(2) as i32);
        let is_ready = self.world.cluster.readiness(self.world.now, node) == Readiness::Ready;
        // Sometimes without asking first: that, too, has a reply.
        if is_ready || self.pick(10) == 0 {
            let ticket = self.next_ticket;
            self.next_ticket += 1;
            self.open.insert(ticket);
            let timeout_ms = 100 + self.random.below(3000);
            let expects_answer = self.pick(8) != 0;
            let before = self.world.seen.len();
            self.world.send(node, ticket, timeout_ms, expects_answer);
            if !expects_answer {
                // It gets no answer. Other requests sent along (metadata, say) are answered.
                let at = self.world.seen[before..]
                    .iter()
                    .rposition(|seen| seen.api_key == ApiKey::Heartbeat);
                if let Some(at) = at {
                    self.world.seen.remove(before + at);
                }
            }
        }
        self.world.turn();
    }

    /// Answers the oldest request of a connection, sometimes with damage.
    fn answer(&mut self) {
        if self.world.seen.is_empty() {
            return;
        }
        let request = self.world.seen.remove(0);
        let damage = self.pick(20);
        let mut frame = self.frame(&request);
        match damage {
            0 => frame.truncate(self.pick(frame.len() + 1)),
            1 => {
                let at = self.pick(frame.len());
                frame[at] ^= 1 << self.pick(8);
            }
            2 => frame[0..4].copy_from_slice(&(request.correlation_id ^ 1).to_be_bytes()),
            _ => {}
        }
        self.world.tell(Event::Received {
            connection: request.connection,
            frame: frame.into(),
        });
    }

    fn frame(&mut self, request: &Seen) -> Vec<u8> {
        let leader = 1 + self.pick(2) as i32;
        let mut frame = response_head(request);
        let known = [ApiKey::ApiVersions, ApiKey::Metadata, ApiKey::Heartbeat];
        match request.api_key {
            ApiKey::ApiVersions => versions(&known.map(|api_key| (api_key, 0, api_key.known_versions().max)))
                .encode(&mut frame, request.api_version),
            ApiKey::Metadata => MetadataResponse {
                brokers: [1, 2].map(broker).into(),
                topics: vec![topic("t", leader, 0)],
                ..Default::default()
            }
            .encode(&mut frame, request.api_version),
            _ => frame.extend_from_slice(b"body"),
        }
        frame
    }

    fn collect(&mut self) {
        for (ticket, result) in self.world.outcomes() {
            assert!(
                self.open.remove(&ticket),
                "ticket {ticket} has two replies or was never sent"
            );
            match result {
                Ok(_) => self.answered += 1,
                Err(_) => self.failed += 1,
            }
        }
        // Requests on a closed connection are not answered any more.
        let connections = &self.world.connections;
        self.world
            .seen
            .retain(|seen| connections.contains_key(&seen.connection));
        let in_flight: usize = [1, 2]
            .map(|id| self.world.cluster.in_flight(NodeId(id)))
            .iter()
            .sum();
        assert!(in_flight >= self.open.len(), "{in_flight} < {:?}", self.open);
    }

    /// Time passes without answers: every ticket must come back.
    fn calm(&mut self) {
        self.world.seen.clear();
        let end = self.world.now.after_ms(10_000);
        while self.world.now < end && !self.open.is_empty() {
            let deadline = self.world.cluster.next_deadline().unwrap_or(end);
            self.world.now = self.world.now.max(deadline).min(end);
            self.world.turn();
            self.world.seen.clear();
            self.collect();
        }
        assert!(self.open.is_empty(), "no reply for {:?}", self.open);
    }
}

#[test]
fn every_ticket_comes_back_exactly_once_whatever_happens() {
    let (mut answered, mut failed, mut attempts) = (0, 0, 0);
    for seed in 0..SEEDS {
        let mut storm = Storm::new(seed);
        storm.world.turn();
        for _ in 0..STEPS {
            storm.step();
        }
        storm.calm();
        answered += storm.answered;
        failed += storm.failed;
        attempts += storm.world.attempts.len();
    }
    // The run must have seen enough of every outcome.
    assert!(
        answered > 1000 && failed > 1000 && attempts > 1000,
        "{answered} {failed} {attempts}"
    );
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let story = |seed| {
        let mut storm = Storm::new(seed);
        storm.world.turn();
        (0..STEPS).for_each(|_| storm.step());
        (storm.world.attempts, storm.answered, storm.failed)
    };
    assert_eq!(story(5), story(5));
    assert_ne!(story(5), story(6));
}
