//! ISO 8601 durations as Java's `Duration.parse` reads them: `PT1H30M`, `P2DT3.5S`.

const MS_PER_DAY: u64 = 86_400_000;

/// - Shape: `PnDTnHnMn.nS` in any case, at least one part, fractions of a second cut to
///   milliseconds. The only sign accepted is a leading `+` of a part, because an offset reset never
///   points to the future.
pub fn parse_ms(text: &str) -> Option<u64> {
    let text = text.to_ascii_uppercase();
    let rest = text.strip_prefix('P')?;
    let (days, time) = match rest.split_once('T') {
        Some((days, time)) if !time.is_empty() => (days, time),
        Some(_) => return None,
        None => (rest, ""),
    };
    if days.is_empty() && time.is_empty() {
        return None;
    }
    let mut total_ms: u64 = 0;
    let mut add = |count: u64, unit_ms: u64| {
        total_ms = total_ms.checked_add(count.checked_mul(unit_ms)?)?;
        Some(())
    };
    if !days.is_empty() {
        add(digits(days.strip_suffix('D')?)?, MS_PER_DAY)?;
    }
    let mut time = time;
    for (letter, unit_ms) in [('H', 3_600_000), ('M', 60_000)] {
        if let Some((count, rest)) = time.split_once(letter) {
            add(digits(count)?, unit_ms)?;
            time = rest;
        }
    }
    if !time.is_empty() {
        let seconds = time.strip_suffix('S')?;
        let (whole, fraction) = seconds.split_once(['.', ',']).unwrap_or((seconds, ""));
        add(digits(whole)?, 1000)?;
        if fraction.len() > 9 || !fraction.bytes().all(|byte| byte.is_ascii_digit()) {
            return None;
        }
        let thousandths: String = fraction.chars().chain("000".chars()).take(3).collect();
        add(thousandths.parse().ok()?, 1)?;
    }
    Some(total_ms)
}

fn digits(text: &str) -> Option<u64> {
    let text = text.strip_prefix('+').unwrap_or(text);
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| text.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::parse_ms;

    #[test]
    fn durations_are_read_as_java_reads_them() {
        for (text, ms) in [
            ("PT0S", 0),
            ("PT1H", 3_600_000),
            ("pt1h30m", 5_400_000),
            ("P2D", 172_800_000),
            ("P1DT2H3M4.5S", 93_784_500),
            ("PT0.0019S", 1),
            ("PT4.S", 4000),
        ] {
            assert_eq!(parse_ms(text), Some(ms), "{text}");
        }
        for text in [
            "",
            "P",
            "PT",
            "P1DT",
            "1H",
            "P1H",
            "PT1S1H",
            "PT-1S",
            "-PT1S",
            "PTS",
            "PT1.0000000001S",
            "PTxS",
        ] {
            assert_eq!(parse_ms(text), None, "{text}");
        }
        assert_eq!(parse_ms("P99999999999999999999D"), None);
        assert_eq!(parse_ms("P9999999999999999D"), None);
    }
}
