//! Plays one sequence to both brokers.

use std::cell::Cell;
use std::fmt::{self, Debug};
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};
use ottla_wire::random::Random;

use super::Scene;
use super::differences;
use super::lane::Lane;
use super::text::comparable;
use crate::interop::refusals::{Ask, Outcome, Said};

/// Timeout of an answer that no other request is waited for.
pub const PATIENCE: Duration = Duration::from_secs(15);
/// A request that may wait for other members, and has no answer after this, waits.
const WAITING: Duration = Duration::from_millis(60);
/// The answer to a waiting request that the other broker has already given.
const SECOND: Duration = Duration::from_secs(3);
/// Between two questions whether a broker is done.
const PAUSE: Duration = Duration::from_millis(20);
/// A difference counts that is there this many times in a row.
const ATTEMPTS: u32 = 3;
/// How often a sequence is played at most until the ids that the brokers draw have the same order.
const DRAWS_MAX: u32 = 20;

/// What one broker has told the clients of a sequence, and what they ask next.
pub trait World: Sized {
    const NAME: &'static str;
    /// After as many answers in a row that say so the broker has finished.
    const SETTLED_TIMES: u32 = 1;
    type Step: Clone + Debug;

    fn sequence(random: &mut Random) -> Vec<Self::Step>;

    /// - `name`: differs from that of every other sequence.
    fn new(name: &str, scene: &Scene, ports: [u16; 2]) -> Result<Self>;

    /// How many clients there are; `lane` is below.
    fn lanes() -> usize;

    /// The client that sends a step's request.
    fn lane(step: &Self::Step) -> usize;

    /// Whether the answer may have to wait for other clients' requests.
    fn may_wait(step: &Self::Step) -> bool;

    fn ask(&self, step: &Self::Step) -> Ask;

    /// Takes over what an answer tells.
    fn learn(&mut self, step: &Self::Step, frame: &[u8]) -> Result<()>;

    /// Whether to send the request again: the broker has not finished something before it.
    fn is_early(&self, _step: &Self::Step, _frame: &[u8]) -> Result<bool> {
        Ok(false)
    }

    /// The question whose answers tell whether the broker has finished with a step.
    fn settling(&self, step: &Self::Step) -> Option<Ask>;

    /// - `before`: the answer before this one.
    fn is_settled(&self, before: &str, now: &str) -> bool;

    /// Whether only a second answer is compared, to the same request after the broker has finished.
    fn is_repeated(_step: &Self::Step) -> bool {
        false
    }

    /// This broker's ids, and what to call them.
    fn names(&self) -> Vec<(String, String)>;

    /// The names of ids whose order decides something, in that order.
    fn order(&self) -> Vec<String> {
        Vec::new()
    }

    /// The part of an answer that is compared.
    fn excerpt(&self, step: &Self::Step, ask: &Ask, outcome: &Outcome) -> Result<String>;
}

/// What two brokers said differently.
pub struct Difference {
    pub number: usize,
    pub step: String,
    pub ottla: String,
    pub kafka: String,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (kafka, ottla) = unlike(&self.kafka, &self.ottla);
        write!(
            f,
            "step {} {}\n  Kafka: {kafka}\n  Ottla: {ottla}",
            self.number, self.step
        )
    }
}

/// The parts of two answers from shortly before the first to shortly behind the last difference.
fn unlike<'a>(one: &'a str, other: &'a str) -> (&'a str, &'a str) {
    const AROUND: usize = 80;
    let alike = |pairs: &mut dyn Iterator<Item = (u8, u8)>| pairs.take_while(|(a, b)| a == b).count();
    let before = alike(&mut one.bytes().zip(other.bytes())).saturating_sub(AROUND);
    let after = alike(&mut one.bytes().rev().zip(other.bytes().rev())).saturating_sub(AROUND);
    let part = |text: &'a str| text.get(before..(text.len() - after).max(before)).unwrap_or(text);
    (part(one), part(other))
}

#[derive(Default)]
pub struct Played {
    pub answers: u64,
    pub difference: Option<Difference>,
    /// The reason of an intended difference, after which the sequence ended.
    pub known: Option<&'static str>,
    /// The ids that the brokers have drawn sort differently, so members get each other's
    /// partitions: a difference may come from that.
    pub has_unlike_order: bool,
    /// There were differences with each order that was drawn, and no order was alike.
    pub is_unsure: bool,
}

pub struct Player {
    /// Ottla's and Apache Kafka's.
    ports: [u16; 2],
    scene: Scene,
    played: Cell<u64>,
}

