//! Carries packets between two TUN devices as a line between them would: delayed, and limited in
//! bandwidth.

use std::collections::VecDeque;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};

use super::line::{Line, Way};
use super::timer::Timer;
use crate::scenario::model::LinkSpec;

/// The largest packet: a device's MTU is 1,500 unless it is changed.
const PACKET_BYTES_MAX: usize = 65_535;

/// The most packets under way in each direction; more wait in the device's own queue, and beyond
/// that are lost, as on any line.
const PACKETS_MAX: usize = 64 * 1024;

/// A running line between two devices. Dropping it closes them.
#[derive(Debug)]
pub struct Carrier {
    stop: Arc<OwnedFd>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Carrier {
    /// - Shape: both descriptors are TUN devices without packet information, not blocking; `near`
    ///   is the clients'.
    pub fn start(near: OwnedFd, far: OwnedFd, spec: &LinkSpec) -> io::Result<Carrier> {
        let stop = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        let mut packets = Packets {
            line: Line::new(spec),
            timer: Timer::new()?,
            devices: [near, far],
            under_way: [VecDeque::new(), VecDeque::new()],
        };
        let stopped = stop.clone();
        let thread = std::thread::Builder::new()
            .name(super::relay::THREAD_NAME.into())
            .spawn(move || while packets.turn(&stopped) {})?;
        Ok(Carrier {
            stop,
            thread: Some(thread),
        })
    }
}

impl Drop for Carrier {
    fn drop(&mut self) {
        let _ = rustix::io::write(&*self.stop, &1u64.to_ne_bytes());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

struct Packet {
    arrival: u64,
    bytes: Box<[u8]>,
}

struct Packets {
    line: Line,
    timer: Timer,
    /// The clients' device, then the broker's.
    devices: [OwnedFd; 2],
    /// By way.
    under_way: [VecDeque<Packet>; 2],
}

impl Packets {
    /// Waits for something to do and does it; returns false when it should stop.
    fn turn(&mut self, stop: &OwnedFd) -> bool {
        let ways = [Way::ToBroker, Way::ToClient];
        let now = self.timer.now();
        let takes = ways.map(|way| self.takes(way, now));
        let moments = ways.into_iter().filter_map(|way| {
            let arrival = self.under_way[way as usize].front().map(|packet| packet.arrival);
            let opens = (!takes[way as usize])
                .then(|| self.line.opens_at(way))
                .filter(|at| *at > now);
            [arrival, opens].into_iter().flatten().min()
        });
        let next = moments.min();
        if self.timer.arm(next.map(|moment| moment.max(1))).is_err() {
            return false;
        }
        // A device that must not be read is not polled for reading, or the wait would return at
        // once every time.
        let interest = |takes: bool| if takes { PollFlags::IN } else { PollFlags::empty() };
        let mut descriptors = [
            PollFd::new(&self.devices[0], interest(takes[0])),
            PollFd::new(&self.devices[1], interest(takes[1])),
            PollFd::new(&self.timer, PollFlags::IN),
            PollFd::new(stop, PollFlags::IN),
        ];
        match poll(&mut descriptors, None) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(_) => return false,
        }
        let [near, far, timer, stop] = descriptors.map(|descriptor| !descriptor.revents().is_empty());
        if timer {
            self.timer.rang();
        }
        if near && takes[0] {
            self.take_in(Way::ToBroker);
        }
        if far && takes[1] {
            self.take_in(Way::ToClient);
        }
        ways.into_iter().for_each(|way| self.hand_over(way));
        !stop
    }

    fn takes(&self, way: Way, now: u64) -> bool {
        self.line.opens_at(way) <= now && self.under_way[way as usize].len() < PACKETS_MAX
    }

    fn take_in(&mut self, way: Way) {
        let mut buffer = [0; PACKET_BYTES_MAX];
        let now = self.timer.now();
        while self.takes(way, now)
            && let Ok(bytes) = rustix::io::read(&self.devices[way as usize], &mut buffer)
        {
            let arrival = self.line.enter(way, now, bytes);
            let bytes = buffer[..bytes].into();
            self.under_way[way as usize].push_back(Packet { arrival, bytes });
        }
    }

    fn hand_over(&mut self, way: Way) {
        let now = self.timer.now();
        let device = &self.devices[1 - way as usize];
        while let Some(packet) = self.under_way[way as usize].pop_front_if(|packet| packet.arrival <= now) {
            // A device that is down or full drops the packet, and TCP retransmits it.
            let _ = rustix::io::write(device, &packet.bytes);
        }
    }
}
