//! Two sides of a comparison in one figure, and whether their rounds allow a conclusion.

use super::Told;
use crate::numbers::{number, percent};
use crate::report::OnTarget;
use crate::report::label::{self, Better};

/// With one round each the spread is unknown; smaller differences are then not reported as such.
const ONE_ROUND_DIFFERENCE: f64 = 0.10;
/// Sides whose rates differ by less than this held the same rate.
const SAME_RATE: f64 = 0.02;
/// From here on a ratio is easier to read than percents.
const AS_RATIO: f64 = 1.5;

/// What is compared: a point, or a cluster.
#[derive(Clone, Copy, Debug)]
pub(super) struct Side<'a> {
    pub(super) name: &'a str,
    pub(super) on: &'a OnTarget,
}

#[derive(Clone, Debug)]
pub(super) struct Contrast<'a> {
    figure: String,
    /// Sides with their medians; `more` has the larger one.
    more: (Side<'a>, f64),
    less: (Side<'a>, f64),
}

impl<'a> Contrast<'a> {
    /// - Errors: a figure that was not measured, or is 0.
    pub(super) fn between(figure: &str, a: Side<'a>, b: Side<'a>) -> Result<Contrast<'a>, String> {
        let (of_a, of_b) = (median(a, figure)?, median(b, figure)?);
        let (more, less) = match of_a >= of_b {
            true => ((a, of_a), (b, of_b)),
            false => ((b, of_b), (a, of_a)),
        };
        if less.1 <= 0.0 {
            let title = title(figure);
            return Err(format!("the {title} of {} is {}", less.0.name, number(less.1)));
        }
        Ok(Contrast {
            figure: figure.to_owned(),
            more,
            less,
        })
    }

    /// At least 1.
    pub(super) fn ratio(&self) -> f64 {
        self.more.1 / self.less.1
    }

    /// The ratio to the other side, above 1 where the named side is the worse one.
    pub(super) fn badness_of(&self, name: &str) -> f64 {
        let is_more = self.more.0.name == name;
        match is_more == (better(&self.figure) == Better::Higher) {
            true => 1.0 / self.ratio(),
            false => self.ratio(),
        }
    }

    /// Why the rounds do not confirm the difference; `None` if they do.
    pub(super) fn doubt(&self) -> Option<String> {
        let (more, less) = (self.more.0, self.less.0);
        let title = title(&self.figure);
        let between = format!("between {} and {}", more.name, less.name);
        let difference = self.ratio() - 1.0;
        if difference == 0.0 {
            return Some(format!("there is no difference in {title} {between}"));
        }
        let (Some((more_low, more_high)), Some((less_low, less_high))) =
            (more.on.spread(&self.figure), less.on.spread(&self.figure))
        else {
            return (difference < ONE_ROUND_DIFFERENCE).then(|| {
                format!(
                    "one round of each does not confirm the {} {between} in {title}; --rounds 5 measures the spread",
                    percent(difference)
                )
            });
        };
        let spreads = [
            (more.name, (more_high - more_low) / self.more.1),
            (less.name, (less_high - less_low) / self.less.1),
        ];
        let [a, b] = spreads;
        let (name, spread) = if a.1 >= b.1 { a } else { b };
        if spread > difference {
            return Some(format!(
                "the rounds of {name} spread by {} in {title}, more than the {} {between}",
                percent(spread),
                percent(difference)
            ));
        }
        let overlap = more_low <= less_high;
        overlap.then(|| {
            format!(
                "some rounds of {} have a higher {title} than some of {}, although the medians differ by {}",
                less.name,
                more.name,
                percent(difference)
            )
        })
    }

    /// `a has 2.3 times the throughput of b (412,000 against 180,000 records/s)`
    pub(super) fn plain(&self) -> String {
        let (more, less) = (self.more.0.name, self.less.0.name);
        format!("{more} has {} {less} {}", self.by("of", "than"), self.numbers())
    }

    /// `a is best: 2.3 times the throughput of b (...)`
    pub(super) fn with_winner(&self, word: &str) -> String {
        let (more, less) = (self.more.0.name, self.less.0.name);
        let by = self.by("of", "than");
        match better(&self.figure) {
            Better::Higher => format!("{more} is {word}: {by} {less} {}", self.numbers()),
            Better::Lower => format!("{less} is {word}: {}", self.plain()),
            Better::Neither => self.plain(),
        }
    }

    fn by(&self, of: &str, than: &str) -> String {
        let title = title(&self.figure);
        match self.ratio() >= AS_RATIO {
            true => format!("{} times the {title} {of}", number(self.ratio())),
            false => format!("{} more {title} {than}", percent(self.ratio() - 1.0)),
        }
    }

    fn numbers(&self) -> String {
        let unit = unit(&self.figure);
        let (more, less) = (number(self.more.1), number(self.less.1));
        let rounds = self
            .more
            .0
            .on
            .measurements
            .len()
            .min(self.less.0.on.measurements.len());
        let rounds = if rounds < 2 { ", one round of each" } else { "" };
        format!("({more} against {less}{unit}{rounds})")
    }
}

