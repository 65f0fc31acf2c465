//! What the kernel of the machine that a collector runs on tells of clients of Apache Kafka: the
//! round trips of their connections, where a broker is on the same machine, and how busy the
//! machine is, where a client is.
//!
//! A connection is a client's where it is with the client's address and carries its bytes: no
//! client pushes its port. A queue on the way makes the round trip longer while bytes flow. For a
//! producer two measures of it count only where they agree: the smoothed round trip is also longer
//! where the client delays acknowledgements, the receiver's also where the client pauses.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::{IpAddr, ToSocketAddrs, UdpSocket};

use super::host::host_between;
use crate::doctor::history::{Observed, Path, Source};
use crate::doctor::snapshot::{Client, Role};
use crate::machine::host::HostCounts;
use crate::machine::tcp_sockets::{TcpSocket, established};

/// Rates and round trips are those of this time.
const WINDOW_MS: i64 = 30_000;
/// Fewer bytes per second say nothing of the way.
const RATE_MIN: f64 = 1_000.0;
/// The share of a client's bytes that one connection carries: all of them, within what the two
/// windows differ by, or those to one of a few brokers.
const SHARE: (f64, f64) = (0.25, 1.25);

/// A client that pushes, and the bytes per second that it sends as a producer or reads as a
/// consumer.
#[derive(Clone, Debug, PartialEq)]
pub struct Speaking {
    pub client: Client,
    pub bytes_per_second: Option<f64>,
}

/// The machine at one moment.
#[derive(Clone, Debug, Default)]
pub struct Machine {
    /// Milliseconds since 1970.
    pub at_ms: i64,
    /// Empty as well where the kernel does not tell.
    pub sockets: Vec<TcpSocket>,
    pub host: Option<HostCounts>,
}

impl Machine {
    /// Reads this machine.
    pub fn read(at_ms: i64) -> Machine {
        Machine {
            at_ms,
            sockets: established().unwrap_or_default(),
            host: HostCounts::read(),
        }
    }
}

/// Turns successive readings of the machine into observations of clients.
#[derive(Debug, Default)]
pub struct Paths {
    readings: VecDeque<(i64, BTreeMap<u64, TcpSocket>, Option<HostCounts>)>,
}

impl Paths {
    /// Takes the next reading and returns what it says of the clients.
    pub fn take(&mut self, machine: Machine, clients: &[Speaking]) -> Vec<Observed> {
        let Machine { at_ms, sockets, host } = machine;
        let by_cookie = sockets.into_iter().map(|socket| (socket.cookie, socket));
        self.readings
            .retain(|(before_ms, ..)| *before_ms >= at_ms - WINDOW_MS && *before_ms < at_ms);
        self.readings.push_back((at_ms, by_cookie.collect(), host));
        let connections = self.connections();
        let host = self.host();
        let mut own_addresses = OwnAddresses::default();
        let clients = clients.iter().filter_map(|one| {
            let address: IpAddr = one.client.host()?.parse().ok()?;
            let address = address.to_canonical();
            let path = connection(&connections, address, one).map(|found| found.path(one.client.role));
            let is_here = match address.is_loopback() {
                // It is on the broker's machine, and that is this one.
                true => path.is_some(),
                false => own_addresses.has(address),
            };
            let host = host.filter(|_| is_here);
            (path.is_some() || host.is_some()).then(|| Observed {
                client: Client {
                    client_id: one.client.client_id.clone(),
                    instance_id: one.client.instance_id.clone(),
                    role: one.client.role,
                    ..Client::default()
                },
                source: Source::Machine,
                is_complement: true,
                path,
                host,
                ..Observed::default()
            })
        });
        clients.collect()
    }

    fn host(&self) -> Option<crate::doctor::snapshot::Host> {
        let mut counted = self
            .readings
            .iter()
            .filter_map(|(at_ms, _, host)| Some((*at_ms, host.as_ref()?)));
        host_between(counted.next()?, counted.next_back()?)
    }

