//! Finds the known name that a misspelt one probably means, by edit distance.

/// Returns the candidate with the smallest edit distance; `None` if none is similar enough.
///
/// - Shape: at most one change in three letters; the first of equals.
pub fn nearest<'a>(name: &str, candidates: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    // No known key is longer, and the cost grows with the product of the lengths.
    const NAME_BYTES_MAX: usize = 200;
    if name.len() > NAME_BYTES_MAX {
        return None;
    }
    let changes_max = name.len() / 3;
    candidates
        .map(|candidate| (distance(name.as_bytes(), candidate.as_bytes()), candidate))
        .filter(|(changes, _)| *changes <= changes_max)
        .min_by_key(|(changes, _)| *changes)
        .map(|(_, candidate)| candidate)
}

/// Returns the number of inserted, deleted, replaced and swapped bytes between `a` and `b`.
fn distance(a: &[u8], b: &[u8]) -> usize {
    let mut before_last: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=b.len()).collect();
    for (i, from) in a.iter().enumerate() {
        let mut row = vec![i + 1];
        for (j, to) in b.iter().enumerate() {
            let replaced = last[j] + usize::from(from != to);
            let mut best = replaced.min(last[j + 1] + 1).min(row[j] + 1);
            if i > 0 && j > 0 && *from == b[j - 1] && a[i - 1] == *to {
                best = best.min(before_last[j - 1] + 1);
            }
            row.push(best);
        }
        before_last = std::mem::replace(&mut last, row);
    }
    last[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_are_counted() {
        let check = |a: &str, b: &str, expected| assert_eq!(distance(a.as_bytes(), b.as_bytes()), expected);
        check("", "abc", 3);
        check("abc", "abc", 0);
        check("abc", "acb", 1);
        check("kitten", "sitting", 3);
        check("log.dirs", "log.dir", 1);
    }

    #[test]
    fn a_name_that_is_too_different_gets_no_hint() {
        let names = ["log.dirs", "num.partitions"];
        assert_eq!(nearest("lgo.dirs", names.into_iter()), Some("log.dirs"));
        assert_eq!(nearest("zookeeper.connect", names.into_iter()), None);
        assert_eq!(nearest("", names.into_iter()), None);
        assert_eq!(nearest(&"x".repeat(10_000), names.into_iter()), None);
    }
}
