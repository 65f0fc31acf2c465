//! Numbers that are printed as a sum: rounded so that the printed parts add up to the printed
//! total.

use ottla_lab::numbers::count;

/// Parts and their sum, as text of one unit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parts {
    /// Empty where a part is rounded to nothing.
    pub parts: Vec<String>,
    pub total: String,
    pub unit: &'static str,
}

/// Rounds milliseconds to the same decimals by largest remainder.
pub fn of_ms(parts: &[f64]) -> Parts {
    let parts: Vec<f64> = parts
        .iter()
        .map(|part| if part.is_finite() { part.max(0.0) } else { 0.0 })
        .collect();
    let sum: f64 = parts.iter().sum();
    // Three digits of the total at least: below a tenth of a millisecond hundredths are too coarse.
    let decimals = if sum < 0.1 { 3 } else { 2 };
    let scale = 10_f64.powi(decimals);
    let whole = (sum * scale).round() as u64;
    let mut rounded: Vec<u64> = parts.iter().map(|part| (part * scale).floor() as u64).collect();
    let mut order: Vec<usize> = (0..parts.len()).collect();
    let rest = |index: usize| parts[index] * scale - (parts[index] * scale).floor();
    order.sort_by(|one, other| rest(*other).total_cmp(&rest(*one)));
    let mut missing = whole.saturating_sub(rounded.iter().sum());
    for index in order {
        if missing > 0 && parts[index] > 0.0 {
            rounded[index] += 1;
            missing -= 1;
        }
    }
    // Rounding errors of the sum: the printed total is that of the printed parts.
    let total = rounded.iter().sum();
    let decimals = decimals as usize;
    let shown = |value: &u64| match value {
        0 => String::new(),
        value => fixed(*value, decimals),
    };
    Parts {
        parts: rounded.iter().map(shown).collect(),
        total: fixed(total, decimals),
        unit: "ms",
    }
}

/// `1,840.00` from 184,000 hundredths.
fn fixed(value: u64, decimals: usize) -> String {
    let scale = 10_u64.pow(decimals as u32);
    format!("{}.{:0decimals$}", count(value / scale), value % scale)
}

/// Milliseconds with the decimals that [`of_ms`] would use.
pub fn one_ms(ms: f64) -> String {
    of_ms(&[ms]).total
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sum(texts: &[String]) -> u64 {
        let digits = |text: &String| text.replace([',', '.'], "").parse::<u64>().unwrap_or(0);
        texts.iter().map(digits).sum()
    }

    #[test]
    fn printed_parts_add_up_to_the_printed_total() {
        let mut seed = 1_u64;
        for round in 0..2_000 {
            let parts: Vec<f64> = (0..12)
                .map(|_| {
                    seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    (seed >> 33) as f64 / f64::from(1 << 20) / f64::from(round + 1)
                })
                .collect();
            let shown = of_ms(&parts);
            assert_eq!(
                sum(&shown.parts),
                sum(std::slice::from_ref(&shown.total)),
                "{parts:?}"
            );
        }
    }

    #[test]
    fn small_times_keep_three_decimals_and_large_ones_their_commas() {
        assert_eq!(of_ms(&[0.004, 0.0, 0.05]).parts, ["0.004", "", "0.050"]);
        let shown = of_ms(&[1_840.0, 0.34]);
        assert_eq!((&*shown.parts[0], &*shown.total), ("1,840.00", "1,840.34"));
        assert_eq!(of_ms(&[f64::NAN, -1.0]).total, "0.000");
    }
}
