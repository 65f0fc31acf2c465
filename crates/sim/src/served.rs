//! Our own broker behind the simulated network: killed, losing power, restarted.

use ottla_client::machine::network::io::Event;
use ottla_client::machine::time::Moment;
use ottla_core::time::Clock;
use ottla_wire::api_key::ApiKey;
use ottla_wire::frame::RequestHeader;
use ottla_wire::primitives::Reader;

use crate::brokers::Played;
use crate::client::{create_topic, read_to_end};
use crate::network::{Begun, Finished, Network, Server, response_frame};
use crate::producing::Backend;
use crate::world::{Call, Outcome, World};

/// The broker's port; there is only one broker.
const PORT: u16 = 9092;
/// The interval at which a waiting request is polled.
const LOOK_MICROS: u64 = 200;

/// The faults of the broker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hurt {
    Kill,
    PowerCut,
}

/// One broker on one machine.
pub struct Served {
    world: World,
    partition_count: i32,
    hurt: Hurt,
    /// A fault happens once in this many steps.
    hurt_rate: u64,
    is_quiet: bool,
}

/// A request in progress at the broker.
pub struct Work {
    api_key: ApiKey,
    api_version: i16,
    correlation_id: i32,
    call: Call,
}

impl Served {
    pub fn new(seed: u64, partition_count: i32, hurt: Hurt, hurt_rate: u64) -> Served {
        let address = format!("PLAINTEXT://127.0.0.1:{PORT}");
        let durability = match hurt {
            // A killed process does not affect the page cache.
            Hurt::Kill => "page-cache",
            Hurt::PowerCut => "disk",
        };
        let properties = [
            ("listeners", address.as_str()),
            ("advertised.listeners", address.as_str()),
            ("ottla.durability", durability),
        ];
        let mut served = Served {
            world: World::new(seed, &properties),
            partition_count,
            hurt,
            hurt_rate,
            is_quiet: false,
        };
        served.start();
        served
    }

    fn start(&mut self) {
        while !self.world.is_running() || !create_topic(&mut self.world, self.partition_count) {
            if !self.world.is_running() {
                self.world.start();
            }
            self.world.step();
        }
    }

    /// Advances the broker's clock to at least the network's.
    fn catch_up(&mut self, now: Moment) {
        let micros = now.micros();
        let behind = micros.saturating_sub(self.world.clock.moment().micros());
        self.world.clock.advance(behind);
    }
}

impl Server for Served {
    type Work = Work;

    fn is_up(&self, _port: u16) -> bool {
        self.world.is_running()
    }

    fn begin(&mut self, now: Moment, _port: u16, frame: &[u8]) -> Begun<Work> {
        self.catch_up(now);
        if !self.world.is_running() {
            return Begun::Closes;
        }
        let mut reader = Reader::new(frame);
        let header = RequestHeader::decode(&mut reader).expect("the client encodes well");
        let call = self.world.call(header.api_key, header.api_version, reader.rest());
        Begun::Works {
            micros: self.world.random.below(LOOK_MICROS),
            work: Work {
                api_key: header.api_key,
                api_version: header.api_version,
                correlation_id: header.correlation_id,
                call,
            },
        }
    }

    fn finish(&mut self, now: Moment, _port: u16, mut work: Work) -> Finished<Work> {
        self.catch_up(now);
        self.world.step();
        match self.world.poll(&mut work.call) {
            None => Finished::Later {
                micros: 1 + self.world.random.below(LOOK_MICROS),
                work,
            },
            Some(Outcome::Lost(_)) => Finished::Silently,
            Some(Outcome::Answer(body)) => Finished::Answer(response_frame(
                work.api_key,
                work.api_version,
                work.correlation_id,
                &body,
            )),
        }
    }
}

impl Backend for Served {
    fn addresses(&self) -> String {
        format!("127.0.0.1:{PORT}")
    }

    fn partition_count(&self) -> usize {
        self.partition_count as usize
    }

    fn values(&mut self, partition: usize) -> Vec<String> {
        loop {
            self.start();
            let Some(records) = read_to_end(&mut self.world, partition as i32, 0) else {
                continue;
            };
            let offsets = records.iter().map(|(offset, _)| *offset);
            assert!(offsets.eq(0..records.len() as i64), "offsets have no gaps");
            return records.into_iter().map(|(_, value)| value).collect();
        }
    }

    fn shake(&mut self, now: Moment, network: &mut Network<Work>, events: &mut Vec<Event>) {
        self.catch_up(now);
        if self.world.is_running() && !self.is_quiet && self.world.random.one_in(self.hurt_rate) {
            match self.hurt {
                Hurt::Kill => self.world.kill(),
                Hurt::PowerCut => {
                    let operation = self.world.disk.operations() + self.world.random.below(40);
                    self.world.disk.cut_power_at(operation);
                }
            }
        }
        if self.world.is_running() {
            self.world.step();
        } else {
            network.cut(PORT, events);
            if self.world.random.one_in(10) {
                self.start();
            }
        }
    }

    fn calm_down(&mut self) {
        self.is_quiet = true;
        self.start();
    }

    fn played(&self) -> Played {
        Played {
            starts: self.world.starts,
            ..Played::default()
        }
    }
}
