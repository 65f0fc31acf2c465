//! Errors by text: bounded, because a text may contain an offset.

use std::collections::BTreeMap;

const KINDS_MAX: usize = 20;
const REST: &str = "other errors";

#[derive(Clone, Debug, Default)]
pub struct Errors {
    by_text: BTreeMap<String, u64>,
}

impl Errors {
    pub fn add(&mut self, text: &str, count: u64) {
        if let Some(known) = self.by_text.get_mut(text) {
            *known += count;
            return;
        }
        let text = if self.by_text.len() < KINDS_MAX {
            text
        } else {
            REST
        };
        *self.by_text.entry(text.to_owned()).or_default() += count;
    }

    pub fn merge(&mut self, other: &Errors) {
        for (text, count) in &other.by_text {
            self.add(text, *count);
        }
    }

    pub fn into_map(self) -> BTreeMap<String, u64> {
        self.by_text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_kinds_stay_few_lines_and_none_is_lost() {
        let mut errors = Errors::default();
        for number in 0..1_000 {
            errors.add(&format!("offset {number}"), 2);
        }
        let map = errors.into_map();
        assert_eq!(map.len(), KINDS_MAX + 1);
        assert_eq!(map.values().sum::<u64>(), 2_000);
    }
}
