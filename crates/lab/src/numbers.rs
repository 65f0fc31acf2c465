//! How numbers are written for people: three significant digits, a comma between thousands, a
//! space before the unit. Every table, sentence, chart and page takes its numbers from here.

/// Smaller values are rounding errors of the arithmetic, in every unit that is printed.
const ZERO_BELOW: f64 = 1e-12;

const KIB: f64 = 1_024.0;

/// Formats at least three significant digits without trailing zeros: `83,550`, `12.6`, `0.905`,
/// `5`.
pub fn number(value: f64) -> String {
    let size = value.abs();
    if value.is_nan() {
        return String::from("unknown");
    }
    if size.is_infinite() {
        return String::from("unlimited");
    }
    let decimals = match size {
        _ if size >= 1e15 || (ZERO_BELOW..1e-4).contains(&size) => return format!("{value:.2e}"),
        _ if size < ZERO_BELOW => return String::from("0"),
        _ if size >= 100.0 => 0,
        _ if size >= 10.0 => 1,
        _ if size >= 1.0 => 2,
        _ if size >= 0.1 => 3,
        _ if size >= 0.01 => 4,
        _ if size >= 0.001 => 5,
        _ => 6,
    };
    // Digits of an integer take a fraction of the time of those of a float.
    let whole = if decimals == 0 {
        value.round_ties_even()
    } else {
        value
    };
    if whole.fract() == 0.0 {
        return with_commas((whole as i64).to_string());
    }
    if let Some(text) = small_decimal(value, decimals) {
        return text;
    }
    let mut text = format!("{value:.decimals$}");
    text.truncate(text.trim_end_matches('0').trim_end_matches('.').len());
    with_commas(text)
}

/// What `format!` writes of a value below 1,000 with up to six decimals, without trailing zeros, in
/// a fraction of its time: the digits of an integer are enough. `None`: the value is so near to the
/// middle between two texts that the product below cannot tell which is nearer.
fn small_decimal(value: f64, decimals: usize) -> Option<String> {
    const MIDDLE: f64 = 1e-6;
    let scaled = value.abs() * [1.0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6][decimals];
    if (scaled.fract() - 0.5).abs() < MIDDLE {
        return None;
    }
    let mut digits = scaled.round() as u64;
    let mut decimals = decimals;
    while decimals > 0 && digits.is_multiple_of(10) {
        digits /= 10;
        decimals -= 1;
    }
    let mut text = [b'0'; 24];
    let mut begin = text.len();
    let mut written = 0;
    while digits > 0 || written <= decimals {
        if written > 0 && written == decimals {
            begin -= 1;
            text[begin] = b'.';
        }
        begin -= 1;
        text[begin] = b'0' + (digits % 10) as u8;
        digits /= 10;
        written += 1;
    }
    if value < 0.0 {
        begin -= 1;
        text[begin] = b'-';
    }
    std::str::from_utf8(&text[begin..]).ok().map(str::to_owned)
}

/// Formats a count exactly: `28,445`.
pub fn count(value: u64) -> String {
    with_commas(value.to_string())
}

fn with_commas(mut text: String) -> String {
    let begin = usize::from(text.starts_with('-'));
    let mut place = text.find('.').unwrap_or(text.len());
    while place > begin + 3 {
        place -= 3;
        text.insert(place, ',');
    }
    text
}

/// Formats the value of a setting as a configuration file takes it: no comma, no unit.
pub fn plain(value: f64) -> String {
    let is_whole = value.fract() == 0.0 && value.abs() < 1e15;
    if is_whole {
        (value as i64).to_string()
    } else {
        format!("{value:.0}")
    }
}

/// Formats `0.973` as `97.3 %`, no finer than a tenth of a percent: `41 %`, `<0.1 %`, `0 %`.
pub fn percent(share: f64) -> String {
    let size = 100.0 * share.abs();
    if size > ZERO_BELOW && size < 0.05 {
        return String::from("<0.1 %");
    }
    format!("{} %", number((1_000.0 * share).round() / 10.0))
}

/// Formats a difference with its sign: `0.123` as `+12.3 %`.
pub fn percent_change(share: f64) -> String {
    let sign = if share >= 0.000_5 { "+" } else { "" };
    format!("{sign}{}", percent(share))
}