    /// The connections that carried bytes in the window.
    fn connections(&self) -> Vec<Connection> {
        let Some((last_ms, last, _)) = self.readings.back() else {
            return Vec::new();
        };
        let all = last.values().filter_map(|now| {
            let known = self
                .readings
                .iter()
                .filter_map(|(at_ms, sockets, _)| Some((*at_ms, sockets.get(&now.cookie)?)));
            let course: Vec<(i64, &TcpSocket)> = known.collect();
            let (first_ms, first) = course.first()?;
            let seconds = (last_ms - first_ms) as f64 / 1e3;
            let rate = |of: fn(&TcpSocket) -> u64| of(now).saturating_sub(of(first)) as f64 / seconds;
            (seconds > 0.0).then(|| {
                Connection::of(
                    *now,
                    &course,
                    [
                        rate(|socket| socket.bytes_received),
                        rate(|socket| socket.bytes_acked),
                    ],
                )
            })
        });
        all.filter(|one| one.received.max(one.sent) >= RATE_MIN).collect()
    }
}

/// One end of a connection over the window.
#[derive(Debug)]
struct Connection {
    peer: IpAddr,
    /// Bytes per second.
    received: f64,
    sent: f64,
    round_trip_micros: u32,
    /// Medians of the readings between which bytes flowed.
    smoothed_micros: Option<u32>,
    both_micros: Option<u32>,
}

impl Connection {
    fn of(now: TcpSocket, course: &[(i64, &TcpSocket)], [received, sent]: [f64; 2]) -> Connection {
        let busy = course.windows(2).filter_map(|pair| {
            let (before, after) = (pair[0].1, pair[1].1);
            let moved =
                (after.bytes_received, after.bytes_acked) != (before.bytes_received, before.bytes_acked);
            moved.then_some(after)
        });
        let busy: Vec<&TcpSocket> = busy.collect();
        let of = |micros: fn(&TcpSocket) -> u32| {
            let values = busy
                .iter()
                .map(|socket| micros(socket))
                .filter(|micros| *micros > 0);
            median(values.collect())
        };
        let least = course.iter().map(|(_, socket)| socket.round_trip_micros).min();
        Connection {
            peer: now.peer.ip(),
            received,
            sent,
            round_trip_micros: least.unwrap_or(now.round_trip_micros),
            smoothed_micros: of(|socket| socket.smoothed_micros),
            both_micros: of(|socket| socket.smoothed_micros.min(socket.receiver_micros)),
        }
    }

    fn path(&self, role: Role) -> Path {
        let loaded = match role {
            Role::Producer => self.both_micros,
            Role::Consumer => self.smoothed_micros,
        };
        Path {
            round_trip_ms: f64::from(self.round_trip_micros) / 1e3,
            loaded_round_trip_ms: loaded.map(|micros| f64::from(micros) / 1e3),
        }
    }

    fn carries(&self, role: Role) -> f64 {
        match role {
            Role::Producer => self.received,
            Role::Consumer => self.sent,
        }
    }
}

/// The connection of a client: with its address, the one that carries most of its bytes.
fn connection<'a>(all: &'a [Connection], address: IpAddr, one: &Speaking) -> Option<&'a Connection> {
    let rate = one.bytes_per_second.filter(|rate| *rate >= RATE_MIN)?;
    let role = one.client.role;
    let is_its = |connection: &&Connection| {
        let share = connection.carries(role) / rate;
        connection.peer == address && (SHARE.0..=SHARE.1).contains(&share)
    };
    let its = all.iter().filter(is_its);
    its.max_by(|one, other| one.carries(role).total_cmp(&other.carries(role)))
}

fn median(mut values: Vec<u32>) -> Option<u32> {
    values.sort_unstable();
    values.get(values.len().saturating_sub(1) / 2).copied()
}

/// Whether the name of a host leads to this machine.
pub(super) fn is_this_machine(host: &str) -> bool {
    let mut own = OwnAddresses::default();
    let addresses = (host, 0).to_socket_addrs();
    addresses.is_ok_and(|mut all| all.any(|address| own.has(address.ip().to_canonical())))
}

/// The addresses of this machine's interfaces, as far as they were asked for.
#[derive(Default)]
struct OwnAddresses {
    own: BTreeSet<IpAddr>,
    others: BTreeSet<IpAddr>,
}

