//! A small line without axes, and paths of lines in general.

use std::fmt::Write;

use ottla_lab::markup::Markup;

/// The points of a small line: more cannot be seen.
const POINTS_MAX: usize = 60;

/// Draws a course from the lowest to the highest of its own values; nothing with fewer than two.
pub fn spark(values: &[f64], page: &mut Markup) {
    let values = thinned(values, POINTS_MAX);
    if values.len() < 2 {
        return;
    }
    let low = values.iter().copied().fold(f64::INFINITY, f64::min);
    let high = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let span = if high > low { high - low } else { 1.0 };
    let step = 60.0 / (values.len() - 1) as f64;
    let place = |(index, value): (usize, &f64)| {
        let y = if high > low {
            20.0 - 18.0 * (value - low) / span
        } else {
            11.0
        };
        (index as f64 * step, y)
    };
    let path = path(values.iter().enumerate().map(place));
    let around: [(&'static str, &dyn std::fmt::Display); 5] = [
        ("width", &"100%"),
        ("height", &"22"),
        ("viewBox", &"0 0 60 22"),
        ("preserveAspectRatio", &"none"),
        ("aria-hidden", &"true"),
    ];
    page.nest("svg", &around, |page| {
        page.shape("path", &[("class", &"ln"), ("d", &path)])
    });
}

/// `M0 3L5 7`.
pub fn path(points: impl Iterator<Item = (f64, f64)>) -> String {
    let mut path = String::new();
    for (index, (x, y)) in points.enumerate() {
        let letter = if index == 0 { 'M' } else { 'L' };
        let _ = write!(path, "{letter}{:.1} {:.1}", x, y);
    }
    path
}

/// At most `points_max` values, each the mean of the same number of neighbours.
pub fn thinned(values: &[f64], points_max: usize) -> Vec<f64> {
    let together = values.len().div_ceil(points_max).max(1);
    let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len() as f64;
    values.chunks(together).map(mean).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_course_is_thinned_and_a_short_one_is_not_drawn() {
        assert_eq!(thinned(&[1.0, 3.0, 5.0, 7.0, 9.0], 3), [2.0, 6.0, 9.0]);
        let drawn = |values: &[f64]| {
            let mut page = Markup::default();
            spark(values, &mut page);
            page.into_string()
        };
        assert_eq!(drawn(&[1.0]), "");
        assert!(drawn(&[0.0, 10.0]).contains("d=\"M0.0 20.0L60.0 2.0\""));
        assert!(drawn(&[7.0, 7.0]).contains("d=\"M0.0 11.0L60.0 11.0\""));
    }
}