/// Formats `900 bytes`, `16 KiB`, `1.5 GiB`.
pub fn bytes(value: f64) -> String {
    const UNITS: [&str; 4] = ["KiB", "MiB", "GiB", "TiB"];
    if value.abs() < KIB || !value.is_finite() {
        return format!("{} bytes", number(value));
    }
    let mut size = value / KIB;
    let mut unit = 0;
    while size.abs() >= KIB && unit + 1 < UNITS.len() {
        size /= KIB;
        unit += 1;
    }
    format!("{} {}", number(size), UNITS[unit])
}

/// Formats a number of bytes in MiB, for columns whose head names the unit.
pub fn mib(bytes: f64) -> String {
    number(bytes / KIB / KIB)
}

/// Formats a time in a suitable unit: `22 ms`, `3.2 h`.
pub fn duration(seconds: f64) -> String {
    let (divisor, unit) = match seconds.abs() {
        size if !size.is_finite() => return String::from("for ever"),
        size if size >= 2.0 * 86_400.0 => (86_400.0, "days"),
        size if size >= 2.0 * 3_600.0 => (3_600.0, "h"),
        size if size >= 120.0 => (60.0, "min"),
        size if size >= 1.0 || size == 0.0 => (1.0, "s"),
        size if size >= 1e-3 => (1e-3, "ms"),
        _ => (1e-6, "µs"),
    };
    format!("{} {unit}", number(seconds / divisor))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_three_digits_and_commas() {
        for (value, expected) in [
            (83_550.4, "83,550"),
            (1_391.0, "1,391"),
            (999.6, "1,000"),
            (1_234_567.0, "1,234,567"),
            (12.64, "12.6"),
            (1.0, "1"),
            (0.905, "0.905"),
            (0.012_34, "0.0123"),
            (0.004_2, "0.0042"),
            (0.000_123_4, "0.000123"),
            (0.000_01, "1.00e-5"),
            (1e18, "1.00e18"),
            (0.1 + 0.2 - 0.3, "0"),
            (0.0, "0"),
            (-12_345.0, "-12,345"),
            (-999.0, "-999"),
            (f64::INFINITY, "unlimited"),
            (f64::NAN, "unknown"),
        ] {
            assert_eq!(number(value), expected);
        }
        assert_eq!(count(9_007_199_254_740_993), "9,007,199,254,740,993");
        assert_eq!(plain(32_768.0), "32768");
    }

    #[test]
    fn decimals_are_those_of_the_formatter() {
        for exponent in -4..3 {
            for step in 1..2_000 {
                let value = f64::from(step) * 0.500_5 * 10f64.powi(exponent - 3);
                for decimals in 0..7 {
                    let Some(text) = small_decimal(value, decimals) else {
                        continue;
                    };
                    let mut expected = format!("{value:.decimals$}");
                    if decimals > 0 {
                        expected.truncate(expected.trim_end_matches('0').trim_end_matches('.').len());
                    }
                    assert_eq!(text, expected, "{value} {decimals}");
                    assert_eq!(small_decimal(-value, decimals).unwrap(), format!("-{expected}"));
                }
            }
        }
        // In the middle as written, but not as a binary number is: 0.125 is exact, 1.005 is below.
        assert_eq!([small_decimal(0.125, 2), small_decimal(1.005, 2)], [None, None]);
    }

    #[test]
    fn units_follow_after_a_space() {
        assert_eq!(
            [900.0, 16_384.0, 45_469.0, 1_610_612_736.0].map(bytes),
            ["900 bytes", "16 KiB", "44.4 KiB", "1.5 GiB"]
        );
        assert_eq!(mib(1_572_864.0), "1.5");
        assert_eq!(
            [0.0, 0.000_1, 0.004, 0.099_9, 0.41, 0.973, 1.0].map(percent),
            ["0 %", "<0.1 %", "0.4 %", "10 %", "41 %", "97.3 %", "100 %"]
        );
        assert_eq!(
            [0.123, -0.004_4, 0.000_1, 0.0].map(percent_change),
            ["+12.3 %", "-0.4 %", "<0.1 %", "0 %"]
        );
    }

    #[test]
    fn times_have_suitable_units() {
        for (seconds, text) in [
            (0.022, "22 ms"),
            (0.000_05, "50 µs"),
            (1.5, "1.5 s"),
            (719.0, "12 min"),
            (7_200.0, "2 h"),
            (200_000.0, "2.31 days"),
            (f64::INFINITY, "for ever"),
        ] {
            assert_eq!(duration(seconds), text);
        }
    }
}
