//! One direction of one connection: bytes under way, and the window that bounds them.

use std::collections::VecDeque;
use std::io::IoSlice;

/// The most pieces under way in one direction of a connection; each takes 16 bytes in addition to
/// its own.
const PIECES_MAX: usize = 16 * 1024;

/// The most bytes under way if the link sets no window. 32 MiB in 36 ms are 900 MB/s: more than the
/// relay can move.
const UNLIMITED_BYTES: usize = 32 * 1024 * 1024;

/// A piece of the stream: this many bytes, at this moment.
#[derive(Clone, Copy, Debug)]
struct Piece {
    at: u64,
    bytes: usize,
}

/// Bytes between two sockets. Moments are nanoseconds since the relay started.
///
/// - Shape: `near` holds what was read or rewritten but did not fit into the window; `far` holds
///   what is under way, and `arrivals` when it arrives; `acknowledgements` holds when the room of
///   bytes taken in becomes available again.
#[derive(Debug)]
pub struct Path {
    window_bytes: usize,
    /// The travel time of an acknowledgement; `None` without a window.
    acknowledgement_nanos: Option<u64>,
    near: VecDeque<u8>,
    far: VecDeque<u8>,
    arrivals: VecDeque<Piece>,
    acknowledgements: VecDeque<Piece>,
    unacknowledged: usize,
}

impl Path {
    /// - `window_bytes`: 0 for no window.
    pub fn new(window_bytes: u64, delay_nanos: u64) -> Path {
        let window = usize::try_from(window_bytes).unwrap_or(UNLIMITED_BYTES);
        Path {
            window_bytes: if window == 0 {
                UNLIMITED_BYTES
            } else {
                window.min(UNLIMITED_BYTES)
            },
            acknowledgement_nanos: (window > 0).then_some(delay_nanos),
            near: VecDeque::new(),
            far: VecDeque::new(),
            arrivals: VecDeque::new(),
            acknowledgements: VecDeque::new(),
            unacknowledged: 0,
        }
    }

    /// How many bytes may enter now.
    pub fn room(&mut self, now: u64) -> usize {
        while let Some(front) = self.acknowledgements.front()
            && front.at <= now
        {
            self.unacknowledged -= front.bytes;
            self.acknowledgements.pop_front();
        }
        if self.arrivals.len() >= PIECES_MAX {
            return 0;
        }
        self.window_bytes.saturating_sub(self.unacknowledged)
    }

    /// Bytes that wait at the near end.
    pub fn near_bytes(&self) -> usize {
        self.near.len()
    }

    pub fn wait_near(&mut self, bytes: &[u8]) {
        self.near.extend(bytes);
    }

    /// Moves up to `bytes_max` of the bytes at the near end under way; the caller computes their
    /// arrival.
    pub fn enter_from_near(&mut self, bytes_max: usize, arrival: u64) {
        let bytes = bytes_max.min(self.near.len());
        self.far.extend(self.near.drain(..bytes));
        self.note(bytes, arrival);
        if self.near.is_empty() {
            self.near.shrink_to(64 * 1024);
        }
    }

    /// Puts bytes under way.
    pub fn enter(&mut self, bytes: &[u8], arrival: u64) {
        self.far.extend(bytes);
        self.note(bytes.len(), arrival);
    }

    fn note(&mut self, bytes: usize, arrival: u64) {
        if bytes == 0 {
            return;
        }
        self.unacknowledged += bytes;
        self.arrivals.push_back(Piece { at: arrival, bytes });
    }

    /// Whether nothing is under way or waits to be.
    pub fn is_empty(&self) -> bool {
        self.near.is_empty() && self.far.is_empty()
    }

    /// Whether bytes that arrive at once may go to the far socket without entering the path.
    pub fn lets_through(&self) -> bool {
        self.is_empty() && self.acknowledgement_nanos.is_none_or(|nanos| nanos == 0)
    }

    /// How many bytes have arrived, and when the first of them were due.
    pub fn arrived(&self, now: u64) -> Option<(usize, u64)> {
        let due = self.arrivals.front().filter(|front| front.at <= now)?.at;
        let arrived = self.arrivals.iter().take_while(|piece| piece.at <= now);
        Some((arrived.map(|piece| piece.bytes).sum(), due))
    }

    /// The first `bytes` under way, for a vectored write.
    pub fn front(&self, bytes: usize) -> [IoSlice<'_>; 2] {
        let (first, second) = self.far.as_slices();
        let split = bytes.min(first.len());
        let rest = (bytes - split).min(second.len());
        [IoSlice::new(&first[..split]), IoSlice::new(&second[..rest])]
    }

