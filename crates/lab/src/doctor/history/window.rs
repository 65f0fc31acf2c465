//! The numbers of one client over its window: pushes combined by reading rule 10.

use super::super::adapters::{Fold, Measure, Subject};
use super::super::snapshot::Library;
use super::instance::{Instance, Slot, find};
use super::point::{CLIENT, Point, merged};

/// A Java client's averages reach back over its own sample windows, 30 to 60 s. Averages of the
/// newer half of the window are about the same minute as the window's counts; older ones are about
/// the minute before.
const AVERAGES_SECONDS: f64 = 30.0;

/// A combined view of an instance's slots.
#[derive(Clone, Debug)]
pub struct Window<'a> {
    instance: &'a Instance,
    pub seconds: f64,
    pub pushes: u32,
    pub empty_pushes: u32,
    pub waiting_pushes: u32,
    points: Vec<Point>,
}

impl<'a> Window<'a> {
    pub(super) fn of(instance: &'a Instance) -> Window<'a> {
        let slots = &instance.slots;
        let mut window = Window {
            instance,
            seconds: slots.iter().map(|slot| slot.seconds).sum(),
            pushes: slots.iter().map(|slot| slot.pushes).sum(),
            empty_pushes: slots.iter().map(|slot| slot.empty_pushes).sum(),
            waiting_pushes: slots.iter().map(|slot| slot.waiting_pushes).sum(),
            points: Vec::new(),
        };
        let averages_slide = matches!(
            instance.software.library,
            Library::Java | Library::Ottla | Library::Unknown
        );
        let Some(newest) = slots.back() else { return window };
        window.points.clone_from(&newest.points);
        for slot in slots.iter().rev().skip(1) {
            let age_seconds = (newest.received_ms - slot.received_ms) as f64 / 1000.0;
            let has_averages = !averages_slide || age_seconds < AVERAGES_SECONDS;
            window.add_older(slot, has_averages);
        }
        window
    }

    /// Whether there is no number at all: the client pushed nothing, or nothing that is read.
    pub fn is_empty(&self) -> bool {
        self.points.is_empty()
    }

    /// Adds the counts and peaks of an older slot, and its averages where they belong to the
    /// window. Both are sorted, and mostly hold the same keys.
    fn add_older(&mut self, slot: &Slot, has_averages: bool) {
        let mut absent = Vec::new();
        let mut place = 0;
        for point in &slot.points {
            let counts = match point.measure.fold() {
                Fold::Sum | Fold::Peak => true,
                Fold::Mean(_) | Fold::Max => has_averages,
                Fold::Last => false,
            };
            if !counts {
                continue;
            }
            while self
                .points
                .get(place)
                .is_some_and(|own| own.order() < point.order())
            {
                place += 1;
            }
            match self.points.get_mut(place) {
                Some(own) if own.order() == point.order() => {
                    own.fold(point);
                    place += 1;
                }
                _ => absent.push(*point),
            }
        }
        if !absent.is_empty() {
            self.points = merged(&self.points, &absent);
        }
    }

    pub fn instance(&self) -> &'a Instance {
        self.instance
    }

    /// Returns the mean, the last or the maximum of a measure; for a sum, the total.
    pub fn get(&self, measure: Measure) -> Option<f64> {
        find(&self.points, measure)
    }

    /// A sum's growth per second.
    pub fn rate(&self, measure: Measure) -> Option<f64> {
        self.of_measure(measure)
            .first()
            .filter(|point| point.subject == CLIENT)
            .and_then(Point::rate)
    }

    /// A sum's growth per second between the two pushes in which it grew least; `None` of one push.
    pub fn slowest(&self, measure: Measure) -> Option<f64> {
        let key = (measure, CLIENT);
        let growth = |slot: &Slot| {
            let place = slot.points.binary_search_by_key(&key, Point::key).ok()?;
            slot.points[place].rate()
        };
        let slots = &self.instance.slots;
        self.get(measure).filter(|_| slots.len() > 1)?;
        slots
            .iter()
            .map(|slot| growth(slot).unwrap_or(0.0))
            .reduce(f64::min)
    }

    /// All numbers of a measure with their subjects.
    pub fn each(&self, measure: Measure) -> impl Iterator<Item = (Subject<'a>, &Point)> {
        let subjects = &self.instance.subjects;
        self.of_measure(measure)
            .iter()
            .map(move |point| (subjects.get(point.subject), point))
    }

    /// The number of that measure for the same subject.
    pub fn beside(&self, point: &Point, measure: Measure) -> Option<&Point> {
        let key = (measure, point.subject);
        let place = self.points.binary_search_by_key(&key, Point::key).ok()?;
        Some(&self.points[place])
    }

    /// Growth per second, from the window's first push that has the number to its last.
    pub fn slope(&self, point: &Point) -> Option<f64> {
        let slots = &self.instance.slots;
        let newest = slots.back()?;
        let value_in = |slot: &Slot| {
            let place = slot.points.binary_search_by_key(&point.key(), Point::key).ok()?;
            Some(slot.points[place].value)
        };
        let (oldest, before) = slots.iter().find_map(|slot| Some((slot, value_in(slot)?)))?;
        let seconds = (newest.received_ms - oldest.received_ms) as f64 / 1000.0;
        (seconds > 0.0).then(|| (point.value - before) / seconds)
    }

    fn of_measure(&self, measure: Measure) -> &[Point] {
        let begin = self.points.partition_point(|point| point.measure < measure);
        let points = &self.points[begin..];
        let count = points.iter().take_while(|point| point.measure == measure).count();
        &points[..count]
    }
}

impl Point {
    /// For a sum: its growth per second.
    pub fn rate(&self) -> Option<f64> {
        (self.weight > 0.0).then(|| self.value / f64::from(self.weight))
    }
}