impl Player {
    pub fn new(ports: [u16; 2], scene: Scene) -> Player {
        Player {
            ports,
            scene,
            played: Cell::new(0),
        }
    }

    /// Plays until the brokers agree once, and each time gives late answers more time.
    pub fn play_until_sure<W: World>(&self, steps: &[W::Step]) -> Result<Played> {
        let (mut attempt, mut draws) = (1, 1);
        loop {
            let mut played = self.play::<W>(steps, WAITING * attempt)?;
            if played.difference.is_none() {
                return Ok(played);
            }
            if played.has_unlike_order && draws < DRAWS_MAX {
                draws += 1;
            } else if played.has_unlike_order {
                played.difference = None;
                played.is_unsure = true;
                return Ok(played);
            } else if attempt == ATTEMPTS {
                return Ok(played);
            } else {
                attempt += 1;
            }
        }
    }

    fn play<W: World>(&self, steps: &[W::Step], waiting: Duration) -> Result<Played> {
        let number = self.played.get();
        self.played.set(number + 1);
        let name = format!("{}-{number:05}", W::NAME);
        let world = || W::new(&name, &self.scene, self.ports);
        let mut game = Game::<W> {
            sides: [
                Side::open(self.ports[0], world()?)?,
                Side::open(self.ports[1], world()?)?,
            ],
            waiting,
            under_way: vec![None; W::lanes()],
            answered: Vec::new(),
            played: Played::default(),
        };
        for (number, step) in steps.iter().enumerate() {
            game.step(number, step)?;
            if game.is_over() {
                break;
            }
        }
        game.played.has_unlike_order = game.sides[0].world.order() != game.sides[1].world.order();
        Ok(game.played)
    }

    /// Leaves out steps as long as a difference stays, and tells what is left.
    pub fn shortened<W: World>(&self, mut steps: Vec<W::Step>) -> Result<String> {
        let mut difference = None;
        let mut size = steps.len().div_ceil(2);
        while size > 0 {
            let mut from = 0;
            while from < steps.len() {
                let mut fewer = steps.clone();
                fewer.drain(from..(from + size).min(steps.len()));
                match self.play_until_sure::<W>(&fewer)?.difference {
                    Some(found) => {
                        fewer.truncate(found.number + 1);
                        (steps, difference) = (fewer, Some(found));
                    }
                    None => from += size,
                }
            }
            size /= 2;
        }
        let listed: String = steps.iter().map(|step| format!("\n    {step:?}")).collect();
        match difference {
            Some(difference) => Ok(format!("{listed}\n  {difference}")),
            None => Ok(format!("{listed}\n  no step can be left out")),
        }
    }
}

struct Side<W> {
    lanes: Vec<Lane>,
    /// For questions between steps.
    aside: Lane,
    world: W,
}

impl<W: World> Side<W> {
    fn open(port: u16, world: W) -> Result<Side<W>> {
        let lanes = (0..W::lanes()).map(|_| Lane::connect(port));
        Ok(Side {
            lanes: lanes.collect::<Result<_>>()?,
            aside: Lane::connect(port)?,
            world,
        })
    }

    /// Receives the answer to `ask`, and repeats a request that came too early.
    fn answer(&mut self, step: &W::Step, ask: &Ask, patience: Duration) -> Result<Option<Outcome>> {
        let lane = &mut self.lanes[W::lane(step)];
        let began = Instant::now();
        loop {
            let Some(outcome) = lane.receive(patience)? else {
                return Ok(None);
            };
            if let Outcome::Answer(frame) = &outcome {
                if self.world.is_early(step, frame)? && began.elapsed() < PATIENCE {
                    std::thread::sleep(PAUSE);
                    lane.send(ask)?;
                    continue;
                }
                self.world.learn(step, frame)?;
            }
            return Ok(Some(outcome));
        }
    }

    fn text(&self, step: &W::Step, ask: &Ask, outcome: Option<&Outcome>) -> Result<String> {
        let Some(outcome) = outcome else {
            return Ok("waits".to_owned());
        };
        let excerpt = self.world.excerpt(step, ask, outcome)?;
        Ok(comparable(&excerpt, &self.world.names()))
    }

