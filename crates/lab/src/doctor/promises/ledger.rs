//! The ledger: promises that wait for their client, and those that were decided.

use std::borrow::Borrow;
use std::collections::{HashMap, VecDeque};

use super::super::diagnosis::Verdict;
use super::applied::{Applied, Identity, applied};
use super::document::{self, Promises, Row};
use super::figures::Figures;
use super::score::{Judgement, Score, judge};
use super::sighting::{Incarnation, Name, Sighting, Terms};

/// Clients whose promises are followed. Texts are cut to 255 bytes, so that each takes 4 KiB at
/// most and usually one.
pub const FOLLOWED_MAX: usize = 4_096;

/// Of one name; they are searched one after another.
const NAMESAKES_MAX: usize = 64;

/// Decided promises that stay listed, the latest.
pub const DECIDED_MAX: usize = 1_024;

/// A client that was not seen for this long may be displaced by another one.
const GONE_MS: i64 = 120_000;

/// A promise whose client did not come back for a week is forgotten.
const FORGOTTEN_MS: i64 = 7 * 86_400_000;

/// A good result counts after this long: a start makes figures worse, not better.
const GOOD_AFTER_MS: i64 = 30_000;

/// A bad one only when the start has left the window, by this much.
const SETTLED_AFTER_WINDOW_MS: i64 = 15_000;

/// The client since it has come back.
#[derive(Clone, Debug)]
struct Return {
    incarnation: Incarnation,
    first_ms: i64,
    applied: String,
    /// The score of the examination before: two must agree.
    last: Option<Score>,
}

/// One client whose recommendation is followed.
#[derive(Clone, Debug)]
struct Followed {
    host: Option<String>,
    incarnation: Incarnation,
    seen_ms: i64,
    /// The last push that was examined: the same numbers again are no second examination.
    heard_ms: Option<i64>,
    /// The same of a client that pushes nothing.
    last: Figures,
    /// It restarted without another id.
    has_restarted: bool,
    /// Recommended by two examinations.
    terms: Option<Terms>,
    /// Recommended by the last one only.
    next: Option<Terms>,
    back: Option<Return>,
}

/// All promises. Time is given; nothing is read from a clock.
#[derive(Debug, Default)]
pub struct Ledger {
    followed: HashMap<Name, Vec<Followed>>,
    count: usize,
    /// The oldest first.
    decided: VecDeque<Row>,
    kept: u64,
    not_kept: u64,
    not_tested: u64,
    unknown: u64,
    /// Clients that found no room in the last examination.
    left_out: u64,
}

impl Ledger {
    /// Takes one examination of all clients.
    ///
    /// - Shape: all that are there, also those of which nothing is new: who is alone with its name
    ///   depends on them.
    pub fn look<S: Borrow<Sighting>>(&mut self, at_ms: i64, sightings: &[S]) {
        let mut sightings: Vec<&Sighting> = sightings.iter().map(Borrow::borrow).collect();
        sightings.sort_by(|one, other| one.name.cmp(&other.name));
        let mut strangers = Vec::new();
        for group in sightings.chunk_by(|one, other| one.name == other.name) {
            self.look_at_namesakes(at_ms, group, &mut strangers);
        }
        self.forget(at_ms);
        self.left_out = 0;
        let mut gone = None;
        for sighting in strangers {
            self.follow(at_ms, sighting, &mut gone);
        }
    }