/// The side that wins, against the one that is last.
pub(super) fn best_and_worst(sides: &[Side<'_>], is_record_size: bool) -> Told {
    let on: Vec<&OnTarget> = sides.iter().map(|side| side.on).collect();
    let Some(figure) = figure_of(&on, is_record_size) else {
        return Err(String::from("the points have no figure in common"));
    };
    let mut ranked = Vec::new();
    for side in sides {
        ranked.push((median(*side, figure)?, *side));
    }
    ranked.sort_by(|a, b| a.0.total_cmp(&b.0));
    let ([(_, lowest), ..], Some((_, highest))) = (ranked.as_slice(), ranked.last()) else {
        return Err(String::from("nothing was measured"));
    };
    let contrast = Contrast::between(figure, *highest, *lowest)?;
    match contrast.doubt() {
        Some(doubt) => Err(doubt),
        None => Ok(contrast.with_winner(if sides.len() > 2 { "best" } else { "better" })),
    }
}

/// The figure in which these are compared: latency where all held the same rate, otherwise
/// throughput, in bytes where the size of records differs.
pub(super) fn figure_of(on: &[&OnTarget], is_record_size: bool) -> Option<&'static str> {
    let all_have = |name: &&str| on.iter().all(|on| on.figure(name).is_some());
    let rates = || on.iter().filter_map(|on| on.figure("records_per_second"));
    let (low, high) = (rates().fold(f64::INFINITY, f64::min), rates().fold(0.0, f64::max));
    let is_same_rate = high <= (1.0 + SAME_RATE) * low && !on.iter().any(|on| on.is_saturated());
    let throughput = if is_record_size {
        "mib_per_second"
    } else {
        "records_per_second"
    };
    let latency = is_same_rate.then_some("latency_p99_ms");
    let names = latency.into_iter().chain([throughput, "answered_per_second"]);
    let mut names = names.filter(all_have);
    names.next()
}

/// `412,000 records/s`
pub(super) fn quantity(side: Side<'_>, figure: &str) -> Told {
    Ok(format!("{}{}", number(median(side, figure)?), unit(figure)))
}

/// - Errors: no round has a finite value.
pub(super) fn median(side: Side<'_>, figure: &str) -> Result<f64, String> {
    let value = side.on.figure(figure).filter(|value| value.is_finite());
    value.ok_or_else(|| format!("the {} of {} was not measured", title(figure), side.name))
}

fn better(figure: &str) -> Better {
    label::of(figure).map_or(Better::Neither, |label| label.better)
}

fn title(figure: &str) -> &str {
    label::of(figure).map_or(figure, |label| label.text)
}

fn unit(figure: &str) -> String {
    match label::of(figure).map_or("", |label| label.unit) {
        "" => String::new(),
        unit => format!(" {unit}"),
    }
}
