//! Stacked areas: the stages of one API over time, in the order in which they happen.

use ottla_lab::markup::Markup;

use super::line::path;
use super::parts;
use super::text::clock;
use crate::series::Course;
use crate::stage::{STAGE_COUNT, Stage};

const HEIGHT: f64 = 150.0;
const WIDTH: f64 = 900.0;
/// The points over the width: one for fifteen seconds of fifteen minutes.
const POINTS_MAX: usize = 60;
/// Labels keep this distance from each other.
const LABEL_HEIGHT: f64 = 14.0;

type Means = [f64; STAGE_COUNT];

/// Draws the course with its axis and, at the right end, a label for each layer; `false` if there
/// is not enough to draw.
pub fn draw(api: &str, course: &Course, page: &mut Markup) -> bool {
    let points = thinned(&course.points);
    if points.iter().flatten().count() < 2 {
        return false;
    }
    let highest = points.iter().flatten().map(own).fold(0.0, f64::max);
    let (full, step) = axis(highest);
    let y_of = |ms: f64| HEIGHT * (1.0 - ms / full);
    page.nest("div", &[("class", &"plot")], |page| {
        draw_scale(full, step, page);
        let about = sentence(api, &points);
        let around: [(&'static str, &dyn std::fmt::Display); 4] = [
            ("width", &"100%"),
            ("height", &"184"),
            ("role", &"img"),
            ("aria-label", &about),
        ];
        page.nest("svg", &around, |page| {
            draw_layers(&points, &y_of, page);
            let mut ms = step;
            while ms <= full * 0.999 {
                let y = format!("{:.1}", 10.0 + y_of(ms));
                page.shape(
                    "line",
                    &[("class", &"gg"), ("x2", &"100%"), ("y1", &y), ("y2", &y)],
                );
                ms += step;
            }
            draw_times(course, page);
        });
        let last = points
            .iter()
            .rev()
            .flatten()
            .next()
            .copied()
            .unwrap_or([0.0; STAGE_COUNT]);
        draw_labels(&last, &y_of, page);
    });
    true
}

fn own(means: &Means) -> f64 {
    layers().map(|stage| means[stage as usize]).sum()
}

fn layers() -> impl DoubleEndedIterator<Item = Stage> {
    Stage::ALL.into_iter().filter(|stage| !stage.is_asked_for())
}

fn thinned(points: &[Option<Means>]) -> Vec<Option<Means>> {
    let together = points.len().div_ceil(POINTS_MAX).max(1);
    let mean = |points: &[Option<Means>]| {
        let known: Vec<&Means> = points.iter().flatten().collect();
        let of = |index: usize| known.iter().map(|means| means[index]).sum::<f64>() / known.len() as f64;
        (!known.is_empty()).then(|| std::array::from_fn(of))
    };
    points.chunks(together).map(mean).collect()
}

/// The end of the axis and the distance of its ticks, both round.
fn axis(highest: f64) -> (f64, f64) {
    let highest = highest.max(1e-4);
    let power = 10_f64.powf(highest.log10().floor());
    let step = [0.5, 1.0, 2.0, 5.0]
        .into_iter()
        .find(|step| highest / (step * power) <= 3.0);
    let step = step.unwrap_or(5.0) * power;
    let full = (highest / step).ceil() * step;
    (full, step)
}

fn draw_scale(full: f64, step: f64, page: &mut Markup) {
    let around: [(&'static str, &dyn std::fmt::Display); 3] =
        [("width", &"100%"), ("height", &"184"), ("aria-hidden", &"true")];
    page.nest("svg", &around, |page| {
        let ticks = (full / step).round() as usize;
        for tick in 0..=ticks {
            let ms = step * tick as f64;
            let y = format!("{:.1}", 14.0 + HEIGHT * (1.0 - ms / full));
            let unit = if tick == ticks { " ms" } else { "" };
            let text = format!("{}{unit}", ottla_lab::numbers::number(ms));
            page.leaf("text", &[("class", &"t e"), ("x", &"100%"), ("y", &y)], text);
        }
    });
}

fn draw_layers(points: &[Option<Means>], y_of: &impl Fn(f64) -> f64, page: &mut Markup) {
    let around: [(&'static str, &dyn std::fmt::Display); 6] = [
        ("y", &"10"),
        ("width", &"100%"),
        ("height", &"150"),
        ("viewBox", &"0 0 900 150"),
        ("preserveAspectRatio", &"none"),
        ("class", &"ar"),
    ];
    let step = WIDTH / (points.len() - 1).max(1) as f64;
    page.nest("svg", &around, |page| {
        // From the highest layer down, so that each covers the one above it to its own height.
        for upto in layers().rev() {
            if !points.iter().flatten().any(|means| means[upto as usize] > 0.0) {
                continue;
            }
            let height = |means: &Means| {
                let below = layers().filter(|stage| *stage <= upto);
                below.map(|stage| means[stage as usize]).sum::<f64>()
            };
            let place = |(index, point): (usize, &Option<Means>)| {
                // No request is no time: the line falls to the ground.
                (index as f64 * step, y_of(point.as_ref().map_or(0.0, height)))
            };
            let line = path(points.iter().enumerate().map(place));
            let d = format!("{line}V{HEIGHT}H0z");
            page.shape("path", &[("class", &upto.class()), ("d", &d)]);
        }
    });
}

fn draw_times(course: &Course, page: &mut Markup) {
    let ticks = [
        (0.0, "t"),
        (1.0 / 3.0, "t m opt"),
        (2.0 / 3.0, "t m opt"),
        (1.0, "t e"),
    ];
    for (share, class) in ticks {
        let at_ms = course.from_ms + ((course.to_ms - course.from_ms) as f64 * share) as i64;
        let x = format!("{:.1}%", share * 100.0);
        let text = clock(at_ms);
        page.leaf("text", &[("class", &class), ("x", &x), ("y", &"178")], &text[..5]);
    }
}

fn draw_labels(last: &Means, y_of: &impl Fn(f64) -> f64, page: &mut Markup) {
    let own_only: Vec<f64> = Stage::ALL
        .into_iter()
        .map(|stage| {
            if stage.is_asked_for() {
                0.0
            } else {
                last[stage as usize]
            }
        })
        .collect();
    let shown = parts::of_ms(&own_only);
    let largest = layers().max_by(|one, other| last[*one as usize].total_cmp(&last[*other as usize]));
    let mut below = 0.0;
    let mut places: Vec<(Stage, f64)> = Vec::new();
    for stage in layers().filter(|stage| !shown.parts[*stage as usize].is_empty()) {
        let ms = last[stage as usize];
        places.push((stage, y_of(below + ms / 2.0)));
        below += ms;
    }
    let texts = spread(&places.iter().map(|place| place.1).collect::<Vec<f64>>());
    let around: [(&'static str, &dyn std::fmt::Display); 3] =
        [("width", &"100%"), ("height", &"184"), ("aria-hidden", &"true")];
    page.nest("svg", &around, |page| {
        page.nest("g", &[("transform", &"translate(0 10)")], |page| {
            for ((stage, at), text_at) in places.iter().zip(texts) {
                let leader = path([(0.0, *at), (7.0, text_at)].into_iter());
                page.shape("path", &[("class", &"g"), ("d", &leader)]);
                let y = format!("{:.1}", text_at + 4.0);
                let is_largest = largest == Some(*stage);
                let (class, end) = if is_largest { ("w6", "e w6") } else { ("", "e") };
                page.leaf(
                    "text",
                    &[("class", &class), ("x", &"10"), ("y", &y)],
                    stage.name(),
                );
                let text = &shown.parts[*stage as usize];
                page.leaf("text", &[("class", &end), ("x", &"100%"), ("y", &y)], text);
            }
        });
    });
}

/// Pushes labels apart, from the ground up; places descend.
fn spread(places: &[f64]) -> Vec<f64> {
    let mut texts: Vec<f64> = Vec::with_capacity(places.len());
    for place in places {
        let highest = texts.last().map_or(HEIGHT - 2.0, |below| below - LABEL_HEIGHT);
        texts.push(place.min(highest));
    }
    // What went beyond the top comes down again, and pushes those below it.
    let mut lowest = 2.0_f64;
    for text in texts.iter_mut().rev() {
        *text = text.max(lowest);
        lowest = *text + LABEL_HEIGHT;
    }
    texts
}

fn sentence(api: &str, points: &[Option<Means>]) -> String {
    let totals: Vec<f64> = points.iter().flatten().map(own).collect();
    let (low, high) = totals
        .iter()
        .fold((f64::INFINITY, 0.0_f64), |(low, high), total| {
            (low.min(*total), high.max(*total))
        });
    let last = totals.last().copied().unwrap_or(0.0);
    format!(
        "{api} by stage: {} ms now, between {} and {} ms before",
        parts::one_ms(last),
        parts::one_ms(low),
        parts::one_ms(high)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_do_not_overlap_and_stay_inside() {
        for places in [
            vec![148.0, 147.0, 146.0, 20.0],
            vec![3.0; 9],
            vec![149.0; 9],
            vec![],
        ] {
            let texts = spread(&places);
            assert!(
                texts
                    .windows(2)
                    .all(|pair| pair[0] - pair[1] >= LABEL_HEIGHT - 1e-9),
                "{texts:?}"
            );
            assert!(
                texts.iter().all(|text| (2.0..=HEIGHT).contains(text)),
                "{texts:?}"
            );
        }
    }

    #[test]
    fn an_axis_is_round_and_holds_the_highest() {
        for highest in [0.0003, 0.02, 0.7, 1.0, 1.31, 4.9, 99.0, 1_840.0] {
            let (full, step) = axis(highest);
            assert!(
                full >= highest * 0.999_999 && full <= highest * 2.5,
                "{highest}: {full}"
            );
            let ticks = full / step;
            assert!(
                (ticks - ticks.round()).abs() < 1e-6 && ticks <= 4.0,
                "{highest}: {ticks}"
            );
        }
    }

    #[test]
    fn a_course_without_requests_is_not_drawn() {
        let mut page = Markup::default();
        assert!(!draw("Produce", &Course::default(), &mut page));
        let points = vec![None, Some([0.1; STAGE_COUNT]), None, Some([0.1; STAGE_COUNT])];
        assert!(draw(
            "Produce",
            &Course {
                from_ms: 0,
                to_ms: 1,
                points
            },
            &mut page
        ));
        assert!(!page.into_string().contains("NaN"));
    }
}