    /// Clients with one name: each has a promise of its own if its address tells it apart.
    fn look_at_namesakes<'a>(
        &mut self,
        at_ms: i64,
        group: &[&'a Sighting],
        strangers: &mut Vec<&'a Sighting>,
    ) {
        let has_ids = group.iter().any(|one| one.incarnation.instance_id.is_some());
        let live: Vec<&'a Sighting> = group
            .iter()
            .copied()
            // An instance that has ended is still listed for a while. Where instances have ids, a
            // client without one is the brokers' view of them.
            .filter(|one| !one.has_ended && (!has_ids || one.incarnation.instance_id.is_some()))
            .collect();
        let mut on_hosts: HashMap<Option<&str>, usize> = HashMap::new();
        for sighting in &live {
            *on_hosts.entry(sighting.host.as_deref()).or_default() += 1;
        }
        for sighting in &live {
            let on_host = on_hosts[&sighting.host.as_deref()];
            let followed = self.followed.get_mut(&sighting.name);
            let place = followed
                .as_ref()
                .and_then(|all| place_of(all, sighting, live.len()));
            match (followed, place) {
                (Some(all), Some(place)) if on_host > 1 => all[place].seen_ms = at_ms,
                (Some(all), Some(place)) => {
                    let outcome = all[place].see(at_ms, sighting);
                    self.conclude(at_ms, sighting, place, outcome);
                }
                (_, None) if on_host == 1 && sighting.offer.is_some() => strangers.push(sighting),
                _ => {}
            }
        }
    }

    fn conclude(&mut self, at_ms: i64, sighting: &Sighting, place: usize, outcome: Outcome) {
        if let Outcome::Wait = outcome {
            return;
        }
        let all = self
            .followed
            .get_mut(&sighting.name)
            .expect("the client was just found there");
        let followed = all.swap_remove(place);
        self.count -= 1;
        if all.is_empty() {
            self.followed.remove(&sighting.name);
        }
        let (Outcome::Decided(judgement), Some(terms)) = (outcome, &followed.terms) else {
            return;
        };
        let mut row = row(&sighting.name, &followed, terms);
        row.score = judgement.score;
        row.after = judgement.measured;
        row.because = judgement.because;
        row.verdict_after = Some(sighting.verdict);
        row.decided_ms = Some(at_ms);
        match row.score {
            score if score.is_kept() => self.kept += 1,
            Score::NotKept => self.not_kept += 1,
            Score::NotTested => self.not_tested += 1,
            _ => self.unknown += 1,
        }
        if self.decided.len() >= DECIDED_MAX {
            self.decided.pop_front();
        }
        self.decided.push_back(row);
    }

    fn follow(&mut self, at_ms: i64, sighting: &Sighting, gone: &mut Option<Vec<(i64, Name)>>) {
        let Some(next) = sighting.terms(at_ms) else {
            return;
        };
        if self.count >= FOLLOWED_MAX {
            let gone = gone.get_or_insert_with(|| self.longest_gone(at_ms));
            if let Some((seen_ms, name)) = gone.pop() {
                self.displace(&name, seen_ms);
            }
        }
        let namesakes = self.followed.get(&sighting.name).map_or(0, Vec::len);
        if self.count >= FOLLOWED_MAX || namesakes >= NAMESAKES_MAX {
            self.left_out += 1;
            return;
        }
        self.count += 1;
        let all = self.followed.entry(sighting.name.clone()).or_default();
        all.push(Followed {
            host: sighting.host.clone(),
            incarnation: sighting.incarnation.clone(),
            seen_ms: at_ms,
            heard_ms: sighting.heard_ms,
            last: sighting.figures,
            has_restarted: false,
            terms: None,
            next: Some(next),
            back: None,
        });
    }

    fn displace(&mut self, name: &Name, seen_ms: i64) {
        let Some(all) = self.followed.get_mut(name) else {
            return;
        };
        if let Some(place) = all.iter().position(|one| one.seen_ms == seen_ms) {
            all.swap_remove(place);
            self.count -= 1;
        }
        if all.is_empty() {
            self.followed.remove(name);
        }
    }

    /// Clients that may be displaced, the one that is gone for longest last.
    fn longest_gone(&self, at_ms: i64) -> Vec<(i64, Name)> {
        let all = self
            .followed
            .iter()
            .flat_map(|(name, all)| all.iter().map(move |one| (one.seen_ms, name)));
        let mut gone: Vec<(i64, Name)> = all
            .filter(|(seen_ms, _)| *seen_ms <= at_ms - GONE_MS)
            .map(|(seen_ms, name)| (seen_ms, name.clone()))
            .collect();
        gone.sort_by(|one, other| other.cmp(one));
        gone
    }