    /// Notes that `bytes` were taken in at the far end.
    pub fn taken(&mut self, mut bytes: usize, now: u64) {
        self.far.drain(..bytes);
        match self.acknowledgement_nanos {
            Some(nanos) => self.acknowledgements.push_back(Piece {
                at: now + nanos,
                bytes,
            }),
            None => self.unacknowledged -= bytes,
        }
        while bytes > 0 {
            let front = self
                .arrivals
                .front_mut()
                .expect("every byte under way has an arrival");
            let of_front = front.bytes.min(bytes);
            front.bytes -= of_front;
            bytes -= of_front;
            if front.bytes == 0 {
                self.arrivals.pop_front();
            }
        }
    }

    /// When something changes without a socket event: an arrival that can be handed over, or room
    /// for more.
    pub fn next_moment(&self, can_hand_over: bool, wants_room: bool) -> Option<u64> {
        let arrival = self
            .arrivals
            .front()
            .filter(|_| can_hand_over)
            .map(|piece| piece.at);
        let room = self
            .acknowledgements
            .front()
            .filter(|_| wants_room)
            .map(|piece| piece.at);
        [arrival, room].into_iter().flatten().min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RTT: u64 = 72_000_000;

    fn front_bytes(path: &Path, bytes: usize) -> Vec<u8> {
        path.front(bytes)
            .iter()
            .flat_map(|slice| slice.to_vec())
            .collect()
    }

    #[test]
    fn bytes_arrive_in_order_when_they_are_due() {
        let mut path = Path::new(0, 0);
        path.enter(b"abc", 10);
        path.enter(b"de", 20);
        assert_eq!(path.arrived(9), None);
        assert_eq!(path.arrived(10), Some((3, 10)));
        assert_eq!(path.arrived(25), Some((5, 10)));
        assert_eq!(front_bytes(&path, 4), b"abcd");
        path.taken(4, 25);
        assert_eq!(path.arrived(25), Some((1, 20)));
        path.taken(1, 25);
        assert!(path.is_empty());
        assert_eq!(path.next_moment(true, true), None);
    }

    #[test]
    fn a_window_is_full_until_the_acknowledgement_has_come_back() {
        let mut path = Path::new(100, RTT / 2);
        assert_eq!(path.room(0), 100);
        path.enter(&[1; 100], RTT / 2);
        assert_eq!(path.room(RTT / 2), 0);
        path.taken(60, RTT / 2);
        assert_eq!(path.room(RTT - 1), 0);
        assert_eq!(path.next_moment(false, true), Some(RTT));
        assert_eq!(path.room(RTT), 60);
    }

    #[test]
    fn without_a_window_room_comes_back_at_once() {
        let mut path = Path::new(0, RTT / 2);
        let all = path.room(0);
        path.enter(&[1; 100], RTT / 2);
        assert_eq!(path.room(0), all - 100);
        path.taken(100, RTT / 2);
        assert_eq!(path.room(RTT / 2), all);
    }

    #[test]
    fn bytes_waiting_at_the_near_end_enter_piece_by_piece() {
        let mut path = Path::new(4, 0);
        path.wait_near(b"abcdef");
        path.enter_from_near(4, 7);
        assert_eq!((path.near_bytes(), path.room(0)), (2, 0));
        assert_eq!(front_bytes(&path, 4), b"abcd");
        path.taken(4, 7);
        assert_eq!(path.room(7), 4);
        path.enter_from_near(4, 8);
        assert_eq!(path.arrived(8), Some((2, 8)));
    }

    /// The transfer time of a request of 600,000 bytes with only a window between two ends, as the
    /// relay computes it.
    fn transfer_nanos(request_bytes: usize, window_bytes: u64) -> u64 {
        let mut path = Path::new(window_bytes, RTT / 2);
        let (mut now, mut left) = (0, request_bytes);
        loop {
            let bytes = path.room(now).min(left);
            path.enter(&vec![0; bytes], now + RTT / 2);
            left -= bytes;
            if let Some((arrived, _)) = path.arrived(now) {
                path.taken(arrived, now);
            }
            if left == 0 && path.is_empty() {
                return now;
            }
            now = path.next_moment(true, left > 0).expect("something is under way");
        }
    }

    #[test]
    fn six_windows_take_six_round_trips_less_the_way_back() {
        let answer = RTT / 2;
        // 5.9 windows of 100 KiB: 1 / (6 * 72 ms) = 2.3 requests per second; with twice the window
        // 4.6, before any transfer time.
        assert_eq!(transfer_nanos(600_000, 102_400) + answer, 6 * RTT);
        assert_eq!(transfer_nanos(600_000, 204_800) + answer, 3 * RTT);
        assert_eq!(transfer_nanos(10_000, 102_400) + answer, RTT);
    }
}