impl OwnAddresses {
    fn has(&mut self, address: IpAddr) -> bool {
        if self.own.contains(&address) {
            return true;
        }
        if self.others.contains(&address) {
            return false;
        }
        // A socket can be bound to an own address only.
        let is_own = UdpSocket::bind((address, 0)).is_ok();
        let known = if is_own { &mut self.own } else { &mut self.others };
        known.insert(address);
        is_own
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use super::*;

    fn socket(cookie: u64, peer: &str, received: u64, micros: [u32; 3]) -> TcpSocket {
        TcpSocket {
            cookie,
            local: SocketAddr::from(([10, 0, 0, 1], 9_092)),
            peer: peer.parse().unwrap(),
            round_trip_micros: micros[0],
            smoothed_micros: micros[1],
            receiver_micros: micros[2],
            bytes_acked: received / 100,
            bytes_received: received,
        }
    }

    fn speaking(client_id: &str, address: &str, bytes_per_second: f64) -> Speaking {
        Speaking {
            client: Client {
                client_id: client_id.to_owned(),
                instance_id: Some(format!("{client_id}-i")),
                address: Some(address.to_owned()),
                ..Client::default()
            },
            bytes_per_second: Some(bytes_per_second),
        }
    }

    fn machine(at_ms: i64, sockets: Vec<TcpSocket>) -> Machine {
        Machine {
            at_ms,
            sockets,
            host: None,
        }
    }

    #[test]
    fn a_connection_is_the_client_s_whose_bytes_it_carries() {
        let mut paths = Paths::default();
        let clients = [
            speaking("far", "10.0.0.2", 1e6),
            speaking("near", "/10.0.0.3:4711", 5e5),
            speaking("quiet", "10.0.0.2", 10.0),
            speaking("elsewhere", "10.0.0.9", 1e6),
        ];
        let sockets = |seconds: u64| {
            vec![
                // The metrics of the same host, and another program's megabytes.
                socket(1, "10.0.0.2:50001", 300 * seconds, [40_000, 41_000, 0]),
                socket(
                    2,
                    "10.0.0.2:50002",
                    1_010_000 * seconds,
                    [40_100, 120_000, 95_000],
                ),
                socket(3, "10.0.0.2:50003", 9_000_000 * seconds, [40_000, 40_000, 40_000]),
                socket(4, "10.0.0.3:50004", 490_000 * seconds, [400, 40_400, 450]),
            ]
        };
        assert!(paths.take(machine(1_000, sockets(1)), &clients).is_empty());
        paths.take(machine(6_000, sockets(6)), &clients);
        let observed = paths.take(machine(11_000, sockets(11)), &clients);
        let told: Vec<(&str, Option<Path>)> = observed
            .iter()
            .map(|one| (one.client.client_id.as_str(), one.path))
            .collect();
        let path = |round_trip_ms, loaded_ms| {
            Some(Path {
                round_trip_ms,
                loaded_round_trip_ms: Some(loaded_ms),
            })
        };
        // Acknowledgements that are delayed by 40 ms are no queue.
        assert_eq!(told, [("far", path(40.1, 95.0)), ("near", path(0.4, 0.45))]);
        assert!(observed.iter().all(|one| one.is_complement && one.host.is_none()));
    }

    #[test]
    fn a_client_of_this_machine_shares_its_processors() {
        let mut paths = Paths::default();
        let counts = |busy, idle| HostCounts {
            processors: 2,
            busy,
            idle,
            stolen: 0,
            waiting_micros: Some(10_000 * busy),
        };
        let clients = [
            speaking("beside", "127.0.0.1", 1e6),
            // Its broker is on another machine than the collector.
            speaking("beside-another-broker", "127.0.0.1", 5e4),
        ];
        let at = |seconds: u64, host| Machine {
            host: Some(host),
            ..machine(
                1_000 * seconds as i64,
                vec![socket(7, "127.0.0.1:50001", 1_000_000 * seconds, [20, 5_000, 30])],
            )
        };
        paths.take(at(1, counts(100, 100)), &clients);
        let observed = paths.take(at(6, counts(1_080, 120)), &clients);
        assert_eq!(observed.len(), 1, "{observed:#?}");
        assert_eq!(observed[0].client.client_id, "beside");
        let host = observed[0].host.unwrap();
        assert_eq!((host.used, host.processors), (Some(0.98), Some(2.0)));
        assert!(!OwnAddresses::default().has(IpAddr::from([192, 0, 2, 1])));
        assert!(is_this_machine("localhost") && !is_this_machine("192.0.2.1"));
    }
}