    fn forget(&mut self, at_ms: i64) {
        let is_kept = |one: &Followed| {
            // What one examination recommended, of a client that is gone, was never promised.
            let is_gone = one.seen_ms <= at_ms - GONE_MS;
            one.seen_ms > at_ms - FORGOTTEN_MS && !(is_gone && one.terms.is_none())
        };
        self.followed.retain(|_, all| {
            all.retain(is_kept);
            !all.is_empty()
        });
        self.count = self.followed.values().map(Vec::len).sum();
    }

    /// Clients that are followed, those whose recommendation is not yet a promise included.
    pub fn followed_count(&self) -> usize {
        self.count
    }

    pub fn document(&self, at_ms: i64) -> Promises {
        let mut rows: Vec<Row> = self.decided.iter().rev().cloned().collect();
        let open = self.followed.iter().flat_map(|(name, all)| {
            all.iter()
                .filter_map(move |one| Some(row(name, one, one.terms.as_ref()?)))
        });
        rows.extend(open);
        rows.sort_by_key(|row| {
            let last_ms = row.decided_ms.unwrap_or(row.promised_ms);
            (std::cmp::Reverse(last_ms), row.client_id.clone())
        });
        Promises {
            version: document::VERSION,
            at_ms,
            promises: rows,
            kept: self.kept,
            not_kept: self.not_kept,
            not_tested: self.not_tested,
            unknown: self.unknown,
            left_out: self.left_out,
        }
    }
}

/// The one of `all` that this client is.
///
/// - `live_count`: clients that have this name now.
fn place_of(all: &[Followed], sighting: &Sighting, live_count: usize) -> Option<usize> {
    let is_same = |one: &Followed, incarnation: &Incarnation| {
        incarnation.instance_id.is_some() && incarnation.instance_id == sighting.incarnation.instance_id
            || one.back.as_ref().is_some_and(|back| {
                back.incarnation.instance_id.is_some()
                    && back.incarnation.instance_id == sighting.incarnation.instance_id
            })
    };
    all.iter()
        .position(|one| is_same(one, &one.incarnation))
        .or_else(|| (all.len() == 1 && live_count == 1).then_some(0))
        .or_else(|| {
            all.iter()
                .position(|one| one.host.is_some() && one.host == sighting.host)
        })
}

enum Outcome {
    Wait,
    /// Nothing was promised.
    Drop,
    Decided(Judgement),
}

impl Followed {
    fn see(&mut self, at_ms: i64, sighting: &Sighting) -> Outcome {
        self.seen_ms = at_ms;
        // A restart is seen before there is enough data for a verdict.
        self.has_restarted |= sighting.is_restarted;
        let is_old = match sighting.heard_ms {
            Some(heard_ms) => self.heard_ms == Some(heard_ms),
            None => self.last == sighting.figures,
        };
        if sighting.verdict == Verdict::NotEnoughData || is_old {
            return Outcome::Wait;
        }
        self.heard_ms = sighting.heard_ms;
        self.last = sighting.figures;
        let identity = match (
            self.has_restarted || self.incarnation.is_other(&sighting.incarnation),
            self.incarnation.instance_id.is_some() && sighting.incarnation.instance_id.is_some(),
        ) {
            (true, _) => Identity::New,
            (false, true) => Identity::Same,
            (false, false) => Identity::Unknown,
        };
        let Some(terms) = &self.terms else {
            match identity {
                Identity::New => self.begin_with(at_ms, sighting),
                _ => self.stay(at_ms, sighting),
            }
            return match self.terms.is_none() && self.next.is_none() {
                true => Outcome::Drop,
                false => Outcome::Wait,
            };
        };
        let applied = applied(terms, sighting, identity);
        if identity != Identity::New && !matches!(applied, Applied::Yes(_)) {
            self.back = None;
            self.stay(at_ms, sighting);
            return Outcome::Wait;
        }
        self.come_back(at_ms, sighting, applied)
    }