    /// Waits until the broker has finished what it does behind its answer.
    fn settle(&mut self, step: &W::Step) -> Result<()> {
        let Some(ask) = self.world.settling(step) else {
            return Ok(());
        };
        let began = Instant::now();
        let (mut before, mut times) = (String::new(), 0);
        while began.elapsed() < PATIENCE {
            self.aside.send(&ask)?;
            let Some(outcome) = self.aside.receive(PATIENCE)? else {
                bail!("{} was not answered", ask.api_key);
            };
            let now = Said::of(&ask, outcome).verbose;
            times = if self.world.is_settled(&before, &now) {
                times + 1
            } else {
                0
            };
            if times == W::SETTLED_TIMES {
                return Ok(());
            }
            before = now;
            std::thread::sleep(PAUSE);
        }
        bail!("not finished after {PATIENCE:?}: {before}")
    }
}

/// One sequence on both brokers. A request is under way on both or on none.
struct Game<W: World> {
    sides: [Side<W>; 2],
    waiting: Duration,
    under_way: Vec<Option<UnderWay<W::Step>>>,
    /// Compared when every answer of a step has told its ids.
    answered: Vec<Answered<W::Step>>,
    played: Played,
}

/// A request, and what each broker answered.
type Answered<S> = (UnderWay<S>, [Option<Outcome>; 2]);

#[derive(Clone)]
struct UnderWay<S> {
    number: usize,
    step: S,
    asks: [Ask; 2],
}

impl<W: World> Game<W> {
    /// After a difference the brokers are in different states.
    fn is_over(&self) -> bool {
        self.played.difference.is_some() || self.played.known.is_some()
    }

    fn step(&mut self, number: usize, step: &W::Step) -> Result<()> {
        let lane = W::lane(step);
        if self.under_way[lane].is_some() {
            return Ok(());
        }
        self.send(number, step)?;
        let patience = match W::may_wait(step) {
            true => self.waiting,
            false => PATIENCE,
        };
        self.collect(lane, patience)?;
        if self.under_way[lane].is_none() {
            for side in &mut self.sides {
                side.settle(step)?;
            }
        }
        if W::is_repeated(step) {
            self.answered.clear();
            self.send(number, step)?;
            self.collect(lane, PATIENCE)?;
        }
        for other in 0..self.under_way.len() {
            self.collect(other, self.waiting / 4)?;
        }
        for (under_way, outcomes) in std::mem::take(&mut self.answered) {
            self.compare(under_way, &outcomes)?;
        }
        Ok(())
    }

    fn send(&mut self, number: usize, step: &W::Step) -> Result<()> {
        let lane = W::lane(step);
        let asks = [self.sides[0].world.ask(step), self.sides[1].world.ask(step)];
        for (side, ask) in self.sides.iter_mut().zip(&asks) {
            side.lanes[lane].send(ask)?;
        }
        self.under_way[lane] = Some(UnderWay {
            number,
            step: step.clone(),
            asks,
        });
        Ok(())
    }

    /// Takes the answers to the request that is under way.
    fn collect(&mut self, lane: usize, patience: Duration) -> Result<()> {
        let Some(under_way) = self.under_way[lane].clone() else {
            return Ok(());
        };
        let UnderWay { step, asks, .. } = &under_way;
        let mut outcomes = [self.sides[0].answer(step, &asks[0], patience)?, None];
        let patience = if outcomes[0].is_some() {
            SECOND.max(patience)
        } else {
            patience
        };
        outcomes[1] = self.sides[1].answer(step, &asks[1], patience)?;
        if outcomes[0].is_none() && outcomes[1].is_some() {
            outcomes[0] = self.sides[0].answer(step, &asks[0], SECOND)?;
        }
        if outcomes == [None, None] {
            ensure!(W::may_wait(step), "neither broker answers {step:?}");
            return Ok(());
        }
        self.under_way[lane] = None;
        self.answered.push((under_way, outcomes));
        Ok(())
    }

    fn compare(&mut self, under_way: UnderWay<W::Step>, outcomes: &[Option<Outcome>; 2]) -> Result<()> {
        let UnderWay { number, step, asks } = under_way;
        self.played.answers += 1;
        let ottla = self.sides[0].text(&step, &asks[0], outcomes[0].as_ref())?;
        let kafka = self.sides[1].text(&step, &asks[1], outcomes[1].as_ref())?;
        if ottla == kafka || self.is_over() {
            return Ok(());
        }
        let step = format!("{step:?}");
        let known = differences::ALL
            .iter()
            .find(|known| known.is(W::NAME, &step, &kafka, &ottla));
        match known {
            Some(known) => self.played.known = Some(known.why),
            None => {
                self.played.difference = Some(Difference {
                    number,
                    step,
                    ottla,
                    kafka,
                });
            }
        }
        Ok(())
    }
}