    /// The promise is now one to this instance, which has the setting as it was.
    fn begin_with(&mut self, at_ms: i64, sighting: &Sighting) {
        self.host.clone_from(&sighting.host);
        self.incarnation = sighting.incarnation.clone();
        self.has_restarted = false;
        self.back = None;
        self.next = sighting.terms(at_ms);
    }

    /// The same instance, examined once more: what it is promised may change, if twice in a row.
    fn stay(&mut self, at_ms: i64, sighting: &Sighting) {
        let new = sighting.terms(at_ms);
        let is_same = |one: &Option<Terms>, other: &Option<Terms>| {
            let change = |terms: &Option<Terms>| terms.as_ref().map(|terms| terms.offer.change.clone());
            one.is_some() && change(one) == change(other)
        };
        if is_same(&self.terms, &new) {
            let made_ms = self.terms.as_ref().map_or(at_ms, |terms| terms.made_ms);
            self.terms = new.map(|terms| Terms { made_ms, ..terms });
            self.next = None;
        } else if is_same(&self.next, &new) {
            self.terms = new;
            self.next = None;
        } else {
            self.next = new;
        }
    }

    /// Another instance, or the setting is seen.
    fn come_back(&mut self, at_ms: i64, sighting: &Sighting, applied: Applied) -> Outcome {
        let is_known = |back: &Return| !back.incarnation.is_other(&sighting.incarnation);
        let mut back = self.back.take().filter(is_known).unwrap_or_else(|| Return {
            incarnation: sighting.incarnation.clone(),
            first_ms: at_ms,
            applied: String::new(),
            last: None,
        });
        let since_ms = at_ms - back.first_ms;
        let window_ms = (sighting.figures.seconds.clamp(0.0, 86_400.0) * 1_000.0) as i64;
        let is_settled = since_ms >= window_ms + SETTLED_AFTER_WINDOW_MS;
        let judgement = match applied {
            Applied::Yes(how) => {
                back.applied = how;
                let terms = self.terms.as_ref().expect("only a promise is judged");
                judge(terms, sighting)
            }
            Applied::Otherwise(how) => {
                back.applied.clone_from(&how);
                Judgement {
                    score: Score::NotTested,
                    measured: None,
                    because: format!("another value was set: {how}"),
                }
            }
            Applied::No if is_settled => {
                self.begin_with(at_ms, sighting);
                return Outcome::Wait;
            }
            Applied::No | Applied::Unknown => Judgement {
                score: Score::Unknown,
                measured: None,
                because: String::from(
                    "the client came back, and neither the wire nor its figures show the setting",
                ),
            },
        };
        let is_ripe = match judgement.score.is_kept() {
            true => since_ms >= GOOD_AFTER_MS,
            false => is_settled,
        };
        let is_stable = back.last == Some(judgement.score);
        back.last = Some(judgement.score);
        self.back = Some(back);
        match is_ripe && is_stable {
            true => Outcome::Decided(judgement),
            false => Outcome::Wait,
        }
    }
}

fn row(name: &Name, one: &Followed, terms: &Terms) -> Row {
    let promise = &terms.offer.promise;
    let change = &terms.offer.change;
    let back = one.back.as_ref();
    let is_applied = back.is_some_and(|back| !back.applied.is_empty());
    Row {
        client_id: name.client_id.clone(),
        principal: name.principal.clone(),
        role: name.role,
        host: one.host.clone(),
        instance_before: one.incarnation.instance_id.clone(),
        instance_after: back.and_then(|back| back.incarnation.instance_id.clone()),
        set: format!("{}={}", change.key, change.value),
        figure: promise.figure.clone(),
        unit: promise.unit.clone(),
        before: promise.now.or(terms.before.named(&promise.figure)),
        low: promise.low,
        high: promise.high,
        assumption: promise.assumption.clone(),
        promised_ms: terms.made_ms,
        verdict_before: terms.verdict,
        score: if is_applied { Score::Measuring } else { Score::Open },
        applied: back.map_or_else(String::new, |back| back.applied.clone()),
        ..Row::default()
    }
}
